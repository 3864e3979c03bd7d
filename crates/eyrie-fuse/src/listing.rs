//! Listings: the entries of a directory with `.` and `..`, which a volume does not store.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use eyrie::{NodeEntry, ObjectId};
use fuser::{Generation, INodeNo, ReplyDirectoryPlus};

use crate::adapter::Adapter;
use crate::answer::{Answer, OrErrno, entry_life};
use crate::convert::{attributes, unreadable};

/// Number of the entries `.` and `..`, whose offsets are 1 and 2. The offset of any other entry is its cookie
/// plus this number.
const DOTS: u64 = 2;

/// An entry of a listing.
pub(crate) enum ListedNode<'a> {
    /// `.` or `..`, with its directory.
    Dot(&'static str, ObjectId),
    Entry(NodeEntry<'a>),
}

/// Lists a directory from `offset` on, with `.` and `..`. Calls `add` with the offset after each entry, until
/// `add` returns true because the reply is full. An error after the first entry ends the listing as a full
/// reply does, because the kernel must learn of the entries that are held. The next request gets the error.
pub(crate) fn list(
    adapter: &Adapter,
    number: INodeNo,
    offset: u64,
    hold: bool,
    mut add: impl FnMut(u64, ListedNode<'_>) -> bool,
) -> Answer<()> {
    let (nodes, dir) = (&adapter.nodes, adapter.object(number)?);
    let parent = if offset < DOTS { nodes.parent(dir).unwrap_or(dir) } else { dir };
    for (next, name, id) in [(1, ".", dir), (2, "..", parent)] {
        if offset < next && add(next, ListedNode::Dot(name, id)) {
            return Ok(());
        }
    }
    let mut has_entries = false;
    let listed = nodes.list(dir, offset.saturating_sub(DOTS), hold, &mut |entry| {
        let next = entry.next + DOTS;
        let is_full = add(next, ListedNode::Entry(entry));
        has_entries |= !is_full;
        !is_full
    });
    if !has_entries {
        listed.or_errno()?;
    }
    adapter.mark_listed(dir);
    Ok(())
}

/// Lists a directory from `offset` on, with the attributes of each entry.
pub(crate) fn list_with_attributes(
    adapter: &Adapter,
    number: INodeNo,
    offset: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Answer<()> {
    let life = entry_life(number);
    list(adapter, number, offset, true, |next, entry| match entry {
        // For `.` and `..` the kernel holds no node, and needs only the number.
        ListedNode::Dot(name, id) => {
            let Ok(node) = adapter.nodes.node(id) else { return false };
            let attributes = attributes(&node, adapter.numbers.of(id));
            reply.add(attributes.ino, next, name, &Duration::ZERO, &attributes, Generation(0))
        }
        ListedNode::Entry(NodeEntry { name, node: Some(node), .. }) => {
            let (number, generation) = (adapter.numbers.of(node.id), adapter.numbers.generation(&node));
            let attributes = attributes(&node, number);
            reply.add(number, next, OsStr::from_bytes(name), &life, &attributes, generation)
        }
        // The object is damaged, or another thread has just removed the entry. A listing without attributes
        // shows the entry, too. A look-up of the name then tells the error.
        ListedNode::Entry(NodeEntry { name, id, .. }) => {
            let (name, attributes) = (OsStr::from_bytes(name), unreadable(id));
            reply.add(attributes.ino, next, name, &Duration::ZERO, &attributes, Generation(0))
        }
    })
}
