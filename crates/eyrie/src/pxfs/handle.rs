//! Open files of a volume.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::{Engine, ObjectId};

use super::{AsUser, CallResult};
use crate::Errno;
use crate::kept::KeptId;
use crate::posix::OpenFlags;

/// An open file or directory of a [`Pxfs`](super::Pxfs). The handle keeps the rights that it was opened with,
/// even if the mode of the file changes. Only [`Posix::close`](crate::posix::Posix::close) closes it.
///
/// The file systems of one volume share their handles, whatever their credentials are. A file system of
/// another volume refuses the handle with `EBADF`, or with `EXDEV` if a path begins at the handle.
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
    id: KeptId,
    pub(super) flags: OpenFlags,
    /// The [number](Engine::instance) of the engine that has the object open.
    engine: u32,
    /// Number of this open file as an owner of locks. 0 until its first lock.
    lock_owner: AtomicU64,
}

impl Handle {
    /// Returns the id of the open object.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) -> Result<()> {
    /// let handle = files.open("/egg".into(), OpenFlags::READ, 0)?;
    /// println!("inode {}", handle.id().raw());
    /// # files.close(handle)
    /// # }
    /// ```
    pub fn id(&self) -> ObjectId {
        self.id.raw()
    }

    /// Returns the generation of the open object, as [`KeptId::generation`] does.
    pub(super) fn generation(&self) -> u64 {
        self.id.generation()
    }

    /// Returns the number of this open file as an owner of locks. `None` if it never asked for a lock.
    pub(super) fn lock_owner(&self) -> Option<u64> {
        Some(self.lock_owner.load(Ordering::Relaxed)).filter(|&number| number != 0)
    }

    /// Returns the number of this open file as an owner of locks. No other open file of the process has it.
    pub(super) fn lock_owner_or_new(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.lock_owner().unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            match self.lock_owner.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => new,
                Err(number) => number,
            }
        })
    }

    /// Returns the id of the open object, for a caller that later closes the object itself, without the
    /// handle.
    pub(crate) fn into_kept(self) -> KeptId {
        self.id
    }

    /// Returns the id of the open object, as [`KeptId::get`] does.
    pub(crate) fn current(&self, engine: &impl Engine) -> eyrie_engine::Result<ObjectId> {
        self.id.get(engine)
    }
}

impl<E: Engine> AsUser<'_, E> {
    /// Opens an object.
    #[inline]
    pub(super) fn open_id(&self, id: ObjectId, flags: OpenFlags) -> CallResult<Handle> {
        let engine = self.engine();
        engine.open(id)?;
        match KeptId::new(engine, id) {
            Ok(id) => Ok(Handle { id, flags, engine: engine.instance(), lock_owner: AtomicU64::new(0) }),
            Err(error) => {
                engine.close(id);
                Err(error.into())
            }
        }
    }

    /// Returns the id of the open object of a handle. `EBADF` for a handle of another engine, because the id
    /// names another object or none in this engine. `ESTALE` if the object did not outlive the service that
    /// had it open.
    #[inline]
    pub(super) fn opened(&self, handle: &Handle) -> CallResult<ObjectId> {
        self.check_engine(handle)?;
        Ok(handle.id.get(self.engine())?)
    }

    /// Works as [`AsUser::opened`], but refuses a handle that was opened with [`OpenFlags::PATH`].
    #[inline]
    pub(super) fn usable(&self, handle: &Handle) -> CallResult<ObjectId> {
        let id = self.opened(handle)?;
        if handle.flags.contains(OpenFlags::PATH) { Err(Errno::BADF.into()) } else { Ok(id) }
    }

    /// Refuses a handle of another engine.
    #[inline]
    pub(super) fn check_engine(&self, handle: &Handle) -> Result<(), Errno> {
        if handle.engine == self.engine().instance() { Ok(()) } else { Err(Errno::BADF) }
    }
}
