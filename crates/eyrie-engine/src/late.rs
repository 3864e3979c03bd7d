//! Stores that a mutant lets persist after the commit which they belong before.
//!
//! Without the feature `mutants` nothing is kept and every call is empty. With it, a store that belongs to the broken rule is
//! taken back before the transaction's barrier and made again after its commit. So a crash in between finds the commit
//! without the store, and a run without a crash goes on as always.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium};

use crate::Result;

/// A place, and its bytes at the other time: first those from before the store, then those of the store.
#[cfg(feature = "mutants")]
type Store = (Addr, Vec<u8>);

/// The stores of one transaction.
#[derive(Default)]
pub(crate) struct Late {
    #[cfg(feature = "mutants")]
    stores: Vec<Store>,
}

impl Late {
    /// Announces a store of `len` bytes which the commit must come after.
    #[inline(always)]
    pub(crate) fn announce(
        &mut self,
        rule: SafetyRule,
        medium: &Medium,
        addr: Addr,
        len: usize,
    ) -> Result<()> {
        if broken(rule) { self.keep(medium, addr, len) } else { Ok(()) }
    }

    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    fn keep(&mut self, _medium: &Medium, _addr: Addr, _len: usize) -> Result<()> {
        Ok(())
    }

    #[cfg(feature = "mutants")]
    fn keep(&mut self, medium: &Medium, addr: Addr, len: usize) -> Result<()> {
        let mut before = vec![0; len];
        medium.read(addr, &mut before)?;
        self.stores.push((addr, before));
        Ok(())
    }

    /// Takes the stores back, or makes them again: the last one goes first.
    #[inline(always)]
    pub(crate) fn turn(&mut self, medium: &Medium) -> Result<()> {
        #[cfg(feature = "mutants")]
        for (addr, bytes) in self.stores.iter_mut().rev() {
            let mut now = vec![0; bytes.len()];
            medium.read(*addr, &mut now)?;
            drop(medium.write(*addr, bytes)?);
            *bytes = now;
        }
        #[cfg(feature = "mutants")]
        self.stores.reverse();
        let _ = medium;
        Ok(())
    }
}
