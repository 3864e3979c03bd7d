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

/// True for media that are memory of the host. Other processes see their bytes, also after this process has
/// died. A disk has the bytes of its last drain.
pub(super) fn is_shared(medium: &Medium) -> bool {
    medium.kind() != MediumKind::Paged
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
