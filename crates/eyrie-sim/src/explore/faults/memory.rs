//! Failures below a volume in memory.

use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_faults::{CrashRule, FaultPlan, Recorder, traced_from};
use eyrie_medium::SiteKind;

use super::super::TracedRun;
use super::super::record::{errno, pass_grace_periods};
use super::{FaultTrial, LIMITS, NoRoom, TrialOutcome, sound, stored, text};
use crate::compare::{Tree, difference, tree};
use crate::script::{ScriptLine, perform};

/// Opens `image` and checks that it is sound and holds `expected`. Returns the bytes of free space and the
/// number of objects.
fn opened(image: &[u8], expected: &Tree) -> Result<(u64, u64), String> {
    let medium = traced_from(image, Recorder::default()).map_err(text)?;
    let engine = Scm::open_on(medium).map_err(|error| format!("opened again: {error}"))?;
    if let Some(what) = difference(&tree(&engine), expected) {
        return Err(format!("opened again, the volume (first) is not as it should be (second):\n{what}"));
    }
    sound(&engine)?;
    let space = engine.space();
    Ok((space.free, space.objects))
}

/// Checks that the volume is sound and holds `expected`, and that a recovery finds the same free space. With
/// `may_lose`, storage may have leaked, so only the recovered volume must be sound, and the free space is not
/// compared.
fn holds(engine: &Scm, expected: &Tree, may_lose: bool) -> Result<(), String> {
    if let Some(what) = difference(&tree(engine), expected) {
        return Err(format!("the volume (first) is not as it should be (second):\n{what}"));
    }
    if may_lose {
        return opened(&engine.volume().medium().snapshot(), expected).map(drop);
    }
    sound(engine)?;
    let space = engine.space();
    let (free, objects) = opened(&engine.volume().medium().snapshot(), expected)?;
    if (space.free, space.objects) != (free, objects) {
        let (bytes, counted) = (space.free, space.objects);
        return Err(format!(
            "{bytes} bytes are free and {counted} objects exist, should be {free} and {objects}"
        ));
    }
    Ok(())
}

pub(super) fn open(trial: &FaultTrial<'_>, image: Vec<u8>) -> Result<TrialOutcome, String> {
    let plan = FaultPlan::default();
    let recorder = Recorder::of(plan.clone());
    let medium = traced_from(&image, recorder.clone()).map_err(text)?;
    let (engine, outcome) = trial.attempt(&plan, || Scm::open_on(medium))?;
    let expected = tree(trial.start.model());
    if let Some(engine) = &engine {
        holds(engine, &expected, false)?;
    }
    opened(&stored(image, &recorder.take()), &expected)?;
    Ok(outcome)
}

pub(super) fn close(trial: &FaultTrial<'_>) -> Result<TrialOutcome, String> {
    let (plan, session) = trial.session()?;
    let image = session.files.engine().volume().medium().snapshot();
    let (recorder, expected) = (session.recorder.clone(), tree(trial.start.model()));
    drop(recorder.take());
    let (engine, _) = session.into_engine().map_err(text)?;
    let (_, outcome) = trial.attempt(&plan, || engine.close())?;
    opened(&stored(image, &recorder.take()), &expected)?;
    Ok(outcome)
}

pub(super) fn trim(trial: &FaultTrial<'_>) -> Result<TrialOutcome, String> {
    let (plan, session) = trial.session()?;
    let engine = session.files.engine();
    let (_, outcome) = trial.attempt(&plan, || engine.trim())?;
    holds(engine, &tree(trial.start.model()), false)?;
    engine.trim().map_err(text)?;
    holds(engine, &tree(trial.start.model()), false)?;
    Ok(outcome)
}

/// Makes the call on the engine while the failure is injected. If the call changed the engine, makes the call
/// on the model, too. Then makes the call again without failures.
pub(super) fn call(trial: &FaultTrial<'_>, line: &ScriptLine) -> Result<TrialOutcome, String> {
    let (plan, session) = trial.session()?;
    let engine = session.files.engine();
    let base = engine.volume().medium().snapshot();
    session.set_clock(line);
    let (before, early) = (tree(&**session.model.engine()), session.early(line));
    let (actual, met) = trial.meet(&plan, || errno(&perform(&session.files, &line.call)));
    let may_lose = trial.has_failed_to(&[SiteKind::Read, SiteKind::Write, SiteKind::Publish], &met);
    // A call that has made its change may still read, and may fail in doing so.
    let is_late = may_lose && difference(&tree(&**engine), &before).is_some();
    let is_foreseen = trial.follow(&session, line, actual, is_late, &met)?;
    session.recorder.mark(1);
    pass_grace_periods();
    let after = tree(&**session.model.engine());
    holds(engine, &after, may_lose)?;

    let again_early = session.early(line);
    let again = trial.no_room.again(&session, line, may_lose)?;
    session.recorder.mark(2);
    pass_grace_periods();
    let last = tree(&**session.model.engine());
    holds(engine, &last, may_lose).map_err(|what| format!("made again: {what}"))?;

    let recorder = session.recorder.clone();
    let (events, early) = (recorder.take(), vec![early, again_early]);
    let left = stored(base.clone(), &events);
    session.into_engine().map_err(text)?.0.close().map_err(text)?;
    opened(&stored(left, &recorder.take()), &last).map_err(|what| format!("closed: {what}"))?;
    if !is_foreseen {
        let states = vec![before, after, last];
        let (durable, plan) = (vec![0, 1, 2], FaultPlan::default());
        let (rule, orders, is_closed) = (CrashRule::Lines, None, false);
        let run = TracedRun { rule, base, events, states, durable, early, orders, is_closed, plan };
        run.explore(LIMITS, &mut |_| true).map_err(text)?;
    }
    Ok(TrialOutcome { result: actual, no_room: NoRoom::of(actual, again), met })
}
