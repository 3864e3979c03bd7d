//! Failures of the host, one at a time, in every call of a script: at each place where the engine may meet one.
//!
//! A call that meets a failure fails whole, with the errno of the failure, or succeeds as if there had been none. Then the volume
//! is sound, holds what the model holds, has as much free as a recovery finds (of a volume in memory), does the same call again without
//! a failure (unless a disk could not make something durable), and no crash takes away what had returned. Opening, trimming and closing
//! the volume fail and succeed likewise.

mod disk;
mod memory;

use std::collections::BTreeMap;
use std::fmt;

use eyrie::Errno;
use eyrie_engine::scm::Scm;
use eyrie_medium::{Event, Failing, FailureKind, Plan, Rule, Site, SiteKind};
use serde::Serialize;

use super::record::{Session, errno};
use super::recovered::caught;
use super::{Limits, RecordError, Start};
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

/// How a site may fail. What is stored in memory has its room, what is written to a disk may not.
fn kinds(site: &Site, rule: Rule) -> &'static [FailureKind] {
    match site.kind {
        SiteKind::Write if rule == Rule::Sectors => &[FailureKind::Full, FailureKind::Io],
        SiteKind::Back => &[FailureKind::Full, FailureKind::Io],
        SiteKind::Allocate => &[FailureKind::Full],
        _ => &[FailureKind::Io],
    }
}

/// Whether a call, and the same call again, has no room without any failure; what is not known may be.
#[derive(Clone, Copy)]
struct NoRoom {
    first: Option<bool>,
    again: Option<bool>,
}

/// What one trial showed.
struct Shown {
    /// What the act gave.
    result: Option<Errno>,
    no_room: NoRoom,
    met: Met,
}

/// What an act met while something failed.
struct Met {
    /// The calls that may fail, and how often they were made.
    calls: BTreeMap<Site, u64>,
    /// How many failed.
    failed: u64,
}

/// An act that is tried.
struct Trial<'a> {
    start: &'a Start,
    failing: Option<Failing>,
    no_room: NoRoom,
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
        let run = |failing: Option<Failing>, no_room: NoRoom| {
            let shown = caught(|| Trial { start, failing, no_room }.run(act)).unwrap_or_else(Err);
            shown.map_err(|what| FaultFailure { during: act.to_string(), failing, what })
        };
        let Shown { met, no_room, .. } = run(None, NoRoom { first: None, again: None })?;
        let ways = |(site, calls): (Site, u64)| {
            kinds(&site, start.rule()).iter().flat_map(move |&kind| site.failures(kind, calls))
        };
        for failing in met.calls.into_iter().flat_map(ways) {
            if self.only.as_ref().is_some_and(|only| *only != told(&failing)) {
                continue;
            }
            if !goes_on() {
                break;
            }
            let shown = run(Some(failing), no_room)?;
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
        report.injected += shown.met.failed;
        let result = shown.result.map_or("0".to_string(), |errno| errno_name(errno).into_owned());
        *report.results.entry(result).or_default() += 1;
    }
}

impl Trial<'_> {
    fn run(&self, act: Act<'_>) -> Result<Shown, String> {
        let is_disk = self.start.rule() == Rule::Sectors;
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

    fn session(&self) -> Result<(Plan, Session), String> {
        let plan = Plan::default();
        let session = Session::open(self.start, &plan).map_err(text)?;
        Ok((plan, session))
    }

    /// Does `act` while the failure is planned; what it gave, and what it met.
    fn meet<T>(&self, plan: &Plan, act: impl FnOnce() -> T) -> (T, Met) {
        plan.fail(self.failing);
        let done = act();
        let met = Met { calls: plan.calls(), failed: plan.failed() };
        plan.fail(None);
        (done, met)
    }

    /// As [`Trial::meet`], of an act that takes no room: what it gave, unless that is not allowed.
    fn attempt<T>(
        &self,
        plan: &Plan,
        act: impl FnOnce() -> eyrie_engine::Result<T>,
    ) -> Result<(Option<T>, Shown), String> {
        let (done, met) = self.meet(plan, act);
        let result = done.as_ref().err().map(eyrie_engine::Error::errno);
        self.allow(result, &met)?;
        Ok((done.ok(), Shown { result, no_room: NoRoom::of(None, None), met }))
    }

    /// Whether an access of one of these kinds has failed.
    fn has_failed_to(&self, kinds: &[SiteKind], met: &Met) -> bool {
        met.failed > 0 && self.failing.is_some_and(|failing| kinds.contains(&failing.site.kind))
    }

    /// Whether a result is none, or the planned errno; or that of a disk that takes no changes since something failed.
    fn allow(&self, result: Option<Errno>, met: &Met) -> Result<(), String> {
        let is_disk = self.start.rule() == Rule::Sectors;
        let planned = self.failing.filter(|_| met.failed > 0).map(|failing| Errno::from(failing.kind));
        match result {
            None => Ok(()),
            Some(Errno::ROFS) if is_disk && met.failed > 0 => Ok(()),
            Some(errno) if planned == Some(errno) => Ok(()),
            Some(errno) => Err(format!("gives {}", errno_name(errno))),
        }
    }

    /// Makes on the model what a call, which gave `actual`, did in the engine, also if it failed when that `is_done`; whether it gave
    /// what the model foresees.
    fn follow(
        &self,
        session: &Session,
        line: &Line,
        actual: Option<Errno>,
        is_done: bool,
        met: &Met,
    ) -> Result<bool, String> {
        let foreseen = self.no_room.foresee(session, line, actual, is_done);
        if actual == foreseen {
            return Ok(true);
        }
        if actual.is_none() {
            return Err("succeeds, which it should not".to_string());
        }
        self.allow(actual, met).map(|()| false)
    }
}

impl NoRoom {
    /// Of the trial without failures; `again` if that was looked at.
    fn of(first: Option<Errno>, again: Option<Errno>) -> NoRoom {
        let is_full = |errno| Some(errno == Some(Errno::NOSPC));
        NoRoom { first: is_full(first), again: is_full(again) }
    }

    /// What the model gives for a call, which it makes if `is_done` or if the engine gave the same. What there is no room for happens to
    /// neither.
    fn foresee(self, session: &Session, line: &Line, actual: Option<Errno>, is_done: bool) -> Option<Errno> {
        if self.first.unwrap_or(actual == Some(Errno::NOSPC)) {
            return Some(Errno::NOSPC);
        }
        let foreseen = errno(&perform(&session.forked_model(), &line.call));
        if actual == foreseen || is_done {
            let _ = perform(&session.model, &line.call);
        }
        foreseen
    }

    /// Makes the call again on both, without failures; what it gave. It may find no room where it found none in the trial without
    /// failures, or if something `is_lost`.
    fn again(self, session: &Session, line: &Line, is_lost: bool) -> Result<Option<Errno>, String> {
        let actual = errno(&perform(&session.files, &line.call));
        let may_be_full = [self.first, self.again].iter().any(|full| full.unwrap_or(true)) || is_lost;
        if actual == Some(Errno::NOSPC) && may_be_full {
            return Ok(actual);
        }
        let foreseen = errno(&perform(&session.model, &line.call));
        if actual != foreseen {
            return Err(format!("made again, it gives {actual:?}, should give {foreseen:?}"));
        }
        Ok(actual)
    }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// What a medium, or a disk, that starts with `image` has after `events`.
fn stored(mut image: Vec<u8>, events: &[Event]) -> Vec<u8> {
    for event in events {
        if let Event::Store { addr, bytes, .. } = event {
            image[addr.offset() as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    image
}

fn sound(engine: &Scm) -> Result<(), String> {
    let report = engine.check().map_err(text)?;
    report.findings.first().map_or(Ok(()), |finding| Err(format!("check: {finding}")))
}
