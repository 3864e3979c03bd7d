//! The number of opens of a volume for changes. Clients of a dead service notice the next owner by this
//! number.

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Medium, Ordered};

use super::view::VolumeView;
use crate::Result;
use crate::tables::layout::OWNERS;

/// Counts this open as the next owner of a volume. `before` is the number of owners so far. Clients of an
/// earlier owner may still read the volume. On memory that processes share, they see the new number before
/// they see any change that this process makes. On a disk the new number becomes durable with the first cut.
pub(super) fn count_owner(medium: &Medium, before: u64) -> Result<()> {
    if broken(SafetyRule::EachOwnerIsCounted) {
        return Ok(());
    }
    let published = medium.publish_apart(OWNERS, before.wrapping_add(1), Ordered::nothing())?;
    medium.settle(published);
    Ok(())
}

impl VolumeView {
    /// Returns the number of opens of the volume for changes, which is the number of the present owner. Each
    /// open raises the number before its first other change. So a reader whose owner has ended can notice the
    /// next owner.
    ///
    /// # Errors
    /// `Fault`.
    pub fn owner_number(&self) -> Result<u64> {
        let _pin = pin();
        Ok(self.medium().load(OWNERS)?)
    }

    /// True if the volume still has the owner whose number `is_own` accepts. A client of a volume on a disk
    /// has no bytes of the next owner, so it only checks that its own owner lives.
    #[inline(always)]
    pub fn has_owner(&self, is_own: impl FnOnce(u64) -> bool) -> bool {
        self.medium().load_of_owner(OWNERS).is_ok_and(|number| number.is_none_or(is_own))
    }
}
