//! Records of the events of a medium or a disk.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use eyrie_medium::sync::{schedule, unpoisoned};
use eyrie_medium::{Addr, Caller, Fault, Mapped, Medium, Observer, SiteKind};

use crate::plan::{FaultPlan, Site};
use crate::rule::CrashRule;

/// One event of a medium. A store is within one word (or sector); longer ones are recorded as several events.
/// Each store is written back at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes were stored.
    Store {
        /// The address.
        addr: Addr,
        /// The bytes. They do not tear.
        bytes: Vec<u8>,
        /// The thread.
        thread: ThreadId,
    },
    /// All earlier stores of the thread persist before any later one.
    Fence {
        /// The call site.
        site: Site,
        /// The thread.
        thread: ThreadId,
    },
    /// The process died. The next process reads all its stores, but the fences of that process settle none of
    /// them, because a store may be visible to every process before its line is written back.
    Kill,
    /// A mark of the test, for example "Op 3 returned".
    Mark(u64),
}

/// Records the events of a medium. Clones share the record and outlive the medium.
#[derive(Clone, Default)]
pub struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
    plan: FaultPlan,
    rule: CrashRule,
}

impl Recorder {
    /// A recorder for a run with this plan.
    pub fn of(plan: FaultPlan) -> Recorder {
        Recorder { plan, ..Recorder::default() }
    }

    /// A recorder for a run that leaves the point `dropped` out: a planted bug.
    pub fn without(dropped: Option<Site>) -> Recorder {
        Recorder::of(FaultPlan::without(dropped))
    }

    /// The same recorder, with the units of `rule`.
    #[must_use]
    pub fn by(self, rule: CrashRule) -> Recorder {
        Recorder { rule, ..self }
    }

    /// The plan of the run.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Takes the events since the last call.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *unpoisoned(self.events.lock()))
    }

    /// Adds a mark.
    pub fn mark(&self, mark: u64) {
        unpoisoned(self.events.lock()).push(Event::Mark(mark));
    }

    /// Records a store.
    pub(crate) fn store(&self, addr: Addr, bytes: &[u8]) {
        let thread = thread::current().id();
        let mut events = unpoisoned(self.events.lock());
        let mut done = 0;
        while done < bytes.len() {
            let at = addr.add(done as u64);
            // Cut at the units that do not tear: a crash may keep each without the others.
            let room = (self.rule.atom() - at.raw() % self.rule.atom()) as usize;
            let end = bytes.len().min(done + room);
            events.push(Event::Store { addr: at, bytes: bytes[done..end].to_vec(), thread });
            done = end;
        }
        drop(events);
        // After the lock is released, because another thread may run now and record its own stores.
        schedule::step();
    }

    /// Records a fence, or a flush of a disk, unless the plan leaves it out. Returns false if it does.
    pub(crate) fn order(&self, kind: SiteKind, caller: Caller) -> bool {
        let is_done = self.plan.point(kind, caller);
        if is_done {
            let site = Site::of(kind, caller);
            unpoisoned(self.events.lock()).push(Event::Fence { site, thread: thread::current().id() });
            schedule::step();
        }
        is_done
    }
}

impl Observer for Recorder {
    fn before_read(&self, _: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        self.plan.access(SiteKind::Read, addr, len, caller)
    }

    fn before_store(&self, _: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        self.plan.access(SiteKind::Write, addr, len, caller)
    }

    fn before_publish(&self, _: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<bool, Fault> {
        self.plan.access(SiteKind::Publish, addr, len, caller)?;
        Ok(self.plan.point(SiteKind::Publish, caller))
    }

    fn after_store(&self, addr: Addr, bytes: &[u8]) {
        self.store(addr, bytes);
    }

    fn fence(&self, caller: Caller) {
        self.order(SiteKind::Fence, caller);
    }

    fn flush(&self, caller: Caller) {
        self.order(SiteKind::Flush, caller);
    }

    fn compares_checksum(&self, caller: Caller) -> bool {
        self.plan.point(SiteKind::Checksum, caller)
    }

    fn before_call(&self, kind: SiteKind, caller: Caller) -> Result<(), Fault> {
        self.plan.call(kind, caller).map_or(Ok(()), |failure| Err(failure.into()))
    }

    fn lasts_from_fences(&self) -> bool {
        true
    }
}

/// A medium of private memory, `len` bytes of zeros, whose stores and fences are recorded.
///
/// # Errors
/// [`Fault::Io`] when there is no memory.
pub fn traced(len: u64, recorder: Recorder) -> Result<Medium, Fault> {
    Ok(Medium::memory(len)?.observed_by(Arc::new(recorder)))
}

/// A medium of private memory that holds `base`, whose further stores and fences are recorded.
///
/// # Errors
/// [`Fault::Io`] when there is no memory.
pub fn traced_from(base: &[u8], recorder: Recorder) -> Result<Medium, Fault> {
    Ok(Medium::memory_holding(base)?.observed_by(Arc::new(recorder)))
}
