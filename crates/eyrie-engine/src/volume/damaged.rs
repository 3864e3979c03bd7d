//! Opening a volume to look at it, sound or not: on a copy, so that nothing that is changed reaches the host.

use std::path::Path;
use std::sync::Arc;

use eyrie_medium::epoch::pin;
use eyrie_medium::{Medium, MediumKind, PagedOptions};

use super::central::Shared;
use super::free_map::FreeMap;
use super::generation::Generations;
use super::host::Hold;
use super::layout::{MEDIUM_PAGED, MEDIUM_PMEM};
use super::medium::{MediumChoice, without_journal};
use super::space::Space;
use super::{Opened, Volume, host, superblock};
use crate::Result;
use crate::redo::Redo;

impl Volume {
    /// Opens the volume at `path` as [`Volume::open`] does, but nothing of what that changes, or is changed later,
    /// reaches the host. Nobody else can open it meanwhile.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_copy(path: &Path, paged: PagedOptions) -> Result<(Volume, Opened)> {
        let place = path.display().to_string();
        let (medium, hold) = host::open_copy(path, paged)?;
        let bytes = medium.segment_sizes().sum();
        let (volume, opened) = Volume::open_in(medium, Some(hold), &place)?;
        if volume.lacks_journal() {
            return Err(without_journal(bytes, &place));
        }
        Ok((volume, opened))
    }

    /// Opens a copy of the volume at `path`, which may be damaged, for reading what is left of it. A superblock is all
    /// that it must have. Nothing can be allocated in it, and whatever is read must be checked.
    ///
    /// # Errors
    /// `Volume`, when there is no superblock to believe; `Fault`.
    pub fn open_damaged(path: &Path, paged: PagedOptions) -> Result<Volume> {
        let (medium, hold) = host::open_copy(path, paged)?;
        Volume::damaged_in(medium, Some(hold), &path.display().to_string())
    }

    /// As [`Volume::open_damaged`], of the volume on `medium`.
    ///
    /// # Errors
    /// As [`Volume::open_damaged`].
    pub fn open_damaged_on(medium: Medium) -> Result<Volume> {
        Volume::damaged_in(medium, None, "volume")
    }

    fn damaged_in(medium: Medium, hold: Option<Hold>, place: &str) -> Result<Volume> {
        let medium = Arc::new(medium);
        let _pin = pin();
        let found = superblock::find(&medium, place)?;
        let shared = Shared::of_damaged(Arc::clone(&medium), found.geometry)?;
        let space = Space::new(shared, found.geometry.groups(), FreeMap::default());
        space.central().sealed = true;
        let generations = Generations::new(u64::MAX);
        Ok(Volume { space, medium, found, generations, redo: Redo::default(), hold })
    }

    /// What a volume like this one is made with.
    pub fn medium_choice(&self) -> MediumChoice {
        match self.found.block.medium {
            MEDIUM_PMEM => MediumChoice::Pmem,
            MEDIUM_PAGED => MediumChoice::Paged,
            _ => MediumChoice::Dram,
        }
    }

    /// Whether it was kept on a disk and the journal behind it is gone, and with it what was changed last.
    pub fn lacks_journal(&self) -> bool {
        self.found.block.medium == MEDIUM_PAGED && self.medium.kind() != MediumKind::Paged
    }
}
