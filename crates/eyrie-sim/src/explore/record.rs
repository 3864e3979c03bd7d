//! The run of a script on a traced medium.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use eyrie::{Credentials, Errno, Posix, Pxfs, SetTime, Time};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{self, MediumChoice};
use eyrie_engine::{Engine, Model, Owner};
use eyrie_medium::{Event, PagedOptions, Plan, Recorder, Rule, Site, epoch};

use super::Run;
use super::ground::{Ground, Rest, Traced};
use super::killed::Source;
use super::recovered::caught;
use crate::compare::{Tree, difference, tree};
use crate::script::{Call, Done, Line, Script, perform};

/// Owner of the root.
const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// When the root was made.
const BORN: Time = Time::new(1, 0);
/// Size of a group: the smallest.
const GROUP_BYTES: u64 = 64 << 10;

thread_local! {
    /// Seconds that the clock of a run shows.
    static SECONDS: Cell<i64> = const { Cell::new(0) };
}

/// Sets what the clock of this thread's calls shows.
pub(super) fn set_clock(seconds: i64) {
    SECONDS.set(seconds);
}

pub(super) fn clock() -> Time {
    Time::new(SECONDS.get(), 7)
}

/// Why a script has no run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A call gave something else than the model.
    #[error("{engine}, should be {model}")]
    Result {
        /// Its line, the call, and what the engine gave.
        engine: String,
        /// The same of the model.
        model: String,
    },
    /// At the end the volume holds something else than the model.
    #[error("the volume has, and should have:\n{0}")]
    Contents(String),
    /// The engine or its memory failed.
    #[error("{0}")]
    Failed(String),
}

pub(super) fn errno(result: &eyrie::Result<()>) -> Option<Errno> {
    result.as_ref().err().map(eyrie::Error::errno)
}

pub(super) fn failed(error: impl std::fmt::Display) -> RecordError {
    RecordError::Failed(error.to_string())
}

/// Lets grace periods pass, so that the next call reuses what this one freed.
pub(super) fn pass_grace_periods() {
    for _ in 0..3 {
        epoch::advance();
    }
}

/// How a script is run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// Whether the volume is closed at the end.
    pub closes: bool,
    /// A point that is left out: a planted bug.
    pub dropped: Option<Site>,
}

/// A closed volume that runs start from.
#[derive(Clone)]
pub struct Start {
    rule: Rule,
    image: Arc<[u8]>,
    model: Arc<Model>,
    /// When it was closed, in seconds.
    time: i64,
}

impl Start {
    /// Which stores a crash may lose.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// An empty volume of `bytes`, in memory or on a disk.
    ///
    /// # Errors
    /// [`RecordError::Failed`], also when that is too small.
    pub fn empty(rule: Rule, bytes: u64) -> Result<Start, RecordError> {
        Start::on(Ground::of(rule, bytes))
    }

    /// An empty volume.
    ///
    /// # Errors
    /// [`RecordError::Failed`], also when that is too small.
    pub fn on(ground: Ground) -> Result<Start, RecordError> {
        caught(|| Start::made(ground)).unwrap_or_else(|panic| Err(failed(panic)))
    }

    fn made(ground: Ground) -> Result<Start, RecordError> {
        let rule = ground.rule;
        let options = volume::Options {
            group_bytes: GROUP_BYTES,
            hash_seed: 7,
            volume_id: [1; 16],
            created: BORN,
            medium: if rule == Rule::Sectors { MediumChoice::Paged } else { MediumChoice::Auto },
            overwrite: false,
            paged: PagedOptions::for_host(),
        };
        let traced = Traced::empty(ground, Recorder::default()).map_err(failed)?;
        let (medium, rest) = traced.split();
        let engine = Scm::create_on(medium, &options, OWNER, BORN).map_err(failed)?;
        let model = Model::new(engine.root(), OWNER, BORN);
        let image = closed(engine, &rest)?.into();
        Ok(Start { rule, image, model: Arc::new(model), time: 1000 })
    }

    pub(super) fn image(&self) -> &[u8] {
        &self.image
    }

    /// The bytes of the volume, or of its disk, when it has been opened, and was not closed.
    pub(super) fn crashed(&self) -> Result<Vec<u8>, RecordError> {
        let session = Session::open(self, &Plan::default())?;
        session.files.engine().sync().map_err(failed)?;
        Ok(session.rest.bytes().unwrap_or_else(|| session.files.engine().volume().medium().snapshot()))
    }

    /// When the volume was closed, in seconds.
    pub(super) fn time(&self) -> i64 {
        self.time
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// The volume that `script` makes of this one.
    ///
    /// # Errors
    /// As [`record`].
    pub fn after(&self, script: &Script) -> Result<Start, RecordError> {
        caught(|| self.changed(script)).unwrap_or_else(|panic| Err(failed(panic)))
    }

    fn changed(&self, script: &Script) -> Result<Start, RecordError> {
        let session = Session::open(self, &Plan::default())?;
        for line in script.lines() {
            // What a call gave is in the volume that it leaves.
            let _ = session.call(line)?;
        }
        let model = Arc::new(session.model.engine().fork());
        let time = self.time + script.lines().last().map_or(0, |line| line.number as i64);
        let (engine, rest) = session.into_engine()?;
        Ok(Start { rule: self.rule, image: closed(engine, &rest)?.into(), model, time })
    }
}

/// Closes a traced volume, and gives its bytes, or those of its disk.
fn closed(engine: Scm, rest: &Rest) -> Result<Vec<u8>, RecordError> {
    let recorder = engine.volume().medium().recorder().cloned().unwrap_or_default();
    drop(recorder.take());
    let mut image = engine.volume().medium().snapshot();
    engine.close().map_err(failed)?;
    for event in recorder.take() {
        if let Event::Store { addr, bytes, .. } = event {
            image[addr.offset() as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
    Ok(rest.bytes().unwrap_or(image))
}

/// The run of a script, and what its calls gave.
pub struct Recorded {
    /// What was done.
    pub run: Run,
    /// The calls and their results, in order; mark *n* of the run says that *n* of them have returned.
    pub calls: Vec<String>,
    /// Calls that the volume had no room for (a count).
    pub without_room: u64,
    /// The script, if one thread ran one.
    pub(super) source: Option<Source>,
}

impl Recorded {
    /// Every point that was met, and how often: in the run, and after the crashes that were explored.
    pub fn points(&self) -> BTreeMap<Site, u64> {
        self.run.plan.points()
    }
}

/// The files of an engine beside those of the model.
pub(super) struct Session {
    pub(super) recorder: Recorder,
    pub(super) rest: Rest,
    pub(super) files: Pxfs<Scm>,
    pub(super) model: Pxfs<Model>,
    pub(super) started: i64,
}

impl Session {
    pub(super) fn open(start: &Start, plan: &Plan) -> Result<Session, RecordError> {
        let recorder = Recorder::of(plan.clone());
        let traced = Traced::holding(start.rule, &start.image, recorder.clone()).map_err(failed)?;
        let (medium, rest) = traced.split();
        let engine = Scm::open_on(medium).map_err(failed)?;
        // What opening wrote to a disk may not have been flushed.
        if start.rule == Rule::Lines {
            drop(recorder.take());
        }
        let files = Pxfs::new(Arc::new(engine), Credentials::root()).with_clock(clock);
        let model = Pxfs::new(Arc::new(start.model.fork()), Credentials::root()).with_clock(clock);
        Ok(Session { recorder, rest, files, model, started: start.time })
    }

    /// Lets the clock show the time of a call.
    pub(super) fn set_clock(&self, line: &Line) {
        set_clock(self.started + line.number as i64);
    }

    /// The model's files as they are, to be changed by themselves.
    pub(super) fn forked_model(&self) -> Pxfs<Model> {
        Pxfs::new(Arc::new(self.model.engine().fork()), Credentials::root()).with_clock(clock)
    }

    /// Makes a call on both, and gives its result. What the engine has no room for does not happen to the model.
    fn call(&self, line: &Line) -> Result<eyrie::Result<()>, RecordError> {
        self.set_clock(line);
        let actual = perform(&self.files, &line.call);
        if errno(&actual) == Some(Errno::NOSPC) {
            return Ok(actual);
        }
        let expected = perform(&self.model, &line.call);
        if errno(&actual) != errno(&expected) {
            let shown = |result| Done { line, result }.to_string();
            return Err(RecordError::Result { engine: shown(actual), model: shown(expected) });
        }
        pass_grace_periods();
        Ok(actual)
    }

    /// What may be seen while a call is in flight: the time of a write without its bytes.
    pub(super) fn early(&self, line: &Line) -> Option<Tree> {
        let Call::Write { path, length: 1.., .. } = &line.call else { return None };
        self.set_clock(line);
        let model = self.forked_model();
        // What cannot be written has no times to be seen either.
        model.utimens(path, SetTime::Omit, SetTime::To(clock())).ok()?;
        Some(tree(&**model.engine()))
    }

    pub(super) fn into_engine(self) -> Result<(Scm, Rest), RecordError> {
        let Session { files, rest, .. } = self;
        let engine = Arc::clone(files.engine());
        drop(files);
        let engine = Arc::into_inner(engine).ok_or_else(|| failed("the volume is still in use"))?;
        Ok((engine, rest))
    }
}

/// Whether a call makes durable what was done before it.
pub(super) fn syncs(call: &Call) -> bool {
    matches!(call, Call::Fsync { .. } | Call::Fdatasync { .. } | Call::Sync)
}

/// Runs `script`.
///
/// # Errors
/// When the engine does not do what the model does.
pub fn record(start: &Start, script: &Script, options: Options) -> Result<Recorded, RecordError> {
    caught(|| record_all(start, script, options)).unwrap_or_else(|panic| Err(failed(panic)))
}

fn record_all(start: &Start, script: &Script, options: Options) -> Result<Recorded, RecordError> {
    let session = Session::open(start, &Plan::without(options.dropped))?;
    let recorder = session.recorder.clone();
    let base = match start.rule {
        Rule::Lines => session.files.engine().volume().medium().snapshot(),
        Rule::Sectors => start.image.to_vec(),
    };
    let mut durable = vec![0];
    let mut states = vec![tree(&**session.model.engine())];
    let (mut early, mut calls, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for (line, done) in script.lines().iter().zip(1..) {
        // A cut of a page cache is between Ops.
        early.push(session.early(line).filter(|_| start.rule == Rule::Lines));
        let result = session.call(line)?;
        recorder.mark(done);
        states.push(tree(&**session.model.engine()));
        let is_durable = start.rule == Rule::Lines || syncs(&line.call) && result.is_ok();
        durable.push(if is_durable { done as usize } else { durable[durable.len() - 1] });
        results.push(errno(&result));
        calls.push(Done { line, result }.to_string());
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
    let run = Run { rule, base, events, states, durable, early, orders: None, is_closed, plan };
    let without_room = results.iter().filter(|result| **result == Some(Errno::NOSPC)).count() as u64;
    let source = Source { start: start.clone(), script: script.clone(), results };
    Ok(Recorded { run, calls, without_room, source: Some(source) })
}
