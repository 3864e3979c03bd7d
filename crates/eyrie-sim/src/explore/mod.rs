//! The crash explorer: power fails at every fence of a run, and every image that recovery can tell apart is
//! opened.
//!
//! A [`TracedRun`] records the stores of an engine to its medium, beside the states of the model.
//! [`TracedRun::explore`] enumerates the images that a crash can leave, by the rule of
//! [`eyrie_faults::CrashPoints`]. Each image must open, be sound ([`check`](eyrie_engine::check)) and be
//! usable. It must hold the effect of every call that had returned, and the call in flight whole or not at
//! all. [`record`] makes the run of a script; [`shrink`] shortens a script that fails.
//!
//! A crash may leave two things of a write in flight without the rest of it: the modification time and the
//! change time of its file.
//!
//! An image decides the content of a line when recovery first reads it. Lines that nobody reads therefore do
//! not multiply images (see [`CrashImage`](eyrie_faults::CrashImage)). The recovery of some images is
//! crashed, too. [`Recorded::explore_kills`] kills processes, one after the other, before power fails.

mod beside;
mod damage;
mod failure;
pub mod faults;
mod images;
mod killed;
mod medium;
#[cfg(feature = "mutants")]
pub mod mutants;
mod readers;
mod record;
mod recovered;
mod recovery;
mod report;
mod resizing;
mod run;
mod shrink;
mod slots;
pub mod suite;
mod tight;
pub mod trace;
pub mod workload;
#[cfg(feature = "mutants")]
mod written;

pub use beside::{ParallelScript, record_beside};
pub use eyrie_faults::{CrashRule, Site};
pub use failure::{CrashFailure, ProcessEnd, RecoveryCrash};
pub use images::{Counts, Images, Limits, NoImage};
pub use killed::KillLimits;
pub use medium::{RunMedium, apply_stores, fixed_options};
pub use record::{RecordError, RecordOptions, Recorded, StartVolume, record};
pub use recovered::caught;
pub use report::{CallReport, ExploreReport, SiteReport};
pub use run::{Orders, SeenImage, TracedRun};
pub use shrink::shrink;

#[cfg(test)]
mod tests;
