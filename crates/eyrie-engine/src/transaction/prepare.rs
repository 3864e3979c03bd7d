//! Preparing a change: bytes that are stored before the commit, where no reader uses them yet, and words that
//! will make them reachable.

use eyrie_medium::rules::SafetyRule;
use eyrie_medium::{Addr, Dirty, Medium, Ordered};
use smallvec::SmallVec;

use super::late::DelayedStores;
use super::words::PendingWords;
use crate::extent::Extent;
use crate::volume::Volume;
use crate::{Error, Result};

/// Words of one cache line that are committed together. The store of the last of these words is the commit.
/// The only such line is a hot line: three words of a copy, the word of the nanoseconds, and the selector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineChange {
    /// Address of the line.
    pub addr: Addr,
    /// The index in the line and the new value of each word, in the order of their stores.
    pub words: [(usize, u64); 5],
}

impl LineChange {
    fn commit_word(&self) -> (Addr, u64) {
        let (index, value) = self.words[self.words.len() - 1];
        (self.addr.add(index as u64 * 8), value)
    }
}

/// A moment in the preparation of a transaction: the numbers of extents that were allocated and retired
/// before.
#[derive(Clone, Copy, Default)]
pub(crate) struct StorageMark {
    allocated: usize,
    retired: usize,
}

#[cfg(test)]
thread_local! {
    /// Number of extents whose sizes this thread has added up.
    pub(crate) static SUMMED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A change in preparation.
pub(crate) struct Transaction<'v> {
    pub(super) volume: &'v Volume,
    dirty: Option<Dirty>,
    pub(super) prelude: Option<LineChange>,
    pub(super) lines: SmallVec<[LineChange; 1]>,
    pub(super) words: PendingWords,
    pub(super) allocated: SmallVec<[Extent; 8]>,
    pub(super) retired: SmallVec<[Extent; 8]>,
    /// Number of retired extents that the bound of `most_extents` does not cover.
    uncovered: usize,
    pub(super) delayed: DelayedStores,
}

impl<'v> Transaction<'v> {
    /// Begins a transaction without changes.
    pub fn begin(volume: &'v Volume) -> Transaction<'v> {
        Transaction {
            volume,
            dirty: None,
            prelude: None,
            lines: SmallVec::new(),
            words: PendingWords::default(),
            allocated: SmallVec::new(),
            retired: SmallVec::new(),
            uncovered: 0,
            delayed: DelayedStores::default(),
        }
    }

    /// Returns the volume of the transaction.
    pub fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// Returns the medium of the volume.
    pub fn medium(&self) -> &'v Medium {
        self.volume.medium()
    }

    /// Allocates at least `bytes` of storage with unspecified contents. The storage is freed if the
    /// transaction is dropped without a commit.
    ///
    /// # Errors
    /// `TooLarge` above 64 MiB, `NoSpace`, `Fault`.
    #[inline]
    #[track_caller]
    pub fn allocate(&mut self, bytes: u64) -> Result<Extent> {
        let extent = self.volume.space().allocate(bytes)?;
        self.allocated.push(extent);
        Ok(extent)
    }

    /// Allocates whole pages: one page or a larger power of two, up to `most` bytes. A later transaction may
    /// retire each of the pages alone. In all other respects, this call works as [`Transaction::allocate`].
    ///
    /// # Errors
    /// As [`Transaction::allocate`].
    #[track_caller]
    pub fn allocate_run(&mut self, most: u64) -> Result<Extent> {
        let extent = self.volume.space().allocate_run(most)?;
        self.allocated.push(extent);
        Ok(extent)
    }

    /// True if the commit will set words. If false, the transaction depends on no word of the volume that
    /// another transaction may change.
    pub fn has_words(&self) -> bool {
        self.prelude.is_some() || !self.lines.is_empty() || !self.words.is_empty()
    }

    /// True if this transaction allocated the extent. No other thread can reach such an extent.
    pub fn is_new(&self, extent: Extent) -> bool {
        self.allocated.contains(&extent)
    }

    /// Adds stores that the caller made directly on the medium. The barrier of the commit covers them.
    pub fn wrote(&mut self, dirty: Dirty) {
        self.dirty = Some(match self.dirty.take() {
            Some(before) => before.and(dirty),
            None => dirty,
        });
    }

    /// Announces a store of `len` bytes at `addr`, which `rule` orders before the commit. The caller makes
    /// the store after this call.
    ///
    /// # Errors
    /// `Fault`.
    #[inline(always)]
    pub(crate) fn precedes(&mut self, rule: SafetyRule, addr: Addr, len: usize) -> Result<()> {
        self.delayed.announce(rule, self.volume.medium(), addr, len)
    }

    /// Stores bytes at an address that no reader uses before the commit.
    ///
    /// # Errors
    /// `Fault`.
    #[inline]
    #[track_caller]
    pub fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        let dirty = self.medium().write(addr, bytes)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Stores bytes past the caches, at an address that no reader uses before the commit.
    ///
    /// # Errors
    /// `Fault`.
    // If this function were inlined, the code of the rare long copy would make the callers larger, and the
    // compiler would inline fewer short functions into them.
    #[inline(never)]
    #[track_caller]
    pub fn write_past_caches(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        let dirty = self.medium().write_past_caches(addr, bytes)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Stores an aligned word before the commit. Either no reader can reach the word yet, or the store
    /// changes nothing for readers until the commit. For example, readers ignore the dead slots of a bucket
    /// page, and the copy of a header that is not current. A shared bit leaves the bytes of a file as they
    /// are.
    ///
    /// # Errors
    /// `Fault`.
    #[track_caller]
    pub fn write_word(&mut self, addr: Addr, value: u64) -> Result<()> {
        let dirty = self.medium().write_word(addr, value)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Stores consecutive aligned words from `addr` on. No reader uses them before the commit.
    ///
    /// # Errors
    /// `Fault`.
    #[inline(always)]
    #[track_caller]
    pub fn write_words(&mut self, addr: Addr, words: impl ExactSizeIterator<Item = u64>) -> Result<()> {
        let dirty = self.medium().write_words(addr, words)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Stores zeros at addresses that no reader uses before the commit.
    ///
    /// # Errors
    /// `Fault`.
    #[track_caller]
    pub fn zero(&mut self, addr: Addr, len: u64) -> Result<()> {
        let dirty = self.medium().zero(addr, len)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Copies bytes to an address that no reader uses before the commit.
    ///
    /// # Errors
    /// `Corrupt` if the two ranges overlap, because a damaged pointer then leads into free storage. `Fault`.
    #[track_caller]
    pub fn copy(&mut self, to: Addr, from: Addr, len: u64) -> Result<()> {
        if to.raw().abs_diff(from.raw()) < len {
            return Err(Error::corrupt(from, "bytes that belong to two extents"));
        }
        let dirty = self.medium().copy(to, from, len)?;
        self.wrote(dirty);
        Ok(())
    }

    /// Adds an aligned word, which the commit sets to `value`. A second call for the same word replaces the
    /// first.
    pub fn word(&mut self, addr: Addr, value: u64) {
        self.words.set(addr, value);
    }

    /// Returns the word at `addr` as it will be after the commit. Callers pass no word of a line that the
    /// transaction changes.
    ///
    /// # Errors
    /// `Fault`.
    #[track_caller]
    pub(crate) fn peek(&self, addr: Addr) -> Result<u64> {
        match self.pending(addr) {
            Some(value) => Ok(value),
            None => Ok(self.medium().load(addr)?),
        }
    }

    /// Returns the value to which the commit will set the word at `addr`, or `None` if the commit does not
    /// change the word. This call ignores the words of lines.
    pub fn pending(&self, addr: Addr) -> Option<u64> {
        self.words.get(addr)
    }

    /// Returns a word that the commit sets, and its new value. The caller uses it as a witness: the
    /// transaction has committed if the word has this value and no redo record is being applied. Returns
    /// `None` if the commit sets no words outside lines.
    pub fn witness(&self) -> Option<(Addr, u64)> {
        self.words.first()
    }

    /// Adds words of a line, which the commit sets. The caller adds each line at most once.
    pub fn line(&mut self, line: LineChange) {
        debug_assert!(self.lines.iter().all(|other| other.addr != line.addr));
        self.lines.push(line);
    }

    /// Adds a prelude: words of a line, which are published before the word of the commit. A crash may keep
    /// the prelude without the rest of the change. If the commit needs a redo record, the prelude is a part
    /// of the record.
    pub fn prelude(&mut self, line: LineChange) {
        debug_assert!(self.prelude.is_none());
        self.prelude = Some(line);
    }

    /// Retires an extent at the commit. The extent becomes free when the commit has settled and no reader can
    /// see the extent any more, except for pages to which other pointers lead.
    pub(crate) fn retire(&mut self, extent: Extent) {
        self.retired.push(extent);
    }

    /// Counts one more object whose storage is retired as a whole. Such an object has at most one extent
    /// below 2 KiB, which the bound of `most_extents` does not cover. Therefore each counted object raises
    /// the limit of [`Transaction::retire_found`] by one extent.
    pub(crate) fn retires_object(&mut self) {
        self.uncovered += 1;
    }

    /// Retires an extent that was found on the medium. A damaged tree may contain a cycle. Therefore the
    /// number of retired extents is limited. An object may have any number of shared extents, but each of
    /// them has a pointer in a node, and nodes are never shared.
    ///
    /// # Errors
    /// `Corrupt` if the volume has no room for this number of extents.
    pub(crate) fn retire_found(&mut self, extent: Extent, is_shared: bool) -> Result<()> {
        self.retired.push(extent);
        self.uncovered += usize::from(is_shared);
        if self.retired.len() <= self.volume.space().most_extents() + self.uncovered {
            return Ok(());
        }
        Err(Error::corrupt(extent.addr, "endless storage of an object"))
    }

    /// Returns the number of bytes that the transaction has allocated so far, minus those that it retires.
    pub(crate) fn storage_change(&self) -> i64 {
        self.storage_change_since(StorageMark::default())
    }

    /// Returns a mark of the storage that the transaction has allocated and retires so far.
    pub(crate) fn storage_mark(&self) -> StorageMark {
        StorageMark { allocated: self.allocated.len(), retired: self.retired.len() }
    }

    /// Works as [`Transaction::storage_change`], but counts only storage that the transaction has allocated
    /// or retired since `mark`. The call takes no time for earlier storage.
    pub(crate) fn storage_change_since(&self, mark: StorageMark) -> i64 {
        let sum = |extents: &[Extent]| {
            #[cfg(test)]
            SUMMED.set(SUMMED.get() + extents.len());
            extents.iter().map(|extent| extent.bytes() as i64).sum::<i64>()
        };
        sum(&self.allocated[mark.allocated..]) - sum(&self.retired[mark.retired..])
    }

    /// Orders all stores of the transaction so far, so that other transactions may commit before this one.
    #[track_caller]
    pub(crate) fn order(&mut self) {
        // The barrier of the commit withdraws the delayed stores of a mutant. Until then no reader uses them,
        // so it does not matter that the barrier of this call covers them.
        drop(self.order_dirty());
    }

    /// Orders all stores that the transaction has made so far. They then persist before the commit.
    #[track_caller]
    pub(super) fn barrier(&mut self) -> Result<Ordered> {
        self.delayed.withdraw_or_restore(self.volume.medium())?;
        Ok(self.order_dirty())
    }

    #[inline(always)]
    #[track_caller]
    fn order_dirty(&mut self) -> Ordered {
        let dirty = self.dirty.take().unwrap_or_else(Dirty::nothing);
        self.medium().barrier(dirty)
    }

    /// Reduces each line of the transaction, and the prelude, to one word: its commit word. Returns these
    /// words together with the other words that the commit sets. The remaining words of each line are stored
    /// now. They belong to the copy that the commit word will make current, so no reader uses them yet. (The
    /// word of the nanoseconds belongs to both copies. Its half for the current copy stays the same.)
    #[inline]
    pub(super) fn reduce_to_words(&mut self) -> Result<SmallVec<[(Addr, u64); 4]>> {
        let mut words = self.words.take();
        let lines = std::mem::take(&mut self.lines);
        for line in self.prelude.take().iter().chain(&lines) {
            for &(index, value) in &line.words[..line.words.len() - 1] {
                self.write_word(line.addr.add(index as u64 * 8), value)?;
            }
            words.push(line.commit_word());
        }
        Ok(words)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // After a commit this list is empty. If a panic interrupted the commit, the storage may be reachable
        // already, so it is not released.
        if self.allocated.is_empty() || std::thread::panicking() {
            return;
        }
        // No pointer to this storage was published, so the storage can be reused immediately.
        for &extent in &self.allocated {
            self.volume.space().release(extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::volume::{MediumChoice, Options};

    fn new_volume() -> Volume {
        let options = Options {
            group_bytes: 1 << 16,
            medium: MediumChoice::Auto,
            ..Options::random(Time::new(0, 0)).expect("random bytes")
        };
        Volume::create_on(Medium::memory(1 << 20).expect("memory"), &options).expect("a new volume")
    }

    /// If a directory grows for an insert, the stores of the insert are ordered early, before the commit of
    /// the insert. The mutant of a rule must nevertheless delay these stores until after that commit.
    #[cfg(feature = "mutants")]
    #[test]
    fn regression_delayed_stores_come_after_the_commit() {
        let volume = new_volume();
        let mut transaction = Transaction::begin(&volume);
        let extent = transaction.allocate(4096).expect("empty");
        let word = |transaction: &Transaction<'_>| transaction.medium().load(extent.addr).expect("there");
        transaction.write_word(extent.addr, 1).expect("there");
        transaction.delayed.delay(volume.medium(), extent.addr, 8).expect("there");
        transaction.write_word(extent.addr, 2).expect("there");
        transaction.order();
        drop(transaction.barrier().expect("there"));
        assert_eq!(word(&transaction), 1, "at the commit");
        transaction.delayed.withdraw_or_restore(volume.medium()).expect("there");
        assert_eq!(word(&transaction), 2, "after the commit");
    }

    #[test]
    fn regression_overlapping_copy_is_corrupt() {
        let volume = new_volume();
        let mut transaction = Transaction::begin(&volume);
        let extent = transaction.allocate(8192).expect("empty");
        for from in [extent.addr, extent.addr.add(4096)] {
            let copied = transaction.copy(extent.addr, from, 8192);
            assert!(matches!(copied, Err(Error::Corrupt { .. })), "{copied:?}");
        }
        transaction.copy(extent.addr, extent.addr.add(4096), 4096).expect("side by side");
    }
}
