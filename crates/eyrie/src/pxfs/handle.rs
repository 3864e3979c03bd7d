//! Open files of a volume.

use eyrie_engine::{Engine, ObjectId};

use super::AsUser;
use crate::Errno;
use crate::posix::OpenFlags;

/// An open file or directory of a [`Pxfs`](super::Pxfs). The handle keeps the rights that it was opened with,
/// even if the mode of the file changes. Only [`Posix::close`](crate::posix::Posix::close) closes it.
///
/// The file systems of one volume share their handles, whatever their credentials are. A file system of
/// another volume refuses the handle with `EBADF`, or with `EXDEV` if a path begins there.
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
    /// The [number](Engine::instance) of the engine that has the object open.
    engine: u32,
}

impl Handle {
    /// Returns the open object.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) -> Result<()> {
    /// let handle = files.open("/egg".into(), OpenFlags::READ, 0)?;
    /// println!("inode {}", handle.id().raw());
    /// # files.close(handle)
    /// # }
    /// ```
    pub fn id(&self) -> ObjectId {
        self.id
    }
}

impl<E: Engine> AsUser<'_, E> {
    /// Returns the handle of an object that the engine has just opened.
    #[inline]
    pub(super) fn handle(&self, id: ObjectId, flags: OpenFlags) -> Handle {
        Handle { id, flags, engine: self.engine().instance() }
    }

    /// Returns the open object of a handle. `EBADF` for a handle of another engine, in which the id names
    /// another object or none.
    #[inline]
    pub(super) fn opened(&self, handle: &Handle) -> Result<ObjectId, Errno> {
        if handle.engine == self.engine().instance() { Ok(handle.id) } else { Err(Errno::BADF) }
    }
}
