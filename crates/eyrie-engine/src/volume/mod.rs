//! Volumes: the tables at their start, their space, and who has them open.
//!
//! [`layout`] has the structures on media. What is free is nowhere on media while a volume is open: a clean close
//! saves it (`save`), and after a crash it follows from what the objects reach (`marks`). [`Space`] gives out memory
//! from per-thread magazines over a `buddy` allocator, with `slab` pages for small extents and chunks for `headers`.
//!
//! Invariants:
//! - Nothing but `host`, `device`, `lock`, `resize`, `damaged` and the constructors of [`Volume`] knows a path of the host.
//! - No change to an open volume's tables but by one publish each; the superblock's two copies apart.
//! - A volume has one owner: a process, not its forked children.
//!
//! Safe when power fails: see `superblock`, `central`, `headers` and `save`, each of which orders what it writes.

mod bits;
mod buddy;
mod central;
mod compare;
mod damaged;
mod device;
mod free_map;
mod generation;
mod geometry;
mod headers;
mod host;
pub mod layout;
mod lock;
mod magazine;
mod marks;
mod medium;
mod resize;
mod save;
mod slab;
mod space;
mod spares;
mod steps;
mod superblock;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium, PagedOptions, SegmentId};

pub use compare::{Finding, FindingKind};
pub use geometry::Geometry;
use host::Hold;
pub use host::{MIN_HOST_BYTES, create_from, segment_path};
pub use layout::{FORMAT_VERSION, REDO_SLOT_BYTES, REDO_SLOTS, redo_slot};
pub use marks::{Marks, Overlap};
pub use medium::MediumChoice;
pub use space::Space;
pub use superblock::Options;

use crate::object::pointer::Extent;
use crate::redo::Redo;
use crate::{Error, ObjectId, Result, Time};
use central::Shared;
use generation::Generations;
use layout::{CLEAN, GENERATION_LIMIT, GROUPS_IN_USE, SUPERBLOCKS, VOLUME_PAGE, VolumePage};
use superblock::Found;

/// How a volume was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// Closed: its space is known.
    Clean,
    /// Not closed: the redo slots are to be replayed, what objects use is to be marked, and [`Volume::adopt`] to
    /// be called. Until then nothing can be allocated, and nothing may be freed.
    Crashed,
}

/// An open volume. Dropped without [`Volume::close`] it is left as by a crash, which loses nothing. (The library's own
/// volumes are saved when they are dropped.)
pub struct Volume {
    space: Space,
    medium: Arc<Medium>,
    found: Found,
    generations: Generations,
    redo: Redo,
    /// Released last.
    hold: Option<Hold>,
}

impl Volume {
    /// Makes a volume in directory `path` of the host, `bytes` long (1 GiB, if not given), and opens it. The directory must
    /// not exist, or be empty. The host provides the memory as it is used. If `path` is a block device, the volume fills it.
    ///
    /// # Errors
    /// [`Error::Volume`] says what is in the way; [`Error::Fault`] when the host is full. Nothing is left behind.
    pub fn create(path: &Path, bytes: Option<u64>, options: &Options) -> Result<Volume> {
        Volume::create_with(path, bytes, options, Ok)
    }

    /// As [`Volume::create`], with what `fill` puts into the new volume.
    ///
    /// # Errors
    /// As [`Volume::create`], and those of `fill`. Nothing is left behind.
    pub fn create_with<T>(
        path: &Path,
        bytes: Option<u64>,
        options: &Options,
        fill: impl FnOnce(Volume) -> Result<T>,
    ) -> Result<T> {
        let place = path.display().to_string();
        host::create(path, bytes, options, |medium, hold| {
            let disk_bytes = if matches!(hold, Hold::Device(_)) { device::taken(&medium) } else { 0 };
            let volume = Volume::create_in(medium, options, disk_bytes, &place)?;
            // From now on a disk has the superblock in its place: see `device`.
            volume.medium.drain_home()?;
            fill(Volume { hold: Some(hold), ..volume })
        })
    }

    /// Makes a volume that fills `medium`, which is all zeros, and opens it.
    ///
    /// # Errors
    /// [`Error::Volume`] when the size or `options` make no volume; [`Error::Fault`].
    pub fn create_on(medium: Medium, options: &Options) -> Result<Volume> {
        Volume::create_in(medium, options, 0, "new volume")
    }

    /// `disk_bytes`: what it takes of a device with its journal, if it is on one.
    fn create_in(medium: Medium, options: &Options, disk_bytes: u64, place: &str) -> Result<Volume> {
        let bytes = medium.segment_sizes().next().unwrap_or(0);
        let geometry = Geometry::new(bytes, options.group_bytes)
            .map_err(|what| superblock::failure(place, what, rustix::io::Errno::INVAL))?;
        medium.back(Addr::new(SegmentId(0), 0), geometry.data_start())?;
        let gate = medium.enter()?;
        superblock::write(&medium, &mut superblock::new(&geometry, options, medium.kind(), disk_bytes), 1)?;
        drop(gate);
        let (volume, _) = Volume::open_in(medium, None, place)?;
        volume.space.central().sealed = false;
        Ok(volume)
    }

    /// Opens the volume at `path` of the host, a directory or a block device, for this process alone. `paged` counts if it is on a disk.
    ///
    /// # Errors
    /// [`Error::Volume`] says what is wrong: no volume there, in use (and by which process), a newer format, truncated or
    /// corrupt; [`Error::Corrupt`]; [`Error::Fault`].
    pub fn open(path: &Path, paged: PagedOptions) -> Result<(Volume, Opened)> {
        let (medium, hold) = host::open(path, paged)?;
        Volume::open_in(medium, Some(hold), &path.display().to_string())
    }

    /// Opens the volume on `medium`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_on(medium: Medium) -> Result<(Volume, Opened)> {
        Volume::open_in(medium, None, "volume")
    }

    fn open_in(medium: Medium, hold: Option<Hold>, place: &str) -> Result<(Volume, Opened)> {
        let medium = Arc::new(medium);
        let gate = medium.enter()?;
        let _pin = pin();
        let found = superblock::read(&medium, place)?;
        let page: VolumePage = medium.read_value(VOLUME_PAGE)?;
        if page.clean.get() != CLEAN && !broken(SafetyRule::FoundStoresAreFlushed) {
            // The last process may have been killed before it wrote its stores back. A volume that was closed has none of those: the
            // clean mark is its last store, and it is taken away before anything changes, also before a resize writes superblocks.
            medium.flush_found()?;
        }
        let groups = page.groups_in_use.get();
        if groups > found.geometry.groups() {
            return Err(Error::corrupt(GROUPS_IN_USE, "more groups in use than there are"));
        }
        let shared = Shared::new(Arc::clone(&medium), found.geometry, groups)?;
        let map = save::load(&shared, &page, found.block.volume_id);
        if page.clean.get() != 0 {
            save::clear_mark(&medium)?;
        }
        drop(gate);
        let opened = if map.is_some() { Opened::Clean } else { Opened::Crashed };
        let space = Space::new(shared, groups, map.unwrap_or_default());
        space.central().sealed = opened == Opened::Crashed;
        let generations = Generations::new(page.generation_limit.get());
        let volume = Volume { space, medium, found, generations, redo: Redo::default(), hold };
        volume.check_root()?;
        Ok((volume, opened))
    }

    fn check_root(&self) -> Result<()> {
        let raw = self.found.block.root.get();
        let sound = |id: ObjectId| id.is_directory() && self.is_header(Addr::from_raw(id.place()));
        if raw != 0 && !ObjectId::from_raw(raw).is_some_and(sound) {
            return Err(Error::corrupt(SUPERBLOCKS[0], "the root is no directory"));
        }
        Ok(())
    }

    /// Saves and closes the volume, as [`Volume::save`] does.
    ///
    /// # Errors
    /// As [`Volume::save`].
    pub fn close(self) -> Result<()> {
        self.save()
    }

    /// Gives the memory of groups that are free as a whole back to the host, and saves the allocator, so that the next
    /// open is quick. Where there is no room for that, it is merely slower.
    /// Nothing may be changed afterwards.
    ///
    /// # Errors
    /// [`Error::Fault`] in a forked child, or when the medium failed; the volume is left as by a crash.
    pub fn save(&self) -> Result<()> {
        if self.space.central().sealed {
            return Ok(());
        }
        self.medium.check()?;
        self.space.trim(false)?;
        let gate = self.medium.enter()?;
        let saved = save::save(&self.space, self.found.block.volume_id);
        drop(gate);
        saved?;
        Ok(self.medium.drain_home()?)
    }

    /// Gives the memory of groups that are free as a whole back to the host; how many bytes those have.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn trim(&self) -> Result<u64> {
        self.space.trim(true)
    }

    /// Marks for everything that objects use: nothing so far but the tables of the volume.
    pub fn marks(&self) -> Marks {
        Marks::new(self.space.shared())
    }

    /// Takes everything that is not marked as free: the end of recovery.
    pub fn adopt(&mut self, marks: &Marks) {
        self.space.adopt(marks.free_map());
    }

    /// The storage.
    #[inline]
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// What allocates in it.
    #[inline]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Who uses which redo slot.
    #[inline]
    pub fn redo(&self) -> &Redo {
        &self.redo
    }

    /// Sizes and places.
    pub fn geometry(&self) -> &Geometry {
        &self.found.geometry
    }

    /// Random bytes that name the volume.
    pub fn volume_id(&self) -> [u8; 16] {
        self.found.block.volume_id
    }

    /// Key of the hash of names.
    #[inline]
    pub fn hash_seed(&self) -> u64 {
        self.found.block.hash_seed.get()
    }

    /// Time of creation.
    pub fn created(&self) -> Time {
        Time::new(self.found.block.created_seconds.get(), self.found.block.created_nanoseconds.get())
    }

    /// The root directory; `None` until [`Volume::set_root`].
    pub fn root(&self) -> Option<ObjectId> {
        match self.found.block.root.get() {
            0 => None,
            raw => ObjectId::from_raw(raw),
        }
    }

    /// Makes a directory the root, durably.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn set_root(&mut self, root: ObjectId) -> Result<()> {
        let _gate = self.medium.enter()?;
        self.found.set_root(&self.medium, root.raw())
    }

    /// A number that this volume never gave before, at least 1.
    ///
    /// # Errors
    /// [`Error::Fault`]; [`Error::Corrupt`] when the numbers are used up.
    #[inline]
    pub fn generation(&self) -> Result<u64> {
        self.generations.next(&self.medium)
    }

    /// Whether `addr` is that of a header slot, free or not. Takes no lock.
    #[inline]
    pub fn is_header(&self, addr: Addr) -> bool {
        self.space.is_header(addr)
    }

    /// Whether an extent could be live: well formed, in the groups in use and in no header chunk. Takes no lock.
    #[inline]
    pub fn contains(&self, extent: Extent) -> bool {
        self.space.contains(extent)
    }

    /// Refuses bytes that are not in the space for extents and headers.
    pub(crate) fn require_data(&self, addr: Addr, len: u64) -> Result<()> {
        let (start, end) = (self.geometry().data_start(), self.geometry().volume_bytes());
        let offset = addr.offset();
        if addr.segment_index() == 0 && offset >= start && offset <= end && len <= end - offset {
            Ok(())
        } else {
            Err(Error::corrupt(addr, "bytes outside the space for extents"))
        }
    }

    /// Refuses to change what cannot be an extent of an object: a damaged pointer must not damage more.
    ///
    /// # Errors
    /// `Corrupt`.
    #[inline]
    pub fn require_own(&self, extent: Extent) -> Result<()> {
        if self.contains(extent) {
            Ok(())
        } else {
            Err(Error::corrupt(extent.addr, "extent outside the space for extents"))
        }
    }
}

const _: () = assert!(GENERATION_LIMIT.raw() == VOLUME_PAGE.raw());
