//! Eyrie: a file system that programs link as a library. Its calls work on mapped memory.
//!
//! The crate has two interfaces to a volume, both written over [`Engine`]. [`Pxfs`] has files and directories
//! with the results of POSIX calls. [`Kvfs`] has keys and values in one directory. [`Host`] has the same
//! calls as [`Pxfs`] on the file system of the host, so programs, benchmarks and tests can use a volume or
//! the host.
//!
//! Invariants:
//! - This crate has no unsafe code. The crates below it know only the names of files in a volume, not their
//!   paths.
//! - Only [`eyrie_engine::access`] decides permissions.
//! - `stat`, `open`, `read_at`, `write_at`, `close`, `create`, `unlink` and `rename` of [`Pxfs`] make no
//!   system call, except where the medium reads a page from a disk, the volume grows, or the call waits for
//!   another thread. These calls read the clock in user space. This crate takes no lock in them. The calls
//!   allocate nothing except in a new thread, for a path with a symbolic link or an escaped name ([`names`]),
//!   for an error that keeps the error of the engine, and where a directory grows or many extents change.

#![forbid(unsafe_code)]

mod error;
mod fetch;
pub mod host;
pub mod kvfs;
pub mod names;
pub mod posix;
pub mod pxfs;
mod repair;
mod retry;
mod stamps;
mod volume;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub use error::{Error, Result};
pub use eyrie_engine::access::{AccessRules, Credentials, Sticky};
pub use eyrie_engine::op::{NAME_MAX, VALUE_MAX};
pub use eyrie_engine::{Engine, FallocateMode, Kind, RenameMode, Time, XattrMode};
pub use host::{Host, HostStore};
pub use kvfs::{Batch, Kvfs, Scan, Value};
pub use posix::{
    Access, Base, DirEntry, File, Ladder, OpenFlags, OpenOptions, Posix, PosixExt, ReadDir, SetTime, Stat,
    StatVfs, Walk, WalkEntry, WalkStep, Whence,
};
pub use pxfs::Pxfs;
pub use repair::{Repair, Repaired};
pub use rustix::io::Errno;
pub use volume::{Files, Information, MediumChoice, PagedOptions, Report, Store, Volume, VolumeOptions};
