//! Compares advisory locks with those of the kernel: random calls of several owners, and deadlocks.
//!
//! Each side has actors, which are threads. For locks, the kernel treats a thread as a process if the thread
//! has its own table of descriptors. A further actor on each side only probes: after each call it lists the
//! range locks of all files, and the test compares the lists of both sides.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use eyrie::posix::{OpenFlags, PosixExt};
use eyrie::{Credentials, Engine, Errno, FoundLock, Host, LockKind, LockWait, PosixLocks, Pxfs, RangeOwner};
use eyrie_engine::Owner;
use eyrie_engine::scm::Scm;
use eyrie_medium::Medium;
use eyrie_sim::explore::fixed_options;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::counter;

const ACTORS: usize = 3;
const FILES: [&str; 2] = ["/a", "/b"];
/// Open files of each actor.
const SLOTS: usize = 4;
/// A call without an answer after this time counts as waiting.
const BEGINS_TO_WAIT: Duration = Duration::from_millis(50);

/// A call of one actor.
#[derive(Clone, Debug)]
enum LockCall {
    Open {
        slot: usize,
        file: usize,
        flags: OpenFlags,
    },
    Close {
        slot: usize,
    },
    Flock {
        slot: usize,
        kind: Option<LockKind>,
    },
    Set {
        slot: usize,
        owner: RangeOwner,
        range: (u64, u64),
        kind: Option<LockKind>,
        waits: bool,
    },
    Find {
        slot: usize,
        owner: RangeOwner,
        range: (u64, u64),
        kind: LockKind,
    },
    /// Lists all range locks that conflict with an exclusive lock of this open file.
    Probe {
        slot: usize,
    },
}

/// The locks that a call found: kind, start, length, and true if a process owns the lock.
type LockAnswer = Result<Vec<(LockKind, u64, u64, bool)>, Errno>;

fn shown(found: FoundLock) -> (LockKind, u64, u64, bool) {
    // A mount reports the process 0 for an open file.
    (found.kind, found.start, found.length, found.process.is_some_and(|process| process != 0))
}

/// Makes a call.
fn perform<P: PosixLocks>(fs: &P, slots: &mut [Option<P::Handle>], call: &LockCall) -> LockAnswer {
    let nothing = |()| Vec::new();
    let result = match call {
        LockCall::Open { slot, file, flags } => {
            if let Some(old) = slots[*slot].take() {
                fs.close(old).map_err(|error| error.errno())?;
            }
            fs.open(FILES[*file].into(), *flags, 0).map(|handle| slots[*slot] = Some(handle)).map(nothing)
        }
        LockCall::Close { slot } => slots[*slot].take().map_or(Ok(()), |old| fs.close(old)).map(nothing),
        LockCall::Flock { slot, .. }
        | LockCall::Set { slot, .. }
        | LockCall::Find { slot, .. }
        | LockCall::Probe { slot } => match &slots[*slot] {
            Some(handle) => on_handle(fs, handle, call),
            None => Ok(Vec::new()),
        },
    };
    result.map_err(|error| error.errno())
}

fn on_handle<P: PosixLocks>(
    fs: &P,
    handle: &P::Handle,
    call: &LockCall,
) -> eyrie::Result<Vec<(LockKind, u64, u64, bool)>> {
    match *call {
        LockCall::Flock { kind, .. } => fs.flock(handle, kind, LockWait::NO)?,
        LockCall::Set { owner, range, kind, waits, .. } => {
            let wait = if waits { LockWait::FOREVER } else { LockWait::NO };
            fs.set_range_lock(handle, owner, range, kind, wait)?;
        }
        LockCall::Find { owner, range, kind, .. } => {
            let found = fs.find_range_lock(handle, owner, range, kind)?;
            return Ok(found.into_iter().map(shown).collect());
        }
        _ => {
            let (mut all, mut start) = (Vec::new(), 0);
            let find =
                |start| fs.find_range_lock(handle, RangeOwner::OpenFile, (start, 0), LockKind::Exclusive);
            while let Some(found) = find(start)? {
                all.push(shown(found));
                match found.length {
                    0 => break,
                    length => start = found.start + length,
                }
            }
            return Ok(all);
        }
    }
    Ok(Vec::new())
}

/// A thread that makes calls.
struct Actor {
    calls: Sender<LockCall>,
    answers: Receiver<LockAnswer>,
    thread: JoinHandle<()>,
}

impl Actor {
    fn new<P: PosixLocks>(fs: impl FnOnce() -> P + Send + 'static) -> Actor {
        let ((calls, to_do), (done, answers)) = (channel(), channel());
        let thread = thread::spawn(move || {
            let fs = fs();
            let mut slots: Vec<Option<P::Handle>> = (0..SLOTS).map(|_| None).collect();
            for call in to_do {
                if done.send(perform(&fs, &mut slots, &call)).is_err() {
                    break;
                }
            }
            for handle in slots.into_iter().flatten() {
                fs.close(handle).expect("open files close");
            }
        });
        Actor { calls, answers, thread }
    }

    /// Returns an actor that uses the kernel, in this directory.
    fn of_kernel(root: &Path) -> Actor {
        let root = root.to_owned();
        Actor::new(move || {
            #[expect(deprecated, reason = "the safe form; this thread uses no descriptor of another one")]
            rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).expect("a table of descriptors");
            Host::new(root).expect("the root can be opened")
        })
    }

    fn begin(&self, call: &LockCall) {
        self.calls.send(call.clone()).expect("the actor lives");
    }

    fn end(&self) -> LockAnswer {
        self.answers.recv().expect("the actor lives")
    }

    fn make(&self, call: &LockCall) -> LockAnswer {
        self.begin(call);
        self.end()
    }

    /// Returns true if the call that the actor has begun is waiting. Panics if the call has an answer.
    fn is_waiting(&self) -> bool {
        match self.answers.recv_timeout(BEGINS_TO_WAIT) {
            Ok(answer) => panic!("the call did not wait: {answer:?}"),
            Err(_) => true,
        }
    }
}

/// The actors of one side. The last one only probes.
struct Side(Vec<Actor>);

impl Side {
    fn of_kernel(root: &Path) -> Side {
        Side((0..=ACTORS).map(|_| Actor::of_kernel(root)).collect())
    }

    fn of<E: Engine + 'static>(engine: &Arc<E>) -> Side {
        let actor = |number: usize| {
            let engine = Arc::clone(engine);
            Actor::new(move || Pxfs::new(engine, Credentials::root()).with_lock_process(1 + number as u64))
        };
        Side((0..=ACTORS).map(actor).collect())
    }

    /// Waits until all actors have closed their files.
    fn end(self) {
        for Actor { calls, thread, .. } in self.0 {
            drop(calls);
            thread.join().expect("no actor panics");
        }
    }
}

fn drawn(random: &mut StdRng) -> (usize, LockCall) {
    const LAST: u64 = i64::MAX as u64;
    let (slot, file) = (random.random_range(0..SLOTS), random.random_range(0..FILES.len()));
    let owner = if random.random() { RangeOwner::Process } else { RangeOwner::OpenFile };
    let mut number = |small: u64| match random.random_range(0..30) {
        0 => [LAST, LAST - 1, LAST + 1, u64::MAX, 1 << 40][random.random_range(0..5)],
        _ => random.random_range(0..small),
    };
    let range = (number(30), number(12));
    let kind = if random.random() { LockKind::Shared } else { LockKind::Exclusive };
    let set = if random.random_ratio(1, 3) { None } else { Some(kind) };
    let call = match random.random_range(0..20) {
        0..4 => {
            let (read, write) = (OpenFlags::READ, OpenFlags::WRITE);
            let flags = [read, write, read | write, read | write][random.random_range(0..4)];
            LockCall::Open { slot, file, flags }
        }
        4 => LockCall::Close { slot },
        5..8 => LockCall::Flock { slot, kind: set },
        8..17 => LockCall::Set { slot, owner, range, kind: set, waits: false },
        _ => LockCall::Find { slot, owner, range, kind },
    };
    (random.random_range(0..ACTORS), call)
}

/// Returns a new engine.
fn scm() -> Arc<Scm> {
    let owner = Owner { mode: 0o777, uid: 0, gid: 0 };
    let (medium, options) = (Medium::memory(1 << 28).expect("memory"), fixed_options(8 << 20, counter()));
    Arc::new(Scm::create_on(medium, &options, owner, counter()).expect("a new volume"))
}

/// Makes the files of a comparison.
fn make_files(fs: &impl PosixExt) {
    for file in FILES {
        fs.write(file, "").expect("a new file");
    }
}

/// Makes the files of a comparison on the engine and on the host.
fn make_files_of<E: Engine>(engine: &Arc<E>) {
    make_files(&Pxfs::new(Arc::clone(engine), Credentials::root()));
    make_files(&Host::new("/").expect("the root can be opened"));
}

/// Makes `count` random calls of each of `seeds` on a volume and on the host, and compares the answers and
/// all range locks. The root of this process must be an empty directory on a tmpfs.
///
/// # Panics
/// Panics at the first difference.
pub fn compare_locks_with_host(seeds: Range<u64>, count: usize) {
    let engine = &scm();
    make_files_of(engine);
    for seed in seeds {
        let sides = [Side::of_kernel(Path::new("/")), Side::of(engine)];
        compare_locks(seed, count, sides, Duration::ZERO);
        assert!(!engine.may_have_locks(), "locks without an open file");
    }
}

/// Makes `count` random calls of each of `seeds` in two empty directories of the host, and compares the
/// answers and all range locks. In the second directory, the end of an open file may take effect up to
/// `patience` after the close.
///
/// # Panics
/// Panics at the first difference.
pub fn compare_locks_of_places(places: [&Path; 2], seeds: Range<u64>, count: usize, patience: Duration) {
    for place in places {
        make_files(&Host::new(place).expect("the directory can be opened"));
    }
    for seed in seeds {
        compare_locks(seed, count, places.map(Side::of_kernel), patience);
    }
}

/// Makes random calls on two sides that have no locks, and compares the answers and all range locks.
fn compare_locks(seed: u64, count: usize, sides: [Side; 2], patience: Duration) {
    let mut random = StdRng::seed_from_u64(seed);
    for side in &sides {
        for file in 0..FILES.len() {
            let open = LockCall::Open { slot: file, file, flags: OpenFlags::READ };
            side.0[ACTORS].make(&open).expect("the file exists");
        }
    }
    let compare = |actor: usize, call: &LockCall, context: &dyn Fn() -> String| {
        let start = Instant::now();
        // In a mount, `F_OFD_GETLK` does not tell if a process owns the lock.
        let names_owners =
            patience.is_zero() || matches!(call, LockCall::Find { owner: RangeOwner::Process, .. });
        let answer = |side: &Side| {
            let found = side.0[actor].make(call);
            found.map(|locks| {
                let shown =
                    |(kind, start, length, of_process)| (kind, start, length, of_process && names_owners);
                locks.into_iter().map(shown).collect::<Vec<_>>()
            })
        };
        let expected = answer(&sides[0]);
        loop {
            let found = answer(&sides[1]);
            if found == expected {
                break;
            }
            assert!(start.elapsed() < patience, "{}: {found:?}, not {expected:?}", context());
        }
    };
    for step in 0..count {
        let (actor, call) = drawn(&mut random);
        compare(actor, &call, &|| format!("seed {seed}, step {step}: actor {actor}, {call:?}"));
        for slot in 0..FILES.len() {
            let context = || format!("seed {seed}, step {step}: locks after {actor}, {call:?}");
            compare(ACTORS, &LockCall::Probe { slot }, &context);
        }
    }
    sides.into_iter().for_each(Side::end);
}

/// Compares the detection of deadlocks. Two owners have locked the same byte of different files, and each
/// waits for the lock of the other. The root of this process must be an empty directory on a tmpfs.
///
/// # Panics
/// Panics at the first difference.
pub fn compare_deadlocks_with_host() {
    let engine = &scm();
    make_files_of(engine);
    let owners = [RangeOwner::Process, RangeOwner::OpenFile];
    // A deadlock that a side does not detect never ends, and its locks stay. So each pair of owners has a
    // byte of its own.
    for (at, first, second) in (0..4).map(|pair| (pair as u64, owners[pair / 2], owners[pair % 2])) {
        let sides = [Side::of_kernel(Path::new("/")), Side::of(engine)];
        let [expected, found] = sides.map(|side| deadlock_of(&side, at, first, second));
        assert_eq!(found, expected, "{first:?} waits before {second:?}");
    }
}

/// Makes `first` wait for a lock of `second`. Returns true if `second` then gets `EDEADLK` for a wait for
/// `first`.
fn deadlock_of(side: &Side, at: u64, first: RangeOwner, second: RangeOwner) -> bool {
    let range = (at, 1);
    let set = |file: usize, owner, kind, waits| LockCall::Set { slot: file, owner, range, kind, waits };
    let exclusive = Some(LockKind::Exclusive);
    for (actor, owner) in [(0, first), (1, second)] {
        for file in 0..FILES.len() {
            let open = LockCall::Open { slot: file, file, flags: OpenFlags::READ | OpenFlags::WRITE };
            side.0[actor].make(&open).expect("the file exists");
        }
        side.0[actor].make(&set(actor, owner, exclusive, false)).expect("the file is not locked");
    }
    side.0[0].begin(&set(1, first, exclusive, true));
    assert!(side.0[0].is_waiting());
    side.0[1].begin(&set(0, second, exclusive, true));
    let ends = match side.0[1].answers.recv_timeout(BEGINS_TO_WAIT) {
        Ok(answer) => {
            assert_eq!(answer, Err(Errno::DEADLK));
            true
        }
        Err(_) => false,
    };
    if ends {
        side.0[1].make(&set(1, second, None, false)).expect("an unlock");
        side.0[0].end().expect("the lock is free");
    }
    ends
}
