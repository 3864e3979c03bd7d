//! The journal of a paged volume. On the disk it comes after the pages of the volume and their checksum
//! pages. It consists of records. Each record describes all changes of one cut.
//!
//! A record lists the numbers and checksums of those *fresh* pages of its cut that a drain writes straight to
//! their places, together with the record. The record also has the changed lines of all other pages of the
//! cut. On a volume with checksums the record has the checksums of these pages, too, and a replay stores the
//! checksums of all listed pages in the checksum pages.
//!
//! A record is valid if its checksum, its sequence number and the name of its journal are right. The last
//! record is valid only if its fresh pages match their checksums, too. The reason is that no flush separates
//! the writes of these pages from the write of the record. Records have consecutive sequence numbers. A
//! checkpoint or a replay writes every page with lines in a record to its place. The journal then gets a new
//! random name, and the next record overwrites the first. Every record carries the name of its journal, so
//! replay ignores the records that remain with an earlier name.
//!
//! A record that is larger than the journal overflows to free pages of the volume. The record lists the
//! numbers and checksums of these pages, and is valid only if the pages match. The drain applies such a
//! record immediately and then gives the journal a new name, so no record follows it.
//!
//! The journal is safe when power fails. A record is whole or not valid, and a record is durable before
//! replay writes its lines to their pages. A second replay has the same result as the first. Each line comes
//! from the last record that has this line. If a later record lists a page as fresh, replay ignores the older
//! lines of the page and keeps the bytes in its place.
//!
//! A replay fails if the disk cannot read a record, the place after the last record, or a page that a record
//! lists. The unreadable sector may belong to a durable record, and a later attempt may read it. So the
//! journal does not end there, as it does at a wrong checksum. Read errors elsewhere in the journal do not
//! matter.

mod anchor;
pub(crate) mod layout;
mod lines;
mod record;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use layout::MAX_JOURNAL_BYTES;
pub use layout::{Anchor, ChangedPage, FreshPage, RecordHead};
pub(super) use layout::{MAX_OVERFLOW_BYTES, PACKED_LINE};
pub(super) use record::CutRecord;
pub(super) use replay::{replay, replay_own};
