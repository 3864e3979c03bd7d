//! The rules of crashes. A rule decides which stores may survive a power failure.
//!
//! *Lines* is the rule of memory. (The rule is the model px86. It meets the requirements of BPFS, section
//! 4.4.) A prefix of the stores to each cache line persists, in the order in which the stores were made. The
//! prefix includes at least every store that was written back before a fence of its own thread. A fence of
//! thread B may also make stores of thread A durable: those that come before a fenced store of B in the same
//! line, because each line keeps a prefix. A fence of B makes no other store of A durable. So an engine
//! orders its stores to an extent by a fence before it gives this extent to another thread. Eight aligned
//! bytes never tear, and a longer store is recorded as several stores. A flush makes every store durable,
//! also the stores of a killed process.
//!
//! *Sectors* is the rule of a disk, under the medium `paged`. After a crash, a sector has the bytes that it
//! had at the last flush, or the bytes of any one later write to it, by any thread. A flush makes every write
//! durable. Sectors do not tear.
//!
//! `tests/rules.rs` states both rules a second time, as functions that try every case. It checks that an
//! exploration makes exactly the images of these functions.

use std::collections::BTreeMap;

use eyrie_medium::{Addr, LINE_SIZE, SECTOR};

/// Size of a word, in bytes.
const WORD_SIZE: u64 = 8;

/// A rule that decides which stores may survive a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CrashRule {
    /// The rule of memory: each line keeps a prefix of its stores, which includes at least every store before
    /// a fence of its own thread.
    #[default]
    Lines,
    /// The rule of a disk: each sector has the bytes of any one write since the last flush, or the bytes at
    /// that flush.
    Sectors,
}

impl CrashRule {
    /// Returns the size of a unit that persists independently of other units, in bytes.
    pub fn unit(self) -> u64 {
        match self {
            CrashRule::Lines => LINE_SIZE,
            CrashRule::Sectors => SECTOR,
        }
    }

    /// Returns the size of a unit that does not tear, in bytes.
    pub(crate) fn atom(self) -> u64 {
        match self {
            CrashRule::Lines => WORD_SIZE,
            CrashRule::Sectors => SECTOR,
        }
    }
}

/// The stores that a crash may lose, by line (or sector). The stores of a line are in order, oldest first,
/// each with its offset in the line and its bytes. A crash keeps a prefix of them.
pub type Pending = BTreeMap<Addr, Vec<(usize, Vec<u8>)>>;

/// Returns the contents that a line may have after a crash, each of them once: the bytes without the pending
/// stores, and the bytes after each pending store.
pub(crate) fn contents(line: &[u8], pending: &[(usize, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut contents = vec![line.to_vec()];
    let mut last = line.to_vec();
    for (within, bytes) in pending {
        last[*within..within + bytes.len()].copy_from_slice(bytes);
        if !contents.contains(&last) {
            contents.push(last.clone());
        }
    }
    contents
}
