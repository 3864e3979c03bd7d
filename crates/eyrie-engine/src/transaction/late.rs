//! Stores that a mutant lets persist after their commit instead of before it. A mutant is a deliberate
//! violation of a rule of crash safety, which the tests must detect.
//!
//! Without the feature `mutants`, this module does nothing. With the feature, a test may break a rule. A
//! store that belongs to the broken rule is then undone before the transaction's barrier and repeated after
//! its commit. A crash between the commit and the repeated store leaves the commit without the store. A run
//! without a crash sees no difference.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium};

use crate::Result;

/// Bytes of a word.
#[cfg(feature = "mutants")]
const WORD: usize = 8;

/// A store that persists late.
#[cfg(feature = "mutants")]
struct DelayedStore {
    addr: Addr,
    /// The bytes before the store.
    before: Vec<u8>,
    /// The stored bytes, while the store is undone.
    after: Option<Vec<u8>>,
}

/// The late stores of one transaction.
#[derive(Default)]
pub(crate) struct DelayedStores {
    #[cfg(feature = "mutants")]
    stores: Vec<DelayedStore>,
}

impl DelayedStores {
    /// Announces a store of `len` bytes that must persist before the commit, as `rule` demands. The caller
    /// makes the store after this call.
    #[inline(always)]
    pub(crate) fn announce(
        &mut self,
        rule: SafetyRule,
        medium: &Medium,
        addr: Addr,
        len: usize,
    ) -> Result<()> {
        if broken(rule) { self.delay(medium, addr, len) } else { Ok(()) }
    }

    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    fn delay(&mut self, _medium: &Medium, _addr: Addr, _len: usize) -> Result<()> {
        Ok(())
    }

    #[cfg(feature = "mutants")]
    pub(super) fn delay(&mut self, medium: &Medium, addr: Addr, len: usize) -> Result<()> {
        let mut before = vec![0; len];
        medium.read(addr, &mut before)?;
        self.stores.push(DelayedStore { addr, before, after: None });
        Ok(())
    }

    /// Undoes the stores at the first call, and repeats them at the second call. The first call goes through
    /// the stores in reverse order, because a later store may overlap an earlier one.
    #[inline(always)]
    pub(crate) fn withdraw_or_restore(&mut self, medium: &Medium) -> Result<()> {
        #[cfg(feature = "mutants")]
        if self.stores.iter().any(|store| store.after.is_some()) {
            self.stores.drain(..).try_for_each(|store| store.make(medium))?;
        } else {
            self.stores.iter_mut().rev().try_for_each(|store| store.take_back(medium))?;
        }
        let _ = medium;
        Ok(())
    }
}

#[cfg(feature = "mutants")]
impl DelayedStore {
    fn now(&self, medium: &Medium) -> Result<Vec<u8>> {
        let mut now = vec![0; self.before.len()];
        medium.read(self.addr, &mut now)?;
        Ok(now)
    }

    fn take_back(&mut self, medium: &Medium) -> Result<()> {
        self.after = Some(self.now(medium)?);
        drop(medium.write(self.addr, &self.before)?);
        Ok(())
    }

    /// Repeats the store. The commit may have changed some of its words. Such a word keeps its new value.
    fn make(self, medium: &Medium) -> Result<()> {
        let mut now = self.now(medium)?;
        let after = self.after.unwrap_or_default();
        for ((word, before), after) in
            now.chunks_mut(WORD).zip(self.before.chunks(WORD)).zip(after.chunks(WORD))
        {
            if word == before {
                word.copy_from_slice(after);
            }
        }
        // No barrier follows, so that the repeated store may be lost in a crash.
        drop(medium.write(self.addr, &now)?);
        Ok(())
    }
}
