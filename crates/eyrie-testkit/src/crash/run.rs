//! One run on a traced medium: what was stored and fenced, and what the model held meanwhile.

use std::fmt;

use eyrie_engine::scm::Scm;
use eyrie_engine::{Applied, AttributeChange, Engine, Error, Kind, Model, Op, Result, Time};
use eyrie_medium::{Medium, Recorder, Rule, Site, epoch};

use super::change::Resolved;
use super::{Change, Volume};
use eyrie_sim::compare::{Tree, difference, tree};
use eyrie_sim::explore::Run;

/// Something that a run does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// An Op.
    Op(Change),
    /// Reserves so many ids that nobody uses; in another thread, if `elsewhere`.
    Reserve {
        /// How many.
        count: usize,
        /// Whether another thread does it.
        elsewhere: bool,
    },
    /// Takes an extent of so many bytes that nobody uses, in another thread.
    AllocateElsewhere(u64),
    /// Takes a generation that nobody uses, in another thread.
    GenerationElsewhere,
    /// Closes the volume; nothing follows.
    Close,
}

/// How a case opens its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Before power may fail.
    Before,
    /// While it may.
    Traced,
    /// While it may, in another thread than the rest.
    Elsewhere,
}

/// A volume and what is done to it.
#[derive(Clone)]
pub struct Case {
    /// What it starts from.
    pub volume: Volume,
    /// How it is opened.
    pub opening: Opening,
    /// What is done.
    pub acts: Vec<Act>,
}

impl Case {
    /// The Ops `changes`, one after the other.
    pub fn ops(volume: &Volume, changes: &[Change]) -> Case {
        let acts = changes.iter().cloned().map(Act::Op).collect();
        Case { volume: volume.clone(), opening: Opening::Before, acts }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {:?}, opened {:?}, {:?}", self.volume.name, self.opening, self.acts)
    }
}

/// Applies an Op to both, and gives back ids that it did not use.
pub(super) fn apply(engine: &Scm, model: &Model, resolved: &Resolved) -> (Result<Applied>, Result<Applied>) {
    let decoded = resolved.record.decode();
    let actual = engine.apply(&decoded.op());
    let expected = model.apply(&decoded.op());
    resolved.reserved.iter().for_each(|reserved| reserved.settle(engine));
    (actual, expected)
}

fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join()).expect("no panic")
}

fn reserve(engine: &Scm, count: usize) {
    for _ in 0..count {
        engine.reserve(Kind::File).expect("room for headers");
    }
}

impl Case {
    /// Runs it, without what `dropped` does.
    ///
    /// # Errors
    /// When the engine does not do what the model does.
    pub fn run(&self, dropped: Option<Site>) -> std::result::Result<Run, String> {
        let recorder = Recorder::without(dropped);
        let medium = Medium::traced_from(&self.volume.image, recorder.clone()).expect("memory");
        let opened = match self.opening {
            Opening::Before | Opening::Traced => Scm::open_on(medium),
            Opening::Elsewhere => elsewhere(|| Scm::open_on(medium)),
        };
        let engine = opened.map_err(|error| format!("open: {error}"))?;
        let base = if self.opening == Opening::Before {
            drop(recorder.take());
            engine.volume().medium().snapshot()
        } else {
            self.volume.image.to_vec()
        };
        let model = self.volume.model.fork();
        let mut states = vec![tree(&model)];
        let mut early = Vec::new();
        let mut engine = Some(engine);
        for (index, act) in self.acts.iter().enumerate() {
            let Some(open) = &engine else { return Err("nothing follows a close".into()) };
            let time = Time::new(1000 + index as i64, 7);
            let mut times_only = None;
            match act {
                Act::Op(change) => times_only = perform(open, &model, change, time)?,
                Act::Reserve { count, elsewhere: false } => reserve(open, *count),
                Act::Reserve { count, elsewhere: true } => elsewhere(|| reserve(open, *count)),
                Act::AllocateElsewhere(bytes) => {
                    elsewhere(|| open.volume().space().allocate(*bytes).map(drop)).expect("room");
                }
                Act::GenerationElsewhere => drop(elsewhere(|| open.volume().generation())),
                Act::Close => engine.take().map_or(Ok(()), Scm::close).expect("sound"),
            }
            recorder.mark(index as u64 + 1);
            early.push(times_only);
            states.push(tree(&model));
            // Grace periods pass, so that the next Op reuses what this one freed.
            for _ in 0..3 {
                epoch::advance();
            }
        }
        if let Some(engine) = &engine
            && let Some(what) = difference(&tree(engine), states.last().expect("at least the first"))
        {
            return Err(format!("the engine has, and should have:\n{what}"));
        }
        let (events, plan) = (recorder.take(), recorder.plan().clone());
        let durable = (0..states.len()).collect();
        Ok(Run {
            rule: Rule::Lines,
            base,
            events,
            states,
            durable,
            early,
            orders: None,
            is_closed: engine.is_none(),
            plan,
        })
    }
}

/// Performs one Op; what may be seen of it early.
fn perform(
    engine: &Scm,
    model: &Model,
    change: &Change,
    time: Time,
) -> std::result::Result<Option<Tree>, String> {
    let resolved = change.resolve(engine, time).map_err(|error| format!("reserve: {error}"))?;
    let Some(resolved) = resolved else { return Ok(None) };
    let early = resolved.written.map(|id| {
        let model = model.fork();
        let change = AttributeChange { modified: Some(time), ..AttributeChange::default() };
        // What cannot be written has no times to be seen either.
        let _ = model.apply(&Op::SetAttributes { id, change, time });
        tree(&model)
    });
    let (actual, expected) = apply(engine, model, &resolved);
    let errno = |result: &Result<Applied>| result.as_ref().err().map(Error::errno);
    if errno(&actual) != errno(&expected) {
        return Err(format!("{change:?} gave {actual:?}, should give {expected:?}"));
    }
    Ok(early)
}
