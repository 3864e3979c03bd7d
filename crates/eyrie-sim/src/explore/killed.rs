//! Killed processes: each next one reads what the ones before stored, durable or not, and goes on from there.
//!
//! A store is visible to every process as soon as it is made, but a power failure may still undo it. So recovery must make durable
//! what it reads before it acts on it. A chain checks this: a process runs the script and is killed, the next one opens the
//! volume, goes on with the script and is killed in turn, at any event of either; then power fails. A link of a chain may also
//! be a power failure, so that a process is killed while it recovers from one.
//!
//! A process of a chain starts from bytes that are durable and from stores that are pending, followed by an [`Event::Kill`]. What
//! a power failure may leave is told by marks, as in any run, but a mark is here the number of a set of states.

use std::ops::RangeInclusive;
use std::sync::Arc;

use eyrie::{Credentials, Errno, Pxfs};
use eyrie_engine::scm::Scm;
use eyrie_medium::{CrashPoint, CrashPoints, Event, Recorder, Rule};

use super::ground::Traced;
use super::picks::Picks;
use super::record::{Recorded, Start, clock, errno, pass_grace_periods, set_clock, syncs};
use super::recovered::{Expected, Wrong, caught, examine, sound};
use super::run::{Failure, Limits, NoImage, check_picks, point_after};
use crate::compare::{Include, Tree, difference, try_tree};
use crate::script::{Script, bytes, perform};

/// Calls that a process makes after it has opened the volume that a killed one left.
const CALLS: usize = 4;
/// No number of calls.
const NONE: RangeInclusive<usize> = RangeInclusive::new(1, 0);

/// The extent of an exploration of chains of killed processes.
#[derive(Clone, Copy, Debug)]
pub struct Kills {
    /// Moments of each process at which it is killed; all, if it has fewer events.
    pub moments: u64,
    /// Processes that are killed one after the other, at most.
    pub processes: u32,
    /// Images of each power failure. [`Limits::recoveries`] of each process are recovered by one that is killed in turn.
    pub limits: Limits,
}

/// The end of a process in a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Link {
    /// It was killed.
    Kill {
        /// Its events before that (a count).
        after: usize,
    },
    /// Power failed.
    Power {
        /// Its events before that (a count).
        after: usize,
        /// The content of each line that was looked at.
        picks: Vec<usize>,
    },
}

/// The script of a run, from the volume that it starts from.
pub(super) struct Source {
    pub(super) start: Start,
    pub(super) script: Script,
    /// The error of each call, `None` where it gave none.
    pub(super) results: Vec<Option<Errno>>,
}

/// States of the model: those after so many calls of the script, and perhaps the early one of the call in flight.
#[derive(Clone)]
struct States {
    calls: RangeInclusive<usize>,
    /// The call whose time may be seen before its bytes.
    early: Option<usize>,
}

/// A volume as the processes so far left it.
struct Left {
    /// Bytes that no power failure takes back.
    durable: Vec<u8>,
    /// Stores that are visible and not durable, and the kill after them.
    pending: Vec<Event>,
    /// The states that a power failure may leave from here on.
    states: States,
}

impl Left {
    /// All bytes as the next process reads them.
    fn visible(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for event in &self.pending {
            if let Event::Store { addr, bytes: stored, .. } = event {
                bytes[addr.offset() as usize..][..stored.len()].copy_from_slice(stored);
            }
        }
        bytes
    }
}

/// A process that opened what others left.
struct Process {
    left: Left,
    /// Events that others left pending, then its own.
    events: Vec<Event>,
    /// Where its own begin.
    first: usize,
    /// The states that a power failure may leave after each mark.
    states: Vec<States>,
}

/// An exploration of chains.
struct Chains<'r> {
    recorded: &'r Recorded,
    source: &'r Source,
    kills: Kills,
    /// Images so far.
    images: u64,
    goes_on: &'r mut dyn FnMut() -> bool,
}

impl Recorded {
    /// Kills the process, and the next ones, at some moments, and lets power fail at every fence of each next one. The number of
    /// images that were opened. It goes on for as long as `goes_on` says so.
    ///
    /// # Errors
    /// The first image, or opening, that is not as it must be.
    pub fn explore_kills(&self, kills: Kills, goes_on: &mut dyn FnMut() -> bool) -> Result<u64, Failure> {
        let Some(source) = &self.source else { return Ok(0) };
        let mut chains = Chains { recorded: self, source, kills, images: 0, goes_on };
        for after in moments(&self.run.events, kills.moments, 0) {
            let link = Link::Kill { after };
            chains.explore(vec![link], self.killed(after)?, kills.processes)?;
        }
        Ok(chains.images)
    }

    /// Opens one image at the end of a chain again, which a [`Failure`] tells. What is wrong with it, if something is.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn replay_killed(
        &self,
        links: &[Link],
        after: usize,
        picks: &[usize],
    ) -> Result<Option<String>, NoImage> {
        let none = NoImage::Point { after };
        let (Some(source), [Link::Kill { after: first }, links @ ..]) = (&self.source, links) else {
            return Err(none);
        };
        let kills = Kills { moments: 0, processes: 0, limits: Limits::ALL };
        let chains = Chains { recorded: self, source, kills, images: 0, goes_on: &mut || true };
        let mut left = self.killed(*first).map_err(|_| none)?;
        for link in links {
            let process = match caught(|| chains.process(left)).unwrap_or_else(Err) {
                Ok(process) => process,
                Err(what) => return Ok(Some(what)),
            };
            left = match link {
                Link::Kill { after } => process.killed(self, *after).map_err(|_| none)?,
                Link::Power { after, picks } => process.failed(self, *after, picks)?,
            };
        }
        let process = match caught(|| chains.process(left)).unwrap_or_else(Err) {
            Ok(process) => process,
            Err(what) => return Ok(Some(what)),
        };
        let mut points = process.points(self).map_err(|_| none)?;
        let point = point_after(&mut points, process.first + after)?;
        match examine(points.base(), &point, picks, &process.expected(self, &point)) {
            Ok((choices, _)) => check_picks(picks, &choices).map(|()| None),
            Err(wrong) => Ok(Some(wrong.what)),
        }
    }

    /// The volume as the process leaves it that is killed after so many events of the script.
    fn killed(&self, after: usize) -> Result<Left, Failure> {
        let is_mark = |event: &&Event| matches!(event, Event::Mark(_));
        let done = self.run.events[..after.min(self.run.events.len())].iter().filter(is_mark).count();
        let last = self.run.states.len() - 1;
        let states = States {
            calls: self.run.durable[done]..=(done + 1).min(last),
            early: self.run.early.get(done).and_then(Option::as_ref).map(|_| done),
        };
        let (rule, base, events) = (self.run.rule, &self.run.base, &self.run.events);
        let points = CrashPoints::by(rule, base, events);
        let mut points = points.map_err(|error| Failure::before(error.to_string()))?;
        points.skip_to(after);
        Ok(Left { durable: points.base().bytes(), pending: points.killed(), states })
    }

    fn trees<'a>(&'a self, states: &'a States) -> impl Iterator<Item = &'a Tree> {
        let early = states.early.and_then(|call| self.run.early[call].as_ref());
        self.run.states[states.calls.clone()].iter().chain(early)
    }
}

/// Up to `count` of the moments before the events of a process and after them, in order; the same for the same seed. Every
/// other one is before a fence, when all of an epoch is visible and none of it durable.
fn moments(events: &[Event], count: u64, seed: u64) -> Vec<usize> {
    if count > events.len() as u64 {
        return (0..=events.len()).collect();
    }
    let is_fence = |at: &usize| matches!(events[*at], Event::Fence { .. });
    let fences: Vec<usize> = (0..events.len()).filter(is_fence).collect();
    let pick = |number| match bytes::word(seed, number) as usize {
        any if number % 2 == 0 && !fences.is_empty() => fences[any % fences.len()],
        any => any % (events.len() + 1),
    };
    let mut moments: Vec<usize> = (0..count).map(pick).collect();
    moments.sort_unstable();
    moments.dedup();
    moments
}

impl Chains<'_> {
    /// Explores the process that opens what the chain of `links` left.
    fn explore(&mut self, links: Vec<Link>, left: Left, processes: u32) -> Result<(), Failure> {
        if !(self.goes_on)() {
            return Ok(());
        }
        let wrong = |after: usize, picks: Vec<usize>, what: String| Failure {
            links: links.clone(),
            ..Failure { after, picks, ..Failure::before(what) }
        };
        let process = caught(|| self.process(left)).unwrap_or_else(Err);
        let process = process.map_err(|what| wrong(0, Vec::new(), what))?;
        let further = |link: Link| links.iter().cloned().chain([link]).collect::<Vec<_>>();
        let mut failed = Vec::new();
        let mut points = process.points(self.recorded)?;
        while let Some(point) = points.next() {
            let expected = process.expected(self.recorded, &point);
            let after = point.after - process.first;
            let mut images = Picks::new(self.kills.limits, point.after);
            while let Some(picks) = images.next() {
                let examined = examine(points.base(), &point, &picks, &expected);
                let (choices, _) = examined.map_err(|Wrong { what, picks }| wrong(after, picks, what))?;
                images.had(&choices);
                self.images += 1;
                let picks: Vec<usize> = choices.iter().map(|choice| choice.taken).collect();
                failed.push((after, picks));
            }
            if !(self.goes_on)() {
                return Ok(());
            }
        }
        if processes <= 1 {
            return Ok(());
        }
        let (events, seed) = (&process.events[process.first..], links.len() as u64);
        for after in moments(events, self.kills.moments, seed) {
            let killed = process.killed(self.recorded, after)?;
            self.explore(further(Link::Kill { after }), killed, processes - 1)?;
        }
        for number in 0..self.kills.limits.recoveries.min(failed.len() as u64) {
            let (after, picks) = &failed[bytes::word(seed, number) as usize % failed.len()];
            let left = process.failed(self.recorded, *after, picks);
            let left = left.map_err(|error| wrong(*after, picks.clone(), error.to_string()))?;
            let link = Link::Power { after: *after, picks: picks.clone() };
            self.explore(further(link), left, processes - 1)?;
        }
        Ok(())
    }

    /// Opens what others left, and goes on with the script.
    fn process(&self, left: Left) -> Result<Process, String> {
        let run = &self.recorded.run;
        let recorder = Recorder::of(run.plan.clone());
        let traced = Traced::holding(run.rule, &left.visible(), recorder.clone());
        let engine = traced.and_then(|traced| Scm::open_on(traced.split().0)).map(Arc::new);
        let engine = engine.map_err(|error| format!("open after a kill: {error}"))?;
        recorder.mark(1);
        let first = left.pending.len();
        let (events, states) = (left.pending.clone(), vec![left.states.clone()]);
        let mut process = Process { left, events, first, states };
        process.events.push(Event::Mark(0));
        process.events.extend(recorder.take());

        let found = try_tree(&*engine, Include::ALL).map_err(|error| error.to_string())?;
        let States { calls, early } = process.states[0].clone();
        if let Some(position) = calls.clone().rev().find(|&calls| run.states[calls] == found) {
            let durable = if run.rule == Rule::Lines { position } else { *calls.start() };
            process.states.push(States { calls: durable..=position, early: None });
            self.go_on(&engine, &recorder, &mut process)?;
        } else if early.is_some_and(|call| run.early[call].as_ref() == Some(&found)) {
            process.states.push(States { calls: NONE, early });
        } else {
            let states = self.recorded.trees(&process.states[0]);
            let differs: Vec<String> = states.filter_map(|state| difference(&found, state)).collect();
            return Err(format!("after a kill is, and should be: {}", differs.join("\n  or: ")));
        }
        sound(&engine)?;
        Ok(process)
    }

    /// Makes the next calls of the script.
    fn go_on(&self, engine: &Arc<Scm>, recorder: &Recorder, process: &mut Process) -> Result<(), String> {
        let run = &self.recorded.run;
        let files = Pxfs::new(Arc::clone(engine), Credentials::root()).with_clock(clock);
        let last = process.states.last().expect("what opening left").clone();
        let (mut durable, mut position) = (*last.calls.start(), *last.calls.end());
        for line in self.source.script.lines().iter().skip(position).take(CALLS) {
            set_clock(self.source.start.time() + line.number as i64);
            let given = errno(&perform(&files, &line.call));
            let wanted = self.source.results[position];
            if given != wanted {
                drop(recorder.take());
                // Room depends on where earlier processes placed things.
                if [given, wanted].contains(&Some(Errno::NOSPC)) {
                    return Ok(());
                }
                return Err(format!("after a kill `{}` gives {given:?}, should give {wanted:?}", line.call));
            }
            pass_grace_periods();
            // A power failure during the call leaves it whole or undone.
            let early = run.early[position].as_ref().map(|_| position);
            *process.states.last_mut().expect("what opening left") =
                States { calls: durable..=position + 1, early };
            position += 1;
            if run.rule == Rule::Lines || syncs(&line.call) && given.is_none() {
                durable = position;
            }
            recorder.mark(process.states.len() as u64);
            process.events.extend(recorder.take());
            process.states.push(States { calls: durable..=position, early: None });
        }
        Ok(())
    }
}

impl Process {
    fn points(&self, recorded: &Recorded) -> Result<CrashPoints<'_>, Failure> {
        let points = CrashPoints::by(recorded.run.rule, &self.left.durable, &self.events);
        let mut points = points.map_err(|error| Failure::before(error.to_string()))?;
        points.skip_to(self.first);
        Ok(points)
    }

    /// The states that a power failure may leave after so many of its events.
    fn states(&self, after: usize) -> &States {
        let marks = self.events[..(self.first + after).min(self.events.len())].iter().rev();
        let mark = marks.filter_map(|event| if let Event::Mark(mark) = event { Some(*mark) } else { None });
        &self.states[mark.max().unwrap_or(0) as usize]
    }

    fn expected<'a>(&'a self, recorded: &'a Recorded, point: &CrashPoint) -> Expected<'a> {
        let states = recorded.trees(self.states(point.after - self.first)).collect();
        Expected { states, is_closed: false, plan: &recorded.run.plan }
    }

    /// The volume when it is killed after so many of its events.
    fn killed(&self, recorded: &Recorded, after: usize) -> Result<Left, Failure> {
        let mut points = self.points(recorded)?;
        points.skip_to(self.first + after);
        let states = self.states(after).clone();
        Ok(Left { durable: points.base().bytes(), pending: points.killed(), states })
    }

    /// The volume when power fails after so many of its events.
    fn failed(&self, recorded: &Recorded, after: usize, picks: &[usize]) -> Result<Left, NoImage> {
        let mut points = self.points(recorded).map_err(|_| NoImage::Point { after })?;
        let point = point_after(&mut points, self.first + after)?;
        let examined = examine(points.base(), &point, picks, &self.expected(recorded, &point));
        let (choices, _) = examined.map_err(|_| NoImage::Point { after })?;
        let durable = point.decided(points.base(), &choices);
        Ok(Left { durable, pending: Vec::new(), states: self.states(after).clone() })
    }
}
