//! The error of a close.

use std::{fmt, io};

use super::Volume;
use crate::{Errno, Error};

/// The error of [`Volume::close`]: the reason, and the volume, which is still open.
///
/// [`CloseError::into_volume`] returns the volume for another attempt. A drop of this error drops the volume,
/// which is then closed as every dropped volume is. `?` also drops the volume, because it converts this error
/// to [`Error`] or [`std::io::Error`].
///
/// # Examples
/// ```
/// use eyrie::{Credentials, Errno, PosixExt, Volume};
///
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = Volume::create(place.path().join("nest"), 2 << 20)?;
/// let files = volume.files(Credentials::of_process());
/// files.write("/egg", "blue")?;
/// let error = volume.close().expect_err("the files are in use");
/// assert_eq!(error.errno(), Errno::BUSY);
/// drop(files);
/// error.into_volume().close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CloseError {
    error: Error,
    volume: Volume,
}

impl CloseError {
    pub(super) fn new(error: Error, volume: Volume) -> CloseError {
        CloseError { error, volume }
    }

    /// Returns the errno of [`CloseError::error`].
    ///
    /// ```
    /// # use eyrie::*; fn f(volume: Volume) {
    /// if let Err(error) = volume.close() {
    ///     println!("in use: {}", error.errno() == Errno::BUSY);
    /// }
    /// # }
    /// ```
    pub fn errno(&self) -> Errno {
        self.error.errno()
    }

    /// Returns the reason of the failure.
    ///
    /// ```
    /// # use eyrie::*; fn f(volume: Volume) {
    /// if let Err(error) = volume.close() {
    ///     eprintln!("{:?}: {error}", error.error().path());
    /// }
    /// # }
    /// ```
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the volume, which is still open.
    ///
    /// ```
    /// # use eyrie::*; fn f(volume: Volume, files: Files) -> Result<()> {
    /// if let Err(error) = volume.close() {
    ///     drop(files);
    ///     error.into_volume().close()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_volume(self) -> Volume {
        self.volume
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for CloseError {}

/// Drops the volume.
impl From<CloseError> for Error {
    fn from(failed: CloseError) -> Error {
        failed.error
    }
}

/// Drops the volume.
impl From<CloseError> for io::Error {
    fn from(failed: CloseError) -> io::Error {
        failed.error.into()
    }
}
