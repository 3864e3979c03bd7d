//! An open file in the style of [`std::fs::File`].

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom, Write};

use eyrie_engine::FallocateMode;
use rustix::io::Errno;

use super::{Posix, SetTime, Stat};
use crate::{Error, Result};

/// An open file with a position of its own. The file is closed when it is dropped.
///
/// [`Read`], [`Write`] and [`Seek`] move the position. `read_at` and `write_at` do not.
///
/// In a volume each write is one step: whole or undone, also after an error or a crash. Functions that write
/// in parts, such as [`std::io::copy`] and [`std::io::BufWriter`], have one step for each part.
#[derive(Debug)]
pub struct File<'a, P: Posix> {
    fs: &'a P,
    /// `None` only after `close` or `drop` has taken the handle.
    handle: Option<P::Handle>,
    position: Cell<u64>,
    append: bool,
}

impl<'a, P: Posix> File<'a, P> {
    /// Wraps a handle of `fs`. `append` must be true if the handle was opened for appending.
    pub fn from_handle(fs: &'a P, handle: P::Handle, append: bool) -> File<'a, P> {
        File { fs, handle: Some(handle), position: Cell::new(0), append }
    }

    /// Returns the handle, for calls of [`Posix`] on the open file.
    pub fn handle(&self) -> &P::Handle {
        match &self.handle {
            Some(handle) => handle,
            None => unreachable!("a file has its handle until it is closed"),
        }
    }

    /// Reads from `offset` on. Returns the number of bytes, which is 0 at and past the end of the file. On
    /// the host a read may return fewer bytes than `out` has, even before the end of the file.
    ///
    /// # Errors
    /// As [`Posix::read_at`].
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        self.fs.read_at(self.handle(), out, offset)
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// As [`Posix::read_at`]. `EIO` if the file ends before `out` is full.
    pub fn read_exact_at(&self, mut out: &mut [u8], mut offset: u64) -> Result<()> {
        while !out.is_empty() {
            match self.read_at(out, offset)? {
                0 => return Err(Error::with_reason(Errno::IO, "read", "the file ends too early")),
                count => {
                    out = &mut out[count..];
                    offset += count as u64;
                }
            }
        }
        Ok(())
    }

    /// Writes at `offset`, or at the end of a file that was opened for appending. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// As [`Posix::write_at`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.fs.write_at(self.handle(), data, offset)
    }

    /// Writes all of `data` at `offset`, or at the end of a file that was opened for appending.
    ///
    /// In a volume one step writes all bytes, with one exception: an append that passes the largest size of a
    /// file writes the part below this size, and then fails with `EFBIG`. On the host a write may have
    /// several steps, and the bytes before an error stay written.
    ///
    /// # Errors
    /// As [`Posix::write_at`]. `EIO` if a write succeeds, but writes no bytes.
    pub fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> Result<()> {
        while !data.is_empty() {
            match self.write_at(data, offset)? {
                0 => return Err(Error::new(Errno::IO, "write")),
                count => {
                    data = &data[count..];
                    offset += count as u64;
                }
            }
        }
        Ok(())
    }

    /// Writes at the end of the file, as one atomic step. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`Posix::append`].
    pub fn append(&self, data: &[u8]) -> Result<usize> {
        self.fs.append(self.handle(), data)
    }

    /// Returns the attributes of the file.
    ///
    /// # Errors
    /// As [`Posix::fstat`].
    pub fn metadata(&self) -> Result<Stat> {
        self.fs.fstat(self.handle())
    }

    /// Sets the size of the file. New bytes are zeros.
    ///
    /// # Errors
    /// As [`Posix::set_len`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.fs.set_len(self.handle(), size)
    }

    /// Allocates, frees, zeroes, collapses or inserts a range of bytes, as `mode` states.
    ///
    /// # Errors
    /// As [`Posix::fallocate`].
    pub fn fallocate(&self, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.fs.fallocate(self.handle(), mode, offset, length)
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As [`Posix::fchmod`].
    pub fn set_mode(&self, mode: u16) -> Result<()> {
        self.fs.fchmod(self.handle(), mode)
    }

    /// Sets the times of last access and modification.
    ///
    /// # Errors
    /// As [`Posix::futimens`].
    pub fn set_times(&self, accessed: SetTime, modified: SetTime) -> Result<()> {
        self.fs.futimens(self.handle(), accessed, modified)
    }

    /// Makes the file as durable as its medium can make it.
    ///
    /// # Errors
    /// As [`Posix::fsync`].
    pub fn sync_all(&self) -> Result<()> {
        self.fs.fsync(self.handle())
    }

    /// Closes the file. Unlike a drop of the file, this call returns an error of the close.
    ///
    /// # Errors
    /// As [`Posix::close`].
    pub fn close(mut self) -> Result<()> {
        match self.handle.take() {
            Some(handle) => self.fs.close(handle),
            None => Ok(()),
        }
    }

    fn advance(&self, count: usize) {
        self.position.set(self.position.get() + count as u64);
    }
}

impl<P: Posix> Drop for File<'_, P> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // Only `close` can report a failure.
            let _ = self.fs.close(handle);
        }
    }
}

impl<P: Posix> Read for &File<'_, P> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(out, self.position.get())?;
        self.advance(count);
        Ok(count)
    }
}

impl<P: Posix> Write for &File<'_, P> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = self.write_at(data, self.position.get())?;
        // The bytes are written, so an error of `metadata` must not become an error of this call.
        match self.append.then(|| self.metadata()) {
            Some(Ok(stat)) => self.position.set(stat.size),
            _ => self.advance(count),
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<P: Posix> Seek for &File<'_, P> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, distance) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(distance) => (self.position.get(), distance),
            SeekFrom::End(distance) => (self.metadata()?.size, distance),
        };
        match base.checked_add_signed(distance) {
            Some(position) if position <= i64::MAX as u64 => {
                self.position.set(position);
                Ok(position)
            }
            _ => Err(Errno::INVAL.into()),
        }
    }
}

impl<P: Posix> Read for File<'_, P> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }
}

impl<P: Posix> Write for File<'_, P> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<P: Posix> Seek for File<'_, P> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
