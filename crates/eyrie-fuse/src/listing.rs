//! Listings: the entries of a directory with `.` and `..`, which a volume does not store.

use eyrie::{NodeEntry, ObjectId};
use fuser::INodeNo;

use crate::adapter::Adapter;
use crate::answer::{Answer, OrErrno};

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
        // An entry whose object cannot be held is left out of the reply.
        let is_shown = entry.node.is_some() || !hold;
        let is_full = add(next, ListedNode::Entry(entry));
        has_entries |= is_shown && !is_full;
        !is_full
    });
    if !has_entries {
        listed.or_errno()?;
    }
    adapter.mark_listed(dir);
    Ok(())
}
