//! The calls of [`Posix`].

use std::path::Path;

use eyrie_engine::access::{self, Rights};
use eyrie_engine::{Content, Engine, FallocateMode, Kind, ObjectId, RenameMode, XattrMode};
use eyrie_medium::{PAGE_SIZE, epoch};
use rustix::io::Errno;

use super::path::PathWalk;
use super::xattr::{check_name, check_value};
use super::{CallResult, Handle, Pxfs, bytes};
use crate::posix::{ListEntry, OpenFlags, Posix, SetTime, Stat, StatVfs, Whence};
use crate::{NAME_MAX, Result};

const BLOCK_SIZE: u64 = PAGE_SIZE;
/// Bytes of the smallest object, which has only its header.
const OBJECT_SIZE: u64 = 256;

impl<E: Engine> Pxfs<E> {
    /// Returns the object that `path` names. With `follow`, a symbolic link at the end is followed.
    fn object_at(&self, path: &Path, follow: bool) -> CallResult<ObjectId> {
        PathWalk::new(self, bytes(path))?.resolve(follow)
    }

    #[inline]
    fn stat_path(&self, operation: &'static str, path: &Path, follow: bool) -> Result<Stat> {
        self.call(operation, || {
            let id = match self.resolve_quickly(bytes(path))? {
                Some(id) => id,
                None => PathWalk::new(self, bytes(path))?.resolve(follow)?,
            };
            self.stat_of(id)
        })
    }
}

impl<E: Engine> Posix for Pxfs<E> {
    type Handle = Handle;

    /// An open directory of a volume takes memory, but no descriptor.
    const HANDLES: usize = usize::MAX;

    const MOUNTS: bool = false;

    fn at(&self, dir: &Handle) -> Result<Self> {
        self.call("openat", || self.rooted(dir.id()))
    }

    #[inline]
    fn open(&self, path: impl AsRef<Path>, flags: OpenFlags, mode: u16) -> Result<Handle> {
        self.call("open", || self.open_path(bytes(path.as_ref()), flags, mode))
    }

    #[inline]
    fn close(&self, handle: Handle) -> Result<()> {
        let _pin = epoch::pin();
        self.close_handle(&handle);
        Ok(())
    }

    #[inline]
    fn read_at(&self, handle: &Handle, out: &mut [u8], offset: u64) -> Result<usize> {
        let _pin = epoch::pin();
        self.read_handle(handle, out, offset).map_err(|error| error.into_error("read"))
    }

    #[inline]
    fn write_at(&self, handle: &Handle, data: &[u8], offset: u64) -> Result<usize> {
        self.call("write", || self.write_handle(handle, data, offset))
    }

    #[inline]
    fn append(&self, handle: &Handle, data: &[u8]) -> Result<usize> {
        self.call("write", || self.append_handle(handle, data))
    }

    #[inline]
    fn fstat(&self, handle: &Handle) -> Result<Stat> {
        self.call("fstat", || self.stat_of(handle.id()))
    }

    #[inline]
    fn stat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat_path("stat", path.as_ref(), true)
    }

    #[inline]
    fn lstat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat_path("lstat", path.as_ref(), false)
    }

    fn set_len(&self, handle: &Handle, size: u64) -> Result<()> {
        self.call("ftruncate", || self.set_handle_size(handle, size))
    }

    fn fallocate(&self, handle: &Handle, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.call("fallocate", || self.fallocate_handle(handle, mode, offset, length))
    }

    fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        self.call("truncate", || self.truncate_path(bytes(path.as_ref()), size))
    }

    fn mkdir(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        self.call("mkdir", || self.make(bytes(path.as_ref()), Kind::Directory, mode, Content::Empty))
    }

    fn rmdir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.call("rmdir", || self.remove_directory(bytes(path.as_ref())))
    }

    #[inline]
    fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        self.call("unlink", || self.unlink_path(bytes(path.as_ref())))
    }

    #[inline]
    fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()> {
        self.call("rename", || self.rename_path(bytes(from.as_ref()), bytes(to.as_ref()), mode))
    }

    fn link(&self, existing: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        self.call("link", || self.make_link(bytes(existing.as_ref()), self, bytes(path.as_ref())))
    }

    fn link_at(&self, existing: impl AsRef<Path>, to: &Self, path: impl AsRef<Path>) -> Result<()> {
        self.call("linkat", || self.make_link(bytes(existing.as_ref()), to, bytes(path.as_ref())))
    }

    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        self.call("symlink", || self.make_symlink(bytes(target.as_ref()), bytes(path.as_ref())))
    }

    fn readlink(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.call("readlink", || {
            let id = self.object_at(path.as_ref(), false)?;
            match id.kind() {
                Kind::Symlink => self.read_link(id),
                _ => Err(Errno::INVAL.into()),
            }
        })
    }

    fn chmod(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        self.call("chmod", || self.set_mode(self.object_at(path.as_ref(), true)?, mode))
    }

    fn fchmod(&self, handle: &Handle, mode: u16) -> Result<()> {
        self.call("fchmod", || self.set_mode(handle.id(), mode))
    }

    fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.call("chown", || self.set_owner(self.object_at(path.as_ref(), true)?, uid, gid))
    }

    fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.call("lchown", || self.set_owner(self.object_at(path.as_ref(), false)?, uid, gid))
    }

    fn utimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()> {
        if accessed == SetTime::Omit && modified == SetTime::Omit {
            // The kernel does not even resolve the path.
            return Ok(());
        }
        self.call("utimens", || self.set_times(self.object_at(path.as_ref(), true)?, accessed, modified))
    }

    fn lutimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()> {
        if accessed == SetTime::Omit && modified == SetTime::Omit {
            return Ok(());
        }
        self.call("lutimens", || self.set_times(self.object_at(path.as_ref(), false)?, accessed, modified))
    }

    fn futimens(&self, handle: &Handle, accessed: SetTime, modified: SetTime) -> Result<()> {
        if accessed == SetTime::Omit && modified == SetTime::Omit {
            return Ok(());
        }
        self.call("futimens", || self.set_times(handle.id(), accessed, modified))
    }

    fn mknod(&self, path: impl AsRef<Path>, kind: Kind, mode: u16, device: u64) -> Result<()> {
        self.call("mknod", || {
            // A device number has 12 bits of major and 20 bits of minor number. The C library refuses longer
            // numbers, so this call does, too.
            if device > u32::MAX.into() {
                return Err(Errno::INVAL.into());
            }
            let content = match kind {
                Kind::Directory => return Err(Errno::PERM.into()),
                Kind::Symlink => return Err(Errno::INVAL.into()),
                Kind::CharDevice | Kind::BlockDevice => Content::Device(device),
                Kind::File | Kind::Fifo | Kind::Socket => Content::Empty,
            };
            self.make(bytes(path.as_ref()), kind, mode, content)
        })
    }

    fn list(&self, handle: &Handle, cookie: u64, visit: &mut dyn FnMut(ListEntry<'_>) -> bool) -> Result<()> {
        // This call does not use `call`, because a listing that has visited entries cannot begin again.
        let _pin = epoch::pin();
        self.list_handle(handle, cookie, visit).map_err(|error| error.into_error("getdents"))
    }

    fn access(&self, path: impl AsRef<Path>, access: Rights) -> Result<()> {
        self.call("access", || {
            let id = self.object_at(path.as_ref(), true)?;
            Ok(access::check(&self.credentials, &self.protection(id)?, access)?)
        })
    }

    fn getxattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize> {
        let name = name.as_ref();
        self.call("getxattr", || {
            check_name(name)?;
            self.get_xattr(self.object_at(path.as_ref(), true)?, name, out)
        })
    }

    fn lgetxattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize> {
        let name = name.as_ref();
        self.call("lgetxattr", || {
            check_name(name)?;
            self.get_xattr(self.object_at(path.as_ref(), false)?, name, out)
        })
    }

    fn fgetxattr(&self, handle: &Handle, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize> {
        let name = name.as_ref();
        self.call("fgetxattr", || {
            check_name(name)?;
            self.get_xattr(handle.id(), name, out)
        })
    }

    fn listxattr(&self, path: impl AsRef<Path>, out: &mut [u8]) -> Result<usize> {
        self.call("listxattr", || self.list_xattrs(self.object_at(path.as_ref(), true)?, out))
    }

    fn llistxattr(&self, path: impl AsRef<Path>, out: &mut [u8]) -> Result<usize> {
        self.call("llistxattr", || self.list_xattrs(self.object_at(path.as_ref(), false)?, out))
    }

    fn flistxattr(&self, handle: &Handle, out: &mut [u8]) -> Result<usize> {
        self.call("flistxattr", || self.list_xattrs(handle.id(), out))
    }

    fn setxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let name = name.as_ref();
        self.call("setxattr", || {
            check_name(name)?;
            check_value(value)?;
            self.set_xattr(self.object_at(path.as_ref(), true)?, name, value, mode)
        })
    }

    fn lsetxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let name = name.as_ref();
        self.call("lsetxattr", || {
            check_name(name)?;
            check_value(value)?;
            self.set_xattr(self.object_at(path.as_ref(), false)?, name, value, mode)
        })
    }

    fn fsetxattr(
        &self,
        handle: &Handle,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let name = name.as_ref();
        self.call("fsetxattr", || {
            check_name(name)?;
            check_value(value)?;
            self.set_xattr(handle.id(), name, value, mode)
        })
    }

    fn removexattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.call("removexattr", || {
            check_name(name)?;
            self.remove_xattr(self.object_at(path.as_ref(), true)?, name)
        })
    }

    fn lremovexattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.call("lremovexattr", || {
            check_name(name)?;
            self.remove_xattr(self.object_at(path.as_ref(), false)?, name)
        })
    }

    fn fremovexattr(&self, handle: &Handle, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.call("fremovexattr", || {
            check_name(name)?;
            self.remove_xattr(handle.id(), name)
        })
    }

    fn seek(&self, handle: &Handle, offset: u64, whence: Whence) -> Result<u64> {
        self.call("lseek", || self.seek_handle(handle, offset, whence))
    }

    fn fsync(&self, handle: &Handle) -> Result<()> {
        self.call("fsync", || {
            // The caller may have seen a change of another thread that is not durable yet.
            self.engine.wait_for(handle.id())?;
            Ok(self.engine.sync()?)
        })
    }

    fn statvfs(&self) -> Result<StatVfs> {
        let space = self.engine.space();
        let files_free = space.free / OBJECT_SIZE;
        Ok(StatVfs {
            block_size: BLOCK_SIZE,
            blocks: space.total / BLOCK_SIZE,
            blocks_free: space.free / BLOCK_SIZE,
            files: space.objects + files_free,
            files_free,
            name_max: NAME_MAX as u64,
        })
    }
}
