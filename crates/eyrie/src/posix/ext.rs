//! Functions in the style of [`std::fs`] over any [`Posix`].

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use eyrie_engine::RenameMode;

use super::steps::{self, names, whole};
use super::{Dir, File, OpenOptions, Posix, ReadDir, SetTime, Stat, Target, Walk};
use crate::{Errno, Error, Result};

/// Functions in the style of [`std::fs`]. Their errors carry the path.
///
/// A function changes a volume by at most one call of [`Posix`], which is whole or undone, also after an
/// error or a crash. Four functions are exceptions, and make several such calls: [`write`](PosixExt::write),
/// [`copy`](PosixExt::copy), [`create_dir_all`](PosixExt::create_dir_all) and
/// [`remove_dir_all`](PosixExt::remove_dir_all).
///
/// # Examples
/// ```
/// # use eyrie::{Host, PosixExt};
/// # fn main() -> eyrie::Result<()> {
/// # let place = tempfile::tempdir().unwrap();
/// # let fs = Host::new(place.path())?;
/// fs.create_dir_all("/birds/owls")?;
/// fs.write("/birds/owls/tawny", "hoots")?;
/// fs.copy("/birds/owls/tawny", "/birds/barn")?;
/// assert_eq!(fs.read_to_string("/birds/barn")?, "hoots");
/// assert_eq!(fs.walk("/birds")?.count(), 6); // four entries, and two steps that leave a directory
/// fs.remove_dir_all("/birds")
/// # }
/// ```
pub trait PosixExt: Posix + Clone {
    /// Returns options for opening a file. At first no flag is set, and the permission bits are 0o666.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let log = fs.options().append(true).create(true).open("/log")?;
    /// # Ok(())
    /// # }
    /// ```
    fn options(&self) -> OpenOptions<Self> {
        OpenOptions::new(self.clone())
    }

    /// Opens a file for reading.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let file = fs.open_file("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`].
    fn open_file(&self, path: impl AsRef<Path>) -> Result<File<Self>> {
        self.options().read(true).open(path)
    }

    /// Opens a file for writing. A missing file is made. An existing file gets size 0. Either change is one
    /// step.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let file = fs.create_file("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`].
    fn create_file(&self, path: impl AsRef<Path>) -> Result<File<Self>> {
        self.options().write(true).create(true).truncate(true).open(path)
    }

    /// Reads all bytes of a file. If the file grows during the call, the result may have bytes of different
    /// moments. A single [`Posix::read_at`] on a volume returns the bytes of one moment.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// assert_eq!(fs.read("/egg")?, b"blue");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`] and [`Posix::read_at`]. `ENOMEM` if the file is larger than the memory that the
    /// process can get.
    fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        steps::read(self, path.as_ref())
    }

    /// Replaces the contents of a file. A missing file is made.
    ///
    /// This call has two steps: it makes the file or sets its size to 0, and then writes the bytes. (In a
    /// served volume, it writes more than 64 MiB in several steps.) If the write fails, or a crash comes
    /// before it, the file is empty (with [short writes](crate::Pxfs::with_short_writes) it has the bytes
    /// that fit). A reader may also see the empty file. [`Kvfs::put`](crate::Kvfs::put) replaces the contents
    /// of a file in one step. A program can also write another file, and rename that file to `path`.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.write("/egg", "blue")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`] and [`Posix::write_at`].
    fn write(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> Result<()> {
        steps::write(self, path.as_ref(), data.as_ref())
    }

    /// Returns the attributes of the file that `path` leads to through symbolic links.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let size = fs.metadata("/egg")?.len();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`].
    fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        let path = path.as_ref();
        self.stat(path.into()).map_err(|error| error.at(path))
    }

    /// Returns the attributes of the file that `path` names. A symbolic link at the end is not followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// assert!(fs.symlink_metadata("/link")?.is_symlink());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`].
    fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        let path = path.as_ref();
        self.stat(Target::NoFollow(path.into())).map_err(|error| error.at(path))
    }

    /// Returns the value of an extended attribute. Symbolic links are followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let colour = fs.xattr("/egg", "user.colour")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::getxattr`].
    fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), name.as_ref());
        whole(|out| self.getxattr(path.into(), name, out)).map_err(|error| error.at(path))
    }

    /// Works as [`PosixExt::xattr`], but does not follow a symbolic link at the end.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let colour = fs.symlink_xattr("/link", "trusted.colour")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::getxattr`].
    fn symlink_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), name.as_ref());
        whole(|out| self.getxattr(Target::NoFollow(path.into()), name, out)).map_err(|error| error.at(path))
    }

    /// Returns the names of all extended attributes. Symbolic links are followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let names = fs.xattr_names("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::listxattr`].
    fn xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        whole(|out| self.listxattr(path.into(), out)).map(names).map_err(|error| error.at(path))
    }

    /// Works as [`PosixExt::xattr_names`], but does not follow a symbolic link at the end.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let names = fs.symlink_xattr_names("/link")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::listxattr`].
    fn symlink_xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        whole(|out| self.listxattr(Target::NoFollow(path.into()), out))
            .map(names)
            .map_err(|error| error.at(path))
    }

    /// Returns true if `path` leads to a file of any kind. Symbolic links are followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// assert!(!fs.exists("/nothing")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`], except `ENOENT` and `ENOTDIR`.
    fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.stat(path.as_ref().into()) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.at(path)),
        }
    }

    /// Makes a directory. Its permission bits are 0o777 without those of the umask.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.create_dir("/nest")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::mkdir`].
    fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mkdir(path.as_ref().into(), 0o777).map_err(|error| error.at(path))
    }

    /// Makes a directory and the missing directories above it.
    ///
    /// Each directory is made in one step, the highest directory first. After an error, the directories that
    /// the call has made stay. After a crash, some of the directories may exist.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.create_dir_all("/nests/north/first")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::mkdir`]. `EEXIST` if the path names something other than a directory.
    fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        steps::create_dir_all(self, path.as_ref())
    }

    /// Removes the name of a file that is not a directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.remove_file("/egg")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::unlink`].
    fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.unlink(path.as_ref().into()).map_err(|error| error.at(path))
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.remove_dir("/nest")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::rmdir`].
    fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.rmdir(path.as_ref().into()).map_err(|error| error.at(path))
    }

    /// Removes a directory and everything in it, or a file of another kind. Symbolic links are removed, not
    /// followed. The root of the file system stays. The tree may be so deep that its paths are too long for a
    /// call.
    ///
    /// Each entry is removed in one step, and a directory after its entries. Entries that were removed before
    /// an error stay removed. After a crash, some of the entries may be removed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.remove_dir_all("/nests")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`], [`Posix::unlink`] and [`Posix::rmdir`]. If part of the tree is damaged or is moved
    /// meanwhile, the call removes everything that it can, and then returns `EIO` or `ESTALE`.
    fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        super::walk::remove_all(self.clone(), path.as_ref())
    }

    /// Opens a directory, as a file system whose paths begin there.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let nest = fs.dir("/nests/north")?;
    /// nest.write("egg", "blue")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`].
    fn dir(&self, path: impl AsRef<Path>) -> Result<Dir<Self>> {
        Dir::root(self.clone()).subdirectory(path)
    }

    /// Starts a walk through the tree `path`.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let steps = fs.walk("/nests")?.count();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`].
    fn walk(&self, path: impl AsRef<Path>) -> Result<Walk<Self>> {
        Walk::new(self.clone(), path.as_ref())
    }

    /// Reads all bytes of a file as text. Otherwise works as [`PosixExt::read`].
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// assert_eq!(fs.read_to_string("/egg")?, "blue");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PosixExt::read`]. `EILSEQ` if the bytes are not UTF-8.
    fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?)
            .map_err(|_| Error::with_reason(Errno::ILSEQ, "read", "the file is not UTF-8").at(path))
    }

    /// Copies the bytes and the permission bits of a file, but no set-id bits, as cp(1) does. A missing file
    /// `to` is made, and an existing file is overwritten. Returns the number of bytes.
    ///
    /// This call has several steps: it makes `to` or sets its size to 0, writes the bytes in parts, and sets
    /// the permission bits. After an error or a crash `to` may have a part of the bytes. A device or a pipe
    /// of the host keeps its permission bits.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// assert_eq!(fs.copy("/egg", "/other egg")?, 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`], [`Posix::read_at`], [`Posix::write_at`] and [`Posix::chmod`]. `EINVAL` unless
    /// `from` is a regular file, and if both paths lead to the same file.
    fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        steps::copy(self, from.as_ref(), to.as_ref())
    }

    /// Renames a file. A file that has the name `to` is replaced.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.rename("/egg", "/hatched")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::rename_with`].
    fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let from = from.as_ref();
        self.rename_with(from.into(), to.as_ref().into(), RenameMode::Replace).map_err(|error| error.at(from))
    }

    /// Gives the file `original` another name, `link`. A symbolic link is not followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.hard_link("/egg", "/same egg")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::link`]. The error has the path `original` if a `stat` of it fails, too, and otherwise the
    /// path `link`.
    fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        self.link(Target::NoFollow(original.into()), link.into()).map_err(|error| {
            let is_found = self.stat(Target::NoFollow(original.into())).is_ok();
            error.at(if is_found { link } else { original })
        })
    }

    /// Returns the target of a symbolic link.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let target: std::path::PathBuf = fs.read_link("/link")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::readlink`].
    fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let target = self.readlink(path.into()).map_err(|error| error.at(path))?;
        Ok(OsString::from_vec(target).into())
    }

    /// Returns the absolute path of a file, without symbolic links, `.` and `..`.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let path = fs.canonicalize("/link/../egg")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`] and [`Posix::readlink`]. `ELOOP` after more than 40 symbolic links. `ESTALE` if the
    /// resulting path leads to another file, because the file was moved meanwhile. In a [`Dir`], `ENOENT` or
    /// `ESTALE` for a file outside of the directory.
    fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        steps::canonicalize(self, path.as_ref())
    }

    /// Sets the permission bits. Symbolic links are followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.set_mode("/egg", 0o600)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::chmod`].
    fn set_mode(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        let path = path.as_ref();
        self.chmod(path.into(), mode).map_err(|error| error.at(path))
    }

    /// Sets the times of last access and modification. Symbolic links are followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.set_times("/egg", SetTime::Omit, std::time::SystemTime::now().into())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::utimens`].
    fn set_times(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()> {
        let path = path.as_ref();
        self.utimens(path.into(), accessed, modified).map_err(|error| error.at(path))
    }

    /// Lists the entries of a directory, in no particular order, without `.` and `..`.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// for entry in fs.read_dir("/nest")? {
    ///     println!("{}", entry?.name().display());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`].
    fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir<Self>> {
        ReadDir::open(self.clone(), path.as_ref().into())
    }
}

impl<P: Posix + Clone> PosixExt for P {}
