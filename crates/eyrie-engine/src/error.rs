//! What engines report, and the one map from it to errno.

use eyrie_medium::{Addr, Fault};
use rustix::io::Errno;

/// Result of an engine's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an engine refused or failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No entry of that name.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("already exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was given where none may be.
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
    /// The file would pass the largest size.
    #[error("file too large: at most 2^63 - 1 bytes, and values at most 64 MiB")]
    TooLarge,
    /// The object has as many names as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// There is no extended attribute of that name.
    #[error("no such extended attribute")]
    NoXattr,
    /// The name can be none of an extended attribute.
    #[error("the name of an extended attribute has 1 to 255 bytes")]
    XattrName,
    /// The value is larger than that of any extended attribute.
    #[error("an extended attribute has at most 64 KiB")]
    XattrTooLarge,
    /// The object has as much in extended attributes as it can have.
    #[error(
        "no space left in the file: its extended attributes have at most 64 KiB, and so have their names"
    )]
    XattrsFull,
    /// The volume is full.
    #[error("no space left in the volume")]
    NoSpace,
    /// The object is gone.
    #[error("the object no longer exists")]
    Stale,
    /// The call is not permitted.
    #[error("permission denied")]
    AccessDenied,
    /// The call is only for the owner or root.
    #[error("operation not permitted")]
    NotPermitted,
    /// The file system cannot do that.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The bytes of the volume contradict themselves.
    #[error("corrupt volume: {what} at {addr}; run `eyrie fsck` on it")]
    Corrupt {
        /// Where.
        addr: Addr,
        /// What is wrong there.
        what: &'static str,
    },
    /// The medium refused or failed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The volume could not be opened or created.
    #[error("{place}: {what}")]
    Volume {
        /// The volume, or a file of it.
        place: String,
        /// What is wrong and what to do.
        what: String,
        /// The nearest errno.
        errno: Errno,
    },
}

impl Error {
    /// The errno that POSIX calls give for this.
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
            Error::XattrsFull | Error::NoSpace => Errno::NOSPC,
            Error::Stale => Errno::STALE,
            Error::AccessDenied => Errno::ACCESS,
            Error::NotPermitted => Errno::PERM,
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            Error::Corrupt { .. } => Errno::IO,
            Error::Fault(fault) => match fault {
                Fault::ReadOnly => Errno::ROFS,
                fault if fault.lacks_room() => Errno::NOSPC,
                _ => Errno::IO,
            },
            Error::Volume { errno, .. } => *errno,
        }
    }

    /// Whether there was no room, in the volume or on its host: what was freed may make some once it is reclaimed.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::NoSpace | Error::Fault(Fault::HostFull))
    }

    /// Corruption found at `addr`.
    #[cold]
    pub fn corrupt(addr: Addr, what: &'static str) -> Error {
        Error::Corrupt { addr, what }
    }
}
