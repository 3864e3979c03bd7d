//! Failures of the disk below a volume: in a call and the `sync` after it, and in what opens, trims and closes the volume.
//!
//! A disk that could not be made durable takes no more changes (`EROFS`): what had been made durable before is on it, and what had
//! not may be, each call whole or not at all.

use eyrie::{Errno, PosixExt};
use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_medium::{Event, Plan, Recorder, Rule, SiteKind};

use super::super::ground::Traced;
use super::super::record::{Session, errno, pass_grace_periods};
use super::super::{Limits, Run};
use super::{LIMITS, NoRoom, Shown, Trial, sound, stored, text};
use crate::compare::{Tree, difference, tree};
use crate::script::{Line, perform};

/// Made before the volume is closed, so that there is something to drain.
const UNSAVED: &str = "/made before closing";

/// What a trial did to its disk.
struct Done {
    /// The disk before.
    base: Vec<u8>,
    events: Vec<Event>,
    /// What the volume held after each mark.
    states: Vec<Tree>,
    /// The first of these that a crash after each may leave.
    durable: Vec<usize>,
    failed: u64,
}

impl Done {
    /// The disk as it is now, and as crashes on the way left it, holds what it must.
    fn examine(self) -> Result<(), String> {
        let Done { base, events, states, durable, failed } = self;
        let image = stored(base.clone(), &events);
        let engine = Traced::holding(Rule::Sectors, &image, Recorder::default())
            .and_then(|traced| Scm::open_on(traced.split().0))
            .map_err(|error| format!("opened later: {error}"))?;
        let last = durable.last().map_or(0, |&last| last);
        let found = tree(&engine);
        let differences: Vec<String> =
            states[last..].iter().map_while(|state| difference(&found, state)).collect();
        if differences.len() == states.len() - last {
            return Err(format!("opened later it has, and should have:\n{}", differences.join("\nor:\n")));
        }
        sound(&engine)?;
        if failed > 0 {
            let early = vec![None; states.len()];
            let (rule, orders, is_closed, plan) = (Rule::Sectors, None, false, Plan::default());
            let run = Run { rule, base, events, states, durable, early, orders, is_closed, plan };
            run.explore(Limits { sampled: 4, ..LIMITS }, &mut |_| true).map_err(text)?;
        }
        Ok(())
    }
}

fn has(engine: &Scm, expected: &Tree) -> Result<(), String> {
    difference(&tree(engine), expected).map_or(Ok(()), |what| Err(format!("has, and should have:\n{what}")))
}

pub(super) fn open(trial: &Trial<'_>, image: Vec<u8>) -> Result<Shown, String> {
    let plan = Plan::default();
    let recorder = Recorder::of(plan.clone());
    let (opened, shown) = trial.attempt(&plan, || {
        let traced = Traced::holding(Rule::Sectors, &image, recorder.clone())?;
        Scm::open_on(traced.split().0)
    })?;
    let expected = tree(trial.start.model());
    if let Some(engine) = opened {
        has(&engine, &expected)?;
        sound(&engine)?;
    }
    let (events, states, durable) = (recorder.take(), vec![expected], vec![0]);
    Done { base: image, events, states, durable, failed: shown.met.failed }.examine()?;
    Ok(shown)
}

pub(super) fn close(trial: &Trial<'_>) -> Result<Shown, String> {
    let (plan, session) = trial.session()?;
    let before = tree(&**session.model.engine());
    if session.files.create_dir(UNSAVED).is_ok() {
        session.model.create_dir(UNSAVED).map_err(text)?;
    }
    let after = tree(&**session.model.engine());
    let recorder = session.recorder.clone();
    let (engine, _) = session.into_engine().map_err(text)?;
    let (_, shown) = trial.attempt(&plan, || engine.close())?;
    recorder.mark(1);
    let durable = vec![0, usize::from(shown.result.is_none())];
    let (base, events) = (trial.start.image().to_vec(), recorder.take());
    Done { base, events, states: vec![before, after], durable, failed: shown.met.failed }.examine()?;
    Ok(shown)
}

pub(super) fn trim(trial: &Trial<'_>) -> Result<Shown, String> {
    let (plan, session) = trial.session()?;
    let engine = session.files.engine();
    let (_, shown) = trial.attempt(&plan, || engine.trim())?;
    let expected = tree(trial.start.model());
    has(engine, &expected)?;
    sound(engine)?;
    let failed_to_write = trial.has_failed_to(&[SiteKind::Write, SiteKind::Flush], &shown.met);
    let is_over = shown.result.is_some() && failed_to_write;
    let again = engine.trim().err().map(|error| error.errno());
    if again.is_some() && !(is_over && again == Some(Errno::ROFS)) {
        return Err(format!("trimmed again, it gives {again:?}"));
    }
    let (base, events) = (trial.start.image().to_vec(), session.recorder.take());
    Done { base, events, states: vec![expected], durable: vec![0], failed: shown.met.failed }.examine()?;
    Ok(shown)
}

/// Makes the call on both and synchronises, and lets that fail in the engine; then both again without failures.
pub(super) fn call(trial: &Trial<'_>, line: &Line) -> Result<Shown, String> {
    let (plan, session) = trial.session()?;
    let engine = session.files.engine();
    let sync = || engine.sync().err().map(|error| error.errno());
    session.set_clock(line);
    let before = tree(&**session.model.engine());
    let ((actual, synced), met) = trial.meet(&plan, || (errno(&perform(&session.files, &line.call)), sync()));
    let may_lose = trial.has_failed_to(&[SiteKind::Read], &met);
    // A call may read something more, or make something durable, when its change is done, and fail then.
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

    let is_over = synced.is_some();
    let again = match is_over {
        true => refused(&session, line)?,
        false => trial.no_room.again(&session, line, may_lose)?,
    };
    let last = tree(&**session.model.engine());
    has(engine, &last).map_err(|what| format!("made again: {what}"))?;
    let synced_again = sync();
    if synced_again != is_over.then_some(Errno::ROFS) {
        return Err(format!("after a sync that gave {synced:?}, one gives {synced_again:?}"));
    }
    session.recorder.mark(2);
    let recorder = session.recorder.clone();
    let closed = session.into_engine().map_err(text)?.0.close().err().map(|error| error.errno());
    if closed.is_some() && !(is_over && closed == Some(Errno::ROFS)) {
        return Err(format!("closing gives {closed:?}"));
    }
    let durable = if is_over { vec![0, 0, 0] } else { vec![0, 1, 2] };
    let (base, events) = (trial.start.image().to_vec(), recorder.take());
    Done { base, events, states: vec![before, after, last], durable, failed: met.failed }.examine()?;
    Ok(Shown { result: actual.or(synced), no_room: NoRoom::of(actual, again), met })
}

/// Makes the call on a disk that takes no more changes; what it gave. It may give what the model gives, as long as it changes nothing.
fn refused(session: &Session, line: &Line) -> Result<Option<Errno>, String> {
    let actual = errno(&perform(&session.files, &line.call));
    let foreseen = errno(&perform(&session.forked_model(), &line.call));
    match actual {
        None | Some(Errno::ROFS) => Ok(actual),
        _ if actual == foreseen => Ok(actual),
        _ => Err(format!("made again, it gives {actual:?}, should give {foreseen:?} or change nothing")),
    }
}
