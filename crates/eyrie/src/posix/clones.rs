//! Clones: files that share the storage of their bytes.

use std::path::Path;
use std::sync::Arc;

use super::steps::open_pair;
use super::{Dir, File, Posix, Target};
use crate::Result;

/// Clones of files (reflinks), with the results of Linux. The files share the storage of their bytes until
/// one of them changes a page.
///
/// ```
/// use eyrie::{PosixClones, PosixExt, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let volume = Volume::create(dir.path().join("v"), 1 << 20)?;
/// let files = volume.files(eyrie::Credentials::of_process());
/// files.write("/egg", "blue")?;
/// files.reflink("/egg", "/other egg")?;
/// assert_eq!(files.read_to_string("/other egg")?, "blue");
/// # Ok(())
/// # }
/// ```
pub trait PosixClones: Posix {
    /// Clones a range of `length` bytes of an open file into another open file, or into another range of the
    /// same file. `source` and `target` have a file and the offset of its range. The files then share the
    /// storage of these bytes, until one of them changes a page. A `length` of 0 means all bytes up to the
    /// end of the source. A volume clones more than 1 GiB in several steps, each of them whole or undone.
    ///
    /// ```
    /// # use eyrie::*; fn f<P: PosixClones>(fs: &P, from: &P::Handle, to: &P::Handle) -> Result<()> {
    /// fs.clone_range((from, 0), (to, 0), 0) // FICLONE
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `ioctl_ficlonerange(2)`. `EBADF` unless the source is open for reading and the target for writing,
    /// and if the target is open for appends. `EISDIR`, or `EINVAL`, unless both are regular files. `EINVAL`
    /// unless offsets and length are multiples of 4096, but a range that ends with the source may have any
    /// length. `EINVAL` if the range is not within the source, or if the two ranges overlap. `EINVAL` if a
    /// range that ends with a part of a page would end before the end of the target. `EOPNOTSUPP` on a file
    /// system of the host without clones.
    fn clone_range(
        &self,
        source: (&Self::Handle, u64),
        target: (&Self::Handle, u64),
        length: u64,
    ) -> Result<()>;

    /// Makes `to` a clone of the file `from`, with the same permission bits, but without set-id bits. A
    /// missing file `to` is made, and an existing file is overwritten.
    ///
    /// This call has several steps: it makes `to` or sets its size to 0, clones the bytes, and sets the
    /// permission bits. After an error or a crash `to` may be empty. If `from` has more than 1 GiB, `to` may
    /// then have a part of the bytes.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.reflink("/egg", "/other egg")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`], [`PosixClones::clone_range`] and [`Posix::chmod`]. `EINVAL` unless `from` is a
    /// regular file, and if both paths lead to the same file.
    fn reflink(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        reflink(self, from.as_ref(), to.as_ref())
    }
}

/// Makes a clone of a file, with its permission bits.
fn reflink<P: PosixClones>(fs: &P, from: &Path, to: &Path) -> Result<()> {
    let (source, target, stat) = open_pair(fs, (from, to), "reflink")?;
    let Some(source) = &source.handle else { unreachable!("the file has its handle until it is closed") };
    target.call(|fs, handle| fs.clone_range((source, 0), (handle, 0), 0))?;
    target.call(|fs, handle| fs.chmod(Target::Open(handle), stat.mode))?;
    target.close()
}

/// Passes the call on to `$fs`.
macro_rules! pass_clones_on {
    ($self:ident, $fs:expr) => {
        fn clone_range(
            &$self,
            source: (&P::Handle, u64),
            target: (&P::Handle, u64),
            length: u64,
        ) -> Result<()> {
            $fs.clone_range(source, target, length)
        }
    };
}

impl<P: PosixClones> PosixClones for Dir<P> {
    pass_clones_on!(self, self.file_system());
}

impl<P: PosixClones + ?Sized> PosixClones for &P {
    pass_clones_on!(self, (**self));
}

impl<P: PosixClones + ?Sized> PosixClones for Arc<P> {
    pass_clones_on!(self, (**self));
}

impl<P: PosixClones> File<P> {
    /// Clones a range of `source` into this file, from `offset` on, as [`PosixClones::clone_range`] does. A
    /// `length` of 0 means all bytes up to the end of the source.
    ///
    /// ```
    /// # use eyrie::*; fn f(source: File<Host>, file: File<Host>) -> Result<()> {
    /// file.clone_range((&source, 0), 4096, 1 << 20)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PosixClones::clone_range`]. `EBADF` if `source` is a file of another volume. The error has no
    /// path, because either file may be the cause.
    pub fn clone_range(&self, source: (&File<P>, u64), offset: u64, length: u64) -> Result<()> {
        let (from, from_offset) = source;
        self.file_system().clone_range((from.handle(), from_offset), (self.handle(), offset), length)
    }
}

impl<P: Posix> File<P> {
    /// Copies bytes of `source` to this file, from `offset` on, as [`Posix::copy_file_range`] does. Returns
    /// the number of copied bytes.
    ///
    /// ```
    /// # use eyrie::*; fn f(source: File<Host>, file: File<Host>) -> Result<()> {
    /// let copied = file.copy_range((&source, 0), 0, 1 << 20)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::copy_file_range`]. The error has no path, because either file may be the cause.
    pub fn copy_range(&self, source: (&File<P>, u64), offset: u64, length: u64) -> Result<u64> {
        let (from, from_offset) = source;
        self.file_system().copy_file_range((from.handle(), from_offset), (self.handle(), offset), length)
    }
}
