//! Salvage: copies what is left of a damaged volume into a sound one, object by object.
//!
//! The damaged volume ([`Volume::open_damaged`]) is only read. What it says is checked piece by piece, and what cannot
//! be believed is left out and listed ([`Loss`]); its neighbours are copied all the same. The new volume is filled by Ops, so
//! it is sound whatever the old one says.
//!
//! - A directory keeps the entries that prove themselves: name, hash and tag of one agree, but for one of the three.
//! - A file keeps the bytes that can be read; the others become holes.
//! - What two objects claim, both keep: nobody knows whose it is. Those that came second are copied last, so that what
//!   they take in addition comes out of what is left.
//! - A directory that several name goes where it says that its parent is.
//! - Objects that live in header chunks and that no entry names come into `lost+found`, by the number of their id,
//!   unless their bytes belong to others by now.

mod copy;
mod lost;
mod source;
mod tree;

use eyrie_medium::{Addr, Fault};

use crate::volume::Volume;
use crate::volume::layout::{CLEAN, CLEAN_MARK};
use crate::{Engine, Error, Owner, Result, Time, redo};

use source::Source;
use tree::Salvage;

/// The directory for what no entry names.
pub const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Something that was lost, or is not as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The names that lead to it, from the root on, in the new volume.
    pub names: Vec<Vec<u8>>,
    /// What is wrong, in a line.
    pub what: String,
}

/// What came of a salvage. Counts are of objects in the new volume.
#[derive(Clone, Default, Debug)]
pub struct Salvaged {
    /// Directories, with the root.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Other objects.
    pub others: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// How many of them are in `lost+found`, without what is in their directories.
    pub found: u64,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// Whether some of it did not fit into the new volume.
    pub is_full: bool,
    /// Whether only copies of bytes that another object has, too, did not fit.
    pub is_full_of_copies: bool,
}

/// Owner and birth of the root directory: what a volume to salvage into is made with.
pub fn root_of(from: &Volume) -> (Owner, Time) {
    let _pin = eyrie_medium::epoch::pin();
    let root = from.root().and_then(|root| Source::new(from).object(root).ok());
    match root {
        Some(root) => (root.owner(), root.created),
        None => (Owner { mode: 0o755, uid: 0, gid: 0 }, source::time(from.created())),
    }
}

/// Copies what is left of `from` into `to`, which is new and stays the caller's to close. `now` is when.
///
/// # Errors
/// Those of `to`, but that it is full; what is wrong with `from` is in the answer.
pub fn salvage(from: &Volume, to: &dyn Engine, now: Time) -> Result<Salvaged> {
    let mut salvage = Salvage::new(from, to, now);
    if from.lacks_journal() {
        salvage.lose(&[], "the journal behind the volume is gone, and with it what was changed last");
    }
    replay(from, &mut salvage);
    salvage.everything()?;
    Ok(salvage.done)
}

/// Applies the redo records that can be believed, on the copy.
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

/// An error in words without advice: what and where.
fn words(error: &Error) -> String {
    match error {
        Error::Corrupt { addr: Addr::NULL, what } => (*what).to_string(),
        Error::Corrupt { addr, what } => format!("{what} at {addr}"),
        Error::Fault(Fault::OutOfBounds { addr, .. } | Fault::Misaligned { addr }) => {
            format!("address {addr} outside the volume")
        }
        Error::Stale => "there is no object".to_string(),
        other => other.to_string(),
    }
}
