//! Times of birth.

use std::sync::Arc;
use std::time::SystemTime;

use super::types::system_time;
use super::{Dir, File, Posix, Target};
use crate::{Result, Time};

/// Times at which objects were made (`stx_btime` of `statx(2)`). [`Posix::stat`] does not read them.
///
/// ```
/// use eyrie::{PosixBirth, PosixExt, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = Volume::create(place.path().join("nest"), 1 << 20)?;
/// let files = volume.files(eyrie::Credentials::root());
/// files.write("/egg", "blue")?;
/// let born = files.created("/egg".into())?;
/// files.write("/egg", "white")?; // a change of the object is no birth
/// assert_eq!(files.created("/egg".into())?, born);
/// # Ok(())
/// # }
/// ```
pub trait PosixBirth: Posix {
    /// Returns the time at which an object was made. No call sets this time.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let link = fs.created(Target::NoFollow("/link".into()))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`]. `EOPNOTSUPP` if the host's file system keeps no such time.
    fn created(&self, file: Target<'_, Self::Handle>) -> Result<Time>;
}

impl<P: PosixBirth> PosixBirth for Dir<P> {
    fn created(&self, file: Target<'_, P::Handle>) -> Result<Time> {
        self.file_system().created(file.map(|path| self.place(path)))
    }
}

impl<P: PosixBirth + ?Sized> PosixBirth for &P {
    fn created(&self, file: Target<'_, P::Handle>) -> Result<Time> {
        (**self).created(file)
    }
}

impl<P: PosixBirth + ?Sized> PosixBirth for Arc<P> {
    fn created(&self, file: Target<'_, P::Handle>) -> Result<Time> {
        (**self).created(file)
    }
}

impl<P: PosixBirth> File<P> {
    /// Returns the time at which the file was made, as [`std::fs::Metadata::created`] does.
    ///
    /// ```
    /// # use eyrie::*; fn f(file: File<Host>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    /// let age = file.created()?.elapsed()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PosixBirth::created`]. `EOVERFLOW` if the standard library cannot express the time.
    pub fn created(&self) -> Result<SystemTime> {
        self.call(|fs, handle| system_time(fs.created(Target::Open(handle))?))
    }
}
