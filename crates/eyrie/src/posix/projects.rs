//! Project ids: numbers of trees with a quota. The project id of an object names the tree to which the object
//! belongs.

use super::{Dir, Posix, Target};
use crate::Result;

/// Project ids of objects.
///
/// ```
/// use eyrie::{PosixExt, PosixProjects, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let volume = Volume::create(dir.path().join("v"), 1 << 20)?;
/// let files = volume.files(eyrie::Credentials::root());
/// files.write("/egg", "blue")?;
/// files.set_project("/egg".into(), 7)?;
/// assert_eq!(files.project("/egg".into())?, 7);
/// # Ok(())
/// # }
/// ```
pub trait PosixProjects: Posix {
    /// Returns the project id of an object: the number of the tree to whose quota it counts, or 0. On the
    /// host the result is always 0.
    ///
    /// # Errors
    /// As [`Posix::stat`].
    fn project(&self, file: Target<'_, Self::Handle>) -> Result<u32>;

    /// Sets the project id of an object. While a volume has quotas, objects that are made in a directory
    /// inherit its project id.
    ///
    /// # Errors
    /// `EPERM` without the capability `SYS_ADMIN`. `EDQUOT` if the tree would get above its limit.
    /// `EOPNOTSUPP` on the host.
    fn set_project(&self, file: Target<'_, Self::Handle>, project: u32) -> Result<()>;
}

impl<P: PosixProjects> PosixProjects for Dir<P> {
    fn project(&self, file: Target<'_, P::Handle>) -> Result<u32> {
        self.file_system().project(file.map(|path| self.place(path)))
    }

    fn set_project(&self, file: Target<'_, P::Handle>, project: u32) -> Result<()> {
        self.file_system().set_project(file.map(|path| self.place(path)), project)
    }
}
