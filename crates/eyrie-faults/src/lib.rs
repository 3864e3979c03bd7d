//! Test machinery for media: fault injection, records of stores, crash images, simulated disks and thread
//! schedules.
//!
//! This crate implements the four traits of `eyrie-medium` by which a test observes and disturbs a medium. An
//! [`Observer`](eyrie_medium::Observer) observes a medium, and [`Blocks`](eyrie_medium::Blocks) are the disk
//! under a page cache. A host observer ([`eyrie_medium::host`]) observes a thread's calls to the host, and a
//! schedule ([`eyrie_medium::sync::schedule`]) decides which thread runs. A program that only uses volumes
//! does not link this crate. The command links it, for `explore`, `trace` and `replay`.
//!
//! Invariant: a medium under these observers runs the same code as a medium in a program that uses volumes.

#![forbid(unsafe_code)]

mod base;
mod disk;
mod image;
mod plan;
mod points;
mod random;
mod record;
mod rule;
mod schedule;
mod written;

pub use base::ImageBase;
pub use disk::SimulatedDisk;
pub use eyrie_medium::in_forked_child;
pub use image::{CrashImage, crash_medium};
pub use plan::{Failing, FailureKind, FaultPlan, Site};
pub use points::{Choice, CrashPoint, CrashPoints};
pub use random::SplitMix64;
pub use record::{Event, Recorder, traced, traced_from};
pub use rule::{CrashRule, Pending};
pub use schedule::ThreadSchedule;
pub use written::{WrittenBack, pmem_anywhere};
