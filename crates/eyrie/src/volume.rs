//! Volumes: making, opening, checking, resizing and closing them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyrie_engine::access::Credentials;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{FORMAT_VERSION, Options, segment_path};
use eyrie_engine::{Engine, Owner};
pub use eyrie_medium::PagedOptions;
use eyrie_medium::{MediumKind, PAGE_SIZE};

pub use eyrie_engine::check::Report;
pub use eyrie_engine::volume::MediumChoice;

use crate::stamps::coarse_time;
use crate::{Error, Kvfs, Pxfs, Result};

/// The files of a volume.
pub type Files = Pxfs<Scm>;
/// The keys and values in one directory of a volume.
pub type Store = Kvfs<Scm>;

/// An open volume. As long as it is open, neither this process nor another one can open it again.
///
/// The volume is saved when it and all its [`Files`] and [`Store`]s are dropped, also while a panic unwinds.
/// A volume that is saved has all changes on its medium, and the next open takes no longer than usual. A drop
/// cannot return an error, so it reports the error as an event of `tracing`. [`Volume::close`] also saves the
/// volume, and returns the error.
///
/// A panic inside a call that changes the volume is a defect of Eyrie. Later changes then fail with `EROFS`,
/// and the next open recovers the volume.
///
/// A process may end without a drop: by [`std::process::exit`], by [`std::process::abort`] (also for a panic
/// with `panic = "abort"`), by a signal, or by a return from `main` while a `static` or another thread still
/// has the volume, its files or a store. A program that calls `exit` should close its volumes first. Without
/// a drop, the next open recovers the volume, which takes longer, and the medium decides which changes are
/// lost:
///
/// - `dram` and `pmem`: none. The changes of every call that had returned are there.
/// - `paged`: those after the last [`Volume::sync`], `fsync` or background drain. Background drains come
///   every five seconds, unless [`PagedOptions::drain_interval`] has another time.
pub struct Volume {
    engine: Arc<Scm>,
    path: PathBuf,
    segment: PathBuf,
}

/// Options for making a volume.
#[derive(Clone, Debug)]
#[must_use = "options make no volume before create"]
pub struct VolumeOptions {
    size_bytes: Option<u64>,
    group_bytes: u64,
    medium: MediumChoice,
    overwrite: bool,
    paged: PagedOptions,
    owner: Owner,
}

impl VolumeOptions {
    /// Sets the size of the volume in bytes, a multiple of 4096 from 1 MiB to 1 TiB. The default is 1 GiB. A
    /// volume on a block device fills the device, so there a size is `EINVAL`. The host provides storage only
    /// when the volume uses it. This first size decides how far [`Volume::resize`] can enlarge the volume:
    /// [`Information::most_bytes`] has the rule.
    pub fn size(mut self, bytes: u64) -> VolumeOptions {
        self.size_bytes = Some(bytes);
        self
    }

    /// Sets the size of an allocation group in bytes, a power of two from 64 KiB to 64 MiB, 64 MiB by
    /// default. The volume takes storage into use, and gives it back to the host, in groups. The largest
    /// extent has the size of one group.
    pub fn group_size(mut self, bytes: u64) -> VolumeOptions {
        self.group_bytes = bytes;
        self
    }

    /// Sets the medium of the volume, [`MediumChoice::Auto`] by default. The medium cannot be changed later.
    pub fn medium(mut self, choice: MediumChoice) -> VolumeOptions {
        self.medium = choice;
        self
    }

    /// Uses a block device even if the device has contents, which are then lost. False by default.
    pub fn overwrite(mut self, overwrite: bool) -> VolumeOptions {
        self.overwrite = overwrite;
        self
    }

    /// Sets the memory and timing of a volume on a disk, [`PagedOptions::for_host`] by default. The volume
    /// does not record them: see [`Volume::open_with`].
    pub fn paged(mut self, paged: PagedOptions) -> VolumeOptions {
        self.paged = paged;
        self
    }

    /// Sets permission bits, user and group of the root directory, by default 0o755 and those of this
    /// process.
    pub fn owner(mut self, mode: u16, uid: u32, gid: u32) -> VolumeOptions {
        self.owner = Owner { mode, uid, gid };
        self
    }

    /// Makes the volume. At a new name or in an empty directory the volume is a directory of the host. On a
    /// block device the volume is the device itself.
    ///
    /// # Errors
    /// `EEXIST` for a directory that is not empty, and for a device with contents that may not be
    /// overwritten. `ENOTDIR` for another kind of file. `EBUSY` for a device in use. `ENOSPC` if the host is
    /// full. `EINVAL` for an impossible size. `EOPNOTSUPP` for a medium that the host lacks. Other errors as
    /// the host returns them, such as `ENOENT` for a missing directory above and `EACCES`. The message of the
    /// error has advice. After an error no file of the volume is left.
    pub fn create(self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let now = coarse_time();
        let failed = |error| Error::from_engine(error, "create volume").at(path);
        let random = Options::random(now).map_err(failed)?;
        let VolumeOptions { group_bytes, medium, overwrite, paged, .. } = self;
        let options = Options { group_bytes, medium, overwrite, paged, ..random };
        let engine = Scm::create(path, self.size_bytes, &options, self.owner, now).map_err(failed)?;
        Ok(Volume::over(engine, path))
    }
}

/// The properties of a volume. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Information {
    /// The id, in hexadecimal.
    pub id: String,
    /// Version of the format on the medium.
    pub format: u32,
    /// The name of the medium.
    pub medium: &'static str,
    /// A sentence that states which failures the changes survive on this medium.
    pub promise: &'static str,
    /// Present size of the volume, with its tables and without the journal.
    pub size_bytes: u64,
    /// Largest size to which the volume can be resized. It is fixed when the volume is made: 16 times the
    /// first size, but at most 1 TiB, rounded up to a multiple of 2 GiB. So a volume of 1 MiB can grow to 2
    /// GiB, a volume of 1 GiB to 16 GiB, and a volume of 64 GiB or more to 1 TiB. The tables in front of the
    /// data have this room and cannot move, so a resize does not change this size.
    pub most_bytes: u64,
    /// Size of an allocation group.
    pub group_bytes: u64,
    /// Bytes that objects use.
    pub used_bytes: u64,
    /// Bytes that objects can still use.
    pub free_bytes: u64,
    /// The number of objects.
    pub objects: u64,
    /// Bytes of memory that the pages of the volume take now. `None` if the medium itself is memory.
    pub resident_bytes: Option<u64>,
    /// Bytes of the journal. `None` if the medium needs none.
    pub journal_bytes: Option<u64>,
    /// The files of the volume on the host, and their sizes, which include the journal.
    pub segments: Vec<(PathBuf, u64)>,
    /// True if the volume had not been closed, so that this open recovered it.
    pub recovered: bool,
}

impl Volume {
    fn over(engine: Scm, path: &Path) -> Volume {
        let engine = Arc::new(engine.closed_on_drop());
        Volume { engine, path: path.to_owned(), segment: segment_path(path) }
    }

    /// Returns the default options for making a volume.
    pub fn options() -> VolumeOptions {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let owner = Owner { mode: 0o755, uid, gid };
        let medium = MediumChoice::Auto;
        let paged = PagedOptions::for_host();
        VolumeOptions { size_bytes: None, group_bytes: 64 << 20, medium, overwrite: false, paged, owner }
    }

    /// Makes a volume with a maximum size of `size_bytes`.
    ///
    /// # Errors
    /// As [`VolumeOptions::create`].
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Volume> {
        Volume::options().size(size_bytes).create(path)
    }

    /// Makes a volume in a new or empty directory of the host from the bytes of a volume file, as a crash
    /// leaves them. The bytes are validated when the volume is opened, not here.
    ///
    /// # Errors
    /// `EEXIST` if the directory is not empty. `ENOTDIR` for another kind of file. `ENOSPC` if the host is
    /// full. After an error no file of the volume is left.
    pub fn from_image(path: impl AsRef<Path>, image: &[u8]) -> Result<()> {
        let path = path.as_ref();
        eyrie_engine::volume::create_from(path, image)
            .map_err(|error| Error::from_engine(error, "create volume").at(path))
    }

    /// Opens a volume. A volume that was not closed is recovered.
    ///
    /// # Errors
    /// `ENOENT` if nothing is at `path`. `ENOTDIR` for a file that is neither a directory nor a block device.
    /// `EINVAL` for a directory or device without a volume. `EBUSY` if a process has the volume open.
    /// `EOPNOTSUPP` for a newer format, and for a host without the medium. `EIO` for a truncated or corrupt
    /// volume, but `EINVAL` if neither superblock can be recognised. Other errors as the host returns them,
    /// such as `EACCES`. The message of the error has the reason and advice.
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::open_with(path, PagedOptions::for_host())
    }

    /// Opens a volume. If the volume is on a disk, `paged` sets its memory and the time between drains.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_with(path: impl AsRef<Path>, paged: PagedOptions) -> Result<Volume> {
        let path = path.as_ref();
        let opened = Scm::open(path, paged);
        let engine = opened.map_err(|error| Error::from_engine(error, "open volume").at(path))?;
        Ok(Volume::over(engine, path))
    }

    /// Checks the volume at `path` in the state after recovery. No process may have the volume open. The
    /// check changes nothing, even if the volume was not closed. The report also names damage that prevents
    /// the volume from being opened. `paged` is as in [`Volume::open_with`].
    ///
    /// # Errors
    /// As [`Volume::open`] if `path` is not a volume, or the volume is in use. `EIO` if the medium fails.
    pub fn inspect(path: impl AsRef<Path>, paged: PagedOptions) -> Result<Report> {
        crate::repair::inspect(path.as_ref(), paged)
    }

    /// Makes a volume larger or smaller at its end. No process may have the volume open. The size is a
    /// multiple of 4096 bytes. The largest size is [`Information::most_bytes`], which is fixed when the
    /// volume is made. On a block device the size of the device is a second limit. A device may be larger
    /// than its volume. No byte of the volume moves, so the smallest size is the end of the last used page,
    /// but at least 1 MiB.
    ///
    /// # Errors
    /// `EINVAL` for an impossible size: the message names the smallest or largest size. `ENOSPC` if the host
    /// is full. As [`Volume::open`]. After an error or a crash the volume has its old size or the new one.
    pub fn resize(path: impl AsRef<Path>, size_bytes: u64) -> Result<()> {
        Volume::resize_with(path, Some(size_bytes), PagedOptions::for_host())
    }

    /// Works as [`Volume::resize`]. Without a size, the volume grows to the size of its block device. `paged`
    /// is as in [`Volume::open_with`].
    ///
    /// # Errors
    /// As [`Volume::resize`].
    pub fn resize_with(path: impl AsRef<Path>, size_bytes: Option<u64>, paged: PagedOptions) -> Result<()> {
        let path = path.as_ref();
        let resized = Scm::resize(path, size_bytes, paged);
        resized.map_err(|error| Error::from_engine(error, "resize volume").at(path))
    }

    /// Gives the storage of allocation groups that are wholly free back to the host, and also the memory that
    /// the host provided ahead of need. [`Volume::close`] also gives back groups that became free since the
    /// open. Returns the number of bytes that the host got back. A block device does not report this number,
    /// so for a device the result is the size of the groups.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn trim(&self) -> Result<u64> {
        let before = self.host_bytes();
        let trimmed = self.engine.trim();
        let free = trimmed.map_err(|error| Error::from_engine(error, "trim volume").at(&self.path))?;
        let came_back = |before: u64| before.saturating_sub(self.host_bytes().unwrap_or(0));
        Ok(before.map_or(free, came_back))
    }

    /// Returns the number of bytes that the file of the volume takes on the host, or `None` for a device.
    fn host_bytes(&self) -> Option<u64> {
        let file = std::fs::metadata(&self.segment).ok()?;
        file.is_file().then(|| file.blocks() * 512)
    }

    /// Returns the file system of the volume for a user with `credentials`.
    pub fn files(&self, credentials: Credentials) -> Files {
        Pxfs::new(Arc::clone(&self.engine), credentials)
    }

    /// Opens the store in the directory `path`, which must exist.
    ///
    /// # Errors
    /// As [`Kvfs::open`].
    pub fn store(&self, path: impl AsRef<Path>, credentials: Credentials) -> Result<Store> {
        Kvfs::open(&self.files(credentials), path)
    }

    /// Returns the properties of the volume.
    pub fn information(&self) -> Information {
        let volume = self.engine.volume();
        let space = self.engine.space();
        let (medium, promise) = match volume.medium().kind() {
            MediumKind::Dram => {
                ("dram", "every completed call survives the death of the process, not of the host")
            }
            MediumKind::Pmem => {
                ("pmem", "every completed call survives a power failure and the death of the process")
            }
            MediumKind::Paged => (
                "paged",
                "synchronised changes, and all but those of the last seconds, survive a power failure and \
                 the death of the process",
            ),
            MediumKind::Traced => ("traced", "the crash explorer decides what survives"),
        };
        let journal_bytes = volume.medium().journal_bytes();
        // The journal lies behind the volume in the same file. The last page of the file is the anchor, which
        // says where the journal is.
        let behind = journal_bytes.map_or(0, |journal| journal + PAGE_SIZE);
        let segments = volume.medium().segment_sizes();
        Information {
            id: volume.volume_id().iter().map(|byte| format!("{byte:02x}")).collect(),
            format: FORMAT_VERSION,
            medium,
            promise,
            size_bytes: volume.geometry().volume_bytes(),
            most_bytes: volume.geometry().most_bytes(),
            group_bytes: volume.geometry().group_bytes(),
            used_bytes: space.total - space.free,
            free_bytes: space.free,
            objects: space.objects,
            resident_bytes: volume.medium().resident_bytes(),
            journal_bytes,
            segments: segments.map(|bytes| (self.segment.clone(), bytes + behind)).collect(),
            recovered: self.engine.recovered(),
        }
    }

    /// Checks that all structures of the volume agree, and changes nothing. No call may change the volume
    /// during the check. The counts include open files without a name.
    ///
    /// # Errors
    /// `EIO` if the medium fails. Damage of the volume is in the report.
    pub fn check(&self) -> Result<Report> {
        self.engine.check().map_err(|error| Error::from_engine(error, "check volume").at(&self.path))
    }

    /// Makes all earlier changes of files and stores as durable as the medium can make them: see
    /// [`Information::promise`]. Other threads can use the volume meanwhile.
    ///
    /// # Errors
    /// `EIO` if the disk fails. `ENOSPC` if the disk becomes full during the write. After one of these
    /// errors, every later call that changes or synchronises the volume fails with `EROFS`.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync().map_err(|error| Error::from_engine(error, "sync volume").at(&self.path))
    }

    /// Saves and closes the volume.
    ///
    /// # Errors
    /// `EBUSY` while its files or stores are in use. The volume is then closed when the last of them is
    /// dropped. As [`Volume::sync`].
    pub fn close(self) -> Result<()> {
        let Volume { engine, path, .. } = self;
        let Some(engine) = Arc::into_inner(engine) else {
            let reason = "files or stores of the volume are still in use";
            return Err(Error::with_reason(rustix::io::Errno::BUSY, "close volume", reason).at(path));
        };
        engine.close().map_err(|error| Error::from_engine(error, "close volume").at(path))
    }
}
