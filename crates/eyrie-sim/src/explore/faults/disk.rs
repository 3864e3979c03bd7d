//! Failures of the disk below a volume: in a call and the `sync` after it, and in what opens, trims and closes the volume.
//!
//! A disk that could not be made durable takes no more changes (`EROFS`): what had been made durable before is on it, and what had
//! not may be, each call whole or not at all.

use eyrie::{Errno, PosixExt};
use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_medium::{Event, Failing, Plan, Recorder, Rule, SiteKind};

use super::super::ground::Traced;
use super::super::record::{Session, errno, pass_grace_periods};
use super::super::{Limits, Run, Start};
use super::{LIMITS, NoRoom, Shown, is_allowed, sound, stored, text};
use crate::compare::{Tree, difference, tree};
use crate::script::errno::name as errno_name;
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

/// As [`is_allowed`]; or the volume takes no changes since something failed.
fn is_told(result: Option<Errno>, failing: Option<Failing>, failed: u64) -> Result<(), String> {
    match result {
        Some(Errno::ROFS) if failed > 0 => Ok(()),
        _ => is_allowed(result, failing.filter(|_| failed > 0)),
    }
}

fn has(engine: &Scm, expected: &Tree) -> Result<(), String> {
    difference(&tree(engine), expected).map_or(Ok(()), |what| Err(format!("has, and should have:\n{what}")))
}

pub(super) fn open(image: Vec<u8>, start: &Start, failing: Option<Failing>) -> Result<Shown, String> {
    let plan = Plan::default();
    let recorder = Recorder::of(plan.clone());
    plan.fail(failing);
    let traced = Traced::holding(Rule::Sectors, &image, recorder.clone());
    let opened = traced.and_then(|traced| Scm::open_on(traced.split().0));
    let (met, failed) = (plan.calls(), plan.failed());
    plan.fail(None);
    let result = opened.as_ref().err().map(eyrie_engine::Error::errno);
    is_told(result, failing, failed)?;
    let expected = tree(start.model());
    if let Ok(engine) = opened {
        has(&engine, &expected)?;
        sound(&engine)?;
    }
    let (events, states, durable) = (recorder.take(), vec![expected], vec![0]);
    Done { base: image, events, states, durable, failed }.examine()?;
    Ok(Shown { result, no_room: NoRoom::of(None, None), met, failed })
}

pub(super) fn close(start: &Start, failing: Option<Failing>) -> Result<Shown, String> {
    let plan = Plan::default();
    let session = Session::open(start, &plan).map_err(text)?;
    let before = tree(&**session.model.engine());
    if session.files.create_dir(UNSAVED).is_ok() {
        session.model.create_dir(UNSAVED).map_err(text)?;
    }
    let after = tree(&**session.model.engine());
    let recorder = session.recorder.clone();
    let (engine, _) = session.into_engine().map_err(text)?;
    plan.fail(failing);
    let result = engine.close().err().map(|error| error.errno());
    let (met, failed) = (plan.calls(), plan.failed());
    is_told(result, failing, failed)?;
    recorder.mark(1);
    let durable = vec![0, usize::from(result.is_none())];
    let (base, events) = (start.image().to_vec(), recorder.take());
    Done { base, events, states: vec![before, after], durable, failed }.examine()?;
    Ok(Shown { result, no_room: NoRoom::of(None, None), met, failed })
}

pub(super) fn trim(start: &Start, failing: Option<Failing>) -> Result<Shown, String> {
    let plan = Plan::default();
    let session = Session::open(start, &plan).map_err(text)?;
    let engine = session.files.engine();
    plan.fail(failing);
    let result = engine.trim().err().map(|error| error.errno());
    let (met, failed) = (plan.calls(), plan.failed());
    plan.fail(None);
    is_told(result, failing, failed)?;
    let expected = tree(start.model());
    has(engine, &expected)?;
    sound(engine)?;
    let again = engine.trim().err().map(|error| error.errno());
    let may_be_over =
        failing.is_some_and(|failing| matches!(failing.site.kind, SiteKind::Write | SiteKind::Flush));
    if again.is_some() && !(may_be_over && result.is_some() && again == Some(Errno::ROFS)) {
        return Err(format!("trimmed again, it gives {again:?}"));
    }
    let (base, events) = (start.image().to_vec(), session.recorder.take());
    Done { base, events, states: vec![expected], durable: vec![0], failed }.examine()?;
    Ok(Shown { result, no_room: NoRoom::of(None, None), met, failed })
}

/// Makes the call on both and synchronises, and lets that fail in the engine; then both again without failures.
pub(super) fn call(
    start: &Start,
    line: &Line,
    failing: Option<Failing>,
    no_room: NoRoom,
) -> Result<Shown, String> {
    let plan = Plan::default();
    let session = Session::open(start, &plan).map_err(text)?;
    let engine = session.files.engine();
    let sync = || engine.sync().err().map(|error| error.errno());
    session.set_clock(line);
    let mut states = vec![tree(&**session.model.engine())];
    let mut durable = vec![0];
    plan.fail(failing);
    let actual = errno(&perform(&session.files, &line.call));
    let synced = sync();
    let (met, failed) = (plan.calls(), plan.failed());
    plan.fail(None);

    let may_lose = failed > 0 && failing.is_some_and(|failing| failing.site.kind == SiteKind::Read);
    // A call may read something more, or make something durable, when its change is done, and fail then.
    let is_late = failed > 0 && difference(&tree(&**engine), &states[0]).is_some();
    let foreseen = no_room.foresee(&session, line, actual, is_late);
    if actual != foreseen && actual.is_none() {
        return Err("succeeds, which it should not".to_string());
    }
    if actual != foreseen {
        is_told(actual, failing, failed)?;
    }
    is_told(synced, failing, failed).map_err(|what| format!("sync {what}"))?;
    states.push(tree(&**session.model.engine()));
    durable.push(usize::from(synced.is_none()));
    session.recorder.mark(1);
    pass_grace_periods();
    has(engine, &states[1])?;
    if !may_lose {
        sound(engine)?;
    }

    // A disk that failed takes no more changes; any other goes on as if nothing had been.
    let is_over = synced.is_some();
    let goes_on = |doing: &str, result: Option<Errno>| match result {
        None if doing == "sync" && is_over => Err("a second sync succeeds after one that failed".to_string()),
        None => Ok(()),
        Some(Errno::ROFS) if is_over => Ok(()),
        Some(errno) => Err(format!("made again, {doing} gives {}", errno_name(errno))),
    };
    let again = if is_over {
        let again = errno(&perform(&session.files, &line.call));
        let foreseen = errno(&perform(&session.forked_model(), &line.call));
        goes_on("it", again.filter(|_| again != foreseen))?;
        again
    } else {
        no_room.again(&session, line, may_lose)?
    };
    states.push(tree(&**session.model.engine()));
    has(engine, &states[2]).map_err(|what| format!("made again: {what}"))?;
    let last = sync();
    goes_on("sync", last)?;
    durable.push(if last.is_none() { 2 } else { durable[1] });
    session.recorder.mark(2);
    let recorder = session.recorder.clone();
    let closed = session.into_engine().map_err(text)?.0.close().err().map(|error| error.errno());
    goes_on("closing", closed)?;
    let (base, events) = (start.image().to_vec(), recorder.take());
    Done { base, events, states, durable, failed }.examine()?;
    Ok(Shown { result: actual.or(synced), no_room: NoRoom::of(actual, again), met, failed })
}
