//! Plans of faults. A plan names a point of the engine to leave out, as a bug would, and calls that fail.
//!
//! A [`Site`] names a point or a call. The media of tests and simulated disks have plans, and a thread may
//! have a plan for its calls to the host. Without a plan no point is left out and no call is made to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use eyrie_medium::host::{self, HostObserver};
use eyrie_medium::sync::unpoisoned;
use eyrie_medium::{Addr, Caller, Fault, PAGE_SIZE, SiteKind};
use rustix::io::Errno;

/// A call site in the sources, which names a point or a call that may fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// The kind of work that the call does.
    pub kind: SiteKind,
    /// The source file.
    pub file: &'static str,
    /// The line in the file.
    pub line: u32,
}

impl Site {
    pub(crate) fn of(kind: SiteKind, caller: Caller) -> Site {
        Site { kind, file: caller.file(), line: caller.line() }
    }

    /// Returns the failures to try at a site that made `calls` calls. Each failure begins at the first, the
    /// second or the last call. It is tried for that call alone, and for that call and all later calls.
    pub fn failures(self, kind: FailureKind, calls: u64) -> impl Iterator<Item = Failing> {
        let firsts: BTreeSet<u64> = [1, 2, calls].into_iter().filter(|&first| first <= calls).collect();
        let ways =
            firsts.into_iter().flat_map(|first| [false, true].map(|is_persistent| (first, is_persistent)));
        ways.map(move |(first, is_persistent)| Failing { site: self, kind, first, is_persistent })
    }

    /// Returns the file and line as text.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", self.kind, self.file, self.line)
    }
}

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FailureKind {
    /// The host has no room (`ENOSPC`).
    Full,
    /// The host fails to make the call (`EIO`).
    Io,
}

impl From<FailureKind> for Errno {
    fn from(kind: FailureKind) -> Errno {
        match kind {
            FailureKind::Full => Errno::NOSPC,
            FailureKind::Io => Errno::IO,
        }
    }
}

impl From<FailureKind> for io::Error {
    fn from(kind: FailureKind) -> io::Error {
        Errno::from(kind).into()
    }
}

impl From<FailureKind> for Fault {
    fn from(kind: FailureKind) -> Fault {
        match kind {
            FailureKind::Full => Fault::HostFull,
            FailureKind::Io => Fault::Io { what: "an injected failure".to_string(), source: kind.into() },
        }
    }
}

/// The calls of one site that fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failing {
    /// The site of the calls.
    pub site: Site,
    /// The kind of the failure.
    pub kind: FailureKind,
    /// Number of the first call that fails. The first call of the site after [`FaultPlan::fail`] is number 1.
    pub first: u64,
    /// True if all later calls fail, too.
    pub is_persistent: bool,
}

/// Counts calls down to the first one that fails.
#[derive(Clone, Copy)]
pub(crate) struct Countdown {
    /// Number of calls before the first failure. `None` after that failure.
    left: Option<u64>,
    is_persistent: bool,
}

impl Countdown {
    /// Makes a countdown to call number `first`. The next call is number 1. If `is_persistent` is true, all
    /// later calls fail, too.
    pub(crate) fn new(first: u64, is_persistent: bool) -> Countdown {
        Countdown { left: first.checked_sub(1), is_persistent }
    }

    /// Counts a call. Returns true if this call fails.
    pub(crate) fn next_fails(&mut self) -> bool {
        match self.left {
            None => self.is_persistent,
            Some(left) => {
                self.left = left.checked_sub(1);
                left == 0
            }
        }
    }
}

#[derive(Default)]
struct PlanState {
    points: BTreeMap<Site, u64>,
    calls: BTreeMap<Site, u64>,
    last: Option<Site>,
    dropped: Option<Site>,
    failing: Option<(Failing, Countdown)>,
    /// Pages that were accessed without a failure since the last [`FaultPlan::fail`], or since the plan began
    /// to count calls. On a disk these pages are in memory, so a further access to them does not fail.
    touched: BTreeSet<u64>,
    failed: u64,
}

/// The faults that a test injects into an engine, and the sites that the engine has reached. Clones share the
/// plan.
#[derive(Clone, Default)]
pub struct FaultPlan {
    state: Arc<Mutex<PlanState>>,
    /// True if the plan counts calls that may fail. Counting is optional, because there are many such calls.
    counts_calls: Arc<AtomicBool>,
}

impl FaultPlan {
    /// Runs `run`, and applies this plan to the calls that the thread makes to the host meanwhile.
    pub fn on_this_thread<T>(&self, run: impl FnOnce() -> T) -> T {
        host::observed_by(Rc::new(self.clone()), run)
    }

    /// Makes a plan that leaves the point `dropped` out, as a planted bug.
    pub fn without(dropped: Option<Site>) -> FaultPlan {
        FaultPlan {
            state: Arc::new(Mutex::new(PlanState { dropped, ..PlanState::default() })),
            ..FaultPlan::default()
        }
    }

    /// Locks the state with a plain lock, which is never a scheduling point.
    fn state(&self) -> MutexGuard<'_, PlanState> {
        unpoisoned(self.state.lock())
    }

    /// Returns every point that was reached so far, with the number of times. The point that is left out is
    /// counted, too.
    pub fn points(&self) -> BTreeMap<Site, u64> {
        self.state().points.clone()
    }

    /// Returns the point that was reached last.
    pub fn last_point(&self) -> Option<Site> {
        self.state().last
    }

    /// Starts to count the calls that may fail.
    pub fn count_calls(&self) {
        self.counts_calls.store(true, Ordering::Relaxed);
    }

    /// Returns the number of calls that each site has made while calls were counted. An access to a page that
    /// counts as in memory makes no call.
    pub fn calls(&self) -> BTreeMap<Site, u64> {
        self.state().calls.clone()
    }

    /// From now on, makes the calls that `failing` names fail, or no call if `failing` is `None`. Accesses to
    /// a page may fail until one of them succeeds. As on a disk, that access brings the page into memory, and
    /// later accesses to the page do not fail.
    pub fn fail(&self, failing: Option<Failing>) {
        let mut state = self.state();
        state.touched.clear();
        state.failing =
            failing.map(|failing| (failing, Countdown::new(failing.first, failing.is_persistent)));
        state.failed = 0;
        self.counts_calls.store(true, Ordering::Relaxed);
    }

    /// Returns the number of calls that have failed since [`FaultPlan::fail`].
    pub fn failed(&self) -> u64 {
        self.state().failed
    }

    /// Notes that a point was reached. Returns false if the caller must leave the point out.
    pub(crate) fn point(&self, kind: SiteKind, caller: Caller) -> bool {
        let site = Site::of(kind, caller);
        let mut state = self.state();
        *state.points.entry(site).or_default() += 1;
        state.last = Some(site);
        state.dropped != Some(site)
    }

    /// Notes a call that may fail. Returns the kind of the failure if the call must fail.
    pub(crate) fn call(&self, kind: SiteKind, caller: Caller) -> Option<FailureKind> {
        if !self.counts_calls.load(Ordering::Relaxed) {
            return None;
        }
        self.state().call(Site::of(kind, caller))
    }

    /// Notes an access to `len` bytes at `addr`. Returns an error if the access must fail.
    pub(crate) fn access(&self, kind: SiteKind, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        if !self.counts_calls.load(Ordering::Relaxed) {
            return Ok(());
        }
        let pages = addr.raw() / PAGE_SIZE..(addr.raw() + len).div_ceil(PAGE_SIZE);
        let mut state = self.state();
        // If the pages are in memory, the access makes no call that could fail.
        if pages.clone().all(|page| state.touched.contains(&page)) {
            return Ok(());
        }
        if let Some(failure) = state.call(Site::of(kind, caller)) {
            return Err(failure.into());
        }
        state.touched.extend(pages);
        Ok(())
    }
}

impl HostObserver for FaultPlan {
    fn before_call(&self, kind: SiteKind, caller: Caller) -> Result<(), Errno> {
        self.call(kind, caller).map_or(Ok(()), |failure| Err(failure.into()))
    }
}

impl PlanState {
    fn call(&mut self, site: Site) -> Option<FailureKind> {
        *self.calls.entry(site).or_default() += 1;
        let (failing, countdown) = self.failing.as_mut().filter(|(failing, _)| failing.site == site)?;
        let fails = countdown.next_fails();
        self.failed += u64::from(fails);
        fails.then_some(failing.kind)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn asked() -> Result<(), Errno> {
        host::call(|| Ok(()))
    }

    #[test]
    fn plan_applies_to_its_thread_until_its_run_ends() {
        let plan = FaultPlan::default();
        plan.count_calls();
        let site = plan.on_this_thread(|| asked().map(|()| *plan.calls().keys().next().expect("it counts")));
        let site = site.expect("nothing fails");
        plan.fail(Some(Failing { site, kind: FailureKind::Full, first: 1, is_persistent: true }));
        let other = FaultPlan::default();
        let panicked = catch_unwind(|| {
            plan.on_this_thread(|| {
                assert_eq!(asked(), Err(Errno::NOSPC));
                assert_eq!(other.on_this_thread(asked), Ok(()));
                assert_eq!(std::thread::spawn(asked).join().expect("it ran"), Ok(()));
                assert_eq!(asked(), Err(Errno::NOSPC));
                panic!("on purpose");
            })
        });
        assert!(panicked.is_err_and(|what| what.is::<&str>()));
        assert_eq!((asked(), plan.failed()), (Ok(()), 2));
    }
}
