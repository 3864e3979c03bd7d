//! Opens a copy of a volume, sound or damaged, for reading. No change of the copy reaches the host.

use std::path::Path;
use std::sync::Arc;

use eyrie_medium::epoch::pin;
use eyrie_medium::{Medium, PagedOptions};

use super::generation::Generations;
use super::open::{Opened, Volume};
use super::redo_slots::RedoSlots;
use super::view::VolumeView;
use crate::Result;
use crate::host::{Hold, HostPlace, Sharing, without_journal};
use crate::space::{FreeMap, Space, SpaceContext};
use crate::tables::MediumChoice;
use crate::tables::layout::{MEDIUM_PAGED, MEDIUM_PMEM};
use crate::tables::superblock::{self, Purpose};

impl Volume {
    /// Opens a copy of the volume at `path`. Neither the open nor a later change of the copy reaches the
    /// host, whose files are open only for reading. While the copy is open, other copies can be opened, but
    /// [`Volume::open`] fails.
    ///
    /// # Errors
    /// As [`Volume::open`]. The call also fails if the journal of the volume is gone.
    pub fn open_copy(path: &Path, paged: PagedOptions) -> Result<(Volume, Opened)> {
        Volume::open_copy_at(HostPlace::of(path), paged)
    }

    /// Works like [`Volume::open_copy`], for a place instead of a path.
    pub(crate) fn open_copy_at(host_place: HostPlace<'_>, paged: PagedOptions) -> Result<(Volume, Opened)> {
        let place = host_place.path().display().to_string();
        let (medium, hold) = host_place.open_copy(paged, Sharing::Shared)?;
        let bytes = medium.segment_sizes().sum();
        // If the journal of a volume with checksums is gone, the copy is a page cache without a journal. Such
        // a page cache refuses the stores of an open, so this check comes first.
        if medium.journal_bytes() == Some(0) {
            return Err(without_journal(bytes, &place));
        }
        let (volume, opened) = Volume::open_for(Purpose::Reading, medium, Some(hold), &place)?;
        // If the journal of a volume without checksums is gone, the copy is a mapping of the file. Only the
        // superblock then tells that a journal is missing.
        if volume.lacks_journal() {
            return Err(without_journal(bytes, &place));
        }
        Ok((volume, opened))
    }

    /// Opens a copy of the volume at `path`, which may be damaged, so that its readable parts can be copied.
    /// One sound copy of the superblock is enough. Nothing can be allocated, and callers check everything
    /// that they read. No other open is possible meanwhile. A repair replaces the volume, so a second repair
    /// at the same time would replace the result of the first.
    ///
    /// # Errors
    /// `Volume` when the volume is in use, or no copy of its superblock is sound. `Fault` if its tables
    /// cannot be read.
    pub fn open_damaged(path: &Path, paged: PagedOptions) -> Result<Volume> {
        let (medium, hold) = HostPlace::of(path).open_copy(paged, Sharing::Exclusive)?;
        Volume::damaged_in(medium, Some(hold), &path.display().to_string())
    }

    /// Works like [`Volume::open_damaged`], for the volume on `medium`.
    ///
    /// # Errors
    /// As [`Volume::open_damaged`].
    pub fn open_damaged_on(medium: Medium) -> Result<Volume> {
        Volume::damaged_in(medium, None, "volume")
    }

    fn damaged_in(medium: Medium, hold: Option<Hold>, place: &str) -> Result<Volume> {
        let medium = Arc::new(medium);
        // The damage may be only in checksums, for example in those of the tables, while the pages are sound.
        medium.accept_unknown_checksums();
        let _pin = pin();
        let superblock = superblock::find(&medium, place)?;
        // A repaired volume would lack the content of unknown features.
        superblock.check_known(Purpose::Changes, place)?;
        let context = SpaceContext::of_damaged(Arc::clone(&medium), superblock.geometry)?;
        let space = Space::new(context.clone(), superblock.geometry.groups(), FreeMap::default());
        space.central().free_is_unknown = true;
        // The largest limit leaves no generation to assign. None is needed, because nothing is created in a
        // damaged volume.
        let generations = Generations::new(u64::MAX);
        let view = VolumeView::of_process(context, superblock)?;
        Ok(Volume { view, space, generations, redo_slots: RedoSlots::default(), hold })
    }

    /// Returns the choice with which a new volume gets the same kind of medium as this volume.
    pub fn medium_choice(&self) -> MediumChoice {
        match self.superblock.block.medium {
            MEDIUM_PMEM => MediumChoice::Pmem,
            MEDIUM_PAGED => MediumChoice::Paged,
            _ => MediumChoice::Dram,
        }
    }

    /// True if the volume was on a disk and its journal is gone. The changes in that journal are lost.
    pub fn lacks_journal(&self) -> bool {
        self.superblock.block.medium == MEDIUM_PAGED && self.medium().journal_bytes().unwrap_or(0) == 0
    }
}
