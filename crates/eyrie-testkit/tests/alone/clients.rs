//! Kills and stops a client before its stores to its lanes, its claims and its change log. At this moment the
//! client holds pins, ids and open files. Other clients must go on, and the service must get back everything
//! that the client held.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Kvfs, MediumChoice, PosixExt, Pxfs, Volume};
use eyrie_client::Client;
use eyrie_engine::{Engine, Errno};
use eyrie_faults::Site;
use eyrie_medium::SiteKind;
use eyrie_medium::shared::observe_stores;
use eyrie_medium::sync::unpoisoned;
use eyrie_testkit::services::served;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, waitpid};

use crate::alone;

/// Names of the environment variables of a client: the socket of its service, and the signal that is planned
/// for it.
const SOCKET: &str = "EYRIE_TEST_CLIENT_SOCKET";
const PLAN: &str = "EYRIE_TEST_CLIENT_PLAN";

/// A signal before an event of a site, which is a place in the sources. An event is a store.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PlannedSignal {
    site: String,
    /// Number of the event among the events of the site. The first event has number 1.
    event: u64,
    /// True if the client is stopped, false if it is killed.
    stops: bool,
}

impl PlannedSignal {
    fn to_text(&self) -> String {
        format!("{}|{}|{}", self.site, self.event, self.stops)
    }

    fn of_text(text: &str) -> PlannedSignal {
        let [site, event, stops] = text.split('|').collect::<Vec<_>>()[..] else {
            panic!("a planned signal: {text}")
        };
        let (site, event) = (site.to_owned(), event.parse().expect("a number"));
        PlannedSignal { site, event, stops: stops == "true" }
    }
}

/// Makes the calls of the client, if this process is one. Then prints the number of events of each site.
fn act_if_child() {
    let Some(socket) = std::env::var_os(SOCKET).map(PathBuf::from) else { return };
    let planned = std::env::var(PLAN).ok().map(|text| PlannedSignal::of_text(&text));
    let counts = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
    let (counted, stops) = (Arc::clone(&counts), planned.as_ref().is_some_and(|planned| planned.stops));
    observe_stores(move |caller| {
        let site = Site { kind: SiteKind::Share, file: caller.file(), line: caller.line() }.to_string();
        let event = {
            let mut counts = unpoisoned(counted.lock());
            let count = counts.entry(site.clone()).or_default();
            *count += 1;
            *count
        };
        match &planned {
            Some(planned) if (&planned.site, planned.event) == (&site, event) => {
                let signal = if planned.stops { Signal::STOP } else { Signal::KILL };
                kill_process(getpid(), signal).expect("a process may signal itself");
            }
            _ => {}
        }
    });
    let files = Pxfs::new(Arc::new(Client::connect(&socket, false).unwrap()), Credentials::of_process());
    make_calls(&files, stops);
    drop(files);
    for (site, count) in unpoisoned(counts.lock()).iter() {
        println!("\nevents|{site}|{count}");
    }
    std::process::exit(0);
}

/// Makes calls, and checks their results. Another client removes `/egg` while this client is stopped.
fn make_calls(files: &Pxfs<Client>, may_be_removed: bool) {
    let egg = files.open_file("/egg");
    assert!(egg.is_ok() || may_be_removed && egg.as_ref().is_err_and(|e| e.errno() == Errno::NOENT));
    files.create_dir("/nest").unwrap();
    for number in 0..3_u8 {
        let path = format!("/nest/{number}");
        files.write(&path, [number; 5000]).unwrap();
        files.rename(&path, format!("{path}-moved")).unwrap();
    }
    let orphan = files.options().read(true).write(true).create_new(true).open("/nest/orphan").unwrap();
    files.remove_file("/nest/orphan").unwrap();
    orphan.write_all_at(&[7; 300_000], 0).unwrap();
    let keys = Kvfs::open(files, "/nest").unwrap();
    assert!(keys.put("key", "value").unwrap() && keys.erase("key").unwrap());
    let mut bytes = vec![0; 300_000];
    orphan.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 7));
    if let Ok(egg) = &egg {
        egg.read_exact_at(&mut bytes[..4], 0).unwrap();
        assert_eq!(&bytes[..4], b"blue");
    }
}

/// A client in a process of its own. A drop kills it.
struct Victim {
    child: Child,
    has_ended: bool,
}

impl Victim {
    fn start(test: &str, socket: &Path, planned: Option<&PlannedSignal>) -> Victim {
        let mut command = Command::new(std::env::current_exe().expect("the test knows its program"));
        command.args([test, "--exact", "--nocapture"]).env(SOCKET, socket);
        if let Some(planned) = planned {
            command.env(PLAN, planned.to_text());
        }
        let child = command.stdout(Stdio::piped()).spawn().expect("the program can be started again");
        Victim { child, has_ended: false }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until the process ends or is stopped.
    fn wait(&mut self) -> WaitStatus {
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().expect("a child");
        self.has_ended = !status.stopped();
        status
    }

    /// Returns the numbers of events that the process has printed.
    fn events(&mut self) -> Vec<(String, u64)> {
        let mut text = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut text).unwrap();
        let event = |line: &str| {
            let (site, count) = line.strip_prefix("events|")?.split_once('|')?;
            Some((site.to_owned(), count.parse().expect("a number")))
        };
        text.lines().filter_map(event).collect()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = kill_process(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Sums over all signals of a test.
#[derive(Default, Debug)]
struct SignalTotals {
    /// Number of signals that came.
    signals: u64,
    /// Pins of stopped clients.
    pins: u64,
    /// Reserved ids of stopped clients.
    ids: u64,
    /// Longest call of another client.
    longest: Duration,
}

impl SignalTotals {
    /// Makes calls of another client.
    fn go_on(&mut self, other: &Pxfs<Client>) {
        let mut timed = |call: &dyn Fn() -> eyrie::Result<()>| {
            let started = Instant::now();
            call().unwrap();
            self.longest = self.longest.max(started.elapsed());
        };
        timed(&|| other.create_dir("/other"));
        for number in 0..4 {
            let path = format!("/other/{number}");
            timed(&|| other.write(&path, [7; 5000]));
            timed(&|| other.rename(&path, format!("{path}-moved")));
            timed(&|| other.read_dir("/other").map(|entries| assert_eq!(entries.count(), number + 1)));
        }
        timed(&|| other.remove_dir_all("/other"));
        timed(&|| other.remove_file("/egg"));
    }

    /// Makes calls of another client while the victim is stopped.
    fn go_on_beside(&mut self, victim: &Victim, socket: &Path, other: &Pxfs<Client>) {
        let process = victim.child.id();
        let sessions = Client::sessions(socket).unwrap();
        // A client that is stopped before its greeting has no session yet.
        if let Some(session) = sessions.iter().find(|session| session.process == process) {
            self.pins += u64::from(session.pins);
            self.ids += u64::from(session.reserved);
        }
        let started = Instant::now();
        std::thread::scope(|scope| {
            let going_on = scope.spawn(|| self.go_on(other));
            while !going_on.is_finished() {
                if started.elapsed() > Duration::from_secs(20) {
                    // The calls may go on now, so the scope can end.
                    let _ = kill_process(victim.pid(), Signal::KILL);
                    panic!("a call waits for a stopped client");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

/// Waits until only the session of `other` is left, and only the root and the ids of this session are in use.
fn wait_for_return(socket: &Path, other: &Pxfs<Client>) {
    let started = Instant::now();
    loop {
        let sessions = Client::sessions(socket).unwrap();
        let (count, objects) = (sessions.len(), other.engine().space().objects);
        if matches!(&sessions[..], [session] if objects == 1 + u64::from(session.reserved)) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{count} sessions, {objects} objects");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Serves a new volume, and lets a client make its calls beside another client. Returns the events of the
/// client if no signal is planned.
fn run(
    test: &str,
    medium: MediumChoice,
    planned: Option<&PlannedSignal>,
    totals: &mut SignalTotals,
) -> Vec<(String, u64)> {
    let mut events = Vec::new();
    let place = served(64 << 20, medium, |socket| {
        let other = Pxfs::new(Arc::new(Client::connect(socket, false).unwrap()), Credentials::of_process());
        other.write("/egg", "blue").unwrap();
        let mut victim = Victim::start(test, socket, planned);
        if planned.is_none() {
            events = victim.events();
        }
        let mut status = victim.wait();
        if status.stopped() {
            totals.signals += 1;
            totals.go_on_beside(&victim, socket, &other);
            kill_process(victim.pid(), Signal::CONT).unwrap();
            status = victim.wait();
            assert_eq!(status.exit_status(), Some(0), "{planned:?}");
        } else if status.signaled() {
            assert_eq!(status.terminating_signal(), Some(Signal::KILL.as_raw()), "{planned:?}");
            totals.signals += 1;
            totals.go_on(&other);
        } else {
            assert_eq!(status.exit_status(), Some(0), "{planned:?}");
        }
        other.remove_dir_all("/").unwrap();
        wait_for_return(socket, &other);
    });
    let report = Volume::open(place.path().join("volume")).unwrap().check().unwrap();
    assert!(report.is_clean(), "{planned:?}: {:#?}", report.findings);
    events
}

/// Signals a client before the first, a middle and the last event of each site.
fn signal_at_each_site(test: &str, medium: MediumChoice) {
    act_if_child();
    let _alone = alone();
    let mut totals = SignalTotals::default();
    let events = run(test, medium, None, &mut totals);
    let is_covered =
        |file: &str, least: usize| events.iter().filter(|(site, _)| site.contains(file)).count() >= least;
    assert!(is_covered("channel.rs", 5) && is_covered("engine.rs", 2), "{events:?}");
    let mut planned = Vec::new();
    for (site, count) in &events {
        let mut numbers = vec![1, count.div_ceil(2), *count];
        numbers.dedup();
        for event in numbers {
            planned.extend([false, true].map(|stops| PlannedSignal { site: site.clone(), event, stops }));
        }
    }
    for signal in &planned {
        run(test, medium, Some(signal), &mut totals);
    }
    println!("{} of {} signals at {} sites: {totals:?}", totals.signals, planned.len(), events.len());
    // A planned event does not come if a run has fewer events of the site than the first run had.
    assert!(4 * totals.signals as usize > 3 * planned.len(), "{totals:?}");
    assert!(totals.pins > 0 && totals.ids > 0, "{totals:?}");
}

#[test]
fn others_go_on_beside_a_signal_at_each_site_of_a_client() {
    signal_at_each_site("clients::others_go_on_beside_a_signal_at_each_site_of_a_client", MediumChoice::Dram);
}

#[test]
fn others_go_on_beside_a_signal_at_each_site_of_a_client_of_a_disk() {
    const TEST: &str = "clients::others_go_on_beside_a_signal_at_each_site_of_a_client_of_a_disk";
    signal_at_each_site(TEST, MediumChoice::Paged);
}
