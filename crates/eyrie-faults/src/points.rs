//! The moments of a trace at which power may fail, and the stores that are pending at each moment: those that
//! the power failure may lose.

use std::collections::BTreeMap;
use std::thread::{self, ThreadId};

use eyrie_medium::{Addr, Fault, SiteKind};

use crate::base::ImageBase;
use crate::plan::Site;
use crate::record::Event;
use crate::rule::{CrashRule, Pending, contents};

/// The choice of the contents of one line (or sector).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The line.
    pub line: Addr,
    /// Index of the chosen contents. Index 0 is the line without any of its pending stores.
    pub taken: usize,
    /// Number of possible contents of the line, at least 1.
    pub options: usize,
}

/// A moment at which power may fail.
#[derive(Clone, Debug)]
pub struct CrashPoint {
    /// Number of events before this moment.
    pub after: usize,
    /// The last mark before this moment.
    pub mark: Option<u64>,
    /// The site of the next event, if that event is a fence.
    pub site: Option<Site>,
    /// The pending stores, by line.
    pub pending: Pending,
    /// The rule that decides which of the pending stores may persist.
    pub rule: CrashRule,
}

impl CrashPoint {
    /// Returns the bytes of the image of this crash that `choices` describes. Lines without a choice keep
    /// none of their pending stores.
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

/// A store that a crash may lose: its thread (`None` if the thread was killed), its offset in the line, and
/// its bytes.
type Unsettled = (Option<ThreadId>, usize, Vec<u8>);

/// The crash points of a trace, in order, and the memory that is durable at each of them. A crash point is a
/// moment at which the explorer lets the power fail.
///
/// The trace has a crash point before every fence at which stores are pending, before every mark, and at the
/// end of the trace. A crash between two stores needs no point of its own. Lines persist independently of
/// each other, so the next point has the images of that crash, too.
pub struct CrashPoints<'e> {
    events: &'e [Event],
    base: ImageBase,
    rule: CrashRule,
    unsettled: BTreeMap<Addr, Vec<Unsettled>>,
    mark: Option<u64>,
    /// Number of the next event.
    at: usize,
    /// True if the iterator has returned the point before event number `at`.
    is_before: bool,
    /// True if the iterator has returned the point at the end.
    is_over: bool,
}

impl<'e> CrashPoints<'e> {
    /// Makes the iterator over the crash points of a trace of memory. `image` has the bytes of segment 0
    /// before the trace.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn new(image: &[u8], events: &'e [Event]) -> Result<CrashPoints<'e>, Fault> {
        CrashPoints::by(CrashRule::Lines, image, events)
    }

    /// As [`CrashPoints::new`], for memory or for a disk as `rule` says.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn by(rule: CrashRule, image: &[u8], events: &'e [Event]) -> Result<CrashPoints<'e>, Fault> {
        let (unsettled, mark) = (BTreeMap::new(), None);
        let base = ImageBase::new(image)?;
        Ok(CrashPoints { events, base, rule, unsettled, mark, at: 0, is_before: false, is_over: false })
    }

    /// Returns the memory that is durable at the point that the iterator returned last, without its pending
    /// stores. The next call of the iterator changes this memory.
    pub fn base(&self) -> &ImageBase {
        &self.base
    }

    /// Skips every point with fewer than `at` events before it.
    pub fn skip_to(&mut self, at: usize) {
        while self.at < at
            && let Some(event) = self.events.get(self.at)
        {
            self.apply(event);
            self.at += 1;
        }
        self.is_before = false;
    }

    /// Returns the events with which the trace of the next process begins, if a process is killed at the
    /// point that the iterator returned last. They are the pending stores at that point, and the kill.
    pub fn killed(&self) -> Vec<Event> {
        // Any thread will do here, because the kill after these stores removes their thread.
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

    /// Makes the crash point before the next event.
    fn point(&self, site: Option<Site>) -> CrashPoint {
        let stores = |stores: &Vec<Unsettled>| {
            stores.iter().map(|(_, within, bytes)| (*within, bytes.clone())).collect()
        };
        let pending = self.unsettled.iter().map(|(&line, line_stores)| (line, stores(line_stores))).collect();
        CrashPoint { after: self.at, mark: self.mark, site, pending, rule: self.rule }
    }

    /// Applies an event to the durable memory and the pending stores.
    fn apply(&mut self, event: &'e Event) {
        match event {
            Event::Store { addr, bytes, thread } => {
                let line = addr.align_down(self.rule.unit());
                let within = (addr.raw() - line.raw()) as usize;
                self.unsettled.entry(line).or_default().push((Some(*thread), within, bytes.clone()));
            }
            Event::Fence { thread, site } => {
                let everything = self.rule == CrashRule::Sectors || site.kind == SiteKind::Flush;
                let base = &mut self.base;
                self.unsettled.retain(|line, stores| {
                    settle(base, *line, stores, |other| everything || other == Some(*thread));
                    !stores.is_empty()
                });
            }
            Event::Kill => {
                // A killed thread makes no later fence, so no fence may match the thread of its stores.
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
                // A fence without pending stores needs no point, because the images before and after the
                // fence are equal.
                Event::Fence { site, .. } if !self.unsettled.is_empty() => Some(Some(*site)),
                Event::Mark(_) => Some(None),
                Event::Store { .. } | Event::Fence { .. } | Event::Kill => None,
            };
            // A point comes before its event. So the first call returns the point, and the next call applies
            // the event.
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

/// Makes a prefix of the stores of a line durable: up to the last store for whose thread `settles` returns
/// true.
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
    use eyrie_medium::{Dirty, SegmentId};

    use super::*;
    use crate::record::{Recorder, traced};

    /// A fence of the next process makes stores of the killed process durable only in lines to which the next
    /// process has stored. A flush makes all lines durable.
    #[test]
    fn flush_settles_stores_of_a_killed_process() {
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
            "the second line was written back with the next process's store"
        );
        events.push(fence(SiteKind::Flush));
        assert_eq!(pending(&events), []);
        let mut points = CrashPoints::new(&[0; 4096], &events).expect("memory");
        points.skip_to(5);
        assert_eq!(points.map(|point| point.after).collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn fence_settles_stores_of_its_own_thread() {
        let recorder = Recorder::default();
        let medium = traced(4096, recorder.clone()).expect("memory");
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
        drop(medium.barrier(Dirty::nothing()));
        let events = recorder.take();
        let mut points = CrashPoints::new(&[0; 4096], &events).expect("memory");
        let (first, base) = (points.next().expect("before the fence"), points.base().bytes());
        assert_eq!((first.pending.len(), first.after, base), (3, 4, vec![0; 4096]));
        assert!(first.site.is_some_and(|site| site.file.ends_with("points.rs")));
        // The fence makes all stores to the first line durable, but not the store of the other thread to
        // another line.
        let (last, base) = (points.next().expect("the end"), points.base().bytes());
        assert_eq!((base[8], base[16], base[64]), (1, 2, 8));
        assert_eq!(last.pending.keys().collect::<Vec<_>>(), [&word(16)]);
        assert!(points.next().is_none() && points.next().is_none());
    }
}
