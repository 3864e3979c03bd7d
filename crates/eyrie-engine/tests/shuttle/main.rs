//! The engine `scm` under the scheduler of shuttle. Readers run beside writers in any order, and beside a
//! stopped writer.
//!
//! Every access to the medium, every lock of `eyrie_medium::sync` and every outermost pin is a scheduling
//! point. Four more things differ from a normal build. Threads do not sleep, but wait for the scheduler.
//! Summaries are built in smaller parts. A volume has fewer parts, and a session gets one at a time. A copy
//! from or to memory that processes share (`eyrie_medium::shared`) has pieces of 16 bytes, with a scheduling
//! point between two pieces. (A copy from or to the medium is a single step, so these tests never find half
//! of such a copy.)

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{
    AttributeChange, Content, Engine, Error, FallocateMode, FileView, Kind, Model, ObjectId, Op, Owner,
    RenameMode, Result, SetIds, Time, XattrMode,
};
use eyrie_faults::{CrashImage, ImageBase, crash_medium};
use eyrie_medium::{Medium, epoch};
use eyrie_testkit::linear::{self, HistoryCall, HistoryClock, Request};
use eyrie_testkit::ops::OpRecord;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, Runner};

use bursts::Bursts;

mod advisory;
mod bursts;
mod clones;
mod directories;
mod epochs;
mod holds;
#[cfg(feature = "mutants")]
mod mutants;
mod quotas;
mod shards;
mod shrinking;
mod versions;
mod views;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time { seconds: 1, nanoseconds: 0 };
const LATER: Time = Time { seconds: 2, nanoseconds: 0 };
const OLD: &[u8] = b"the old bytes of a file, of some length";

/// Returns a guard that makes the tests run one at a time, because the clock of epochs belongs to the whole
/// process.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    #[cfg(feature = "mutants")]
    eyrie_medium::rules::break_rule_of_environment();
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(body);
}

/// A small volume: a directory, a file with two names, a key, and two larger files. A model has the same
/// contents.
#[derive(Clone)]
struct Start {
    image: Arc<[u8]>,
    model: Arc<Model>,
    dirs: [ObjectId; 2],
    file: ObjectId,
    key: ObjectId,
    /// A file of several pages in a tree.
    tree: ObjectId,
    /// A file of more than 2 MiB. Most of it is a hole. The root of its tree has height 2.
    tall: ObjectId,
    /// Ids for new objects. Each opened copy of the volume reserves them.
    fresh: Arc<[ObjectId]>,
    /// A directory that gets a summary when the volume is opened.
    known: Option<ObjectId>,
}

/// Number of entries of a directory with so many buckets that it gets a summary.
const MANY: usize = 160;

impl Start {
    /// Makes the volume inside an execution of shuttle, because locks work only there.
    fn make() -> Start {
        Start::make_with(0)
    }

    /// Makes the same volume, but with `entries` further names of the file in the second directory.
    fn make_with(entries: usize) -> Start {
        let made = Arc::new(Mutex::new(None));
        let result = Arc::clone(&made);
        run(Bursts::new(0, 1), move || {
            *made.lock().expect("alone") = Some(Start::build(entries));
        });
        let start = result.lock().expect("alone").take();
        start.expect("made")
    }

    fn build(entries: usize) -> Start {
        let options = Options {
            group_bytes: 64 << 10,
            hash_seed: 7,
            volume_id: [1; 16],
            created: BORN,
            medium: MediumChoice::Auto,
            overwrite: false,
            checksums: false,
            paged: eyrie_medium::PagedOptions::for_host(),
        };
        let medium = Medium::memory(512 << 10).expect("memory");
        let engine = Scm::create_on(medium, &options, OWNER, BORN).expect("a new volume");
        let root = engine.root();
        let model = Model::new(root, OWNER, BORN);
        let id = |kind| engine.reserve(kind).expect("room");
        let (dir, file, key) = (id(Kind::Directory), id(Kind::File), id(Kind::File));
        let (tree, tall, blocks) = (id(Kind::File), id(Kind::File), [b'-'; 20_000]);
        let (owner, time) = (OWNER, BORN);
        let create = |name, id, content| Op::Create { dir: root, name, id, owner, content, time };
        for op in [
            create(b"dir", dir, Content::Empty),
            create(b"a", file, Content::Bytes(OLD)),
            Op::Link { dir, name: b"b", id: file, time },
            Op::Put { dir: root, name: b"k", id: key, owner, data: OLD, time },
            Op::SetXattr { id: file, name: b"x", value: OLD, mode: XattrMode::Set, time },
            create(b"tree", tree, Content::Bytes(&blocks)),
            Op::Write {
                id: tree,
                offset: 5000,
                data: b"a part of a large extent makes a tree",
                set_ids: SetIds::Keep,
                time,
            },
            create(b"tall", tall, Content::Bytes(&blocks)),
            Op::Write { id: tall, offset: 3 << 20, data: b"the end", set_ids: SetIds::Keep, time },
        ] {
            engine.apply(&op).expect("a new volume");
            model.apply(&op).expect("a new model");
        }
        for n in 0..entries {
            let link = Op::Link { dir, name: &entry(n), id: file, time };
            engine.apply(&link).expect("a new volume");
            model.apply(&link).expect("a new model");
        }
        let fresh = (0..12).map(|_| id(Kind::File)).collect();
        let image = engine.volume().medium().snapshot().into();
        Start { image, model: Arc::new(model), dirs: [root, dir], file, key, tree, tall, fresh, known: None }
    }

    /// Opens a copy of the volume, and reserves the ids for new objects again.
    fn open(&self) -> Arc<Scm> {
        let image = CrashImage::new(Default::default(), Vec::new());
        let base = ImageBase::new(&self.image).expect("memory");
        self.open_on(crash_medium(&base, image).expect("memory"))
    }

    /// Opens a copy of the volume in a file of the host. Also returns the file.
    fn open_in_file(&self) -> (Arc<Scm>, File) {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&self.image, 0).expect("room");
        let mapped = file.try_clone().expect("a handle");
        (self.open_on(Medium::dram(vec![(mapped, self.image.len() as u64)]).expect("a mapping")), file)
    }

    fn open_on(&self, medium: Medium) -> Arc<Scm> {
        let engine = Scm::open_on(medium).expect("sound");
        for &id in &self.fresh[..] {
            assert_eq!(engine.reserve(Kind::File).expect("room"), id);
        }
        if let Some(dir) = self.known {
            engine.attributes(dir).expect("sound");
        }
        Arc::new(engine)
    }
}

/// Returns the name of an entry of a large directory.
fn entry(n: usize) -> Vec<u8> {
    format!("entry-{n}").into_bytes()
}

/// Lists the two directories of `start`, looks names up, and reads attributes and files. Asserts that no call
/// fails, except with `Stale` for a removed object, and that no read is torn.
fn read_everything(engine: &Scm, start: &Start) {
    let _pin = epoch::pin();
    for dir in start.dirs {
        let mut names = BTreeSet::new();
        let listed = engine.list(dir, 0, &mut |entry| names.insert(entry.name.to_vec()));
        listed.expect("sound");
        for name in [&b"a"[..], b"b", b"k", b"new"] {
            engine.lookup(dir, name).expect("sound");
        }
        engine.attributes(dir).expect("sound");
    }
    for id in [start.file, start.key] {
        match read_file(engine, id) {
            // The object was removed before this reader took its pin.
            Ok(()) | Err(Error::Stale) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads a file. Asserts that its bytes are those before or after a whole Op of these tests.
fn read_file(engine: &Scm, id: ObjectId) -> Result<()> {
    engine.attributes(id)?;
    engine.seek(id, 0, false)?;
    let upper = &OLD.to_ascii_uppercase()[..];
    let (mixed, appended) = ([&upper[..8], &OLD[8..]].concat(), [OLD, upper].concat());
    let mut bytes = [0; 100];
    let whole = [OLD, upper, &mixed, &appended, b"", &[0; OLD.len()], &[0; 100]];
    let count = engine.read(id, 0, &mut bytes)?;
    assert!(whole.contains(&&bytes[..count]), "torn: {}", bytes[..count].escape_ascii());
    let value = engine.xattr(id, b"x", &mut bytes)?.map(|size| &bytes[..size]);
    assert!(value.is_none_or(|value| [OLD, upper].contains(&value)), "torn extended attribute");
    let guard = epoch::pin();
    let view = engine.view(id, (0, u64::MAX), &guard)?.and_then(FileView::whole);
    assert!(view.is_none_or(|view| whole.contains(&view)), "torn in place");
    Ok(())
}

/// Returns Ops that commit by one publish each, on objects of the volume.
fn single_ops(start: &Start) -> Vec<OpRecord> {
    let Start { dirs: [root, dir], file, key, ref fresh, .. } = *start;
    let upper = &OLD.to_ascii_uppercase()[..];
    let (owner, time) = (OWNER, LATER);
    let content = Content::Bytes(OLD);
    let range = |id, mode| Op::Fallocate { id, mode, offset: 0, length: 4096, set_ids: SetIds::Keep, time };
    let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    [
        Op::Create { dir: root, name: b"new", id: fresh[0], owner, content, time },
        Op::Unlink { dir: root, name: b"k", time },
        Op::Erase { dir: root, name: b"k", time },
        Op::Write { id: file, offset: 0, data: &upper[..8], set_ids: SetIds::Keep, time },
        Op::Write { id: file, offset: 0, data: upper, set_ids: SetIds::Keep, time },
        Op::Append { id: file, data: upper, set_ids: SetIds::Keep, time },
        Op::SetSize { id: file, size: 0, set_ids: SetIds::Keep, time },
        range(file, FallocateMode::PunchHole),
        range(key, FallocateMode::ZeroRangeKeepSize),
        range(file, FallocateMode::InsertRange),
        Op::SetAttributes { id: file, change, time },
        Op::SetAttributes { id: dir, change, time },
        Op::MarkAccess { id: file, time },
        Op::SetXattr { id: file, name: b"x", value: upper, mode: XattrMode::Replace, time },
        Op::SetXattr { id: key, name: b"x", value: upper, mode: XattrMode::Create, time },
        Op::RemoveXattr { id: file, name: b"x", time },
        Op::Put { dir: root, name: b"k", id: fresh[0], owner, data: upper, time },
        Op::Put { dir, name: b"new", id: fresh[0], owner, data: upper, time },
        Op::Write { id: key, offset: 0, data: upper, set_ids: SetIds::Keep, time },
    ]
    .iter()
    .map(OpRecord::new)
    .collect()
}

#[test]
fn readers_need_no_writer_lock() {
    let _alone = alone();
    let start = Start::make();
    run(Bursts::new(1, 500), move || {
        let engine = start.open();
        let (release, released) = shuttle::sync::mpsc::channel::<()>();
        let (taken, is_taken) = shuttle::sync::mpsc::channel::<()>();
        let writer = shuttle::thread::spawn({
            let (engine, start) = (Arc::clone(&engine), start.clone());
            move || {
                let _held = engine.hold_for_test(&[start.dirs[0], start.dirs[1], start.file, start.key]);
                taken.send(()).expect("the test waits");
                released.recv().expect("the test sends");
            }
        });
        is_taken.recv().expect("the writer sends");
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (engine, start) = (Arc::clone(&engine), start.clone());
                shuttle::thread::spawn(move || read_everything(&engine, &start))
            })
            .collect();
        // If a reader waited for a lock, no thread could run, and shuttle would report a deadlock.
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
        release.send(()).expect("the writer waits");
        writer.join().expect("no panic");
    });
}

/// A scheduler that stops a writer. The writer is the first thread that is spawned. It takes `steps` steps,
/// and no further step until the reader has finished.
struct StopWriter {
    steps: usize,
    left: usize,
    executions: usize,
    is_done: Arc<AtomicUsize>,
}

const WRITER: usize = 1;

impl Scheduler for StopWriter {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.steps;
        self.executions = self.executions.checked_sub(1)?;
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], _: Option<TaskId>, _: bool) -> Option<TaskId> {
        let is_writer = |task: &&&Task| usize::from(task.id()) == WRITER;
        let writer = runnable.iter().find(is_writer);
        let other = runnable.iter().find(|task| !is_writer(task));
        if let Some(writer) = writer {
            if self.left > 0 {
                self.left -= 1;
                return Some(writer.id());
            }
            if other.is_none() {
                assert_eq!(self.is_done.load(Ordering::SeqCst), 1, "the reader waits for the stopped writer");
                return Some(writer.id());
            }
        }
        other.map(|task| task.id())
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// Stops a writer after `steps` steps of `op`, and lets a reader run [`read_everything`]. Returns true if the
/// stop came before the end of the Op.
fn stop_writer(start: &Start, op: &OpRecord, steps: usize) -> bool {
    let (is_done, was_stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let scheduler = StopWriter { steps, left: steps, executions: 1, is_done: Arc::clone(&is_done) };
    let (start, op, stopped) = (start.clone(), op.clone(), Arc::clone(&was_stopped));
    run(scheduler, move || {
        let engine = start.open();
        let ended = Arc::new(AtomicUsize::new(0));
        let writer = shuttle::thread::spawn({
            let (engine, ended, op) = (Arc::clone(&engine), Arc::clone(&ended), op.clone());
            move || {
                engine.apply(&op.decode().op()).expect("the Op is possible");
                ended.store(1, Ordering::SeqCst);
            }
        });
        // The writer takes its steps here.
        shuttle::thread::yield_now();
        read_everything(&engine, &start);
        stopped.store(1 - ended.load(Ordering::SeqCst), Ordering::SeqCst);
        is_done.store(1, Ordering::SeqCst);
        writer.join().expect("no panic");
    });
    was_stopped.load(Ordering::SeqCst) == 1
}

#[test]
fn stopped_writer_stops_no_reader() {
    let _alone = alone();
    let start = Start::make();
    for op in single_ops(&start) {
        let steps = (0..).take_while(|&steps| stop_writer(&start, &op, steps)).count();
        println!("{:?}: stopped at {steps} points", op.decode().op());
        assert!(steps > 10, "an Op has some steps");
    }
}

/// Truncates the volume's file after `steps` steps of `op`. Returns true if the truncation came before the
/// end of the Op. If the Op meets the fault, it must return the fault and must not free the storage that it
/// replaces. The Op may free an object if it removed the last name of this object before the fault.
fn truncate_under(start: &Start, op: &OpRecord, steps: usize) -> bool {
    let (is_done, was_stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let scheduler = StopWriter { steps, left: steps, executions: 1, is_done: Arc::clone(&is_done) };
    let (start, op, stopped) = (start.clone(), op.clone(), Arc::clone(&was_stopped));
    run(scheduler, move || {
        let (engine, file) = start.open_in_file();
        let ended = Arc::new(AtomicUsize::new(0));
        let writer = shuttle::thread::spawn({
            let (ended, op) = (Arc::clone(&ended), op.clone());
            move || {
                let before = engine.space();
                let result = engine.apply(&op.decode().op());
                ended.store(1, Ordering::SeqCst);
                if engine.volume().medium().check().is_ok() {
                    return assert!(result.is_ok(), "{result:?} without a fault");
                }
                assert!(matches!(result, Err(Error::Fault(_))), "{result:?} after a fault");
                // The state of the file is unknown after a fault. Therefore the storage that the Op was to
                // replace must not be used again.
                let after = engine.space();
                assert!(after.objects < before.objects || after.free <= before.free, "free after a fault");
            }
        });
        // The writer takes its steps here.
        shuttle::thread::yield_now();
        stopped.store(1 - ended.load(Ordering::SeqCst), Ordering::SeqCst);
        file.set_len(0).expect("a file can be truncated");
        is_done.store(1, Ordering::SeqCst);
        writer.join().expect("no panic");
    });
    was_stopped.load(Ordering::SeqCst) == 1
}

#[test]
fn regression_mapping_failure_is_reported_by_its_op() {
    let _alone = alone();
    let start = Start::make();
    let Start { dirs: [root, dir], tree, ref fresh, .. } = start;
    let (owner, time) = (OWNER, LATER);
    let put = Op::Put { dir: root, name: b"k", id: fresh[0], owner, data: b"new", time };
    let erase = Op::Erase { dir: root, name: b"a", time };
    let (from_dir, from_name, to_dir, to_name, mode) = (root, b"a", dir, b"k", RenameMode::Replace);
    let several_words = [
        Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout: None, time },
        Op::Link { dir, name: b"new", id: tree, time },
        Op::Batch { dir: root, ops: &[put, erase], time },
        Op::Write { id: tree, offset: 0, data: &[b'+'; 9000], set_ids: SetIds::Keep, time },
    ];
    for op in single_ops(&start).into_iter().chain(several_words.iter().map(OpRecord::new)) {
        let steps = (0..).take_while(|&steps| truncate_under(&start, &op, steps)).count();
        println!("{:?}: truncated at {steps} points", op.decode().op());
        assert!(steps > 10, "an Op has some steps");
    }
}

/// Returns a random request. It may be an Op that commits several words.
fn request(start: &Start, random: &mut SmallRng, thread: usize) -> Request {
    let names: [&[u8]; 3] = [b"a", b"b", b"k"];
    let dir = start.dirs[random.random_range(0..2)];
    let name = names[random.random_range(0..3)];
    let target = if random.random() { start.key } else { start.file };
    let (time, owner) = (Time::new(10, thread as u32), OWNER);
    let data: &[u8] = [&b"01234567"[..], b"some more bytes"][random.random_range(0..2)];
    let op = match random.random_range(0..15) {
        0 => return Request::Lookup { dir, name: name.to_vec() },
        1..3 => return Request::Read { id: target, offset: 0, length: 64 },
        3 => return Request::Attributes(target),
        4 => return Request::Attributes(dir),
        5 => {
            let content = Content::Bytes(data);
            Op::Create { dir, name, id: start.fresh[thread], owner, content, time }
        }
        6 => Op::Unlink { dir, name, time },
        7..9 => {
            let mode = [RenameMode::Replace, RenameMode::Exchange][random.random_range(0..2)];
            let to_dir = start.dirs[random.random_range(0..2)];
            Op::Rename {
                from_dir: dir,
                from_name: name,
                to_dir,
                to_name: names[random.random_range(0..3)],
                mode,
                whiteout: None,
                time,
            }
        }
        9 => Op::Write { id: target, offset: 8, data, set_ids: SetIds::Keep, time },
        10 => Op::Append { id: target, data, set_ids: SetIds::Keep, time },
        11 => return Request::Xattr { id: target, name: b"x".to_vec() },
        12 => Op::SetXattr { id: target, name: b"x", value: data, mode: XattrMode::Set, time },
        13 => Op::RemoveXattr { id: target, name: b"x", time },
        _ => Op::Put { dir, name, id: start.fresh[thread], owner, data, time },
    };
    Request::Apply(OpRecord::new(&op))
}

/// Runs each of `scripts` on a thread of its own. Repeats this under `schedules` schedules. Asserts that some
/// order of the requests explains the results of each run.
fn explain(start: &Start, scripts: Vec<Vec<Request>>, seed: u64, schedules: usize) {
    let start = start.clone();
    run(Bursts::new(seed, schedules), move || {
        let (engine, clock) = (start.open(), Arc::new(HistoryClock::default()));
        // While this pin exists, the storage of a removed object is not reused, even if a thread still works
        // with the object.
        let _pin = epoch::pin();
        let threads: Vec<_> = scripts
            .iter()
            .cloned()
            .map(|script| {
                let (engine, clock) = (Arc::clone(&engine), Arc::clone(&clock));
                shuttle::thread::spawn(move || -> Vec<HistoryCall> {
                    script.into_iter().map(|request| HistoryCall::record(&*engine, &clock, request)).collect()
                })
            })
            .collect();
        let history: Vec<Vec<HistoryCall>> =
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        linear::assert_explained(&start.model, &history);
    });
}

#[test]
fn ops_and_reads_are_linearizable() {
    let _alone = alone();
    let start = Start::make();
    let mut random = SmallRng::seed_from_u64(1);
    for _ in 0..400 {
        let mut script = |thread, calls| {
            // The first request of a script may be an Op, which may use the fresh id of its thread. All
            // further requests only read.
            let mut script = vec![request(&start, &mut random, thread)];
            while script.len() < calls {
                let next = request(&start, &mut random, thread);
                if !matches!(next, Request::Apply(_)) {
                    script.push(next);
                }
            }
            script
        };
        let scripts = vec![script(0, 2), script(1, 2), script(2, 1)];
        explain(&start, scripts, random.random(), 30);
    }
}

#[test]
fn an_op_of_several_words_is_seen_whole() {
    let _alone = alone();
    let start = Start::make();
    let Start { dirs: [root, dir], file, key, ref fresh, .. } = start;
    let (owner, time) = (OWNER, LATER);
    let rename = |from_name, to_name, mode| Op::Rename {
        from_dir: root,
        from_name,
        to_dir: dir,
        to_name,
        mode,
        whiteout: None,
        time,
    };
    let put = Op::Put { dir: root, name: b"k", id: fresh[0], owner, data: b"new", time };
    let erase = Op::Erase { dir: root, name: b"a", time };
    let lookup = |dir, name: &[u8]| Request::Lookup { dir, name: name.to_vec() };
    let value = Request::Read { id: key, offset: 0, length: 64 };
    let links = Request::Attributes(file);
    let cases: [(Op<'_>, Request, Request); 5] = [
        (rename(b"a", b"k", RenameMode::Replace), lookup(root, b"a"), lookup(dir, b"k")),
        (rename(b"a", b"k", RenameMode::Replace), Request::Attributes(root), Request::Attributes(dir)),
        (rename(b"k", b"b", RenameMode::Exchange), lookup(root, b"k"), lookup(dir, b"b")),
        (Op::Link { dir, name: b"new", id: file, time }, lookup(dir, b"new"), links),
        (Op::Batch { dir: root, ops: &[put, erase], time }, lookup(root, b"a"), value),
    ];
    for (seed, (op, one, other)) in (0..).zip(&cases) {
        let readers = [vec![one.clone(), other.clone(), one.clone()], vec![other.clone(), one.clone()]];
        let scripts = [&[vec![Request::Apply(OpRecord::new(op))]], &readers[..]].concat();
        explain(&start, scripts, seed, 1000);
    }
}

/// For each pair in `lengths`, runs three writes beside two reads of the first four pages of file `id`. The
/// first and the last write are at the start of the file. The second write is at offset 8192. The first write
/// has the first length of the pair, and the other two writes have the second length.
fn explain_writes(start: &Start, id: ObjectId, lengths: &[(usize, usize)]) {
    let write = |offset, data: &[u8]| {
        Request::Apply(OpRecord::new(&Op::Write { id, offset, data, set_ids: SetIds::Keep, time: LATER }))
    };
    let read = Request::Read { id, offset: 0, length: 16_384 };
    let read_twice = vec![read.clone(), read];
    for &(first, second) in lengths {
        let (first, second) = (vec![b'1'; first], vec![b'2'; second]);
        let scripts =
            vec![vec![write(0, &first), write(8192, &second), write(0, &second)], read_twice.clone()];
        explain(start, scripts, 1, 1000);
    }
}

#[test]
fn multi_block_writes_are_seen_in_order() {
    let _alone = alone();
    let start = Start::make();
    // A write of 8 bytes changes the page in place, and a write of 5000 bytes spans two pages.
    explain_writes(&start, start.tree, &[(8, 8), (8, 100), (100, 8), (100, 5000), (5000, 5000)]);
}

#[test]
fn regression_deep_multi_block_writes_are_seen_whole() {
    let _alone = alone();
    let start = Start::make();
    explain_writes(&start, start.tall, &[(100, 5000), (5000, 5000)]);
}

/// Runs three things at the same time: `op`, the last close of `target`, and the unlink of `target`. If
/// `unlinked_before`, the unlink comes before the other two. Asserts that no storage is leaked, and that none
/// was freed twice.
fn close_beside(start: &Start, op: &Op<'_>, target: ObjectId, name: &'static [u8], unlinked_before: bool) {
    let (start, op) = (start.clone(), OpRecord::new(op));
    run(Bursts::new(1, 300), move || {
        let engine = start.open();
        start.fresh.iter().for_each(|&id| engine.unreserve(id));
        let objects = engine.space().objects;
        engine.open(target).expect("there");
        let root = start.dirs[0];
        let unlink = move |engine: &Scm| engine.apply(&Op::Unlink { dir: root, name, time: LATER }).map(drop);
        if unlinked_before {
            unlink(&engine).expect("there");
        }
        // This pin stands for the Op's thread, which found its object before the last close.
        let pin = epoch::pin();
        let applying = shuttle::thread::spawn({
            let (engine, op) = (Arc::clone(&engine), op.clone());
            move || engine.apply(&op.decode().op()).map(drop)
        });
        let unlinking = (!unlinked_before).then(|| {
            let engine = Arc::clone(&engine);
            shuttle::thread::spawn(move || unlink(&engine))
        });
        // These reads take so long that the other threads may be at any of their steps.
        for _ in 0..20 {
            engine.attributes(target).expect("open");
        }
        Engine::close(&*engine, target);
        for thread in [Some(applying), unlinking].into_iter().flatten() {
            let result = thread.join().expect("no panic");
            assert!(matches!(result, Ok(()) | Err(Error::Stale)), "{result:?}");
        }
        drop(pin);
        assert!(engine.reclaim(), "no pin is left");
        let report = engine.check().expect("sound");
        assert!(report.is_clean(), "{:?}", report.findings);
        assert_eq!((engine.space().objects, engine.volume().space().refused_frees()), (objects - 1, 0));
    });
}

#[test]
fn regression_orphan_written_during_last_close_is_freed_once() {
    let _alone = alone();
    let start = Start::make();
    let (data, time) = (&[b'+'; 300], LATER);
    let change = AttributeChange { mode: Some(0), ..AttributeChange::default() };
    for (id, name) in [(start.key, &b"k"[..]), (start.tree, b"tree")] {
        for op in [
            Op::Write { id, offset: 0, data, set_ids: SetIds::Keep, time },
            Op::Append { id, data, set_ids: SetIds::Keep, time },
            Op::SetSize { id, size: 1, set_ids: SetIds::Keep, time },
            Op::SetAttributes { id, change, time },
            Op::MarkAccess { id, time },
        ] {
            close_beside(&start, &op, id, name, true);
            close_beside(&start, &op, id, name, false);
        }
    }
}

#[test]
fn epoch_slots_are_released_after_each_execution() {
    let _alone = alone();
    let indices = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&indices);
    run(Bursts::new(1, 400), move || {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let seen = Arc::clone(&seen);
                shuttle::thread::spawn(move || {
                    let _pin = epoch::pin();
                    seen.lock().expect("no yield").insert(epoch::thread_index());
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    assert!(indices.lock().expect("over").iter().all(|&index| index < 8), "slots are used again");
    // An advance of the clock is a scheduling point, so it also needs an execution.
    run(Bursts::new(1, 1), || {
        let before = epoch::now();
        assert!((0..3).map(|_| epoch::advance()).any(|now| before.is_over(now)), "a pin was left behind");
    });
}
