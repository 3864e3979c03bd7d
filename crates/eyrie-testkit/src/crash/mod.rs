//! The crash run: simulates power failures at every fence of an Op and after the Op, and inside close, open
//! and recovery.
//!
//! A [`Case`] starts from a small [`CaseVolume`] and runs on a recorded medium. [`Case::explore`] opens the
//! images that a crash can leave and that recovery can distinguish, within limits. Each image must open, be
//! sound ([`check`](eyrie_engine::check)) and be usable. The volume must hold the effect of every Op that had
//! returned. It must hold the effect of the Op in flight whole or not at all. [`cases`] has lists of cases
//! that together cover all Ops. [`plant`] leaves out one point of the engine at a time, and some run must
//! notice the missing point. [`damage`] changes bytes that a checksum covers.
//!
//! One exception: after a crash during a write, the file may have the new modification time and change time
//! without the new bytes.

mod calls;
pub mod cases;
mod clones;
mod creation;
pub mod damage;
mod explore;
mod path_op;
pub mod plant;
mod ranges;
mod rights;
mod run;
mod set_ids;
mod volumes;

pub use creation::explore_creation;
pub use explore::{CaseFailure, replay};
pub use path_op::PathOp;
pub use run::{Case, CaseAct, Opening};
pub use volumes::CaseVolume;
