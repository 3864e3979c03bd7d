//! Histories of three clients, one of which logs its changes. Some order of their calls must explain all
//! answers.
//!
//! The clients are *workers*: threads of this process, or processes of their own. A worker gets the number of
//! a history, makes its calls, and sends the answers and their times back. All workers draw the same
//! [`Plan`], so no call is sent.

mod plan;

use std::fs::{DirEntry, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eyrie_client::Client;
use eyrie_engine::board::{SessionKey, part_of};
use eyrie_engine::change_log::TAIL_WORD;
use eyrie_engine::{Engine, Kind, ObjectId};
use eyrie_medium::epoch;
use eyrie_medium::rules::BROKEN_RULE;
#[cfg(feature = "mutants")]
use eyrie_medium::rules::SafetyRule;
use eyrie_medium::shared::{SharedAccess, SharedMemory};
use eyrie_testkit::linear::{self, HistoryCall, Response, start_together};
#[cfg(feature = "mutants")]
use eyrie_testkit::mutants::broken_rules_are_noticed;

use self::plan::{CLIENTS, IDS, Objects, Plan, SHARED, Step};
use crate::Served;

/// Words of the memory that all workers share: the clock of the history, and the number of threads that have
/// not started.
const CLOCK: usize = 0;
const WAITING: usize = 1;
const MEMORY_BYTES: usize = 4096;
/// Number of histories with one service.
const HISTORIES: u64 = 100;
/// Milliseconds for which a client keeps the grant before a history: more than ten times the shortest pause
/// between two grants. If a grant ends sooner, the service doubles this pause.
const HOLD_MS: u64 = 11;
/// Number of changes in a row after which the service gives the grant.
const CHANGES_BEFORE_GRANT: u32 = 32;
/// Time after which a worker counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Start of the lines that a worker sends.
const PREFIX: &str = "worker";
/// Environment variables of a worker that is a process: the path of the socket, and the number of the worker.
const SOCKET: &str = "EYRIE_TEST_WORKER_SOCKET";
const NUMBER: &str = "EYRIE_TEST_WORKER_NUMBER";

fn memory_of(socket: &Path) -> SharedMemory {
    let path = socket.with_file_name("clock");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(MEMORY_BYTES as u64).unwrap();
    SharedMemory::map_own(file.into(), MEMORY_BYTES, SharedAccess::ReadWrite).unwrap()
}

fn to_line(words: &[u64]) -> String {
    words.iter().fold(PREFIX.to_owned(), |line, word| format!("{line} {word}"))
}

/// Returns the words of the next line that begins with [`PREFIX`]. `None` at the end of the input.
fn next_words(input: &mut dyn BufRead) -> Option<Vec<u64>> {
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        // The test harness of a process prints other lines.
        if let Some(words) = line.strip_prefix(PREFIX) {
            return Some(words.split_whitespace().map(|word| word.parse().unwrap()).collect());
        }
    }
}

/// A history that all workers know.
struct Task {
    seed: u64,
    /// Time for which the holder keeps the grant before the history.
    hold_ms: u64,
    objects: Objects,
    /// The ids that each client has reserved.
    ids: [Vec<ObjectId>; CLIENTS],
}

impl Task {
    fn to_words(&self) -> Vec<u64> {
        let ids = self.ids.iter().flatten().map(|id| id.raw());
        [self.seed, self.hold_ms].into_iter().chain(self.objects.to_words()).chain(ids).collect()
    }

    fn from_words(words: &[u64]) -> Task {
        let (seed, hold_ms) = (words[0], words[1]);
        let (head, ids) = words[2..].split_at(SHARED);
        let ids: Vec<_> = ids.iter().map(|&id| ObjectId::from_raw(id).unwrap()).collect();
        let objects = Objects::from_words(head.try_into().unwrap());
        let ids = std::array::from_fn(|client| ids[client * IDS..][..IDS].to_vec());
        Task { seed, hold_ms, objects, ids }
    }

    fn plan(&self) -> Plan {
        Plan::draw(self.seed, self.objects, &self.ids)
    }
}

/// Makes the calls of the client `number` in each history, until the input ends.
fn work(socket: &Path, number: usize, input: &mut dyn BufRead, output: &mut dyn Write) {
    let (client, memory) = (Client::connect(socket, false).unwrap(), memory_of(socket));
    // The line break ends a line that the test harness has begun.
    let mut send = |words: &[u64]| writeln!(output, "\n{}", to_line(words)).and_then(|()| output.flush());
    loop {
        let ids: Vec<_> = (0..IDS).map(|_| client.reserve(Kind::File).unwrap().raw()).collect();
        // An error is ignored, because the input ends in this case.
        let _ = send(&ids);
        let Some(words) = next_words(input) else { return };
        let task = Task::from_words(&words);
        let calls = make_calls(&client, number, &task, &memory);
        let words = calls.iter().map(|(thread, call)| {
            let answer = call.response.to_words();
            [&[*thread, call.began, call.ended, answer.len() as u64], &answer[..]].concat()
        });
        let _ = send(&words.collect::<Vec<_>>().concat());
    }
}

/// Makes the calls of a client in a history. Returns them with the numbers of their threads.
fn make_calls(client: &Client, number: usize, task: &Task, memory: &SharedMemory) -> Vec<(u64, HistoryCall)> {
    let (plan, words) = (task.plan(), memory.words());
    let all = plan.scripts.len() as u64 + 1;
    if plan.holder == number {
        let hold = Duration::from_millis(task.hold_ms);
        if plan.is_granted_late {
            std::thread::sleep(hold / 10);
            (0..CHANGES_BEFORE_GRANT - 1).for_each(|_| change_nothing(client, &task.objects));
        } else {
            take_grant(client, &task.objects, hold);
        }
        if plan.wakes_service {
            let _ = client.space();
        }
        (0..plan.backlog).for_each(|_| change_nothing(client, &task.objects));
    } else {
        // The holder is the first one to start.
        while words[WAITING].load(Ordering::SeqCst) == all {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    let (first, words) = (&plan.first, &words);
    std::thread::scope(|scope| {
        let scripts = plan.scripts.into_iter().enumerate().filter(|(_, script)| script.client == number);
        let threads: Vec<_> = scripts
            .map(|(thread, script)| {
                scope.spawn(move || {
                    let make = |step: &Step| {
                        wait(step.pause);
                        HistoryCall::record(client, &words[CLOCK], step.request.clone())
                    };
                    let first = first.iter().filter(|_| thread == 0);
                    let mut calls: Vec<_> = first.map(make).collect();
                    start_together(&words[WAITING]);
                    calls.extend(script.steps.iter().map(make));
                    calls.into_iter().map(move |call| (thread as u64, call))
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Makes changes until the client has held the grant of the volume, or of the file of these changes, for a
/// while.
fn take_grant(client: &Client, objects: &Objects, hold: Duration) {
    let board = client.volume().board();
    let key = || SessionKey::from_raw(client.session());
    while board.granted_to() != client.session() && !board.is_held_by(objects.file, key()) {
        change_nothing(client, objects);
        std::thread::sleep(Duration::from_micros(200));
    }
    let granted = Instant::now();
    while granted.elapsed() < hold {
        change_nothing(client, objects);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes to the shared file the bytes and the time that it had at first.
fn change_nothing(client: &Client, objects: &Objects) {
    let _pin = epoch::pin();
    client.apply(&objects.no_change()).unwrap();
}

/// Waits. A short pause is not a sleep, because the kernel would make the sleep longer.
fn wait(pause: Duration) {
    if pause >= Duration::from_millis(1) {
        std::thread::sleep(pause);
    }
    let began = Instant::now();
    while began.elapsed() < pause {
        // Other threads need the processor.
        std::thread::yield_now();
    }
}

/// A worker, and the lines from it and to it.
struct Worker {
    from: Box<dyn BufRead>,
    /// `None` after the last line.
    to: Option<Box<dyn Write>>,
    run: WorkerRun,
}

enum WorkerRun {
    Thread(Option<JoinHandle<()>>),
    Process(Child),
}

impl Worker {
    fn thread(socket: &Path, number: usize) -> Worker {
        let ((from, mut output), (input, to)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let socket = socket.to_owned();
        let work = move || work(&socket, number, &mut BufReader::new(input), &mut output);
        let run = WorkerRun::Thread(Some(std::thread::spawn(work)));
        Worker { from: Box::new(BufReader::new(from)), to: Some(Box::new(to)), run }
    }

    /// Starts a process that runs only the test with this name.
    fn process(socket: &Path, number: usize, test: &str) -> Worker {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args([test, "--exact", "--nocapture"]).env(SOCKET, socket).env(NUMBER, number.to_string());
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (from, to) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let run = WorkerRun::Process(child);
        Worker { from: Box::new(BufReader::new(from)), to: Some(Box::new(to)), run }
    }

    /// Returns the next words that the worker sends.
    fn next(&mut self) -> Vec<u64> {
        next_words(&mut self.from).expect("the worker has not failed")
    }

    fn send(&mut self, words: &[u64]) {
        writeln!(self.to.as_mut().unwrap(), "{}", to_line(words)).unwrap();
    }

    /// Ends a worker that has sent all its calls.
    fn end(mut self) {
        self.to = None;
        match &mut self.run {
            WorkerRun::Thread(thread) => thread.take().unwrap().join().unwrap(),
            WorkerRun::Process(child) => assert!(child.wait().unwrap().success()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // After a failure, the process may wait for other workers, and would not end by itself.
        if let WorkerRun::Process(child) = &mut self.run {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Numbers of histories and calls.
#[derive(Default, Debug)]
struct Coverage {
    histories: u64,
    /// Histories that began while a client held the grant, or while clients could hold grants of parts.
    granted: u64,
    /// Histories in which a client logged a change beside the calls of the others.
    logged: u64,
    /// Histories in which the service gave the grant.
    given: u64,
    /// Histories in which the service took the grant back.
    taken_back: u64,
    calls: usize,
    /// Calls that overlapped with a call of another thread.
    overlaps: usize,
}

/// A served volume, its workers, and a client of this thread.
struct Histories {
    served: Served,
    host: Arc<Client>,
    memory: SharedMemory,
    workers: Vec<Worker>,
    hold_ms: u64,
}

impl Histories {
    fn new(worker: impl Fn(&Path, usize) -> Worker) -> Histories {
        let served = Served::new(64 << 20);
        let (host, memory) = (served.client(), memory_of(&served.socket));
        let workers = (0..CLIENTS).map(|number| worker(&served.socket, number)).collect();
        Histories { served, host, memory, workers, hold_ms: HOLD_MS }
    }

    /// Returns true if a client holds the grant of the volume, or clients may hold grants of parts. Also
    /// returns the number of bytes that clients have logged.
    fn progress(&self) -> (bool, u64) {
        let files = std::fs::read_dir(&self.served.path).unwrap().map(Result::unwrap);
        let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("log-"));
        let tail = |log: DirEntry| {
            let mut word = [0; 8];
            File::open(log.path()).unwrap().read_exact_at(&mut word, 8 * TAIL_WORD as u64).unwrap();
            u64::from_le_bytes(word)
        };
        let tails = logs.map(tail).sum();
        (self.host.volume().board().granted_to() != 0, tails)
    }

    /// Makes the calls of a history. Asserts that some order explains them.
    fn explain(&mut self, seed: u64, coverage: &mut Coverage) {
        let ids = |words: Vec<u64>| words.iter().map(|&id| ObjectId::from_raw(id).unwrap()).collect();
        let ids: Vec<Vec<ObjectId>> = self.workers.iter_mut().map(|worker| ids(worker.next())).collect();
        let (objects, model) = Objects::make(&*self.host, format!("history-{seed}").as_bytes());
        let task = Task { seed, hold_ms: self.hold_ms, objects, ids: ids.try_into().unwrap() };
        let plan = task.plan();
        // A grant that is given during the history ends soon, so the service doubles its pause before the
        // next grant. The next holder keeps its grant twice as long, so that the pause does not grow further.
        self.hold_ms = if plan.is_granted_late { 2 * self.hold_ms } else { HOLD_MS };
        let words = self.memory.words();
        words[WAITING].store(plan.scripts.len() as u64 + 1, Ordering::SeqCst);
        self.workers.iter_mut().for_each(|worker| worker.send(&task.to_words()));
        let began = Instant::now();
        while words[WAITING].load(Ordering::SeqCst) > 1 {
            assert!(began.elapsed() < PATIENCE, "history {seed}: a worker does not start");
            std::thread::sleep(Duration::from_micros(100));
        }
        let (was_granted, before) = self.progress();
        let host = Arc::clone(&self.host);
        let holders = || {
            let board = host.volume().board();
            (board.granted_to(), board.part_holder(part_of(objects.file)))
        };
        let first_holders = holders();
        start_together(&words[WAITING]);
        let mut history = self.collect(&plan);
        let has_new_holders = holders() != first_holders;
        let (_, after) = self.progress();
        let looks = plan.looks(&objects).into_iter();
        let clock = &self.memory.words()[CLOCK];
        history.push(looks.map(|look| HistoryCall::record(&*self.host, clock, look)).collect());
        coverage.histories += 1;
        coverage.granted += u64::from(was_granted);
        coverage.logged += u64::from(after > before);
        coverage.given += u64::from(after > before && !was_granted);
        coverage.taken_back += u64::from(was_granted && has_new_holders);
        coverage.calls += history.iter().map(Vec::len).sum::<usize>();
        coverage.overlaps += linear::count_overlaps(&history);
        if linear::explain(&model, &history).is_none() {
            println!("history {seed}, in which client {} holds the grant:", plan.holder);
            linear::assert_explained(&model, &history);
        }
    }

    /// Returns the calls of each thread.
    fn collect(&mut self, plan: &Plan) -> Vec<Vec<HistoryCall>> {
        let mut requests: Vec<_> = plan.requests().into_iter().map(Vec::into_iter).collect();
        let mut history: Vec<Vec<_>> = requests.iter().map(|_| Vec::new()).collect();
        for worker in &mut self.workers {
            let sent = worker.next();
            let mut rest = &sent[..];
            while let &[thread, began, ended, count, ref words @ ..] = rest {
                let (answer, others) = words.split_at(count as usize);
                let request = requests[thread as usize].next().unwrap();
                let response = Response::from_words(answer).unwrap();
                history[thread as usize].push(HistoryCall { request, response, began, ended });
                rest = others;
            }
        }
        assert!(requests.iter().all(|rest| rest.len() == 0), "each call has an answer");
        history
    }

    fn end(mut self) {
        self.workers.into_iter().for_each(Worker::end);
        drop(self.host);
        self.served.stop();
    }
}

/// Returns true, with a message, if this process may not choose the times of its changes.
fn is_skipped() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: a service keeps only the times of root");
    }
    !is_root
}

/// Explains histories. `EYRIE_TEST_HISTORIES` sets their number.
fn explain_all(count: u64, worker: impl Fn(&Path, usize) -> Worker) {
    if is_skipped() {
        return;
    }
    let count = std::env::var("EYRIE_TEST_HISTORIES").map_or(count, |count| count.parse().unwrap());
    // Some broken rules show in one of several hundred histories.
    let count = if std::env::var_os(BROKEN_RULE).is_some() { 10 * count } else { count };
    let mut coverage = Coverage::default();
    for first in (0..count).step_by(HISTORIES as usize) {
        let mut histories = Histories::new(&worker);
        for seed in first..count.min(first + HISTORIES) {
            histories.explain(seed, &mut coverage);
        }
        histories.end();
    }
    println!("{coverage:?}");
    assert!(coverage.logged > count / 10 && coverage.taken_back > count / 5, "{coverage:?}");
    assert!(coverage.overlaps > 0);
}

#[test]
fn calls_beside_a_log_are_linearizable() {
    #[cfg(feature = "mutants")]
    eyrie_medium::rules::break_rule_of_environment();
    explain_all(200, Worker::thread);
}

#[test]
fn calls_of_three_processes_are_linearizable() {
    const TEST: &str = "histories::calls_of_three_processes_are_linearizable";
    #[cfg(feature = "mutants")]
    eyrie_medium::rules::break_rule_of_environment();
    if let (Some(socket), Ok(number)) = (std::env::var_os(SOCKET), std::env::var(NUMBER)) {
        let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout());
        return work(Path::new(&socket), number.parse().unwrap(), &mut input, &mut output);
    }
    explain_all(60, |socket, number| Worker::process(socket, number, TEST));
}

/// The tests under the scheduler break these rules, too. They find the interleaving by search, and these
/// histories find it by chance.
#[cfg(feature = "mutants")]
#[test]
fn mutants_are_noticed() {
    use SafetyRule::{EntryIsAppliedBeforeItCounts, OwnNamesAreSeen, ReadsWaitForEntries};
    let rules = [ReadsWaitForEntries, OwnNamesAreSeen, EntryIsAppliedBeforeItCounts];
    if !is_skipped() {
        broken_rules_are_noticed("histories::calls_beside_a_log", &rules);
    }
}
