//! Every crash of a case.

use std::fmt;

use eyrie_medium::Site;
use eyrie_sim::explore::{self, Counts, Limits};

use super::Case;

/// A crash that left what it must not leave. Everything that [`replay`] needs is in its one line.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The case.
    pub case: String,
    /// The point that was left out on purpose.
    pub dropped: Option<Site>,
    /// The crash.
    pub crash: explore::Failure,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(site) = self.dropped {
            write!(f, "without {site}: ")?;
        }
        write!(f, "{}: {}", self.case, self.crash)
    }
}

impl std::error::Error for Failure {}

impl Case {
    /// Crashes everywhere, and opens every image.
    ///
    /// # Errors
    /// The first image that is not as it must be.
    pub fn explore(&self, dropped: Option<Site>, limits: Limits) -> Result<Counts, Box<Failure>> {
        let failure = |crash| Box::new(Failure { case: self.to_string(), dropped, crash });
        let broken = |what| failure(explore::Failure::before(what));
        let run = self.run(dropped).map_err(broken)?;
        run.explore(limits, &mut |_| true).map_err(failure)
    }
}

/// Opens one image of one crash again, the one that a [`Failure`] tells; what is wrong with it, if something is.
///
/// # Errors
/// When the case has no such image, or does not run.
pub fn replay(
    case: &Case,
    dropped: Option<Site>,
    after: usize,
    picks: &[usize],
) -> Result<Option<String>, String> {
    case.run(dropped)?.replay(after, picks, None).map_err(|error| error.to_string())
}
