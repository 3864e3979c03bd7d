//! The method of a run: rounds that alternate between the sides, on pinned threads.
//!
//! A *row* is one operation of a workload. A *round* of a row makes the same operations, with the same
//! targets and bytes, on one side after the other. The first round of a row does not count, because it warms
//! caches and memory. A row with a single round is the exception: this round counts. The result of a side is
//! the median over its counted rounds. Its ratio to the first side is the median of the ratios of single
//! rounds, because both times of a round suffer from the same load of the machine. In a last round, which the
//! caller can turn off, every call is timed by itself, for the percentiles of the latency.
//!
//! Invariants:
//! - A run fails if a side returns wrong bytes, or if a row touches too few different blocks, files or keys.
//! - Only the calls are timed: bytes are prepared before, and results are compared afterwards. Numbered names
//!   are written into reused memory.

mod coverage;
mod crew;
mod figures;
mod measure;
mod plan;
mod watch;

pub use coverage::{TargetOrder, Targets};
pub use figures::{Figures, Latency, Row, digits, median};
pub use measure::{Control, Count, Counters, SideWithWorkers, measure};
pub use plan::{FileWork, Plan, Rounds, RowPlan, ThreadPart, Worker};
pub use watch::{ClientWork, Stopwatch};
