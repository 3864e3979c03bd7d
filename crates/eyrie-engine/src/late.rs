//! Stores that a mutant lets persist after the commit which they belong before.
//!
//! Without the feature `mutants` nothing is kept and every call is empty. With it, a store that belongs to the broken rule is
//! taken back before the transaction's barrier and made again after its commit. So a crash in between finds the commit
//! without the store, and a run without a crash goes on as always.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium};

use crate::Result;

/// Bytes of a word: of what is made again, words that the commit has stored meanwhile stay.
#[cfg(feature = "mutants")]
const WORD: usize = 8;

/// A store that comes late.
#[cfg(feature = "mutants")]
struct Store {
    addr: Addr,
    before: Vec<u8>,
    /// Its own bytes, while it is taken back.
    after: Option<Vec<u8>>,
}

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
        self.stores.push(Store { addr, before, after: None });
        Ok(())
    }

    /// Takes the stores back, the last one first. If they are taken back already, makes them again, the first one first.
    #[inline(always)]
    pub(crate) fn turn(&mut self, medium: &Medium) -> Result<()> {
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
impl Store {
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
        drop(medium.write(self.addr, &now)?);
        Ok(())
    }
}
