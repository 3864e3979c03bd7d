//! Writes to nodes, and copies between them.

use std::ops::Range;

use eyrie_engine::access::Credentials;
use eyrie_engine::{Engine, ObjectId};

use super::super::AsUser;
use super::super::clone::check_files;
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

    /// Copies bytes from one file to another, or within one file if the ranges do not overlap. Returns the
    /// number of bytes, which is smaller than `length` if the first file ends earlier. The files share pages
    /// as after [`Posix::copy_file_range`]. All other bytes are copied in steps of at most 1 MiB. If a later
    /// step fails, the call returns the number of bytes that it has copied. The caller must have checked the
    /// rights.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// let copied = nodes.copy(who, (egg, 0), (egg, 1 << 20), 4096)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::copy_file_range`], but no `EBADF`. `EPERM` for an immutable file, and for an append-only
    /// file unless the bytes begin at its end. After an error nothing is copied.
    pub fn copy(
        &self,
        who: &Credentials,
        (from, from_offset): (ObjectId, u64),
        (to, to_offset): (ObjectId, u64),
        length: u64,
    ) -> Result<u64> {
        // A copy within one file may move the end of the file, so the end is read first.
        let size = self.call(who, "copy_file_range", [from], |user| Ok(user.engine().attributes(from)?.size));
        let end = length.min(size?.saturating_sub(from_offset));
        // The first step checks the whole range, even if it has no bytes.
        let (mut copied, mut left) = (0, length);
        loop {
            let (source, target) = ((from, from_offset + copied), (to, to_offset + copied));
            let step = |user: AsUser<'_, E>| {
                check_files([from, to])?;
                user.copy_node(source, target, left)
            };
            match self.call(who, "copy_file_range", [from, to], step) {
                Ok(0) => break,
                Ok(more) => copied += more,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
            if copied >= end {
                break;
            }
            left = end - copied;
        }
        Ok(copied)
    }
}
