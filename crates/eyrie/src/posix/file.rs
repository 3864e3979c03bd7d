//! An open file in the style of [`std::fs::File`].

use std::ffi::OsStr;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyrie_engine::{FallocateMode, InodeFlags};
use smallvec::SmallVec;

use super::{Posix, SetTime, Stat, Target};
use crate::{Errno, Error, Result};

/// An open file with a position. The file is closed when it and all its clones are dropped.
///
/// A file owns a handle of its file system, so it can be a field of a struct and move to another thread.
/// [`Read`], [`Write`] and [`Seek`] move the position, also through a shared reference. Each of their calls
/// is atomic for other threads, as on Linux: two threads that read from one file get different bytes.
/// `read_at` and `write_at` neither use nor move the position, and run in parallel.
///
/// In a volume each write is one step: whole or undone, also after an error or a crash. (An append past the
/// largest size of a file writes the bytes that fit, and so does any write in a full volume with [short
/// writes](crate::Pxfs::with_short_writes).) Functions that write in parts, such as [`std::io::copy`] and
/// [`std::io::BufWriter`], have one step for each part.
///
/// An error has the path that opened the file, even if the file has another name by then. A file that
/// [`File::from_handle`] has made knows no path.
///
/// # Examples
/// ```
/// # use eyrie::{Host, PosixExt};
/// # use std::io::{Read, Write};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// let mut log = fs.options().append(true).read(true).create(true).open("log")?;
/// let writer = log.try_clone()?;
/// std::thread::spawn(move || writeln!(&writer, "an eagle")).join().unwrap()?;
/// assert_eq!(log.metadata()?.size, 9);
/// let mut first = [0; 2];
/// log.read_exact_at(&mut first, 3)?;
/// assert_eq!(&first, b"ea");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct File<P: Posix> {
    open: Arc<OpenFile<P>>,
}

/// An open handle, and the position of the file. A drop closes the handle.
#[derive(Debug)]
struct OpenFile<P: Posix> {
    fs: P,
    /// `None` only after `close` or `drop` has taken the handle.
    handle: Option<P::Handle>,
    /// The path that opened the file, for errors. Empty if it is unknown. A short path needs no allocation.
    path: SmallVec<[u8; 40]>,
    /// A read or write through the position holds this lock until it has moved the position.
    position: Mutex<u64>,
    append: bool,
}

impl<P: Posix> OpenFile<P> {
    fn position(&self) -> MutexGuard<'_, u64> {
        // A panic while the lock is held leaves a valid position.
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn with_path(&self, error: Error) -> Error {
        if self.path.is_empty() { error } else { error.at(OsStr::from_bytes(&self.path)) }
    }
}

impl<P: Posix> Drop for OpenFile<P> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // Only `File::close` can report a failure.
            let _ = self.fs.close(handle);
        }
    }
}

impl<P: Posix> File<P> {
    /// Wraps a handle of `fs`. `append` must be true if the handle was opened for appending.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let handle = fs.open("/egg".into(), OpenFlags::READ, 0)?;
    /// let file = File::from_handle(fs.clone(), handle, false);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_handle(fs: P, handle: P::Handle, append: bool) -> File<P> {
        File::new(fs, handle, append, Path::new(""))
    }

    /// Works as [`File::from_handle`], with the path that opened the file.
    pub(super) fn new(fs: P, handle: P::Handle, append: bool, path: &Path) -> File<P> {
        let (path, position) = (SmallVec::from_slice(path.as_os_str().as_bytes()), Mutex::new(0));
        File { open: Arc::new(OpenFile { fs, handle: Some(handle), path, position, append }) }
    }

    /// Returns the handle, for calls of [`Posix`] on the open file.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// let end = file.file_system().seek(file.handle(), 0, Whence::Hole)?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn handle(&self) -> &P::Handle {
        match &self.open.handle {
            Some(handle) => handle,
            None => unreachable!("a file has its handle until it is closed"),
        }
    }

    /// Returns the file system of the file.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// let space = file.file_system().statvfs(Target::Open(file.handle()))?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn file_system(&self) -> &P {
        &self.open.fs
    }

    /// Makes a call on the open file. Its error gets the path.
    #[inline]
    pub(crate) fn call<'a, T>(&'a self, call: impl FnOnce(&'a P, &'a P::Handle) -> Result<T>) -> Result<T> {
        call(&self.open.fs, self.handle()).map_err(|error| self.open.with_path(error))
    }

    /// Returns another owner of the same open file. Both owners share the position, as after `dup(2)`.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// let same = file.try_clone()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// None at present. The signature is that of [`std::fs::File::try_clone`].
    pub fn try_clone(&self) -> Result<File<P>> {
        Ok(self.share())
    }

    pub(super) fn share(&self) -> File<P> {
        File { open: Arc::clone(&self.open) }
    }

    /// Returns the inode flags (chattr(1)).
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.set_inode_flags(file.inode_flags()? | InodeFlags::APPEND_ONLY)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::inode_flags`].
    pub fn inode_flags(&self) -> Result<InodeFlags> {
        self.call(|fs, handle| fs.inode_flags(handle))
    }

    /// Sets the inode flags. [`File::inode_flags`] has an example.
    ///
    /// # Errors
    /// As [`Posix::set_inode_flags`].
    pub fn set_inode_flags(&self, flags: InodeFlags) -> Result<()> {
        self.call(|fs, handle| fs.set_inode_flags(handle, flags))
    }

    /// Gives the file another name, or the first name if it is a
    /// [temporary](super::OpenOptions::temporary) file.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.link_at("/egg")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::link`].
    pub fn link_at(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.open.fs.link(Target::Open(self.handle()), path.into()).map_err(|error| error.at(path))
    }

    /// Reads from `offset` on. Returns the number of bytes, which is 0 at and past the end of the file. On
    /// the host a read may return fewer bytes than `out` has, even before the end of the file.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// let mut head = [0; 16];
    /// let count = file.read_at(&mut head, 0)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::read_at`].
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        self.call(|fs, handle| fs.read_at(handle, out, offset))
    }

    /// Fills `out` from `offset` on.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> std::io::Result<()> {
    /// let mut head = [0; 16];
    /// file.read_exact_at(&mut head, 0)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::read_at`], but as [`std::io::Error`]. [`std::io::ErrorKind::UnexpectedEof`] if the file
    /// ends before `out` is full.
    pub fn read_exact_at(&self, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !out.is_empty() {
            match self.read_at(out, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => {
                    out = &mut out[count..];
                    offset += count as u64;
                }
            }
        }
        Ok(())
    }

    /// Writes at `offset`, or at the end if the file was opened for appending. Returns the number of bytes.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// let count = file.write_at(b"blue", 100)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::write_at`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.call(|fs, handle| fs.write_at(handle, data, offset))
    }

    /// Writes all of `data` at `offset`, or at the end of a file that was opened for appending.
    ///
    /// In a volume one step writes all bytes, with three exceptions. An append that passes the largest size
    /// of a file writes the part below this size, and then fails with `EFBIG`. With [short
    /// writes](crate::Pxfs::with_short_writes), a call whose bytes do not fit writes those that fit, and then
    /// fails. A write of more than 64 MiB in a served volume may have several steps, and so may any write on
    /// the host. The bytes before an error then stay written.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.write_all_at(b"blue", 100)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::write_at`]. `EIO` if a write succeeds, but writes no bytes.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.call(|fs, handle| write_all_at(fs, handle, data, offset))
    }

    /// Writes at the end of the file, as one atomic step. Returns the number of bytes.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.append(b"one line\n").map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::append`].
    pub fn append(&self, data: &[u8]) -> Result<usize> {
        self.call(|fs, handle| fs.append(handle, data))
    }

    /// Returns the attributes of the file.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// let size = file.metadata()?.len();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`].
    pub fn metadata(&self) -> Result<Stat> {
        self.call(|fs, handle| fs.stat(Target::Open(handle)))
    }

    /// Sets the size of the file. New bytes are zeros.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.set_len(0)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::truncate`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.call(|fs, handle| fs.truncate(Target::Open(handle), size))
    }

    /// Allocates, frees, zeroes, unshares, collapses or inserts a range of bytes, as `mode` states.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.fallocate(FallocateMode::Allocate, 0, 1 << 20)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::fallocate`].
    pub fn fallocate(&self, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.call(|fs, handle| fs.fallocate(handle, mode, offset, length))
    }

    /// Sets the permission bits.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.set_mode(0o600)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::chmod`].
    pub fn set_mode(&self, mode: u16) -> Result<()> {
        self.call(|fs, handle| fs.chmod(Target::Open(handle), mode))
    }

    /// Sets the times of last access and modification.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.set_times(SetTime::Omit, SetTime::Now)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::utimens`].
    pub fn set_times(&self, accessed: SetTime, modified: SetTime) -> Result<()> {
        self.call(|fs, handle| fs.utimens(Target::Open(handle), accessed, modified))
    }

    /// Makes the file as durable as its medium can make it.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.write_all_at(b"blue", 0)?;
    /// file.sync_all()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::fsync`].
    pub fn sync_all(&self) -> Result<()> {
        self.call(|fs, handle| fs.fsync(handle))
    }

    /// Makes the bytes of the file as durable as its medium can make them, but not necessarily its times.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.write_all_at(b"blue", 0)?;
    /// file.sync_data()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::fdatasync`].
    pub fn sync_data(&self) -> Result<()> {
        self.call(|fs, handle| fs.fdatasync(handle))
    }

    /// Closes the file. Unlike a drop of the file, this call returns an error of the close. If clones of the
    /// file exist, the drop of the last one closes the file.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::close`].
    pub fn close(self) -> Result<()> {
        match Arc::into_inner(self.open) {
            Some(mut open) => {
                let closed = open.handle.take().map_or(Ok(()), |handle| open.fs.close(handle));
                closed.map_err(|error| open.with_path(error))
            }
            None => Ok(()),
        }
    }
}

/// Writes all of `data`: see [`File::write_all_at`].
pub(super) fn write_all_at<P: Posix>(
    fs: &P,
    handle: &P::Handle,
    mut data: &[u8],
    mut offset: u64,
) -> Result<()> {
    while !data.is_empty() {
        match fs.write_at(handle, data, offset)? {
            0 => return Err(Error::new(Errno::IO, "write")),
            count => {
                data = &data[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

impl<P: Posix> Read for &File<P> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut position = self.open.position();
        let count = self.read_at(out, *position)?;
        *position += count as u64;
        Ok(count)
    }
}

impl<P: Posix> Write for &File<P> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.open.position();
        if self.open.append {
            let written = self.open.fs.append_range(self.handle(), data)?;
            if !written.is_empty() {
                *position = written.end;
            }
            return Ok((written.end - written.start) as usize);
        }
        let count = self.write_at(data, *position)?;
        *position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<P: Posix> Seek for &File<P> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.open.position();
        let (base, distance) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(distance) => (*position, distance),
            SeekFrom::End(distance) => (self.metadata()?.size, distance),
        };
        match base.checked_add_signed(distance) {
            Some(sought) if sought <= i64::MAX as u64 => {
                *position = sought;
                Ok(sought)
            }
            _ => Err(Errno::INVAL.into()),
        }
    }
}

impl<P: Posix> Read for File<P> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }
}

impl<P: Posix> Write for File<P> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<P: Posix> Seek for File<P> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
