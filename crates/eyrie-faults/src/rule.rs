//! The rules of crashes: the stores that a power failure leaves.
//!
//! Lines (px86, as `bpfs.txt` section 4.4 needs of hardware): of each cache line a prefix of its stores
//! persists, in program order. The prefix reaches at least the last store that was written back before a
//! fence of the storing thread. (A fence orders its own thread only, so an engine that hands memory to
//! another thread settles it first.) Eight aligned bytes never tear; a longer store is recorded as several. A
//! flush settles every store to every line, also those of a killed process.
//!
//! Sectors (of a disk, under the medium `paged`): of each sector any write since the last flush persists, or
//! none, of any thread. A flush settles every write. Sectors do not tear.
//!
//! `tests/rules.rs` has both rules as functions that try every case, and checks that exactly their images are
//! explored.

use std::collections::BTreeMap;

use eyrie_medium::{Addr, LINE_SIZE, SECTOR};

/// Size of a word, in bytes.
const WORD_SIZE: u64 = 8;

/// The rule for the stores that a power failure leaves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CrashRule {
    /// Of each line of memory a prefix of its stores, at least up to the last one before a fence of the
    /// storing thread.
    #[default]
    Lines,
    /// Of each sector of a disk any write since the last flush, or the bytes at that flush.
    Sectors,
}

impl CrashRule {
    /// Size of the unit that persists by itself, in bytes.
    pub fn unit(self) -> u64 {
        match self {
            CrashRule::Lines => LINE_SIZE,
            CrashRule::Sectors => SECTOR,
        }
    }

    /// Size of the unit that does not tear, in bytes.
    pub(crate) fn atom(self) -> u64 {
        match self {
            CrashRule::Lines => WORD_SIZE,
            CrashRule::Sectors => SECTOR,
        }
    }
}

/// Pending stores by line, of which a crash may keep a prefix, oldest first: the offset in the line and the
/// bytes.
pub type Pending = BTreeMap<Addr, Vec<(usize, Vec<u8>)>>;

/// The different contents that a line may have after a crash: the certain bytes, and the bytes after each
/// pending store.
pub(crate) fn contents(line: &[u8], pending: &[(usize, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut contents = vec![line.to_vec()];
    let mut last = line.to_vec();
    for (within, bytes) in pending {
        last[*within..within + bytes.len()].copy_from_slice(bytes);
        if Some(&last) != contents.last() {
            contents.push(last.clone());
        }
    }
    contents
}
