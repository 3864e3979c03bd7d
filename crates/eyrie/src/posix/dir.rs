//! An open directory as a file system, and file systems behind references.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use eyrie_engine::{FallocateMode, InodeFlags, Kind, RenameMode, XattrMode};

use super::{Access, File, ListEntry, OpenFlags, PathAt, Posix, SetTime, Stat, StatVfs, Target, Whence};
use crate::Result;

/// A file system whose paths begin at an open directory.
///
/// Every call works as the `*at` call of the same name on the directory: [`open`](Posix::open) works as
/// `openat(2)`. An absolute path begins at the directory, even if the call names another open directory. `..`
/// of the directory is still its parent, and absolute symbolic links still begin at the true root. The
/// directory stays open as long as this value or a clone of it exists.
///
/// # Examples
/// ```
/// # use eyrie::{Host, PosixExt};
/// # fn main() -> eyrie::Result<()> {
/// # let place = tempfile::tempdir().unwrap();
/// # let fs = Host::new(place.path())?;
/// fs.create_dir_all("/nests/north")?;
/// let north = fs.dir("/nests/north")?;
/// fs.rename("/nests/north", "/nests/south")?;
/// north.write("egg", "blue")?; // the directory is the same under its new name
/// assert_eq!(fs.read("/nests/south/egg")?, b"blue");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dir<P: Posix> {
    fs: P,
    /// `None` if paths begin at the root of `fs`.
    start: Option<File<P>>,
}

/// The clone shares the open directory.
impl<P: Posix + Clone> Clone for Dir<P> {
    fn clone(&self) -> Self {
        Dir { fs: self.fs.clone(), start: self.start.as_ref().map(File::share) }
    }
}

impl<P: Posix> Dir<P> {
    /// Makes the file system whose paths begin at the root of `fs`.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, dir: Dir<Host>) -> Result<()> {
    /// let whole = Dir::root(fs.clone());
    /// assert_eq!(whole.read("egg")?, fs.read("/egg")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn root(fs: P) -> Dir<P> {
        Dir { fs, start: None }
    }

    /// Makes the file system whose paths begin at the open directory `start` of `fs`.
    pub(super) fn at(fs: P, start: File<P>) -> Dir<P> {
        Dir { fs, start: Some(start) }
    }

    /// Returns the file system of the directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, dir: Dir<Host>) -> Result<()> {
    /// let same = dir.file_system().stat(Target::Follow(dir.path_at("egg".as_ref())))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn file_system(&self) -> &P {
        &self.fs
    }

    /// Opens the directory `path`, as a file system whose paths begin there.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, dir: Dir<Host>) -> Result<()> {
    /// let north = dir.subdirectory("north")?;
    /// north.write("egg", "blue")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`].
    pub fn subdirectory(&self, path: impl AsRef<Path>) -> Result<Dir<P>>
    where
        P: Clone,
    {
        let path = path.as_ref();
        let handle = self.open(path.into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0);
        let handle = handle.map_err(|error| error.at(path))?;
        Ok(Dir::at(self.fs.clone(), File::from_handle(self.fs.clone(), handle, false)))
    }

    /// Returns `path`, which begins at this directory, as an argument of a call on [`Dir::file_system`].
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, dir: Dir<Host>) -> Result<()> {
    /// fs.unlink(dir.path_at("egg".as_ref()))?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn path_at<'a>(&'a self, path: &'a Path) -> PathAt<'a, P::Handle> {
        self.place(PathAt { dir: None, path })
    }

    #[inline]
    pub(super) fn place<'a>(&'a self, place: PathAt<'a, P::Handle>) -> PathAt<'a, P::Handle> {
        match &self.start {
            Some(start) if place.dir.is_none() || place.path.is_absolute() => {
                PathAt { dir: Some(start.handle()), path: relative(place.path) }
            }
            _ => place,
        }
    }
}

/// Returns a path without its leading slashes.
#[inline]
fn relative(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    match bytes.iter().position(|&byte| byte != b'/') {
        Some(0) => path,
        Some(start) => Path::new(OsStr::from_bytes(&bytes[start..])),
        None if bytes.is_empty() => path,
        None => Path::new("."),
    }
}

/// Passes each call of [`Posix`] on to the file system `$fs` of `$self`. `$place` changes each path.
macro_rules! pass_calls_on {
    ($self:ident, $fs:expr, $place:expr) => {
        type Handle = P::Handle;

        fn open_dirs_max(&$self) -> usize {
            $fs.open_dirs_max()
        }

        fn has_mounts(&$self) -> bool {
            $fs.has_mounts()
        }

        fn generation(&$self, inode: u64) -> u64 {
            $fs.generation(inode)
        }

        fn data_bytes_max(&$self) -> u64 {
            $fs.data_bytes_max()
        }

        #[inline]
        fn open(&$self, path: PathAt<'_, P::Handle>, flags: OpenFlags, mode: u16) -> Result<P::Handle> {
            $fs.open($place(path), flags, mode)
        }

        #[inline]
        fn close(&$self, handle: P::Handle) -> Result<()> {
            $fs.close(handle)
        }

        #[inline]
        fn read_at(&$self, handle: &P::Handle, out: &mut [u8], offset: u64) -> Result<usize> {
            $fs.read_at(handle, out, offset)
        }

        #[inline]
        fn write_at(&$self, handle: &P::Handle, data: &[u8], offset: u64) -> Result<usize> {
            $fs.write_at(handle, data, offset)
        }

        #[inline]
        fn append(&$self, handle: &P::Handle, data: &[u8]) -> Result<usize> {
            $fs.append(handle, data)
        }

        #[inline]
        fn append_range(&$self, handle: &P::Handle, data: &[u8]) -> Result<Range<u64>> {
            $fs.append_range(handle, data)
        }

        #[inline]
        fn stat(&$self, file: Target<'_, P::Handle>) -> Result<Stat> {
            $fs.stat(file.map(|path| $place(path)))
        }

        fn truncate(&$self, file: Target<'_, P::Handle>, size: u64) -> Result<()> {
            $fs.truncate(file.map(|path| $place(path)), size)
        }

        fn fallocate(
            &$self,
            handle: &P::Handle,
            mode: FallocateMode,
            offset: u64,
            length: u64,
        ) -> Result<()> {
            $fs.fallocate(handle, mode, offset, length)
        }

        fn copy_file_range(
            &$self,
            source: (&P::Handle, u64),
            target: (&P::Handle, u64),
            length: u64,
        ) -> Result<u64> {
            $fs.copy_file_range(source, target, length)
        }

        fn mkdir(&$self, path: PathAt<'_, P::Handle>, mode: u16) -> Result<()> {
            $fs.mkdir($place(path), mode)
        }

        fn rmdir(&$self, path: PathAt<'_, P::Handle>) -> Result<()> {
            $fs.rmdir($place(path))
        }

        #[inline]
        fn unlink(&$self, path: PathAt<'_, P::Handle>) -> Result<()> {
            $fs.unlink($place(path))
        }

        #[inline]
        fn rename_with(
            &$self,
            from: PathAt<'_, P::Handle>,
            to: PathAt<'_, P::Handle>,
            mode: RenameMode,
        ) -> Result<()> {
            $fs.rename_with($place(from), $place(to), mode)
        }

        fn link(&$self, existing: Target<'_, P::Handle>, path: PathAt<'_, P::Handle>) -> Result<()> {
            $fs.link(existing.map(|path| $place(path)), $place(path))
        }

        fn symlink(&$self, target: &Path, path: PathAt<'_, P::Handle>) -> Result<()> {
            $fs.symlink(target, $place(path))
        }

        fn readlink(&$self, link: Target<'_, P::Handle>) -> Result<Vec<u8>> {
            $fs.readlink(link.map(|path| $place(path)))
        }

        fn chmod(&$self, file: Target<'_, P::Handle>, mode: u16) -> Result<()> {
            $fs.chmod(file.map(|path| $place(path)), mode)
        }

        fn chown(&$self, file: Target<'_, P::Handle>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
            $fs.chown(file.map(|path| $place(path)), uid, gid)
        }

        fn utimens(
            &$self,
            file: Target<'_, P::Handle>,
            accessed: SetTime,
            modified: SetTime,
        ) -> Result<()> {
            $fs.utimens(file.map(|path| $place(path)), accessed, modified)
        }

        fn mknod(&$self, path: PathAt<'_, P::Handle>, kind: Kind, mode: u16, device: u64) -> Result<()> {
            $fs.mknod($place(path), kind, mode, device)
        }

        fn list(
            &$self,
            handle: &P::Handle,
            cookie: u64,
            visit: &mut dyn FnMut(ListEntry<'_>) -> bool,
        ) -> Result<()> {
            $fs.list(handle, cookie, visit)
        }

        fn access(&$self, file: Target<'_, P::Handle>, access: Access) -> Result<()> {
            $fs.access(file.map(|path| $place(path)), access)
        }

        fn getxattr(&$self, file: Target<'_, P::Handle>, name: &[u8], out: &mut [u8]) -> Result<usize> {
            $fs.getxattr(file.map(|path| $place(path)), name, out)
        }

        fn listxattr(&$self, file: Target<'_, P::Handle>, out: &mut [u8]) -> Result<usize> {
            $fs.listxattr(file.map(|path| $place(path)), out)
        }

        fn setxattr(
            &$self,
            file: Target<'_, P::Handle>,
            name: &[u8],
            value: &[u8],
            mode: XattrMode,
        ) -> Result<()> {
            $fs.setxattr(file.map(|path| $place(path)), name, value, mode)
        }

        fn removexattr(&$self, file: Target<'_, P::Handle>, name: &[u8]) -> Result<()> {
            $fs.removexattr(file.map(|path| $place(path)), name)
        }

        fn seek(&$self, handle: &P::Handle, offset: u64, whence: Whence) -> Result<u64> {
            $fs.seek(handle, offset, whence)
        }

        fn fsync(&$self, handle: &P::Handle) -> Result<()> {
            $fs.fsync(handle)
        }

        fn fdatasync(&$self, handle: &P::Handle) -> Result<()> {
            $fs.fdatasync(handle)
        }

        fn inode_flags(&$self, handle: &P::Handle) -> Result<InodeFlags> {
            $fs.inode_flags(handle)
        }

        fn set_inode_flags(&$self, handle: &P::Handle, flags: InodeFlags) -> Result<()> {
            $fs.set_inode_flags(handle, flags)
        }

        fn statvfs(&$self, file: Target<'_, P::Handle>) -> Result<StatVfs> {
            $fs.statvfs(file.map(|path| $place(path)))
        }
    };
}

impl<P: Posix> Posix for Dir<P> {
    pass_calls_on!(self, self.fs, |path| self.place(path));
}

/// A reference to a file system is a file system, also a reference to a `dyn Posix`.
impl<P: Posix + ?Sized> Posix for &P {
    pass_calls_on!(self, (**self), |path| path);
}

impl<P: Posix + ?Sized> Posix for Arc<P> {
    pass_calls_on!(self, (**self), |path| path);
}
