//! Change logs: changes that a client of a service has made, and that the service has not applied yet.
//!
//! A client logs a change if it holds the *grant* of the volume
//! ([`Board::granted_to`](crate::board::Board::granted_to)), or the grants of the parts with all objects of
//! the change. It appends the encoded Op to its log, and does not wait for the service. The service applies
//! the entries in order. A change counts as made as soon as its entry is in the log, so a log outlives the
//! client and the service: it is a file in the directory of the volume. Each process that opens the volume
//! for changes first applies the entries that a dead service has left ([`Scm::open`](crate::scm::Scm::open)).
//!
//! A log is a ring of entries behind a head of one page. The client maps the file. The service reads it by
//! calls of the host, because a client could shorten the file. The table of the logs (`host::change_logs`)
//! has the user and the applied part of each log. The service changes this table, and so does the next owner
//! when it applies the logs. They give no client access to it.
//!
//! An entry begins with an [`EntryHead`]. If the Op of an entry is applied twice in a row, the second time
//! changes nothing but times. For example, an append is logged as a write at an offset. An entry that removes
//! or moves a name also has the id of the object, which shows if the name still has this object. So the next
//! owner may repeat the entry that a killed service was applying.
//!
//! A position counts the bytes of all entries since the start of the log. An entry does not cross the end of
//! the ring: an entry without an Op fills the rest.

mod read;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::read::{LogError, LogReader};

/// Bytes of the ring of a log.
pub const RING_BYTES: u64 = 2 << 20;
/// Bytes before the ring.
pub const HEAD_BYTES: usize = 4096;
/// Size of the file of a log, in bytes.
pub const LOG_FILE_BYTES: usize = HEAD_BYTES + RING_BYTES as usize;
/// Largest size of an entry with an Op, in bytes.
pub const ENTRY_BYTES_MAX: usize = 68 << 10;

/// Index of the word in the head of a log at which the client stores the position after its last entry.
pub const TAIL_WORD: usize = 0;
/// Index of the word that the next owner sets to 1 before it reads the position. A client that finds 1 after
/// its store of the position does not know if the next owner has seen the entry.
pub const CLOSED_WORD: usize = 8;
/// Index of the word that the next owner sets to one more than the position up to which it has applied the
/// log. 0 if no next owner has applied the log.
pub const FINAL_WORD: usize = 16;

/// Index of the word that the next owner sets to 1, before [`FINAL_WORD`], if it could not apply an entry.
pub const FAILED_WORD: usize = 24;

/// The detail in an [`EntryHead`] if the Op needs none.
pub const NO_DETAIL: u64 = u64::MAX;

/// Number of generations that a service gives to a log at once.
pub const GENERATIONS: u64 = 1 << 20;

/// The start of an entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryHead {
    /// Bytes of the entry with its head, a multiple of 16.
    pub bytes: u32,
    /// Bytes of the encoded Op. 0 for an entry that fills the rest of the ring.
    pub op_bytes: u32,
    /// A number on which the client based its answer to its program: the size of the file before an append,
    /// in bytes; the generation of a new object; the id of the object whose name is removed or moved.
    /// [`NO_DETAIL`] for other Ops.
    pub detail: u64,
}

/// Returns an upper bound of the storage that an entry of this size needs, in bytes: the pages of its bytes,
/// pages that it fills in part, nodes of the tree of its file, and pages of a directory.
pub fn storage_of_entry(bytes: u64) -> u64 {
    bytes.next_multiple_of(4096) + (32 << 10)
}

/// Size of the head of an entry, in bytes.
pub const ENTRY_HEAD_BYTES: usize = size_of::<EntryHead>();
