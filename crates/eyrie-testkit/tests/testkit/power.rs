//! Tests of the engine on a paged medium: comparison with the model, power failures, and failing disks.

use std::sync::Arc;

use eyrie::{Credentials, Errno, PosixExt, Pxfs};
use eyrie_engine::scm::Scm;
use eyrie_engine::{Content, Engine, Error, FallocateMode, Kind, ObjectId, Op, Owner, SetIds, Time};
use eyrie_faults::{Failing, FailureKind, FaultPlan, SimulatedDisk, Site};
use eyrie_medium::{Blocks, SiteKind};
use eyrie_testkit::oracle;
use eyrie_testkit::power::{DiskSizes, PowerRun, plant};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SMALL: DiskSizes = DiskSizes { volume_bytes: 2 << 20, memory_bytes: 1 << 20 };

#[test]
fn random_ops_on_pages_equal_the_model() {
    let sizes = DiskSizes { volume_bytes: 64 << 20, memory_bytes: 4 << 20 };
    for seed in 0..40 {
        oracle::check(|| sizes.create().expect("a new volume").0, seed, 400);
    }
}

#[test]
fn ten_thousand_power_failures_leave_a_state_since_the_last_sync() {
    let mut failures = 0;
    for seed in 0.. {
        if failures >= 10_000 {
            break;
        }
        let mut run = PowerRun::new(SMALL, seed).expect("a new volume");
        for step in 0..60 {
            run.step().expect("the disk is sound");
            if step % 3 == 2 {
                run.power_failure(&format!("seed {seed}, step {step}"));
                failures += 1;
            }
        }
    }
}

/// The time of the Ops of a test.
const NOW: Time = Time::new(2, 0);

/// Makes a file of `bytes` bytes that has storage and no data, and makes the file durable.
fn allocated_file(engine: &Scm, name: &[u8], bytes: u64) -> ObjectId {
    let id = engine.reserve(Kind::File).expect("room");
    let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
    let create = Op::Create { dir: engine.root(), name, id, owner, content: Content::Empty, time: NOW };
    engine.apply(&create).expect("room");
    let (mode, set_ids) = (FallocateMode::Allocate, SetIds::Keep);
    engine.apply(&Op::Fallocate { id, mode, offset: 0, length: bytes, set_ids, time: NOW }).expect("room");
    engine.sync().expect("the disk is sound");
    id
}

/// Opens the volumes that several power failures leave, and checks them. Returns the bytes that the file `id`
/// has in each of them.
fn after_power_failures(
    sizes: DiskSizes,
    simulated: &SimulatedDisk,
    id: ObjectId,
    len: usize,
) -> Vec<Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(len as u64);
    let mut read = |odds: u32| {
        let survivor = simulated.power_failure(|| random.random_range(0..4) < odds);
        let engine = sizes.open(survivor).expect("it can be opened");
        assert_eq!(engine.check().expect("the disk is sound").findings.len(), 0);
        let mut bytes = vec![1; len];
        assert_eq!(engine.read(id, 0, &mut bytes).expect("the disk is sound"), len);
        bytes
    };
    [0, 2, 4].map(&mut read).into()
}

/// One call overwrites up to about 64 MiB of allocated storage. The pages are not fresh, so a drain cannot
/// write them straight to their places. The size of the journal is a sixteenth of the volume, but at least 1
/// MiB. The write is whole or absent after a power failure, and the volume takes further changes.
#[test]
fn no_write_is_too_large_for_the_journal() {
    for shift in 12..=26 {
        for len in [1 << shift, (1 << shift) + 3000] {
            let sizes = DiskSizes {
                volume_bytes: (4 * len as u64).next_multiple_of(1 << 20),
                memory_bytes: 512 << 20,
            };
            let (engine, simulated) = sizes.create().expect("a new volume");
            let id = allocated_file(&engine, b"file", len as u64);
            let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8 + 1).collect();
            let write = Op::Write { id, offset: 0, data: &data, set_ids: SetIds::Keep, time: NOW };
            engine.apply(&write).unwrap_or_else(|error| panic!("{len} bytes: {error}"));
            for found in after_power_failures(sizes, &simulated, id, len) {
                assert!(found == vec![0; len], "{len} bytes: not synchronised, and some bytes are there");
            }
            engine.sync().unwrap_or_else(|error| panic!("{len} bytes: {error}"));
            for found in after_power_failures(sizes, &simulated, id, len) {
                assert!(found == data, "{len} bytes: synchronised, and some bytes are lost");
            }
            engine.apply(&write).unwrap_or_else(|error| panic!("{len} bytes, again: {error}"));
            engine.close().expect("the volume is not read-only");
        }
    }
}

/// A drain writes new pages straight to their places, so a call that stores only to new pages needs no
/// further storage for the journal. If the engine repeats a call because the first attempt had too little
/// room in the journal, the first attempt keeps no storage. So a call succeeds on a volume whose free storage
/// is little more than the bytes of the call.
#[test]
fn large_calls_on_new_pages_need_room_once() {
    let sizes = |volume_bytes| DiskSizes { volume_bytes, memory_bytes: 512 << 20 };
    let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
    let (engine, _) = sizes(70 << 20).create().expect("a new volume");
    allocated_file(&engine, b"file", 64 << 20);
    engine.close().expect("the volume is not read-only");
    // The smallest extent for this value of 16.5 MiB has 20 MiB. Without a free extent of this size, the
    // value becomes a tree.
    let value = vec![7; 33 << 19];
    let (engine, _) = sizes(32 << 20).create().expect("a new volume");
    let (dir, id) = (engine.root(), engine.reserve(Kind::File).expect("room"));
    engine.apply(&Op::Put { dir, name: b"key", id, owner, data: &value, time: NOW }).expect("room");
    engine.close().expect("the volume is not read-only");
}

/// Two threads overwrite large allocated ranges, while a third thread makes batches of many keys and a fourth
/// thread syncs. The journal has the smallest default size.
#[test]
fn large_calls_of_several_threads_fit_the_journal() {
    const LEN: usize = 1_200_000;
    const KEYS: usize = 5000;
    let sizes = DiskSizes { volume_bytes: 16 << 20, memory_bytes: 64 << 20 };
    let (engine, simulated) = sizes.create().expect("a new volume");
    let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
    let files: Vec<ObjectId> =
        (0..2).map(|number| allocated_file(&engine, &[b'a' + number], LEN as u64)).collect();
    // Freed storage may wait for a drain. As callers of an engine do, the test reclaims it after `NoSpace`,
    // and tries again.
    let apply = |op: &Op<'_>| {
        let applied = (0..20).find_map(|_| match engine.apply(op) {
            Err(Error::NoSpace) => {
                engine.reclaim();
                None
            }
            applied => Some(applied),
        });
        applied.expect("room after reclaims").expect("the volume is not read-only");
    };
    let names: Vec<String> = (0..KEYS).map(|key| format!("key-{key}")).collect();
    std::thread::scope(|scope| {
        let apply = &apply;
        for (&id, byte) in files.iter().zip(1..) {
            scope.spawn(move || {
                for round in 0..4 {
                    let data = vec![byte + 10 * round; LEN];
                    apply(&Op::Write { id, offset: 0, data: &data, set_ids: SetIds::Keep, time: NOW });
                }
            });
        }
        scope.spawn(|| {
            for round in 0..3 {
                let value = [round; 40];
                let puts: Vec<Op<'_>> = names
                    .iter()
                    .map(|name| Op::Put {
                        dir: engine.root(),
                        name: name.as_bytes(),
                        id: engine.reserve(Kind::File).expect("room"),
                        owner,
                        data: &value,
                        time: NOW,
                    })
                    .collect();
                apply(&Op::Batch { dir: engine.root(), ops: &puts, time: NOW });
            }
        });
        scope.spawn(|| (0..20).for_each(|_| engine.sync().expect("the disk is sound")));
    });
    engine.sync().expect("the volume is not read-only");
    for (&id, byte) in files.iter().zip(1..) {
        for found in after_power_failures(sizes, &simulated, id, LEN) {
            assert!(found == vec![byte + 30; LEN]);
        }
    }
    engine.close().expect("the volume is not read-only");
}

/// Points whose absence no run can notice, with the reason.
const UNNOTICED: [(&str, &str); 1] = [(
    "write crates/eyrie-medium/src/paged/journal/anchor.rs",
    "the host allocates blocks for the zeros over a new journal; replay accepts no older bytes there",
)];

#[test]
fn every_missing_point_of_a_disk_is_noticed() {
    let planted = plant::plant();
    for planted in &planted {
        println!("{}", planted.site);
        println!(
            "  {}",
            planted.caught.as_deref().unwrap_or("NOTHING").chars().take(300).collect::<String>()
        );
    }
    let missed: Vec<_> = planted.iter().filter(|planted| planted.caught.is_none()).collect();
    let is_known = |site: &Site| UNNOTICED.iter().any(|(known, _)| site.to_string().starts_with(known));
    assert!(
        missed.len() == UNNOTICED.len() && missed.iter().all(|planted| is_known(&planted.site)),
        "{missed:#?}"
    );
}

#[test]
fn a_disk_that_fails_at_any_call_loses_nothing_acknowledged() {
    for forever in [false, true] {
        for call in 1.. {
            let mut run = PowerRun::new(SMALL, 5).expect("a new volume");
            let before = run.simulated().calls();
            run.simulated().fail_at(call, forever);
            let failed = (0..60).find_map(|_| run.step().err());
            let what = format!("call {call}, forever: {forever}");
            run.power_failure(&what);
            match failed {
                None => {
                    assert!(run.simulated().calls() - before < call, "{what}: no call returned an error");
                    break;
                }
                // The failed call may belong to a drain in the background. The next call of the run then gets
                // the error `read-only` instead of the error of the disk.
                Some(error) => assert!(
                    ["I/O", "read-only"].iter().any(|word| error.to_string().contains(word)),
                    "{what}: {error}"
                ),
            }
            assert!(run.is_read_only(), "{what}: changes go on after the disk failed");
        }
    }
}

/// Kills a process at one of its first writes or flushes. Then kills up to two more processes that open the
/// volume, and lets power fail. No acknowledged change may be lost.
#[test]
fn kills_and_then_a_power_failure_lose_nothing_acknowledged() {
    let mut examined = 0;
    for (seed, calls) in [(5, 1..60), (6, 20..40), (7, 20..40)] {
        for call in calls {
            let mut run = PowerRun::new(SMALL, seed).expect("a new volume");
            run.simulated().fail_at(call, true);
            // A disk that fails from some call on is in the state that a killed process leaves.
            let _ = (0..60).find_map(|_| run.step().err());
            let found = run.left().examine_after_kills(2);
            examined += found.unwrap_or_else(|what| panic!("seed {seed}, killed at call {call}: {what}"));
        }
    }
    assert!(examined > 5_000, "{examined}");
}

/// Makes a volume, changes it, trims it, closes it and opens it again, while the calls that `failing` selects
/// fail. Stops at the first error. If the volume was made, then asserts that power failures lose no
/// acknowledged change. Returns the plan and the number of failed calls.
fn failing_run(failing: Option<Failing>) -> (FaultPlan, u64) {
    let plan = FaultPlan::default();
    plan.fail(failing);
    let assert_expected = |error: eyrie_engine::Error| {
        let errno = error.errno();
        assert!([Errno::NOSPC, Errno::IO, Errno::ROFS].contains(&errno), "{failing:?}: {error}");
    };
    match PowerRun::with_plan(SMALL, 5, &plan) {
        Err(error) => assert_expected(error),
        Ok(mut run) => {
            let failed = (0..40).find_map(|_| run.step().err());
            let left = run.left();
            match failed {
                Some(error) => assert_expected(error),
                None => {
                    let _ = run.reopen().map_err(assert_expected);
                }
            }
            let failed = plan.failed();
            plan.fail(None);
            left.examine().unwrap_or_else(|what| panic!("{failing:?}: {what}"));
            return (plan, failed);
        }
    }
    let failed = plan.failed();
    (plan, failed)
}

/// Tries each failure at the first, the second and the last call from each site of the disk. No acknowledged
/// change may be lost.
#[test]
fn every_call_of_a_disk_may_fail() {
    let met = failing_run(None).0.calls();
    assert!(met.len() >= 10, "{met:?}");
    for (site, calls) in met {
        let kinds: &[FailureKind] = match site.kind {
            SiteKind::Provision | SiteKind::Write => &[FailureKind::Full, FailureKind::Io],
            _ => &[FailureKind::Io],
        };
        for &kind in kinds {
            let failed: u64 = site.failures(kind, calls).map(|failing| failing_run(Some(failing)).1).sum();
            println!("{kind:?} {site}: {calls} calls, {failed} failures");
            assert!(failed > 0, "{site} never failed");
        }
    }
}

fn files(engine: &Arc<Scm>) -> Pxfs<Scm> {
    Pxfs::new(Arc::clone(engine), Credentials::root())
}

fn assert_clean(engine: &Scm) {
    let report = engine.check().expect("the disk is sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Returns the number of the first page with these bytes.
fn page_with(disk: &SimulatedDisk, bytes: &[u8]) -> u64 {
    let mut all = vec![0; disk.size().expect("a size") as usize];
    disk.read(0, &mut all).expect("it can be read");
    all.windows(bytes.len()).position(|window| window == bytes).expect("it is somewhere") as u64 / 4096
}

#[test]
fn an_unreadable_file_fails_only_its_own_calls() {
    let sizes = DiskSizes { volume_bytes: 8 << 20, memory_bytes: 1 << 20 };
    let (engine, simulated) = sizes.create().expect("a new volume");
    let engine = Arc::new(engine);
    let fs = files(&engine);
    fs.write("/bad", vec![0xb7; 200_000]).expect("room");
    fs.write("/good", vec![0xc9; 200_000]).expect("room");
    drop(fs);
    Arc::into_inner(engine).expect("mine").close().expect("a sound disk");
    // The third page of the file becomes unreadable.
    let page = page_with(&simulated, &[0xb7; 4096]) + 2;

    let engine = Arc::new(sizes.open(simulated.clone()).expect("a sound disk"));
    let fs = files(&engine);
    simulated.make_bad(page, true);
    for round in 0..3 {
        assert_eq!(fs.read("/bad").expect_err("bad").errno(), Errno::IO);
        assert_eq!(fs.read("/good").expect("sound"), vec![0xc9; 200_000]);
        let file = fs.options().read(true).write(true).open("/bad").expect("its name is sound");
        assert_eq!(file.write_at(&[1; 100], 2 * 4096 + 10).expect_err("bad").errno(), Errno::IO);
        fs.write(format!("/new-{round}"), vec![round; 10_000]).expect("the volume goes on");
        engine.sync().expect("no write failed");
    }
    simulated.make_bad(page, false);
    assert_eq!(fs.read("/bad").expect("it is good again"), vec![0xb7; 200_000]);
    assert_clean(&engine);
}

/// Overwrites one block `rounds` times, and makes each overwrite durable. Returns the number of pages of the
/// volume that then hold a version of the block.
fn places_of_overwrites(rounds: u8) -> usize {
    const MARK: &[u8] = b"what is overwritten again and again";
    let sizes = DiskSizes { volume_bytes: 8 << 20, memory_bytes: 2 << 20 };
    let (engine, simulated) = sizes.create().expect("a new volume");
    let engine = Arc::new(engine);
    let fs = files(&engine);
    fs.write("/file", vec![1; 100_000]).expect("room");
    let file = fs.options().write(true).open("/file").expect("it is there");
    let mut block = vec![0; 4096];
    block[..MARK.len()].copy_from_slice(MARK);
    for round in 0..rounds {
        block[4095] = round;
        file.write_all_at(&block, 8192).expect("room");
        file.sync_all().expect("a sound disk");
    }
    let mut all = vec![0; sizes.volume_bytes as usize];
    simulated.read(0, &mut all).expect("it can be read");
    all.chunks(4096).filter(|page| page.starts_with(MARK)).count()
}

#[test]
fn synchronised_overwrites_of_a_block_use_few_places() {
    // Pins of other tests may delay the reuse of pages.
    let failed_attempts = (0..50).map(|_| places_of_overwrites(100)).take_while(|&places| places > 4).count();
    assert!(failed_attempts < 50, "each attempt used more than 4 pages");
}
