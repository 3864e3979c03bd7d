//! Eyrie: a file system that programs link as a library. Its calls work on mapped memory.
//!
//! ```
//! use eyrie::{Credentials, PosixExt, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let path = place.path().join("volume");
//! let volume = Volume::create(&path, 64 << 20)?; // at most 64 MiB; `Volume::open` opens it again
//! let files = volume.files(Credentials::of_process());
//! files.create_dir("/birds")?;
//! files.write("/birds/eagle", "builds an eyrie")?; // calls like those of `std::fs`
//!
//! let birds = volume.store("/birds", Credentials::of_process())?;
//! birds.put("owl", "does not")?; // keys and values, in the same directory
//! assert_eq!(files.read("/birds/owl")?, b"does not");
//!
//! drop((files, birds));
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! | type | purpose |
//! | --- | --- |
//! | [`Volume`], [`VolumeOptions`] | making, opening, checking and closing volumes |
//! | [`Files`] with [`PosixExt`] and [`Posix`] | files and directories, for one user ([`Credentials`]) |
//! | [`File`], [`Dir`], [`ReadDir`], [`Walk`] | open files and directories, listings, walks through trees |
//! | [`Watch`] | the changes of a directory or a tree, as events |
//! | [`Store`] | keys and values: conditions ([`Condition`]), [`Batch`]es, scans, values in place |
//! | [`VolumeNodes`] | objects without paths, for front-ends such as a mount |
//! | [`Host`], [`HostStore`], [`KeyValueStore`] | the same calls on the file system of the host |
//! | [`Error`], [`Errno`] | errors, with the message and the errno |
//!
//! The two interfaces to a volume are written over an engine: [`Pxfs`] has files and directories with the
//! results of POSIX calls, and [`Kvfs`] has keys and values in one directory. [`Files`] and [`Store`] are
//! these interfaces over the engine of a volume. The directory `examples` of the package has complete
//! programs, and `docs/api.md` of the repository is a guide to the API.
//!
//! Some items are hidden from this documentation, such as the trait `Engine` of all engines. They are for the
//! other packages of Eyrie, and may change in every version.
//!
//! No feature is needed. `testing` adds functions that only tests need, and `mutants` plants bugs for the
//! tests of Eyrie itself.
//!
//! Invariants:
//! - This crate has no unsafe code. The crates below it know only the names of files in a volume, not their
//!   paths.
//! - Only [`eyrie_engine::access`] decides permissions.
//! - `stat`, `open`, `read_at`, `write_at`, `close`, `create`, `unlink` and `rename` of [`Pxfs`] make no
//!   system call, except where the medium reads a page from a disk, the volume grows, or the call waits for
//!   another thread. These calls read the clock in user space. This crate takes no lock in these calls.
//!   (While files of the volume have advisory locks, `close` takes the mutex of the table of locks in the
//!   engine.) The calls allocate nothing except in a new thread, for a path with a symbolic link or an
//!   escaped name ([`names`]), for an object with an access control list, for an error that keeps the error
//!   of the engine, and where a directory grows or many extents change.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod error;
mod fetch;
pub mod host;
mod kept;
pub mod key_value;
pub mod kvfs;
pub mod names;
pub mod posix;
pub mod pxfs;
mod repair;
mod retry;
mod stamps;
mod view;
mod volume;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/api.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/getting-started.md")]
struct GettingStarted;

pub use error::{Error, Result};
/// The bound of [`Pxfs`] and [`Kvfs`]. A program may name it, but its methods may change in every version.
#[doc(hidden)]
pub use eyrie_engine::Engine;
#[doc(inline)]
pub use eyrie_engine::access::{AccessRules, AclKind, Capabilities, Credentials, Sticky};
/// The types of the lock calls of [`Nodes`], for front-ends. They may change in every version.
#[doc(hidden)]
pub use eyrie_engine::advisory::{
    HeldLock, LockOwner, LockRange, LockRequest, LockTarget, LockWaiter, OwnerClass,
};
#[doc(inline)]
pub use eyrie_engine::op::{NAME_MAX, VALUE_MAX};
#[doc(inline)]
pub use eyrie_engine::quota::{
    QUOTA_XATTR, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaReport, QuotaTable, QuotaUsage,
};
#[doc(inline)]
pub use eyrie_engine::{
    Canceller, Condition, Errno, Error as EngineError, FallocateMode, InodeFlags, Kind, LockKind, LockWait,
    Notice, ObjectId, RenameMode, Time, Version, XattrMode,
};
/// Bytes in place need a guard, from [`Pxfs::pin`] or [`Kvfs::pin`].
///
/// ```
/// use eyrie::{Guard, Store};
///
/// fn length(store: &Store, key: &str) -> eyrie::Result<Option<usize>> {
///     let pin: Guard = store.pin();
///     let value = store.get_in_place(key, &pin)?; // stays as it is until `pin` is dropped
///     Ok(value.map(|bytes| bytes.len()))
/// }
/// ```
#[doc(inline)]
pub use eyrie_medium::epoch::Guard;
/// Parts of [`EngineError`].
#[doc(inline)]
pub use eyrie_medium::{Addr, Fault};
pub use host::{Host, HostStore};
pub use key_value::{Batch, KeyRange, KeyValueStore, Order};
pub use kvfs::{Kvfs, Outcome, Scan, ScanInPlace, ScanValues};
pub use posix::{
    Access, Dir, DirEntry, File, FoundLock, Ladder, OpenFlags, OpenOptions, PathAt, Posix, PosixBirth,
    PosixClones, PosixExt, PosixLocks, PosixProjects, RangeOwner, ReadDir, SetTime, Stat, StatVfs, Target,
    Walk, WalkEntry, WalkStep, Whence,
};
pub use pxfs::{
    AccessTimes, Node, NodeEntry, Nodes, Pieces, Pxfs, SetAttributes, Watch, WatchEvent, WatchEventKind,
    WatchOptions, WatchStopper,
};
pub use repair::{Repair, Repaired};
pub use view::View;
pub use volume::{
    CloseError, Files, Information, MediumChoice, OrderCounts, PagedOptions, PagedStats, Report, ScrubReport,
    Stats, Store, Volume, VolumeEngine, VolumeNodes, VolumeOptions,
};
