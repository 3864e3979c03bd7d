//! Failures: crashes that left a wrong volume. Each has the numbers with which the crash can be replayed.

use std::fmt;

/// The way in which one of several processes ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProcessEnd {
    /// The process was killed.
    Kill {
        /// Number of events of the process before the kill.
        after: usize,
    },
    /// The power failed.
    Power {
        /// Number of events of the process before the crash.
        after: usize,
        /// The picks of the image that this power failure left (see [`Images`](super::Images)).
        picks: Vec<usize>,
    },
}

/// A crash inside a recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryCrash {
    /// Number of events of the recovery before the crash.
    pub after: usize,
    /// The picks of the image that the crash left (see [`Images`](super::Images)).
    pub picks: Vec<usize>,
}

/// A crash that left a wrong volume. [`TracedRun::replay`](super::TracedRun::replay) opens its image again if
/// `links` is empty, and `Recorded::replay_killed` otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CrashFailure {
    /// The ends of the earlier processes, if the run had several.
    pub links: Vec<ProcessEnd>,
    /// Number of events before the crash. If `links` is not empty, only events of the last process count.
    pub after: usize,
    /// The picks of the image that the crash left (see [`Images`](super::Images)).
    pub picks: Vec<usize>,
    /// The crash in the recovery of this image, if only that second crash left a wrong volume.
    pub recovery_crash: Option<RecoveryCrash>,
    /// A description of the error.
    pub what: String,
}

impl CrashFailure {
    /// Makes a failure that occurred before any crash.
    pub fn before(what: String) -> CrashFailure {
        CrashFailure { links: Vec::new(), after: 0, picks: Vec::new(), recovery_crash: None, what }
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
        if let Some(RecoveryCrash { after, picks }) = &self.recovery_crash {
            write!(f, ", and in its recovery after {after} events, picks {picks:?}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for CrashFailure {}
