//! Errors of copies, with the side on which they occurred: source or target.

use eyrie::Errno;

use crate::{failure, interrupt};

/// The reason why an entry could not be copied.
#[derive(Debug)]
pub enum CopyError {
    /// The entry cannot be read in the source.
    Source(String),
    /// The entry cannot be made in the target.
    Target(String),
    /// The target is full, above a quota, read-only or broken, so the copy ends.
    Fatal(String),
    /// An interrupt has ended the copy inside the entry.
    Interrupted,
}

impl CopyError {
    /// Fails after an interrupt. The copy of a large file checks this between two reads.
    pub fn check_interrupt() -> Result<(), CopyError> {
        if interrupt::requested() { Err(CopyError::Interrupted) } else { Ok(()) }
    }
}

/// Marks an error with its side.
pub trait OnSide<T> {
    /// Marks an error of the source.
    fn reading(self) -> Result<T, CopyError>;
    /// Marks an error of the target. The error is fatal if it means that the target is full, above a quota,
    /// read-only or broken.
    fn writing(self) -> Result<T, CopyError>;
}

impl<T> OnSide<T> for eyrie::Result<T> {
    fn reading(self) -> Result<T, CopyError> {
        self.map_err(|error| CopyError::Source(failure::reason(&error)))
    }

    fn writing(self) -> Result<T, CopyError> {
        self.map_err(|error| {
            let why = failure::reason(&error);
            match error.errno() {
                Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS => CopyError::Fatal(why),
                _ => CopyError::Target(why),
            }
        })
    }
}
