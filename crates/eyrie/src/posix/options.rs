//! Options for opening a file.

use std::path::Path;

use super::{File, OpenFlags, Posix};
use crate::Result;

/// Options for opening a file, in the style of [`std::fs::OpenOptions`].
///
/// ```
/// # use eyrie::{Errno, Host, PosixExt};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// let file = fs.options().write(true).create_new(true).mode(0o600).open("/egg")?;
/// let again = fs.options().write(true).create_new(true).open("/egg");
/// assert_eq!(again.err().map(|error| error.errno()), Some(Errno::EXIST));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options open no file before open"]
pub struct OpenOptions<P> {
    fs: P,
    flags: OpenFlags,
    mode: u16,
}

impl<P: Posix> OpenOptions<P> {
    /// Makes options without a flag, for a file of `fs` with the permission bits 0o666.
    pub(super) fn new(fs: P) -> OpenOptions<P> {
        OpenOptions { fs, flags: OpenFlags::empty(), mode: 0o666 }
    }

    /// Opens for reading.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let file = options.read(true).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(self, yes: bool) -> Self {
        self.set(OpenFlags::READ, yes)
    }

    /// Opens for writing.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let file = options.write(true).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(self, yes: bool) -> Self {
        self.set(OpenFlags::WRITE, yes)
    }

    /// Writes at the end of the file, and ignores the offset of a write. With this option, the file is open
    /// for writing even without [`OpenOptions::write`].
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let log = options.append(true).open("/log")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn append(self, yes: bool) -> Self {
        self.set(OpenFlags::APPEND, yes)
    }

    /// Makes the file if it is missing.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let file = options.write(true).create(true).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(self, yes: bool) -> Self {
        self.set(OpenFlags::CREATE, yes)
    }

    /// Makes the file, and fails if the name exists. With this option, [`OpenOptions::create`] has no effect.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let file = options.write(true).create_new(true).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_new(self, yes: bool) -> Self {
        self.set(OpenFlags::EXCLUSIVE, yes)
    }

    /// Sets the size of the file to 0.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let empty = options.write(true).truncate(true).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn truncate(self, yes: bool) -> Self {
        self.set(OpenFlags::TRUNCATE, yes)
    }

    /// Fails unless the path leads to a directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let directory = options.read(true).directory(true).open("/nest")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn directory(self, yes: bool) -> Self {
        self.set(OpenFlags::DIRECTORY, yes)
    }

    /// Fails if the last component is a symbolic link.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let no_link = options.read(true).no_follow(true).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn no_follow(self, yes: bool) -> Self {
        self.set(OpenFlags::NOFOLLOW, yes)
    }

    /// Makes a file without a name in the file system of the directory that the path leads to (`O_TMPFILE`).
    /// The file disappears with its last close or with a crash, unless [`File::link_at`] gives it a name
    /// first. With [`OpenOptions::create_new`], the file can never get a name. The options must include
    /// writing, but not [`OpenOptions::create`].
    ///
    /// ```
    /// # use eyrie::{Host, PosixExt};
    /// # let place = tempfile::tempdir()?;
    /// # let fs = Host::new(place.path())?;
    /// let file = fs.options().write(true).temporary(true).open("/")?;
    /// file.write_all_at(b"blue", 0)?;
    /// file.link_at("/egg")?; // now the file is there, with all its bytes
    /// assert_eq!(fs.read("/egg")?, b"blue");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn temporary(self, yes: bool) -> Self {
        self.set(OpenFlags::TEMPORARY, yes)
    }

    /// Makes each write through the file durable before the write returns, as by [`File::sync_all`]
    /// (`O_SYNC`).
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let log = options.append(true).sync(true).open("/log")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sync(self, yes: bool) -> Self {
        self.set(OpenFlags::SYNC, yes)
    }

    /// Makes each write through the file durable before the write returns, as by [`File::sync_data`]
    /// (`O_DSYNC`).
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let log = options.append(true).data_sync(true).open("/log")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn data_sync(self, yes: bool) -> Self {
        self.set(OpenFlags::DATA_SYNC, yes)
    }

    /// Asks the host to bypass its page cache (`O_DIRECT`). In a volume, opens of files ignore this option.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let table = options.read(true).direct(true).open("/table")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn direct(self, yes: bool) -> Self {
        self.set(OpenFlags::DIRECT, yes)
    }

    /// With this option, no read through the file sets an access time (`O_NOATIME`): see
    /// [`OpenFlags::NOATIME`].
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let archived = options.read(true).no_access_time(true).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn no_access_time(self, yes: bool) -> Self {
        self.set(OpenFlags::NOATIME, yes)
    }

    /// Opens the object of a path for neither reading nor writing ([`OpenFlags::PATH`]).
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let pipe = options.path_only(true).open("/pipe")?;
    /// println!("user {}", pipe.metadata()?.uid);
    /// # Ok(())
    /// # }
    /// ```
    pub fn path_only(self, yes: bool) -> Self {
        self.set(OpenFlags::PATH, yes)
    }

    /// Sets the permission bits of a file that the open makes, 0o666 by default. The file gets these bits
    /// without those of the umask.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let private = options.write(true).create(true).mode(0o600).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mode(mut self, mode: u16) -> Self {
        self.mode = mode;
        self
    }

    /// Opens the file.
    ///
    /// ```
    /// # use eyrie::*; fn f(options: OpenOptions<Host>) -> Result<()> {
    /// let file = options.read(true).open("/egg")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`]. `EINVAL` unless the options include reading, writing, appending or
    /// [`path_only`](OpenOptions::path_only).
    pub fn open(self, path: impl AsRef<Path>) -> Result<File<P>> {
        let OpenOptions { fs, mut flags, mode } = self;
        // Each option is a flag of its own, as in the standard library. So a later call with `false` takes
        // back one option and no other.
        let append = flags.contains(OpenFlags::APPEND);
        if append {
            flags |= OpenFlags::WRITE;
        }
        if flags.contains(OpenFlags::EXCLUSIVE) && !flags.contains(OpenFlags::TEMPORARY) {
            flags |= OpenFlags::CREATE;
        }
        let path = path.as_ref();
        let handle = fs.open(path.into(), flags, mode).map_err(|error| error.at(path))?;
        Ok(File::new(fs, handle, append, path))
    }

    fn set(mut self, flags: OpenFlags, yes: bool) -> Self {
        self.flags.set(flags, yes);
        self
    }
}
