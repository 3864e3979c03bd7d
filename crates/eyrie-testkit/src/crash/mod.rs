//! The crash run: power fails at every write and barrier of an Op, inside closing, opening and recovery too.
//!
//! A [`Case`] starts from a small [`Volume`] and does something on a traced medium; [`Case::explore`] opens every image
//! that a crash can leave and that recovery can tell apart. Each must open, be sound ([`check`](eyrie_engine::check)),
//! hold what the model holds before or after the Op in flight, after every Op that had returned, and be usable.
//! [`cases`] are complete lists; [`plant`] leaves out one point of the engine at a time, which some case must notice; [`damage`] has
//! cases of bytes that a checksum is of.
//!
//! Two things may be seen of an Op in flight without the rest of it: the modification time of a file whose bytes it was
//! about to change, and its change time with it.

pub mod cases;
mod change;
mod creation;
pub mod damage;
mod explore;
pub mod plant;
mod ranges;
mod run;
mod set_ids;
mod volumes;

pub use change::Change;
pub use creation::explore_creation;
pub use explore::{Failure, replay};
pub use run::{Act, Case, Opening};
pub use volumes::Volume;
