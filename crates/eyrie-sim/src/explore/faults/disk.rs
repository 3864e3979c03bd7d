//! Failures of the disk below a volume: in a call and the `sync` after it, and in open, trim and close.
//!
//! After the disk has failed to make something durable, the volume refuses further changes (`EROFS`). The
//! disk then holds every change that was durable before. It may hold some of the later calls, each whole or
//! not at all.

use eyrie::{Errno, PosixExt};
use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_faults::{CrashRule, Event, FaultPlan, Recorder};
use eyrie_medium::SiteKind;

use super::super::medium::Traced;
use super::super::record::{RecordSession, errno, pass_grace_periods};
use super::super::{Limits, TracedRun};
use super::{FaultTrial, LIMITS, NoRoom, TrialOutcome, sound, stored, text};
use crate::compare::{Tree, difference, tree};
use crate::script::{ScriptLine, perform};

/// A directory that the trial makes before the close, so that the close has a change to drain.
const UNSAVED: &str = "/made before closing";

/// The recorded writes of a trial to its disk.
struct DiskRun {
    /// The bytes of the disk before the trial.
    base: Vec<u8>,
    events: Vec<Event>,
    /// The states of the volume: before the first mark, and after each mark.
    states: Vec<Tree>,
    /// For each of `states`, the index of the oldest state that a crash may leave after that state is
    /// reached.
    durable: Vec<usize>,
    failed: u64,
}

impl DiskRun {
    /// Checks the present contents of the disk. If a failure was injected, also checks the contents after a
    /// crash at each earlier crash point.
    fn examine(self) -> Result<(), String> {
        let DiskRun { base, events, states, durable, failed } = self;
        let image = stored(base.clone(), &events);
        let engine = Traced::holding(CrashRule::Sectors, &image, Recorder::default())
            .and_then(|traced| Scm::open_on(traced.split().0))
            .map_err(|error| format!("opened again: {error}"))?;
        let oldest = durable.last().map_or(0, |&oldest| oldest);
        let found = tree(&engine);
        let differences: Vec<String> =
            states[oldest..].iter().map_while(|state| difference(&found, state)).collect();
        if differences.len() == states.len() - oldest {
            return Err(format!(
                "opened again, the volume (first) is not as it should be (second):\n{}",
                differences.join("\nor:\n")
            ));
        }
        sound(&engine)?;
        if failed > 0 {
            let early = vec![None; states.len()];
            let (rule, orders, is_closed, plan) = (CrashRule::Sectors, None, false, FaultPlan::default());
            let run = TracedRun { rule, base, events, states, durable, early, orders, is_closed, plan };
            run.explore(Limits { sampled: 4, ..LIMITS }, &mut |_| true).map_err(text)?;
        }
        Ok(())
    }
}

fn has(engine: &Scm, expected: &Tree) -> Result<(), String> {
    difference(&tree(engine), expected)
        .map_or(Ok(()), |what| Err(format!("the volume (first) is not as it should be (second):\n{what}")))
}

pub(super) fn open(trial: &FaultTrial<'_>, image: Vec<u8>) -> Result<TrialOutcome, String> {
    let plan = FaultPlan::default();
    let recorder = Recorder::of(plan.clone());
    let (opened, outcome) = trial.attempt(&plan, || {
        let traced = Traced::holding(CrashRule::Sectors, &image, recorder.clone())?;
        Scm::open_on(traced.split().0)
    })?;
    let expected = tree(trial.start.model());
    if let Some(engine) = opened {
        has(&engine, &expected)?;
        sound(&engine)?;
    }
    let (events, states, durable) = (recorder.take(), vec![expected], vec![0]);
    DiskRun { base: image, events, states, durable, failed: outcome.met.failed }.examine()?;
    Ok(outcome)
}

pub(super) fn close(trial: &FaultTrial<'_>) -> Result<TrialOutcome, String> {
    let (plan, session) = trial.session()?;
    let before = tree(&**session.model.engine());
    if session.files.create_dir(UNSAVED).is_ok() {
        session.model.create_dir(UNSAVED).map_err(text)?;
    }
    let after = tree(&**session.model.engine());
    let recorder = session.recorder.clone();
    let (engine, _) = session.into_engine().map_err(text)?;
    let (_, outcome) = trial.attempt(&plan, || engine.close())?;
    recorder.mark(1);
    let durable = vec![0, usize::from(outcome.result.is_none())];
    let (base, events) = (trial.start.image().to_vec(), recorder.take());
    DiskRun { base, events, states: vec![before, after], durable, failed: outcome.met.failed }.examine()?;
    Ok(outcome)
}

pub(super) fn trim(trial: &FaultTrial<'_>) -> Result<TrialOutcome, String> {
    let (plan, session) = trial.session()?;
    let engine = session.files.engine();
    let (_, outcome) = trial.attempt(&plan, || engine.trim())?;
    let expected = tree(trial.start.model());
    has(engine, &expected)?;
    sound(engine)?;
    let failed_to_write = trial.has_failed_to(&[SiteKind::Write, SiteKind::Flush], &outcome.met);
    let is_read_only = outcome.result.is_some() && failed_to_write;
    let again = engine.trim().err().map(|error| error.errno());
    if again.is_some() && !(is_read_only && again == Some(Errno::ROFS)) {
        return Err(format!("the next trim gives {again:?}"));
    }
    let (base, events) = (trial.start.image().to_vec(), session.recorder.take());
    DiskRun { base, events, states: vec![expected], durable: vec![0], failed: outcome.met.failed }
        .examine()?;
    Ok(outcome)
}

/// Makes the call and a `sync` on the engine while the failure is injected. If the call changed the engine,
/// makes the call on the model, too. Then makes the call and the `sync` again without failures.
pub(super) fn call(trial: &FaultTrial<'_>, line: &ScriptLine) -> Result<TrialOutcome, String> {
    let (plan, session) = trial.session()?;
    let engine = session.files.engine();
    let sync = || engine.sync().err().map(|error| error.errno());
    session.set_clock(line);
    let before = tree(&**session.model.engine());
    let ((actual, synced), met) = trial.meet(&plan, || (errno(&perform(&session.files, &line.call)), sync()));
    let may_lose = trial.has_failed_to(&[SiteKind::Read], &met);
    // After a call has made its change, it may still read from the disk or make the change durable, and may
    // fail in either of these steps.
    let is_late = met.failed > 0 && difference(&tree(&**engine), &before).is_some();
    trial.follow(&session, line, actual, is_late, &met)?;
    trial.allow(synced, &met).map_err(|what| format!("sync {what}"))?;
    let after = tree(&**session.model.engine());
    session.recorder.mark(1);
    pass_grace_periods();
    has(engine, &after)?;
    if !may_lose {
        sound(engine)?;
    }

    let is_read_only = synced.is_some();
    let again = match is_read_only {
        true => refused(&session, line)?,
        false => trial.no_room.again(&session, line, may_lose)?,
    };
    let last = tree(&**session.model.engine());
    has(engine, &last).map_err(|what| format!("made again: {what}"))?;
    let synced_again = sync();
    if synced_again != is_read_only.then_some(Errno::ROFS) {
        return Err(format!("after a sync that gave {synced:?}, the next sync gives {synced_again:?}"));
    }
    session.recorder.mark(2);
    let recorder = session.recorder.clone();
    let closed = session.into_engine().map_err(text)?.0.close().err().map(|error| error.errno());
    if closed.is_some() && !(is_read_only && closed == Some(Errno::ROFS)) {
        return Err(format!("the close gives {closed:?}"));
    }
    let durable = if is_read_only { vec![0, 0, 0] } else { vec![0, 1, 2] };
    let (base, events) = (trial.start.image().to_vec(), recorder.take());
    DiskRun { base, events, states: vec![before, after, last], durable, failed: met.failed }.examine()?;
    Ok(TrialOutcome { result: actual.or(synced), no_room: NoRoom::of(actual, again), met })
}

/// Makes the call on a disk that refuses changes, and returns the result of the call. A call that changes
/// nothing may succeed, or fail as on the model. Any other call must fail with `EROFS`.
fn refused(session: &RecordSession, line: &ScriptLine) -> Result<Option<Errno>, String> {
    let actual = errno(&perform(&session.files, &line.call));
    let foreseen = errno(&perform(&session.forked_model(), &line.call));
    match actual {
        None | Some(Errno::ROFS) => Ok(actual),
        _ if actual == foreseen => Ok(actual),
        _ => Err(format!("made again, the call gives {actual:?}, should give {foreseen:?} or EROFS")),
    }
}
