//! Explores the crashes of a case.

use std::fmt;

use eyrie_faults::Site;
use eyrie_sim::explore::{self, Counts, Limits};

use super::Case;

/// A crash that left a wrong volume, or a run that failed without a crash. The message has all numbers that
/// [`replay`] needs.
#[derive(Clone, Debug)]
pub struct CaseFailure {
    /// The case.
    pub case: String,
    /// The point that was left out on purpose. `None` if the run had all points.
    pub dropped: Option<Site>,
    /// The crash.
    pub crash: explore::CrashFailure,
}

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(site) = self.dropped {
            write!(f, "without {site}: ")?;
        }
        write!(f, "{}: {}", self.case, self.crash)
    }
}

impl std::error::Error for CaseFailure {}

impl Case {
    /// Simulates a crash at each crash point of the case (see [`CrashPoints`](eyrie_faults::CrashPoints)),
    /// and opens the images within `limits`.
    ///
    /// # Errors
    /// The first image with a wrong volume, or the failure of a run without a crash.
    pub fn explore(&self, dropped: Option<Site>, limits: Limits) -> Result<Counts, Box<CaseFailure>> {
        let failure = |crash| Box::new(CaseFailure { case: self.to_string(), dropped, crash });
        let broken = |what| failure(explore::CrashFailure::before(what));
        let run = self.run(dropped).map_err(broken)?;
        run.explore(limits, &mut |_| true).map_err(failure)
    }
}

/// Opens the image of a [`CaseFailure`] again. Returns a description of the error, or `None` if the volume is
/// right.
///
/// # Errors
/// Fails if the case has no such image, or does not run.
pub fn replay(
    case: &Case,
    dropped: Option<Site>,
    after: usize,
    picks: &[usize],
) -> Result<Option<String>, String> {
    case.run(dropped)?.replay(after, picks, None).map_err(|error| error.to_string())
}
