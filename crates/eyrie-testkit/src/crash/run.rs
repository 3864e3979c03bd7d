//! Records the run of a case: the events of the medium, and the state of the model after each act.

use std::fmt;

use eyrie_engine::scm::Scm;
use eyrie_engine::{Applied, AttributeChange, Engine, Error, Kind, Model, Op, Result, Time};
use eyrie_faults::{CrashRule, Recorder, Site, traced_from};
use eyrie_medium::epoch;

use super::path_op::apply;
use super::{CaseVolume, PathOp};
use eyrie_sim::compare::{Tree, difference, tree};
use eyrie_sim::explore::TracedRun;

/// An act of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaseAct {
    /// An Op.
    Op(PathOp),
    /// Reserves ids that no Op uses.
    Reserve {
        /// Number of ids.
        count: usize,
        /// True if another thread reserves them.
        elsewhere: bool,
    },
    /// Allocates an extent of this number of bytes in another thread, which leaks the extent.
    AllocateElsewhere(u64),
    /// Takes a generation in another thread, which does not use the generation.
    GenerationElsewhere,
    /// Closes the volume. No act may follow.
    Close,
}

/// The moment at which a case opens its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// The volume is opened before the explored crashes begin.
    Before,
    /// The explored crashes include the open.
    Traced,
    /// The explored crashes include the open, which runs in another thread than the acts.
    Elsewhere,
}

/// A volume and the acts on it.
#[derive(Clone)]
pub struct Case {
    /// The volume.
    pub volume: CaseVolume,
    /// The moment of the open.
    pub opening: Opening,
    /// The acts.
    pub acts: Vec<CaseAct>,
}

impl Case {
    /// Returns a case that applies Ops, one after the other.
    pub fn ops(volume: &CaseVolume, changes: &[PathOp]) -> Case {
        let acts = changes.iter().cloned().map(CaseAct::Op).collect();
        Case { volume: volume.clone(), opening: Opening::Before, acts }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {:?}, opened {:?}, {:?}", self.volume.name, self.opening, self.acts)
    }
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
    /// Runs the case with the point `dropped` left out.
    ///
    /// # Errors
    /// Fails if the volume does not open, if the engine and the model differ, if an Op needs an object that
    /// the volume has neither at first nor at the turn of the Op, or if an act follows a close.
    pub fn run(&self, dropped: Option<Site>) -> std::result::Result<TracedRun, String> {
        let recorder = Recorder::without(dropped);
        let medium = traced_from(&self.volume.image, recorder.clone()).expect("memory");
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
            let Some(open) = &engine else { return Err("no act may follow a close".into()) };
            let time = Time::new(1000 + index as i64, 7);
            let mut times_only = None;
            match act {
                CaseAct::Op(change) => times_only = self.perform(open, &model, change, time)?,
                CaseAct::Reserve { count, elsewhere: false } => reserve(open, *count),
                CaseAct::Reserve { count, elsewhere: true } => elsewhere(|| reserve(open, *count)),
                CaseAct::AllocateElsewhere(bytes) => {
                    elsewhere(|| open.volume().space().allocate(*bytes).map(drop)).expect("room");
                }
                CaseAct::GenerationElsewhere => drop(elsewhere(|| open.volume().next_generation())),
                CaseAct::Close => engine.take().map_or(Ok(()), Scm::close).expect("sound"),
            }
            recorder.mark(index as u64 + 1);
            early.push(times_only);
            states.push(tree(&model));
            // The advances end the grace periods, so that the next Op can reuse the storage that this Op
            // freed.
            for _ in 0..3 {
                epoch::advance();
            }
        }
        if let Some(engine) = &engine
            && let Some(what) = difference(&tree(engine), states.last().expect("at least the first"))
        {
            return Err(format!("the engine (first) is not as it should be (second):\n{what}"));
        }
        let (events, plan) = (recorder.take(), recorder.plan().clone());
        let durable = (0..states.len()).collect();
        Ok(TracedRun {
            rule: CrashRule::Lines,
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

    /// Applies one Op. A crash may leave the state before the Op, the state after the Op, or the returned
    /// state, in which only the times of a written file are new.
    fn perform(
        &self,
        engine: &Scm,
        model: &Model,
        change: &PathOp,
        time: Time,
    ) -> std::result::Result<Option<Tree>, String> {
        let reserve = |error: Error| format!("reserve: {error}");
        let Some(resolved) = change.resolve(engine, time).map_err(reserve)? else {
            // An earlier Op of the case may have removed the object. Otherwise a path is misspelt.
            let at_first = change.resolve(&self.volume.model.fork(), time).map_err(reserve)?;
            return at_first.map(|_| None).ok_or_else(|| format!("{change:?} needs a missing object"));
        };
        let early = resolved.written.map(|id| {
            let model = model.fork();
            let change = AttributeChange { modified: Some(time), ..AttributeChange::default() };
            // An error is ignored: if the file cannot be written, its times do not change either.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::path_op::{file, unlink, write};

    #[test]
    fn op_on_a_misspelt_path_is_an_error() {
        let volume = CaseVolume::after("one file", false, &[file("a", 100)]);
        let run = |changes: &[PathOp]| Case::ops(&volume, changes).run(None).map(drop);
        assert!(run(&[write("b", 0, 8)]).is_err());
        // The first Op removes the file of the second one.
        assert_eq!(run(&[unlink("a"), write("a", 0, 8)]), Ok(()));
    }
}
