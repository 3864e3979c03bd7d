//! The crash explorer: power fails at every fence of a run, and every image that recovery can tell apart is opened.
//!
//! A [`Run`] is what an engine did to a traced medium, beside what the model held meanwhile. [`Run::explore`] opens the
//! images that a crash can leave, by the rule of [`eyrie_medium::CrashPoints`]. Each must open, be sound
//! ([`check`](eyrie_engine::check)), hold what the model held before or after the call in flight, after every call that
//! had returned, and be usable. [`record`] makes the run of a script; [`shrink`] makes a script that fails shorter.
//!
//! Two things may be seen of a call in flight without the rest of it: the modification time of a file whose bytes it was
//! about to change, and its change time with it.
//!
//! Lines are decided when recovery first reads them, so nothing that nobody reads multiplies images (see
//! [`CrashImage`](eyrie_medium::CrashImage)). The recovery of some images is crashed, too. [`Recorded::explore_kills`] kills processes,
//! one after the other, before power fails.

mod beside;
mod damage;
pub mod faults;
mod ground;
mod killed;
#[cfg(feature = "mutants")]
pub mod mutants;
mod picks;
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

pub use beside::{Beside, Orders, record_beside};
pub use eyrie_medium::Site;
pub use ground::Ground;
pub use killed::{Kills, Link};
pub use record::{Options, RecordError, Recorded, Start, record};
pub use recovery::Again;
pub use report::{CallReport, Report, SiteReport};
pub use run::{Counts, Failure, Limits, NoImage, Run, Seen};
pub use shrink::shrink;

pub use eyrie_medium::Rule;

#[cfg(test)]
mod tests;
