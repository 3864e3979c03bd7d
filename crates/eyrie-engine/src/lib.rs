//! Engines. An engine holds a volume, answers look-ups and reads, and applies [`Op`]s.
//!
//! Every change of names, bytes and attributes is an [`Op`], which an [`Engine`] applies. `scm` is the engine
//! for byte-addressable storage. `model` is the reference engine, with which tests compare other engines.
//!
//! Invariants:
//! - No Op and no look-up takes a path inside the volume: names are 1 to 255 bytes of any kind. (`host` takes
//!   paths of the host.)
//! - [`op`] is the only module that encodes Ops, and [`access`] is the only module that knows permission
//!   rules.
//! - No unsafe code.
//! - An Op changes names, bytes and attributes only through a `Transaction`. The other stores to a medium
//!   are:
//!   - the stores of the allocator, of recovery and of the limit of generations;
//!   - the stores of the creation, opening, resize and save of a volume;
//!   - the features in the superblock, each before its first use;
//!   - the records of owners and of their requests;
//!   - the store of the unlinked bit of a removed object, and the store that clears the header of a freed
//!     object or of a new object whose Op failed.

#![forbid(unsafe_code)]

pub mod access;
pub mod advisory;
pub mod board;
pub mod change_log;
pub mod check;
pub mod claims;
pub mod engine;
mod errno;
pub mod error;
pub mod extent;
#[cfg(test)]
pub(crate) mod format_doc;
pub mod holds;
mod host;
pub mod id;
pub mod model;
pub mod notices;
pub mod object;
pub mod op;
pub mod quota;
pub mod recovery;
pub mod salvage;
pub mod scm;
mod space;
mod spread;
mod tables;
pub mod transaction;
pub mod volume;

pub use advisory::{Canceller, LockKind, LockWait};
pub use engine::{
    Attributes, Birth, COOKIE_MAX, Engine, FileView, ListedEntry, SpaceUsage, StoredProtection, with_reserved,
};
pub use errno::Errno;
pub use error::{Error, Result};
pub use id::{Kind, ObjectId, Time, Version};
pub use model::Model;
pub use notices::{Notice, Watcher};
pub use op::{
    Applied, AttributeChange, Condition, Content, FallocateMode, InodeFlags, Op, Owner, RenameMode, SetIds,
    Whiteout, XattrMode,
};
pub use volume::{Opened, Volume};
