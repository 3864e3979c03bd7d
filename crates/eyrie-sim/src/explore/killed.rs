//! Kills: in a chain of processes, each process after the first opens the volume that the process before it
//! left. After a kill that volume has stores that are durable and stores that are not.
//!
//! A store is immediately visible to all processes, but a power failure may still undo it. Recovery must
//! therefore make all bytes that it reads durable before it acts on them. A chain of processes checks this
//! rule. The first process runs the script and is killed at one of its events. The next process opens the
//! volume and continues the script. It may be killed in turn, during recovery or later. At the end the power
//! fails. A process after the first may also end by a power failure instead of a kill, so that the next
//! process is killed while it recovers from that failure.
//!
//! In about half of the chains, the first kill follows an odd number of events. In these chains the processes
//! after the first open the volume as services do. The clients of a killed service know its number as an
//! owner of the volume, and the generations of the volume's objects. So no later process may have that number
//! or assign one of those generations, even if the kill undoes changes on a disk.
//!
//! After a kill, the next process of a chain starts from durable bytes and pending stores. Its events begin
//! with these stores and an [`Event::Kill`]. (After a power failure it has only durable bytes.) As in any
//! run, marks among the events select the states that a power failure may leave. In this module the number of
//! a mark is an index into `Process::states`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use eyrie::Errno;
use eyrie_engine::Error;
use eyrie_engine::scm::Scm;
use eyrie_faults::{CrashPoint, CrashPoints, CrashRule, Event, Recorder};

use super::failure::{CrashFailure, ProcessEnd};
use super::images::{Images, Limits, NoImage, check_picks, point_after};
use super::medium::{Traced, apply_stores};
use super::record::{Recorded, RunSource, errno, files_of, pass_grace_periods, set_clock, syncs};
use super::recovered::{Expected, Wrong, caught, examine, sound};
use crate::compare::{Tree, TreeParts, difference, try_tree};
use crate::script::{bytes, perform};

/// Maximum number of calls that a process makes after it has opened the volume of a killed process. A few
/// suffice, because a kill may come at any event.
const CALLS: usize = 4;
/// An empty range, for `States::calls`.
const NONE: RangeInclusive<usize> = RangeInclusive::new(1, 0);

/// Limits of an exploration of chains.
#[derive(Clone, Copy, Debug)]
pub struct KillLimits {
    /// Maximum number of events at which each process is killed. A process with fewer events is killed before
    /// and after every event.
    pub moments: u64,
    /// Maximum number of processes in a chain that end before the last process.
    pub processes: u32,
    /// Limits for the images of each power failure. Of the images of each process, [`Limits::recoveries`] are
    /// chosen at random. For each of these, a further process of the chain opens the image.
    pub limits: Limits,
}

/// Allowed states: the states after each number of calls in `calls`, and perhaps one early state. An early
/// state has the times of a write without its bytes.
#[derive(Clone)]
struct States {
    calls: RangeInclusive<usize>,
    /// The call whose times may be visible before its bytes.
    early: Option<usize>,
}

/// The numbers that the clients of services know. They are zero if there were no clients, or after a power
/// failure, which ends the clients.
#[derive(Clone, Copy, Default)]
struct KnownNumbers {
    owner: u64,
    generation: u64,
}

/// The volume as the processes so far have left it.
struct KilledVolume {
    /// The durable bytes.
    durable: Vec<u8>,
    /// Stores that are visible but not durable, and the kill after them.
    pending: Vec<Event>,
    /// The states that a power failure may now leave.
    states: States,
    known: KnownNumbers,
}

impl KilledVolume {
    /// Returns the bytes that the next process reads.
    fn visible(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        apply_stores(&mut bytes, &self.pending);
        bytes
    }
}

/// Any process of a chain but the first. It opened the volume that the process before it left.
struct Process {
    left: KilledVolume,
    /// The events that earlier processes left pending, followed by the events of this process.
    events: Vec<Event>,
    /// Index of the first event of this process.
    first: usize,
    /// The states that a power failure may leave after each mark.
    states: Vec<States>,
    /// Each pair is a number of events, and the numbers that clients know after so many events.
    known: Vec<(usize, KnownNumbers)>,
}

/// An exploration of chains.
struct Chains<'r> {
    recorded: &'r Recorded,
    source: &'r RunSource,
    kills: KillLimits,
    /// Number of images that were opened so far.
    images: u64,
    should_continue: &'r mut dyn FnMut() -> bool,
}

impl Recorded {
    /// Kills the process of this run, and the processes after it, at some of their events. Lets the power
    /// fail at every crash point of each later process. Returns the number of images that were opened. Stops
    /// when `should_continue` returns false.
    ///
    /// # Errors
    /// Fails at the first wrong image, or the first volume that cannot be opened.
    pub fn explore_kills(
        &self,
        kills: KillLimits,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<u64, CrashFailure> {
        let Some(source) = &self.source else { return Ok(0) };
        let mut chains = Chains { recorded: self, source, kills, images: 0, should_continue };
        for after in moments(&self.run.events, kills.moments, 0) {
            let link = ProcessEnd::Kill { after };
            chains.explore(vec![link], self.killed(after)?, kills.processes)?;
        }
        Ok(chains.images)
    }

    /// Opens the image at the end of a chain again, with the numbers of a [`CrashFailure`]. Returns a
    /// description of the error, or `None`.
    ///
    /// # Errors
    /// Fails if there is no such image.
    pub fn replay_killed(
        &self,
        links: &[ProcessEnd],
        after: usize,
        picks: &[usize],
    ) -> Result<Option<String>, NoImage> {
        let none = NoImage::Point { after };
        let (Some(source), [ProcessEnd::Kill { after: first }, later @ ..]) = (&self.source, links) else {
            return Err(none);
        };
        let kills = KillLimits { moments: 0, processes: 0, limits: Limits::ALL };
        let chains = Chains { recorded: self, source, kills, images: 0, should_continue: &mut || true };
        let mut left = self.killed(*first).map_err(|_| none)?;
        for link in later {
            let process = match caught(|| chains.process(links, left)).unwrap_or_else(Err) {
                Ok(process) => process,
                Err(what) => return Ok(Some(what)),
            };
            left = match link {
                ProcessEnd::Kill { after } => process.killed(self, *after).map_err(|_| none)?,
                ProcessEnd::Power { after, picks } => process.failed(self, *after, picks)?,
            };
        }
        let process = match caught(|| chains.process(links, left)).unwrap_or_else(Err) {
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

    /// Returns the volume after a kill that follows the first `after` events of the recorded run.
    fn killed(&self, after: usize) -> Result<KilledVolume, CrashFailure> {
        let is_mark = |event: &&Event| matches!(event, Event::Mark(_));
        let done = self.run.events[..after.min(self.run.events.len())].iter().filter(is_mark).count();
        let last = self.run.states.len() - 1;
        let states = States {
            calls: self.run.durable[done]..=(done + 1).min(last),
            early: self.run.early.get(done).and_then(Option::as_ref).map(|_| done),
        };
        let (rule, base, events) = (self.run.rule, &self.run.base, &self.run.events);
        let points = CrashPoints::by(rule, base, events);
        let mut points = points.map_err(|error| CrashFailure::before(error.to_string()))?;
        points.skip_to(after);
        let known = KnownNumbers::default();
        Ok(KilledVolume { durable: points.base().bytes(), pending: points.killed(), states, known })
    }

    fn trees<'a>(&'a self, states: &'a States) -> impl Iterator<Item = &'a Tree> {
        let early = states.early.and_then(|call| self.run.early[call].as_ref());
        self.run.states[states.calls.clone()].iter().chain(early)
    }
}

/// Chooses at most `count` moments at which a process is killed: numbers of events before the kill, in
/// ascending order. Equal seeds give equal moments. Chooses all moments if there are few. Otherwise half of
/// the choices are just before a fence, because all stores since the last fence are then visible but not
/// durable.
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
    /// Explores the process that opens the volume `left`, which the processes of `links` have left.
    fn explore(
        &mut self,
        links: Vec<ProcessEnd>,
        left: KilledVolume,
        processes: u32,
    ) -> Result<(), CrashFailure> {
        if !(self.should_continue)() {
            return Ok(());
        }
        let wrong = |after: usize, picks: Vec<usize>, what: String| CrashFailure {
            links: links.clone(),
            ..CrashFailure { after, picks, ..CrashFailure::before(what) }
        };
        let process = caught(|| self.process(&links, left)).unwrap_or_else(Err);
        let process = process.map_err(|what| wrong(0, Vec::new(), what))?;
        let further = |link: ProcessEnd| links.iter().cloned().chain([link]).collect::<Vec<_>>();
        let mut failed = Vec::new();
        let mut points = process.points(self.recorded)?;
        while let Some(point) = points.next() {
            let expected = process.expected(self.recorded, &point);
            let after = point.after - process.first;
            let mut images = Images::new(self.kills.limits, point.after);
            while let Some(picks) = images.next_picks() {
                let examined = examine(points.base(), &point, &picks, &expected);
                let (choices, _) = examined.map_err(|Wrong { what, picks }| wrong(after, picks, what))?;
                images.add_choices(&choices);
                self.images += 1;
                let picks: Vec<usize> = choices.iter().map(|choice| choice.taken).collect();
                failed.push((after, picks));
            }
            if !(self.should_continue)() {
                return Ok(());
            }
        }
        if processes <= 1 {
            return Ok(());
        }
        let (events, seed) = (&process.events[process.first..], links.len() as u64);
        for after in moments(events, self.kills.moments, seed) {
            let killed = process.killed(self.recorded, after)?;
            self.explore(further(ProcessEnd::Kill { after }), killed, processes - 1)?;
        }
        for number in 0..self.kills.limits.recoveries.min(failed.len() as u64) {
            let (after, picks) = &failed[bytes::word(seed, number) as usize % failed.len()];
            let left = process.failed(self.recorded, *after, picks);
            let left = left.map_err(|error| wrong(*after, picks.clone(), error.to_string()))?;
            let link = ProcessEnd::Power { after: *after, picks: picks.clone() };
            self.explore(further(link), left, processes - 1)?;
        }
        Ok(())
    }

    /// Runs the next process of a chain, after the processes of `links`: opens the volume that the process
    /// before it left, and continues the script.
    fn process(&self, links: &[ProcessEnd], left: KilledVolume) -> Result<Process, String> {
        let run = &self.recorded.run;
        let recorder = Recorder::of(run.plan.clone());
        let traced = Traced::holding(run.rule, &left.visible(), recorder.clone());
        let is_service = matches!(links.first(), Some(ProcessEnd::Kill { after }) if after % 2 == 1);
        let open = if is_service { Scm::open_shared_on } else { Scm::open_on };
        let engine = traced.and_then(|traced| open(traced.split().0)).map(Arc::new);
        let engine = engine.map_err(|error| format!("open after a kill: {error}"))?;
        recorder.mark(1);
        let first = left.pending.len();
        let (events, states) = (left.pending.clone(), vec![left.states.clone()]);
        let mut process = Process { left, events, first, states, known: Vec::new() };
        process.events.push(Event::Mark(0));
        process.events.extend(recorder.take());
        if is_service {
            process.know(&engine)?;
        }

        let found = try_tree(&*engine, TreeParts::ALL).map_err(|error| error.to_string())?;
        let States { calls, early } = process.states[0].clone();
        if let Some(position) = calls.clone().rev().find(|&calls| run.states[calls] == found) {
            let durable = if run.rule == CrashRule::Lines { position } else { *calls.start() };
            process.states.push(States { calls: durable..=position, early: None });
            self.go_on(&engine, &recorder, &mut process)?;
        } else if early.is_some_and(|call| run.early[call].as_ref() == Some(&found)) {
            process.states.push(States { calls: NONE, early });
        } else {
            let states = self.recorded.trees(&process.states[0]);
            let differs: Vec<String> = states.filter_map(|state| difference(&found, state)).collect();
            return Err(format!(
                "after a kill the volume (first) is not as it should be (second): {}",
                differs.join("\n  or: ")
            ));
        }
        sound(&engine)?;
        Ok(process)
    }

    /// Makes the next calls of the script.
    fn go_on(&self, engine: &Arc<Scm>, recorder: &Recorder, process: &mut Process) -> Result<(), String> {
        let run = &self.recorded.run;
        let files = files_of(Arc::clone(engine));
        let last = process.states.last().expect("the states after the open").clone();
        let (mut durable, mut position) = (*last.calls.start(), *last.calls.end());
        for line in self.source.script.lines().iter().skip(position).take(CALLS) {
            set_clock(self.source.start.time() + line.number as i64);
            let given = errno(&perform(&files, &line.call));
            let wanted = self.source.results[position];
            if given != wanted {
                drop(recorder.take());
                // A full volume is not an error: the free space depends on the storage that earlier processes
                // allocated.
                if [given, wanted].contains(&Some(Errno::NOSPC)) {
                    return Ok(());
                }
                return Err(format!("after a kill `{}` gives {given:?}, should give {wanted:?}", line.call));
            }
            pass_grace_periods();
            // A power failure during the call leaves the call whole or undone, or leaves the early state of a
            // write.
            let early = run.early[position].as_ref().map(|_| position);
            *process.states.last_mut().expect("the states after the open") =
                States { calls: durable..=position + 1, early };
            position += 1;
            if run.rule == CrashRule::Lines || syncs(&line.call) && given.is_none() {
                durable = position;
            }
            recorder.mark(process.states.len() as u64);
            process.events.extend(recorder.take());
            process.states.push(States { calls: durable..=position, early: None });
            if !process.known.is_empty() {
                process.know(engine)?;
            }
        }
        Ok(())
    }
}

impl Process {
    /// Notes the numbers that clients know after the present events. Fails if clients knew the number of this
    /// owner, or one of its generations, from an earlier service.
    fn know(&mut self, engine: &Scm) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let (owner, generation) =
            (engine.volume().owner_number().map_err(text)?, engine.volume().next_generation().map_err(text)?);
        let known = self.left.known;
        if owner <= known.owner || generation <= known.generation {
            return Err(format!(
                "owner {owner} of a served volume comes after {}, and its generation {generation} after {}",
                known.owner, known.generation
            ));
        }
        self.known.push((self.events.len(), KnownNumbers { owner, generation }));
        Ok(())
    }

    fn points(&self, recorded: &Recorded) -> Result<CrashPoints<'_>, CrashFailure> {
        let points = CrashPoints::by(recorded.run.rule, &self.left.durable, &self.events);
        let mut points = points.map_err(|error| CrashFailure::before(error.to_string()))?;
        points.skip_to(self.first);
        Ok(points)
    }

    /// Returns the states that a power failure may leave after `after` events of this process.
    fn states(&self, after: usize) -> &States {
        let marks = self.events[..(self.first + after).min(self.events.len())].iter().rev();
        let mark = marks.filter_map(|event| if let Event::Mark(mark) = event { Some(*mark) } else { None });
        &self.states[mark.max().unwrap_or(0) as usize]
    }

    fn expected<'a>(&'a self, recorded: &'a Recorded, point: &CrashPoint) -> Expected<'a> {
        let states = recorded.trees(self.states(point.after - self.first)).collect();
        Expected { states, is_closed: false, plan: &recorded.run.plan }
    }

    /// Returns the volume after a kill that follows the first `after` events of this process.
    fn killed(&self, recorded: &Recorded, after: usize) -> Result<KilledVolume, CrashFailure> {
        let mut points = self.points(recorded)?;
        points.skip_to(self.first + after);
        let states = self.states(after).clone();
        let known = self.known.iter().rev().find(|(events, _)| *events <= self.first + after);
        let known = known.map_or(self.left.known, |&(_, known)| known);
        Ok(KilledVolume { durable: points.base().bytes(), pending: points.killed(), states, known })
    }

    /// Returns the volume after a power failure that follows the first `after` events of this process.
    fn failed(&self, recorded: &Recorded, after: usize, picks: &[usize]) -> Result<KilledVolume, NoImage> {
        let mut points = self.points(recorded).map_err(|_| NoImage::Point { after })?;
        let point = point_after(&mut points, self.first + after)?;
        let examined = examine(points.base(), &point, picks, &self.expected(recorded, &point));
        let (choices, _) = examined.map_err(|_| NoImage::Point { after })?;
        let durable = point.decided(points.base(), &choices);
        let (pending, states) = (Vec::new(), self.states(after).clone());
        Ok(KilledVolume { durable, pending, states, known: KnownNumbers::default() })
    }
}
