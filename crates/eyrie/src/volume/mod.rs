//! Volumes: making, opening, checking, resizing and closing them.

mod close;
mod engine;
mod information;
mod options;
mod scrub;

pub use close::CloseError;
pub use engine::VolumeEngine;
#[doc(inline)]
pub use eyrie_engine::check::Report;
#[doc(inline)]
pub use eyrie_engine::volume::MediumChoice;
#[doc(inline)]
pub use eyrie_medium::{OrderCounts, PagedOptions, PagedStats};
pub use information::{Information, Stats};
pub use options::VolumeOptions;
pub use scrub::ScrubReport;

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyrie_engine::Engine;
use eyrie_engine::access::Credentials;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::segment_path;

use crate::{AccessRules, Errno, Error, Kvfs, Nodes, Pxfs, Result};

/// The file system of a volume, for one user: see [`Pxfs`].
pub type Files = Pxfs<VolumeEngine>;
/// The objects of a volume, for front-ends that know objects and not paths: see [`Nodes`].
pub type VolumeNodes = Nodes<VolumeEngine>;
/// The keys and values in one directory of a volume: see [`Kvfs`].
pub type Store = Kvfs<VolumeEngine>;

/// An open volume. As long as it is open, neither this process nor another one can open it again, with two
/// exceptions. [`Volume::open_read_only`] opens a volume beside other read-only opens. If a service shares
/// the volume, every open connects to the service ([`Volume::is_served`]).
///
/// The volume is saved when it and all its [`Files`], [`VolumeNodes`] and [`Store`]s are dropped, also while
/// a panic unwinds. A volume that is saved has all changes on its medium, and the next open needs no
/// recovery. A drop cannot return an error, so it reports the error as an event of `tracing`.
/// [`Volume::close`] also saves the volume, and returns the error.
///
/// A panic inside a call that changes the volume is a defect of Eyrie. Later changes then fail with `EROFS`,
/// and the next open recovers the volume.
///
/// A process may end without a drop: by [`std::process::exit`], by [`std::process::abort`] (also for a panic
/// with `panic = "abort"`), by a signal, or by a return from `main` while a `static` or another thread still
/// has the volume, its files or a store. A program that calls `exit` should close its volumes first. Without
/// a drop, the next open recovers the volume, which takes longer. The medium ([`MediumChoice`]) decides which
/// changes are lost:
///
/// - `dram` and `pmem`: none. The changes of every call that had returned are there.
/// - `paged`: those after the last [`Volume::sync`], `fsync` or background drain. Background drains come
///   every five seconds, unless [`PagedOptions::drain_interval`] has another time.
///
/// # Examples
/// ```
/// use eyrie::{Credentials, PosixExt, Volume};
///
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let path = place.path().join("nest");
/// let volume = Volume::create(&path, 2 << 20)?;
/// volume.files(Credentials::of_process()).write("/egg", "blue")?;
/// volume.close()?;
///
/// let volume = Volume::open(&path)?;
/// assert_eq!(volume.files(Credentials::of_process()).read("/egg")?, b"blue");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Volume {
    engine: Arc<VolumeEngine>,
    path: PathBuf,
    segment: PathBuf,
}

impl Volume {
    fn over(engine: Scm, path: &Path) -> Volume {
        Volume::with_engine(VolumeEngine::of_owner(engine), path)
    }

    fn with_engine(engine: VolumeEngine, path: &Path) -> Volume {
        Volume { engine: Arc::new(engine), path: path.to_owned(), segment: segment_path(path) }
    }

    /// Returns the default options for making a volume.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let volume = eyrie::Volume::options().size(2 << 20).create(place.path().join("nest"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options() -> VolumeOptions {
        VolumeOptions::new()
    }

    /// Makes a volume with a size of `size_bytes`.
    ///
    /// # Errors
    /// As [`VolumeOptions::create`].
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Volume> {
        Volume::options().size(size_bytes).create(path)
    }

    /// Opens the volume at `path`, or makes one with a size of `size_bytes` if nothing is there or the
    /// directory is empty. [`VolumeOptions::open_or_create`] has the details.
    ///
    /// # Errors
    /// As [`Volume::open`] and [`VolumeOptions::create`].
    ///
    /// # Examples
    /// ```
    /// # use eyrie::Volume;
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// Volume::open_or_create(&path, 2 << 20)?.close()?; // makes the volume
    /// Volume::open_or_create(&path, 2 << 20)?.close()?; // opens the volume
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_or_create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Volume> {
        Volume::options().size(size_bytes).open_or_create(path)
    }

    /// Makes a volume in a new or empty directory of the host from the bytes of a volume file, as a crash
    /// leaves them. The bytes are validated when the volume is opened, not here.
    ///
    /// # Errors
    /// `EEXIST` if the directory is not empty. `ENOTDIR` if `path` is a file of another kind. `ENOSPC` if the
    /// host is full. Other errors as the host returns them. After an error no file of the volume is left.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::Volume;
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let [old, new] = ["old", "new"].map(|name| place.path().join(name));
    /// let volume = Volume::create(&old, 2 << 20)?;
    /// let image = std::fs::read(&volume.information().segments[0].0)?; // as a crash leaves it
    /// Volume::from_image(&new, &image)?;
    /// assert!(Volume::open(&new)?.information().recovered);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_image(path: impl AsRef<Path>, image: &[u8]) -> Result<()> {
        let path = path.as_ref();
        eyrie_engine::volume::create_from(path, image)
            .map_err(|error| Error::from_engine(error, "create volume").at(path))
    }

    /// Opens a volume. If a service shares the volume, or if `path` is the socket of a service, connects to
    /// the service. A volume that was not closed is recovered.
    ///
    /// # Errors
    /// `ENOENT` if nothing is at `path`. `ENOTDIR` for a file that is neither a directory, nor a block
    /// device, nor a socket. `EINVAL` for a directory or device without a volume. `EBUSY` if a process has
    /// the volume open, unless that process is the service of the volume. `EACCES` if the service does not
    /// serve this user, and `EAGAIN` if the service has too many clients. `EOPNOTSUPP` for a newer format,
    /// and for a host without the medium. `EIO` for a truncated or corrupt volume, but `EINVAL` if neither
    /// superblock can be recognised. Other errors as the host returns them, such as `EACCES`. The message of
    /// the error has the reason and advice.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::Volume;
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// Volume::create(&path, 2 << 20)?.close()?;
    /// let volume = Volume::open(&path)?;
    /// assert!(!volume.information().recovered);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::open_with(path, PagedOptions::for_host())
    }

    /// Opens a volume. If the volume is on a disk, `paged` sets its memory and the time between drains.
    ///
    /// # Errors
    /// As [`Volume::open`].
    ///
    /// # Examples
    /// ```
    /// use eyrie::{PagedOptions, Volume};
    ///
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// # Volume::create(&path, 2 << 20)?.close()?;
    /// let mut paged = PagedOptions::for_host();
    /// paged.memory_bytes = 16 << 20;
    /// let volume = Volume::open_with(&path, paged)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_with(path: impl AsRef<Path>, paged: PagedOptions) -> Result<Volume> {
        Volume::open_by(path.as_ref(), paged, false)
    }

    fn open_by(path: &Path, paged: PagedOptions, read_only: bool) -> Result<Volume> {
        let engine = VolumeEngine::open(path, paged, read_only);
        let engine = engine.map_err(|error| Error::from_engine(error, "open volume").at(path))?;
        Ok(Volume::with_engine(engine, path))
    }

    /// Opens a volume to read it, beside other read-only opens in this process and in others. No byte of the
    /// volume's files is changed, so the files need only be readable, and may be on a read-only file system.
    /// A volume that was not closed is recovered in memory, at every such open. The changes that such a
    /// recovery finds become durable only when an open for changes recovers the volume. Calls that change the
    /// volume fail with `EROFS`. While a volume is open read-only, [`Volume::open`] fails with `EBUSY`. While
    /// the volume is open for changes, a read-only open fails with `EBUSY`, unless a service shares the
    /// volume.
    ///
    /// On a block device, a read-only open keeps away only programs that lock the device with `flock`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    ///
    /// # Examples
    /// ```
    /// # use eyrie::{Credentials, Errno, PosixExt, Volume};
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// # let volume = Volume::create(&path, 2 << 20)?;
    /// # volume.files(Credentials::of_process()).write("/egg", "blue")?;
    /// # volume.close()?;
    /// let (first, second) = (Volume::open_read_only(&path)?, Volume::open_read_only(&path)?);
    /// let files = second.files(Credentials::of_process());
    /// assert_eq!(files.read("/egg")?, b"blue");
    /// assert_eq!(files.remove_file("/egg").unwrap_err().errno(), Errno::ROFS);
    /// # drop(first);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::open_read_only_with(path, PagedOptions::for_host())
    }

    /// Works as [`Volume::open_read_only`]. `paged` is as in [`Volume::open_with`].
    ///
    /// # Errors
    /// As [`Volume::open`].
    ///
    /// # Examples
    /// ```
    /// # use eyrie::{PagedOptions, Volume};
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// # Volume::create(&path, 2 << 20)?.close()?;
    /// let mut paged = PagedOptions::for_host();
    /// paged.memory_bytes = 16 << 20;
    /// let volume = Volume::open_read_only_with(&path, paged)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_read_only_with(path: impl AsRef<Path>, paged: PagedOptions) -> Result<Volume> {
        Volume::open_by(path.as_ref(), paged, true)
    }

    /// Checks the volume at `path` in the state after recovery. No process may have the volume open for
    /// changes. The check changes nothing, even if the volume was not closed. The report also names damage
    /// that prevents the volume from being opened. `paged` is as in [`Volume::open_with`].
    ///
    /// # Errors
    /// As [`Volume::open`] if `path` is not a volume. `EBUSY` if a process, such as a service, has the volume
    /// open for changes. `EIO` if the medium fails.
    ///
    /// # Examples
    /// ```
    /// use eyrie::{PagedOptions, Volume};
    ///
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// # Volume::create(&path, 2 << 20)?.close()?;
    /// let report = Volume::inspect(&path, PagedOptions::for_host())?;
    /// assert!(report.findings.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect(path: impl AsRef<Path>, paged: PagedOptions) -> Result<Report> {
        crate::repair::inspect(path.as_ref(), paged)
    }

    /// Makes a volume larger or smaller at its end. No process may have the volume open. The size must be a
    /// multiple of 4096 bytes. The largest size is [`Information::most_bytes`], which is fixed when the
    /// volume is made. On a block device the size of the device is a second limit. A device may be larger
    /// than its volume. No byte of the volume moves, so the smallest size is the end of the last used page,
    /// but at least 1 MiB.
    ///
    /// # Errors
    /// `EINVAL` for an impossible size: the message names the smallest or largest size. `ENOSPC` if the host
    /// is full. `EBUSY` if a process, such as a service, has the volume open. Other errors as
    /// [`Volume::open`]. After an error or a crash the volume has its old size or the new one.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::Volume;
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// # Volume::create(&path, 2 << 20)?.close()?;
    /// Volume::resize(&path, 4 << 20)?;
    /// assert_eq!(Volume::open(&path)?.information().size_bytes, 4 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize(path: impl AsRef<Path>, size_bytes: u64) -> Result<()> {
        Volume::resize_with(path, Some(size_bytes), PagedOptions::for_host())
    }

    /// Works as [`Volume::resize`]. Without a size, a volume on a block device gets the largest size that the
    /// device and [`Information::most_bytes`] permit. `paged` is as in [`Volume::open_with`].
    ///
    /// # Errors
    /// As [`Volume::resize`]. `EINVAL` if `size_bytes` is `None` and the volume is in a directory.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::{PagedOptions, Volume};
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let path = place.path().join("nest");
    /// # Volume::create(&path, 2 << 20)?.close()?;
    /// Volume::resize_with(&path, Some(4 << 20), PagedOptions::for_host())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize_with(path: impl AsRef<Path>, size_bytes: Option<u64>, paged: PagedOptions) -> Result<()> {
        let path = path.as_ref();
        let resized = Scm::resize(path, size_bytes, paged);
        resized.map_err(|error| Error::from_engine(error, "resize volume").at(path))
    }

    /// Gives back to the host the storage of all [allocation groups](VolumeOptions::group_size) that are
    /// wholly free. Also gives back the memory that a background thread made the host provide before any call
    /// needed it. ([`Volume::close`] does the same for the groups that became free since the open.) Returns
    /// the number of bytes that the host got back, or for a block device the size of these groups.
    ///
    /// # Errors
    /// As [`Volume::sync`]. `EROFS` if the volume was opened read-only. `EBUSY` if the volume is
    /// [served](Volume::is_served).
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// println!("the host got back {} bytes", volume.trim()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trim(&self) -> Result<u64> {
        let before = self.host_bytes();
        let trimmed = self.engine.owner("trim volume").map_err(|error| error.at(&self.path))?.trim();
        let free = trimmed.map_err(|error| Error::from_engine(error, "trim volume").at(&self.path))?;
        let came_back = |before: u64| before.saturating_sub(self.host_bytes().unwrap_or(0));
        Ok(before.map_or(free, came_back))
    }

    /// Returns the number of bytes that the file of the volume takes on the host, or `None` for a device.
    fn host_bytes(&self) -> Option<u64> {
        let file = std::fs::metadata(&self.segment).ok()?;
        file.is_file().then(|| file.blocks() * 512)
    }

    /// Returns the path with which the volume was opened or made.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// assert!(volume.path().ends_with("nest"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file system of the volume for a user with `credentials`.
    ///
    /// # Examples
    /// ```
    /// use eyrie::{Credentials, PosixExt};
    ///
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// let files = volume.files(Credentials::of_process());
    /// files.write("/egg", "blue")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn files(&self, credentials: Credentials) -> Files {
        Pxfs::new(Arc::clone(&self.engine), credentials)
    }

    /// Returns the objects of the volume, for front-ends that know objects and not paths, such as a mount.
    /// The kernel protects links of a mount by the host's rules, so calls on these objects use those rules.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// let nodes = volume.nodes();
    /// assert!(nodes.node(nodes.root())?.stat.is_dir());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn nodes(&self) -> VolumeNodes {
        self.files(Credentials::root()).with_rules(AccessRules::of_host()).nodes()
    }

    /// Opens the store in the directory `path`, which must exist.
    ///
    /// # Errors
    /// As [`Kvfs::open`].
    ///
    /// # Examples
    /// ```
    /// use eyrie::{Credentials, PosixExt, Store};
    ///
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// volume.files(Credentials::of_process()).create_dir("/eggs")?;
    /// let eggs: Store = volume.store("/eggs", Credentials::of_process())?;
    /// eggs.put("heron", "blue")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn store(&self, path: impl AsRef<Path>, credentials: Credentials) -> Result<Store> {
        Kvfs::open(&self.files(credentials), path)
    }

    /// Checks that all structures of the volume agree, and changes nothing. No call may change the volume
    /// during the check. The counts include open files without a name.
    ///
    /// # Errors
    /// `EIO` if the medium fails. `EBUSY` if the volume is [served](Volume::is_served). Damage of the volume
    /// is in the report.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// let report = volume.check()?;
    /// assert_eq!((report.findings.len(), report.directories), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self) -> Result<Report> {
        let engine = self.engine.owner("check volume").map_err(|error| error.at(&self.path))?;
        engine.check().map_err(|error| Error::from_engine(error, "check volume").at(&self.path))
    }

    /// Makes all earlier changes of files and stores as durable as the medium can make them: see
    /// [`Information::promise`]. Other threads can use the volume meanwhile.
    ///
    /// # Errors
    /// `EIO` if the disk fails. `ENOSPC` if the disk becomes full during the write. After one of these
    /// errors, every later call that changes or synchronises the volume fails with `EROFS`.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// # use eyrie::{Credentials, PosixExt};
    /// volume.files(Credentials::of_process()).write("/egg", "blue")?;
    /// volume.sync()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.engine.sync().map_err(|error| Error::from_engine(error, "sync volume").at(&self.path))
    }

    /// Saves and closes the volume. If the close fails, the error has the volume for another attempt.
    ///
    /// # Errors
    /// `EBUSY` while files, nodes, stores or watches of the volume are in use. If the error is dropped, the
    /// volume is closed when the last of these is dropped. Other errors as [`Volume::sync`].
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// volume.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(mut self) -> std::result::Result<(), CloseError> {
        let closed = match Arc::get_mut(&mut self.engine) {
            Some(engine) => {
                engine.try_close().map_err(|error| Error::from_engine(error, "close volume").at(&self.path))
            }
            None => {
                let reason = "files, stores, nodes or watches of the volume are still in use";
                Err(Error::with_reason(Errno::BUSY, "close volume", reason).at(&self.path))
            }
        };
        closed.map_err(|error| CloseError::new(error, self))
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("path", &self.path).finish_non_exhaustive()
    }
}
