//! Salvage: copies the readable objects of a damaged volume into a sound one.
//!
//! The damaged volume ([`Volume::open_damaged`]) is only read. Each piece of information is checked. A
//! piece that fails its check is left out and listed ([`SalvageLoss`]), while its neighbours are copied.
//! The new volume is filled by Ops, so it is sound whatever the old one contains.
//!
//! - A directory keeps the entries that prove themselves: at least two of name, hash and tag agree.
//! - A file keeps its readable bytes. Holes replace the others.
//! - If two objects claim the same bytes, both keep them, because the owner is unknown. Later claimants are
//!   copied last, so that their duplicates use only the room that is left.
//! - A directory with several names goes to the parent that its header names.
//! - Objects in header chunks that no entry names go to `lost+found`, named by the number of their id,
//!   unless other objects own their bytes by now.

mod copy;
mod lost;
mod source;
mod tree;

use eyrie_medium::Fault;

use crate::tables::layout::{CLEAN, CLEAN_MARK};
use crate::transaction::redo;
use crate::volume::Volume;
use crate::{Engine, Error, Owner, Result, Time};

use source::DamagedVolume;
use tree::Salvage;

/// The directory for objects that no entry names.
pub const LOST_AND_FOUND: &[u8] = b"lost+found";

/// A loss: a missing object, or one that differs from the original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SalvageLoss {
    /// The names that lead to it in the new volume, from the root on.
    pub names: Vec<Vec<u8>>,
    /// The problem, in one line.
    pub what: String,
}

/// The result of a salvage. Counts are of objects in the new volume.
#[derive(Clone, Default, Debug)]
pub struct Salvaged {
    /// Directories, including the root.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Other objects.
    pub others: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Objects that `lost+found` contains directly.
    pub found: u64,
    /// The losses.
    pub losses: Vec<SalvageLoss>,
    /// True if an object did not fit into the new volume.
    pub is_full: bool,
    /// True if the only bytes that did not fit are duplicates of bytes that another object has too.
    pub is_full_of_copies: bool,
}

/// Owner and creation time of the root directory, with which the new volume is created.
pub fn root_of(from: &Volume) -> (Owner, Time) {
    let _pin = eyrie_medium::epoch::pin();
    let root = from.root().and_then(|root| DamagedVolume::new(from).object(root).ok());
    match root {
        Some(root) => (root.owner(), root.created),
        None => (Owner { mode: 0o755, uid: 0, gid: 0 }, source::time(from.created())),
    }
}

/// Copies the readable objects of `from` into `to`, a new volume that the caller closes. `now` is the
/// present time.
///
/// # Errors
/// Errors of `to`, except a full volume. Problems of `from` are in the result.
pub fn salvage(from: &Volume, to: &dyn Engine, now: Time) -> Result<Salvaged> {
    let mut salvage = Salvage::new(from, to, now);
    if from.lacks_journal() {
        salvage.lose(&[], "the journal of the volume is gone, and the latest changes with it");
    }
    replay(from, &mut salvage);
    salvage.everything()?;
    Ok(salvage.done)
}

/// Applies the sound redo records to the copy.
fn replay(from: &Volume, salvage: &mut Salvage<'_>) {
    let _pin = eyrie_medium::epoch::pin();
    if from.medium().load(CLEAN_MARK).is_ok_and(|mark| mark == CLEAN) {
        return;
    }
    let Ok(_gate) = from.medium().enter() else { return };
    for error in redo::replay_each(from) {
        salvage.lose(&[], &format!("a change in flight: {}", words(&error)));
    }
}

/// An error in words, with its address and without advice.
fn words(error: &Error) -> String {
    match error {
        Error::Corrupt { addr, what } => format!("{what} at {addr}"),
        Error::Fault(Fault::OutOfBounds { addr, .. } | Fault::Misaligned { addr }) => {
            format!("address {addr} outside the volume")
        }
        Error::Stale => "no object is there".to_string(),
        other => other.to_string(),
    }
}
