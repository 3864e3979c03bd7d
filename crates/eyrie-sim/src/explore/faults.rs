//! Failures of the host, one at a time, in every call of a script: at each place where the engine may meet one.
//!
//! A call that meets a failure fails whole, with the errno of the failure, or succeeds as if there had been none. Then the volume
//! is sound, holds what the model holds, has as much free as a recovery finds, does the same call again without a
//! failure, and no crash takes away what had returned. Opening, trimming and closing the volume fail and succeed likewise.

use std::collections::BTreeMap;
use std::fmt;

use eyrie::Errno;
use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_medium::{Event, Failing, FailureKind, Medium, Plan, Recorder, Rule, Site, SiteKind};
use serde::Serialize;

use super::record::{Session, errno, pass_grace_periods};
use super::recovered::caught;
use super::{Limits, RecordError, Run, Start};
use crate::compare::{Tree, difference, tree};
use crate::script::errno::name as errno_name;
use crate::script::{Line, Script, perform};

/// Images of each crash after a failure.
const LIMITS: Limits = Limits { images: 2, sampled: 0, is_complete: false, recoveries: 0 };

/// What meets a failure.
#[derive(Clone, Copy)]
enum Act<'a> {
    /// Opening a volume that was closed.
    Open,
    /// Opening a volume that was not.
    Recover,
    Call(&'a Line),
    Trim,
    Close,
}

impl fmt::Display for Act<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Open => f.write_str("open"),
            Act::Recover => f.write_str("recover"),
            Act::Call(line) => write!(f, "{} {}", line.number, line.call),
            Act::Trim => f.write_str("trim"),
            Act::Close => f.write_str("close"),
        }
    }
}

/// What came of failures at one site.
#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    /// What fails there.
    pub kind: &'static str,
    /// File and line.
    pub site: String,
    /// How.
    pub failure: &'static str,
    /// How often.
    pub injected: u64,
    /// What the calls gave: `0` or an errno, and how often.
    pub results: BTreeMap<String, u64>,
}

/// A failure after which something is not as it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultFailure {
    /// The call, as a line of its script, or what else was done.
    pub during: String,
    /// What failed.
    pub failing: Option<Failing>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for FaultFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(failing) = &self.failing {
            write!(f, "{}, in {}: ", told(failing), self.during)?;
        } else {
            write!(f, "without any failure, in {}: ", self.during)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for FaultFailure {}

/// The failure in words that `eyrie explore --fault` takes: errno, site, and which of its calls; `+`: those after it, too.
pub fn told(failing: &Failing) -> String {
    let lasts = if failing.lasts { "+" } else { "" };
    format!("{} {} {}{lasts}", name(failing.kind), failing.site, failing.first)
}

fn name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Full => "ENOSPC",
        FailureKind::Io => "EIO",
    }
}

fn errno_of(kind: FailureKind) -> Errno {
    match kind {
        FailureKind::Full => Errno::NOSPC,
        FailureKind::Io => Errno::IO,
    }
}

/// How a site may fail.
fn kinds(site: &Site) -> &'static [FailureKind] {
    match site.kind {
        SiteKind::Back => &[FailureKind::Full, FailureKind::Io],
        SiteKind::Allocate => &[FailureKind::Full],
        _ => &[FailureKind::Io],
    }
}

/// The failures of a site that was met so often: of its first two calls and the last, and from each of these on.
fn failures(site: Site, met: u64) -> Vec<Failing> {
    let mut firsts = vec![1, 2, met];
    firsts.retain(|&first| first <= met);
    firsts.dedup();
    let ways = kinds(&site).iter().flat_map(|&kind| firsts.iter().map(move |&first| (kind, first)));
    ways.flat_map(|(kind, first)| [false, true].map(|lasts| Failing { site, kind, first, lasts })).collect()
}

/// What one trial showed.
struct Shown {
    /// What the act gave.
    result: Option<Errno>,
    /// The calls that may fail, and how often they were made.
    met: BTreeMap<Site, u64>,
    /// How many failed.
    failed: u64,
}

/// Failures in the calls of a script.
pub struct Faults {
    reports: BTreeMap<(Site, FailureKind), FaultReport>,
    only: Option<String>,
}

impl Faults {
    /// No failures yet; then `only` the one that [`told`] tells so, if one is given.
    pub fn new(only: Option<&str>) -> Faults {
        Faults { reports: BTreeMap::new(), only: only.map(str::to_owned) }
    }

    /// What was found so far, site by site.
    pub fn reports(&self) -> impl Iterator<Item = &FaultReport> {
        self.reports.values()
    }

    /// Lets every call of `script` meet every failure that it can meet, for as long as `goes_on` says so.
    ///
    /// # Errors
    /// The first failure after which something is not as it must be.
    pub fn calls(
        &mut self,
        start: &Start,
        script: &Script,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Start, FaultFailure> {
        let mut start = start.clone();
        for line in script.lines() {
            self.act(&start, Act::Call(line), goes_on)?;
            let before = |error: RecordError| FaultFailure {
                during: line.call.to_string(),
                failing: None,
                what: error.to_string(),
            };
            start = start.after(&[line.call.clone()].into_iter().collect()).map_err(before)?;
        }
        Ok(start)
    }

    /// The same with opening, recovering, trimming and closing the volume.
    ///
    /// # Errors
    /// As [`Faults::calls`].
    pub fn lifecycle(
        &mut self,
        start: &Start,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), FaultFailure> {
        let acts = [Act::Open, Act::Recover, Act::Trim, Act::Close];
        acts.into_iter().try_for_each(|act| self.act(start, act, goes_on))
    }

    fn act(
        &mut self,
        start: &Start,
        act: Act<'_>,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), FaultFailure> {
        let run = |failing: Option<Failing>| {
            let shown = caught(|| trial(start, act, failing)).unwrap_or_else(Err);
            shown.map_err(|what| FaultFailure { during: act.to_string(), failing, what })
        };
        let met = run(None)?.met;
        for failing in met.into_iter().flat_map(|(site, met)| failures(site, met)) {
            if self.only.as_ref().is_some_and(|only| *only != told(&failing)) {
                continue;
            }
            if !goes_on() {
                break;
            }
            let shown = run(Some(failing))?;
            self.count(&failing, &shown);
        }
        Ok(())
    }

    fn count(&mut self, failing: &Failing, shown: &Shown) {
        let Failing { site, kind, .. } = *failing;
        let report = self.reports.entry((site, kind)).or_insert_with(|| FaultReport {
            kind: site.kind.name(),
            site: site.place(),
            failure: name(kind),
            injected: 0,
            results: BTreeMap::new(),
        });
        report.injected += shown.failed;
        let result = shown.result.map_or("0".to_string(), |errno| errno_name(errno).into_owned());
        *report.results.entry(result).or_default() += 1;
    }
}

fn trial(start: &Start, act: Act<'_>, failing: Option<Failing>) -> Result<Shown, String> {
    match act {
        Act::Open => open(start.image().to_vec(), start, failing),
        Act::Recover => open(start.crashed().map_err(text)?, start, failing),
        Act::Call(line) => call(start, line, failing),
        Act::Trim => trim(start, failing),
        Act::Close => close(start, failing),
    }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Whether the errno is the one that was planned, or none.
fn is_allowed(result: Option<Errno>, failing: Option<Failing>) -> Result<(), String> {
    match result {
        None => Ok(()),
        Some(errno) if failing.is_some_and(|failing| errno_of(failing.kind) == errno) => Ok(()),
        Some(errno) => Err(format!("gives {}", errno_name(errno))),
    }
}

/// What a medium that starts with `image` has after `events`.
fn stored(mut image: Vec<u8>, events: &[Event]) -> Vec<u8> {
    for event in events {
        if let Event::Store { addr, bytes, .. } = event {
            image[addr.offset() as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    image
}

/// Opens `image`, which must be sound and hold `expected`; how much is free there, and the number of objects.
fn opened(image: &[u8], expected: &Tree) -> Result<(u64, u64), String> {
    let medium = Medium::traced_from(image, Recorder::default()).map_err(text)?;
    let engine = Scm::open_on(medium).map_err(|error| format!("opened later: {error}"))?;
    if let Some(what) = difference(&tree(&engine), expected) {
        return Err(format!("opened later it has, and should have:\n{what}"));
    }
    sound(&engine)?;
    let space = engine.space();
    Ok((space.free, space.objects))
}

fn sound(engine: &Scm) -> Result<(), String> {
    let report = engine.check().map_err(text)?;
    report.findings.first().map_or(Ok(()), |finding| Err(format!("check: {finding}")))
}

/// The volume holds `expected`, is sound, and a recovery of it finds as much free. What `may_lose` is that something was
/// not given back because it could not be read: then a recovery finds it.
fn holds(engine: &Scm, expected: &Tree, may_lose: bool) -> Result<(), String> {
    if let Some(what) = difference(&tree(engine), expected) {
        return Err(format!("has, and should have:\n{what}"));
    }
    if may_lose {
        return opened(&engine.volume().medium().snapshot(), expected).map(drop);
    }
    sound(engine)?;
    let space = engine.space();
    let (free, objects) = opened(&engine.volume().medium().snapshot(), expected)?;
    if (space.free, space.objects) != (free, objects) {
        let (is_free, are) = (space.free, space.objects);
        return Err(format!(
            "{is_free} bytes are free and {are} objects there, should be {free} and {objects}"
        ));
    }
    Ok(())
}

fn open(image: Vec<u8>, start: &Start, failing: Option<Failing>) -> Result<Shown, String> {
    let plan = Plan::default();
    let recorder = Recorder::of(plan.clone());
    let medium = Medium::traced_from(&image, recorder.clone()).map_err(text)?;
    plan.fail(failing);
    let done = Scm::open_on(medium);
    let (met, failed) = (plan.calls(), plan.failed());
    plan.fail(None);
    let result = done.as_ref().err().map(eyrie_engine::Error::errno);
    is_allowed(result, failing)?;
    let expected = tree(start.model());
    if let Ok(engine) = &done {
        holds(engine, &expected, false)?;
    }
    opened(&stored(image, &recorder.take()), &expected)?;
    Ok(Shown { result, met, failed })
}

fn close(start: &Start, failing: Option<Failing>) -> Result<Shown, String> {
    let plan = Plan::default();
    let session = Session::open(start, &plan).map_err(text)?;
    let image = session.files.engine().volume().medium().snapshot();
    let (recorder, expected) = (session.recorder.clone(), tree(start.model()));
    drop(recorder.take());
    let (engine, _) = session.into_engine().map_err(text)?;
    plan.fail(failing);
    let result = engine.close().err().map(|error| error.errno());
    let (met, failed) = (plan.calls(), plan.failed());
    is_allowed(result, failing)?;
    opened(&stored(image, &recorder.take()), &expected)?;
    Ok(Shown { result, met, failed })
}

fn trim(start: &Start, failing: Option<Failing>) -> Result<Shown, String> {
    let plan = Plan::default();
    let session = Session::open(start, &plan).map_err(text)?;
    let engine = session.files.engine();
    plan.fail(failing);
    let result = engine.trim().err().map(|error| error.errno());
    let (met, failed) = (plan.calls(), plan.failed());
    plan.fail(None);
    is_allowed(result, failing)?;
    holds(engine, &tree(start.model()), false)?;
    engine.trim().map_err(text)?;
    holds(engine, &tree(start.model()), false)?;
    Ok(Shown { result, met, failed })
}

/// Makes the call on both, and lets it fail in the engine.
fn call(start: &Start, line: &Line, failing: Option<Failing>) -> Result<Shown, String> {
    let plan = Plan::default();
    let session = Session::open(start, &plan).map_err(text)?;
    let engine = session.files.engine();
    let base = engine.volume().medium().snapshot();
    session.set_clock(line);
    let (before, early) = (tree(&**session.model.engine()), session.early(line));
    plan.fail(failing);
    let actual = errno(&perform(&session.files, &line.call));
    let (met, failed) = (plan.calls(), plan.failed());
    plan.fail(None);
    let foreseen = match (failing, actual) {
        // What there is no room for happens to neither.
        (None, Some(Errno::NOSPC)) => actual,
        _ => errno(&perform(&session.forked_model(), &line.call)),
    };
    let is_access = |kind| matches!(kind, SiteKind::Read | SiteKind::Write | SiteKind::Publish);
    let may_lose = failed > 0 && failing.is_some_and(|failing| is_access(failing.site.kind));
    // A call may read something more when its change is done, and fail then.
    let is_late = may_lose && difference(&tree(&**engine), &before).is_some();
    let is_full = failing.is_none() && actual == Some(Errno::NOSPC);
    if !is_full && (actual == foreseen || is_late) {
        let _ = perform(&session.model, &line.call);
    }
    if actual != foreseen && actual.is_none() {
        return Err("succeeds, which it should not".to_string());
    }
    if actual != foreseen {
        is_allowed(actual, failing.filter(|_| failed > 0))?;
    }
    session.recorder.mark(1);
    pass_grace_periods();
    let after = tree(&**session.model.engine());
    holds(engine, &after, may_lose)?;

    let again_early = session.early(line);
    let again = errno(&perform(&session.files, &line.call));
    if again != Some(Errno::NOSPC) {
        let foreseen = errno(&perform(&session.model, &line.call));
        if again != foreseen {
            return Err(format!("made again, it gives {again:?}, should give {foreseen:?}"));
        }
    }
    session.recorder.mark(2);
    pass_grace_periods();
    let last = tree(&**session.model.engine());
    holds(engine, &last, may_lose).map_err(|what| format!("made again: {what}"))?;

    let recorder = session.recorder.clone();
    let (events, early) = (recorder.take(), vec![early, again_early]);
    let left = stored(base.clone(), &events);
    session.into_engine().map_err(text)?.0.close().map_err(text)?;
    opened(&stored(left, &recorder.take()), &last).map_err(|what| format!("closed: {what}"))?;
    if actual != foreseen {
        let states = vec![before, after, last];
        let (durable, plan) = (vec![0, 1, 2], Plan::default());
        let (rule, orders, is_closed) = (Rule::Lines, None, false);
        let run = Run { rule, base, events, states, durable, early, orders, is_closed, plan };
        run.explore(LIMITS, &mut |_| true).map_err(text)?;
    }
    Ok(Shown { result: actual, met, failed })
}
