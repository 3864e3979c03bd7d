//! Volumes whose service defers changes: a client that is alone logs its changes and goes on.

use std::cell::Cell;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use eyrie::{Credentials, File, Files, PosixExt};
use eyrie_medium::shared::observe_stores;
use serde_json::Value;

use crate::Sandbox;
use crate::served::{Program, Service, eventually};

/// Number of changes after which a client surely has the grant.
const CHANGES: u64 = 200;

fn start(sandbox: &Sandbox) -> Service {
    Service::start_with(sandbox, &["--deferred"])
}

/// Returns a file of a program that holds the grant, with `CHANGES` words.
fn file_of_holder(program: &Program) -> File<Files> {
    let file = program.files.options().append(true).create(true).open("/words").unwrap();
    (0..CHANGES).for_each(|word| append(&file, word));
    file
}

fn append(mut file: &File<Files>, word: u64) {
    assert_eq!(file.write(&word.to_le_bytes()).unwrap(), 8);
}

/// Asserts that bytes are the words from 0 to `count`.
fn assert_words(bytes: &[u8], count: u64) {
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert_eq!(words, (0..count).collect::<Vec<_>>());
}

/// Returns the size of the file as a command sees it.
fn size_of_words(sandbox: &Sandbox) -> u64 {
    let listed: Value = serde_json::from_str(&sandbox.succeed(["stat", "--json", "vol:/words"])).unwrap();
    listed["size"].as_u64().unwrap_or_else(|| listed[0]["size"].as_u64().unwrap())
}

#[test]
fn logged_changes_need_no_service() {
    let sandbox = Sandbox::with_volume("256M");
    let service = start(&sandbox);
    let program = Program::start(&sandbox);
    let store = program.volume.store("/", Credentials::of_process()).unwrap();
    store.put("key", "old").unwrap();
    let file = file_of_holder(&program);
    let other = program.files.options().write(true).create(true).open("/other").unwrap();
    (0..CHANGES).for_each(|word| append(&file, CHANGES + word));
    service.suspend();
    (2 * CHANGES..1000).for_each(|word| append(&file, word));
    assert!(!store.put("key", "new").unwrap());
    other.write_at(b"bytes", 3).unwrap();
    file.sync_all().unwrap();
    service.resume();
    assert_words(&program.files.read("/words").unwrap(), 1000);
    assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!((file.metadata().unwrap().size, other.metadata().unwrap().size), (8000, 8));
    drop((file, other, store));
    program.end(service, &sandbox);
    assert_eq!(sandbox.succeed(["cat", "vol:/key"]), "new");
}

/// The service is killed while it has not applied the log, and the program makes no call any more. A command
/// opens the volume next.
#[test]
fn logged_changes_outlive_the_service() {
    let sandbox = Sandbox::with_volume("256M");
    let service = start(&sandbox);
    let program = Program::start(&sandbox);
    let file = file_of_holder(&program);
    service.suspend();
    (CHANGES..1000).for_each(|word| append(&file, word));
    service.kill();
    (1000..1100).for_each(|word| append(&file, word));
    // A command that only reads sees the changes in its copy, and a command that changes the volume first
    // applies them.
    for _ in 0..2 {
        assert_eq!(size_of_words(&sandbox), 8800);
    }
    sandbox.succeed(["mv", "vol:/words", "vol:/moved"]);
    assert!(!sandbox.path("vol/sessions").exists() && !sandbox.path("vol/log-000").exists());
    let service = start(&sandbox);
    (1100..1200).for_each(|word| append(&file, word));
    assert_words(&program.files.read("/moved").unwrap(), 1200);
    drop(file);
    program.end(service, &sandbox);
}

/// Services are killed again and again while a program appends. Each append is made once.
#[test]
fn each_logged_change_is_made_once_although_services_are_killed() {
    let sandbox = Sandbox::with_volume("256M");
    let mut service = start(&sandbox);
    let program = Program::start(&sandbox);
    let file = file_of_holder(&program);
    let mut next = CHANGES;
    for kill in 0..20 {
        let until = next + 2000;
        service = std::thread::scope(|scope| {
            let writer = scope.spawn(|| (next..until).for_each(|word| append(&file, word)));
            std::thread::sleep(Duration::from_micros(500 * kill));
            service.kill();
            let service = start(&sandbox);
            writer.join().unwrap();
            service
        });
        next = until;
    }
    assert_words(&program.files.read("/words").unwrap(), next);
    drop(file);
    program.end(service, &sandbox);
}

/// Programs in other processes read, while the program that holds the grant appends.
#[test]
fn other_programs_see_logged_changes() {
    let sandbox = Sandbox::with_volume("256M");
    let service = start(&sandbox);
    let program = Program::start(&sandbox);
    let file = file_of_holder(&program);
    let mut next = CHANGES;
    for _ in 0..20 {
        (next..next + 300).for_each(|word| append(&file, word));
        next += 300;
        assert_eq!(size_of_words(&sandbox), 8 * next);
    }
    drop(file);
    program.end(service, &sandbox);
}

thread_local! {
    /// The number of stores of this thread to its log until the next owner opens the volume.
    static STORES_BEFORE_OWNER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The service is killed, and the next owner applies and removes the log, after the client has moved the end
/// of its log, and before the end is in the file. So the entry is not made, and the client makes the change
/// again.
#[test]
fn entry_in_a_closed_log_is_made_again() {
    let sandbox = Sandbox::with_volume("256M");
    let service = start(&sandbox);
    let program = Program::start(&sandbox);
    let file = file_of_holder(&program);
    service.suspend();
    append(&file, CHANGES);
    let (service, touch) =
        (Mutex::new(Some(service)), Mutex::new(sandbox.command(["touch", "vol:/applied"])));
    observe_stores(move |caller| {
        if !caller.file().ends_with("eyrie-client/src/log.rs") {
            return;
        }
        let left = STORES_BEFORE_OWNER.get();
        STORES_BEFORE_OWNER.set(left.and_then(|left| left.checked_sub(1)));
        if left == Some(0) {
            service.lock().unwrap().take().unwrap().kill();
            assert!(touch.lock().unwrap().status().unwrap().success());
        }
    });
    let service = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // The head and the Op of the entry, the end in the lanes, and the end in the file.
            STORES_BEFORE_OWNER.set(Some(3));
            append(&file, CHANGES + 1);
            assert_eq!(STORES_BEFORE_OWNER.get(), None);
        });
        eventually(|| !sandbox.path("vol/sessions").exists());
        let service = start(&sandbox);
        writer.join().unwrap();
        service
    });
    assert_words(&program.files.read("/words").unwrap(), CHANGES + 2);
    drop(file);
    program.end(service, &sandbox);
}
