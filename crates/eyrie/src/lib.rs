//! Eyrie: a file system that programs link and map instead of calling.
//!
//! Two interfaces over one volume, written once over [`Engine`]: [`Pxfs`] has files and directories with the results of
//! POSIX calls, [`Kvfs`] has keys and values in one directory. [`Host`] has the same calls as [`Pxfs`] on the file
//! system of the host, so that programs, benchmarks and tests run on either.
//!
//! Invariants:
//! - No unsafe code; nothing below this crate knows a path with `/` in it.
//! - Permissions are decided by [`eyrie_engine::access`] alone.
//! - `stat`, `open`, `read_at`, `write_at`, `close`, `create`, `unlink` and `rename` of [`Pxfs`] make no system call,
//!   allocate nothing and take no lock of their own.

#![forbid(unsafe_code)]

mod error;
pub mod host;
pub mod kvfs;
pub mod names;
pub mod posix;
pub mod pxfs;
mod repair;
mod stamps;
mod volume;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub use error::{Error, Result};
pub use eyrie_engine::access::{AccessRules, Credentials, Sticky};
pub use eyrie_engine::{Engine, FallocateMode, Kind, RenameMode, Time, XattrMode};
pub use host::{Host, HostStore};
pub use kvfs::{Batch, Kvfs, Scan, Value};
pub use posix::{
    Access, Base, DirEntry, File, Found, Ladder, OpenFlags, OpenOptions, Posix, PosixExt, ReadDir, SetTime,
    Stat, StatVfs, Step, Walk, Whence,
};
pub use pxfs::Pxfs;
pub use repair::{Repair, Repaired};
pub use rustix::io::Errno;
pub use volume::{Files, Information, MediumChoice, PagedOptions, Report, Store, Volume, VolumeOptions};
