//! Drains: one cut between Ops reaches the disk, all of it or nothing.
//!
//! The cut itself is a turn of a counter while no Op is under way. What belongs to it is then taken page by page while
//! other threads go on; a page that they change before its turn is kept for the drain as a shadow. Fresh pages are
//! written to their places, the changed lines of others into a journal record, and one flush makes both count. When the
//! journal is full, the pages it has lines of are brought to their places, too.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, TryLockError};

use zerocopy::IntoBytes;

use super::journal::{Anchor, PageBytes, Record, checkpoint, page_buffer};
use super::page::{BUSY, DIRTY, FRESH, HOMING, LEAVING, LOGGED, ODD, WRITTEN};
use super::shadow::Shadow;
use super::{Pager, locked};
use crate::addr::PAGE_SIZE;
use crate::copy;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};
use crate::turns;

const PAGE: usize = PAGE_SIZE as usize;
/// Pages that are gathered before they are written to their places, at most.
const GATHERED: usize = 256;
/// Pages of a cut up to which the journal takes also the lines of fresh pages whose places were never written.
const FEW: usize = 16;

/// What one drain hands on to the next.
pub(super) struct State {
    anchor: Anchor,
    /// Number of the next record.
    sequence: u64,
    /// Where in the journal it goes, in bytes.
    at: u64,
    /// Pages that the journal has lines of.
    logged: Vec<usize>,
    /// Whether the last record counts only with the fresh pages that it lists.
    lists_fresh: bool,
    /// Memory in which pages are gathered.
    gathered: Vec<PageBytes>,
}

impl State {
    pub(super) fn new(anchor: Anchor) -> State {
        State { anchor, sequence: 1, at: 0, logged: Vec::new(), lists_fresh: false, gathered: Vec::new() }
    }
}

/// Pages on their way to their places, gathered so that they are written together.
struct Homing<'a> {
    pager: &'a Pager,
    buffer: &'a mut Vec<PageBytes>,
    pages: Vec<usize>,
}

impl<'a> Homing<'a> {
    fn new(pager: &'a Pager, buffer: &'a mut Vec<PageBytes>) -> Homing<'a> {
        Homing { pager, buffer, pages: Vec::new() }
    }

    /// The next page's bytes, which are then written.
    fn add(&mut self, page: usize, fill: impl FnOnce(&mut PageBytes)) -> io::Result<&PageBytes> {
        if self.pages.len() == GATHERED {
            self.write(None)?;
        }
        let slot = self.pages.len();
        if slot == self.buffer.len() {
            self.buffer.push(PageBytes([0; PAGE]));
        }
        self.pages.push(page);
        fill(&mut self.buffer[slot]);
        Ok(&self.buffer[slot])
    }

    /// Writes what was gathered, and what else is given.
    #[track_caller]
    fn write(&mut self, more: Option<(u64, &[u8])>) -> io::Result<()> {
        let mut rest = &self.buffer[..];
        let mut ranges = Vec::new();
        for run in self.pages.chunk_by(|page, next| page + 1 == *next) {
            let (bytes, after) = rest.split_at(run.len());
            ranges.push((run[0] as u64 * PAGE_SIZE, bytes.as_bytes()));
            rest = after;
        }
        ranges.extend(more);
        if !ranges.is_empty() {
            self.pager.blocks.here().write_all(&ranges)?;
        }
        for page in self.pages.drain(..) {
            let arrived = |flags: u64| Some((flags | WRITTEN) & !HOMING);
            // The closure always gives a value.
            let _ = self.pager.pages.flags(page).fetch_update(Ordering::AcqRel, Ordering::Acquire, arrived);
        }
        Ok(())
    }
}

/// What a drain found in its cut.
#[derive(Default)]
struct Taken {
    /// Whether everything is brought to its place.
    homing: bool,
    /// Whether the cut has few pages.
    few: bool,
    record: Record,
    /// Pages with lines in the record.
    logged: Vec<usize>,
    /// Pages that are yet to be brought to their places, as they were where memory has newer bytes.
    left: Vec<(usize, Option<Shadow>)>,
}

impl Taken {
    /// Whether a page of the cut goes straight to its place, and not into the journal.
    ///
    /// The first write to a place costs the host a record in a journal of its own. So when there are few, the journal
    /// takes their lines, and they come to their places together with many.
    fn goes_home(&self, fresh: bool, flags: u64) -> bool {
        let fresh = fresh || broken(SafetyRule::UsedPageGoesByTheJournal);
        fresh && !(self.few && flags & WRITTEN == 0)
    }

    fn changed(&mut self, page: usize, lines: u64, bytes: &PageBytes) {
        self.record.changed(page, lines, &bytes.0);
        self.logged.push(page);
    }
}

/// How much a drain brings to its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drain {
    /// Fresh pages; the rest into the journal.
    Cut,
    /// Everything: afterwards no page is pinned by what was done before.
    Home,
}

impl Pager {
    /// Makes everything durable that was done before the call.
    ///
    /// # Errors
    /// [`Fault::Io`] when the disk fails: what of the cut is durable is then unknown, and nothing can be changed any
    /// more. [`Fault::ReadOnly`] after that.
    pub(crate) fn drain(&self, drain: Drain) -> Result<(), Fault> {
        let wanted = self.cut.load(Ordering::Acquire);
        let mut state = self.state();
        if drain == Drain::Cut && self.durable() >= wanted {
            return Ok(());
        }
        self.refuse_if_failed()?;
        self.drain_now(&mut state, drain).map_err(|source| {
            self.failed.store(true, Ordering::Release);
            Fault::Io { what: "draining the volume to its disk (it is now read-only)".to_string(), source }
        })
    }

    /// What one drain at a time works with. Threads that take turns wait for it by their turns.
    fn state(&self) -> MutexGuard<'_, State> {
        while turns::takes_part() && matches!(self.drain.try_lock(), Err(TryLockError::WouldBlock)) {
            turns::wait();
        }
        locked(&self.drain)
    }

    fn drain_now(&self, state: &mut State, drain: Drain) -> io::Result<()> {
        let homing = drain == Drain::Home || state.at + self.expected_bytes() > self.journal_bytes / 2;
        if homing {
            let left = usize::from(broken(SafetyRule::CheckpointTakesEveryPage));
            state.logged.iter().skip(left).for_each(|&page| self.choose(page));
        }
        let (cut, pages) = self.cut();
        let mut gathered = std::mem::take(&mut state.gathered);
        let mut home = Homing::new(self, &mut gathered);
        let mut taken = Taken { homing, few: !homing && pages.len() <= FEW, ..Taken::default() };
        self.take_cut(cut, pages, &mut home, &mut taken)?;
        self.log(state, &taken.record, &mut home)?;
        state.logged.append(&mut taken.logged);
        self.durable.store(cut, Ordering::Release);
        if homing {
            self.bring_home(cut, taken.left, state, &mut home)?;
        }
        state.gathered = gathered;
        self.shadows.clear();
        Ok(())
    }

    /// Bytes that the next record will hardly have more than.
    fn expected_bytes(&self) -> u64 {
        self.recorded_bytes() + (FEW as u64 + 1) * PAGE_SIZE
    }

    /// Bytes of the next record, but for the lines of a few fresh pages.
    pub(super) fn recorded_bytes(&self) -> u64 {
        let pages = self.dirty_pages.load(Ordering::Relaxed) as u64;
        self.changed_bytes.load(Ordering::Relaxed) + 32 * pages
    }

    /// Makes a logged page part of the next cut, so that it can be brought to its place as it is then.
    fn choose(&self, page: usize) {
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & LOGGED == 0 || flags & DIRTY != 0 {
                return;
            }
            let new = (flags & !(ODD | LEAVING)) | DIRTY | self.parity();
            if flags & BUSY != 0 {
                std::thread::yield_now();
            } else if self.pages.turn(page, flags, new) {
                return self.list(page);
            }
        }
    }

    /// Makes the cut: its number, and the pages that were changed since the one before, in order.
    fn cut(&self) -> (u64, Vec<usize>) {
        let (cut, mut pages) = self.turnstile.alone(|| {
            self.changed_bytes.store(0, Ordering::Relaxed);
            let lists = self.dirty.iter().map(|list| std::mem::take(&mut *locked(list)));
            let lists: Vec<Vec<usize>> = lists.collect();
            (self.cut.fetch_add(1, Ordering::AcqRel), lists)
        });
        let mut pages = pages.drain(..).flatten().collect::<Vec<_>>();
        pages.sort_unstable();
        pages.dedup();
        (cut, pages)
    }

    /// Takes every page of the cut: its bytes are gathered on their way to its place, or its lines go into the record.
    fn take_cut(
        &self,
        cut: u64,
        pages: Vec<usize>,
        home: &mut Homing<'_>,
        taken: &mut Taken,
    ) -> io::Result<()> {
        let parity = if cut & 1 == 1 { ODD } else { 0 };
        let mut copied = page_buffer(PAGE);
        for page in pages {
            turns::step();
            if let Some(flags) = self.lock_of_cut(page, parity) {
                let lines = self.pages.lines(page).swap(0, Ordering::AcqRel);
                let fresh = taken.goes_home(flags & FRESH != 0, flags);
                let mut added = Ok(());
                if fresh {
                    let bytes = home.add(page, |out| self.copy_out(page, out));
                    added = bytes.map(|bytes| taken.record.fresh(page, &bytes.0));
                } else if lines != 0 {
                    self.copy_out(page, &mut copied[0]);
                    taken.changed(page, lines, &copied[0]);
                }
                let pinned = match (fresh, lines) {
                    (true, _) => HOMING,
                    (false, 0) => 0,
                    (false, _) if broken(SafetyRule::LoggedPageIsMarked) => 0,
                    (false, _) => LOGGED,
                };
                if taken.homing && !fresh {
                    taken.left.push((page, None));
                    self.pages.unlock(page, pinned, 0);
                } else {
                    self.dirty_pages.fetch_sub(1, Ordering::Relaxed);
                    self.pages.unlock(page, pinned, DIRTY | FRESH | ODD);
                }
                // Only now: a page that stays locked would stop whoever changes it for ever.
                added?;
            } else if let Some(shadow) = self.shadows.take(page) {
                self.take_shadow(page, shadow, home, taken)?;
            }
        }
        Ok(())
    }

    fn take_shadow(
        &self,
        page: usize,
        shadow: Shadow,
        home: &mut Homing<'_>,
        taken: &mut Taken,
    ) -> io::Result<()> {
        let flags = self.pages.flags(page);
        if taken.goes_home(shadow.fresh, flags.load(Ordering::Acquire)) {
            let bytes = home.add(page, |out| self.copy_shadow(page, &shadow, out))?;
            taken.record.fresh(page, &bytes.0);
            return Ok(());
        }
        if shadow.lines != 0 {
            let mut bytes = PageBytes([0; PAGE]);
            self.copy_shadow(page, &shadow, &mut bytes);
            taken.changed(page, shadow.lines, &bytes);
            flags.fetch_or(LOGGED, Ordering::AcqRel);
        }
        if taken.homing {
            taken.left.push((page, Some(shadow)));
        }
        Ok(())
    }

    /// Locks a page that is still as it was at the cut, and gives its flags; not if it was kept as a shadow, or freed.
    fn lock_of_cut(&self, page: usize, parity: u64) -> Option<u64> {
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & BUSY != 0 {
                std::thread::yield_now();
            } else if flags & DIRTY == 0 || flags & ODD != parity {
                return None;
            } else if self.pages.turn(page, flags, flags | BUSY) {
                return Some(flags);
            }
        }
    }

    fn copy_out(&self, page: usize, out: &mut PageBytes) {
        // SAFETY: a whole page of the mapping, and a buffer of as much that nobody else has.
        unsafe { copy::copy(out.0.as_mut_ptr(), self.place(page), PAGE) };
    }

    /// Copies a page as it was at the cut.
    fn copy_shadow(&self, page: usize, shadow: &Shadow, out: &mut PageBytes) {
        if broken(SafetyRule::ShadowIsOfItsCut) {
            return self.copy_out(page, out);
        }
        self.shadows.copy_out(shadow, out);
    }

    /// Writes what was gathered and the record of it, and makes them and everything before durable.
    fn log(&self, state: &mut State, record: &Record, home: &mut Homing<'_>) -> io::Result<()> {
        // What this cut freed may be taken again once it is durable, also what the last record lists as fresh: then that
        // must count without looking there, as the last but one.
        if record.is_empty() && (!state.lists_fresh || broken(SafetyRule::FreeingCutHasARecord)) {
            return home.write(None);
        }
        let bytes = record.bytes(self.blocks.sector());
        if state.at + bytes > self.journal_bytes {
            // More was changed than anyone expected. What the journal has can still be brought to its place by itself.
            home.write(None)?;
            if !broken(SafetyRule::FullJournalIsReplayed) {
                checkpoint(&*self.blocks, &state.anchor, record)?;
            }
            self.restart(state)?;
        }
        if bytes > self.journal_bytes {
            return Err(io::Error::other("more was changed at once than the journal holds"));
        }
        let sealed = record.seal(state.anchor.id, state.sequence, bytes);
        let place = state.anchor.volume_bytes + state.at;
        home.write(Some((place, &sealed.as_bytes()[..bytes as usize])))?;
        self.blocks.here().flush()?;
        state.sequence += 1;
        state.at += bytes;
        state.lists_fresh = record.has_fresh();
        Ok(())
    }

    /// Brings everything that the journal has to its place, and starts it over.
    fn bring_home(
        &self,
        cut: u64,
        left: Vec<(usize, Option<Shadow>)>,
        state: &mut State,
        home: &mut Homing<'_>,
    ) -> io::Result<()> {
        let parity = if cut & 1 == 1 { ODD } else { 0 };
        let early = broken(SafetyRule::CheckpointIsDurableBeforeRestart);
        if early {
            self.restart(state)?;
        }
        for (page, shadow) in left {
            if let Some(shadow) = shadow {
                home.add(page, |out| self.copy_shadow(page, &shadow, out))?;
            } else if self.lock_of_cut(page, parity).is_some() {
                let added = home.add(page, |out| self.copy_out(page, out)).map(drop);
                self.dirty_pages.fetch_sub(1, Ordering::Relaxed);
                self.pages.unlock(page, 0, DIRTY | ODD);
                added?;
            } else if let Some(shadow) = self.shadows.take(page) {
                home.add(page, |out| self.copy_shadow(page, &shadow, out))?;
            }
        }
        home.write(None)?;
        self.blocks.here().flush()?;
        if !early {
            self.restart(state)?;
        }
        for page in state.logged.drain(..) {
            self.pages.flags(page).fetch_and(!LOGGED, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Makes the journal empty. Everything in it has reached its place, durably.
    fn restart(&self, state: &mut State) -> io::Result<()> {
        if !broken(SafetyRule::JournalNameIsNewAfterRestart) {
            state.anchor.rename(&*self.blocks)?;
        }
        (state.sequence, state.at, state.lists_fresh) = (1, 0, false);
        Ok(())
    }
}
