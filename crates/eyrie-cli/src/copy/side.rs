//! Errors of copies, with the side that they come from.

use eyrie::Errno;

use crate::failure;

/// The reason why an entry could not be copied.
#[derive(Debug)]
pub enum Side {
    /// The source cannot be read here.
    Source(String),
    /// The target does not take this entry.
    Target(String),
    /// The target takes nothing more, so the copy ends.
    Fatal(String),
}

/// Says on which side an error happened.
pub trait OnSide<T> {
    /// Returns an error of the source.
    fn reading(self) -> Result<T, Side>;
    /// Returns an error of the target.
    fn writing(self) -> Result<T, Side>;
}

impl<T> OnSide<T> for eyrie::Result<T> {
    fn reading(self) -> Result<T, Side> {
        self.map_err(|error| Side::Source(failure::reason(&error)))
    }

    fn writing(self) -> Result<T, Side> {
        self.map_err(|error| {
            let why = failure::reason(&error);
            match error.errno() {
                Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS => Side::Fatal(why),
                _ => Side::Target(why),
            }
        })
    }
}
