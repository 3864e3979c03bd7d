//! Records of the events of a medium or a disk.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use eyrie_medium::sync::{schedule, unpoisoned};
use eyrie_medium::{Addr, Caller, Fault, Mapped, Medium, Observer, SiteKind};

use crate::plan::{FaultPlan, Site};
use crate::rule::CrashRule;

/// One event of a medium or a disk. A store event is within one word (or sector). A longer store is recorded
/// as several events. There is no event for a write-back: each store counts as written back before the next
/// fence of its thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes were stored.
    Store {
        /// The address.
        addr: Addr,
        /// The bytes, which do not tear.
        bytes: Vec<u8>,
        /// The thread.
        thread: ThreadId,
    },
    /// A fence or a flush, as the kind of the site says. A fence makes all earlier stores of its thread
    /// durable, and a flush makes all earlier stores of all threads durable. [`CrashRule`] has the exact
    /// rules.
    Fence {
        /// The call site.
        site: Site,
        /// The thread.
        thread: ThreadId,
    },
    /// The process was killed. The next process reads all stores of the killed process, but a power failure
    /// may still undo the stores that no fence of their thread followed. A later fence makes such a store
    /// durable only if the thread of the fence has stored to the same line. A flush makes all these stores
    /// durable.
    Kill,
    /// A mark of the test, for example "Op 3 returned".
    Mark(u64),
}

/// A recorder of the events of a medium or a disk. Clones share the record, and stay valid after the medium
/// is dropped.
#[derive(Clone, Default)]
pub struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
    plan: FaultPlan,
    rule: CrashRule,
}

impl Recorder {
    /// Makes a recorder for a run with this plan.
    pub fn of(plan: FaultPlan) -> Recorder {
        Recorder { plan, ..Recorder::default() }
    }

    /// Makes a recorder for a run that leaves the point `dropped` out, as a planted bug.
    pub fn without(dropped: Option<Site>) -> Recorder {
        Recorder::of(FaultPlan::without(dropped))
    }

    /// Returns the same recorder, which splits stores into the units that do not tear under `rule`.
    #[must_use]
    pub fn by(self, rule: CrashRule) -> Recorder {
        Recorder { rule, ..self }
    }

    /// Returns the plan of the run.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Removes and returns the events since the last call.
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
            // The store is split into units that do not tear, because a crash may keep each unit without the
            // other units.
            let room = (self.rule.atom() - at.raw() % self.rule.atom()) as usize;
            let end = bytes.len().min(done + room);
            events.push(Event::Store { addr: at, bytes: bytes[done..end].to_vec(), thread });
            done = end;
        }
        drop(events);
        // The lock is released before this step, because another thread may run now and record its own
        // stores.
        schedule::step();
    }

    /// Records a fence or a flush. Returns false, and records nothing, if the plan leaves this point out.
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

    fn fences_make_durable(&self) -> bool {
        true
    }
}

/// Makes a medium of private memory, `len` bytes of zeros. `recorder` records its stores and fences.
///
/// # Errors
/// [`Fault::Io`] when there is no memory.
pub fn traced(len: u64, recorder: Recorder) -> Result<Medium, Fault> {
    Ok(Medium::memory(len)?.observed_by(Arc::new(recorder)))
}

/// Makes a medium of private memory that holds `base`. `recorder` records all further stores and fences.
///
/// # Errors
/// [`Fault::Io`] when there is no memory.
pub fn traced_from(base: &[u8], recorder: Recorder) -> Result<Medium, Fault> {
    Ok(Medium::memory_holding(base)?.observed_by(Arc::new(recorder)))
}
