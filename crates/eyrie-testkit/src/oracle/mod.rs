//! The oracle: it runs an engine beside the model, and compares the two after every step.
//!
//! After each Op, the oracle compares the results (values, or errno), and looks up each name in the Op. It
//! compares the attributes and the extended attributes of each object that the Op names or that a look-up
//! finds. For an object with data, it also compares the first bytes, and the bytes in and around a changed
//! range. It compares the whole volume at the start, after every [`OracleOptions::tree_every`] steps, and at
//! the end. A full engine may refuse an Op with `NoSpace`, and the Op must then change nothing. A step that
//! opens an object opens it in the engine and in the model.
//!
//! The oracle compares the accounts of quotas before and after each Op, except their bytes. The model does
//! not know the bytes that an Op takes. If the engine refuses an Op because of them, the oracle applies the
//! Op without limits. The bytes of an account must then be above a limit, except after a batch or a rename,
//! which may have removed objects. After an Op that the engine accepts, no account may have grown above a
//! limit.

mod limits;
mod minimise;
mod session;
#[cfg(test)]
mod tests;

use std::fmt;

use eyrie_engine::Engine;

use crate::ops::{OpGenerator, OpMix, OpStep};
use eyrie_sim::compare::TreeParts;
use eyrie_sim::explore::caught;
use session::OracleSession;
pub(crate) use session::outcome;

/// Options of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OracleOptions {
    /// The weights of the kinds of steps.
    pub mix: OpMix,
    /// The parts of the objects that are compared when whole volumes are compared. Comparisons of single
    /// objects compare all parts.
    pub include: TreeParts,
    /// Number of steps between comparisons of the whole volume.
    pub tree_every: u32,
}

impl Default for OracleOptions {
    fn default() -> OracleOptions {
        OracleOptions { mix: OpMix::default(), include: TreeParts::ALL, tree_every: 64 }
    }
}

/// The report of a run in which the engine and the model differ, or the engine panicked.
#[derive(Clone, Debug)]
pub struct OracleFailure {
    /// The seed of the steps.
    pub seed: u64,
    /// The difference after the last step, or the message of the panic.
    pub what: String,
    /// The steps up to the failure, without the steps that [`check`] or [`run_against_model`] left out.
    pub steps: Vec<OpStep>,
}

impl fmt::Display for OracleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.steps.last().map_or(0, |step| step.number);
        writeln!(f, "seed {:#x}, step {last}: {}", self.seed, self.what)?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        Ok(())
    }
}

impl std::error::Error for OracleFailure {}

/// Runs `steps` steps of `seed` on `engine` and on the model. Callers pass an engine with a new volume.
///
/// # Panics
/// Panics if engine and model differ, or if the engine panics. The message has the seed, the last step, and
/// the earlier steps that created or touched an object of the last step.
pub fn run_against_model(engine: &dyn Engine, seed: u64, steps: u32) {
    if let Err(mut failure) = run(engine, seed, steps, OracleOptions::default()) {
        minimise::keep_related(&mut failure);
        panic!("{failure}");
    }
}

/// Runs `steps` steps of `seed` on `engine` and on the model. Callers pass an engine with a new volume.
///
/// # Errors
/// Fails if the engine and the model differ, or if the engine panics.
pub fn run(engine: &dyn Engine, seed: u64, steps: u32, options: OracleOptions) -> Result<(), OracleFailure> {
    let mut generator = OpGenerator::new(seed, options.mix);
    drive(engine, seed, options, |session| {
        (session.count() < steps).then(|| generator.step(session.ids(), session.model()))
    })
}

/// Runs `steps`, and no random steps, on `engine` and on the model. Callers pass an engine with a new volume.
/// A step is skipped if an object that it names does not exist. `seed` only labels a failure.
///
/// # Errors
/// Fails if the engine and the model differ, or if the engine panics.
pub fn replay(
    engine: &dyn Engine,
    seed: u64,
    steps: &[OpStep],
    options: OracleOptions,
) -> Result<(), OracleFailure> {
    let mut rest = steps.iter();
    drive(engine, seed, options, |_| rest.next().cloned())
}

/// Works like [`run_against_model`]. After a failure, replays fewer and fewer of the steps on new volumes, to
/// find a short list that still fails.
///
/// # Panics
/// Panics if engine and model differ, or if the engine panics. The message has the seed and the short list of
/// steps.
pub fn check<E: Engine>(make: impl FnMut() -> E, seed: u64, steps: u32) {
    check_with(make, seed, steps, OracleOptions::default());
}

/// Works like [`check`], with options.
///
/// # Panics
/// As [`check`].
pub fn check_with<E: Engine>(mut make: impl FnMut() -> E, seed: u64, steps: u32, options: OracleOptions) {
    if let Err(failure) = run(&make(), seed, steps, options) {
        let failure = minimise::minimise(failure, |steps| replay(&make(), seed, steps, options).err());
        panic!("{failure}");
    }
}

fn drive(
    engine: &dyn Engine,
    seed: u64,
    options: OracleOptions,
    mut next: impl FnMut(&OracleSession<'_>) -> Option<OpStep>,
) -> Result<(), OracleFailure> {
    let mut done = Vec::new();
    let outcome = caught(|| {
        let mut session = OracleSession::new(engine, options)?;
        while let Some(step) = next(&session) {
            done.push(step.clone());
            session.step(&step)?;
        }
        session.finish()
    });
    let Err(what) = outcome.unwrap_or_else(Err) else { return Ok(()) };
    Err(OracleFailure { seed, what, steps: done })
}
