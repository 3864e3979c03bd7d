//! The number of processes that have opened a volume for changes. By this number, clients of a dead service
//! notice the next owner.

use eyrie_medium::{Medium, MediumKind, Ordered};

use super::view::VolumeView;
use crate::Result;
use crate::tables::layout::OWNERS;

/// Counts this process as the next owner of a volume on memory that processes share. `before` is the number
/// of owners so far. Clients of an earlier owner may still read the volume. They see the new number before
/// they see any change that this process makes.
pub(super) fn count_owner(medium: &Medium, before: u64) -> Result<()> {
    if is_shared(medium) {
        let published = medium.publish_apart(OWNERS, before.wrapping_add(1), Ordered::nothing())?;
        medium.settle(published);
    }
    Ok(())
}

/// True for media whose bytes outlive the process, so that other processes can see them.
pub(super) fn is_shared(medium: &Medium) -> bool {
    matches!(medium.kind(), MediumKind::Dram | MediumKind::Pmem)
}

impl VolumeView {
    /// Returns the number of processes that have opened the volume for changes. Each of them raises the
    /// number before it makes its first change. So a reader whose owner has ended can notice the next owner.
    ///
    /// # Errors
    /// `Fault`.
    #[inline(always)]
    pub fn owner_number(&self) -> Result<u64> {
        Ok(self.medium().load(OWNERS)?)
    }
}
