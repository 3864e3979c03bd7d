//! Open files of a volume.

use eyrie_engine::ObjectId;

use crate::posix::OpenFlags;

/// An open file or directory of a [`Pxfs`](super::Pxfs). The handle keeps the rights that it was opened with,
/// even if the mode of the file changes. Only [`Posix::close`](crate::posix::Posix::close) closes it.
///
/// ```
/// # use eyrie::*; fn f(files: &Files) -> Result<()> {
/// let handle = files.open("/egg".into(), OpenFlags::READ, 0)?;
/// files.close(handle)
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a handle keeps its file open until the call of `close`"]
pub struct Handle {
    pub(super) id: ObjectId,
    pub(super) flags: OpenFlags,
}

impl Handle {
    /// Returns the open object.
    pub fn id(&self) -> ObjectId {
        self.id
    }
}
