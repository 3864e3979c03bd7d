//! Properties of a volume.

use std::path::PathBuf;

use eyrie_engine::Engine;
use eyrie_engine::volume::FORMAT_VERSION;
use eyrie_medium::{MediumKind, PagedStats};

use super::Volume;

/// The properties of a volume: see [`Volume::information`]. Sizes are in bytes.
///
/// # Examples
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
/// let information = volume.information();
/// println!("{}: {}", information.medium, information.promise);
/// assert_eq!(information.most_bytes, 2 << 30);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Information {
    /// The id of the volume, in hexadecimal.
    pub id: String,
    /// Version of the format on the medium.
    pub format: u32,
    /// The name of the medium: `dram`, `pmem` or `paged`.
    pub medium: &'static str,
    /// A sentence that states which failures the changes survive on this medium.
    pub promise: &'static str,
    /// Present size of the volume, with its tables and without the journal.
    pub size_bytes: u64,
    /// Largest size to which the volume can be resized. It is fixed when the volume is made: 16 times the
    /// first size, but at most 1 TiB, rounded up to a multiple of 2 GiB. So a volume of 1 MiB can grow to 2
    /// GiB, a volume of 1 GiB to 16 GiB, and a volume of 64 GiB or more to 1 TiB. The tables in front of the
    /// data have room for this size, and cannot move, so a resize does not change this size.
    pub most_bytes: u64,
    /// Size of an allocation group.
    pub group_bytes: u64,
    /// Bytes that objects use.
    pub used_bytes: u64,
    /// Bytes that objects can still use.
    pub free_bytes: u64,
    /// The number of objects.
    pub objects: u64,
    /// Bytes of memory that the pages of the volume take. `None` if the medium itself is memory.
    pub resident_bytes: Option<u64>,
    /// Bytes of the journal. `None` if the medium needs none.
    pub journal_bytes: Option<u64>,
    /// True if the pages of the volume have checksums. See [`VolumeOptions::checksums`].
    ///
    /// [`VolumeOptions::checksums`]: crate::VolumeOptions::checksums
    pub checksums: bool,
    /// The files of the volume on the host, and their sizes, which include the journal and the checksums.
    pub segments: Vec<(PathBuf, u64)>,
    /// True if the volume had not been closed, so this open recovered it.
    pub recovered: bool,
}

/// Numbers that change while a volume is in use: see [`Volume::stats`]. Sizes are in bytes. The numbers are
/// read one after another while other threads work, so together they may describe no single moment.
///
/// # Examples
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
/// let stats = volume.stats();
/// println!("{} objects in {} bytes", stats.objects, stats.used_bytes);
/// if let Some(disk) = stats.disk {
///     println!("{} bytes written, {} bytes read", disk.written_bytes, disk.read_bytes);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that objects use.
    pub used_bytes: u64,
    /// Bytes that objects can still use.
    pub free_bytes: u64,
    /// The number of objects, including the root directory.
    pub objects: u64,
    /// The page cache of a volume on a disk, and its work since the open. `None` if the medium itself is
    /// memory.
    pub disk: Option<PagedStats>,
}

impl Volume {
    /// Returns the properties of the volume.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// assert_eq!(volume.information().size_bytes, 2 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn information(&self) -> Information {
        let volume = self.engine.volume();
        let space = self.engine.space();
        let (medium, promise) = match volume.kind() {
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
        // The file of a volume on a disk also has the journal, and the checksums.
        let disk_bytes = volume.medium().disk_bytes();
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
            checksums: volume.medium().has_checksums(),
            segments: segments.map(|bytes| (self.segment.clone(), disk_bytes.unwrap_or(bytes))).collect(),
            recovered: self.engine.recovered(),
        }
    }

    /// True if another process serves the volume, and this process is a client of that service. Changes then
    /// go through the service, and `check`, `trim` and `scrub` fail with `EBUSY`. If the service ends and no
    /// other one starts within 5 seconds, calls fail with `ENOTCONN` until there is a service again.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// assert!(!volume.is_served());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_served(&self) -> bool {
        self.engine.is_client()
    }

    /// Returns numbers about the volume that change while it is in use. The call reads counters, and takes
    /// the locks of the allocator for a moment.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// # use eyrie::{Credentials, PosixExt};
    /// let before = volume.stats();
    /// volume.files(Credentials::of_process()).write("/egg", [7; 100_000])?;
    /// let after = volume.stats();
    /// assert_eq!(after.objects, before.objects + 1);
    /// assert!(after.used_bytes >= before.used_bytes + 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let space = self.engine.space();
        Stats {
            used_bytes: space.total - space.free,
            free_bytes: space.free,
            objects: space.objects,
            disk: self.engine.volume().medium().paged_stats(),
        }
    }
}
