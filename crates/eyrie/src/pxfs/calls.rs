//! The calls of [`Posix`].

use std::ops::Range;
use std::path::Path;

use eyrie_engine::access::{self, Rights};
use eyrie_engine::{Content, Engine, FallocateMode, Kind, RenameMode, XattrMode};
use eyrie_medium::{PAGE_SIZE, epoch};

use super::xattr::{check_name, check_value};
use super::{Handle, Pxfs};
use crate::posix::{ListEntry, OpenFlags, PathAt, Posix, SetTime, Stat, StatVfs, Target, Whence};
use crate::{Errno, NAME_MAX, Result};

const BLOCK_SIZE: u64 = PAGE_SIZE;
/// Bytes of the smallest object, which has only its header.
const OBJECT_SIZE: u64 = 256;

impl<E: Engine> Posix for Pxfs<E> {
    type Handle = Handle;

    /// An open directory of a volume takes memory, but no descriptor.
    fn open_dirs_max(&self) -> usize {
        usize::MAX
    }

    fn has_mounts(&self) -> bool {
        false
    }

    #[inline]
    fn open(&self, path: PathAt<'_, Handle>, flags: OpenFlags, mode: u16) -> Result<Handle> {
        self.call("open", || self.open_path(path, flags, mode))
    }

    #[inline]
    fn close(&self, handle: Handle) -> Result<()> {
        let _pin = epoch::pin();
        self.close_handle(&handle).map_err(|error| error.into_error("close"))
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
        self.append_range(handle, data).map(|written| (written.end - written.start) as usize)
    }

    #[inline]
    fn append_range(&self, handle: &Handle, data: &[u8]) -> Result<Range<u64>> {
        self.call("write", || self.append_handle(handle, data))
    }

    #[inline]
    fn stat(&self, file: Target<'_, Handle>) -> Result<Stat> {
        self.call("stat", || {
            let quick = match file {
                Target::Follow(path) | Target::NoFollow(path) => self.resolve_quickly(path)?,
                Target::Open(handle) => Some(self.opened(handle)?),
            };
            self.stat_of(match quick {
                Some(id) => id,
                None => self.target(file)?,
            })
        })
    }

    fn truncate(&self, file: Target<'_, Handle>, size: u64) -> Result<()> {
        self.call("truncate", || match file {
            Target::Open(handle) => self.set_handle_size(handle, size),
            _ => self.truncate_path(file, size),
        })
    }

    fn fallocate(&self, handle: &Handle, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.call("fallocate", || self.fallocate_handle(handle, mode, offset, length))
    }

    fn mkdir(&self, path: PathAt<'_, Handle>, mode: u16) -> Result<()> {
        self.call("mkdir", || self.make(path, Kind::Directory, mode, Content::Empty))
    }

    fn rmdir(&self, path: PathAt<'_, Handle>) -> Result<()> {
        self.call("rmdir", || self.remove_directory(path))
    }

    #[inline]
    fn unlink(&self, path: PathAt<'_, Handle>) -> Result<()> {
        self.call("unlink", || self.unlink_path(path))
    }

    #[inline]
    fn rename_with(&self, from: PathAt<'_, Handle>, to: PathAt<'_, Handle>, mode: RenameMode) -> Result<()> {
        self.call("rename", || self.rename_path(from, to, mode))
    }

    fn link(&self, existing: Target<'_, Handle>, path: PathAt<'_, Handle>) -> Result<()> {
        self.call("link", || self.make_link(existing, path))
    }

    fn symlink(&self, target: &Path, path: PathAt<'_, Handle>) -> Result<()> {
        self.call("symlink", || self.make_symlink(target, path))
    }

    fn readlink(&self, path: PathAt<'_, Handle>) -> Result<Vec<u8>> {
        self.call("readlink", || {
            let id = self.target(Target::NoFollow(path))?;
            match id.kind() {
                Kind::Symlink => self.read_link(id),
                _ => Err(Errno::INVAL.into()),
            }
        })
    }

    fn chmod(&self, file: Target<'_, Handle>, mode: u16) -> Result<()> {
        self.call("chmod", || {
            let id = self.target(file)?;
            if id.kind() == Kind::Symlink {
                return Err(Errno::OPNOTSUPP.into());
            }
            self.set_mode(id, mode)
        })
    }

    fn chown(&self, file: Target<'_, Handle>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.call("chown", || self.set_owner(self.target(file)?, uid, gid))
    }

    fn utimens(&self, file: Target<'_, Handle>, accessed: SetTime, modified: SetTime) -> Result<()> {
        if accessed == SetTime::Omit && modified == SetTime::Omit {
            // The kernel does not even resolve the path.
            return Ok(());
        }
        self.call("utimens", || self.set_times(self.target(file)?, accessed, modified))
    }

    fn mknod(&self, path: PathAt<'_, Handle>, kind: Kind, mode: u16, device: u64) -> Result<()> {
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
            self.make(path, kind, mode, content)
        })
    }

    fn list(&self, handle: &Handle, cookie: u64, visit: &mut dyn FnMut(ListEntry<'_>) -> bool) -> Result<()> {
        // This call does not use `call`, because a listing that has visited entries cannot begin again.
        let _pin = epoch::pin();
        self.list_handle(handle, cookie, visit).map_err(|error| error.into_error("getdents"))
    }

    fn access(&self, file: Target<'_, Handle>, access: Rights) -> Result<()> {
        self.call("access", || {
            let id = self.target(file)?;
            self.check_writable(id, access)?;
            Ok(access::check(self.credentials(), &self.protection(id)?, access)?)
        })
    }

    fn getxattr(&self, file: Target<'_, Handle>, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.call("getxattr", || {
            check_name(name)?;
            self.get_xattr(self.target(file)?, name, out)
        })
    }

    fn listxattr(&self, file: Target<'_, Handle>, out: &mut [u8]) -> Result<usize> {
        self.call("listxattr", || self.list_xattrs(self.target(file)?, out))
    }

    fn setxattr(&self, file: Target<'_, Handle>, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.call("setxattr", || {
            check_name(name)?;
            check_value(value)?;
            self.set_xattr(self.target(file)?, name, value, mode)
        })
    }

    fn removexattr(&self, file: Target<'_, Handle>, name: &[u8]) -> Result<()> {
        self.call("removexattr", || {
            check_name(name)?;
            self.remove_xattr(self.target(file)?, name)
        })
    }

    fn seek(&self, handle: &Handle, offset: u64, whence: Whence) -> Result<u64> {
        self.call("lseek", || self.seek_handle(handle, offset, whence))
    }

    fn fsync(&self, handle: &Handle) -> Result<()> {
        self.call("fsync", || {
            // The caller may have seen a change of another thread that is not durable yet.
            self.engine().wait_for(self.opened(handle)?)?;
            Ok(self.engine().sync()?)
        })
    }

    fn fdatasync(&self, handle: &Handle) -> Result<()> {
        self.fsync(handle)
    }

    fn statvfs(&self) -> Result<StatVfs> {
        let space = self.engine().space();
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
