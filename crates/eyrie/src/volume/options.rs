//! Options for making a volume.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use eyrie_engine::Owner;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_medium::PagedOptions;

use super::Volume;
use crate::stamps::coarse_time;
use crate::{Errno, Error, Result};

/// Options for making a volume.
///
/// # Examples
/// ```
/// use eyrie::{MediumChoice, Volume};
///
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let path = place.path().join("nest");
/// let options = Volume::options().size(16 << 20).medium(MediumChoice::Dram);
/// let volume = options.open_or_create(&path)?;
/// assert_eq!(volume.information().size_bytes, 16 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options make no volume before create"]
pub struct VolumeOptions {
    size_bytes: Option<u64>,
    group_bytes: u64,
    medium: MediumChoice,
    overwrite: bool,
    checksums: bool,
    paged: PagedOptions,
    owner: Owner,
}

impl VolumeOptions {
    /// Returns the default options. The process owns the root directory.
    pub(super) fn new() -> VolumeOptions {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let owner = Owner { mode: 0o755, uid, gid };
        let medium = MediumChoice::Auto;
        let paged = PagedOptions::for_host();
        VolumeOptions {
            size_bytes: None,
            group_bytes: 64 << 20,
            medium,
            overwrite: false,
            checksums: false,
            paged,
            owner,
        }
    }

    /// Sets the size of the volume in bytes, a multiple of 4096 from 1 MiB to 1 TiB. The default is 1 GiB. A
    /// volume on a block device fills the device, so [`VolumeOptions::create`] refuses a size there
    /// (`EINVAL`). The host provides storage only when the volume uses it. This first size decides how far
    /// [`Volume::resize`] can enlarge the volume: [`Information::most_bytes`](crate::Information::most_bytes)
    /// has the rule.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let volume = eyrie::Volume::options().size(2 << 20).create(place.path().join("nest"))?;
    /// assert_eq!(volume.information().size_bytes, 2 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn size(mut self, bytes: u64) -> VolumeOptions {
        self.size_bytes = Some(bytes);
        self
    }

    /// Sets the size of an allocation group in bytes, a power of two from 64 KiB to 64 MiB, 64 MiB by
    /// default. The volume takes storage into use, and gives it back to the host, in groups. The largest
    /// extent has the size of one group.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let options = eyrie::Volume::options().size(2 << 20).group_size(64 << 10);
    /// let volume = options.create(place.path().join("nest"))?;
    /// assert_eq!(volume.information().group_bytes, 64 << 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group_size(mut self, bytes: u64) -> VolumeOptions {
        self.group_bytes = bytes;
        self
    }

    /// Sets the medium of the volume, [`MediumChoice::Auto`] by default. The medium cannot be changed later.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::{MediumChoice, Volume};
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let options = Volume::options().size(2 << 20).medium(MediumChoice::Paged);
    /// assert_eq!(options.create(place.path().join("nest"))?.information().medium, "paged");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn medium(mut self, choice: MediumChoice) -> VolumeOptions {
        self.medium = choice;
        self
    }

    /// Uses a block device even if the device has contents, which are then lost. False by default. A device
    /// has contents if its first or last MiB has a byte that is not zero.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::Volume;
    /// # let format = || -> eyrie::Result<Volume> {
    /// let volume = Volume::options().overwrite(true).create("/dev/vdb")?;
    /// # Ok(volume)
    /// # };
    /// ```
    pub fn overwrite(mut self, overwrite: bool) -> VolumeOptions {
        self.overwrite = overwrite;
        self
    }

    /// Gives each page of a volume on a disk a checksum. False by default. A read of a page that does not
    /// match its checksum fails with `EIO`, and [`Volume::scrub`] finds all such pages. The checksums take
    /// 1/1024 of the volume. They cannot be added or removed later. Only the medium `paged` has checksums.
    /// With this option, [`MediumChoice::Auto`] chooses `paged`, and the choice of another medium fails with
    /// `EINVAL`.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::Volume;
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let volume = Volume::options().size(2 << 20).checksums(true).create(place.path().join("nest"))?;
    /// assert!(volume.information().checksums);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn checksums(mut self, checksums: bool) -> VolumeOptions {
        self.checksums = checksums;
        self
    }

    /// Sets the memory and timing of a volume on a disk, [`PagedOptions::for_host`] by default. The volume
    /// does not record them: see [`Volume::open_with`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use eyrie::{MediumChoice, PagedOptions, Volume};
    ///
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let paged = PagedOptions::new(8 << 20, Duration::from_secs(1));
    /// let options = Volume::options().size(2 << 20).medium(MediumChoice::Paged).paged(paged);
    /// let volume = options.create(place.path().join("nest"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn paged(mut self, paged: PagedOptions) -> VolumeOptions {
        self.paged = paged;
        self
    }

    /// Sets permission bits, user and group of the root directory. By default the bits are 0o755, and user
    /// and group are the effective ids of this process. As with `chmod(2)`, the bits of `mode` above 0o7777
    /// have no effect.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::{Credentials, MediumChoice, PosixExt, Volume};
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let options = Volume::options().size(2 << 20).medium(MediumChoice::Dram).owner(0o700, 1000, 1000);
    /// let volume = options.create(place.path().join("nest"))?;
    /// let root = volume.files(Credentials::root()).metadata("/")?;
    /// assert_eq!((root.mode, root.uid), (0o700, 1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn owner(mut self, mode: u16, uid: u32, gid: u32) -> VolumeOptions {
        self.owner = Owner { mode: mode & 0o7777, uid, gid };
        self
    }

    /// Makes the volume. At a new name or in an empty directory the volume is a directory of the host. On a
    /// block device the volume is the device itself.
    ///
    /// # Errors
    /// `EEXIST` for a directory that is not empty, and for a device with contents that may not be
    /// overwritten. `ENOTDIR` for another kind of file. `EBUSY` for a device in use. `ENOSPC` if the host is
    /// full. `EINVAL` for an impossible size, and for options that exclude each other. `EOPNOTSUPP` for a
    /// medium that the host lacks. Other errors as the host returns them, such as `ENOENT` for a missing
    /// parent directory, and `EACCES`. The message of the error has advice. After an error no file of the
    /// volume is left.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::{Errno, Volume};
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// let volume = Volume::options().size(2 << 20).create(&path)?;
    /// let again = Volume::options().create(&path);
    /// assert_eq!(again.err().map(|error| error.errno()), Some(Errno::EXIST));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let now = coarse_time();
        let failed = |error| Error::from_engine(error, "create volume").at(path);
        let random = Options::random(now).map_err(failed)?;
        let VolumeOptions { group_bytes, medium, overwrite, checksums, paged, .. } = self;
        let options = Options { group_bytes, medium, overwrite, checksums, paged, ..random };
        let engine = Scm::create(path, self.size_bytes, &options, self.owner, now).map_err(failed)?;
        Ok(Volume::over(engine, path))
    }

    /// Opens the volume at `path`, or makes it if nothing is there or the directory is empty. An existing
    /// volume keeps its size, groups, medium and owner. A block device becomes a volume only if it has no
    /// contents, whatever [`VolumeOptions::overwrite`] says. The volume fills the device, whatever
    /// [`VolumeOptions::size`] says.
    ///
    /// If two processes make this call at once, one makes the volume, and the other may get `EBUSY`.
    ///
    /// # Errors
    /// As [`Volume::open`] and [`VolumeOptions::create`].
    ///
    /// # Examples
    /// ```
    /// use eyrie::{Credentials, PosixExt, Volume};
    ///
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// for run in 0..2 {
    ///     let volume = Volume::options().size(2 << 20).open_or_create(&path)?;
    ///     let files = volume.files(Credentials::of_process());
    ///     assert_eq!(files.exists("/egg")?, run > 0);
    ///     files.write("/egg", "blue")?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<Volume> {
        let (path, paged) = (path.as_ref(), self.paged);
        match Volume::open_with(path, paged) {
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::INVAL) => {}
            opened => return opened,
        }
        let is_device = path.metadata().is_ok_and(|file| file.file_type().is_block_device());
        let size_bytes = self.size_bytes.filter(|_| !is_device);
        match (VolumeOptions { size_bytes, ..self }).overwrite(false).create(path) {
            // The path names something that is no volume, or another process has just made the volume. This
            // second open returns the reason, or the volume.
            Err(error) if error.errno() == Errno::EXIST => Volume::open_with(path, paged),
            created => created,
        }
    }
}
