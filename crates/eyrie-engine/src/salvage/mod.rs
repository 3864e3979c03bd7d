//! Salvage: copies the readable objects of a damaged volume into a sound one.
//!
//! The damaged volume is opened as a copy ([`Volume::open_damaged`]), so salvage never changes it on the
//! host. Each entry, header and extent is checked. A part that fails its check is left out and listed
//! ([`SalvageLoss`]), and its neighbours are copied. Ops fill the new volume, so the new volume is sound even
//! if the old one contains contradictions.
//!
//! - A directory keeps the entries that belong to their bucket, and in which at least two of name, hash and
//!   tag (a second copy of the high byte of the hash) agree. One damaged field does not lose such an entry.
//!   Salvage hashes the name with the key from each readable copy of the superblock, because one copy may be
//!   damaged.
//! - A file keeps its readable bytes. Holes replace the unreadable ranges.
//! - An extent that files share by clones is written once, and cloned into the other files. A sealed file of
//!   a single extent may be the value of a key. One `Op::Put` creates its copy, so that the copy is sealed,
//!   too, and has bytes of its own instead of a clone.
//! - If two objects with names claim the same bytes, both keep the bytes, because the true owner is unknown.
//!   The second claimant is copied after all other objects, so that duplicates use only the room that is
//!   left.
//! - A directory with several names is copied under one of them: if possible, under its name in the parent
//!   that its header names.
//! - If no readable entry leads to an object in a header chunk, the object is copied into `lost+found`. The
//!   name of such an object is `#` and the number of its id. If `lost+found` has this name already, for
//!   example from an earlier salvage, `-2` or a higher number follows. `lost+found` itself gets such a number
//!   if the root has another kind of object of this name. An object without a name is left out if
//!   other objects have claimed some of its bytes, unless the object is a directory.

mod clones;
mod copy;
mod lost;
mod path;
mod source;
mod tree;

use eyrie_medium::Fault;

use crate::tables::layout::{CLEAN, CLEAN_MARK};
use crate::transaction::redo;
use crate::volume::Volume;
use crate::{Engine, Error, Owner, Result, Time};

use path::NamePath;
use source::DamagedVolume;
use tree::Salvage;

/// The directory for objects to which no readable entry leads.
pub const LOST_AND_FOUND: &[u8] = b"lost+found";

/// A loss: a missing object, an object that differs from the original, or lost changes of the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SalvageLoss {
    /// The path of the object in the new volume, as names from the root. For a missing object: the path that
    /// it would have. Empty if the loss concerns the root or the whole volume.
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
    /// Bytes that were copied or cloned into files. Holes do not count.
    pub bytes: u64,
    /// Objects without a readable name that were copied into `lost+found`.
    pub found: u64,
    /// The losses.
    pub losses: Vec<SalvageLoss>,
    /// True if an object did not fit into the new volume. Contested objects do not count here.
    pub is_full: bool,
    /// True if a contested object did not fit into the new volume. Another object claims some bytes of a
    /// contested object, too, and no clone explains this.
    pub is_full_of_copies: bool,
}

/// Returns the owner and creation time of the root directory. The caller creates the new volume with them. If
/// the root is unreadable, returns the user and group 0 with mode 0o755, and the creation time of the volume.
pub fn root_of(from: &Volume) -> (Owner, Time) {
    let _pin = eyrie_medium::epoch::pin();
    let root = from.root().and_then(|root| DamagedVolume::new(from).object(root).ok());
    match root {
        Some(root) => (root.owner(), root.created),
        None => (Owner { mode: 0o755, uid: 0, gid: 0 }, source::time(from.created())),
    }
}

/// Copies the readable objects of `from` into `to`, a new volume that the caller closes. `now` is the present
/// time, for a new `lost+found`.
///
/// # Errors
/// `Fault` of `to`, for example if its host is full. Problems of `from`, and Ops that `to` refuses for
/// another reason, are losses in the result.
pub fn salvage(from: &Volume, to: &dyn Engine, now: Time) -> Result<Salvaged> {
    let mut salvage = Salvage::new(from, to, now);
    if from.lacks_journal() {
        salvage.lose(&NamePath::ROOT, "the journal of the volume is gone, and the latest changes with it");
    }
    replay(from, &mut salvage);
    salvage.everything()?;
    Ok(salvage.done)
}

/// Applies the sound redo records to the opened copy of the damaged volume. A volume with a clean mark has
/// none to apply.
fn replay(from: &Volume, salvage: &mut Salvage<'_>) {
    let _pin = eyrie_medium::epoch::pin();
    if from.medium().load(CLEAN_MARK).is_ok_and(|mark| mark == CLEAN) {
        return;
    }
    let Ok(_gate) = from.medium().enter_with(|| u64::MAX) else { return };
    for error in redo::replay_each(from) {
        salvage.lose(&NamePath::ROOT, &format!("a change that was in progress is lost: {}", words(&error)));
    }
}

/// Describes an error with its address. Unlike its `Display` form, the text gives no advice to the user.
fn words(error: &Error) -> String {
    match error {
        Error::Corrupt { addr, what } => format!("{what} at {addr}"),
        Error::Fault(Fault::OutOfBounds { addr, .. } | Fault::Misaligned { addr }) => {
            format!("address {addr} outside the volume")
        }
        Error::Fault(Fault::Checksum { addr }) => format!("the page at {addr} does not match its checksum"),
        Error::Stale => "no object is there".to_string(),
        other => other.to_string(),
    }
}
