//! Transactions: how an Op becomes reachable, whole or not at all.
//!
//! An Op prepares its change here: it allocates, writes what nobody can reach yet, and collects the 8-byte words that
//! make it reachable. [`Transaction::commit`] does all the ordering there is. Dropped without commit, a transaction
//! gives back what it allocated: nothing was reachable, so nothing needs undoing. This is BPFS's list of the blocks of
//! an in-flight copy-on-write (`bpfs.txt`, section 3.3).
//!
//! Safe when power fails: before the publish nothing is reachable; a single word or line commits by itself; several
//! words are committed by the publish of a redo slot, which recovery replays (see [`crate::redo`]).

use eyrie_medium::rules::SafetyRule;
use eyrie_medium::{Addr, Dirty, Medium, Ordered, Settled};
use smallvec::SmallVec;

use crate::late::Late;
use crate::object::pointer::Extent;
use crate::volume::Volume;
use crate::{Error, Result};

/// Words of one cache line that are committed together; the last one is the commit.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The line.
    pub addr: Addr,
    /// Word numbers in the line and values, in the order of their stores.
    pub words: [(usize, u64); 5],
}

impl Line {
    fn commit_word(&self) -> (Addr, u64) {
        let (index, value) = self.words[self.words.len() - 1];
        (self.addr.add(index as u64 * 8), value)
    }
}

/// A change in preparation.
pub struct Transaction<'v> {
    volume: &'v Volume,
    dirty: Option<Dirty>,
    prelude: Option<Line>,
    lines: SmallVec<[Line; 1]>,
    words: SmallVec<[(Addr, u64); 4]>,
    allocated: SmallVec<[Extent; 8]>,
    retired: SmallVec<[Extent; 8]>,
    /// Objects all of whose storage is retired (a count).
    retired_objects: usize,
    retired_headers: SmallVec<[Addr; 2]>,
    late: Late,
}

impl<'v> Transaction<'v> {
    /// A change of nothing yet.
    pub fn begin(volume: &'v Volume) -> Transaction<'v> {
        Transaction {
            volume,
            dirty: None,
            prelude: None,
            lines: SmallVec::new(),
            words: SmallVec::new(),
            allocated: SmallVec::new(),
            retired: SmallVec::new(),
            retired_objects: 0,
            retired_headers: SmallVec::new(),
            late: Late::default(),
        }
    }

    /// The volume that is changed.
    pub fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// Its medium.
    pub fn medium(&self) -> &'v Medium {
        self.volume.medium()
    }

    /// Storage of at least `bytes`, with whatever bytes it had. It is given back unless the transaction commits.
    ///
    /// # Errors
    /// `TooLarge` above 64 MiB, `NoSpace`, `Fault`.
    #[track_caller]
    pub fn allocate(&mut self, bytes: u64) -> Result<Extent> {
        let extent = self.volume.space().allocate(bytes)?;
        self.allocated.push(extent);
        Ok(extent)
    }

    /// Whether it changes nothing so far.
    pub fn is_empty(&self) -> bool {
        let has_words = self.prelude.is_some() || !self.lines.is_empty() || !self.words.is_empty();
        self.dirty.is_none() && !has_words && self.allocated.is_empty()
    }

    /// Whether this transaction allocated the extent, so that nobody else can reach it yet.
    pub fn is_new(&self, extent: Extent) -> bool {
        self.allocated.contains(&extent)
    }

    /// Adds writes that were made by way of the medium.
    pub fn wrote(&mut self, dirty: Dirty) {
        self.dirty = Some(match self.dirty.take() {
            Some(before) => before.and(dirty),
            None => dirty,
        });
    }

    /// Announces a store of `len` bytes at `addr` which persists before the commit by this rule.
    ///
    /// # Errors
    /// `Fault`.
    #[inline(always)]
    pub fn precedes(&mut self, rule: SafetyRule, addr: Addr, len: usize) -> Result<()> {
        self.late.announce(rule, self.volume.medium(), addr, len)
    }

    /// Stores bytes that nobody can reach before the commit.
    ///
    /// # Errors
    /// `Fault`.
    #[track_caller]
    pub fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        let dirty = self.medium().write(addr, bytes)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Stores an aligned word that nobody can reach before the commit.
    ///
    /// # Errors
    /// `Fault`.
    #[track_caller]
    pub fn write_word(&mut self, addr: Addr, value: u64) -> Result<()> {
        let dirty = self.medium().write_word(addr, value)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Stores aligned words, one after another, that nobody can reach before the commit.
    ///
    /// # Errors
    /// `Fault`.
    #[inline]
    #[track_caller]
    pub fn write_words(&mut self, addr: Addr, words: impl ExactSizeIterator<Item = u64>) -> Result<()> {
        let dirty = self.medium().write_words(addr, words)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Stores zeros that nobody can reach before the commit.
    ///
    /// # Errors
    /// `Fault`.
    #[track_caller]
    pub fn zero(&mut self, addr: Addr, len: u64) -> Result<()> {
        let dirty = self.medium().zero(addr, len)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Copies bytes to where nobody can reach them before the commit.
    ///
    /// # Errors
    /// `Corrupt` when they are there already: a damaged pointer leads to what is free. `Fault`.
    #[track_caller]
    pub fn copy(&mut self, to: Addr, from: Addr, len: u64) -> Result<()> {
        if to.raw().abs_diff(from.raw()) < len {
            return Err(Error::corrupt(from, "bytes that belong to two extents"));
        }
        let dirty = self.medium().copy(to, from, len)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Makes the commit set the aligned word at `addr`; a second call for the same word replaces the first.
    pub fn word(&mut self, addr: Addr, value: u64) {
        match self.words.iter_mut().find(|(at, _)| *at == addr) {
            Some((_, pending)) => *pending = value,
            None => self.words.push((addr, value)),
        }
    }

    /// The word at `addr` as it will be after the commit.
    ///
    /// # Errors
    /// `Fault`.
    #[track_caller]
    pub fn peek(&self, addr: Addr) -> Result<u64> {
        match self.pending(addr) {
            Some(value) => Ok(value),
            None => Ok(self.medium().load(addr)?),
        }
    }

    /// The value that the commit will set the word at `addr` to, if it will.
    pub fn pending(&self, addr: Addr) -> Option<u64> {
        self.words.iter().find(|(at, _)| *at == addr).map(|&(_, value)| value)
    }

    /// A word that the commit sets by itself, and its new value: while that word has it, and no redo record is being applied,
    /// the transaction is committed.
    pub fn witness(&self) -> Option<(Addr, u64)> {
        self.words.first().copied()
    }

    /// Makes the commit set the words of a line (at most one call for each line).
    pub fn line(&mut self, line: Line) {
        debug_assert!(self.lines.iter().all(|other| other.addr != line.addr));
        self.lines.push(line);
    }

    /// Makes the commit set the words of a line first, by themselves: a crash may keep them without the rest.
    pub fn prelude(&mut self, line: Line) {
        debug_assert!(self.prelude.is_none());
        self.prelude = Some(line);
    }

    /// Gives back an extent once the commit has settled and no reader can see it.
    pub fn retire(&mut self, extent: Extent) {
        self.retired.push(extent);
    }

    /// Tells that all storage of one more object is retired. An object has at most one extent of less than 2 KiB, so a batch
    /// may retire one extent for each object beside those that the volume has room for.
    pub fn retires_object(&mut self) {
        self.retired_objects += 1;
    }

    /// The same for an extent that was found on the medium, where a damaged tree may lead on without end.
    ///
    /// # Errors
    /// `Corrupt` when there are more than the volume has room for.
    pub fn retire_found(&mut self, extent: Extent) -> Result<()> {
        self.retired.push(extent);
        if self.retired.len() <= self.volume.space().most_extents() + self.retired_objects {
            return Ok(());
        }
        Err(Error::corrupt(extent.addr, "endless storage of an object"))
    }

    /// Gives back a header once the commit has settled and no reader can see it.
    pub fn retire_header(&mut self, header: Addr) {
        self.retired_headers.push(header);
    }

    /// Makes the change reachable; what else became unreachable by it may then be retired, too. On an error nothing was
    /// changed.
    ///
    /// # Errors
    /// `Fault`, or `NoSpace` when a redo record does not fit.
    #[inline(always)]
    pub fn commit(mut self) -> Result<Settled> {
        self.commit_in_place()
    }

    /// As [`Transaction::commit`], without moving the transaction. Nothing may be added to it afterwards.
    pub(crate) fn commit_in_place(&mut self) -> Result<Settled> {
        let medium = self.medium();
        medium.check()?;
        let settled = if self.lines.len() + self.words.len() > 1 {
            crate::redo::commit(self)?
        } else {
            let mut ordered = self.barrier()?;
            if let Some(line) = self.prelude.take() {
                let seen = medium.publish_line(line.addr, &line.words, ordered)?;
                ordered = medium.settle(seen).into();
            }
            let published = match (self.lines.first(), self.words.first()) {
                (Some(line), _) => medium.publish_line(line.addr, &line.words, ordered)?,
                (None, Some(&(addr, value))) => medium.publish(addr, value, ordered)?,
                (None, None) => medium.publish_nothing(ordered),
            };
            medium.settle(published)
        };
        self.late.turn(medium)?;
        // What is allocated is reachable now. If the mapping failed meanwhile nobody knows, and nothing is reused.
        self.allocated.clear();
        medium.check()?;
        if !self.retired.is_empty() || !self.retired_headers.is_empty() {
            self.volume.space().retire_all(&self.retired, &self.retired_headers, &settled);
        }
        Ok(settled)
    }

    /// Orders everything written so far.
    #[track_caller]
    pub(crate) fn barrier(&mut self) -> Result<Ordered> {
        self.late.turn(self.volume.medium())?;
        let dirty = self.dirty.take().unwrap_or_else(|| self.medium().epoch());
        Ok(self.medium().barrier(dirty))
    }

    /// The words to set, lines reduced to their commit words: the rest of each line is written ahead, into the copy that
    /// its commit word brings to life.
    pub(crate) fn reduce_to_words(&mut self) -> Result<SmallVec<[(Addr, u64); 4]>> {
        let lines = std::mem::take(&mut self.lines);
        for line in self.prelude.take().iter().chain(&lines) {
            for &(index, value) in &line.words[..line.words.len() - 1] {
                self.write_word(line.addr.add(index as u64 * 8), value)?;
            }
            self.words.push(line.commit_word());
        }
        Ok(std::mem::take(&mut self.words))
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        for &extent in &self.allocated {
            self.volume.space().release(extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{MediumChoice, Options};
    use crate::{Time, volume};

    #[test]
    fn regression_a_damaged_pointer_into_new_memory_is_not_copied_from() {
        let options = Options {
            group_bytes: 1 << 16,
            medium: MediumChoice::Auto,
            ..Options::random(Time::new(0, 0)).expect("random bytes")
        };
        let volume = volume::Volume::create_on(Medium::memory(1 << 20).expect("memory"), &options);
        let volume = volume.expect("a new volume");
        let mut transaction = Transaction::begin(&volume);
        let extent = transaction.allocate(8192).expect("empty");
        for from in [extent.addr, extent.addr.add(4096)] {
            let copied = transaction.copy(extent.addr, from, 8192);
            assert!(matches!(copied, Err(Error::Corrupt { .. })), "{copied:?}");
        }
        transaction.copy(extent.addr, extent.addr.add(4096), 4096).expect("side by side");
    }
}
