//! The `traced` medium's record, and the rules of what persists over it.
//!
//! Lines (px86, as `bpfs.txt` section 4.4 needs of hardware): per cache line, what persists is a prefix of its stores in
//! program order, at least up to the last store that was flushed before a fence of the thread that stored. (A fence
//! orders what its own thread did, so an engine that hands memory to another thread settles it first.) Eight aligned
//! bytes never tear; what is longer is recorded as several stores. A flush settles every store to every line, also those of
//! a process that was killed.
//!
//! Sectors (of a disk, under the medium `paged`): any of the writes to a sector since the last flush, or none, whoever
//! wrote; a flush settles everything. Sectors do not tear.
//!
//! `tests/rules.rs` has both as functions that try everything, and that these are the images that are explored.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use crate::addr::LINE_SIZE;
use crate::image::{Choice, ImageBase, contents};
use crate::paged::blocks::SECTOR;
use crate::plan::{Plan, Site, SiteKind};
use crate::{Addr, Fault, turns};

/// Size of a word, in bytes.
const WORD_SIZE: u64 = 8;

/// What a failure of power leaves of stores.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Rule {
    /// Of each line of memory a prefix of its stores, at least up to the last that a thread made before a fence of its own.
    #[default]
    Lines,
    /// Of each sector of a disk any write since the last flush, or what the flush left.
    Sectors,
}

impl Rule {
    /// Size of what persists by itself, in bytes.
    pub fn unit(self) -> u64 {
        match self {
            Rule::Lines => LINE_SIZE,
            Rule::Sectors => SECTOR,
        }
    }

    /// Size of what does not tear, in bytes.
    fn atom(self) -> u64 {
        match self {
            Rule::Lines => WORD_SIZE,
            Rule::Sectors => SECTOR,
        }
    }
}

/// One thing that an engine did to the medium. A store is within one word (or sector), as others are recorded as several, and is
/// flushed at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes were stored.
    Store {
        /// Where.
        addr: Addr,
        /// What. It does not tear.
        bytes: Vec<u8>,
        /// By whom.
        thread: ThreadId,
    },
    /// Everything that the thread stored before persists before anything stored later.
    Fence {
        /// Which fence.
        site: Site,
        /// Whose.
        thread: ThreadId,
    },
    /// The process died. The next one reads everything that it stored, but no fence of the next one settles any of it, because
    /// a store may be visible to every process before its line is written back.
    Kill,
    /// A mark of the test's own, for example "Op 3 returned".
    Mark(u64),
}

/// Records what is done to a medium. A clone is the same recorder, which outlives the medium.
#[derive(Clone, Default)]
pub struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
    plan: Plan,
    rule: Rule,
}

impl Recorder {
    /// A recorder for a run with this plan.
    pub fn of(plan: Plan) -> Recorder {
        Recorder { plan, ..Recorder::default() }
    }

    /// A recorder for a run without what `dropped` does: a planted bug.
    pub fn without(dropped: Option<Site>) -> Recorder {
        Recorder::of(Plan::without(dropped))
    }

    /// The same for a disk.
    #[must_use]
    pub fn by(self, rule: Rule) -> Recorder {
        Recorder { rule, ..self }
    }

    /// The same for what is below a disk: of that nothing is planned.
    pub(crate) fn unplanned(&self) -> Recorder {
        Recorder { plan: Plan::default(), ..self.clone() }
    }

    /// What is left out, and what was met.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Everything recorded since the last call.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut lock_std(&self.events))
    }

    /// Adds a mark.
    pub fn mark(&self, mark: u64) {
        lock_std(&self.events).push(Event::Mark(mark));
    }

    pub(crate) fn store(&self, addr: Addr, bytes: &[u8]) {
        let thread = thread::current().id();
        let mut events = lock_std(&self.events);
        let mut done = 0;
        while done < bytes.len() {
            let at = addr.add(done as u64);
            let room = (self.rule.atom() - at.raw() % self.rule.atom()) as usize;
            let end = bytes.len().min(done + room);
            events.push(Event::Store { addr: at, bytes: bytes[done..end].to_vec(), thread });
            done = end;
        }
        drop(events);
        turns::step();
    }

    /// Records a fence, or a flush of a disk, unless it is left out; whether it was not.
    pub(crate) fn fence(&self, kind: SiteKind, location: &'static Location<'static>) -> bool {
        let is_done = self.plan.point(kind, location);
        if is_done {
            let site = Site::of(kind, location);
            lock_std(&self.events).push(Event::Fence { site, thread: thread::current().id() });
            turns::step();
        }
        is_done
    }
}

/// The recorder's own lock is never a scheduling point.
fn lock_std<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Stores to one line that a crash may keep a prefix of, oldest first: offset in the line and bytes.
pub type Pending = BTreeMap<Addr, Vec<(usize, Vec<u8>)>>;

/// A moment at which power may fail.
#[derive(Clone, Debug)]
pub struct CrashPoint {
    /// Number of events before it.
    pub after: usize,
    /// The last mark before it.
    pub mark: Option<u64>,
    /// The fence that it comes before.
    pub site: Option<Site>,
    /// Stores since the last fence, by line.
    pub pending: Pending,
    /// Which of them may persist.
    pub rule: Rule,
}

impl CrashPoint {
    /// The bytes of an image of this crash whose lines are decided by `choices`; others keep none of what is pending.
    pub fn decided(&self, base: &ImageBase, choices: &[Choice]) -> Vec<u8> {
        let mut bytes = base.bytes();
        for choice in choices {
            let place = choice.line.offset() as usize..(choice.line.offset() + self.rule.unit()) as usize;
            let pending = self.pending.get(&choice.line).map_or(&[][..], Vec::as_slice);
            let decided = contents(&bytes[place.clone()], pending).swap_remove(choice.taken);
            bytes[place].copy_from_slice(&decided);
        }
        bytes
    }
}

/// A store that a crash may lose: its thread, `None` if that was killed, where in the line, and the bytes.
type Unsettled = (Option<ThreadId>, usize, Vec<u8>);

/// The crash points of a trace, one after the other, with the memory that is certain at each.
///
/// One before every fence and every mark, and one at the end. A crash between two stores of an epoch needs no point of
/// its own: lines persist independently, so it leaves an image that a shorter prefix at the epoch's end leaves too.
pub struct CrashPoints<'e> {
    events: &'e [Event],
    base: ImageBase,
    rule: Rule,
    unsettled: BTreeMap<Addr, Vec<Unsettled>>,
    mark: Option<u64>,
    /// The event that the last point was before, or the next one after it.
    at: usize,
    is_before: bool,
    is_over: bool,
}

impl<'e> CrashPoints<'e> {
    /// The crash points of a trace that started from `image` (segment 0).
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn new(image: &[u8], events: &'e [Event]) -> Result<CrashPoints<'e>, Fault> {
        CrashPoints::by(Rule::Lines, image, events)
    }

    /// The same, of memory or of a disk.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn by(rule: Rule, image: &[u8], events: &'e [Event]) -> Result<CrashPoints<'e>, Fault> {
        let (unsettled, mark) = (BTreeMap::new(), None);
        let base = ImageBase::new(image)?;
        Ok(CrashPoints { events, base, rule, unsettled, mark, at: 0, is_before: false, is_over: false })
    }

    /// Memory as it must be at the last point, apart from what is pending there. It changes with the next one.
    pub fn base(&self) -> &ImageBase {
        &self.base
    }

    /// Passes over the points before event `at`.
    pub fn skip_to(&mut self, at: usize) {
        while self.at < at
            && let Some(event) = self.events.get(self.at)
        {
            self.apply(event);
            self.at += 1;
        }
        self.is_before = false;
    }

    /// The stores that a process leaves pending if it is killed at the last point, and the kill.
    pub fn killed(&self) -> Vec<Event> {
        let thread = thread::current().id();
        let stores = self.unsettled.iter().flat_map(|(line, stores)| {
            stores.iter().map(move |(_, within, bytes)| Event::Store {
                addr: line.add(*within as u64),
                bytes: bytes.clone(),
                thread,
            })
        });
        stores.chain([Event::Kill]).collect()
    }

    fn point(&self, site: Option<Site>) -> CrashPoint {
        let stores = |stores: &Vec<Unsettled>| {
            stores.iter().map(|(_, within, bytes)| (*within, bytes.clone())).collect()
        };
        let pending = self.unsettled.iter().map(|(&line, line_stores)| (line, stores(line_stores))).collect();
        CrashPoint { after: self.at, mark: self.mark, site, pending, rule: self.rule }
    }

    fn apply(&mut self, event: &'e Event) {
        match event {
            Event::Store { addr, bytes, thread } => {
                let line = addr.align_down(self.rule.unit());
                let within = (addr.raw() - line.raw()) as usize;
                self.unsettled.entry(line).or_default().push((Some(*thread), within, bytes.clone()));
            }
            Event::Fence { thread, site } => {
                let everything = self.rule == Rule::Sectors || site.kind == SiteKind::Flush;
                let base = &mut self.base;
                self.unsettled.retain(|line, stores| {
                    settle(base, *line, stores, |other| everything || other == Some(*thread));
                    !stores.is_empty()
                });
            }
            Event::Kill => {
                self.unsettled.values_mut().flatten().for_each(|store| store.0 = None);
            }
            Event::Mark(number) => self.mark = Some(*number),
        }
    }
}

impl Iterator for CrashPoints<'_> {
    type Item = CrashPoint;

    fn next(&mut self) -> Option<CrashPoint> {
        while let Some(event) = self.events.get(self.at) {
            let point = match event {
                Event::Fence { site, .. } if !self.unsettled.is_empty() => Some(Some(*site)),
                Event::Mark(_) => Some(None),
                Event::Store { .. } | Event::Fence { .. } | Event::Kill => None,
            };
            if let Some(site) = point.filter(|_| !std::mem::replace(&mut self.is_before, true)) {
                return Some(self.point(site));
            }
            self.apply(event);
            self.is_before = false;
            self.at += 1;
        }
        (!std::mem::replace(&mut self.is_over, true)).then(|| self.point(None))
    }
}

/// Makes the stores of a line persist, up to the last one of a thread whose stores `settles`.
fn settle(
    base: &mut ImageBase,
    line: Addr,
    stores: &mut Vec<Unsettled>,
    settles: impl Fn(Option<ThreadId>) -> bool,
) {
    let settled = stores.iter().rposition(|store| settles(store.0)).map_or(0, |last| last + 1);
    for (_, within, bytes) in stores.drain(..settled) {
        base.write(line.offset() + within as u64, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Medium, SegmentId};

    /// The next process's fences write back its own lines; only a flush writes back everybody's.
    #[test]
    fn a_killed_process_leaves_stores_that_only_a_flush_settles() {
        let (first, second) = (Addr::new(SegmentId(0), 0), Addr::new(SegmentId(0), 64));
        let thread = thread::current().id();
        let store = |addr, byte| Event::Store { addr, bytes: vec![byte], thread };
        let fence = |kind| Event::Fence { site: Site { kind, file: "here", line: 1 }, thread };
        let mut events = vec![store(first, 1), store(second, 1), Event::Kill, store(second, 2)];
        events.push(fence(SiteKind::Fence));
        let pending = |events: &[Event]| {
            let last = CrashPoints::new(&[0; 4096], events).expect("memory").last();
            last.expect("the end").pending.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(
            pending(&events),
            [first],
            "the second line was written back with what the next one stored"
        );
        events.push(fence(SiteKind::Flush));
        assert_eq!(pending(&events), []);
        let mut points = CrashPoints::new(&[0; 4096], &events).expect("memory");
        points.skip_to(5);
        assert_eq!(points.map(|point| point.after).collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn a_fence_settles_what_its_own_thread_stored() {
        let medium = Medium::traced(4096, Recorder::default()).expect("memory");
        let word = |number: u64| Addr::new(SegmentId(0), number * 8);
        let store = |number| drop(medium.write_word(word(number), number).expect("in bounds"));
        store(8);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                store(1);
                store(16);
            });
        });
        store(2);
        drop(medium.barrier(medium.epoch()));
        let events = medium.recorder().expect("traced").take();
        let mut points = CrashPoints::new(&[0; 4096], &events).expect("memory");
        let (first, base) = (points.next().expect("before the fence"), points.base().bytes());
        assert_eq!((first.pending.len(), first.after, base), (3, 4, vec![0; 4096]));
        assert!(first.site.is_some_and(|site| site.file.ends_with("trace.rs")));
        // The first line is flushed as a whole; what the other thread stored elsewhere is not.
        let (last, base) = (points.next().expect("the end"), points.base().bytes());
        assert_eq!((base[8], base[16], base[64]), (1, 2, 8));
        assert_eq!(last.pending.keys().collect::<Vec<_>>(), [&word(16)]);
        assert!(points.next().is_none() && points.next().is_none());
    }
}
