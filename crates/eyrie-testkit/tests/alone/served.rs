//! Kills a service at each site of its stores and fences, and between its stores to memory that its clients
//! map. A site is a place in the sources. The client goes on with the next service: each call returns as if
//! no service had been killed. On a disk, a kill may undo changes, but none that was synchronised.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Kvfs, MediumChoice, Posix, PosixExt, Pxfs, Volume};
use eyrie_client::Client;
use eyrie_engine::Errno;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::segment_path;
use eyrie_faults::Site;
use eyrie_medium::shared::observe_stores;
use eyrie_medium::sync::unpoisoned;
use eyrie_medium::{Addr, Caller, Fault, Mapped, Medium, Observer, PagedOptions, SiteKind};
use eyrie_service::{ServeOptions, Service};
use rustix::process::{Signal, getpid, kill_process};

use crate::alone;

/// Names of the environment variables of a service: the directory of its volume, the kill that is planned for
/// it, and a variable that is set only for a volume on a disk.
const PLACE: &str = "EYRIE_TEST_SERVED_PLACE";
const KILL: &str = "EYRIE_TEST_SERVED_KILL";
const DISK: &str = "EYRIE_TEST_SERVED_DISK";

/// A client appends the numbers below this limit.
const NUMBERS: u8 = 6;
/// Maximum number of kills at one site of stores to shared memory.
const SHARED_KILLS: u64 = 8;

/// Part of the life of a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    Opening,
    Serving,
}

/// A moment at which a service is killed: at an event of a site. An event is a store, a publish or a fence.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PlannedKill {
    phase: Phase,
    site: String,
    /// Number of the event among the events of the site in this phase. The first event has number 1.
    event: u64,
    /// True if the kill comes directly after the store of this event. Otherwise it comes directly before.
    is_after: bool,
}

impl PlannedKill {
    fn to_text(&self) -> String {
        format!("{}|{}|{}|{}", self.phase == Phase::Serving, self.site, self.event, self.is_after)
    }

    fn of_text(text: &str) -> PlannedKill {
        let [is_serving, site, event, is_after] = text.split('|').collect::<Vec<_>>()[..] else {
            panic!("a planned kill: {text}")
        };
        PlannedKill {
            phase: if is_serving == "true" { Phase::Serving } else { Phase::Opening },
            site: site.to_owned(),
            event: event.parse().expect("a number"),
            is_after: is_after == "true",
        }
    }
}

/// Counts the events of each site, and kills this process at the planned one.
struct KillAtSite {
    planned: Option<PlannedKill>,
    is_serving: AtomicBool,
    /// True between the planned event and its store.
    is_due: AtomicBool,
    counts: Mutex<BTreeMap<(Phase, String), u64>>,
}

fn kill_this_process() {
    let _ = kill_process(getpid(), Signal::KILL);
    // The sleep makes sure that this thread makes no further store.
    std::thread::sleep(Duration::from_secs(60));
}

impl KillAtSite {
    fn at(&self, kind: SiteKind, caller: Caller) {
        let phase = if self.is_serving.load(Ordering::SeqCst) { Phase::Serving } else { Phase::Opening };
        let site = Site { kind, file: caller.file(), line: caller.line() }.to_string();
        let mut counts = unpoisoned(self.counts.lock());
        let count = counts.entry((phase, site.clone())).or_default();
        *count += 1;
        let is_planned = self
            .planned
            .as_ref()
            .is_some_and(|planned| (planned.phase, &planned.site, planned.event) == (phase, &site, *count));
        if is_planned {
            match &self.planned {
                Some(planned) if planned.is_after => self.is_due.store(true, Ordering::SeqCst),
                _ => kill_this_process(),
            }
        }
    }
}

impl Observer for KillAtSite {
    fn before_store(&self, _: Mapped<'_>, _: Addr, _: u64, caller: Caller) -> Result<(), Fault> {
        self.at(SiteKind::Write, caller);
        Ok(())
    }

    fn before_publish(&self, _: Mapped<'_>, _: Addr, _: u64, caller: Caller) -> Result<bool, Fault> {
        self.at(SiteKind::Publish, caller);
        Ok(true)
    }

    fn after_store(&self, _: Addr, _: &[u8]) {
        if self.is_due.load(Ordering::SeqCst) {
            kill_this_process();
        }
    }

    fn fence(&self, caller: Caller) {
        self.at(SiteKind::Fence, caller);
    }
}

/// Serves the volume until the standard input ends, if this process is a service. Then prints the number of
/// events of each site.
fn serve_if_child() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let planned = std::env::var(KILL).ok().map(|text| PlannedKill::of_text(&text));
    let observer = Arc::new(KillAtSite {
        planned,
        is_serving: AtomicBool::new(false),
        is_due: AtomicBool::new(false),
        counts: Mutex::default(),
    });
    let of_stores = Arc::clone(&observer);
    observe_stores(move |caller| of_stores.at(SiteKind::Share, caller));
    let (volume, socket) = (place.join("volume"), place.join("socket"));
    let service = if std::env::var_os(DISK).is_some() {
        let mut options = ServeOptions::default();
        // The interval is so long that no drain starts because of time.
        options.paged = PagedOptions::new(1 << 20, Duration::from_secs(60));
        Service::start(&volume, &socket, options).expect("sound")
    } else {
        let file = OpenOptions::new().read(true).write(true).open(segment_path(&volume)).expect("a volume");
        let bytes = file.metadata().expect("a file").len();
        let medium = Medium::dram(vec![(file, bytes)]).expect("a mapping").observed_by(observer.clone());
        let engine = Scm::open_shared_on(medium).expect("sound");
        let segment = File::open(segment_path(&volume)).expect("a volume");
        let service = Service::start_on(engine, segment, &socket, ServeOptions::default());
        service.expect("the socket is free")
    };
    let stopper = service.stopper();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        stopper.stop();
    });
    observer.is_serving.store(true, Ordering::SeqCst);
    service.run().expect("the volume is saved");
    for ((phase, site), count) in unpoisoned(observer.counts.lock()).iter() {
        println!("\nevents|{}|{site}|{count}", *phase == Phase::Serving);
    }
    std::process::exit(0);
}

/// Starts services, one after the other, until one of them is not killed.
struct Supervisor {
    place: PathBuf,
    test: &'static str,
    is_on_disk: bool,
}

impl Supervisor {
    fn start(&self, planned: Option<&PlannedKill>) -> (Child, ChildStdin) {
        let mut command = Command::new(std::env::current_exe().expect("the test knows its program"));
        command.args([self.test, "--exact", "--nocapture"]).env(PLACE, &self.place);
        if let Some(planned) = planned {
            command.env(KILL, planned.to_text());
        }
        if self.is_on_disk {
            command.env(DISK, "1");
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("the program can be started again");
        let input = child.stdin.take().expect("a pipe");
        (child, input)
    }

    /// Runs `body`. Meanwhile one service runs for each of `kills`, one after the other, and then a last
    /// service without a planned kill. Returns the number of services that were killed, and the events of the
    /// last one.
    fn run(&self, kills: &[PlannedKill], body: impl FnOnce() + Send) -> (usize, Vec<(Phase, String, u64)>) {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let supervising = scope.spawn(|| {
                let mut kills = kills.iter();
                let mut killed = 0;
                loop {
                    let planned = kills.next();
                    let (mut child, input) = self.start(planned);
                    while !ended.load(Ordering::SeqCst) && child.try_wait().expect("a child").is_none() {
                        std::thread::sleep(Duration::from_micros(300));
                    }
                    drop(input);
                    let output = child.wait_with_output().expect("a child");
                    if output.status.success() {
                        let text = String::from_utf8_lossy(&output.stdout).into_owned();
                        return (killed, text);
                    }
                    let signal = output.status.signal();
                    let is_planned = planned.is_some() && signal == Some(Signal::KILL.as_raw());
                    assert!(is_planned, "a service ended by itself: {}", output.status);
                    killed += 1;
                }
            });
            // A body that panics ends the services, too.
            let done = catch_unwind(AssertUnwindSafe(body));
            ended.store(true, Ordering::SeqCst);
            done.unwrap_or_else(|panic| resume_unwind(panic));
            let (killed, text) = supervising.join().expect("no panic");
            let events = text.lines().filter_map(|line| {
                let ["events", is_serving, site, count] = line.split('|').collect::<Vec<_>>()[..] else {
                    return None;
                };
                let phase = if is_serving == "true" { Phase::Serving } else { Phase::Opening };
                Some((phase, site.to_owned(), count.parse().expect("a number")))
            });
            (killed, events.collect())
        })
    }
}

/// Returns the files of a new client. Tries again until a service accepts the client, for at most 20 seconds.
fn connected(socket: &Path) -> Pxfs<Client> {
    let started = Instant::now();
    let client = loop {
        match Client::connect(socket, false) {
            Ok(client) => break Arc::new(client),
            Err(error) => assert!(started.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_micros(300));
    };
    Pxfs::new(client, Credentials::of_process())
}

/// Makes changes that succeed only once, and checks the result of each call.
fn make_changes(socket: &Path) {
    let files = connected(socket);
    files.create_dir("/dir").unwrap();
    let file = files.options().read(true).write(true).create_new(true).open("/dir/log").unwrap();
    for number in 0..4_u8 {
        assert_eq!(file.append(&[number; 5]).unwrap(), 5);
    }
    let mut bytes = [0; 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes.map(usize::from), std::array::from_fn(|at| at / 5));
    assert_eq!(file.write_at(b"in place", 4).unwrap(), 8);
    file.set_len(6000).unwrap();
    assert_eq!(file.write_at(&[7; 9000], 3000).unwrap(), 9000);
    files.hard_link("/dir/log", "/dir/name").unwrap();
    files.rename("/dir/name", "/moved").unwrap();
    files.remove_file("/moved").unwrap();
    files.symlink("log".as_ref(), "/dir/link".into()).unwrap();
    files.set_mode("/dir/log", 0o640).unwrap();
    let keys = Kvfs::open(&files, "/dir").unwrap();
    assert!(keys.put("key", "value").unwrap(), "the put creates the key");
    assert!(!keys.put("key", "another").unwrap(), "the put replaces the value");
    assert!(keys.put("gone", "value").unwrap());
    assert!(keys.erase("gone").unwrap());
    files.create_dir("/empty").unwrap();
    files.rename("/empty", "/dir/empty").unwrap();
    files.remove_dir("/dir/empty").unwrap();
    drop((file, keys));
}

/// Appends numbers to a file, reads it, and synchronises it after each number. A client whose changes may be
/// lost gets an error. The next client then looks at the file, and appends the number if it was lost.
fn append_synchronised_numbers(socket: &Path) {
    let mut synchronised = 0;
    while synchronised < NUMBERS {
        let Err(error) = go_on_appending(&connected(socket), &mut synchronised) else { continue };
        // The file itself may be lost until the first sync.
        let may_be =
            if synchronised == 0 { &[Errno::IO, Errno::STALE, Errno::NOENT][..] } else { &[Errno::IO] };
        assert!(may_be.contains(&error.errno()), "{error} after {synchronised} numbers");
    }
}

fn go_on_appending(files: &Pxfs<Client>, synchronised: &mut u8) -> eyrie::Result<()> {
    let log = files.options().read(true).append(true).create(true).open("/log")?;
    loop {
        let bytes = files.read("/log")?;
        assert!(bytes.iter().copied().eq(0..bytes.len() as u8), "{bytes:?}");
        assert!(bytes.len() >= usize::from(*synchronised), "{bytes:?}, {synchronised} were synchronised");
        if bytes.len() == usize::from(*synchronised) {
            assert_eq!(log.append(&[*synchronised])?, 1);
        }
        log.sync_all()?;
        *synchronised += 1;
        if *synchronised == NUMBERS {
            return Ok(());
        }
    }
}

/// Returns the changed volume as a text. Asserts that it is sound.
fn contents(volume: &Path) -> String {
    let volume = Volume::open(volume).unwrap();
    let report = volume.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let files = volume.files(Credentials::of_process());
    let mut text = String::new();
    for dir in ["/", "/dir"].into_iter().filter(|dir| files.exists(dir).unwrap()) {
        let mut names: Vec<_> = files.read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for name in names {
            let found = files.symlink_metadata(&name).unwrap();
            write!(text, "{name:?} {:o} {} {}", found.mode, found.links, found.size).unwrap();
            if let Ok(bytes) = files.read(&name) {
                write!(text, " {:08x}", crc32c::crc32c(&bytes)).unwrap();
            }
            text.push('\n');
        }
    }
    drop(files);
    volume.close().unwrap();
    text
}

/// Returns the kills to try: at each site, before its first event and before its last one, and after its
/// first event if the event is a store of the volume. At each site of stores to shared memory, the kills come
/// before some events that are spread over the run.
fn planned(events: &[(Phase, String, u64)], phase: Phase) -> Vec<PlannedKill> {
    let sites = events.iter().filter(|event| event.0 == phase);
    sites
        .flat_map(|(phase, site, count)| {
            let kill = |event, is_after| PlannedKill { phase: *phase, site: site.clone(), event, is_after };
            if site.starts_with("share") {
                let kills = (*count).min(SHARED_KILLS);
                return (0..kills).map(|number| kill(1 + number * count / kills, false)).collect();
            }
            let is_fence = site.starts_with("fence");
            let after = (!is_fence).then(|| kill(1, true));
            let last = (*count > 1).then(|| kill(*count, false));
            [Some(kill(1, false)), after, last].into_iter().flatten().collect::<Vec<_>>()
        })
        .collect()
}

/// Makes a volume, and changes it by `body` while services run that are killed as planned. Returns the number
/// of services that were killed, the events of the last one, and the changed volume.
fn run(
    test: &'static str,
    is_on_disk: bool,
    kills: &[PlannedKill],
    body: fn(&Path),
) -> (usize, Vec<(Phase, String, u64)>, String) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = place.path().join("volume");
    let medium = if is_on_disk { MediumChoice::Paged } else { MediumChoice::Dram };
    Volume::options().size(8 << 20).medium(medium).create(&volume).unwrap().close().unwrap();
    let supervisor = Supervisor { place: place.path().to_owned(), test, is_on_disk };
    let (killed, events) = supervisor.run(kills, || body(&place.path().join("socket")));
    (killed, events, contents(&volume))
}

#[test]
fn client_goes_on_after_a_kill_at_each_site_of_its_service() {
    const TEST: &str = "served::client_goes_on_after_a_kill_at_each_site_of_its_service";
    serve_if_child();
    let _alone = alone();
    let run = |kills: &[PlannedKill]| run(TEST, false, kills, make_changes);
    let (killed, events, expected) = run(&[]);
    assert_eq!(killed, 0);
    let serving = planned(&events, Phase::Serving);
    let sites = events.iter().filter(|event| event.0 == Phase::Serving).count();
    let mut done = 0;
    // One kill, and the kills to try while the next service opens the volume that this kill left. The loop
    // keeps the kill after which the open has the most kills to try, because a kill between two changes
    // leaves little to recover. It skips planned kills that did not come.
    let mut longest = (&serving[0], Vec::new());
    for kill in &serving {
        let (killed, events, found) = run(std::slice::from_ref(kill));
        assert_eq!(found, expected, "after {kill:?}");
        done += killed;
        let opening = planned(&events, Phase::Opening);
        if killed == 1 && opening.len() > longest.1.len() {
            longest = (kill, opening);
        }
    }
    // A planned kill does not come if its run has fewer events of the site than the first run had.
    assert!(sites > 30 && done + 20 > serving.len(), "{done} of {} kills at {sites} sites", serving.len());
    let is_covered = |file: &str| serving.iter().any(|kill| kill.site.contains(file));
    assert!(["requests.rs", "board.rs", "server.rs"].into_iter().all(is_covered), "{serving:?}");
    let (first, opening) = longest;
    let mut done_opening = 0;
    for kill in &opening {
        let (killed, _, found) = run(&[first.clone(), kill.clone()]);
        assert_eq!(found, expected, "after {first:?} and {kill:?}");
        done_opening += killed.saturating_sub(1);
    }
    assert!(done_opening + 5 > opening.len() && opening.len() > 10, "{done_opening} of {}", opening.len());
    println!(
        "{done} kills at {sites} sites of a service, {done_opening} while the next one opens the volume"
    );
}

/// A service of a disk is killed between its stores to lanes, to its board and to the flags of pages. Nothing
/// that a client has synchronised is lost, and each number is there once.
#[test]
fn synchronised_changes_outlive_a_kill_between_stores_to_shared_memory() {
    const TEST: &str = "served::synchronised_changes_outlive_a_kill_between_stores_to_shared_memory";
    serve_if_child();
    let _alone = alone();
    let run = |kills: &[PlannedKill]| run(TEST, true, kills, append_synchronised_numbers);
    let (killed, events, expected) = run(&[]);
    assert_eq!(killed, 0);
    let mut done = 0;
    let mut all = planned(&events, Phase::Serving);
    all.extend(planned(&events, Phase::Opening));
    for kill in &all {
        let (killed, _, found) = run(std::slice::from_ref(kill));
        assert_eq!(found, expected, "after {kill:?}");
        done += killed;
    }
    assert!(done > 40 && 4 * done > 3 * all.len(), "{done} of {} kills", all.len());
    println!("{done} kills between stores to shared memory");
}
