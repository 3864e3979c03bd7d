//! Errors of engines, and the one map from them to errno.

use eyrie_medium::{Addr, Fault};

use crate::Errno;

/// Result of an engine's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why an engine refused a call or failed. The call changed nothing, with two exceptions: a
/// `Fault` may come after the change, and after `ServiceEnded` the change may have been made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory has no entry of that name, or a directory or object of the call has lost its last name.
    #[error("no such file or directory")]
    NotFound,
    /// An entry or an extended attribute of that name exists.
    #[error("already exists")]
    Exists,
    /// The call needs a directory, and got another kind of object.
    #[error("not a directory")]
    NotDirectory,
    /// The call got a directory where it allows none.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The name is longer than 255 bytes.
    #[error("name longer than 255 bytes")]
    NameTooLong,
    /// The request makes no sense for this object.
    #[error("{0}")]
    Invalid(&'static str),
    /// The size would exceed the maximum for a file or a value.
    #[error("file too large: at most 2^63 - 1 bytes, and values at most 64 MiB")]
    TooLarge,
    /// The object has the maximum number of names.
    #[error("too many links")]
    TooManyLinks,
    /// The object has no extended attribute of that name.
    #[error("no such extended attribute")]
    NoXattr,
    /// No extended attribute can have this name.
    #[error("the name of an extended attribute must have 1 to 255 bytes, and no zero byte")]
    XattrName,
    /// No extended attribute can be as large as this value.
    #[error("the value of an extended attribute must have at most 64 KiB")]
    XattrTooLarge,
    /// The object has no room for more extended attributes.
    #[error(
        "no space left in the file: extended attributes have at most 64 KiB of values and 64 KiB of names"
    )]
    XattrsFull,
    /// A condition of the batch does not hold.
    #[error("a condition does not hold")]
    ConditionFailed,
    /// The volume is full.
    #[error("no space left in the volume")]
    NoSpace,
    /// Too many names of the directory have the same hash.
    #[error("no space left in the directory: too many of its names have the same hash")]
    DirectoryFull,
    /// The change would take a user, a group or a tree above a limit of its quota.
    #[error("disk quota exceeded")]
    QuotaExceeded,
    /// The directory of the new name belongs to a tree (it has a project id), and the object has another
    /// project id or none.
    #[error("the file and the directory belong to different trees: their project ids differ")]
    OtherTree,
    /// The object no longer exists.
    #[error("the object no longer exists")]
    Stale,
    /// Another owner has a lock that conflicts with the wanted one.
    #[error("locked by another owner")]
    LockConflict,
    /// The owner would wait for a lock of its own, through the waits of other owners.
    #[error("the wait for the lock would be a deadlock")]
    Deadlock,
    /// The process or the session has the maximum number of locks.
    #[error("too many locks")]
    TooManyLocks,
    /// The owner had locks on the object, which have ended with the session of its client.
    #[error("the locks of this file have ended with their service")]
    LocksLost,
    /// The range of a lock would end past the largest offset.
    #[error("a lock must end at offset 2^63 - 1 or before")]
    LockPastEnd,
    /// The lock was not free before the deadline of the wait.
    #[error("the wait for the lock has timed out")]
    LockTimedOut,
    /// Another thread has cancelled the wait for a lock.
    #[error("the wait for the lock was cancelled")]
    LockCancelled,
    /// The caller has no permission for the call.
    #[error("permission denied")]
    AccessDenied,
    /// Only the owner of the object or root may make the call, or the kind or the inode flags of the object
    /// do not allow it.
    #[error("operation not permitted")]
    NotPermitted,
    /// The file system does not support the call.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The bytes of the volume contradict themselves.
    #[error("corrupt volume: {what} at {addr}; run `eyrie fsck` on it")]
    Corrupt {
        /// Address of the contradiction.
        addr: Addr,
        /// The contradiction, in words.
        what: &'static str,
    },
    /// The volume was opened read-only.
    #[error("the volume is open read-only: open it for changes, after all other processes have closed it")]
    OpenedReadOnly,
    /// The service through which this process shares the volume has ended, and no other service has started.
    /// A change in progress was made whole or not at all.
    #[error("the service of the volume has ended: start `eyrie serve` again")]
    ServiceEnded,
    /// An id of the Op is not reserved, because the service that had reserved it has ended. The Op was not
    /// applied. The caller reserves another id and makes the Op again.
    #[error("the service of the volume has ended before the change")]
    NotReserved,
    /// The medium refused an access, or failed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The volume could not be created, opened or resized.
    #[error("{place}: {what}")]
    Volume {
        /// The volume, or a file of it.
        place: String,
        /// The problem, and for some problems a way to solve it.
        what: String,
        /// The nearest errno.
        errno: Errno,
    },
}

impl Error {
    /// Returns the errno that POSIX calls give for this error.
    pub fn errno(&self) -> Errno {
        match self {
            Error::NotFound => Errno::NOENT,
            Error::Exists => Errno::EXIST,
            Error::NotDirectory => Errno::NOTDIR,
            Error::IsDirectory => Errno::ISDIR,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::Invalid(_) => Errno::INVAL,
            Error::TooLarge => Errno::FBIG,
            Error::TooManyLinks => Errno::MLINK,
            Error::NoXattr => Errno::NODATA,
            Error::XattrName => Errno::RANGE,
            Error::XattrTooLarge => Errno::TOOBIG,
            Error::XattrsFull | Error::NoSpace | Error::DirectoryFull => Errno::NOSPC,
            Error::OtherTree => Errno::XDEV,
            Error::QuotaExceeded => Errno::DQUOT,
            Error::ConditionFailed => Errno::CANCELED,
            Error::Stale => Errno::STALE,
            Error::LockConflict => Errno::AGAIN,
            Error::Deadlock => Errno::DEADLK,
            Error::TooManyLocks | Error::LocksLost => Errno::NOLCK,
            Error::LockPastEnd => Errno::OVERFLOW,
            Error::LockTimedOut => Errno::TIMEDOUT,
            Error::LockCancelled => Errno::INTR,
            Error::AccessDenied => Errno::ACCESS,
            Error::NotPermitted => Errno::PERM,
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            Error::Corrupt { .. } => Errno::IO,
            Error::OpenedReadOnly => Errno::ROFS,
            Error::ServiceEnded | Error::NotReserved => Errno::NOTCONN,
            Error::Fault(fault) => match fault {
                Fault::ReadOnly => Errno::ROFS,
                fault if fault.lacks_room() => Errno::NOSPC,
                _ => Errno::IO,
            },
            Error::Volume { errno, .. } => *errno,
        }
    }

    /// True if the volume had no free storage, or the host could not provide storage for it. The caller may
    /// then call [`reclaim`](crate::Engine::reclaim), which can make room from freed storage, and try again.
    /// A write of the medium that failed because the host is full (`Fault::Io`) does not count here.
    #[doc(hidden)]
    pub fn is_full(&self) -> bool {
        matches!(self, Error::NoSpace | Error::Fault(Fault::HostFull))
    }

    /// Returns an error about the volume at `place`, or about a file of a volume there.
    pub(crate) fn volume(place: &str, what: impl Into<String>, errno: Errno) -> Error {
        Error::Volume { place: place.to_string(), what: what.into(), errno }
    }

    /// Returns an error that reports corruption at `addr`.
    #[doc(hidden)]
    #[cold]
    pub fn corrupt(addr: Addr, what: &'static str) -> Error {
        Error::Corrupt { addr, what }
    }
}
