//! Short writes: a write that does not fit as a whole writes the bytes that fit.
//!
//! A short write is one Op, as every write is, so a crash leaves it whole or undone. The file system tries
//! prefixes of the bytes, from the longest on, and a prefix that does not fit changes nothing.

use eyrie_engine::{Engine, ObjectId};
use eyrie_medium::{PAGE_SIZE, epoch};

use super::{Pxfs, Shared};
use crate::{Errno, Error, Result};

/// Divisor of a step: each prefix is shorter than the one before. The difference is the page count of the
/// longer prefix divided by this number, but at least one page.
const STEP_DIVISOR: u64 = 8;

impl<E: Engine> Pxfs<E> {
    /// Returns the same file system with short writes, or without them. By default a write that does not fit
    /// into the volume, or would pass a limit of a quota, writes nothing (`ENOSPC`, `EDQUOT`). With short
    /// writes it writes its first bytes and returns their number, as POSIX describes and Linux does. The
    /// bytes then end at a multiple of 4096 in the file, unless another thread appends meanwhile. The write
    /// fails only if not even the bytes of one page fit. A call that must write all bytes, such as
    /// [`File::write_all_at`](crate::File::write_all_at), writes those that fit, and then returns the error.
    ///
    /// These calls make short writes: `write_at`, `append`, `append_range`, and the writes of
    /// [`Nodes`](crate::Nodes) and [`File`](crate::File).
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// use eyrie::{Credentials, PosixExt};
    ///
    /// let files = volume.files(Credentials::root()).with_short_writes(true);
    /// let egg = files.options().write(true).create(true).open("/egg")?;
    /// let written = egg.write_at(&[7; 2 << 20], 0)?; // the volume has 1 MiB
    /// assert!(written < 1 << 20 && egg.metadata()?.size == written as u64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_short_writes(&self, short_writes: bool) -> Pxfs<E> {
        Pxfs::over(Shared { short_writes, ..self.shared.copy() })
    }

    /// Makes a write again with fewer bytes, if the file system has short writes and `error` means that not
    /// all of `data` fits. The write begins at `offset` of the object, or at the end if `offset` is `None`.
    /// `write` writes all of the bytes that it is given, or none.
    ///
    /// For a handle with durable writes, `error` may come from the sync after the bytes. The medium then
    /// refuses all further changes, so the next attempt writes nothing, and its error is returned.
    #[cold]
    pub(super) fn write_less<T>(
        &self,
        id: ObjectId,
        offset: Option<u64>,
        data: &[u8],
        error: Error,
        write: impl FnMut(&[u8]) -> Result<T>,
    ) -> Result<T> {
        if !self.shared.short_writes || !does_not_fit(&error) {
            return Err(error);
        }
        // If the size cannot be read, the prefixes end inside pages, which does no harm.
        let end = || {
            let _pin = epoch::pin();
            self.engine().attributes(id).map_or(0, |attributes| attributes.size)
        };
        write_prefix(data, offset.unwrap_or_else(end), write)?.ok_or(error)
    }
}

/// True for the errors of a full volume and of a quota.
fn does_not_fit(error: &Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT)
}

/// Writes a prefix of `data` that fits at the offset `start`, and is shorter than `data`. Returns `None` if
/// none fits.
///
/// The prefixes end at pages of the file. Each lacks an eighth of the pages of the prefix before it, rounded
/// down, but at least one page. So the written prefix lacks at most an eighth of the bytes that would fit.
/// For 1 MiB the 37th attempt has one page.
fn write_prefix<T>(data: &[u8], start: u64, mut write: impl FnMut(&[u8]) -> Result<T>) -> Result<Option<T>> {
    let before = start % PAGE_SIZE;
    let mut pages = (before + data.len() as u64).div_ceil(PAGE_SIZE);
    while pages > 1 {
        pages -= (pages / STEP_DIVISOR).max(1);
        match write(&data[..(pages * PAGE_SIZE - before) as usize]) {
            Ok(written) => return Ok(Some(written)),
            Err(error) if does_not_fit(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of bytes that a write of `length` bytes writes, and the number of its attempts.
    fn written(length: usize, start: u64, room: usize) -> (Option<usize>, usize) {
        let mut attempts = 0;
        let written = write_prefix(&vec![0; length], start, |data| {
            attempts += 1;
            if data.len() <= room { Ok(data.len()) } else { Err(Error::new(Errno::NOSPC, "write")) }
        });
        (written.expect("no other error"), attempts)
    }

    #[test]
    fn most_of_what_fits_is_written() {
        assert_eq!(written(4096, 0, 4095), (None, 0));
        assert_eq!(written(5000, 0, 4999), (Some(4096), 1));
        assert_eq!(written(5000, 4000, 4999), (Some(4192), 1));
        assert_eq!(written(5000, 4000, 4191), (Some(96), 2));
        for room in (4096..1 << 20).step_by(4096) {
            let (count, attempts) = written(1 << 20, 0, room);
            let count = count.expect("a page fits");
            assert!(
                count <= room && room - count <= room / 8 && attempts < 40,
                "{room}: {count}, {attempts}"
            );
        }
        assert_eq!(written(1 << 20, 0, 4095), (None, 37));
    }

    #[test]
    fn error_of_a_later_attempt_is_returned() {
        let mut errors = [Errno::NOSPC, Errno::IO].into_iter();
        let written: Result<Option<()>> =
            write_prefix(&[0; 20_000], 0, |_| Err(Error::new(errors.next().expect("two attempts"), "write")));
        assert_eq!(written.map_err(|error| error.errno()), Err(Errno::IO));
    }
}
