//! Failures: crashes that left a wrong volume, with the numbers that replay them.

use std::fmt;

/// The end of a process in a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProcessEnd {
    /// The process was killed.
    Kill {
        /// Its events before the kill (a count).
        after: usize,
    },
    /// Power failed.
    Power {
        /// Its events before the crash (a count).
        after: usize,
        /// The chosen content of each line that was read.
        picks: Vec<usize>,
    },
}

/// A crash inside a recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryCrash {
    /// Events of the recovery before it (a count).
    pub after: usize,
    /// The chosen content of each line that was read.
    pub picks: Vec<usize>,
}

/// A crash that left a wrong volume. [`TracedRun::replay`](super::TracedRun::replay) opens its image again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CrashFailure {
    /// The ends of the earlier processes, if processes were killed.
    pub links: Vec<ProcessEnd>,
    /// Events before the crash (a count).
    pub after: usize,
    /// The chosen content of each line that was read.
    pub picks: Vec<usize>,
    /// The crash in the recovery of that image, if only that crash left a wrong volume.
    pub again: Option<RecoveryCrash>,
    /// The fact that is wrong.
    pub what: String,
}

impl CrashFailure {
    /// Returns a failure before any crash.
    pub fn before(what: String) -> CrashFailure {
        CrashFailure { links: Vec::new(), after: 0, picks: Vec::new(), again: None, what }
    }
}

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for link in &self.links {
            match link {
                ProcessEnd::Kill { after } => write!(f, "killed after {after} events, ")?,
                ProcessEnd::Power { after, picks } => {
                    write!(f, "power failed after {after} events, picks {picks:?}, ")?
                }
            }
        }
        write!(f, "crash after {} events, picks {:?}", self.after, self.picks)?;
        if let Some(RecoveryCrash { after, picks }) = &self.again {
            write!(f, ", and in its recovery after {after} events, picks {picks:?}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for CrashFailure {}
