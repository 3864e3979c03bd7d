//! Volumes: making, opening, checking and closing them.

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

/// Files of a volume.
pub type Files = Pxfs<Scm>;
/// Keys and values of a volume, in one of its directories.
pub type Store = Kvfs<Scm>;

/// An open volume, held by this process alone.
///
/// It is saved when it and all [`Files`] and [`Store`]s of it are dropped, or by [`Volume::close`], which also says
/// whether that worked. A volume that was not saved loses nothing; opening it just takes longer.
pub struct Volume {
    engine: Arc<Scm>,
    path: PathBuf,
    segment: PathBuf,
}

/// How to make a volume.
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
    /// Bytes that the volume may grow to (1 GiB unless said otherwise). The host gives them as they are used. Block devices
    /// are used whole, without this.
    pub fn size(mut self, bytes: u64) -> VolumeOptions {
        self.size_bytes = Some(bytes);
        self
    }

    /// Bytes of an allocation group, in which the host is asked for memory, and of the largest extent: a power of two
    /// from 64 KiB to 64 MiB.
    pub fn group_size(mut self, bytes: u64) -> VolumeOptions {
        self.group_bytes = bytes;
        self
    }

    /// What the volume is kept on ([`MediumChoice::Auto`] unless said otherwise); it stays so.
    pub fn medium(mut self, choice: MediumChoice) -> VolumeOptions {
        self.medium = choice;
        self
    }

    /// Takes a block device even if something is on it, which is lost (not unless said so).
    pub fn overwrite(mut self, overwrite: bool) -> VolumeOptions {
        self.overwrite = overwrite;
        self
    }

    /// How memory and time are used if the volume is on a disk ([`PagedOptions::for_host`] unless said otherwise). It is
    /// not recorded: see [`Volume::open_with`].
    pub fn paged(mut self, paged: PagedOptions) -> VolumeOptions {
        self.paged = paged;
        self
    }

    /// Owner and permission bits of the root directory (0o755 of this process's user unless said otherwise).
    pub fn owner(mut self, mode: u16, uid: u32, gid: u32) -> VolumeOptions {
        self.owner = Owner { mode, uid, gid };
        self
    }

    /// Makes the volume: a directory of the host, which must not exist or be empty, or on a block device, which it fills.
    ///
    /// # Errors
    /// `EEXIST` or `ENOTEMPTY` when something is in the way, `EBUSY` for a device in use, `ENOSPC` when the host is full,
    /// `EINVAL` for a size that cannot be, `EOPNOTSUPP` for a medium that the host does not have; the message says what
    /// to do.
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

/// What there is to know of a volume. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Information {
    /// Its id, in hexadecimal.
    pub id: String,
    /// Version of the format on the medium.
    pub format: u32,
    /// The medium.
    pub medium: &'static str,
    /// What survives what on it.
    pub promise: &'static str,
    /// What it may grow to.
    pub size_bytes: u64,
    /// What it can be resized to.
    pub most_bytes: u64,
    /// Size of an allocation group.
    pub group_bytes: u64,
    /// What objects use.
    pub used_bytes: u64,
    /// What they may still use.
    pub free_bytes: u64,
    /// How many there are.
    pub objects: u64,
    /// Memory that its pages take now; `None` where the medium is the memory.
    pub resident_bytes: Option<u64>,
    /// Bytes of the journal behind it; `None` where the medium needs none.
    pub journal_bytes: Option<u64>,
    /// Its files on the host, and their sizes with the journal.
    pub segments: Vec<(PathBuf, u64)>,
    /// Whether opening it had to recover it.
    pub recovered: bool,
}

impl Volume {
    fn over(engine: Scm, path: &Path) -> Volume {
        let engine = Arc::new(engine.closed_on_drop());
        Volume { engine, path: path.to_owned(), segment: segment_path(path) }
    }

    /// How to make a volume.
    pub fn options() -> VolumeOptions {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let owner = Owner { mode: 0o755, uid, gid };
        let medium = MediumChoice::Auto;
        let paged = PagedOptions::for_host();
        VolumeOptions { size_bytes: None, group_bytes: 64 << 20, medium, overwrite: false, paged, owner }
    }

    /// Makes a volume that may grow to `size_bytes`.
    ///
    /// # Errors
    /// As [`VolumeOptions::create`].
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Volume> {
        Volume::options().size(size_bytes).create(path)
    }

    /// Makes a volume in a new directory of the host whose segment has the bytes `image`, as after a crash. They are
    /// believed when the volume is opened, if then.
    ///
    /// # Errors
    /// `EEXIST` or `ENOTEMPTY` when something is in the way, `ENOSPC` when the host is full.
    pub fn from_image(path: impl AsRef<Path>, image: &[u8]) -> Result<()> {
        let path = path.as_ref();
        eyrie_engine::volume::create_from(path, image)
            .map_err(|error| Error::from_engine(error, "create volume").at(path))
    }

    /// Opens a volume; one that was not closed is recovered.
    ///
    /// # Errors
    /// The message says what is wrong and what to do: no volume there (`ENOENT`, `EINVAL`), in use and by whom
    /// (`EBUSY`), of a newer format, truncated or corrupt, on a host without its medium (`EOPNOTSUPP`).
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::open_with(path, PagedOptions::for_host())
    }

    /// Opens a volume; if it is on a disk, `paged` says how much memory that may take, and how often it is drained.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_with(path: impl AsRef<Path>, paged: PagedOptions) -> Result<Volume> {
        let path = path.as_ref();
        let opened = Scm::open(path, paged);
        let engine = opened.map_err(|error| Error::from_engine(error, "open volume").at(path))?;
        Ok(Volume::over(engine, path))
    }

    /// Checks the volume at `path`, which nobody may have open, as opening it would leave it; changes nothing, also if
    /// it was not closed. What is so wrong that the volume cannot be opened is in the report, too. `paged` is as in
    /// [`Volume::open_with`].
    ///
    /// # Errors
    /// As [`Volume::open`], of what is no volume or in use; `EIO` when the medium fails.
    pub fn inspect(path: impl AsRef<Path>, paged: PagedOptions) -> Result<Report> {
        crate::repair::inspect(path.as_ref(), paged)
    }

    /// Makes a volume that nobody has open larger or smaller at its end. Nothing in it moves, so it can be made as small
    /// as what is used last allows, and as large as [`Information::most_bytes`]. On a block device it can be no larger than
    /// that, and may be smaller; a device may get larger under its volume.
    ///
    /// # Errors
    /// `EINVAL` says how small or large it can be; `ENOSPC` when the host is full; as [`Volume::open`]. Whatever happens,
    /// the volume has its old size or the new one.
    pub fn resize(path: impl AsRef<Path>, size_bytes: u64) -> Result<()> {
        Volume::resize_with(path, Some(size_bytes), PagedOptions::for_host())
    }

    /// As [`Volume::resize`], or without a size to what its block device has room for; `paged` is as in
    /// [`Volume::open_with`].
    ///
    /// # Errors
    /// As [`Volume::resize`].
    pub fn resize_with(path: impl AsRef<Path>, size_bytes: Option<u64>, paged: PagedOptions) -> Result<()> {
        let path = path.as_ref();
        let resized = Scm::resize(path, size_bytes, paged);
        resized.map_err(|error| Error::from_engine(error, "resize volume").at(path))
    }

    /// Gives host memory (or blocks of its disk) that nothing in the volume needs back to the host: that of allocation
    /// groups that are free as a whole. Closing does that, too, for groups that became free since it was opened. How many
    /// bytes came back; of a block device, which does not tell, how many those groups have.
    ///
    /// # Errors
    /// Those of [`Volume::sync`].
    pub fn trim(&self) -> Result<u64> {
        let before = self.host_bytes();
        let trimmed = self.engine.trim();
        let free = trimmed.map_err(|error| Error::from_engine(error, "trim volume").at(&self.path))?;
        let came_back = |before: u64| before.saturating_sub(self.host_bytes().unwrap_or(0));
        Ok(before.map_or(free, came_back))
    }

    /// Bytes of the host that its file takes; `None` where it is a device.
    fn host_bytes(&self) -> Option<u64> {
        let file = std::fs::metadata(&self.segment).ok()?;
        file.is_file().then(|| file.blocks() * 512)
    }

    /// Its files, as `credentials` may use them.
    pub fn files(&self, credentials: Credentials) -> Files {
        Pxfs::new(Arc::clone(&self.engine), credentials)
    }

    /// The keys and values in the directory `path`, which must exist.
    ///
    /// # Errors
    /// As [`Kvfs::open`].
    pub fn store(&self, path: impl AsRef<Path>, credentials: Credentials) -> Result<Store> {
        Kvfs::open(&self.files(credentials), path)
    }

    /// What there is to know of it.
    pub fn information(&self) -> Information {
        let volume = self.engine.volume();
        let space = self.engine.space();
        let (medium, promise) = match volume.medium().kind() {
            MediumKind::Dram => {
                ("dram", "every completed call survives the death of the process, not of the host")
            }
            MediumKind::Pmem => {
                ("pmem", "every completed call survives a failure of power and the death of the process")
            }
            MediumKind::Paged => (
                "paged",
                "what was synchronised, and all but the last seconds, survives a failure of power and the death of the \
                 process",
            ),
            MediumKind::Traced => ("traced", "what survives is what the crash explorer decides"),
        };
        let journal_bytes = volume.medium().journal_bytes();
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

    /// Compares everything in the volume with everything else in it; changes nothing. Nothing may be changing it
    /// meanwhile. Files without a name that are still open are among those that it counts.
    ///
    /// # Errors
    /// `EIO` when the medium fails; what is wrong with the volume is in the report.
    pub fn check(&self) -> Result<Report> {
        self.engine.check().map_err(|error| Error::from_engine(error, "check volume").at(&self.path))
    }

    /// Makes everything durable that was done before the call, in files and in stores, as far as the medium can: see
    /// [`Information::promise`]. Other threads go on meanwhile.
    ///
    /// # Errors
    /// `EIO` when the disk fails, `ENOSPC` when it is full while it is written; `EROFS` once it has failed.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync().map_err(|error| Error::from_engine(error, "sync volume").at(&self.path))
    }

    /// Saves and closes the volume.
    ///
    /// # Errors
    /// `EBUSY` while files or stores of it are still in use: it is then closed when the last of them is dropped. Those of
    /// [`Volume::sync`].
    pub fn close(self) -> Result<()> {
        let Volume { engine, path, .. } = self;
        let Some(engine) = Arc::into_inner(engine) else {
            let reason = "files or stores of the volume are still in use";
            return Err(Error::with_reason(rustix::io::Errno::BUSY, "close volume", reason).at(path));
        };
        engine.close().map_err(|error| Error::from_engine(error, "close volume").at(path))
    }
}
