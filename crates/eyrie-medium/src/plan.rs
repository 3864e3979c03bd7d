//! Plans of tests: which points of the engine are left out, as by a mistake in it, and which of its calls fail.
//!
//! A point, or a call, is known by its [`Site`]. Media of tests have plans, and simulated disks, and a thread may have one for
//! what it asks of the host; for all others what is asked here goes without saying.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::Fault;

/// What a site does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum SiteKind {
    /// Orders stores: a barrier, or what settles a publish.
    Fence,
    /// Commits words.
    Publish,
    /// Compares a checksum with what it is of.
    Checksum,
    /// Asks a disk to make durable what was written.
    Flush,
    /// Stores bytes; on a disk, writes blocks.
    Write,
    /// Reads.
    Read,
    /// Takes storage.
    Allocate,
    /// Asks the host for memory, or blocks.
    Back,
    /// Gives memory, or blocks, back to the host.
    Unback,
    /// Asks the host for anything else: files, their sizes and locks, address space, threads.
    Host,
}

impl SiteKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            SiteKind::Fence => "fence",
            SiteKind::Publish => "publish",
            SiteKind::Checksum => "checksum",
            SiteKind::Flush => "flush",
            SiteKind::Write => "write",
            SiteKind::Read => "read",
            SiteKind::Allocate => "allocate",
            SiteKind::Back => "back",
            SiteKind::Unback => "unback",
            SiteKind::Host => "host",
        }
    }
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A call site in the engine and what it does: the name of a point, or of a call that may fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// What it does.
    pub kind: SiteKind,
    /// Source file.
    pub file: &'static str,
    /// Line in it.
    pub line: u32,
}

impl Site {
    pub(crate) fn of(kind: SiteKind, location: &'static Location<'static>) -> Site {
        Site { kind, file: location.file(), line: location.line() }
    }

    /// The failures of a place that made so many calls: of the first two and the last, and from each of these on.
    pub fn failures(self, kind: FailureKind, calls: u64) -> impl Iterator<Item = Failing> {
        let firsts: BTreeSet<u64> = [1, 2, calls].into_iter().filter(|&first| first <= calls).collect();
        let ways = firsts.into_iter().flat_map(|first| [false, true].map(|lasts| (first, lasts)));
        ways.map(move |(first, lasts)| Failing { site: self, kind, first, lasts })
    }

    /// Its file and line.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", self.kind, self.file, self.line)
    }
}

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FailureKind {
    /// There is no room (`ENOSPC`).
    Full,
    /// The host cannot do it (`EIO`).
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
            FailureKind::Io => Fault::Io { what: "a failure was planned".to_string(), source: kind.into() },
        }
    }
}

/// The calls that fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failing {
    /// Whose.
    pub site: Site,
    /// How.
    pub kind: FailureKind,
    /// The first that fails, of those that the site makes from now on (1 is the next).
    pub first: u64,
    /// Whether those after it fail, too.
    pub lasts: bool,
}

#[derive(Default)]
struct State {
    points: BTreeMap<Site, u64>,
    calls: BTreeMap<Site, u64>,
    last: Option<Site>,
    dropped: Option<Site>,
    failing: Option<Failing>,
    /// Pages that were accessed since `failing` was set, which are in memory.
    touched: BTreeSet<u64>,
    /// Calls of `failing` since it was set.
    met: u64,
    failed: u64,
}

/// What a test does to an engine, and which sites the engine came by. Clones are the same plan.
#[derive(Clone, Default)]
pub struct Plan {
    state: Arc<Mutex<State>>,
    /// Whether calls that may fail are counted: there are many.
    counts_calls: Arc<AtomicBool>,
}

thread_local! {
    /// The plan of what this thread asks of the host.
    static OF_THREAD: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

/// Asks the host for something, unless the plan of this thread has that fail.
///
/// # Errors
/// Those of the call, or the planned one.
#[track_caller]
pub fn host_call<T, E: From<FailureKind>>(call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    ask(SiteKind::Host, Location::caller())?;
    call()
}

/// Fails if this thread's plan has a call to the host fail.
pub(crate) fn ask(kind: SiteKind, location: &'static Location<'static>) -> Result<(), FailureKind> {
    // A thread that is ending has no plan.
    let failure =
        OF_THREAD.try_with(|plan| plan.borrow().as_ref().and_then(|plan| plan.call(kind, location)));
    failure.ok().flatten().map_or(Ok(()), Err)
}

impl Plan {
    /// Runs something with this plan for what the thread asks of the host: about files, on a file of a disk, and for room.
    pub fn on_this_thread<T>(&self, run: impl FnOnce() -> T) -> T {
        struct Before(Option<Plan>);
        impl Drop for Before {
            fn drop(&mut self) {
                OF_THREAD.set(self.0.take());
            }
        }
        let _before = Before(OF_THREAD.replace(Some(self.clone())));
        run()
    }

    /// A plan without what `dropped` does: a planted bug.
    pub fn without(dropped: Option<Site>) -> Plan {
        Plan { state: Arc::new(Mutex::new(State { dropped, ..State::default() })), ..Plan::default() }
    }

    /// The plan's own lock is never a scheduling point.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every point that was met so far and how often, what is left out included.
    pub fn points(&self) -> BTreeMap<Site, u64> {
        self.state().points.clone()
    }

    /// The point that was met last.
    pub fn last_point(&self) -> Option<Site> {
        self.state().last
    }

    /// Counts calls that may fail from now on.
    pub fn count_calls(&self) {
        self.counts_calls.store(true, Ordering::Relaxed);
    }

    /// The calls that were counted so far.
    pub fn calls(&self) -> BTreeMap<Site, u64> {
        self.state().calls.clone()
    }

    /// Lets calls fail from now on; `None`: no more. An access of a page may fail until one has not: then the page is in
    /// memory, where it stays for as long as one call on files takes.
    pub fn fail(&self, failing: Option<Failing>) {
        let mut state = self.state();
        state.touched.clear();
        (state.failing, state.met, state.failed) = (failing, 0, 0);
        self.counts_calls.store(true, Ordering::Relaxed);
    }

    /// Calls that have failed since [`Plan::fail`].
    pub fn failed(&self) -> u64 {
        self.state().failed
    }

    /// A point is met; whether what it does is done.
    pub(crate) fn point(&self, kind: SiteKind, location: &'static Location<'static>) -> bool {
        let site = Site::of(kind, location);
        let mut state = self.state();
        *state.points.entry(site).or_default() += 1;
        state.last = Some(site);
        state.dropped != Some(site)
    }

    /// A call that may fail is met; how it fails, if it does.
    pub(crate) fn call(&self, kind: SiteKind, location: &'static Location<'static>) -> Option<FailureKind> {
        if !self.counts_calls.load(Ordering::Relaxed) {
            return None;
        }
        self.state().call(Site::of(kind, location))
    }

    /// An access of `pages` is met; how it fails, if it does.
    pub(crate) fn access(
        &self,
        kind: SiteKind,
        location: &'static Location<'static>,
        pages: Range<u64>,
    ) -> Option<FailureKind> {
        if !self.counts_calls.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state();
        if pages.clone().all(|page| state.touched.contains(&page)) {
            return None;
        }
        let failure = state.call(Site::of(kind, location));
        if failure.is_none() {
            state.touched.extend(pages);
        }
        failure
    }
}

impl State {
    fn call(&mut self, site: Site) -> Option<FailureKind> {
        *self.calls.entry(site).or_default() += 1;
        let failing = self.failing.filter(|failing| failing.site == site)?;
        self.met += 1;
        let fails = self.met == failing.first || failing.lasts && self.met > failing.first;
        self.failed += u64::from(fails);
        fails.then_some(failing.kind)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn asked() -> Result<(), Errno> {
        host_call(|| Ok(()))
    }

    #[test]
    fn a_plan_is_that_of_its_thread_until_what_it_was_for_ends() {
        let plan = Plan::default();
        plan.count_calls();
        let site = plan.on_this_thread(|| asked().map(|()| *plan.calls().keys().next().expect("it counts")));
        let site = site.expect("nothing fails");
        plan.fail(Some(Failing { site, kind: FailureKind::Full, first: 1, lasts: true }));
        let other = Plan::default();
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
