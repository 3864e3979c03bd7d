//! Creates, opens, saves and closes a volume.
//!
//! Safe when power fails: all tables of a new volume except the superblock are zeros before the superblock is
//! written, so a crash before that write leaves no volume. An open stores only the number of owners and the
//! cleared clean mark. A crash may keep either of these stores without the other: the number has no effect on
//! the content, and without the mark the next open recovers the volume.

use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium, MediumKind, PAGE_SIZE, PagedOptions, SegmentId};

use super::generation::Generations;
use super::owners;
use super::redo_slots::RedoSlots;
use super::save;
use super::view::VolumeView;
use crate::host::{Hold, HostPlace};
use crate::space::{Marks, Space, SpaceContext};
use crate::tables::layout::{CLEAN, GENERATION_LIMIT, GROUPS_IN_USE, SUPERBLOCKS, VOLUME_PAGE, VolumePage};
use crate::tables::superblock::{self, Purpose};
use crate::tables::{Geometry, Options};
use crate::{Errno, Error, ObjectId, Result};

/// The state in which the previous owner left a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// The previous owner closed the volume. The free space is known.
    Clean,
    /// The previous owner did not close the volume, or the saved allocator is missing or wrong.
    /// [`recover`](crate::recovery::recover) replays the redo slots, marks all storage that objects use, and
    /// makes the rest free. Before that, nothing can be allocated, and callers free nothing.
    Crashed,
}

/// An open volume. A drop without [`Volume::close`] leaves the volume in the state after a killed process.
/// (Volumes of crate `eyrie` are saved when they are dropped.)
pub struct Volume {
    pub(super) view: VolumeView,
    pub(super) space: Space,
    pub(super) generations: Generations,
    pub(super) redo_slots: RedoSlots,
    /// This field is the last one, so that the lock is released after the mapping is dropped.
    pub(super) hold: Option<Hold>,
}

impl Deref for Volume {
    type Target = VolumeView;

    #[inline(always)]
    fn deref(&self) -> &VolumeView {
        &self.view
    }
}

/// Marks the tables of a new volume as allocated, so that the first cut records their checksums. The two
/// copies of the superblock have no such checksums. The superblock is written after this call, so a crash
/// leaves no volume whose tables lack their checksums.
fn record_tables(medium: &Medium, geometry: &Geometry) -> Result<()> {
    let (start, end) = (VOLUME_PAGE.offset(), geometry.data_start());
    for at in (start..end).step_by(PAGE_SIZE as usize) {
        // Each page is marked in its own passage through the gate, so the journal needs no room for all of
        // them at once.
        let _gate = medium.enter()?;
        medium.mark_allocated(Addr::new(SegmentId(0), at), PAGE_SIZE)?;
    }
    Ok(())
}

impl Volume {
    /// Creates a volume of `bytes` (default 1 GiB) in directory `path` of the host, and opens it. The
    /// directory must be empty or not exist. The host provides memory only as the volume grows. If `path` is
    /// a block device, the volume fills it.
    ///
    /// # Errors
    /// [`Error::Volume`] names the obstacle. [`Error::Fault`] when the medium fails, for example because the
    /// host is full. An error leaves no files behind.
    pub fn create(path: &Path, bytes: Option<u64>, options: &Options) -> Result<Volume> {
        Volume::create_with(HostPlace::of(path), bytes, options, Ok)
    }

    /// Creates a volume as [`Volume::create`] does, then lets `fill` write its first content. Returns the
    /// result of `fill`.
    ///
    /// # Errors
    /// As [`Volume::create`], and the errors of `fill`. An error leaves no files behind.
    pub(crate) fn create_with<T>(
        host_place: HostPlace<'_>,
        bytes: Option<u64>,
        options: &Options,
        fill: impl FnOnce(Volume) -> Result<T>,
    ) -> Result<T> {
        let place = host_place.path().display().to_string();
        host_place.create(bytes, options, |medium, hold| {
            let disk_bytes =
                if matches!(hold, Hold::Device(_)) { medium.disk_bytes().unwrap_or(0) } else { 0 };
            let volume = Volume::create_in(medium, options, disk_bytes, &place)?;
            // The checkpoint writes the superblock to its place on a device, as an open requires (see
            // `host::device`).
            volume.medium().checkpoint()?;
            fill(Volume { hold: Some(hold), ..volume })
        })
    }

    /// Creates a volume that fills `medium`, and opens it. Callers pass a medium that holds only zeros.
    ///
    /// # Errors
    /// [`Error::Volume`] for a wrong size or wrong `options`. [`Error::Fault`] when the medium fails.
    pub fn create_on(medium: Medium, options: &Options) -> Result<Volume> {
        Volume::create_in(medium, options, 0, "new volume")
    }

    /// Works like [`Volume::create_on`]. `disk_bytes` is the size of the volume with its journal and its
    /// checksums on a block device, or 0.
    pub(crate) fn create_in(
        medium: Medium,
        options: &Options,
        disk_bytes: u64,
        place: &str,
    ) -> Result<Volume> {
        let bytes = medium.segment_sizes().next().unwrap_or(0);
        let geometry = Geometry::new(bytes, options.group_bytes)
            .map_err(|what| Error::volume(place, what, Errno::INVAL))?;
        medium.provision(Addr::new(SegmentId(0), 0), geometry.data_start())?;
        if medium.has_checksums() && !broken(SafetyRule::NewTablesAreRecorded) {
            record_tables(&medium, &geometry)?;
        }
        let gate = medium.enter()?;
        superblock::write(&medium, &mut superblock::new(&geometry, options, &medium, disk_bytes), 1)?;
        drop(gate);
        let (volume, _) = Volume::open_in(medium, None, place)?;
        volume.space.central().free_is_unknown = false;
        Ok(volume)
    }

    /// Opens the volume at `path` of the host, a directory or a block device, for this process alone. `paged`
    /// has the options for a volume on a disk.
    ///
    /// # Errors
    /// [`Error::Volume`] names the problem: `path` is not a volume, or the volume is in use, has a newer
    /// format, is truncated or is corrupt. For a volume in use in a directory, the error names the process if
    /// the process is known. [`Error::Corrupt`] if the tables contradict each other. [`Error::Fault`] when
    /// the medium fails.
    pub fn open(path: &Path, paged: PagedOptions) -> Result<(Volume, Opened)> {
        Volume::open_at(HostPlace::of(path), paged)
    }

    /// Works like [`Volume::open`], for a place instead of a path.
    pub(crate) fn open_at(host_place: HostPlace<'_>, paged: PagedOptions) -> Result<(Volume, Opened)> {
        let (medium, hold) = host_place.open(paged)?;
        Volume::open_in(medium, Some(hold), &host_place.path().display().to_string())
    }

    /// Opens the volume on `medium`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_on(medium: Medium) -> Result<(Volume, Opened)> {
        Volume::open_in(medium, None, "volume")
    }

    /// Opens the volume on `medium` for changes.
    pub(crate) fn open_in(medium: Medium, hold: Option<Hold>, place: &str) -> Result<(Volume, Opened)> {
        Volume::open_for(Purpose::Changes, medium, hold, place)
    }

    pub(super) fn open_for(
        purpose: Purpose,
        medium: Medium,
        hold: Option<Hold>,
        place: &str,
    ) -> Result<(Volume, Opened)> {
        let medium = Arc::new(medium);
        let gate = medium.enter()?;
        let _pin = pin();
        let superblock = superblock::read(&medium, place)?;
        superblock.check_known(purpose, place)?;
        superblock.require_checksums_of(&medium, place)?;
        let page: VolumePage = medium.read_value(VOLUME_PAGE)?;
        // The clients of an earlier owner must see the new number before any other change. The change of the
        // number may become durable before the stores of the previous process, and while the clean mark is
        // set. Both cases are safe, because the number has a line of its own and no recovery depends on it.
        owners::count_owner(&medium, page.owners.get())?;
        if page.clean.get() != CLEAN && !broken(SafetyRule::FoundStoresAreFlushed) {
            // The previous process may have been killed before it flushed its stores. A closed volume has no
            // unflushed stores: the clean mark was its last store, and each open clears the mark before it
            // makes any change except that of the number of owners.
            medium.flush_found()?;
        }
        let groups = page.groups_in_use.get();
        if groups > superblock.geometry.groups() {
            return Err(Error::corrupt(GROUPS_IN_USE, "more groups in use than the volume has"));
        }
        let context = SpaceContext::new(Arc::clone(&medium), superblock.geometry, groups)?;
        let map = save::load(&context, &page, superblock.block.volume_id);
        // The mark is cleared before any use of storage, because such a use makes the saved allocator stale.
        if page.clean.get() != 0 {
            save::clear_mark(&medium)?;
        }
        drop(gate);
        let opened = if map.is_some() { Opened::Clean } else { Opened::Crashed };
        let space = Space::new(context.clone(), groups, map.unwrap_or_default());
        space.central().free_is_unknown = opened == Opened::Crashed;
        let generations = Generations::new(page.generation_limit.get());
        let view = VolumeView::of_process(context, superblock)?;
        let volume = Volume { view, space, generations, redo_slots: RedoSlots::default(), hold };
        volume.check_root()?;
        Ok((volume, opened))
    }

    fn check_root(&self) -> Result<()> {
        let raw = self.superblock.block.root.get();
        let sound = |id: ObjectId| id.is_directory() && self.is_header(Addr::from_raw(id.place()));
        if raw != 0 && !ObjectId::from_raw(raw).is_some_and(sound) {
            return Err(Error::corrupt(SUPERBLOCKS[0], "the root is not a directory"));
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

    /// Discards the memory of groups that are free as a whole, and memory that was provided ahead of need or
    /// for a reserve. Then saves the allocator, so that the next open needs no recovery. If the volume has no
    /// room for the saved allocator, or has leaked storage, the next open recovers. Callers change nothing
    /// after this call. A volume that still needs a recovery stays as it is.
    ///
    /// # Errors
    /// [`Error::Fault`] in a forked child, or when the medium failed. After a failure of the medium, the next
    /// open recovers the volume.
    pub fn save(&self) -> Result<()> {
        if self.space.central().free_is_unknown {
            return Ok(());
        }
        self.medium().check()?;
        if self.space.must_recover() {
            // The allocator may be wrong, so it must not choose memory to discard.
            return Ok(self.medium().checkpoint()?);
        }
        let volume_id = self.superblock.block.volume_id;
        let saved = self.space.trim(false).and_then(|_| save::save(&self.space, volume_id));
        // All changes become durable even if the host refuses to take memory back.
        let durable = self.medium().checkpoint();
        saved?;
        Ok(durable?)
    }

    /// Discards the memory of groups that are free as a whole or were never in use, and memory that was
    /// provided ahead of need or for a reserve. Returns the number of discarded bytes.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn trim(&self) -> Result<u64> {
        self.space.trim(true)
    }

    /// Returns marks for the storage that objects use. At first only the tables of the volume and its header
    /// chunks are marked.
    pub fn marks(&self) -> Marks {
        Marks::new(self.space.context())
    }

    /// Ends a recovery: makes all storage free that is not marked.
    pub(crate) fn adopt(&mut self, marks: &Marks) {
        self.space.adopt(marks.free_map());
    }

    /// Returns the allocator of the volume.
    #[inline]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the redo slots.
    #[inline]
    pub(crate) fn redo_slots(&self) -> &RedoSlots {
        &self.redo_slots
    }

    /// Puts the counts that readers compare into memory that other processes can map, so that these processes
    /// may read the volume. No other thread uses the volume yet.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub(crate) fn share(&mut self) -> Result<()> {
        if self.medium().kind() == MediumKind::Paged {
            let gate = self.view.context.medium.enter()?;
            self.generations.lease_for_clients(&self.view.context.medium)?;
            drop(gate);
            // The keys of the sessions have the number of this owner, and no other owner may get this number
            // after a kill of this process.
            if !broken(SafetyRule::OwnerIsDurableFirst) {
                self.medium().drain()?;
            }
        }
        self.view.share_board()
    }

    /// Makes a directory the root. On a disk, a later drain makes this change durable.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn set_root(&mut self, root: ObjectId) -> Result<()> {
        let medium = Arc::clone(self.shared_medium());
        let _gate = medium.enter()?;
        self.view.set_root(root)
    }

    /// Returns a number, at least 1, that this volume never assigned before.
    ///
    /// # Errors
    /// [`Error::Fault`] when the medium fails. [`Error::Corrupt`] when the numbers are used up.
    #[inline]
    pub fn next_generation(&self) -> Result<u64> {
        self.generations.next(self.medium())
    }

    /// Returns `count` numbers in a row, at most 2^20, that this volume never assigned before.
    ///
    /// # Errors
    /// As [`Volume::next_generation`].
    pub fn take_generations(&self, count: u64) -> Result<Range<u64>> {
        let taken = self.generations.take(count, self.medium())?;
        Ok(taken.next..taken.end)
    }
}

const _: () = assert!(GENERATION_LIMIT.raw() == VOLUME_PAGE.raw());
