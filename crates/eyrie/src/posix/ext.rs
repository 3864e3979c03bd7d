//! Functions in the style of [`std::fs`] over any [`Posix`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyrie_engine::Kind;
use rustix::io::Errno;

use super::{File, OpenFlags, Posix, Stat};
use crate::fetch::FetchSize;
use crate::{Error, Result};

/// Bytes of the first buffer for an extended attribute or a list of names. Most values and lists fit, so one
/// call is enough.
const FIRST_BUFFER: usize = 256;
/// Bytes of the buffer of [`PosixExt::read`] beyond the size of the file. The call that finds the end of the
/// file needs a buffer with room, so without these bytes the buffer would grow once more.
const SLACK: usize = 32;

/// Functions in the style of [`std::fs`]. Their errors carry the path.
///
/// Each function changes a volume by at most one call of [`Posix`], which is whole or undone, also after an
/// error or a crash. Three functions make several such calls: [`write`](PosixExt::write),
/// [`create_dir_all`](PosixExt::create_dir_all) and [`remove_dir_all`](PosixExt::remove_dir_all).
pub trait PosixExt: Posix + Sized {
    /// Returns options for opening a file. At first no flag is set, and the permission bits are 0o666.
    fn options(&self) -> OpenOptions<'_, Self> {
        OpenOptions { fs: self, flags: OpenFlags::empty(), mode: 0o666 }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`Posix::open`].
    fn open_file(&self, path: impl AsRef<Path>) -> Result<File<'_, Self>> {
        self.options().read(true).open(path)
    }

    /// Opens a file for writing. A missing file is made. An existing file gets size 0. Either change is one
    /// step.
    ///
    /// # Errors
    /// As [`Posix::open`].
    fn create_file(&self, path: impl AsRef<Path>) -> Result<File<'_, Self>> {
        self.options().write(true).create(true).truncate(true).open(path)
    }

    /// Reads all bytes of a file. If the file grows during the call, the result may have bytes of different
    /// moments. A single [`Posix::read_at`] on a volume returns the bytes of one moment.
    ///
    /// # Errors
    /// As [`Posix::open`] and [`Posix::read_at`]. `ENOMEM` if the file is larger than the memory that the
    /// process can get.
    fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let file = self.open_file(path)?;
        let size = file.metadata().map_err(|error| error.at(path))?.size;
        let mut bytes = Vec::new();
        let mut filled = 0;
        loop {
            // The size is only a hint: files of `/proc` have size 0, and another program may append
            // meanwhile.
            if filled == bytes.len() {
                let more = usize::try_from(size).unwrap_or(0).saturating_sub(filled);
                let more = more.max(filled).saturating_add(SLACK);
                // A sparse file may be larger than memory.
                if bytes.try_reserve_exact(more).is_err() {
                    return Err(Error::new(Errno::NOMEM, "read").at(path));
                }
                bytes.resize(filled + more, 0);
            }
            match file.read_at(&mut bytes[filled..], filled as u64).map_err(|error| error.at(path))? {
                0 => break,
                count => filled += count,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Replaces the contents of a file. A missing file is made.
    ///
    /// This call has two steps: it makes the file or sets its size to 0, and then writes the bytes. If the
    /// write fails, or a crash comes before it, the file is empty. A reader may also see the empty file.
    /// [`Kvfs::put`](crate::Kvfs::put) replaces the contents of a file in one step. So does a write of
    /// another file that is then renamed.
    ///
    /// # Errors
    /// As [`Posix::open`] and [`Posix::write_at`].
    fn write(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let file = self.create_file(path)?;
        file.write_all_at(data.as_ref(), 0).map_err(|error| error.at(path))?;
        file.close().map_err(|error| error.at(path))
    }

    /// Returns the attributes of the file that `path` leads to through symbolic links.
    ///
    /// # Errors
    /// As [`Posix::stat`].
    fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat(path.as_ref()).map_err(|error| error.at(path))
    }

    /// Returns the attributes of the file that `path` names. A symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`Posix::lstat`].
    fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.lstat(path.as_ref()).map_err(|error| error.at(path))
    }

    /// Returns the value of an extended attribute. Symbolic links are followed.
    ///
    /// # Errors
    /// As [`Posix::getxattr`].
    fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), name.as_ref());
        whole(|out| self.getxattr(path, name, out)).map_err(|error| error.at(path))
    }

    /// Works as [`PosixExt::xattr`], but does not follow a symbolic link at the end.
    ///
    /// # Errors
    /// As [`Posix::getxattr`].
    fn symlink_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), name.as_ref());
        whole(|out| self.lgetxattr(path, name, out)).map_err(|error| error.at(path))
    }

    /// Returns the names of all extended attributes. Symbolic links are followed.
    ///
    /// # Errors
    /// As [`Posix::listxattr`].
    fn xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        whole(|out| self.listxattr(path, out)).map(names).map_err(|error| error.at(path))
    }

    /// Works as [`PosixExt::xattr_names`], but does not follow a symbolic link at the end.
    ///
    /// # Errors
    /// As [`Posix::listxattr`].
    fn symlink_xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        whole(|out| self.llistxattr(path, out)).map(names).map_err(|error| error.at(path))
    }

    /// Returns true if `path` leads to a file of any kind. Symbolic links are followed.
    ///
    /// # Errors
    /// As [`Posix::stat`], except `ENOENT` and `ENOTDIR`.
    fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.stat(path.as_ref()) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.at(path)),
        }
    }

    /// Makes a directory. Its permission bits are 0o777 without those of the umask.
    ///
    /// # Errors
    /// As [`Posix::mkdir`].
    fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mkdir(path.as_ref(), 0o777).map_err(|error| error.at(path))
    }

    /// Makes a directory and the missing directories above it.
    ///
    /// Each directory is one step, the highest first. After an error or a crash, the directories that the
    /// call has made stay.
    ///
    /// # Errors
    /// As [`Posix::mkdir`]. `EEXIST` if the path names something other than a directory.
    fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() || path == Path::new("/") {
            return Ok(());
        }
        match self.mkdir(path, 0o777) {
            Ok(()) => return Ok(()),
            Err(error) if error.errno() == Errno::NOENT => {}
            Err(_) if self.stat(path).is_ok_and(|stat| stat.is_dir()) => return Ok(()),
            Err(error) => return Err(error.at(path)),
        }
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent)?;
        }
        match self.mkdir(path, 0o777) {
            Err(_) if self.stat(path).is_ok_and(|stat| stat.is_dir()) => Ok(()),
            result => result.map_err(|error| error.at(path)),
        }
    }

    /// Removes the name of a file that is not a directory.
    ///
    /// # Errors
    /// As [`Posix::unlink`].
    fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.unlink(path.as_ref()).map_err(|error| error.at(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Posix::rmdir`].
    fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.rmdir(path.as_ref()).map_err(|error| error.at(path))
    }

    /// Removes a directory and everything in it, or a file of another kind. Symbolic links are removed, not
    /// followed. The root of the file system stays. The tree may be deeper than the longest path.
    ///
    /// Each entry is one step, and a directory comes after its entries. Entries that were removed before an
    /// error or a crash stay removed.
    ///
    /// # Errors
    /// As [`Posix::open`], [`Posix::unlink`] and [`Posix::rmdir`]. If part of the tree is damaged or is moved
    /// meanwhile, the call removes everything that it can, and then returns `EIO` or `ESTALE`.
    fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        super::walk::remove_all(self, path.as_ref())
    }

    /// Lists the entries of a directory, in no particular order, without `.` and `..`.
    ///
    /// # Errors
    /// As [`Posix::open`].
    fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir<'_, Self>> {
        let path = path.as_ref();
        let dir = self.options().read(true).directory(true).open(path)?;
        let fetched = Vec::new().into_iter();
        Ok(ReadDir { dir, fs: self, path: path.into(), fetched, cookie: Some(0), fetch: FetchSize::first() })
    }
}

impl<P: Posix> PosixExt for P {}

/// Returns all bytes that `call` delivers. `call` returns the number of bytes. It fails with `ERANGE` if its
/// buffer is too small. For an empty buffer it returns only the number.
fn whole(mut call: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; FIRST_BUFFER];
    loop {
        match call(&mut bytes) {
            Ok(size) => {
                bytes.truncate(size);
                return Ok(bytes);
            }
            // The attribute may grow between the two calls, so the loop repeats until the attribute fits.
            Err(error) if error.errno() == Errno::RANGE => bytes.resize(call(&mut [])?.max(FIRST_BUFFER), 0),
            Err(error) => return Err(error),
        }
    }
}

/// Splits a list of names, each of which ends with a NUL.
fn names(list: Vec<u8>) -> Vec<Vec<u8>> {
    list.split_inclusive(|&byte| byte == 0).map(|name| name[..name.len() - 1].to_vec()).collect()
}

/// Options for opening a file, in the style of [`std::fs::OpenOptions`].
#[derive(Debug)]
pub struct OpenOptions<'a, P: Posix> {
    fs: &'a P,
    flags: OpenFlags,
    mode: u16,
}

impl<P: Posix> Clone for OpenOptions<'_, P> {
    fn clone(&self) -> Self {
        OpenOptions { fs: self.fs, flags: self.flags, mode: self.mode }
    }
}

impl<'a, P: Posix> OpenOptions<'a, P> {
    /// Opens for reading.
    #[must_use]
    pub fn read(self, yes: bool) -> Self {
        self.set(OpenFlags::READ, yes)
    }

    /// Opens for writing.
    #[must_use]
    pub fn write(self, yes: bool) -> Self {
        self.set(OpenFlags::WRITE, yes)
    }

    /// Writes at the end of the file, and ignores the offset of a write. With this option, the file is open
    /// for writing even without [`OpenOptions::write`].
    #[must_use]
    pub fn append(self, yes: bool) -> Self {
        self.set(OpenFlags::APPEND, yes)
    }

    /// Makes the file if it is missing.
    #[must_use]
    pub fn create(self, yes: bool) -> Self {
        self.set(OpenFlags::CREATE, yes)
    }

    /// Makes the file, and fails if the name exists. With this option, [`OpenOptions::create`] has no effect.
    #[must_use]
    pub fn create_new(self, yes: bool) -> Self {
        self.set(OpenFlags::EXCLUSIVE, yes)
    }

    /// Sets the size of the file to 0.
    #[must_use]
    pub fn truncate(self, yes: bool) -> Self {
        self.set(OpenFlags::TRUNCATE, yes)
    }

    /// Fails unless the path leads to a directory.
    #[must_use]
    pub fn directory(self, yes: bool) -> Self {
        self.set(OpenFlags::DIRECTORY, yes)
    }

    /// Fails if the last component is a symbolic link.
    #[must_use]
    pub fn no_follow(self, yes: bool) -> Self {
        self.set(OpenFlags::NOFOLLOW, yes)
    }

    /// Sets the permission bits of a file that the open makes, 0o666 by default. The file gets these bits
    /// without those of the umask.
    #[must_use]
    pub fn mode(mut self, mode: u16) -> Self {
        self.mode = mode;
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// As [`Posix::open`]. `EINVAL` unless the options include reading, writing or appending.
    pub fn open(self, path: impl AsRef<Path>) -> Result<File<'a, P>> {
        let OpenOptions { fs, mut flags, mode } = self;
        // Each option is a flag of its own, as in the standard library. So a later call with `false` takes
        // back one option and no other.
        let append = flags.contains(OpenFlags::APPEND);
        if append {
            flags |= OpenFlags::WRITE;
        }
        if flags.contains(OpenFlags::EXCLUSIVE) {
            flags |= OpenFlags::CREATE;
        }
        let handle = fs.open(path.as_ref(), flags, mode).map_err(|error| error.at(path.as_ref()))?;
        Ok(File::from_handle(fs, handle, append))
    }

    fn set(mut self, flags: OpenFlags, yes: bool) -> Self {
        self.flags.set(flags, yes);
        self
    }
}

/// An iterator over the entries of a directory. Changes made during the iteration may or may not appear.
#[derive(Debug)]
pub struct ReadDir<'a, P: Posix> {
    dir: File<'a, P>,
    fs: &'a P,
    path: Arc<Path>,
    fetched: std::vec::IntoIter<DirEntry>,
    /// The position in the directory where the next fetch begins. `None` at the end.
    cookie: Option<u64>,
    fetch: FetchSize,
}

impl<P: Posix> ReadDir<'_, P> {
    fn fetch(&mut self) -> Result<()> {
        let Some(from) = self.cookie.take() else { return Ok(()) };
        let at_most = self.fetch.next();
        let mut entries = Vec::new();
        let mut next = None;
        let dir = &self.path;
        self.fs
            .list(self.dir.handle(), from, &mut |entry| {
                entries.push(DirEntry {
                    dir: Arc::clone(dir),
                    name: OsString::from_vec(entry.name.to_vec()),
                    kind: entry.kind,
                    inode: entry.inode,
                });
                let full = entries.len() == at_most;
                next = full.then_some(entry.next);
                !full
            })
            .map_err(|error| error.at(&self.path))?;
        self.cookie = next;
        self.fetched = entries.into_iter();
        Ok(())
    }
}

impl<P: Posix> Iterator for ReadDir<'_, P> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.fetched.next() {
            return Some(Ok(entry));
        }
        match self.fetch() {
            Ok(()) => self.fetched.next().map(Ok),
            Err(error) => Some(Err(error)),
        }
    }
}

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    dir: Arc<Path>,
    name: OsString,
    kind: Kind,
    inode: u64,
}

impl DirEntry {
    /// Returns the name, without the directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the bytes of the name.
    pub fn name_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// Returns the path given to `read_dir`, joined with the name.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Returns the kind of the entry.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the inode number.
    pub fn inode(&self) -> u64 {
        self.inode
    }
}
