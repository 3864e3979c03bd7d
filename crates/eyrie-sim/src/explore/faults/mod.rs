//! Fault injection: in each call of a script, system calls of the engine and accesses to its medium fail. In
//! each trial the first, the second or the last access of one site fails, alone or together with all later
//! accesses of that site.
//!
//! The rules of a trial:
//! - A call that meets a failure has the same result as on the model, or returns the errno of that failure.
//!   On a disk, it may also return `EROFS`, after a failure to make changes durable.
//! - A failed call changes nothing, except where the failure came after the call had made its change.
//! - Afterwards the volume equals the model. Unless the failure may leak storage, the volume is also sound,
//!   and a volume in memory has as much free space as a recovery of it finds.
//! - If the call is made again, it gives the result of the model, or finds no room. This rule does not hold
//!   after a disk has failed to make a change durable.
//! - In memory no crash loses a call that had returned. On a disk no crash loses a call before the last
//!   successful sync.
//!
//! Open, trim and close follow the same rules.

mod disk;
mod memory;

use std::collections::BTreeMap;
use std::fmt;

use eyrie::Errno;
use eyrie_engine::scm::Scm;
use eyrie_faults::{CrashRule, Event, Failing, FailureKind, FaultPlan, Site};
use eyrie_medium::SiteKind;
use serde::Serialize;

use super::medium::apply_stores;
use super::record::{RecordSession, errno};
use super::recovered::caught;
use super::{Limits, RecordError, StartVolume};
use crate::script::{Script, ScriptLine, perform};

/// Limits of the images of each crash in a trial with a failure. There are many trials, so each crash gets
/// only a few images.
const LIMITS: Limits = Limits { images: 2, sampled: 0, is_complete: false, recoveries: 0 };

/// An action into which failures are injected.
#[derive(Clone, Copy)]
enum Act<'a> {
    /// Opens a closed volume.
    Open,
    /// Opens a volume that was not closed.
    Recover,
    Call(&'a ScriptLine),
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

/// The failures with one errno at one site, and the results of the actions that met them.
#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    /// Kind of the access or system call.
    pub kind: &'static str,
    /// File and line of the access.
    pub site: String,
    /// The injected error.
    pub failure: &'static str,
    /// Number of injected failures.
    pub injected: u64,
    /// Number of trials for each result of their action: `0`, or an errno.
    pub results: BTreeMap<String, u64>,
}

/// A trial in which a rule of this module was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultFailure {
    /// The action: a line of the script, or `open`, `recover`, `trim` or `close`.
    pub during: String,
    /// The injected failure. `None` if the action went wrong without one.
    pub failing: Option<Failing>,
    /// A description of the error.
    pub what: String,
}

impl fmt::Display for FaultFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(failing) = &self.failing {
            write!(f, "{}, in {}: ", fault_spec(failing), self.during)?;
        } else {
            write!(f, "without any failure, in {}: ", self.during)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for FaultFailure {}

/// Returns the failure in the form that `eyrie explore --fault` takes: errno, site and number of the access.
/// A `+` means that all later accesses at this site fail, too.
pub fn fault_spec(failing: &Failing) -> String {
    let is_persistent = if failing.is_persistent { "+" } else { "" };
    format!("{} {} {}{is_persistent}", name(failing.kind), failing.site, failing.first)
}

/// Returns true if `name` consists of the first words, or all words, of the text that [`fault_spec`] returns
/// for the failure.
fn is_named(failing: &Failing, name: &str) -> bool {
    fault_spec(failing).strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

fn name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Full => "ENOSPC",
        FailureKind::Io => "EIO",
    }
}

/// Returns the ways in which a site may fail. A store to memory cannot run out of space, because its page is
/// already provided. A write to a disk can.
fn kinds(site: &Site, rule: CrashRule) -> &'static [FailureKind] {
    match site.kind {
        SiteKind::Write if rule == CrashRule::Sectors => &[FailureKind::Full, FailureKind::Io],
        SiteKind::Provision => &[FailureKind::Full, FailureKind::Io],
        SiteKind::Allocate => &[FailureKind::Full],
        _ => &[FailureKind::Io],
    }
}

/// For the first call and for the same call made again: true if the call fails for lack of space even without
/// an injected failure. `None` if that is unknown.
#[derive(Clone, Copy)]
struct NoRoom {
    first: Option<bool>,
    again: Option<bool>,
}

/// Outcome of one trial.
struct TrialOutcome {
    /// Result of the action: `None` for success.
    result: Option<Errno>,
    no_room: NoRoom,
    met: Met,
}

/// The accesses of an action.
struct Met {
    /// The number of accesses at each site.
    calls: BTreeMap<Site, u64>,
    /// Number of injected failures.
    failed: u64,
}

/// A trial: one action with one failure, or with none.
struct FaultTrial<'a> {
    start: &'a StartVolume,
    failing: Option<Failing>,
    no_room: NoRoom,
}

/// Fault injection into the calls of scripts.
pub struct Faults {
    reports: BTreeMap<(Site, FailureKind), FaultReport>,
    only: Option<String>,
}

impl Faults {
    /// Starts without reports. With `only`, trials inject only the failure for which [`fault_spec`] returns
    /// that text. If `only` has no number of an access, trials inject the failure into each access that is
    /// tried at the site.
    pub fn new(only: Option<&str>) -> Faults {
        Faults { reports: BTreeMap::new(), only: only.map(str::to_owned) }
    }

    /// Returns the reports so far, one for each site and failure.
    pub fn reports(&self) -> impl Iterator<Item = &FaultReport> {
        self.reports.values()
    }

    /// Injects failures into every call of `script`, as the module's documentation describes. If
    /// `should_continue` returns false, injects no further failure into the present call, and continues with
    /// the next call. Returns the volume after the script.
    ///
    /// # Errors
    /// Fails at the first failure after which a rule is broken.
    pub fn calls(
        &mut self,
        start: &StartVolume,
        script: &Script,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<StartVolume, FaultFailure> {
        let mut start = start.clone();
        for line in script.lines() {
            self.act(&start, Act::Call(line), should_continue)?;
            let before = |error: RecordError| FaultFailure {
                during: line.call.to_string(),
                failing: None,
                what: error.to_string(),
            };
            start = start.after_script(&[line.call.clone()].into_iter().collect()).map_err(before)?;
        }
        Ok(start)
    }

    /// Injects failures into open, recovery, trim and close of the volume, in the same way.
    ///
    /// # Errors
    /// As [`Faults::calls`].
    pub fn lifecycle(
        &mut self,
        start: &StartVolume,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<(), FaultFailure> {
        let acts = [Act::Open, Act::Recover, Act::Trim, Act::Close];
        acts.into_iter().try_for_each(|act| self.act(start, act, should_continue))
    }

    fn act(
        &mut self,
        start: &StartVolume,
        act: Act<'_>,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<(), FaultFailure> {
        let run = |failing: Option<Failing>, no_room: NoRoom| {
            let outcome = caught(|| FaultTrial { start, failing, no_room }.run(act)).unwrap_or_else(Err);
            outcome.map_err(|what| FaultFailure { during: act.to_string(), failing, what })
        };
        let TrialOutcome { met, no_room, .. } = run(None, NoRoom { first: None, again: None })?;
        let ways = |(site, calls): (Site, u64)| {
            kinds(&site, start.rule()).iter().flat_map(move |&kind| site.failures(kind, calls))
        };
        for failing in met.calls.into_iter().flat_map(ways) {
            if self.only.as_ref().is_some_and(|only| !is_named(&failing, only)) {
                continue;
            }
            if !should_continue() {
                break;
            }
            let outcome = run(Some(failing), no_room)?;
            self.count(&failing, &outcome);
        }
        Ok(())
    }

    fn count(&mut self, failing: &Failing, outcome: &TrialOutcome) {
        let Failing { site, kind, .. } = *failing;
        let report = self.reports.entry((site, kind)).or_insert_with(|| FaultReport {
            kind: site.kind.name(),
            site: site.place(),
            failure: name(kind),
            injected: 0,
            results: BTreeMap::new(),
        });
        report.injected += outcome.met.failed;
        let result = outcome.result.map_or("0".to_string(), |errno| format!("{errno:?}"));
        *report.results.entry(result).or_default() += 1;
    }
}

impl FaultTrial<'_> {
    fn run(&self, act: Act<'_>) -> Result<TrialOutcome, String> {
        let is_disk = self.start.rule() == CrashRule::Sectors;
        let open = |image| if is_disk { disk::open(self, image) } else { memory::open(self, image) };
        match act {
            Act::Open => open(self.start.image().to_vec()),
            Act::Recover => open(self.start.crashed().map_err(text)?),
            Act::Call(line) if is_disk => disk::call(self, line),
            Act::Call(line) => memory::call(self, line),
            Act::Trim if is_disk => disk::trim(self),
            Act::Trim => memory::trim(self),
            Act::Close if is_disk => disk::close(self),
            Act::Close => memory::close(self),
        }
    }

    fn session(&self) -> Result<(FaultPlan, RecordSession), String> {
        let plan = FaultPlan::default();
        let session = RecordSession::open(self.start, &plan).map_err(text)?;
        Ok((plan, session))
    }

    /// Runs `act` while the failure is injected. Returns the result of `act`, and the accesses that `act`
    /// made.
    fn meet<T>(&self, plan: &FaultPlan, act: impl FnOnce() -> T) -> (T, Met) {
        plan.fail(self.failing);
        let done = act();
        let met = Met { calls: plan.calls(), failed: plan.failed() };
        plan.fail(None);
        (done, met)
    }

    /// Works as [`FaultTrial::meet`], for an action that needs no free space in the volume. Fails if the
    /// result is not allowed.
    fn attempt<T>(
        &self,
        plan: &FaultPlan,
        act: impl FnOnce() -> eyrie_engine::Result<T>,
    ) -> Result<(Option<T>, TrialOutcome), String> {
        let (done, met) = self.meet(plan, act);
        let result = done.as_ref().err().map(eyrie_engine::Error::errno);
        self.allow(result, &met)?;
        Ok((done.ok(), TrialOutcome { result, no_room: NoRoom::of(None, None), met }))
    }

    /// Returns true if an access of one of these kinds has failed.
    fn has_failed_to(&self, kinds: &[SiteKind], met: &Met) -> bool {
        met.failed > 0 && self.failing.is_some_and(|failing| kinds.contains(&failing.site.kind))
    }

    /// Checks that a result is allowed: success, the injected errno, or `EROFS` of a disk that refuses
    /// changes after a failure.
    fn allow(&self, result: Option<Errno>, met: &Met) -> Result<(), String> {
        let is_disk = self.start.rule() == CrashRule::Sectors;
        let planned = self
            .failing
            .filter(|_| met.failed > 0)
            .and_then(|failing| Errno::from_io_error(&failing.kind.into()));
        match result {
            None => Ok(()),
            Some(Errno::ROFS) if is_disk && met.failed > 0 => Ok(()),
            Some(errno) if planned == Some(errno) => Ok(()),
            Some(errno) => Err(format!("gives {errno:?}, which is not the injected error")),
        }
    }

    /// Checks the engine's result `actual`, and makes the call on the model as [`NoRoom::foresee`] describes.
    /// `is_done` means that a failure was injected and the call has changed the engine. Returns true if
    /// `actual` is the expected result, and false if it is an allowed error.
    fn follow(
        &self,
        session: &RecordSession,
        line: &ScriptLine,
        actual: Option<Errno>,
        is_done: bool,
        met: &Met,
    ) -> Result<bool, String> {
        let foreseen = self.no_room.foresee(session, line, actual, is_done);
        if actual == foreseen {
            return Ok(true);
        }
        if actual.is_none() {
            return Err("the call succeeds, but fails on the model".to_string());
        }
        self.allow(actual, met).map(|()| false)
    }
}

impl NoRoom {
    /// Takes the results of the first call and of the same call made again. A call has found no room if its
    /// result is `ENOSPC`.
    fn of(first: Option<Errno>, again: Option<Errno>) -> NoRoom {
        let is_full = |errno| Some(errno == Some(Errno::NOSPC));
        NoRoom { first: is_full(first), again: is_full(again) }
    }

    /// Returns the expected result: that of the model, or `ENOSPC` if the call finds no room without an
    /// injected failure. If the call finds room, and if `is_done` is true or `actual` is the result of the
    /// model, also makes the call on the model.
    fn foresee(
        self,
        session: &RecordSession,
        line: &ScriptLine,
        actual: Option<Errno>,
        is_done: bool,
    ) -> Option<Errno> {
        if self.first.unwrap_or(actual == Some(Errno::NOSPC)) {
            return Some(Errno::NOSPC);
        }
        let foreseen = errno(&perform(&session.forked_model(), &line.call));
        if actual == foreseen || is_done {
            let _ = perform(&session.model, &line.call);
        }
        foreseen
    }

    /// Makes the call again on engine and model, without failures, and returns its result. The call may find
    /// no room in three cases: it found no room in the trial without failures, this trial is the one without
    /// failures, or storage may have leaked until a recovery (`is_lost`).
    fn again(
        self,
        session: &RecordSession,
        line: &ScriptLine,
        is_lost: bool,
    ) -> Result<Option<Errno>, String> {
        let actual = errno(&perform(&session.files, &line.call));
        let may_be_full = [self.first, self.again].iter().any(|full| full.unwrap_or(true)) || is_lost;
        if actual == Some(Errno::NOSPC) && may_be_full {
            return Ok(actual);
        }
        let foreseen = errno(&perform(&session.model, &line.call));
        if actual != foreseen {
            return Err(format!("made again, the call gives {actual:?}, should give {foreseen:?}"));
        }
        Ok(actual)
    }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Returns the bytes of a medium or of a disk after `events`. `image` has the bytes before them.
fn stored(mut image: Vec<u8>, events: &[Event]) -> Vec<u8> {
    apply_stores(&mut image, events);
    image
}

fn sound(engine: &Scm) -> Result<(), String> {
    let report = engine.check().map_err(text)?;
    report.findings.first().map_or(Ok(()), |finding| Err(format!("check: {finding}")))
}
