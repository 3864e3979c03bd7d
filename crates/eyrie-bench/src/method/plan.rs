//! The rows of a workload, and the work of a thread.

use std::time::Duration;

use eyrie::Posix;

use super::coverage::Targets;
use super::watch::Stopwatch;
use crate::error::Result;

/// A row of a workload.
#[derive(Clone, Debug)]
pub struct RowPlan {
    /// The name that tables show.
    pub name: String,
    /// The blocks, files or keys from which the row chooses.
    pub targets: Targets,
    /// True for a row that makes the files or keys that later rows need. A group in which all rows have this
    /// flag has one round, which counts. Every other group begins with a round that does not count, and may
    /// end with a round for the latency. If only some rows of a group have the flag, it has no effect.
    pub once: bool,
    /// Maximum number of counted rounds. The rows of a group have the same rounds, so the group keeps to the
    /// smallest maximum of its rows.
    pub most: u32,
}

impl RowPlan {
    /// Makes a row.
    pub fn new(name: impl Into<String>, targets: Targets) -> RowPlan {
        RowPlan { name: name.into(), targets, once: false, most: u32::MAX }
    }

    /// Makes a row with the flag [`RowPlan::once`].
    pub fn once(name: impl Into<String>, targets: Targets) -> RowPlan {
        RowPlan { once: true, ..RowPlan::new(name, targets) }
    }

    /// Limits the number of counted rounds of the row's group, for a row whose rounds take long.
    #[must_use]
    pub fn at_most(self, most: u32) -> RowPlan {
        RowPlan { most, ..self }
    }
}

/// The rows of a workload, in groups. The rounds of the rows of one group alternate, because one row makes
/// the files that the next row needs.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The groups.
    pub groups: Vec<Vec<RowPlan>>,
}

impl Plan {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }
}

/// The number of counted rounds of each row.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Minimum number. A group may have fewer (see [`RowPlan::most`]).
    pub least: u32,
    /// Maximum number.
    pub most: u32,
    /// Time for all rounds. Each group of rows gets an equal part. When this part is over, the group ends as
    /// soon as it has the minimum number of rounds.
    pub budget: Duration,
    /// True if a last round measures the latency of single calls.
    pub latency: bool,
}

impl Rounds {
    /// Returns a fixed number of rounds, with a round for the latency.
    pub fn exactly(count: u32) -> Rounds {
        Rounds { least: count, most: count, budget: Duration::MAX, latency: true }
    }
}

/// The part of the work that one thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadPart {
    /// The number of the thread.
    pub thread: u64,
    /// The number of threads.
    pub threads: u64,
    /// True if all threads work in one directory or store. In `micro`, they also share the large file.
    pub shared: bool,
}

impl ThreadPart {
    /// The part of the only thread of a run, which does all of the work.
    pub const WHOLE: ThreadPart = ThreadPart { thread: 0, threads: 1, shared: false };

    /// Returns this thread's part of the amount `all`, such as a number of files, which all threads divide.
    /// The part is at least 1.
    pub fn share(self, all: u64) -> u64 {
        (all / self.threads).max(1)
    }

    /// Returns the path of the directory of this thread, below the root of its side.
    pub fn directory(self) -> String {
        if self.shared { "/bench".to_owned() } else { format!("/bench-{}", self.thread) }
    }
}

/// The work of one thread of a workload on one side.
pub trait Worker: Send {
    /// Makes one round of the row with this number. Returns false if the side lacks the operation.
    ///
    /// # Errors
    /// As the calls. Fails if a result is wrong.
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool>;

    /// Compares everything that the thread has changed with the right contents.
    ///
    /// # Errors
    /// Fails if something is wrong.
    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()>;
}

/// A workload on files.
pub trait FileWork {
    /// Makes the worker of one thread on the file system `fs`. All of its files are in `directory`, which the
    /// worker makes.
    ///
    /// # Errors
    /// As the calls that make its directories.
    fn worker<P>(&self, fs: P, directory: String, part: ThreadPart) -> Result<Box<dyn Worker>>
    where
        P: Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync;
}
