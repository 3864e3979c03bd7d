//! Records the run of a script on a traced medium.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use eyrie::{Capabilities, Credentials, Errno, Posix, Pxfs, SetTime, Time};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{self, MediumChoice};
use eyrie_engine::{Engine, Model, Owner};
use eyrie_faults::{CrashRule, FaultPlan, Recorder, Site};
use eyrie_medium::epoch;

use super::medium::{DiskBytes, RunMedium, Traced, apply_stores, fixed_options};
use super::recovered::caught;
use super::run::TracedRun;
use crate::compare::{Tree, difference, tree};
use crate::script::{Call, CallOutcome, Script, ScriptLine, perform};

/// Owner of the root.
const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// Creation time of the root.
const BORN: Time = Time::new(1, 0);
/// The smallest size of a group, so that small volumes have several groups.
const GROUP_BYTES: u64 = 64 << 10;

thread_local! {
    /// Time of the calls of this thread, in seconds.
    static SECONDS: Cell<i64> = const { Cell::new(0) };
}

/// Sets the clock of this thread's calls.
pub(super) fn set_clock(seconds: i64) {
    SECONDS.set(seconds);
}

pub(super) fn clock() -> Time {
    Time::new(SECONDS.get(), 7)
}

/// Returns the file system on which scripts run, with the credentials of the user root and the clock of this
/// thread's calls. The credentials lack `CAP_SYS_RESOURCE`, so limits of quotas apply to them, and crashes of
/// calls that reach a limit are explored, too.
pub(super) fn files_of<E: Engine>(engine: Arc<E>) -> Pxfs<E> {
    let within_limits = Capabilities::all().difference(Capabilities::SYS_RESOURCE);
    Pxfs::new(engine, Credentials::root().with_capabilities(within_limits)).with_clock(clock)
}

/// The reason why a script cannot be recorded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A call gave another result than the model.
    #[error("{engine}, should be {model}")]
    Result {
        /// Line, call and result of the engine.
        engine: String,
        /// Line, call and result of the model.
        model: String,
    },
    /// After the last call the volume differs from the model.
    #[error("the volume (first) is not as it should be (second):\n{0}")]
    Contents(String),
    /// The engine or its medium failed.
    #[error("{0}")]
    Failed(String),
}

pub(super) fn errno(result: &eyrie::Result<()>) -> Option<Errno> {
    result.as_ref().err().map(eyrie::Error::errno)
}

pub(super) fn failed(error: impl std::fmt::Display) -> RecordError {
    RecordError::Failed(error.to_string())
}

/// Ends the grace periods, so that the next call can reuse storage that the last call freed.
pub(super) fn pass_grace_periods() {
    for _ in 0..3 {
        epoch::advance();
    }
}

/// Options of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RecordOptions {
    /// True if the run closes the volume after the last call. Until then all files in the root directory of
    /// the start volume are open, so the close frees those that the script removes. A run of two threads
    /// ignores this field.
    pub closes: bool,
    /// The point that the run leaves out: a planted bug.
    pub dropped: Option<Site>,
}

/// A closed volume from which runs start.
#[derive(Clone)]
pub struct StartVolume {
    rule: CrashRule,
    image: Arc<[u8]>,
    model: Arc<Model>,
    /// Time of the close, in seconds.
    time: i64,
}

impl StartVolume {
    /// Returns the unit in which a crash loses stores.
    pub fn rule(&self) -> CrashRule {
        self.rule
    }

    /// Makes an empty volume of `bytes`, in memory or on a disk.
    ///
    /// # Errors
    /// [`RecordError::Failed`] if the medium fails or the size is too small.
    pub fn empty(rule: CrashRule, bytes: u64) -> Result<StartVolume, RecordError> {
        StartVolume::on(RunMedium::of(rule, bytes))
    }

    /// Makes an empty volume on the given medium.
    ///
    /// # Errors
    /// [`RecordError::Failed`] if the medium fails or the size is too small.
    pub fn on(medium: RunMedium) -> Result<StartVolume, RecordError> {
        caught(|| StartVolume::made(medium)).unwrap_or_else(|panic| Err(failed(panic)))
    }

    fn made(medium: RunMedium) -> Result<StartVolume, RecordError> {
        let rule = medium.rule;
        let choice = if rule == CrashRule::Sectors { MediumChoice::Paged } else { MediumChoice::Auto };
        let options = volume::Options { medium: choice, ..fixed_options(GROUP_BYTES, BORN) };
        let recorder = Recorder::default();
        let traced = Traced::empty(medium, recorder.clone()).map_err(failed)?;
        let (medium, disk) = traced.split();
        let engine = Scm::create_on(medium, &options, OWNER, BORN).map_err(failed)?;
        let model = Model::new(engine.root(), OWNER, BORN);
        let image = closed(engine, &disk, &recorder)?.into();
        Ok(StartVolume { rule, image, model: Arc::new(model), time: 1000 })
    }

    pub(super) fn image(&self) -> &[u8] {
        &self.image
    }

    /// Returns the bytes of the volume, or of its disk, after an open and a sync without a close.
    pub(super) fn crashed(&self) -> Result<Vec<u8>, RecordError> {
        let session = RecordSession::open(self, &FaultPlan::default())?;
        session.files.engine().sync().map_err(failed)?;
        Ok(session.disk.bytes().unwrap_or_else(|| session.files.engine().volume().medium().snapshot()))
    }

    /// Returns the time of the close, in seconds.
    pub(super) fn time(&self) -> i64 {
        self.time
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the volume after the calls of `script`.
    ///
    /// # Errors
    /// As [`record`].
    pub fn after_script(&self, script: &Script) -> Result<StartVolume, RecordError> {
        caught(|| self.changed(script)).unwrap_or_else(|panic| Err(failed(panic)))
    }

    fn changed(&self, script: &Script) -> Result<StartVolume, RecordError> {
        let session = RecordSession::open(self, &FaultPlan::default())?;
        for line in script.lines() {
            // A call of a setup script may fail.
            let _ = session.call(line)?;
        }
        let model = Arc::new(session.model.engine().fork());
        let time = self.time + script.lines().last().map_or(0, |line| line.number as i64);
        let recorder = session.recorder.clone();
        let (engine, disk) = session.into_engine()?;
        Ok(StartVolume { rule: self.rule, image: closed(engine, &disk, &recorder)?.into(), model, time })
    }
}

/// Closes a traced volume, and returns the bytes of the volume or of its disk.
fn closed(engine: Scm, disk: &DiskBytes, recorder: &Recorder) -> Result<Vec<u8>, RecordError> {
    // The snapshot has all earlier stores, so only the stores of the close are applied to it.
    drop(recorder.take());
    let mut image = engine.volume().medium().snapshot();
    engine.close().map_err(failed)?;
    if let Some(bytes) = disk.bytes() {
        return Ok(bytes);
    }
    apply_stores(&mut image, &recorder.take());
    Ok(image)
}

/// The script of a run, and the volume from which the run starts.
pub(super) struct RunSource {
    pub(super) start: StartVolume,
    pub(super) script: Script,
    /// For each call its error, or `None`.
    pub(super) results: Vec<Option<Errno>>,
}

/// The run of a script, and the results of its calls.
pub struct Recorded {
    /// The recorded run.
    pub run: TracedRun,
    /// The calls with their results. In a run of one thread, mark *n* follows the return of call *n*, from 1.
    pub calls: Vec<String>,
    /// Number of calls for which the volume had no room.
    pub without_room: u64,
    /// The script, if the run has one thread.
    pub(super) source: Option<RunSource>,
}

impl Recorded {
    /// Returns, for each point, the number of times that the run and the explored recoveries met it.
    pub fn points(&self) -> BTreeMap<Site, u64> {
        self.run.plan.points()
    }
}

/// The files of an engine, and the same files of the model.
pub(super) struct RecordSession {
    pub(super) recorder: Recorder,
    pub(super) disk: DiskBytes,
    pub(super) files: Pxfs<Scm>,
    pub(super) model: Pxfs<Model>,
    /// Time of the close of the start volume, in seconds. The times of the calls follow it.
    pub(super) started: i64,
}

impl RecordSession {
    pub(super) fn open(start: &StartVolume, plan: &FaultPlan) -> Result<RecordSession, RecordError> {
        let recorder = Recorder::of(plan.clone());
        let traced = Traced::holding(start.rule, &start.image, recorder.clone()).map_err(failed)?;
        let (medium, disk) = traced.split();
        let engine = Scm::open_on(medium).map_err(failed)?;
        // On a disk, the writes of the open may still be unflushed when the script begins, so these writes
        // belong to the run.
        if start.rule == CrashRule::Lines {
            drop(recorder.take());
        }
        let files = files_of(Arc::new(engine));
        let model = files_of(Arc::new(start.model.fork()));
        Ok(RecordSession { recorder, disk, files, model, started: start.time })
    }

    /// Sets the clock to the time of a call.
    pub(super) fn set_clock(&self, line: &ScriptLine) {
        set_clock(self.started + line.number as i64);
    }

    /// Returns a copy of the model's files.
    pub(super) fn forked_model(&self) -> Pxfs<Model> {
        files_of(Arc::new(self.model.engine().fork()))
    }

    /// Makes a call on the engine and on the model. If the engine has no room for the call, the model does
    /// not make it. The model does not make a call that only a limit of storage refuses, either, because it
    /// knows no such limit.
    fn call(&self, line: &ScriptLine) -> Result<eyrie::Result<()>, RecordError> {
        self.set_clock(line);
        let actual = perform(&self.files, &line.call);
        if errno(&actual) == Some(Errno::NOSPC) {
            return Ok(actual);
        }
        let is_refused = errno(&actual) == Some(Errno::DQUOT);
        if is_refused && perform(&self.forked_model(), &line.call).is_ok() {
            return Ok(actual);
        }
        let expected = perform(&self.model, &line.call);
        if errno(&actual) != errno(&expected) {
            let to_message = |result| CallOutcome { line, result }.to_string();
            return Err(RecordError::Result { engine: to_message(actual), model: to_message(expected) });
        }
        pass_grace_periods();
        Ok(actual)
    }

    /// Returns the early state of a write, which a crash in the write may leave: the times of the write
    /// without its bytes. Returns `None` for any other call.
    pub(super) fn early(&self, line: &ScriptLine) -> Option<Tree> {
        let Call::Write { path, length: 1.., .. } = &line.call else { return None };
        self.set_clock(line);
        let model = self.forked_model();
        // If the file does not exist, the write fails and has no early state.
        model.utimens(path.into(), SetTime::Omit, SetTime::To(clock())).ok()?;
        Some(tree(&**model.engine()))
    }

    pub(super) fn into_engine(self) -> Result<(Scm, DiskBytes), RecordError> {
        let RecordSession { files, disk, .. } = self;
        let engine = Arc::clone(files.engine());
        drop(files);
        let engine = Arc::into_inner(engine).ok_or_else(|| failed("the volume is still in use"))?;
        Ok((engine, disk))
    }
}

/// Opens every file in the root directory.
fn open_files(engine: &Scm) -> eyrie_engine::Result<()> {
    let mut files = Vec::new();
    engine.list(engine.root(), 0, &mut |entry| {
        files.extend((!entry.id.is_directory()).then_some(entry.id));
        true
    })?;
    files.into_iter().try_for_each(|id| engine.open(id))
}

/// Returns true if a call makes earlier calls durable.
pub(super) fn syncs(call: &Call) -> bool {
    matches!(call, Call::Fsync { .. } | Call::Fdatasync { .. } | Call::Sync)
}

/// Runs `script` and records it.
///
/// # Errors
/// Fails if the engine and the model differ, or if the engine or its medium fails.
pub fn record(start: &StartVolume, script: &Script, options: RecordOptions) -> Result<Recorded, RecordError> {
    caught(|| record_all(start, script, options)).unwrap_or_else(|panic| Err(failed(panic)))
}

fn record_all(start: &StartVolume, script: &Script, options: RecordOptions) -> Result<Recorded, RecordError> {
    let session = RecordSession::open(start, &FaultPlan::without(options.dropped))?;
    let recorder = session.recorder.clone();
    let base = match start.rule {
        CrashRule::Lines => session.files.engine().volume().medium().snapshot(),
        CrashRule::Sectors => start.image.to_vec(),
    };
    if options.closes {
        open_files(session.files.engine()).map_err(failed)?;
    }
    let mut durable = vec![0];
    let mut states = vec![tree(&**session.model.engine())];
    let (mut early, mut calls, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for (line, done) in script.lines().iter().zip(1..) {
        // A page cache drains whole Ops, so a crash of a disk never leaves the times of a write without its
        // bytes.
        early.push(session.early(line).filter(|_| start.rule == CrashRule::Lines));
        let result = session.call(line)?;
        recorder.mark(done);
        states.push(tree(&**session.model.engine()));
        let is_durable = start.rule == CrashRule::Lines || syncs(&line.call) && result.is_ok();
        durable.push(if is_durable { done as usize } else { durable[durable.len() - 1] });
        results.push(errno(&result));
        calls.push(CallOutcome { line, result }.to_string());
    }
    let last = states.last().expect("at least the first");
    if let Some(what) = difference(&tree(&**session.files.engine()), last) {
        return Err(RecordError::Contents(what));
    }
    if options.closes {
        states.push(last.clone());
        durable.push(states.len() - 1);
        session.into_engine()?.0.close().map_err(failed)?;
        calls.push("close".to_string());
        recorder.mark(calls.len() as u64);
    }
    let (is_closed, plan) = (options.closes, recorder.plan().clone());
    let (rule, events) = (start.rule, recorder.take());
    let run = TracedRun { rule, base, events, states, durable, early, orders: None, is_closed, plan };
    let without_room = results.iter().filter(|result| **result == Some(Errno::NOSPC)).count() as u64;
    let source = RunSource { start: start.clone(), script: script.clone(), results };
    Ok(Recorded { run, calls, without_room, source: Some(source) })
}
