//! Other stores of keys and values, which the feature `peers` compiles.
//!
//! Each store has its default settings, except for those that its module names. [`settings`] describes the
//! settings that determine the durability.

#[cfg(feature = "peers")]
mod fjall;
#[cfg(feature = "peers")]
#[allow(unsafe_code, reason = "heed declares the opening of an environment unsafe")]
mod lmdb;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
mod sqlite;

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::keys::{Durability, KeyStore};

/// Another store of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// LMDB.
    Lmdb,
    /// redb.
    Redb,
    /// fjall.
    Fjall,
    /// SQLite.
    Sqlite,
}

/// The reason why a store is left out without the feature.
#[cfg(not(feature = "peers"))]
const MISSING: &str = "this program was built without other stores; in a clone, `cargo install --path \
                       crates/eyrie-cli --features peers` builds it with them";

/// Replaces the other `settings` if the program is built without the feature `peers`.
///
/// # Errors
/// Always fails.
#[cfg(not(feature = "peers"))]
pub(crate) fn settings(_: Peer, _: Durability) -> std::result::Result<&'static str, String> {
    Err(MISSING.to_owned())
}

/// Replaces the other `open` if the program is built without the feature `peers`.
///
/// # Errors
/// Always fails.
#[cfg(not(feature = "peers"))]
pub(crate) fn open(_: Peer, _: &Path, _: Durability, _: usize) -> Result<Arc<dyn KeyStore>> {
    Err(crate::error::Error::Request(MISSING.to_owned()))
}

/// Returns a text about the settings that give a store this durability.
///
/// # Errors
/// Never fails. The result has an error type because the function without the feature always fails.
#[cfg(feature = "peers")]
pub(crate) fn settings(peer: Peer, durability: Durability) -> std::result::Result<&'static str, String> {
    Ok(match (peer, durability) {
        (Peer::Lmdb, Durability::Later) => "LMDB (heed) with MDB_NOSYNC",
        (Peer::Lmdb, Durability::EachCall) => "LMDB (heed), which syncs each transaction",
        (Peer::Redb, Durability::Later) => "redb with Durability::None",
        (Peer::Redb, Durability::EachCall) => "redb with Durability::Immediate",
        (Peer::Fjall, Durability::Later) => "fjall, which syncs nothing",
        (Peer::Fjall, Durability::EachCall) => "fjall with PersistMode::SyncAll after each transaction",
        (Peer::Sqlite, Durability::Later) => "SQLite in WAL mode with synchronous=OFF",
        (Peer::Sqlite, Durability::EachCall) => "SQLite in WAL mode with synchronous=FULL",
    })
}

/// Makes an empty store in an empty directory, for values of about `value_bytes`.
///
/// # Errors
/// Fails if the store fails.
#[cfg(feature = "peers")]
pub(crate) fn open(
    peer: Peer,
    path: &Path,
    durability: Durability,
    value_bytes: usize,
) -> Result<Arc<dyn KeyStore>> {
    match peer {
        Peer::Lmdb => lmdb::open(path, durability),
        Peer::Redb => redb::open(path, durability),
        Peer::Fjall => fjall::open(path, durability),
        Peer::Sqlite => sqlite::open(path, durability, value_bytes),
    }
}
