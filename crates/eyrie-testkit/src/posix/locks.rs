//! Compares advisory locks with those of the kernel: random calls of several owners, and deadlocks.
//!
//! Each side has actors, which are threads. For locks, the kernel treats a thread as a process if the thread
//! has its own table of descriptors. Each actor with random calls has a user of its own. A further actor on
//! each side only probes: after each call it lists the range locks of all files, and the test compares the
//! lists of both sides.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use eyrie::posix::{OpenFlags, Posix, PosixExt};
use eyrie::{Credentials, Engine, Errno, FoundLock, Host, LockKind, LockWait, PosixLocks, Pxfs, RangeOwner};
use eyrie_client::Client;
use eyrie_engine::Owner;
use eyrie_engine::scm::Scm;
use eyrie_medium::Medium;
use eyrie_sim::explore::fixed_options;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{counter, plain_users};

const ACTORS: usize = 3;
const FILES: [&str; 2] = ["/a", "/b"];
/// Open files of each actor.
const SLOTS: usize = 4;
/// A call without an answer after this time counts as waiting.
const BEGINS_TO_WAIT: Duration = Duration::from_millis(50);
/// Time limit of a call that has no reason to wait.
const ENDS: Duration = Duration::from_secs(20);
/// Number of random calls before each call that waits.
const CALLS_PER_WAIT: usize = 200;
/// Number of random calls during a wait.
const CALLS_IN_WAIT: usize = 4;

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
    (found.kind, found.start, found.length, found.process.is_some())
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

/// Returns the user of an actor. The last actor is root.
fn user(actor: usize) -> Credentials {
    let users = plain_users(0);
    users[actor % users.len()].clone()
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

    /// Returns an actor on the kernel's side.
    fn of_kernel(number: usize) -> Actor {
        Actor::new(move || {
            Host::become_user(&user(number)).expect("root can become any user");
            #[expect(deprecated, reason = "the safe form; this thread uses no descriptor of another one")]
            rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).expect("a table of descriptors");
            Host::new("/").expect("the root can be opened")
        })
    }

    fn begin(&self, call: &LockCall) {
        self.calls.send(call.clone()).expect("the actor lives");
    }

    /// Returns the answer to the call that the actor has begun.
    fn end(&self) -> LockAnswer {
        self.answers.recv_timeout(ENDS).expect("the call ends in time")
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
    fn of_kernel() -> Side {
        Side((0..=ACTORS).map(Actor::of_kernel).collect())
    }

    /// Returns the actors of a volume. Actor n uses the engine with the index n modulo the number of engines.
    fn of<E: Engine + 'static>(engines: &[Arc<E>]) -> Side {
        let actor = |number: usize| {
            let engine = Arc::clone(&engines[number % engines.len()]);
            Actor::new(move || Pxfs::new(engine, user(number)).with_lock_process(number as u64))
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

/// Makes the files of a comparison on the engine and on the host.
fn make_files<E: Engine>(engine: &Arc<E>) {
    let subject = Pxfs::new(Arc::clone(engine), Credentials::root());
    let host = Host::new("/").expect("the root can be opened");
    // Only root opens the second file for writing.
    for (file, mode) in FILES.into_iter().zip([0o666, 0o644]) {
        subject.write(file, "").expect("a new file");
        subject.chmod(file.into(), mode).expect("root changes the file");
        host.write(file, "").expect("a new file");
        host.chmod(file.into(), mode).expect("root changes the file");
    }
}

/// Makes `count` random calls of each of `seeds` on a volume and on the host, and compares the answers and
/// all range locks. The root of this process must be an empty directory on a tmpfs.
///
/// # Panics
/// Panics at the first difference.
pub fn compare_locks_with_host(seeds: Range<u64>, count: usize) {
    let engine = scm();
    let engines = std::slice::from_ref(&engine);
    for seed in seeds {
        compare_locks(engines, seed, count);
        assert!(!engine.may_have_locks(), "locks without an open file");
    }
}

/// Works like [`compare_locks_with_host`]. Each actor with random calls has a client of its own, connected as
/// the actor's user. The actor that probes uses the client of root. The clients are those of
/// [`clients_in_tmpfs_root`](super::clients_in_tmpfs_root).
///
/// # Panics
/// Panics at the first difference.
pub fn compare_locks_of_clients_with_host(clients: &[Arc<Client>], seeds: Range<u64>, count: usize) {
    seeds.for_each(|seed| compare_locks(clients, seed, count));
}

fn compare_locks<E: Engine + 'static>(engines: &[Arc<E>], seed: u64, count: usize) {
    make_files(&engines[0]);
    let mut random = StdRng::seed_from_u64(seed);
    let (kernel, volume) = (Side::of_kernel(), Side::of(engines));
    for side in [&kernel, &volume] {
        for file in 0..FILES.len() {
            let open = LockCall::Open { slot: file, file, flags: OpenFlags::READ };
            side.0[ACTORS].make(&open).expect("the file exists");
        }
    }
    let sides = Sides { kernel, volume, seed };
    for step in 0..count {
        if step % CALLS_PER_WAIT == CALLS_PER_WAIT - 1 {
            sides.compare_wait(&mut random);
        }
        let (actor, call) = drawn(&mut random);
        sides.compare(actor, &call);
    }
    let Sides { kernel, volume, .. } = sides;
    kernel.end();
    volume.end();
}

/// The kernel's side and that of a volume.
struct Sides {
    kernel: Side,
    volume: Side,
    seed: u64,
}

impl Sides {
    /// Makes a call on both sides, and compares the answers.
    fn compare_answers(&self, actor: usize, call: &LockCall) {
        let (expected, found) = (self.kernel.0[actor].make(call), self.volume.0[actor].make(call));
        assert_eq!(found, expected, "seed {}: actor {actor}, {call:?}", self.seed);
    }

    /// Makes a call on both sides, and compares the answers and all range locks.
    fn compare(&self, actor: usize, call: &LockCall) {
        self.compare_answers(actor, call);
        (0..FILES.len()).for_each(|slot| self.compare_answers(ACTORS, &LockCall::Probe { slot }));
    }

    fn close_all(&self, actor: usize) {
        (0..SLOTS).for_each(|slot| self.compare_answers(actor, &LockCall::Close { slot }));
    }

    /// Lets one actor wait for a lock while the others make calls. Locks of its own would never end during
    /// the wait, so this actor first closes its files. If the others do not end the wait by chance, they
    /// close their files, too. The range locks are not compared, because one side may already have given the
    /// lock to the waiter.
    fn compare_wait(&self, random: &mut StdRng) {
        let waiter = random.random_range(0..ACTORS);
        self.close_all(waiter);
        let (slot, file) = (0, random.random_range(0..FILES.len()));
        self.compare(waiter, &LockCall::Open { slot, file, flags: OpenFlags::READ | OpenFlags::WRITE });
        let owner = if random.random() { RangeOwner::Process } else { RangeOwner::OpenFile };
        let (range, kind) = ((random.random_range(0..30), 12), Some(LockKind::Exclusive));
        let call = LockCall::Set { slot, owner, range, kind, waits: true };
        self.kernel.0[waiter].begin(&call);
        self.volume.0[waiter].begin(&call);
        for _ in 0..CALLS_IN_WAIT {
            if self.has_ended(waiter, &call) {
                return;
            }
            let (actor, other) = drawn(random);
            if actor != waiter {
                self.compare_answers(actor, &other);
            }
        }
        if !self.has_ended(waiter, &call) {
            (0..ACTORS).filter(|actor| *actor != waiter).for_each(|actor| self.close_all(actor));
            let (expected, found) = (self.kernel.0[waiter].end(), self.volume.0[waiter].end());
            assert_eq!(found, expected, "seed {}: {call:?} after a wait", self.seed);
        }
    }

    /// True if the begun call has ended on both sides. If it has ended on one side, the other side gets time
    /// to end it, too.
    fn has_ended(&self, actor: usize, call: &LockCall) -> bool {
        let (kernel, volume) = (&self.kernel.0[actor], &self.volume.0[actor]);
        let expected = kernel.answers.recv_timeout(BEGINS_TO_WAIT).ok();
        let (expected, found) = match (expected, volume.answers.try_recv().ok()) {
            (None, None) => return false,
            (expected, found) => {
                (expected.unwrap_or_else(|| kernel.end()), found.unwrap_or_else(|| volume.end()))
            }
        };
        assert_eq!(found, expected, "seed {}: {call:?} after a wait", self.seed);
        true
    }
}

/// Compares the detection of deadlocks. Two owners have locked the same byte of different files, and each
/// waits for the lock of the other. The root of this process must be an empty directory on a tmpfs.
///
/// # Panics
/// Panics at the first difference.
pub fn compare_deadlocks_with_host() {
    let engine = scm();
    make_files(&engine);
    let owners = [RangeOwner::Process, RangeOwner::OpenFile];
    // A deadlock that a side does not detect never ends, and its locks stay. So each pair of owners has a
    // byte of its own.
    for (at, first, second) in (0..4).map(|pair| (pair as u64, owners[pair / 2], owners[pair % 2])) {
        let sides = [Side::of_kernel(), Side::of(std::slice::from_ref(&engine))];
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
    // Root may open every file for writing.
    let [one, other] = [0, ACTORS];
    for (slot, (actor, owner)) in [(one, first), (other, second)].into_iter().enumerate() {
        for file in 0..FILES.len() {
            let open = LockCall::Open { slot: file, file, flags: OpenFlags::READ | OpenFlags::WRITE };
            side.0[actor].make(&open).expect("the file exists");
        }
        side.0[actor].make(&set(slot, owner, exclusive, false)).expect("the file is not locked");
    }
    side.0[one].begin(&set(1, first, exclusive, true));
    assert!(side.0[one].is_waiting());
    side.0[other].begin(&set(0, second, exclusive, true));
    let ends = match side.0[other].answers.recv_timeout(BEGINS_TO_WAIT) {
        Ok(answer) => {
            assert_eq!(answer, Err(Errno::DEADLK));
            true
        }
        Err(_) => false,
    };
    if ends {
        side.0[other].make(&set(1, second, None, false)).expect("an unlock");
        side.0[one].end().expect("the lock is free");
    }
    ends
}
