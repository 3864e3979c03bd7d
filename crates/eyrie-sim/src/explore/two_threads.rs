//! Two threads: the states that a crash may leave when two scripts run side by side.
//!
//! Each thread runs a script of its own. A [`ThreadSchedule`] switches between the threads in an order that
//! follows from a seed, so a run can be repeated. The state after a crash must follow from some order of the
//! calls, by these rules:
//! - The order keeps the order of each thread.
//! - Each call that succeeded in the run also succeeds on the model in this order. A call that failed changes
//!   nothing.
//! - In memory, the order has all calls that had returned before the crash. On a disk, it has at least the
//!   calls that had returned before the last successful sync began.
//! - For each thread, the order may also have the call that was in progress. In memory, a write in progress
//!   may also leave its times without its bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use eyrie::{Errno, Posix, Pxfs, SetTime};
use eyrie_engine::Model;
use eyrie_faults::{CrashRule, FaultPlan, ThreadSchedule};
use eyrie_medium::sync::unpoisoned;

use super::record::{
    RecordError, RecordOptions, RecordSession, Recorded, StartVolume, clock, errno, failed, files_of,
    pass_grace_periods, set_clock, syncs,
};
use super::recovered::caught;
use super::run::{Orders, TracedRun};
use crate::compare::{Tree, difference, tree};
use crate::script::{Call, CallOutcome, Script, ScriptLine, perform};

/// A script for a second thread.
#[derive(Clone, Debug)]
pub struct ParallelScript {
    /// The script.
    pub script: Script,
    /// Seed of the schedule.
    pub seed: u64,
}

/// Returns the mark for two numbers of calls that have returned, one for each thread. The upper 32 bits are
/// the number of calls of the first thread.
fn mark(done: [usize; 2]) -> u64 {
    (done[0] as u64) << 32 | done[1] as u64
}

/// Returns, for each thread, the number of calls that had returned at a mark.
pub(super) fn returned(mark: u64) -> [u64; 2] {
    [mark >> 32, mark & u64::from(u32::MAX)]
}

/// A call that a thread made, with its time and result.
struct Made<'a> {
    line: &'a ScriptLine,
    seconds: i64,
    /// For each thread, the number of calls that had returned when this call began.
    began: [usize; 2],
    /// The error of the call, if it failed.
    given: Option<Errno>,
    /// The call and its result, for messages.
    to_print: String,
}

impl Made<'_> {
    fn files(&self, model: &Model) -> Pxfs<Model> {
        set_clock(self.seconds);
        files_of(Arc::new(model.fork()))
    }

    /// Returns the model after the call, or `None` if the call has another result on the model. A call that
    /// found no room changes nothing.
    fn after(&self, model: &Model) -> Option<Model> {
        if self.given == Some(Errno::NOSPC) {
            return Some(model.fork());
        }
        let files = self.files(model);
        let expected = errno(&perform(&files, &self.line.call));
        (expected == self.given).then(|| files.engine().fork())
    }

    /// Returns the model after the call, as a crash may leave it. A failed call leaves the model unchanged.
    fn lasting(&self, model: &Model) -> Option<Model> {
        if self.given.is_some() { Some(model.fork()) } else { self.after(model) }
    }

    /// Returns the model with the new times of a write, but without the written bytes. Returns `None` if the
    /// call is not a write, writes no bytes or failed, or if the model has no such file.
    fn early(&self, model: &Model) -> Option<Model> {
        let Call::Write { path, length: 1.., .. } = &self.line.call else { return None };
        if self.given.is_some() {
            return None;
        }
        let files = self.files(model);
        files.utimens(path.into(), SetTime::Omit, SetTime::To(clock())).ok()?;
        Some(files.engine().fork())
    }
}

/// The states that given numbers of calls of both threads may leave, in any order of these calls.
type Models = Vec<(Model, Tree)>;

/// Adds a model unless `models` has one with equal contents.
fn add(models: &mut Models, model: Model) {
    let tree = tree(&model);
    if models.iter().all(|(_, known)| *known != tree) {
        models.push((model, tree));
    }
}

impl Orders {
    fn new<'a>(first: &Model, rule: CrashRule, [ours, theirs]: &[Vec<Made<'a>>; 2]) -> (Orders, Models) {
        // "Our" calls are those of the first thread, and "their" calls those of the second. Cell (i, j) of
        // each table has the states after the first i of our calls and the first j of theirs.
        let (rows, columns) = (ours.len() + 1, theirs.len() + 1);
        let by = |after: fn(&Made<'a>, &Model) -> Option<Model>| {
            table(rows, columns, |i, j, known, here| {
                if (i, j) == (0, 0) {
                    add(here, first.fork());
                }
                let before_ours = i.checked_sub(1).map(|i| (&known[i][j], &ours[i]));
                let before_theirs = j.checked_sub(1).map(|j| (&known[i][j], &theirs[j]));
                for (models, call) in before_ours.into_iter().chain(before_theirs) {
                    models.iter().filter_map(|(model, _)| after(call, model)).for_each(|m| add(here, m));
                }
            })
        };
        let whole = by(Made::lasting);
        // The times of a write may be visible before its bytes. Such a write may have looked up its name
        // before calls of the other thread that have returned since. So these calls may also follow the early
        // state of the write. On a disk the times are never visible early, because a drain takes whole Ops.
        // In cell (i, j) of `our_early`, our call number i (from 0) is a write in progress, whose times are
        // visible. `their_early` has the same for their call number j.
        let is_early = rule == CrashRule::Lines;
        let our_early = table(rows, columns, |i, j, known, here| {
            let Some(call) = ours.get(i).filter(|_| is_early) else { return };
            whole[i][j].iter().filter_map(|(model, _)| call.early(model)).for_each(|m| add(here, m));
            if j > 0 {
                known[i][j - 1]
                    .iter()
                    .filter_map(|(model, _)| theirs[j - 1].lasting(model))
                    .for_each(|m| add(here, m));
            }
        });
        let their_early = table(rows, columns, |i, j, known, here| {
            let Some(call) = theirs.get(j).filter(|_| is_early) else { return };
            whole[i][j].iter().filter_map(|(model, _)| call.early(model)).for_each(|m| add(here, m));
            if i > 0 {
                known[i - 1][j]
                    .iter()
                    .filter_map(|(model, _)| ours[i - 1].lasting(model))
                    .for_each(|m| add(here, m));
            }
        });
        let mut allowed = BTreeMap::new();
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            // Each of the two calls in progress may be undone, done or early.
            let mut found = Models::new();
            let (next_i, next_j) = ((i + 1).min(rows - 1), (j + 1).min(columns - 1));
            let seen = [&whole[i][j], &whole[next_i][j], &whole[i][next_j], &whole[next_i][next_j]];
            let early =
                [&our_early[i][j], &our_early[i][next_j], &their_early[i][j], &their_early[next_i][j]];
            seen.into_iter().chain(early).flatten().for_each(|(model, _)| add(&mut found, model.fork()));
            if let Some(call) = theirs.get(j) {
                let both = our_early[i][j].iter().filter_map(|(model, _)| call.early(model));
                both.for_each(|model| add(&mut found, model));
            }
            allowed.insert(mark([i, j]), found.into_iter().map(|(_, tree)| tree).collect());
        }
        let last = by(Made::after).into_iter().next_back().and_then(|mut row| row.pop()).unwrap_or_default();
        let mut orders = Orders { allowed };
        if rule == CrashRule::Sectors {
            orders.allow_earlier_states([ours, theirs], [rows, columns]);
        }
        (orders, last)
    }
}

impl Orders {
    /// Allows all states since the last successful sync began, because a crash of a disk may lose every later
    /// change.
    fn allow_earlier_states(&mut self, made: [&Vec<Made<'_>>; 2], [rows, columns]: [usize; 2]) {
        let mut all = BTreeMap::new();
        for done in (0..rows).flat_map(|i| (0..columns).map(move |j| [i, j])) {
            let mut durable = [0, 0];
            for (calls, done) in made.iter().zip(done) {
                let synced =
                    calls[..done].iter().filter(|made| syncs(&made.line.call) && made.given.is_none());
                synced.for_each(|made| {
                    durable = std::array::from_fn(|thread| durable[thread].max(made.began[thread]));
                });
            }
            let mut found: Vec<Tree> = Vec::new();
            for place in (durable[0]..=done[0]).flat_map(|i| (durable[1]..=done[1]).map(move |j| [i, j])) {
                for tree in self.allowed.get(&mark(place)).into_iter().flatten() {
                    if !found.contains(tree) {
                        found.push(tree.clone());
                    }
                }
            }
            all.insert(mark(done), found);
        }
        self.allowed = all;
    }
}

/// Computes a table row by row. `fill` gets the row and column of a cell, the table so far, and the cell to
/// fill. In the table so far, the cells from this one on are empty.
fn table(
    rows: usize,
    columns: usize,
    fill: impl Fn(usize, usize, &[Vec<Models>], &mut Models),
) -> Vec<Vec<Models>> {
    let mut known: Vec<Vec<Models>> =
        (0..rows).map(|_| (0..columns).map(|_| Models::new()).collect()).collect();
    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
        let mut here = Models::new();
        fill(i, j, &known, &mut here);
        known[i][j] = here;
    }
    known
}

/// Runs `script` and a second script side by side on one volume, and records the stores.
///
/// # Errors
/// Fails if no order of the calls explains their results and the contents of the volume, or if the engine or
/// its medium fails.
pub fn record_beside(
    start: &StartVolume,
    script: &Script,
    beside: &ParallelScript,
    options: RecordOptions,
) -> Result<Recorded, RecordError> {
    caught(|| record_both(start, [script, &beside.script], beside.seed, options))
        .unwrap_or_else(|panic| Err(failed(panic)))
}

fn record_both<'s>(
    start: &StartVolume,
    scripts: [&'s Script; 2],
    seed: u64,
    options: RecordOptions,
) -> Result<Recorded, RecordError> {
    let session = RecordSession::open(start, &FaultPlan::without(options.dropped))?;
    let recorder = session.recorder.clone();
    let base = match start.rule() {
        CrashRule::Lines => session.files.engine().volume().medium().snapshot(),
        CrashRule::Sectors => start.image().to_vec(),
    };
    let (turns, done) = (ThreadSchedule::new(2, seed), Mutex::new([0, 0]));
    let run = |number: usize| {
        let files = session.files.clone();
        let calls = scripts[number].lines().iter();
        let call = |line: &'s ScriptLine| {
            // All calls get the same time, because the call that takes its stamp first need not commit first.
            let seconds = session.started + 1;
            set_clock(seconds);
            let began = *unpoisoned(done.lock());
            let result = perform(&files, &line.call);
            pass_grace_periods();
            let mut done = unpoisoned(done.lock());
            done[number] += 1;
            recorder.mark(mark(*done));
            Made {
                line,
                seconds,
                began,
                given: errno(&result),
                to_print: CallOutcome { line, result }.to_string(),
            }
        };
        turns.run_thread(number, || calls.map(call).collect::<Vec<_>>())
    };
    let made = std::thread::scope(|scope| {
        let threads = [0, 1].map(|number| {
            scope.spawn({
                let run = &run;
                move || run(number)
            })
        });
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut orders, last) = Orders::new(session.model.engine(), start.rule(), &made);
    let calls: Vec<String> = made.iter().flatten().map(|made| made.to_print.clone()).collect();
    let found = tree(&**session.files.engine());
    if last.iter().all(|(_, tree)| *tree != found) {
        let differs = last.iter().filter_map(|(_, tree)| difference(&found, tree));
        let differs = match last.is_empty() {
            true => "no order of the calls explains their results".to_string(),
            false => differs.collect::<Vec<_>>().join("\n  or: "),
        };
        return Err(RecordError::Contents(format!("{differs}\n{}", calls.join("\n"))));
    }
    let full = |made: &&Made<'_>| made.given == Some(Errno::NOSPC);
    let without_room = made.iter().flatten().filter(full).count() as u64;
    // In memory, a crash after all calls have returned leaves the present state of the volume.
    if start.rule() == CrashRule::Lines {
        orders.allowed.insert(mark([made[0].len(), made[1].len()]), vec![found]);
    }
    let (events, plan) = (recorder.take(), recorder.plan().clone());
    let run = TracedRun {
        rule: start.rule(),
        base,
        events,
        states: Vec::new(),
        durable: Vec::new(),
        early: Vec::new(),
        orders: Some(orders),
        is_closed: false,
        plan,
    };
    Ok(Recorded { run, calls, without_room, source: None })
}
