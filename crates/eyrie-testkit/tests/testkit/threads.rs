//! Tests of the `scm` engine under several threads. Some order of the calls must explain all results, and no
//! bytes may be torn or lost.
//!
//! [`linear`] tries all orders, so histories are short. The model starts with the contents of the engine, and
//! ids are reserved before the threads start. Listings are not linearizable, so only the storm tests them: a
//! long run of random Ops on several threads, beside threads that read.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use eyrie_engine::access::AclKind;
use eyrie_engine::scm::Scm;
use eyrie_engine::{
    AttributeChange, Condition, Content, Engine, Error, FallocateMode, InodeFlags, Kind, Model, ObjectId, Op,
    Owner, RenameMode, SetIds, Time, XattrMode,
};
use eyrie_faults::traced_from;
use eyrie_medium::{Medium, epoch};
use eyrie_sim::explore::fixed_options;
use eyrie_testkit::acls::acl;
use eyrie_testkit::linear::{self, Request, Response};
use eyrie_testkit::ops::{Bytes, OpRecord};
use eyrie_testkit::power::DiskSizes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time { seconds: 1, nanoseconds: 0 };

fn in_memory(bytes: u64) -> Scm {
    let options = fixed_options(64 << 10, BORN);
    Scm::create_on(Medium::memory(bytes).expect("memory"), &options, OWNER, BORN).expect("a new volume")
}

fn assert_clean(engine: &Scm) {
    let report = engine.check().expect("the medium is sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// The shared objects of a history: two directories, a file with two names, and a key.
pub struct Shared<E = Scm> {
    /// The engine, or several clients of one volume.
    engines: Vec<E>,
    model: Model,
    dirs: [ObjectId; 2],
    file: ObjectId,
    key: ObjectId,
    /// Number of further names in each directory.
    names: usize,
}

impl<E: Engine> Shared<E> {
    pub fn new(engines: Vec<E>) -> Shared<E> {
        Shared::with_names(engines, 0)
    }

    /// Creates the shared objects, with `count` further names of the file in each directory.
    fn with_names(engines: Vec<E>, count: usize) -> Shared<E> {
        let engine = &engines[0];
        let root = engine.root();
        let model = Model::new(root, OWNER, BORN);
        let id = |kind| engine.reserve(kind).expect("room");
        let (top, dir) = (id(Kind::Directory), id(Kind::Directory));
        let (file, key) = (id(Kind::File), id(Kind::File));
        let (owner, time) = (OWNER, BORN);
        let create = |dir, name, id, content| Op::Create { dir, name, id, owner, content, time };
        for op in [
            // The root of a served volume has the time at which the volume was made, so the calls use another
            // directory.
            create(root, b"top", top, Content::Empty),
            create(top, b"dir", dir, Content::Empty),
            create(top, b"a", file, Content::Bytes(b"0123456789abcdef")),
            Op::Link { dir, name: b"b", id: file, time },
            Op::Put { dir: top, name: b"k", id: key, owner, data: b"value", time },
        ] {
            engine.apply(&op).expect("a new volume");
            model.apply(&op).expect("a new model");
        }
        for n in 0..2 * count {
            let name = format!("name-{n}");
            let link = Op::Link { dir: [top, dir][n % 2], name: name.as_bytes(), id: file, time };
            engine.apply(&link).expect("a new volume");
            model.apply(&link).expect("a new model");
        }
        Shared { engines, model, dirs: [top, dir], file, key, names: count }
    }
}

/// Draws the requests of one history.
struct Draws<'a, E> {
    shared: &'a Shared<E>,
    /// An open file that has no name at first.
    unnamed: ObjectId,
    /// True if all changes have the same time.
    has_one_time: bool,
    random: SmallRng,
}

impl<'a, E: Engine> Draws<'a, E> {
    fn new(shared: &'a Shared<E>, seed: u64) -> Draws<'a, E> {
        let engine = &shared.engines[0];
        let (dir, id) = (shared.dirs[0], engine.reserve(Kind::File).expect("room"));
        let made = Op::CreateUnnamed { dir, id, owner: OWNER, linkable: true, time: BORN };
        for engine in [engine as &dyn Engine, &shared.model] {
            engine.apply(&made).expect("a sound volume");
            engine.open(id).expect("no other thread closed a file");
        }
        // A large directory of the engine shows the latest time of its changes. The model shows the time of
        // the last change in the order. Equal times hide this difference.
        let has_one_time = shared.names > 0 || seed % 2 == 1;
        Draws { shared, unnamed: id, has_one_time, random: SmallRng::seed_from_u64(seed) }
    }

    /// Draws the requests of a call to `engine`, and reserves the ids for them.
    fn requests(&mut self, engine: &E, call: usize, thread: usize) -> Vec<Request> {
        let time = match self.has_one_time {
            true => Time::new(10, 0),
            false => Time::new(10 + call as i64, thread as u32),
        };
        if self.random.random_ratio(1, 4) {
            self.special_requests(engine, time)
        } else {
            vec![self.request(engine, time)]
        }
    }

    /// Draws requests of the rarer kinds: for files without a name, clones, ACLs and inode flags.
    fn special_requests(&mut self, engine: &E, time: Time) -> Vec<Request> {
        let (shared, random) = (self.shared, &mut self.random);
        let files = [shared.file, shared.key, self.unnamed];
        let [source, id] = [(); 2].map(|()| files[random.random_range(0..3)]);
        let (dir, name) = (shared.dirs[random.random_range(0..2)], [b"a", b"b"][random.random_range(0..2)]);
        // A directory keeps the latest time of a change of its attributes, unlike the model.
        let object = if self.has_one_time && random.random() { dir } else { id };
        // A service refuses default ACLs of files with another errno than an engine.
        let kind = if object.is_directory() && random.random() { AclKind::Default } else { AclKind::Access };
        let op = match random.random_range(0..8) {
            0 => {
                let (id, linkable) = (engine.reserve(Kind::File).expect("room"), random.random_ratio(3, 4));
                let made = Op::CreateUnnamed { dir, id, owner: OWNER, linkable, time };
                let link = Op::Link { dir, name, id, time };
                return [made, link].map(|op| Request::Apply(OpRecord::new(&op))).to_vec();
            }
            1 => Op::Link { dir, name, id: self.unnamed, time },
            2..4 => {
                let [source_offset, offset] = [(); 2].map(|()| random.random_range(0..2) * 4096);
                let (length, set_ids) = ([0, 4096][random.random_range(0..2)], SetIds::Keep);
                Op::CloneRange { source, source_offset, id, offset, length, set_ids, time }
            }
            4 => {
                let acl = &acl(random.random_range(0..9), random.random());
                let set = Op::SetAcl { id: object, kind, acl, drops_set_gid: random.random(), time };
                return vec![Request::Apply(OpRecord::new(&set))];
            }
            5 => return vec![Request::Xattr { id: object, name: kind.name().to_vec() }],
            // A service also refuses changes of an object with inode flags, which an engine does not.
            6 if shared.engines.len() == 1 => {
                let flags = Some(InodeFlags::from_bits_truncate(random.random()));
                let change = AttributeChange { flags, ..AttributeChange::default() };
                Op::SetAttributes { id: object, change, time }
            }
            _ => return vec![Request::InodeFlags(object)],
        };
        vec![Request::Apply(OpRecord::new(&op))]
    }

    /// Draws a random request to `engine` at `time`, and reserves the ids for it.
    fn request(&mut self, engine: &E, time: Time) -> Request {
        let (shared, random) = (self.shared, &mut self.random);
        let names: [&[u8]; 3] = [b"a", b"b", b"k"];
        let dir = shared.dirs[random.random_range(0..2)];
        let name = names[random.random_range(0..3)];
        let target = [shared.file, shared.file, shared.key, self.unnamed][random.random_range(0..4)];
        let data = Bytes { length: [1, 8, 20][random.random_range(0..3)], pattern: random.random() }.make();
        let data = &data[..];
        let fresh = || engine.reserve(Kind::File).expect("room");
        let op = match random.random_range(0..25) {
            20 => return Request::Xattr { id: target, name: b"user.x".to_vec() },
            21 => {
                let mode = [XattrMode::Set, XattrMode::Create, XattrMode::Replace][random.random_range(0..3)];
                Op::SetXattr { id: target, name: b"user.x", value: data, mode, time }
            }
            22 => Op::RemoveXattr { id: target, name: b"user.x", time },
            24 => Op::MarkAccess { id: if random.random() { target } else { dir }, time },
            0..2 => return Request::Lookup { dir, name: name.to_vec() },
            2..4 => return Request::Read { id: target, offset: 0, length: 64 },
            4 => return Request::Attributes(target),
            5 => return Request::Attributes(dir),
            6..8 => Op::Create { dir, name, id: fresh(), owner: OWNER, content: Content::Bytes(data), time },
            8 => Op::Unlink { dir, name, time },
            9 => Op::Link { dir, name, id: target, time },
            10..13 => {
                let modes = [RenameMode::Replace, RenameMode::Exchange, RenameMode::NoReplace];
                Op::Rename {
                    from_dir: dir,
                    from_name: name,
                    to_dir: shared.dirs[random.random_range(0..2)],
                    to_name: names[random.random_range(0..3)],
                    mode: modes[random.random_range(0..3)],
                    whiteout: None,
                    time,
                }
            }
            13..15 => Op::Write {
                id: target,
                offset: random.random_range(0..3) * 8,
                data,
                set_ids: SetIds::Keep,
                time,
            },
            15 => Op::Append { id: target, data, set_ids: SetIds::Keep, time },
            16 => Op::Put { dir, name, id: fresh(), owner: OWNER, data, time },
            17 => Op::Erase { dir, name, time },
            23 => {
                // Modes that shift bytes accept only whole blocks.
                let modes: Vec<_> = FallocateMode::ALL.into_iter().filter(|mode| !mode.shifts()).collect();
                let mode = modes[random.random_range(0..modes.len())];
                Op::Fallocate {
                    id: target,
                    mode,
                    offset: random.random_range(0..20),
                    length: 9,
                    set_ids: SetIds::Keep,
                    time,
                }
            }
            18 => Op::SetSize { id: target, size: random.random_range(0..30), set_ids: SetIds::Keep, time },
            _ => {
                let put = Op::Put { dir, name: b"k", id: fresh(), owner: OWNER, data, time };
                let condition = if random.random() { Condition::Present } else { Condition::Absent };
                let expect = Op::Expect { dir, name, condition };
                let last = if random.random() { expect } else { Op::Erase { dir, name: b"a", time } };
                let ops = [put, last];
                return Request::Apply(OpRecord::new(&Op::Batch { dir, ops: &ops, time }));
            }
        };
        Request::Apply(OpRecord::new(&op))
    }
}

/// Runs `threads` threads that make `calls` calls each, drawn from `seed`, and asserts that some order of the
/// calls explains their answers. Thread n uses engine n modulo the number of engines. With `drains`, one more
/// thread drains the medium all the time. Returns the number of calls that overlapped with a call of another
/// thread.
pub fn explain<E: Engine>(
    shared: &Shared<E>,
    seed: u64,
    threads: usize,
    calls: usize,
    drains: bool,
) -> usize {
    // The pin keeps removed objects readable until the history ends.
    let _pin = epoch::pin();
    let mut draws = Draws::new(shared, seed);
    let scripts = (0..threads).map(|thread| {
        let engine = &shared.engines[thread % shared.engines.len()];
        let script = (0..calls).flat_map(|call| draws.requests(engine, call, thread));
        (engine as &dyn Engine, script.collect())
    });
    let scripts = scripts.collect();
    let run = || linear::run_threads(scripts);
    let history = if drains { beside_drains(&shared.engines[0], run) } else { run() };
    linear::assert_explained(&shared.model, &history);
    linear::count_overlaps(&history)
}

/// Calls `run` while another thread drains the medium all the time.
fn beside_drains<E: Engine, T>(engine: &E, run: impl FnOnce() -> T) -> T {
    let running = AtomicUsize::new(1);
    std::thread::scope(|scope| {
        let _running = Running(&running);
        scope.spawn(|| {
            while running.load(Ordering::Acquire) > 0 {
                engine.sync().expect("a sound disk");
            }
        });
        run()
    })
}

#[test]
fn drains_end_after_a_panic_of_the_calls() {
    let engine = in_memory(1 << 20);
    let ended =
        catch_unwind(AssertUnwindSafe(|| beside_drains::<_, ()>(&engine, || panic!("a planted panic"))));
    assert!(ended.is_err());
}

fn explain_all(seeds: u64, threads: usize, calls: usize) {
    let overlapped: usize = (0..seeds)
        .map(|seed| explain(&Shared::new(vec![in_memory(1 << 20)]), seed, threads, calls, false))
        .sum();
    println!("{overlapped} of {} calls overlapped another", seeds * (threads * calls) as u64);
    assert!(overlapped > 0);
}

#[test]
fn requests_of_threads_make_every_change() {
    let kind = |op: &Op<'_>| format!("{op:?}").split(' ').next().unwrap_or_default().to_owned();
    let (mut made, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..500 {
        let shared = Shared::new(vec![in_memory(1 << 20)]);
        let mut draws = Draws::new(&shared, seed);
        for call in 0..12 {
            for request in draws.requests(&shared.engines[0], call, 0) {
                let answer = request.ask(&shared.engines[0]);
                assert_eq!(answer, request.ask(&shared.model), "{request:?}");
                let Request::Apply(record) = request else { continue };
                let is_refused = matches!(answer, Response::Refused(_));
                if is_refused { &mut refused } else { &mut made }.insert(kind(&record.decode().op()));
            }
        }
    }
    let changes = "Append Batch CloneRange Create CreateUnnamed Erase Fallocate Link MarkAccess Put \
                   RemoveXattr Rename SetAcl SetAttributes SetSize SetXattr Unlink Write";
    assert_eq!(made.into_iter().collect::<Vec<_>>().join(" "), changes);
    assert!(["CloneRange", "Link", "SetAcl"].iter().all(|change| refused.contains(*change)), "{refused:?}");
}

#[test]
fn calls_of_two_threads_are_linearizable() {
    explain_all(6000, 2, 5);
}

#[test]
fn calls_of_three_threads_are_linearizable() {
    explain_all(4000, 3, 3);
}

#[test]
fn threads_in_large_directories_have_an_order() {
    let overlapped: usize = (0..600)
        .map(|seed| {
            let shared = Shared::with_names(vec![in_memory(1 << 20)], 100);
            if seed % 2 == 0 {
                // These calls build the summaries of the directories before the threads start.
                for &dir in &shared.dirs {
                    let _ = shared.engines[0].attributes(dir).expect("sound");
                }
            }
            explain(&shared, seed, 2 + seed as usize % 2, 3, false)
        })
        .sum();
    assert!(overlapped > 0);
}

/// Some order explains the calls on a paged medium, too. On this medium a call may read a page from the disk,
/// and a change of a page during a drain may copy the page.
#[test]
fn threads_on_pages_have_an_order() {
    let sizes = DiskSizes { volume_bytes: 1 << 20, memory_bytes: 1 << 20 };
    let overlapped: usize = (0..600)
        .map(|seed| {
            let (engine, simulated) = sizes.create().expect("a new volume");
            let mut shared = Shared::new(vec![engine]);
            shared.engines[0].sync().expect("a sound disk");
            shared.engines.clear();
            shared.engines.push(sizes.open(simulated).expect("a sound disk"));
            explain(&shared, seed, 2 + seed as usize % 2, 3, true)
        })
        .sum();
    assert!(overlapped > 0);
}

const STORM_OPS: usize = 20_000;
const WRITERS: u64 = 4;
/// Number of files that are never removed.
const STAYING: usize = 12;

/// Lengths of whole files. The bytes of a file are the digit of the index of its length.
const LENGTHS: [usize; 5] = [0, 8, 100, 5000, 20_000];

/// Draws the contents of a whole file. All bytes are equal, and their value determines the length.
fn whole(random: &mut SmallRng) -> Vec<u8> {
    let kind: u8 = random.random_range(0..LENGTHS.len() as u8);
    vec![b'0' + kind; LENGTHS[usize::from(kind)]]
}

/// True if these are the contents of a whole file.
fn is_whole_file(bytes: &[u8]) -> bool {
    let Some(&first) = bytes.first() else { return true };
    let length = LENGTHS.get(usize::from(first.wrapping_sub(b'0')));
    length == Some(&bytes.len()) && bytes.iter().all(|&byte| byte == first)
}

#[test]
fn torn_files_are_noticed() {
    assert!(is_whole_file(b"") && is_whole_file(b"11111111"));
    // The bytes of one write with the length of another one.
    assert!(!is_whole_file(b"22222222") && !is_whole_file(&[b'4'; 5000]));
    assert!(!is_whole_file(b"11111112") && !is_whole_file(&[0; 8]));
}

fn staying(index: usize) -> Vec<u8> {
    format!("staying {index}").into_bytes()
}

/// Applies a random Op to the directories of a storm. Each directory has up to `names` names that change. The
/// number of these names grows and shrinks in turn.
fn storm_op<E: Engine>(
    engine: &E,
    dirs: &[ObjectId; 2],
    names: u32,
    random: &mut SmallRng,
    step: usize,
) -> Result<(), Error> {
    let (dir, other) = (dirs[random.random_range(0..2)], dirs[random.random_range(0..2)]);
    let [name, to_name] = [(); 2].map(|()| random.random_range(0..names).to_string());
    let (name, to_name) = (name.as_bytes(), to_name.as_bytes());
    let time = Time::new(10 + step as i64, 0);
    let staying_name = staying(random.random_range(0..STAYING));
    let data = &whole(random)[..];
    let _pin = epoch::pin();
    let file = engine.lookup(dirs[0], &staying_name)?.ok_or(Error::NotFound)?;
    let has_fewer = step / 500 % 2 == 1;
    match random.random_range(0..8) {
        0..2 if !has_fewer => {
            let id = engine.reserve(Kind::File)?;
            let content = Content::Bytes(data);
            let result = engine.apply(&Op::Create { dir, name, id, owner: OWNER, content, time });
            result.map(drop).inspect_err(|_| engine.unreserve(id))
        }
        0..3 => engine.apply(&Op::Unlink { dir, name, time }).map(drop),
        3..5 => {
            let mode = [RenameMode::Replace, RenameMode::Exchange][random.random_range(0..2)];
            let (from_dir, to_dir) = (dir, other);
            engine
                .apply(&Op::Rename { from_dir, from_name: name, to_dir, to_name, mode, whiteout: None, time })
                .map(drop)
        }
        5 => engine.apply(&Op::Link { dir, name, id: file, time }).map(drop),
        _ => {
            // A put of an existing key replaces all of its bytes.
            let id = engine.reserve(Kind::File)?;
            let put = Op::Put { dir: dirs[0], name: &staying_name, id, owner: OWNER, data, time };
            let applied = engine.apply(&put);
            if !applied.as_ref().is_ok_and(|applied| applied.created) {
                engine.unreserve(id);
            }
            applied.map(drop)
        }
    }
}

/// Reads the shared objects at least once and until the writers have ended. Asserts that no staying name is
/// lost and no write torn.
fn watch<E: Engine>(engine: &E, dirs: &[ObjectId; 2], running: &AtomicUsize) {
    let (mut ended, mut is_whole) = (false, false);
    while !ended {
        ended = running.load(Ordering::Acquire) == 0;
        let _pin = epoch::pin();
        let mut files = Vec::new();
        let mut listed = BTreeSet::new();
        // Every second listing has several parts.
        is_whole = !is_whole;
        let most = if is_whole { usize::MAX } else { 7 };
        let (mut cookie, mut count) = (0, most);
        while count == most {
            count = 0;
            let list = engine.list(dirs[0], cookie, &mut |entry| {
                // Writers remove the other names and make them again, so a listing may show such a name
                // twice.
                let is_new = listed.insert(entry.name.to_vec());
                assert!(is_new || !entry.name.starts_with(b"staying"), "listed twice");
                if entry.id.kind() == Kind::File {
                    files.push(entry.id);
                }
                (cookie, count) = (entry.next, count + 1);
                count < most
            });
            list.expect("sound");
        }
        for index in 0..STAYING {
            assert!(listed.contains(&staying(index)), "a name that was there throughout is lost");
        }
        for id in files {
            let mut bytes = vec![0; 30_000];
            let count = match engine.read(id, 0, &mut bytes) {
                Ok(count) => count,
                Err(Error::Stale) => continue,
                Err(error) => panic!("{error}"),
            };
            assert!(is_whole_file(&bytes[..count]), "a torn write: {count} bytes, the first is {}", bytes[0]);
        }
    }
}

#[test]
fn a_storm_tears_nothing_and_loses_nothing() {
    storm(in_memory(32 << 20), STORM_OPS, |engine| {
        let image = engine.volume().medium().snapshot();
        traced_from(&image, eyrie_faults::Recorder::default()).map(Scm::open_on).expect("memory")
    });
}

/// Runs the storm on a disk with little memory for pages.
#[test]
fn a_storm_on_pages_tears_nothing_and_loses_nothing() {
    let sizes = DiskSizes { volume_bytes: 32 << 20, memory_bytes: 1 << 20 };
    let (engine, simulated) = sizes.create().expect("a new volume");
    storm(engine, STORM_OPS / 4, |engine| {
        engine.sync().expect("a sound disk");
        sizes.open(simulated.power_failure(|| false))
    });
}

/// Makes the directories of a storm, and the files that are never removed.
fn storm_directories<E: Engine>(engine: &E) -> [ObjectId; 2] {
    let dir = engine.reserve(Kind::Directory).expect("room");
    let dirs = [engine.root(), dir];
    let (owner, time) = (OWNER, BORN);
    let content = Content::Empty;
    engine.apply(&Op::Create { dir: dirs[0], name: b"dir", id: dir, owner, content, time }).expect("empty");
    for index in 0..STAYING {
        let id = engine.reserve(Kind::File).expect("room");
        let name = &staying(index)[..];
        engine.apply(&Op::Put { dir: dirs[0], name, id, owner, data: b"", time }).expect("empty");
    }
    dirs
}

/// Counts one thread less as running when it is dropped, also by a panic. Otherwise the threads that go on
/// until the count is 0 would never end.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Calls `write` on [`WRITERS`] threads, with the number of the thread, while two threads read. Thread n uses
/// engine n modulo the number of engines. The numbers of the readers follow those of the writers. Returns the
/// number of calls that panicked.
fn beside_readers<E: Engine>(engines: &[E], dirs: &[ObjectId; 2], write: impl Fn(&E, u64) + Sync) -> usize {
    let (running, write) = (&AtomicUsize::new(WRITERS as usize), &write);
    let mut turns = engines.iter().cycle();
    let mut next = || turns.next().expect("an engine");
    std::thread::scope(|scope| {
        let writer = |number| {
            let engine = next();
            scope.spawn(move || {
                let _running = Running(running);
                write(engine, number);
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        for _ in 0..2 {
            let engine = next();
            scope.spawn(move || watch(engine, dirs, running));
        }
        writers.into_iter().filter_map(|writer| writer.join().err()).count()
    })
}

#[test]
fn readers_end_after_a_panic_of_a_writer() {
    let engine = in_memory(1 << 20);
    let dirs = storm_directories(&engine);
    let failed = beside_readers(&[engine], &dirs, |_, number| assert_ne!(number, 1, "a planted panic"));
    assert_eq!(failed, 1);
}

/// Runs a storm: [`WRITERS`] threads apply random Ops while two threads read. Each thread uses one engine, as
/// [`beside_readers`] assigns them. One of the writers also syncs at intervals.
pub fn storm_of<E: Engine>(engines: &[E], ops: usize, names: u32) {
    let dirs = storm_directories(&engines[0]);
    let failed = beside_readers(engines, &dirs, |engine, seed| {
        let mut random = SmallRng::seed_from_u64(seed);
        for step in 0..ops {
            if seed == 0 && step % 100 == 0 {
                engine.sync().expect("a sound medium");
            }
            match storm_op(engine, &dirs, names, &mut random, step) {
                Ok(()) | Err(Error::NotFound | Error::Exists | Error::NoSpace) => {}
                Err(error) => panic!("step {step} of {seed}: {error}"),
            }
        }
    });
    assert_eq!(failed, 0);
}

/// Runs a storm on an engine. Afterwards compares the engine with the one that `reopen` returns.
fn storm(engine: Scm, ops: usize, reopen: impl FnOnce(&Scm) -> Result<Scm, Error>) {
    storm_of(std::slice::from_ref(&engine), ops, 8);
    assert_clean(&engine);
    let before = eyrie_sim::compare::tree(&engine);
    let engine = reopen(&engine).expect("sound");
    assert_clean(&engine);
    assert_eq!(eyrie_sim::compare::difference(&before, &eyrie_sim::compare::tree(&engine)), None);
}
