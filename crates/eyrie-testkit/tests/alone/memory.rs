//! Tests of the memory and disk space of a paged volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eyrie::{Credentials, Errno, PosixExt, Pxfs};
use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_testkit::power::DiskSizes;

use crate::alone;

fn files(engine: &Arc<Scm>) -> Pxfs<Scm> {
    Pxfs::new(Arc::clone(engine), Credentials::root())
}

fn assert_clean(engine: &Scm) {
    let report = engine.check().expect("the disk is sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn a_disk_that_is_full_is_an_error_and_the_volume_goes_on() {
    let _alone = alone();
    let sizes = DiskSizes { volume_bytes: 32 << 20, memory_bytes: 1 << 20 };
    let (engine, simulated) = sizes.create().expect("a new volume");
    let engine = Arc::new(engine);
    let fs = files(&engine);
    fs.write("/before", "kept").expect("room");
    simulated.limit_room(Some(4 << 20));
    for round in 0..3 {
        let full = (0..1000).find_map(|count| fs.write(format!("/fill-{count}"), vec![round; 50_000]).err());
        assert_eq!(full.expect("it is full").errno(), Errno::NOSPC);
        assert_eq!(fs.read("/before").expect("sound"), b"kept");
        assert_eq!(fs.read("/fill-3").expect("sound"), vec![round; 50_000]);
        assert_clean(&engine);
        for entry in fs.read_dir("/").expect("sound").map(|entry| entry.expect("sound")) {
            if entry.name() != "before" {
                fs.remove_file(entry.path()).expect("there is always room for that");
            }
        }
    }
    simulated.limit_room(None);
    fs.write("/after", vec![9; 8 << 20]).expect("there is room again");
    engine.sync().expect("a sound disk");
    let after = Arc::new(sizes.open(simulated.power_failure(|| false)).expect("sound"));
    assert_clean(&after);
    assert_eq!(files(&after).read("/after").expect("sound"), vec![9; 8 << 20]);
}

/// Number of bytes by which memory may exceed its limit. Four threads allocate during grace periods and
/// during drains of the background thread. A thread that allocates a page while memory is above the limit has
/// to wait. The wait grows with the number of pages above the limit: at one and a half times the limit, a
/// thread that allocates one page at a time gets less than 23 MB a second.
const MARGIN: u64 = 24 << 20;

#[test]
fn files_four_times_the_memory_are_written_and_read_back() {
    const PIECE: usize = 256 << 10;
    let _alone = alone();
    let sizes = DiskSizes { volume_bytes: 128 << 20, memory_bytes: 16 << 20 };
    let (engine, _) = sizes.create().expect("a new volume");
    let engine = Arc::new(engine);
    let fs = files(&engine);
    fs.write("/view", vec![0xa5; 3000]).expect("room");
    let store = eyrie::Kvfs::open(&fs, "/").expect("a directory");
    store.put("key", vec![0x5a; 100_000]).expect("room");
    let content = |thread: usize, number: usize| vec![(thread * 64 + number) as u8; PIECE];
    let (most, done) = (std::sync::atomic::AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let resident = engine.volume().medium().resident_bytes().expect("it is paged");
                most.fetch_max(resident, Ordering::Relaxed);
                // The view must keep its contents while memory is short.
                let pin = store.pin();
                let view = store.get_in_place("key", &pin).expect("sound").expect("there");
                std::thread::sleep(std::time::Duration::from_millis(5));
                assert!(view.iter().all(|&byte| byte == 0x5a));
            }
        });
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (fs, content) = (&fs, &content);
                scope.spawn(move || {
                    for number in 0..64 {
                        fs.write(format!("/{thread}-{number}"), content(thread, number)).expect("room");
                    }
                    for number in (0..64).chain((0..64).rev()) {
                        let read = fs.read(format!("/{thread}-{number}")).expect("sound");
                        assert!(read == content(thread, number), "file {number} of thread {thread}");
                    }
                })
            })
            .collect();
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0);
    });
    let most = most.into_inner();
    println!("at most {} KiB in memory", most >> 10);
    assert!(most > 8 << 20 && most <= sizes.memory_bytes + MARGIN, "{most} bytes in memory");
    assert_clean(&engine);
}
