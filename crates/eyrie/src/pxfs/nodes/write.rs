//! Writes to nodes.

use std::ops::Range;

use eyrie_engine::access::Credentials;
use eyrie_engine::{Engine, ObjectId};

use super::Nodes;
use crate::Result;
#[cfg(doc)]
use crate::{Pxfs, posix::Posix};

impl<E: Engine> Nodes<E> {
    /// Chooses if a write that does not fit writes the bytes that fit: see [`Pxfs::with_short_writes`].
    ///
    /// ```
    /// # use eyrie::*; fn f(volume: &Volume) {
    /// let nodes = volume.nodes().with_short_writes(true);
    /// # }
    /// ```
    #[must_use]
    pub fn with_short_writes(mut self, short_writes: bool) -> Nodes<E> {
        self.files = self.files.with_short_writes(short_writes);
        self
    }

    /// Writes bytes to a file, and returns their number. A call on a served volume writes at most 64 MiB. The
    /// caller must have checked the rights. The credentials `who` decide about the set-id bits that the file
    /// loses.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// assert_eq!(nodes.write(who, egg, 0, b"blue")?, 4);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::write_at`], but no `EBADF`. `EISDIR` for a directory, `EINVAL` for another kind of object.
    /// `EPERM` for an immutable file, and for an append-only file unless the bytes begin at its end.
    pub fn write(&self, who: &Credentials, id: ObjectId, offset: u64, data: &[u8]) -> Result<usize> {
        let write = |data: &[u8]| self.call(who, "write", [id], |user| user.write_node(id, data, offset));
        write(data).or_else(|error| self.files.write_less(id, Some(offset), data, error, write))
    }

    /// Appends bytes to a file, and returns the range that has them. Otherwise as [`Nodes::write`].
    /// [`Nodes`] has an example.
    ///
    /// # Errors
    /// As [`Nodes::write`].
    pub fn append(&self, who: &Credentials, id: ObjectId, data: &[u8]) -> Result<Range<u64>> {
        let append = |data: &[u8]| self.call(who, "write", [id], |user| user.append_node(id, data));
        append(data).or_else(|error| self.files.write_less(id, None, data, error, append))
    }
}
