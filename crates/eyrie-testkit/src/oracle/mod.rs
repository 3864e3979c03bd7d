//! An engine beside the model: the same Ops for both, and a comparison after every step.
//!
//! Compared after every step: the result (values, or errno), the names and objects that the Op named, their attributes,
//! and the bytes around those written; now and then, and at the end, the whole volume. An engine that is full
//! (`NoSpace`) may refuse an Op, which then must not have changed anything. Open objects are kept open in both.

mod minimise;
mod session;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eyrie_engine::Engine;

use crate::ops::{Generator, Mix, Step};
use eyrie_sim::compare::Include;
use session::Session;
pub(crate) use session::outcome;

/// How a run is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Which steps are drawn.
    pub mix: Mix,
    /// What the comparisons of whole volumes tell. (Those of single objects tell everything.)
    pub include: Include,
    /// Steps between comparisons of the whole volume (a count).
    pub tree_every: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { mix: Mix::default(), include: Include::ALL, tree_every: 64 }
    }
}

/// An engine and the model disagreed, or the engine panicked.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What replays it.
    pub seed: u64,
    /// What was found after the last step.
    pub what: String,
    /// The steps up to there; fewer after [`check`] has left out what is not needed.
    pub steps: Vec<Step>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.steps.last().map_or(0, |step| step.number);
        writeln!(f, "seed {:#x}, step {last}: {}", self.seed, self.what)?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Runs `steps` steps of `seed` on `engine`, which holds a new volume, and on the model.
///
/// # Panics
/// When they differ, with the seed, the step, and the steps that touched the same objects.
pub fn run_against_model(engine: &dyn Engine, seed: u64, steps: u32) {
    if let Err(mut failure) = run(engine, seed, steps, Options::default()) {
        minimise::keep_related(&mut failure);
        panic!("{failure}");
    }
}

/// Runs `steps` steps of `seed` on `engine`, which holds a new volume, and on the model.
///
/// # Errors
/// When they differ.
pub fn run(engine: &dyn Engine, seed: u64, steps: u32, options: Options) -> Result<(), Failure> {
    let mut generator = Generator::new(seed, options.mix);
    drive(engine, seed, options, |session| {
        (session.count() < steps).then(|| generator.step(session.ids(), session.model()))
    })
}

/// Runs exactly `steps` on `engine`, which holds a new volume, and on the model. Steps that name an object that was
/// not made are left out.
///
/// # Errors
/// When they differ.
pub fn replay(engine: &dyn Engine, seed: u64, steps: &[Step], options: Options) -> Result<(), Failure> {
    let mut rest = steps.iter();
    drive(engine, seed, options, |_| rest.next().cloned())
}

/// As [`run_against_model`], with as many new volumes as it takes to find few steps that fail.
///
/// # Panics
/// When engine and model differ, with the seed and those steps.
pub fn check<E: Engine>(make: impl FnMut() -> E, seed: u64, steps: u32) {
    check_with(make, seed, steps, Options::default());
}

/// As [`check`], with options.
///
/// # Panics
/// As [`check`].
pub fn check_with<E: Engine>(mut make: impl FnMut() -> E, seed: u64, steps: u32, options: Options) {
    if let Err(failure) = run(&make(), seed, steps, options) {
        let failure = minimise::minimise(failure, |steps| replay(&make(), seed, steps, options).err());
        panic!("{failure}");
    }
}

fn drive(
    engine: &dyn Engine,
    seed: u64,
    options: Options,
    mut next: impl FnMut(&Session<'_>) -> Option<Step>,
) -> Result<(), Failure> {
    let mut done = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut session = Session::new(engine, options)?;
        while let Some(step) = next(&session) {
            done.push(step.clone());
            session.step(&step)?;
        }
        session.finish()
    }));
    let what = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(what)) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or("of an unknown kind"))
        }
    };
    Err(Failure { seed, what, steps: done })
}
