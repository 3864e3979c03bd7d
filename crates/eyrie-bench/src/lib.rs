//! Workloads that run on volumes, on file systems of the host and on other stores, and their reports.
//!
//! A *side* is one of the things that a run compares: a volume of Eyrie, a file system of the host, a mount
//! or another store. [`run`](run()) makes the sides, measures a [`Workload`] on all of them, and returns a
//! [`BenchReport`]. Each workload is written once: the same code makes the calls on a volume, on the host and
//! on a mount.
//!
//! ```
//! use eyrie_bench::method::Rounds;
//! use eyrie_bench::workload::micro::{Amounts, Micro};
//! use eyrie_bench::{Durability, SideRequest, Setting, run};
//!
//! # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
//! let rivals = vec!["host".parse()?];
//! let request = SideRequest::new(place.path(), eyrie::MediumChoice::Auto, Durability::Later, rivals);
//! let mut progress = |_: usize, _: usize, _: &str| {};
//! let setting = Setting {
//!     request,
//!     threads: vec![1],
//!     shared: false,
//!     rounds: Rounds::exactly(2),
//!     command: "an example".to_owned(),
//!     stop: || false,
//!     progress: &mut progress,
//! };
//! let report = run(&Micro::new(Amounts::quick()), setting)?;
//! assert!(report.rows.iter().all(|row| row.touched > 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - A row is one operation of a workload. The first round of a row does not count, unless it is the only
//!   round. Only calls are timed.
//! - Every result is compared with the right result, and a run fails if a result is wrong.
//! - A run leaves nothing on the host: no file, no mount, no loop device.

#![cfg_attr(not(feature = "peers"), forbid(unsafe_code))]
#![deny(unsafe_code)]

pub mod client;
mod error;
pub mod keys;
pub mod machine;
pub mod method;
mod peers;
pub mod place;
pub mod report;
mod rival;
mod run;
mod service;
pub mod side;
pub mod values;
pub mod workload;

pub use error::{Error, Result};
pub use keys::Durability;
pub use peers::Peer;
pub use report::BenchReport;
pub use rival::Rival;
pub use run::{Setting, Workload, measure_on, run};
pub use side::{Side, SideRequest};
