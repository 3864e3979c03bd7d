//! Reserves: memory for large extents, provisioned in steps before the extents are allocated.
//!
//! The host takes milliseconds to provide a large extent, and the call that allocates the extent would wait
//! for all of it. So an object that will need such an extent announces it again and again
//! ([`Space::extend_reserve_for`]), and each announcement provisions one step. A reserve ends when an
//! allocation of its size takes it. No other allocation takes memory of a reserve. All reserves are given up
//! before a trim, a close, and an allocation that would fail.
//!
//! Safe when power fails: a reserve exists in memory only. Its steps are free as a whole, so the memory of
//! these steps is provisioned again after an open.

use eyrie_medium::{AHEAD_BYTES, PAGE_SIZE};

use super::allocator::Space;
use super::central::Central;
use super::context::SpaceContext;
use super::steps::Reserve;
use crate::Result;

impl Space {
    /// Provisions the next step for an extent of `bytes`, a power of two, that will be allocated soon. Does
    /// nothing for an extent that a call can wait for. The call is only a hint, so it reports no error. If
    /// the error persists, the later allocation of the extent reports it.
    pub(crate) fn extend_reserve_for(&self, bytes: u64) {
        // Memory for a smaller extent is provided ahead of need as a whole.
        if bytes > AHEAD_BYTES && self.context.medium.check().is_ok() {
            let _ = self.central().extend_reserve(&self.context, (bytes / PAGE_SIZE) as u32);
        }
    }
}

impl Central {
    /// Provisions the next step of the reserve for `pages`, a power of two. Begins the reserve if there is
    /// none.
    fn extend_reserve(&mut self, context: &SpaceContext, pages: u32) -> Result<()> {
        let known = self.reserves.iter().position(|reserve| reserve.pages == pages);
        let at = match known {
            Some(at) => at,
            None => match self.begin_reserve(context, pages)? {
                None => return Ok(()),
                Some(reserve) => {
                    self.steps.set_held_back(reserve.steps, true);
                    self.reserves.push(reserve);
                    self.reserves.len() - 1
                }
            },
        };
        let Reserve { steps: (_, last), next, .. } = self.reserves[at];
        if next < last {
            self.provision(context, next)?;
            self.reserves[at].next += 1;
        }
        Ok(())
    }

    /// Returns a reserve of free memory, or else of steps that may have no memory. Returns `None` if a call
    /// can wait for all of the extent, or if the volume has no room for it.
    fn begin_reserve(&mut self, context: &SpaceContext, pages: u32) -> Result<Option<Reserve>> {
        if !self.steps.is_more_than_a_step(pages)
            || u64::from(pages) * PAGE_SIZE > context.geometry.group_bytes()
        {
            return Ok(None);
        }
        if let Some(page) = self.buddy.allocate(pages) {
            let steps = self.steps.add(page, page + pages);
            return Ok(Some(Reserve { pages, steps, next: steps.1 }));
        }
        loop {
            if let Some(steps) = self.steps.next_block(context, pages) {
                return Ok(Some(Reserve { pages, steps, next: steps.0 }));
            }
            if !self.take_group(context)? {
                return Ok(None);
            }
        }
    }

    /// Provisions the rest of the reserve for `pages`, if there is such a reserve, and then adds the reserve
    /// to the free memory.
    ///
    /// # Errors
    /// The errors of provisioning. The reserve then keeps all steps that the host has provided.
    pub(super) fn take_reserve(&mut self, context: &SpaceContext, pages: u32) -> Result<()> {
        let Some(at) = self.reserves.iter().position(|reserve| reserve.pages == pages) else { return Ok(()) };
        while self.reserves[at].next < self.reserves[at].steps.1 {
            self.extend_reserve(context, pages)?;
        }
        let reserve = self.reserves.swap_remove(at);
        self.give_up_reserve(&reserve);
        self.add_steps(context, reserve.steps);
        Ok(())
    }

    /// Makes the steps of a reserve available again, as steps that may have no memory.
    pub(super) fn give_up_reserve(&mut self, reserve: &Reserve) {
        self.steps.set_held_back(reserve.steps, false);
    }
}

#[cfg(test)]
mod tests {
    use eyrie_medium::Medium;

    use crate::volume::{MediumChoice, Options, Volume};

    #[test]
    fn group_set_aside_for_a_trim_is_kept_once_it_is_reserved() {
        let options = Options {
            group_bytes: 16 << 20,
            hash_seed: 1,
            volume_id: [1; 16],
            created: crate::Time::new(1, 1),
            medium: MediumChoice::Auto,
            overwrite: false,
            checksums: false,
            paged: eyrie_medium::PagedOptions::for_host(),
        };
        let medium = Medium::memory(70 << 20).expect("memory");
        let volume = Volume::create_on(medium, &options).expect("a volume");
        let space = volume.space();
        space.release(space.allocate(16 << 20).expect("room"));
        let aside = space.central().set_aside(&space.context, true);
        let kept = || aside.iter().filter(|&&group| !space.central().is_aside(group)).count();
        assert_eq!(kept(), 0);
        space.extend_reserve_for(16 << 20);
        assert_eq!(kept(), 1);
    }
}
