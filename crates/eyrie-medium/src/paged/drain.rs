//! Drains. A drain writes one cut to the disk, whole or not at all.
//!
//! To make the cut, the drain increments the number of the cut while no Op is in progress. The drain then
//! takes the pages of the cut one by one while other threads run Ops. If such a thread changes a page before
//! the drain takes it, the thread first keeps a copy of the page as a shadow. The drain writes fresh pages to
//! their places, and the changed lines of other pages into a journal record. One flush makes the fresh pages
//! and the record durable. In a small cut, a fresh page goes into the record instead, unless its place was
//! written before (flag [`WRITTEN`]). The record then has the changed lines of this page. On a volume with
//! checksums, it has all lines of the page.
//!
//! A *checkpoint* is a drain that also writes every page with lines in the journal to its place, and the new
//! checksums to the checksum pages, so that the journal can start over. A drain becomes a checkpoint on
//! request, or when the earlier records and the estimated size of its own record are more than half of the
//! journal.
//!
//! A record that is larger than the journal *overflows*: the drain writes the rest of the record to free
//! pages of the volume, which the engine has lent to the cut. One flush makes these pages durable together
//! with the part in the journal. The drain then applies the record immediately, so that the lent pages become
//! free again.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, TryLockError};

use zerocopy::IntoBytes;

use super::buffer::{PageBytes, page_buffer};
use super::journal::{CutRecord, replay_own};
use super::pace::MIN_FRESH;
use super::page::{ALL_LINES, BUSY, DIRTY, FRESH, LEAVING, LOGGED, ODD, WRITING, WRITTEN};
use super::pager::{DrainState, Pager};
use super::place_writes::PlaceWrites;
use super::room::most_room;
use super::shadow::Shadow;
use crate::addr::PAGE_SIZE;
use crate::copy;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};
use crate::sync::{schedule, unpoisoned};

const PAGE: usize = PAGE_SIZE as usize;
/// Maximum number of pages of a small cut in a small journal. In a volume above 64 MiB, a small cut may have
/// more pages: see [`Pager::small_cut_pages`].
const MIN_SMALL_CUT: usize = 16;
/// Maximum number of pages of any small cut. The cut of a sync beside a writer of large files has about
/// [`MIN_FRESH`] fresh pages and a few pages of metadata, and should still be small.
const MAX_SMALL_CUT: usize = MIN_FRESH + 16;

/// The contents of a cut.
#[derive(Default)]
struct CutContents {
    /// True if the drain is a checkpoint.
    is_checkpoint: bool,
    /// True if the cut is small: it has at most [`Pager::small_cut_pages`] pages, the journal has room
    /// for all their lines, and the drain is not a checkpoint.
    is_small: bool,
    record: CutRecord,
    /// Pages with lines in the record.
    logged: Vec<usize>,
    /// Pages that the checkpoint has yet to write to their places. Where memory has newer bytes than the cut,
    /// a shadow has the bytes of the cut.
    left: Vec<(usize, Option<Shadow>)>,
}

impl CutContents {
    /// Returns true if a page of the cut is written straight to its place, and not to the journal.
    ///
    /// At the first write to a place, the host's file system notes the new block in its own journal, which is
    /// slow. So the lines of a small cut's fresh pages go to the journal of the volume if their places were
    /// not written before (flag [`WRITTEN`]). A checkpoint later writes these pages to their places together
    /// with many others.
    fn goes_to_its_place(&self, fresh: bool, flags: u64) -> bool {
        let fresh = fresh || broken(SafetyRule::UsedPageGoesByTheJournal);
        fresh && !(self.is_small && flags & WRITTEN == 0)
    }

    /// Adds the changed lines of a page to the record.
    fn add_changed(&mut self, page: usize, lines: u64, bytes: &PageBytes) {
        self.record.changed(page, lines, &bytes.0);
        self.logged.push(page);
    }
}

/// A cut, as it was made.
struct Cut {
    number: u64,
    /// The numbers of its pages, in ascending order.
    pages: Vec<usize>,
    /// Free pages to which its record may overflow.
    lent: Vec<Range<usize>>,
    /// The result of [`Pager::recorded_bytes`] at the cut.
    recorded: u64,
}

/// The kind of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drain {
    /// The drain makes one cut durable. It becomes a checkpoint if the journal is too full.
    Cut,
    /// The drain is a checkpoint: every page of the cut, and every page with lines in the journal, is written
    /// to its place. Afterwards no earlier change keeps a page in memory.
    Checkpoint,
}

/// A guard: its drop makes the volume read-only.
struct FailOnDrop<'a>(&'a AtomicBool);

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Pager {
    /// Makes every earlier change durable.
    ///
    /// # Errors
    /// [`Fault::Io`] when the disk fails. It is then unknown if the cut is durable, and every later Op and
    /// drain gets [`Fault::ReadOnly`].
    pub(crate) fn drain(&self, drain: Drain) -> Result<(), Fault> {
        let wanted = self.cut.load(Ordering::Acquire);
        // Another thread may drain this cut while this thread waits for the lock.
        self.drain_unless(drain, || drain == Drain::Cut && self.durable_cut() >= wanted)
    }

    /// Calls `is_done` when a drain could begin. If the result is false, drains as [`Pager::drain`] does.
    ///
    /// # Errors
    /// As [`Pager::drain`].
    pub(super) fn drain_unless(&self, drain: Drain, is_done: impl FnOnce() -> bool) -> Result<(), Fault> {
        let mut state = self.lock_drain();
        // A volume without a journal accepts no store, so it has no changes.
        if is_done() || self.journal_bytes == 0 {
            return Ok(());
        }
        self.refuse_if_failed()?;
        // A panic loses the list of the cut's pages, so no later drain would be complete.
        let on_panic = FailOnDrop(&self.failed);
        let drained = self.drain_now(&mut state, drain);
        std::mem::forget(on_panic);
        drained.map_err(|source| {
            self.failed.store(true, Ordering::Release);
            Fault::Io {
                what: "draining the volume to its disk (the volume is now read-only)".to_string(),
                source,
            }
        })
    }

    /// Locks the state of drains. A thread under a test's schedule must not block in the lock, and waits
    /// through the schedule instead.
    pub(super) fn lock_drain(&self) -> MutexGuard<'_, DrainState> {
        while schedule::is_scheduled() && matches!(self.drain.try_lock(), Err(TryLockError::WouldBlock)) {
            schedule::wait();
        }
        unpoisoned(self.drain.lock())
    }

    /// Makes one drain. The caller holds the lock of the state of drains.
    fn drain_now(&self, state: &mut DrainState, drain: Drain) -> io::Result<()> {
        let is_checkpoint =
            drain == Drain::Checkpoint || state.at + self.expected_bytes() > self.journal_bytes / 2;
        if is_checkpoint {
            let left_out = usize::from(broken(SafetyRule::CheckpointTakesEveryPage));
            state.logged.iter().skip(left_out).for_each(|&page| self.add_to_next_cut(page));
        }
        let Cut { number: cut, pages, lent, recorded } = self.take_cut();
        let mut gathered = std::mem::take(&mut state.gathered);
        let mut places = PlaceWrites::new(self, &mut gathered);
        let small = self.small_cut_pages();
        let mut contents = CutContents {
            is_checkpoint,
            is_small: !is_checkpoint
                && pages.len() <= small
                && recorded + small as u64 * most_room(PAGE_SIZE) <= self.room_of_a_cut(),
            record: CutRecord::new(self.has_checksums()),
            ..CutContents::default()
        };
        self.collect_cut(cut, pages, &mut places, &mut contents)?;
        let overflows = self.write_record(state, &contents.record, lent, &mut places)?;
        state.logged.append(&mut contents.logged);
        if !overflows {
            self.durable.store(cut, Ordering::Release);
        }
        if is_checkpoint {
            self.checkpoint(cut, contents.left, state, &mut places)?;
        } else if overflows {
            self.replay_journal(state, &CutRecord::default())?;
            self.restart_journal(state)?;
        }
        // A cut whose record overflowed counts as durable only here. The allocator may then reuse the lent
        // pages, and the volume does not need the record in them any more.
        self.durable.store(cut, Ordering::Release);
        state.gathered = gathered;
        self.shadows.clear();
        self.pace.drained();
        self.counts.drained();
        Ok(())
    }

    /// Returns a size that the next record rarely exceeds: [`Pager::recorded_bytes`], and room for the fresh
    /// pages of a small cut. One additional page has room for the entries of these pages, the flag bytes of
    /// their lines, and the head of the record.
    fn expected_bytes(&self) -> u64 {
        self.recorded_bytes() + (self.small_cut_pages() as u64 + 1) * PAGE_SIZE
    }

    /// Returns the maximum number of pages of a small cut, whose fresh pages may go to the journal
    /// ([`CutContents::goes_to_its_place`]). It is a 64th of the journal, so that checkpoints stay rare, but
    /// at least [`MIN_SMALL_CUT`] and at most [`MAX_SMALL_CUT`].
    fn small_cut_pages(&self) -> usize {
        ((self.journal_bytes / PAGE_SIZE / 64) as usize).clamp(MIN_SMALL_CUT, MAX_SMALL_CUT)
    }

    /// Returns an estimate of the size of the next record, without the fresh pages that a small cut may add.
    /// The calculation adds 32 bytes for each page, which is more than its entry takes without the lines.
    pub(super) fn recorded_bytes(&self) -> u64 {
        // The count of pages may be below zero for a moment, because a thread first marks a page as dirty,
        // and counts it later.
        let pages = (self.dirty_pages.load(Ordering::Relaxed) as isize).max(0) as u64;
        self.changed_bytes.load(Ordering::Relaxed) + pages * 32
    }

    /// Makes a logged page part of the cut that this drain takes next, so that the checkpoint writes the
    /// bytes of that cut to the place of the page.
    fn add_to_next_cut(&self, page: usize) {
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & LOGGED == 0 || flags & DIRTY != 0 {
                return;
            }
            let new = (flags & !(ODD | LEAVING)) | DIRTY | self.parity();
            if flags & BUSY != 0 {
                std::thread::yield_now();
            } else if self.pages.compare_exchange(page, flags, new) {
                return self.list(page);
            }
        }
    }

    /// Makes the cut.
    fn take_cut(&self) -> Cut {
        let (mut cut, lists) = self.turnstile.alone(|| {
            let recorded = self.recorded_bytes();
            self.changed_bytes.store(0, Ordering::Relaxed);
            self.pace.cut();
            let lists = self.dirty.iter().map(|list| std::mem::take(&mut *unpoisoned(list.lock())));
            let lists: Vec<Vec<usize>> = lists.collect();
            let lent = std::mem::take(&mut *unpoisoned(self.lent.lock()));
            let number = self.cut.fetch_add(1, Ordering::AcqRel);
            (Cut { number, pages: Vec::new(), lent, recorded }, lists)
        });
        cut.pages = lists.into_iter().flatten().collect();
        cut.pages.sort_unstable();
        cut.pages.dedup();
        cut
    }

    /// Takes every page of the cut. The bytes of a page that [goes to its
    /// place](CutContents::goes_to_its_place) are gathered. The lines that `recorded_lines` returns for any
    /// other page go into the record. A checkpoint also adds these other pages to `left`.
    fn collect_cut(
        &self,
        cut: u64,
        pages: Vec<usize>,
        places: &mut PlaceWrites<'_>,
        contents: &mut CutContents,
    ) -> io::Result<()> {
        let parity = if cut & 1 == 1 { ODD } else { 0 };
        let mut copied = page_buffer(PAGE);
        for page in pages {
            schedule::step();
            if let Some(flags) = self.lock_page_of_cut(page, parity) {
                let changed = self.pages.lines(page).swap(0, Ordering::AcqRel);
                let lines = self.recorded_lines(changed, flags & FRESH != 0);
                let to_place = contents.goes_to_its_place(flags & FRESH != 0, flags);
                let mut added = Ok(());
                if to_place {
                    let bytes = places.add(page, |out| self.copy_out(page, out));
                    added = bytes.map(|bytes| contents.record.fresh(page, &bytes.0));
                } else if lines != 0 {
                    self.copy_out(page, &mut copied[0]);
                    contents.add_changed(page, lines, &copied[0]);
                }
                let mark = match (to_place, lines) {
                    (true, _) => WRITING,
                    (false, 0) => 0,
                    (false, _) if broken(SafetyRule::LoggedPageIsMarked) => 0,
                    (false, _) => LOGGED,
                };
                if contents.is_checkpoint && !to_place {
                    contents.left.push((page, None));
                    self.pages.unlock(page, mark, 0);
                } else {
                    self.dirty_pages.fetch_sub(1, Ordering::Relaxed);
                    self.pages.unlock(page, mark, DIRTY | FRESH | ODD);
                }
                // The error returns only after the unlock, because a page that stayed locked would block its
                // next user for ever.
                added?;
            } else if let Some(shadow) = self.shadows.take(page) {
                self.collect_shadow(page, shadow, places, contents)?;
            }
        }
        Ok(())
    }

    /// Takes the shadow of a page, in the same way as `collect_cut` takes a page.
    fn collect_shadow(
        &self,
        page: usize,
        shadow: Shadow,
        places: &mut PlaceWrites<'_>,
        contents: &mut CutContents,
    ) -> io::Result<()> {
        let flags = self.pages.flags(page);
        if contents.goes_to_its_place(shadow.fresh, flags.load(Ordering::Acquire)) {
            let bytes = places.add(page, |out| self.copy_shadow(page, &shadow, out))?;
            contents.record.fresh(page, &bytes.0);
            return Ok(());
        }
        let lines = self.recorded_lines(shadow.lines, shadow.fresh);
        if lines != 0 {
            let mut bytes = PageBytes([0; PAGE]);
            self.copy_shadow(page, &shadow, &mut bytes);
            contents.add_changed(page, lines, &bytes);
            flags.fetch_or(LOGGED, Ordering::AcqRel);
        }
        if contents.is_checkpoint {
            contents.left.push((page, Some(shadow)));
        }
        Ok(())
    }

    /// Returns the lines that the record gets of a page that goes to the journal. For a fresh page on a
    /// volume with checksums these are all lines, because the place of the page may have other bytes in the
    /// unchanged lines, and its checksum would then not match.
    fn recorded_lines(&self, changed: u64, fresh: bool) -> u64 {
        let whole = fresh && self.has_checksums() && !broken(SafetyRule::FreshPageIsRecordedWhole);
        if whole { ALL_LINES } else { changed }
    }

    /// Locks a page that is unchanged since the cut, and returns its flags. Returns `None` if the page was
    /// kept as a shadow, or freed.
    fn lock_page_of_cut(&self, page: usize, parity: u64) -> Option<u64> {
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & BUSY != 0 {
                std::thread::yield_now();
            } else if flags & DIRTY == 0 || flags & ODD != parity {
                return None;
            } else if self.pages.compare_exchange(page, flags, flags | BUSY) {
                return Some(flags);
            }
        }
    }

    /// Copies the bytes that a page has now.
    fn copy_out(&self, page: usize, out: &mut PageBytes) {
        // SAFETY: the address is that of a whole page of the mapping. The buffer is as long and borrowed
        // exclusively.
        unsafe { copy::copy(out.0.as_mut_ptr(), self.address(page), PAGE) };
    }

    /// Copies the bytes that a page had at the cut, from its shadow.
    fn copy_shadow(&self, page: usize, shadow: &Shadow, out: &mut PageBytes) {
        if broken(SafetyRule::ShadowIsOfItsCut) {
            return self.copy_out(page, out);
        }
        self.shadows.copy_out(shadow, out);
    }

    /// Writes the gathered pages and the record, and makes them and all earlier writes durable. If the record
    /// is empty, there is no flush and the record is not written, unless the last record lists fresh pages.
    /// Returns true if the record overflowed to the pages `lent`.
    fn write_record(
        &self,
        state: &mut DrainState,
        record: &CutRecord,
        lent: Vec<Range<usize>>,
        places: &mut PlaceWrites<'_>,
    ) -> io::Result<bool> {
        // Replay accepts the last record only if the fresh pages that it lists still have their checksums.
        // When this cut is durable, the allocator may reuse the pages that the cut freed, and some of them
        // may be such fresh pages. Their new bytes would make replay drop the last record. An empty record
        // after the last record prevents this, because replay checks the fresh pages of the newest record
        // only.
        if record.is_empty() && (!state.lists_fresh || broken(SafetyRule::FreeingCutHasARecord)) {
            return places.write(None).map(|()| false);
        }
        let whole = record.bytes(self.blocks.sector());
        if state.at + whole > self.journal_bytes {
            // The record is larger than expected, and does not fit after the earlier records. A replay writes
            // the lines of the earlier records to the places of their pages, and so makes room.
            places.write(None)?;
            if !broken(SafetyRule::FullJournalIsReplayed) {
                self.replay_journal(state, record)?;
            }
            self.restart_journal(state)?;
        }
        let (bytes, overflow) = if whole > self.journal_bytes {
            let overflow = record.overflow(self.journal_bytes, lent.into_iter().flatten());
            let missing = || io::Error::other("one cut has more changes than the journal holds");
            (self.journal_bytes, overflow.ok_or_else(missing)?)
        } else {
            (whole, Vec::new())
        };
        if self.has_checksums() {
            places.sums.extend(record.sums());
        }
        let sealed = record.seal(state.anchor.id, state.sequence, bytes, &overflow);
        for (page, contents) in &overflow {
            places.add(*page, |out| *out = *contents)?;
        }
        let place = self.places.end() + state.at;
        places.write(Some((place, &sealed.as_bytes()[..bytes as usize])))?;
        places.flush()?;
        state.sequence += 1;
        state.at += bytes;
        state.lists_fresh = record.has_fresh();
        Ok(!overflow.is_empty())
    }

    /// Writes every page with lines in the journal to its place and the new checksums to the checksum pages,
    /// and restarts the journal.
    fn checkpoint(
        &self,
        cut: u64,
        left: Vec<(usize, Option<Shadow>)>,
        state: &mut DrainState,
        places: &mut PlaceWrites<'_>,
    ) -> io::Result<()> {
        let parity = if cut & 1 == 1 { ODD } else { 0 };
        let early = broken(SafetyRule::CheckpointIsDurableBeforeRestart);
        if early {
            self.restart_journal(state)?;
        }
        for (page, shadow) in left {
            if let Some(shadow) = shadow {
                places.add(page, |out| self.copy_shadow(page, &shadow, out))?;
            } else if self.lock_page_of_cut(page, parity).is_some() {
                let added = places.add(page, |out| self.copy_out(page, out)).map(drop);
                self.dirty_pages.fetch_sub(1, Ordering::Relaxed);
                self.pages.unlock(page, 0, DIRTY | ODD);
                added?;
            } else if let Some(shadow) = self.shadows.take(page) {
                places.add(page, |out| self.copy_shadow(page, &shadow, out))?;
            }
        }
        // The journal gets its new name after the flush. Until every page and its checksum are durable in
        // their places, recovery from a crash needs the records under the old name.
        places.write(None)?;
        if self.has_checksums() && !broken(SafetyRule::ChecksumsBeforeRestart) {
            self.counts.wrote_bytes(self.checksums.write(&*self.blocks)?);
        }
        places.flush()?;
        if !early {
            self.restart_journal(state)?;
        }
        for page in state.logged.drain(..) {
            self.pages.flags(page).fetch_and(!LOGGED, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Writes the lines and checksums of the journal's records to their places. Leaves out the lines of pages
    /// that are fresh in `next`, because newer bytes of these pages are in their places already. `next` is
    /// the record that the caller writes next. It is empty if no record follows.
    fn replay_journal(&self, state: &DrainState, next: &CutRecord) -> io::Result<()> {
        let (count, checksums) = (state.sequence - 1, &self.checksums);
        self.counts.wrote_bytes(replay_own(&*self.blocks, &state.anchor, count, next, checksums)?);
        checksums.written();
        Ok(())
    }

    /// Makes the journal empty. The caller has made all pages and checksums of the records durable in their
    /// places. Pages may stay marked [`LOGGED`] until the next checkpoint, which writes them once more.
    fn restart_journal(&self, state: &mut DrainState) -> io::Result<()> {
        if !broken(SafetyRule::JournalNameIsNewAfterRestart) {
            state.anchor.rename(&*self.blocks)?;
        }
        (state.sequence, state.at, state.lists_fresh) = (1, 0, false);
        Ok(())
    }
}
