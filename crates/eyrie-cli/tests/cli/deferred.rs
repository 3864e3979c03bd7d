//! Volumes whose clients log their changes and do not wait for the service: one client that is alone, or
//! several clients with grants of parts of the volume.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Errno, File, Files, Posix, PosixExt};
use eyrie_medium::shared::observe_stores;
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use serde_json::Value;

use crate::Sandbox;
use crate::served::{Program, Service};

/// Offset of the position after the last entry, in the file of a log.
const TAIL: u64 = 0;
/// Offset of the ring of entries in the file of a log.
const RING: u64 = 4096;
/// Size of the slot of a session in the table of logs, and the offset of its grant in the slot.
const SLOT_BYTES: u64 = 4096;
const GRANTED: u64 = 32;
/// Offset of the budget of a log in the slot of its session.
const BUDGET: u64 = 16;
/// Offset and size of the keys of the sessions that hold the parts, in the table of logs.
const HOLDERS: u64 = 256 * SLOT_BYTES;
const HOLDERS_BYTES: u64 = 8 << 16;
/// A user other than root.
const USER: u32 = 65_534;
/// The values of a grant: none, for parts of the volume, and for the whole volume.
const NOTHING: u64 = 0;
const PARTS: u64 = 1;
const WHOLE: u64 = 2;
/// Number of changes after which a client usually has the grant.
const CHANGES: u64 = 200;

/// A served volume, and a program that has made enough changes to get the grant.
struct Holder {
    sandbox: Sandbox,
    service: Service,
    program: Program,
    /// A file that grows, with `CHANGES` words.
    file: File<Files>,
}

impl Holder {
    fn start(size: &str) -> Holder {
        let sandbox = Sandbox::with_volume(size);
        let service = Service::start(&sandbox);
        let program = Program::start(&sandbox);
        let file = program.files.options().append(true).create(true).open("/words").unwrap();
        (0..CHANGES).for_each(|word| append(&file, word));
        Holder { sandbox, service, program, file }
    }

    /// Compares the words, ends the program, and checks the volume.
    fn end(self, count: u64) {
        assert_words(&self.program.files.read("/words").unwrap(), count);
        drop(self.file);
        self.program.end(self.service, &self.sandbox);
    }
}

/// Suspends a service while its only program holds the grant of the volume. The program gets this grant when
/// no other program has used the volume for a while.
pub fn suspend_beside_grant(sandbox: &Sandbox, service: &Service, program: &Program) {
    for _ in 0..200 {
        let file = program.files.options().write(true).create(true).open("/scratch").unwrap();
        (0..CHANGES).for_each(|word| _ = file.write_at(&word.to_le_bytes(), 0).unwrap());
        drop(file);
        service.suspend();
        if grants(sandbox)[0] == WHOLE {
            return;
        }
        service.resume();
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the program never holds the grant");
}

/// Returns the grants of the first sessions, as the service notes them.
fn grants(sandbox: &Sandbox) -> [u64; 6] {
    let table = fs::File::open(sandbox.path("vol/sessions")).unwrap();
    [0, 1, 2, 3, 4, 5].map(|slot| {
        let mut granted = [0; 8];
        table.read_exact_at(&mut granted, slot * SLOT_BYTES + GRANTED).unwrap();
        u64::from_le_bytes(granted)
    })
}

fn append(mut file: &File<Files>, word: u64) {
    assert_eq!(file.write(&word.to_le_bytes()).unwrap(), 8);
}

/// Asserts that bytes are the words below `count`, in order.
fn assert_words(bytes: &[u8], count: u64) {
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert_eq!(words, (0..count).collect::<Vec<_>>());
}

/// Returns the size of `/words` as a command sees it.
fn size_of_words(sandbox: &Sandbox) -> u64 {
    let listed: Value = serde_json::from_str(&sandbox.succeed(["stat", "--json", "vol:/words"])).unwrap();
    listed["size"].as_u64().unwrap_or_else(|| listed[0]["size"].as_u64().unwrap())
}

#[test]
fn logged_changes_need_no_service() {
    let holder = Holder::start("256M");
    let Holder { sandbox, service, program, file } = &holder;
    let store = program.volume.store("/", Credentials::of_process()).unwrap();
    store.put("key", "old").unwrap();
    let other = program.files.options().write(true).create(true).open("/other").unwrap();
    (0..CHANGES).for_each(|word| append(file, CHANGES + word));
    suspend_beside_grant(sandbox, service, program);
    (2 * CHANGES..1000).for_each(|word| append(file, word));
    assert!(!store.put("key", "new").unwrap());
    other.write_at(b"bytes", 3).unwrap();
    file.sync_all().unwrap();
    service.resume();
    assert_words(&program.files.read("/words").unwrap(), 1000);
    assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!((file.metadata().unwrap().size, other.metadata().unwrap().size), (8000, 8));
    assert_eq!(sandbox.succeed(["cat", "vol:/key"]), "new");
    drop((other, store));
    holder.end(1000);
}

/// Number of files that [`change_names`] makes.
const MADE: u32 = 200;

/// Makes a directory, and files in it, so that the client has enough reserved ids.
fn prepare_names(files: &Files) {
    files.mkdir("/dir".into(), 0o755).unwrap();
    (0..70).for_each(|file| files.write(format!("/dir/old{file}"), b"old").unwrap());
}

/// Makes, moves and removes names, and reads no bytes or attributes. Returns a file that has no name.
fn change_names(program: &Program) -> File<Files> {
    let files = &program.files;
    let make = |path: &str| files.options().write(true).create_new(true).open(path);
    for file in 0..MADE {
        let name = format!("/dir/{file}");
        let made = make(&name).unwrap();
        made.write_at(name.as_bytes(), 0).unwrap();
        assert_eq!(make(&name).unwrap_err().errno(), Errno::EXIST);
        if file % 3 == 0 {
            files.rename(&name, format!("/dir/moved{file}")).unwrap();
        }
        if file % 3 == 1 {
            files.unlink(name.as_str().into()).unwrap();
            assert_eq!(files.options().read(true).open(&name).unwrap_err().errno(), Errno::NOENT);
        }
    }
    (0..70).step_by(2).for_each(|file| files.unlink(format!("/dir/old{file}").as_str().into()).unwrap());
    // The name of a removed object is free, and a rename replaces a file.
    make("/dir/1").unwrap().set_len(5).unwrap();
    files.rename("/dir/2", "/dir/5").unwrap();
    let store = program.volume.store("/dir", Credentials::of_process()).unwrap();
    for key in 0..20 {
        assert!(store.put(format!("key{key}"), "value").unwrap(), "new");
        assert!(key % 2 == 0 || store.erase(format!("key{key}")).unwrap());
    }
    let unnamed = make("/dir/unnamed").unwrap();
    unnamed.write_at(b"no name", 0).unwrap();
    files.unlink("/dir/unnamed".into()).unwrap();
    unnamed
}

/// Compares the names and the bytes after [`change_names`].
fn assert_names(files: &Files) {
    let mut expected: BTreeMap<String, Vec<u8>> =
        (1..70).step_by(2).map(|file| (format!("old{file}"), b"old".to_vec())).collect();
    for file in (0..MADE).filter(|file| ![2, 5].contains(file) && file % 3 != 1) {
        let name = if file % 3 == 0 { format!("moved{file}") } else { file.to_string() };
        expected.insert(name, format!("/dir/{file}").into_bytes());
    }
    expected.insert("1".to_owned(), vec![0; 5]);
    expected.insert("5".to_owned(), b"/dir/2".to_vec());
    expected.extend((0..20).step_by(2).map(|key| (format!("key{key}"), b"value".to_vec())));
    let entries = files.read_dir("/dir").unwrap().map(|entry| entry.unwrap().into_name());
    let found: BTreeMap<String, Vec<u8>> = entries
        .map(|name| name.into_string().unwrap())
        .map(|name| (name.clone(), files.read(format!("/dir/{name}")).unwrap()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn names_need_no_service() {
    let Holder { sandbox, service, program, file } = Holder::start("256M");
    prepare_names(&program.files);
    suspend_beside_grant(&sandbox, &service, &program);
    let unnamed = change_names(&program);
    service.resume();
    assert_names(&program.files);
    assert_eq!((unnamed.metadata().unwrap().size, unnamed.metadata().unwrap().links), (7, 0));
    drop(unnamed);
    Holder { sandbox, service, program, file }.end(CHANGES);
}

/// The service is killed before it has applied the log. The next owner, which is a command or a service,
/// applies the log. Files that are open stay open.
#[test]
fn names_outlive_the_service() {
    for by_command in [false, true] {
        let Holder { sandbox, service, program, file } = Holder::start("256M");
        prepare_names(&program.files);
        suspend_beside_grant(&sandbox, &service, &program);
        let mut open = program.files.options().read(true).write(true).create(true).open("/open").unwrap();
        open.write_all(b"kept").unwrap();
        drop(change_names(&program));
        service.kill();
        if by_command {
            sandbox.succeed(["touch", "vol:/applied"]);
            sandbox.succeed(["fsck", "vol"]);
        }
        let service = Service::start(&sandbox);
        // So many files need all free headers, and further header chunks.
        (0..2000).for_each(|file| program.files.write(format!("/more{file}"), b"more").unwrap());
        assert_names(&program.files);
        open.write_all(b" open").unwrap();
        assert_eq!(program.files.read("/open").unwrap(), b"kept open");
        drop(open);
        Holder { sandbox, service, program, file }.end(CHANGES);
    }
}

/// The service is killed before it has applied the log. The program then logs more changes, and a command
/// opens the volume next.
#[test]
fn logged_changes_outlive_the_service() {
    let Holder { sandbox, service, program, file } = Holder::start("256M");
    suspend_beside_grant(&sandbox, &service, &program);
    (CHANGES..1000).for_each(|word| append(&file, word));
    service.kill();
    (1000..1100).for_each(|word| append(&file, word));
    // A command that only reads sees the changes in its own copy of the volume. A command that changes the
    // volume first applies them.
    for _ in 0..2 {
        assert_eq!(size_of_words(&sandbox), 8800);
    }
    sandbox.succeed(["touch", "vol:/applied"]);
    assert!(!sandbox.path("vol/sessions").exists() && !sandbox.path("vol/log-000").exists());
    let service = Service::start(&sandbox);
    (1100..1200).for_each(|word| append(&file, word));
    Holder { sandbox, service, program, file }.end(1200);
}

/// Makes files in the directory `dir`, moves and removes some of them, and writes to one of them. Their names
/// end with `round`.
fn change_directory(program: &Program, dir: &str, round: u32) {
    let files = &program.files;
    let path = |name: &str| format!("{dir}/{name}-{round}");
    for number in 0..20 {
        files.write(path(&format!("new{number}")), b"new").unwrap();
    }
    files.rename(path("new1"), path("moved")).unwrap();
    files.rename(path("new2"), path("new3")).unwrap();
    files.unlink(path("new4").as_str().into()).unwrap();
    let file = files.options().write(true).open(path("new5")).unwrap();
    file.write_all_at(b"written", 0).unwrap();
}

/// A service and two programs. Each program holds the grants of a directory of its own.
struct TwoHolders {
    sandbox: Sandbox,
    service: Service,
    programs: [Program; 2],
    /// Number of calls of [`change_directory`] in each directory.
    rounds: u32,
}

/// The directories of the programs.
const DIRS: [&str; 2] = ["/first", "/second"];

impl TwoHolders {
    fn start(size: &str) -> TwoHolders {
        let sandbox = Sandbox::with_volume(size);
        let service = Service::start(&sandbox);
        let programs = [(); 2].map(|()| Program::start(&sandbox));
        for (program, dir) in programs.iter().zip(DIRS) {
            program.files.mkdir(dir.into(), 0o755).unwrap();
        }
        let mut holders = TwoHolders { sandbox, service, programs, rounds: 0 };
        holders.get_grants();
        holders
    }

    fn change(&mut self) {
        for (program, dir) in self.programs.iter().zip(DIRS) {
            change_directory(program, dir, self.rounds);
        }
        self.rounds += 1;
    }

    /// Suspends the service while both programs hold grants and all changes are applied. Programs that log
    /// nothing for 100 ms lose their grants.
    fn suspend(&mut self) {
        loop {
            // This call makes the service apply all changes.
            self.programs[0].volume.stats();
            self.service.suspend();
            if grants(&self.sandbox).starts_with(&[PARTS, PARTS]) {
                return;
            }
            self.service.resume();
            self.change();
        }
    }

    /// Changes the directories until both programs hold grants, and have ids for new files.
    fn get_grants(&mut self) {
        while {
            self.change();
            assert!(self.rounds < 1000, "the programs never hold grants at the same time");
            self.rounds < 10 || !grants(&self.sandbox).starts_with(&[PARTS, PARTS])
        } {}
    }
}

/// A request that reads the state of the volume sees the logged changes of another program, which keeps its
/// grants.
#[test]
fn state_of_the_volume_takes_no_grants() {
    let holders = TwoHolders::start("128M");
    let free = || holders.programs[1].volume.stats().free_bytes;
    let before = free();
    holders.programs[0].files.write("/first/large", [7; 48 << 10]).unwrap();
    assert!(before - free() >= 48 << 10);
    assert_eq!(grants(&holders.sandbox)[..2], [PARTS, PARTS]);
    let TwoHolders { sandbox, service, programs: [first, second], .. } = holders;
    drop(first);
    second.end(service, &sandbox);
}

/// Programs that no longer change a volume leave their budgets of storage to the next ones, even while the
/// service is always busy.
#[test]
fn idle_programs_leave_their_budgets() {
    let sandbox = Sandbox::with_volume("64M");
    let service = Service::start(&sandbox);
    let programs = [(); 6].map(|()| Program::start(&sandbox));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while !is_over.load(Ordering::Relaxed) && started.elapsed() < Duration::from_secs(20) {
                programs[0].volume.stats();
            }
        });
        for (number, program) in programs.iter().enumerate() {
            let dir = format!("/dir{number}");
            program.files.mkdir(dir.as_str().into(), 0o755).unwrap();
            let holds = || grants(&sandbox)[number] != NOTHING;
            let (mut round, started) = (0, Instant::now());
            while {
                change_directory(program, &dir, round);
                round += 1;
                assert!(started.elapsed() < Duration::from_secs(20), "program {number} gets no grants");
                !holds()
            } {}
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut programs = programs.into_iter();
    let last = programs.next_back().unwrap();
    drop(programs);
    last.end(service, &sandbox);
}

/// Two programs change separate directories while the service is suspended. Each change is made, even if the
/// service is killed.
#[test]
fn programs_in_separate_directories_need_no_service() {
    for is_killed in [false, true] {
        let mut holders = TwoHolders::start("512M");
        holders.suspend();
        holders.change();
        let TwoHolders { sandbox, service, programs, rounds } = holders;
        let round = rounds - 1;
        let service = if is_killed {
            service.kill();
            Service::start(&sandbox)
        } else {
            service.resume();
            service
        };
        // Each program sees the changes of the other.
        for (program, dir) in programs.iter().rev().zip(DIRS) {
            let read = |name: &str| program.files.read(format!("{dir}/{name}-{round}")).unwrap();
            assert_eq!([read("moved"), read("new3"), read("new5")], [&b"new"[..], b"new", b"written"]);
            let names = program.files.read_dir(dir).unwrap().count();
            assert_eq!(names, 18 * rounds as usize);
        }
        let [first, second] = programs;
        drop(first);
        second.end(service, &sandbox);
    }
}

/// Runs `work` in a thread of another user. Returns `None` if this process may not become that user.
fn as_user<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let user = Uid::from_raw(USER);
    let run = || set_thread_res_uid(None, user, None).is_ok().then(work);
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Two programs of different users log changes while the service is suspended. The service is killed, and the
/// next owner makes the changes of both.
#[test]
fn logged_changes_of_two_users_outlive_the_service() {
    let sandbox = Sandbox::with_volume("512M");
    fs::set_permissions(sandbox.path("."), Permissions::from_mode(0o755)).unwrap();
    let service = Service::start_with(&sandbox, &["--allow-user", &USER.to_string()]);
    let own = Program::start(&sandbox);
    for dir in DIRS {
        own.files.mkdir(dir.into(), 0o777).unwrap();
        own.files.chmod(dir.into(), 0o777).unwrap();
    }
    let Some(foreign) = as_user(|| Program::start(&sandbox)) else {
        eprintln!("NOT TESTED: this user cannot run programs as another user");
        return own.end(service, &sandbox);
    };
    let change = |round| {
        change_directory(&own, DIRS[0], round);
        as_user(|| change_directory(&foreign, DIRS[1], round));
    };
    let mut round = 0;
    loop {
        change(round);
        round += 1;
        assert!(round < 1000, "the programs never hold grants at the same time");
        service.suspend();
        if round >= 10 && grants(&sandbox).starts_with(&[PARTS, PARTS]) {
            break;
        }
        service.resume();
    }
    change(round);
    service.kill();
    let service = Service::start(&sandbox);
    for (dir, user) in DIRS.into_iter().zip([0, USER]) {
        assert_eq!(own.files.read_dir(dir).unwrap().count(), 18 * (round as usize + 1));
        let written = format!("{dir}/new5-{round}");
        assert_eq!(own.files.read(&written).unwrap(), b"written");
        assert_eq!(own.files.metadata(&written).unwrap().uid, user);
    }
    drop(foreign);
    own.end(service, &sandbox);
}

/// The next owner makes no changes whose objects the session did not hold, and no changes beyond the budget
/// of the log, as the table of the logs has them.
#[test]
fn left_entries_need_grants_and_budgets() {
    for (offset, bytes) in [(HOLDERS, HOLDERS_BYTES), (BUDGET, 8), (SLOT_BYTES + BUDGET, 8)] {
        let mut holders = TwoHolders::start("512M");
        holders.suspend();
        holders.change();
        let TwoHolders { sandbox, service, programs, rounds } = holders;
        service.kill();
        let table = fs::OpenOptions::new().write(true).open(sandbox.path("vol/sessions")).unwrap();
        table.write_all_at(&vec![0; bytes as usize], offset).unwrap();
        let files_of_round = 18;
        let files = |dir: &str| sandbox.succeed(["ls", &format!("vol:{dir}")]).lines().count();
        let made = |is_made: bool| files_of_round * (rounds as usize - usize::from(!is_made));
        let expected = [offset == SLOT_BYTES + BUDGET, offset == BUDGET].map(made);
        assert_eq!(DIRS.map(files), expected, "{offset}");
        drop(programs);
    }
}

/// A check sees the changes that a killed service has not applied. The repair of a damaged volume reports
/// that they are lost.
#[test]
fn check_and_repair_know_the_changes_of_a_killed_service() {
    let Holder { sandbox, service, program, file } = Holder::start("256M");
    prepare_names(&program.files);
    let listed: Value = serde_json::from_str(&sandbox.succeed(["stat", "--json", "vol:/words"])).unwrap();
    suspend_beside_grant(&sandbox, &service, &program);
    (0..30).for_each(|file| program.files.unlink(format!("/dir/old{file}").as_str().into()).unwrap());
    service.kill();
    let table = fs::read(sandbox.path("vol/sessions")).unwrap();
    for _ in 0..2 {
        let report: Value = serde_json::from_str(&sandbox.succeed(["fsck", "--json", "vol"])).unwrap();
        // The files are `/words`, `/scratch` and the 40 files that are left in `/dir`.
        assert_eq!((&report["sound"], report["files"].as_u64()), (&Value::Bool(true), Some(42)));
    }
    assert!(fs::read(sandbox.path("vol/sessions")).unwrap() == table, "a check changes nothing");
    // The low bits of the number of an object have its kind, and the others are the place of its header.
    let place = listed[0]["inode"].as_u64().unwrap() & !0x3f;
    let segment = fs::OpenOptions::new().write(true).open(sandbox.path("vol/segment-0000")).unwrap();
    segment.write_all_at(&[b'x'; 64], place).unwrap();
    assert_eq!(sandbox.run(["fsck", "vol"]).status.code(), Some(4));
    let repaired = sandbox.run(["fsck", "--repair", "vol"]);
    assert_eq!(repaired.status.code(), Some(1));
    let printed = String::from_utf8(repaired.stdout).unwrap();
    for lost in ["lost: /: the latest changes, which a killed service had not applied", "lost: /words: "] {
        assert!(printed.contains(lost), "{printed}");
    }
    assert_eq!(sandbox.succeed(["ls", "vol:/dir"]).lines().count(), 70);
    drop((file, program));
}

/// A program has removed a file, still has it open, and writes to it. The service is killed before it has
/// applied the log. The next owner has then freed the file, and other files may have its storage.
#[test]
fn log_of_a_removed_file_harms_no_other_file() {
    let Holder { sandbox, service, program, file } = Holder::start("256M");
    let removed = program.files.options().write(true).create(true).open("/removed").unwrap();
    removed.write_all_at(&[1; 256 << 10], 0).unwrap();
    program.files.unlink("/removed".into()).unwrap();
    let kept = program.files.options().write(true).create(true).open("/kept").unwrap();
    (CHANGES..2 * CHANGES).for_each(|word| append(&file, word));
    suspend_beside_grant(&sandbox, &service, &program);
    (0..64).for_each(|page| kept.write_all_at(&[2; 4096], page << 12).unwrap());
    // Short writes to existing bytes change these bytes in place.
    (0..64).for_each(|page| removed.write_all_at(&[3; 8], page << 12).unwrap());
    service.kill();
    sandbox.succeed(["touch", "vol:/applied"]);
    sandbox.succeed(["fsck", "vol"]);
    let service = Service::start(&sandbox);
    assert_eq!(program.files.read("/kept").unwrap(), [2; 256 << 10]);
    drop((kept, removed));
    Holder { sandbox, service, program, file }.end(2 * CHANGES);
}

/// The service cannot apply an entry, because its bytes are damaged. Each later sync of the client fails,
/// also in the next session, and the client logs nothing more.
#[test]
fn lost_change_fails_all_later_syncs() {
    let Holder { sandbox, service, program, file } = Holder::start("256M");
    assert_words(&program.files.read("/words").unwrap(), CHANGES);
    let log = fs::OpenOptions::new().read(true).write(true).open(sandbox.path("vol/log-000")).unwrap();
    let end = || {
        let mut end = [0; 8];
        log.read_exact_at(&mut end, TAIL).unwrap();
        u64::from_le_bytes(end)
    };
    suspend_beside_grant(&sandbox, &service, &program);
    let before = end();
    append(&file, CHANGES);
    assert_ne!(end(), before, "the change is in the log");
    log.write_all_at(&[0xff; 16], RING + before).unwrap();
    service.resume();
    assert_words(&program.files.read("/words").unwrap(), CHANGES);
    let is_lost = || assert_eq!(file.sync_all().unwrap_err().errno(), Errno::IO);
    is_lost();
    (CHANGES..2 * CHANGES).for_each(|word| append(&file, word));
    let last = end();
    append(&file, 2 * CHANGES);
    assert_eq!(end(), last, "the client logs nothing more");
    service.kill();
    let service = Service::start(&sandbox);
    append(&file, 2 * CHANGES + 1);
    is_lost();
    assert_words(&program.files.read("/words").unwrap(), 2 * CHANGES + 2);
    drop(file);
    program.end_after_loss(service, &sandbox);
}

/// A client that spends its budget of storage again and again still logs its changes.
#[test]
fn spent_budget_is_renewed() {
    let Holder { sandbox, service, program, file } = Holder::start("32M");
    (CHANGES..10 * CHANGES).for_each(|word| append(&file, word));
    suspend_beside_grant(&sandbox, &service, &program);
    append(&file, 10 * CHANGES);
    service.resume();
    Holder { sandbox, service, program, file }.end(10 * CHANGES + 1);
}

/// Appends a word. After some words, also makes a file, moves it, and removes an earlier file.
fn append_and_name(files: &Files, file: &File<Files>, word: u64) {
    append(file, word);
    if word.is_multiple_of(NAMED) {
        let (made, moved) = (format!("/names/{word}"), format!("/names/moved{word}"));
        drop(files.options().write(true).create_new(true).open(&made).unwrap());
        files.rename(&made, &moved).unwrap();
        if let Some(earlier) = word.checked_sub(LEFT * NAMED) {
            files.remove_file(format!("/names/moved{earlier}")).unwrap();
        }
    }
}

/// Each word that is a multiple of this number makes a file.
const NAMED: u64 = 8;
/// Number of files that are left.
const LEFT: u64 = 100;

/// Services are killed again and again while a program appends, and makes, moves and removes files. Each
/// change is made once. `EYRIE_TEST_KILLS` sets the number of kills.
#[test]
fn each_logged_change_is_made_once_although_services_are_killed() {
    let kills = std::env::var("EYRIE_TEST_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let Holder { sandbox, mut service, program, file } = Holder::start("1G");
    let files = &program.files;
    files.mkdir("/names".into(), 0o755).unwrap();
    (0..LEFT).for_each(|number| files.write(format!("/names/moved{}", number * NAMED), b"").unwrap());
    let mut next = LEFT * NAMED;
    (CHANGES..next).for_each(|word| append(&file, word));
    for kill in 0..kills {
        let until = next + 2000;
        let pause = Duration::from_micros(kill * 97 % 3000);
        service = std::thread::scope(|scope| {
            let writer = scope.spawn(|| (next..until).for_each(|word| append_and_name(files, &file, word)));
            std::thread::sleep(pause);
            service.kill();
            let service = Service::start(&sandbox);
            writer.join().unwrap();
            service
        });
        next = until;
    }
    let found = files.read_dir("/names").unwrap().map(|entry| entry.unwrap().into_name());
    let expected = (next / NAMED - LEFT..next / NAMED).map(|file| format!("moved{}", file * NAMED).into());
    assert_eq!(found.collect::<BTreeSet<OsString>>(), expected.collect());
    Holder { sandbox, service, program, file }.end(next);
}

/// Commands in other processes read between the appends of the program that holds the grant.
#[test]
fn other_programs_see_logged_changes() {
    let holder = Holder::start("256M");
    let mut next = CHANGES;
    for _ in 0..20 {
        (next..next + 300).for_each(|word| append(&holder.file, word));
        next += 300;
        assert_eq!(size_of_words(&holder.sandbox), 8 * next);
    }
    holder.end(next);
}

thread_local! {
    /// The number of stores of this thread to its log until the next owner opens the volume.
    static STORES_BEFORE_OWNER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The service is killed after the client has moved the end of its log, and before this end is in the file of
/// the log. The next owner applies and removes the log without the last entry. So the client makes the change
/// again.
#[test]
fn entry_in_a_closed_log_is_made_again() {
    let Holder { sandbox, service, program, file } = Holder::start("256M");
    suspend_beside_grant(&sandbox, &service, &program);
    append(&file, CHANGES);
    let (service, touch) =
        (Mutex::new(Some(service)), Mutex::new(sandbox.command(["touch", "vol:/applied"])));
    let (applied, is_applied) = mpsc::channel();
    observe_stores(move |caller| {
        if !caller.file().ends_with("eyrie-client/src/log.rs") {
            return;
        }
        let left = STORES_BEFORE_OWNER.get();
        STORES_BEFORE_OWNER.set(left.and_then(|left| left.checked_sub(1)));
        if left == Some(0) {
            service.lock().unwrap().take().unwrap().kill();
            assert!(touch.lock().unwrap().status().unwrap().success());
            applied.send(()).unwrap();
        }
    });
    let service = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // The four stores are the head and the Op of the entry, the end in the lanes, and the end in the
            // file. The next owner opens the volume immediately before the last of them.
            STORES_BEFORE_OWNER.set(Some(3));
            append(&file, CHANGES + 1);
            assert_eq!(STORES_BEFORE_OWNER.get(), None);
        });
        // While the command has the volume, no service can start.
        is_applied.recv().unwrap();
        let service = Service::start(&sandbox);
        writer.join().unwrap();
        service
    });
    Holder { sandbox, service, program, file }.end(CHANGES + 2);
}
