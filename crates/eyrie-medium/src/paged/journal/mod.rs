//! The journal of a paged volume: records of whole cuts behind the volume's own bytes.
//!
//! A record lists the *fresh* pages of its cut, which are written to their places together with it, each with
//! its checksum. It also has the changed lines of all other pages of the cut. A record is valid when its
//! checksum is right. The last record is valid only if its fresh pages match their checksums, too, because no
//! flush separates them from it. Records have consecutive sequence numbers. When every page in them is in its
//! place, the journal gets a new name, and the next record overwrites the first.
//!
//! Safe when power fails: a record is whole or not valid, and is durable before a page is changed because of
//! it. A second replay has the same result as the first: a line comes from the last record that has it, and a
//! page that a later record lists as fresh comes from its place alone.

mod anchor;
pub(crate) mod layout;
mod lines;
mod record;
mod replay;
#[cfg(test)]
mod tests;

pub use layout::{Anchor, ChangedPage, FreshPage, RecordHead};
pub(super) use layout::{MOST_JOURNAL_BYTES, PACKED_LINE, PageBytes, page_buffer};
pub(super) use record::CutRecord;
pub(super) use replay::{replay, replay_own};
