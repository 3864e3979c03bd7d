//! Clients of a service whose volume is on persistent memory: they see a change before it is durable. A
//! service is also killed while it applies a redo record.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyrie::{Credentials, OpenFlags, Posix, PosixExt, Pxfs, RenameMode};
use eyrie_client::Client;
use eyrie_testkit::persistent::{self, Fences, ServiceProcess, serve_if_child, socket};
use rustix::process::Signal;

use crate::{Sandbox, break_rule};

const LIMIT: Duration = Duration::from_secs(20);

/// Makes a volume on persistent memory.
fn with_volume() -> Sandbox {
    let sandbox = Sandbox::new();
    persistent::create(sandbox.dir.path()).unwrap();
    sandbox
}

/// Returns the files of a new client. Tries again until a service accepts the client.
fn connected(place: &Path) -> Pxfs<Client> {
    let started = Instant::now();
    loop {
        match Client::connect(&socket(place), false) {
            Ok(client) => return Pxfs::new(Arc::new(client), Credentials::of_process()),
            Err(error) => assert!(started.elapsed() < LIMIT, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns true if `is_so` becomes true in time.
fn comes(mut is_so: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !is_so() && started.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    is_so()
}

/// Runs `body` with the files of two clients of a service in this process.
fn served(body: impl FnOnce([Pxfs<Client>; 2], &Fences)) {
    let sandbox = with_volume();
    let place = sandbox.dir.path();
    let (service, fences) = persistent::start(place).unwrap();
    let stopper = service.stopper();
    let serving = std::thread::spawn(move || service.run());
    body([connected(place), connected(place)], &fences);
    stopper.stop();
    serving.join().unwrap().unwrap();
}

/// Returns the bytes of a file after a power failure at this moment. `None` if the file is lost.
fn kept(fences: &Fences, path: &str) -> Option<Vec<u8>> {
    let engine = fences.after_power_failure().unwrap();
    assert!(engine.check().unwrap().is_clean());
    Pxfs::new(Arc::new(engine), Credentials::root()).read(path).ok()
}

#[test]
fn answered_changes_survive_a_power_failure() {
    served(|[one, other], fences| {
        one.create_dir("/nest").unwrap();
        for number in 0..10 {
            let (path, moved) = (format!("/nest/{number}"), format!("/{number}"));
            let bytes = vec![number; 1000 * usize::from(number)];
            one.write(&path, &bytes).unwrap();
            assert_eq!(kept(fences, &path), Some(bytes.clone()));
            other.rename(&path, &moved).unwrap();
            assert_eq!(kept(fences, &path), None);
            assert_eq!(kept(fences, &moved), Some(bytes));
        }
    });
}

/// A client sees a change of another client, and synchronises the file before the change is durable.
#[test]
fn fsync_waits_for_a_change_that_others_see() {
    served(|[writer, reader], fences| {
        writer.write("/egg", "blue").unwrap();
        let is_synced = AtomicBool::new(false);
        let egg = writer.options().write(true).open("/egg").unwrap();
        let seen = reader.open_file("/egg").unwrap();
        fences.hold();
        let waits = std::thread::scope(|scope| {
            scope.spawn(|| egg.write_at(b"grey", 0).unwrap());
            let is_seen = || {
                let mut bytes = [0; 4];
                seen.read_exact_at(&mut bytes, 0).is_ok() && &bytes == b"grey"
            };
            let is_visible = loop {
                if !fences.wait_until_held() {
                    break false;
                }
                if is_seen() {
                    break true;
                }
                fences.pass_one();
            };
            // The service now waits at the fence that makes the change durable.
            scope.spawn(|| {
                seen.sync_all().unwrap();
                is_synced.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(50));
            let waits = !is_synced.load(Ordering::SeqCst);
            let before = kept(fences, "/egg");
            fences.release();
            is_visible && waits && before.as_deref() == Some(b"blue")
        });
        assert!(waits, "the sync of a change that is not durable has returned");
        assert_eq!(kept(fences, "/egg").as_deref(), Some(&b"grey"[..]));
    });
}

#[test]
fn fsync_makes_no_request_while_the_service_is_idle() {
    serve_if_child();
    let sandbox = with_volume();
    let test = "served_pmem::fsync_makes_no_request_while_the_service_is_idle";
    let service = ServiceProcess::start(test, sandbox.dir.path(), None);
    let files = connected(sandbox.dir.path());
    files.write("/egg", "blue").unwrap();
    let egg = files.open_file("/egg").unwrap();
    let nest = files.open("/".into(), OpenFlags::READ, 0).unwrap();
    service.signal(Signal::STOP);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            egg.sync_all().unwrap();
            files.fsync(&nest).unwrap();
        });
        let is_done = comes(|| syncing.is_finished());
        service.signal(Signal::CONT);
        assert!(is_done, "a sync waits for an idle service");
    });
}

/// Each run kills a service before a different store of the service to the board. One of these stores ends
/// the application of a redo record. A second client, which only reads, continues with the next service. Each
/// change is made once.
#[test]
fn reader_of_a_half_applied_record_goes_on() {
    break_rule();
    serve_if_child();
    let sandboxes = (2..26).map(|kill| (kill, with_volume()));
    let killed = sandboxes.filter(|(kill, sandbox)| kill_beside_a_reader(*kill, sandbox.dir.path())).count();
    assert!(killed > 15, "{killed} services were killed");
}

/// Returns true if the service was killed.
fn kill_beside_a_reader(kill: u64, place: &Path) -> bool {
    let test = "served_pmem::reader_of_a_half_applied_record_goes_on";
    let mut service = ServiceProcess::start(test, place, Some(kill));
    let (writer, reader) = (connected(place), connected(place));
    let (reads, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    // A scope would wait for this thread, which never ends if the test fails. So the thread is not in a
    // scope.
    let reading = std::thread::spawn({
        let (reads, is_over) = (Arc::clone(&reads), Arc::clone(&is_over));
        move || {
            while !is_over.load(Ordering::SeqCst) {
                reader.exists("/a").unwrap();
                reads.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let changing = std::thread::spawn(move || {
        writer.write("/a", "blue").unwrap();
        writer.write("/b", "grey").unwrap();
        for _ in 0..3 {
            writer.rename_with("/a".into(), "/b".into(), RenameMode::Exchange).unwrap();
        }
        writer.read("/a").unwrap()
    });
    assert!(comes(|| changing.is_finished() || service.is_killed()));
    let is_killed = service.is_killed();
    let service = if is_killed { ServiceProcess::start(test, place, None) } else { service };
    assert_eq!(changing.join().unwrap(), b"grey");
    let before = reads.load(Ordering::SeqCst);
    assert!(comes(|| reads.load(Ordering::SeqCst) > before), "{kill}: the reader waits for a dead service");
    is_over.store(true, Ordering::SeqCst);
    reading.join().unwrap();
    drop(service);
    is_killed
}
