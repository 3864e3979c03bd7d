//! The crash explorer simulates a power failure at every crash point of a run. An *image* is the bytes that a
//! crash may leave. The explorer opens the images that recovery can tell apart, or a sample of them if there
//! are too many.
//!
//! A store is *pending* until it is durable: a crash may lose it. A *crash point* is a position in a run at
//! which a crash is simulated: before each fence at which stores are pending, at the end of each call, and at
//! the end of the run. (On a disk, a flush takes the place of a fence.) A [`TracedRun`] has the stores of an
//! engine to its medium, and the states of the model. [`TracedRun::explore`] enumerates the images that a
//! crash can leave, by the rule of [`eyrie_faults::CrashPoints`]. Each image must open, be sound
//! ([`check`](eyrie_engine::check)) and be usable. It must hold the effect of every call that had returned.
//! (A crash of a disk may lose the calls since the last sync.) Of the call that had not returned, the image
//! must hold the whole effect or none. [`record`] runs a script and records the run. [`shrink`] shortens a
//! script that fails.
//!
//! There is one exception: in memory, a crash in a write may leave the new modification and change times of
//! the file without the written bytes.
//!
//! An image chooses the content of a line when recovery first reads the line. Lines that recovery does not
//! read therefore do not multiply the images (see [`CrashImage`](eyrie_faults::CrashImage)). In the recovery
//! of some images a second crash is explored. [`Recorded::explore_kills`] kills several processes, one after
//! the other, before the power fails.

mod clones;
mod damage;
mod failure;
pub mod faults;
mod features;
mod images;
mod killed;
mod lost_pages;
mod medium;
#[cfg(feature = "mutants")]
pub mod mutants;
mod quotas;
mod readers;
mod record;
mod recovered;
mod recovery;
mod redo_slots;
mod report;
mod resizing;
mod rights;
mod run;
mod shrink;
mod stress_scripts;
pub mod suite;
pub mod trace;
mod two_threads;
pub mod workload;
#[cfg(feature = "mutants")]
mod write_backs;

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
pub use two_threads::{ParallelScript, record_beside};

#[cfg(test)]
mod tests;
