//! Advisory locks of open files.

use std::fs::TryLockError;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use eyrie_engine::{LockKind, LockWait};

use super::{Dir, File, Posix};
use crate::{Errno, Error, Result};

/// The owner of a lock on a range of bytes.
///
/// The locks of one owner never conflict with each other. A new lock replaces the owner's locks on the same
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RangeOwner {
    /// The process (`F_SETLK`). As POSIX demands, all its locks on a file end as soon as it closes any handle
    /// of this file. In a volume, [`Pxfs::with_lock_process`](crate::Pxfs::with_lock_process) sets another
    /// number for the process.
    Process,
    /// The open file (`F_OFD_SETLK`). Its locks end when the file and all its clones are closed.
    OpenFile,
}

/// A lock that [`PosixLocks::find_range_lock`] has found.
///
/// ```
/// fn describe(lock: eyrie::FoundLock) -> String {
///     let owner = lock.process.map_or("an open file".to_owned(), |number| format!("process {number}"));
///     format!("{owner} has the bytes from {} on", lock.start)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FoundLock {
    /// Kind of the lock.
    pub kind: LockKind,
    /// Offset of its first byte.
    pub start: u64,
    /// Number of its bytes. 0 if it has all bytes from `start` on.
    pub length: u64,
    /// Number of the process that owns the lock. If the process uses the volume through a mount, the number
    /// is its process id. `None` if an open file owns the lock. In a served volume, a client chooses this
    /// number, so do not trust it.
    pub process: Option<u64>,
}

impl FoundLock {
    /// Makes a lock of an open file.
    pub(crate) fn new(kind: LockKind, start: u64, length: u64) -> FoundLock {
        FoundLock { kind, start, length, process: None }
    }
}

/// Advisory locks, with the results of Linux.
///
/// A lock conflicts only with other locks: reads, writes and truncations ignore locks. A lock is on the file
/// itself, not on one of its names. Locks of ranges and locks of whole files (`flock`) do not conflict. Locks
/// are not stored. Each process that opens a volume read-only, without a service, has locks of its own.
///
/// A call that waits takes a [`LockWait`]. `EAGAIN` means that another lock conflicts and the call does not
/// wait. `ETIMEDOUT` means that the deadline of the wait has passed, and `EINTR` that a
/// [`Canceller`](crate::Canceller) has ended the wait.
///
/// ```
/// # use eyrie::{Host, PosixExt};
/// use eyrie::{LockKind, LockWait, Posix, PosixLocks, RangeOwner};
/// use std::time::Duration;
///
/// # fn main() -> eyrie::Result<()> {
/// # let place = tempfile::tempdir().unwrap();
/// # let fs = Host::new(place.path())?;
/// let log = fs.options().read(true).write(true).create(true).open("log")?;
/// let wait = LockWait::at_most(Duration::from_secs(1));
/// fs.set_range_lock(log.handle(), RangeOwner::OpenFile, (0, 4096), Some(LockKind::Exclusive), wait)?;
/// let other = fs.options().read(true).open("log")?;
/// let found = fs.find_range_lock(other.handle(), RangeOwner::OpenFile, (0, 0), LockKind::Shared)?;
/// assert_eq!(found.map(|lock| lock.length), Some(4096));
/// # Ok(())
/// # }
/// ```
pub trait PosixLocks: Posix {
    /// Locks the whole file, or unlocks it if `kind` is `None`. The open file owns the lock. If it already
    /// has a lock of the other kind, that lock ends first, even if the call then fails.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.flock(&file, Some(LockKind::Shared), LockWait::FOREVER)?;
    /// fs.flock(&file, None, LockWait::NO)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EAGAIN`, `ETIMEDOUT` and `EINTR` if the call does not get the lock. `ENOLCK` for more than 1,048,576
    /// locks of a process, or 16,384 of a client of a served volume. `ENOLCK` also for the first call after
    /// locks of this owner have ended with their service. A deadlock is not detected.
    fn flock(&self, handle: &Self::Handle, kind: Option<LockKind>, wait: LockWait<'_>) -> Result<()>;

    /// Locks or unlocks a range: `(start, length)`. Length 0 stands for all bytes from `start` on, also those
    /// past the end of the file. A lock that fails changes nothing.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.set_range_lock(&file, RangeOwner::Process, (0, 100), Some(LockKind::Shared), LockWait::NO)?;
    /// fs.set_range_lock(&file, RangeOwner::Process, (50, 0), None, LockWait::NO)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`flock`](PosixLocks::flock). `EBADF` for a shared lock unless the file was opened for
    /// reading, and for an exclusive lock unless it was opened for writing. `EINVAL` for a start or a length
    /// of 2^63 or more. `EOVERFLOW` for a range that ends past 2^63 - 1. `EDEADLK` if a process would wait
    /// for itself, through processes that wait for each other.
    fn set_range_lock(
        &self,
        handle: &Self::Handle,
        owner: RangeOwner,
        range: (u64, u64),
        kind: Option<LockKind>,
        wait: LockWait<'_>,
    ) -> Result<()>;

    /// Returns the first lock of another owner that conflicts with a lock of this kind, if there is one
    /// (`F_GETLK`).
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// let found = fs.find_range_lock(&file, RangeOwner::Process, (0, 0), LockKind::Exclusive)?;
    /// println!("{:?}", found.and_then(|lock| lock.process));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` and `EOVERFLOW`, as [`set_range_lock`](PosixLocks::set_range_lock).
    fn find_range_lock(
        &self,
        handle: &Self::Handle,
        owner: RangeOwner,
        range: (u64, u64),
        kind: LockKind,
    ) -> Result<Option<FoundLock>>;
}

/// Passes the calls of [`PosixLocks`] on to another file system.
macro_rules! pass_locks_on {
    ($self:ident, $fs:expr) => {
        fn flock(&$self, handle: &P::Handle, kind: Option<LockKind>, wait: LockWait<'_>) -> Result<()> {
            $fs.flock(handle, kind, wait)
        }

        fn set_range_lock(
            &$self,
            handle: &P::Handle,
            owner: RangeOwner,
            range: (u64, u64),
            kind: Option<LockKind>,
            wait: LockWait<'_>,
        ) -> Result<()> {
            $fs.set_range_lock(handle, owner, range, kind, wait)
        }

        fn find_range_lock(
            &$self,
            handle: &P::Handle,
            owner: RangeOwner,
            range: (u64, u64),
            kind: LockKind,
        ) -> Result<Option<FoundLock>> {
            $fs.find_range_lock(handle, owner, range, kind)
        }
    };
}

impl<P: PosixLocks> PosixLocks for Dir<P> {
    pass_locks_on!(self, self.file_system());
}

impl<P: PosixLocks + ?Sized> PosixLocks for &P {
    pass_locks_on!(self, (**self));
}

impl<P: PosixLocks + ?Sized> PosixLocks for Arc<P> {
    pass_locks_on!(self, (**self));
}

/// Locks with the names of [`std::fs::File`], and locks of ranges. The owner of each lock is the open file:
/// clones of a `File` share its locks, and another open of the same file does not.
impl<P: PosixLocks> File<P> {
    /// Waits for an exclusive lock on the file, as [`std::fs::File::lock`] does. [`PosixLocks::flock`] can
    /// wait with a time limit.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.lock()?;
    /// file.write_all_at(b"blue", 0)?;
    /// file.unlock()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PosixLocks::flock`].
    pub fn lock(&self) -> Result<()> {
        self.call(|fs, handle| fs.flock(handle, Some(LockKind::Exclusive), LockWait::FOREVER))
    }

    /// Waits for a shared lock on the file, as [`std::fs::File::lock_shared`] does.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.lock_shared()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PosixLocks::flock`].
    pub fn lock_shared(&self) -> Result<()> {
        self.call(|fs, handle| fs.flock(handle, Some(LockKind::Shared), LockWait::FOREVER))
    }

    /// Takes an exclusive lock on the file if no other lock conflicts, as [`std::fs::File::try_lock`] does.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    /// match file.try_lock() {
    ///     Err(std::fs::TryLockError::WouldBlock) => println!("in use"),
    ///     locked => locked?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another open file has a lock that conflicts. [`TryLockError::Error`]
    /// with the other errors of [`PosixLocks::flock`].
    pub fn try_lock(&self) -> std::result::Result<(), TryLockError> {
        self.try_flock(LockKind::Exclusive)
    }

    /// Takes a shared lock on the file if no other lock conflicts, as [`std::fs::File::try_lock_shared`]
    /// does.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    /// file.try_lock_shared()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`File::try_lock`].
    pub fn try_lock_shared(&self) -> std::result::Result<(), TryLockError> {
        self.try_flock(LockKind::Shared)
    }

    /// Ends the lock on the file, as [`std::fs::File::unlock`] does. The lock also ends when the file and all
    /// its clones are closed.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.unlock()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PosixLocks::flock`].
    pub fn unlock(&self) -> Result<()> {
        self.call(|fs, handle| fs.flock(handle, None, LockWait::NO))
    }

    /// Locks a range of bytes, which may lie past the end of the file.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.lock_range(0..512, LockKind::Exclusive, LockWait::FOREVER)?;
    /// file.lock_range(.., LockKind::Shared, LockWait::NO)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PosixLocks::set_range_lock`]. `EINVAL` for a range without bytes.
    pub fn lock_range(&self, range: impl RangeBounds<u64>, kind: LockKind, wait: LockWait<'_>) -> Result<()> {
        self.call(|fs, handle| {
            let range = start_and_length(&range)?;
            fs.set_range_lock(handle, RangeOwner::OpenFile, range, Some(kind), wait)
        })
    }

    /// Unlocks a range of bytes. The range may be a part of one lock, or have parts of several.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// file.unlock_range(100..200)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`File::lock_range`].
    pub fn unlock_range(&self, range: impl RangeBounds<u64>) -> Result<()> {
        self.call(|fs, handle| {
            let range = start_and_length(&range)?;
            fs.set_range_lock(handle, RangeOwner::OpenFile, range, None, LockWait::NO)
        })
    }

    /// Returns the first lock of another owner with which a lock of this kind would conflict.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> Result<()> {
    /// let is_free = file.find_range_lock(.., LockKind::Exclusive)?.is_none();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`File::lock_range`].
    pub fn find_range_lock(&self, range: impl RangeBounds<u64>, kind: LockKind) -> Result<Option<FoundLock>> {
        self.call(|fs, handle| {
            let range = start_and_length(&range)?;
            fs.find_range_lock(handle, RangeOwner::OpenFile, range, kind)
        })
    }

    fn try_flock(&self, kind: LockKind) -> std::result::Result<(), TryLockError> {
        let locked = self.file_system().flock(self.handle(), Some(kind), LockWait::NO);
        locked.map_err(|error| match error.errno() {
            Errno::AGAIN => TryLockError::WouldBlock,
            _ => TryLockError::Error(error.into()),
        })
    }
}

/// Returns the start and the length of a range for [`PosixLocks::set_range_lock`].
fn start_and_length(range: &impl RangeBounds<u64>) -> Result<(u64, u64)> {
    const LAST: u64 = i64::MAX as u64;
    let error = |errno| Error::new(errno, "fcntl");
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let last = match range.end_bound() {
        Bound::Included(&last) => Some(last),
        Bound::Excluded(&end) => end.checked_sub(1),
        Bound::Unbounded => Some(LAST),
    };
    match (start, last) {
        (Some(start), Some(last)) if start <= last && start <= LAST => match last {
            LAST => Ok((start, 0)),
            last if last > LAST => Err(error(Errno::OVERFLOW)),
            last => Ok((start, last - start + 1)),
        },
        _ => Err(error(Errno::INVAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_starts_and_lengths() {
        const LAST: u64 = i64::MAX as u64;
        let of = |range: (Bound<u64>, Bound<u64>)| start_and_length(&range).map_err(|error| error.errno());
        assert_eq!(of((Bound::Unbounded, Bound::Unbounded)), Ok((0, 0)));
        assert_eq!(of((Bound::Included(3), Bound::Excluded(5))), Ok((3, 2)));
        assert_eq!(of((Bound::Excluded(3), Bound::Included(5))), Ok((4, 2)));
        assert_eq!(of((Bound::Included(3), Bound::Included(LAST))), Ok((3, 0)));
        assert_eq!(of((Bound::Included(3), Bound::Included(LAST + 1))), Err(Errno::OVERFLOW));
        assert_eq!(of((Bound::Included(LAST + 1), Bound::Unbounded)), Err(Errno::INVAL));
        assert_eq!(of((Bound::Included(3), Bound::Excluded(3))), Err(Errno::INVAL));
        assert_eq!(of((Bound::Unbounded, Bound::Excluded(0))), Err(Errno::INVAL));
        assert_eq!(of((Bound::Excluded(u64::MAX), Bound::Unbounded)), Err(Errno::INVAL));
    }
}
