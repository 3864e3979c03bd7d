//! Engines: what holds a volume, answers look-ups and reads, and applies [`Op`]s.
//!
//! Everything that changes a volume is an [`Op`]; everything that holds one is an [`Engine`]. `scm` is the engine for
//! byte-addressable storage, `model` the reference that every test compares with.
//!
//! Invariants:
//! - Nothing here knows a path with `/` in it: names are 1 to 255 bytes of any kind.
//! - [`op`] is the only encoder of Ops; [`access`] the only module that knows permission rules.
//! - No unsafe code, and no store to a medium outside a `Transaction`, recovery and volume creation.

#![forbid(unsafe_code)]

pub mod access;
pub mod check;
pub mod engine;
pub mod error;
#[cfg(test)]
pub(crate) mod format_doc;
pub mod id;
mod late;
pub mod model;
pub mod object;
pub mod op;
pub mod recovery;
pub mod redo;
pub mod salvage;
pub mod scm;
pub mod transaction;
pub mod volume;

pub use engine::{Attributes, Birth, Engine, Entry, SpaceUsage};
pub use error::{Error, Result};
pub use id::{Kind, ObjectId, Time};
pub use model::Model;
pub use op::{Applied, AttributeChange, Content, FallocateMode, Op, Owner, RenameMode, SetIds, XattrMode};
pub use volume::{Opened, Volume};
