//! The calls of [`Posix`].

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie_engine::access;
use eyrie_engine::{Content, Engine, FallocateMode, InodeFlags, Kind, ObjectId, RenameMode, XattrMode};
use eyrie_medium::epoch;

use super::open::MadeFile;
use super::path::{PathWalk, check_path};
use super::space::data_bytes_max;
use super::xattr::{check_name, check_value};
use super::{Handle, Pxfs};
use crate::posix::{
    Access, ListEntry, OpenFlags, PathAt, Posix, PosixBirth, SetTime, Stat, StatVfs, Target, Whence,
};
use crate::{Errno, Result, Time};

impl<E: Engine> Posix for Pxfs<E> {
    type Handle = Handle;

    /// An open directory of a volume takes memory, but no descriptor.
    fn open_dirs_max(&self) -> usize {
        usize::MAX
    }

    fn has_mounts(&self) -> bool {
        false
    }

    fn generation(&self, inode: u64) -> u64 {
        let Some(id) = ObjectId::from_raw(inode) else { return 0 };
        let _pin = epoch::pin();
        self.engine().generation(id).unwrap_or(0)
    }

    fn data_bytes_max(&self) -> u64 {
        data_bytes_max(&**self.engine())
    }

    #[inline]
    fn open(&self, path: PathAt<'_, Handle>, flags: OpenFlags, mode: u16) -> Result<Handle> {
        let mut made = MadeFile::default();
        self.as_user().call("open", |user| user.open_path(path, flags, mode, &mut made))
    }

    #[inline]
    fn close(&self, handle: Handle) -> Result<()> {
        let _pin = epoch::pin();
        self.as_user().close_handle(&handle).map_err(|error| error.into_error("close"))
    }

    #[inline]
    fn read_at(&self, handle: &Handle, out: &mut [u8], offset: u64) -> Result<usize> {
        self.as_user().call("read", |user| user.read_handle(handle, out, offset))
    }

    #[inline]
    fn write_at(&self, handle: &Handle, data: &[u8], offset: u64) -> Result<usize> {
        let user = self.as_user();
        user.call("write", |user| user.write_handle(handle, data, offset)).or_else(|error| {
            let offset_of_write = (!handle.flags.contains(OpenFlags::APPEND)).then_some(offset);
            self.write_less(handle.id(), offset_of_write, data, error, |data| {
                user.call("write", |user| user.write_handle(handle, data, offset))
            })
        })
    }

    #[inline]
    fn append(&self, handle: &Handle, data: &[u8]) -> Result<usize> {
        self.append_range(handle, data).map(|written| (written.end - written.start) as usize)
    }

    #[inline]
    fn append_range(&self, handle: &Handle, data: &[u8]) -> Result<Range<u64>> {
        let user = self.as_user();
        user.call("write", |user| user.append_handle(handle, data)).or_else(|error| {
            self.write_less(handle.id(), None, data, error, |data| {
                user.call("write", |user| user.append_handle(handle, data))
            })
        })
    }

    #[inline]
    fn stat(&self, file: Target<'_, Handle>) -> Result<Stat> {
        self.as_user().call("stat", |user| {
            let quick = match file {
                Target::Follow(path) | Target::NoFollow(path) => user.resolve_quickly(path)?,
                Target::Open(handle) => Some(user.opened(handle)?),
            };
            user.stat_of(match quick {
                Some(id) => id,
                None => user.object_of(file)?,
            })
        })
    }

    fn truncate(&self, file: Target<'_, Handle>, size: u64) -> Result<()> {
        self.as_user().call("truncate", |user| match file {
            Target::Open(handle) => user.set_handle_size(handle, size),
            _ => user.truncate_path(file, size),
        })
    }

    fn fallocate(&self, handle: &Handle, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.as_user().call("fallocate", |user| user.fallocate_handle(handle, mode, offset, length))
    }

    fn copy_file_range(&self, source: (&Handle, u64), target: (&Handle, u64), length: u64) -> Result<u64> {
        self.as_user().call("copy_file_range", |user| user.copy_handles(source, target, length))
    }

    fn mkdir(&self, path: PathAt<'_, Handle>, mode: u16) -> Result<()> {
        self.as_user().call("mkdir", |user| {
            user.make(PathWalk::new(user, path)?, Kind::Directory, mode, Content::Empty).map(drop)
        })
    }

    fn rmdir(&self, path: PathAt<'_, Handle>) -> Result<()> {
        self.as_user().call("rmdir", |user| user.remove_directory(PathWalk::new(user, path)?))
    }

    #[inline]
    fn unlink(&self, path: PathAt<'_, Handle>) -> Result<()> {
        self.as_user().call("unlink", |user| user.unlink_path(path))
    }

    #[inline]
    fn rename_with(&self, from: PathAt<'_, Handle>, to: PathAt<'_, Handle>, mode: RenameMode) -> Result<()> {
        self.as_user().call("rename", |user| user.rename_path(from, to, mode))
    }

    fn link(&self, existing: Target<'_, Handle>, path: PathAt<'_, Handle>) -> Result<()> {
        self.as_user()
            .call("link", |user| user.make_link(user.object_of(existing)?, PathWalk::new(user, path)?))
    }

    fn symlink(&self, target: &Path, path: PathAt<'_, Handle>) -> Result<()> {
        self.as_user().call("symlink", |user| {
            let target = target.as_os_str().as_bytes();
            check_path(target)?;
            user.make(PathWalk::new(user, path)?, Kind::Symlink, 0o777, Content::Bytes(target)).map(drop)
        })
    }

    fn readlink(&self, link: Target<'_, Handle>) -> Result<Vec<u8>> {
        let (link, no_link) = match link {
            Target::Follow(path) | Target::NoFollow(path) => (Target::NoFollow(path), Errno::INVAL),
            Target::Open(_) => (link, Errno::NOENT),
        };
        self.as_user().call("readlink", |user| {
            let id = user.object_of(link)?;
            match id.kind() {
                Kind::Symlink => {
                    let target = user.link_target(id)?;
                    user.note_read(id, OpenFlags::READ);
                    Ok(target)
                }
                _ => Err(no_link.into()),
            }
        })
    }

    fn chmod(&self, file: Target<'_, Handle>, mode: u16) -> Result<()> {
        self.as_user().call("chmod", |user| {
            let id = user.usable_target(file)?;
            if id.kind() == Kind::Symlink {
                return Err(Errno::OPNOTSUPP.into());
            }
            user.set_mode(id, mode)
        })
    }

    fn chown(&self, file: Target<'_, Handle>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.as_user().call("chown", |user| user.set_owner(user.usable_target(file)?, uid, gid))
    }

    fn utimens(&self, file: Target<'_, Handle>, accessed: SetTime, modified: SetTime) -> Result<()> {
        if accessed == SetTime::Omit && modified == SetTime::Omit {
            // The kernel does not even resolve the path.
            return Ok(());
        }
        self.as_user().call("utimens", |user| user.set_times(user.usable_target(file)?, accessed, modified))
    }

    fn mknod(&self, path: PathAt<'_, Handle>, kind: Kind, mode: u16, device: u64) -> Result<()> {
        self.as_user().call("mknod", |user| {
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
            user.make(PathWalk::new(user, path)?, kind, mode, content).map(drop)
        })
    }

    fn list(&self, handle: &Handle, cookie: u64, visit: &mut dyn FnMut(ListEntry<'_>) -> bool) -> Result<()> {
        // This call does not use `call`, because a listing that has visited entries cannot begin again.
        self.as_user().list_handle(handle, cookie, visit).map_err(|error| error.into_error("getdents"))
    }

    fn access(&self, file: Target<'_, Handle>, access: Access) -> Result<()> {
        if !access.contains(Access::EFFECTIVE)
            && let Some(real) = self.credentials().for_access_call()
        {
            return self.with_credentials(real).access(file, access | Access::EFFECTIVE);
        }
        let rights = access.rights();
        self.as_user().call("access", |user| {
            let id = user.object_of(file)?;
            user.check_writable(id, rights)?;
            Ok(access::check(user.credentials(), &user.protection(id)?, rights)?)
        })
    }

    fn getxattr(&self, file: Target<'_, Handle>, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.as_user().call("getxattr", |user| {
            check_name(name)?;
            user.get_xattr(user.usable_target(file)?, name, out)
        })
    }

    fn listxattr(&self, file: Target<'_, Handle>, out: &mut [u8]) -> Result<usize> {
        self.as_user().call("listxattr", |user| user.list_xattrs(user.usable_target(file)?, out))
    }

    fn setxattr(&self, file: Target<'_, Handle>, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.as_user().call("setxattr", |user| {
            check_name(name)?;
            check_value(value)?;
            user.set_xattr(user.usable_target(file)?, name, value, mode)
        })
    }

    fn removexattr(&self, file: Target<'_, Handle>, name: &[u8]) -> Result<()> {
        self.as_user().call("removexattr", |user| {
            check_name(name)?;
            user.remove_xattr(user.usable_target(file)?, name)
        })
    }

    fn seek(&self, handle: &Handle, offset: u64, whence: Whence) -> Result<u64> {
        self.as_user().call("lseek", |user| user.seek_handle(handle, offset, whence))
    }

    fn fsync(&self, handle: &Handle) -> Result<()> {
        self.as_user().call("fsync", |user| {
            // The caller may have seen a change of another thread that is not durable yet.
            user.engine().wait_for(user.usable(handle)?)?;
            Ok(user.engine().sync()?)
        })
    }

    fn fdatasync(&self, handle: &Handle) -> Result<()> {
        self.fsync(handle)
    }

    fn inode_flags(&self, handle: &Handle) -> Result<InodeFlags> {
        self.as_user().call("getflags", |user| Ok(user.engine().inode_flags(user.usable(handle)?)?))
    }

    fn set_inode_flags(&self, handle: &Handle, flags: InodeFlags) -> Result<()> {
        self.as_user().call("setflags", |user| user.set_flags(user.usable(handle)?, flags))
    }

    fn statvfs(&self, file: Target<'_, Handle>) -> Result<StatVfs> {
        self.as_user().call("statvfs", |user| user.space_at(user.object_of(file)?))
    }
}

impl<E: Engine> PosixBirth for Pxfs<E> {
    fn created(&self, file: Target<'_, Handle>) -> Result<Time> {
        self.as_user().call("statx", |user| Ok(user.engine().birth(user.object_of(file)?)?.created))
    }
}
