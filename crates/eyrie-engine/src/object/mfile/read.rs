//! Reading an mFile. A caller compares the header's selector before and after a read, and reads again if the
//! selector changed.

use std::cell::Cell;

use eyrie_medium::{Addr, Medium, PAGE_SIZE};

use super::tree::{
    FANOUT, FileTree, MAX_HEIGHT, MAX_LEAF_POINTER_LEVEL, Subtree, Under, slot_addr, slot_of, span, start_of,
};
use crate::extent::Extent;
use crate::object::pointer::Pointer;
use crate::{Error, Result};

/// A contiguous piece of a file that begins at a given offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FilePiece {
    /// An extent with stored data, and the offset in the extent at which the piece begins. The piece extends
    /// to the end of the extent.
    Data(Extent, u64),
    /// Number of bytes that read as zeros and have no stored data.
    Hole(u64),
}

impl FilePiece {
    fn len(self) -> u64 {
        match self {
            FilePiece::Data(extent, from) => extent.bytes() - from,
            FilePiece::Hole(len) => len,
        }
    }

    /// True if `next` has data at the address that follows the first `len` bytes of this piece.
    fn goes_on_with(self, len: u64, next: FilePiece) -> bool {
        match (self, next) {
            (FilePiece::Data(extent, from), FilePiece::Data(next, at)) => {
                extent.addr.add(from + len) == next.addr.add(at)
            }
            _ => false,
        }
    }
}

/// Returns the piece of a file that begins at `offset`.
///
/// # Errors
/// `Corrupt`, `Fault`.
#[inline]
pub fn find(medium: &Medium, file: FileTree, offset: u64) -> Result<FilePiece> {
    let level = file.root.height();
    if level == 0 {
        let Some(extent) = file.root_extent()? else { return Ok(FilePiece::Hole(u64::MAX - offset)) };
        let bytes = extent.bytes();
        return Ok(match offset < bytes {
            true => FilePiece::Data(extent, offset),
            false => FilePiece::Hole(u64::MAX - offset),
        });
    }
    if level > MAX_HEIGHT {
        return Err(file.impossible_height());
    }
    if offset >= span(level) {
        return Ok(FilePiece::Hole(u64::MAX - offset));
    }
    let mut subtree = file.subtree();
    let mut within = offset;
    loop {
        let level = subtree.level;
        match subtree.look()? {
            Under::Hole | Under::Unwritten(_) => return Ok(FilePiece::Hole(span(level) - within)),
            Under::Leaf(extent) | Under::Shared(extent) => return Ok(FilePiece::Data(extent, within)),
            Under::Node(node) => {
                let at = slot_addr(node, slot_of(level, within));
                within %= span(level - 1);
                subtree = Subtree { pointer: Pointer::from_raw(medium.load(at)?), level: level - 1, at };
            }
        }
    }
}

/// Reads bytes from `offset` on, and returns their number. This number is below `out.len()` only at the end
/// of the file.
///
/// # Errors
/// `Corrupt`, `Fault`.
#[inline]
pub fn read(medium: &Medium, file: FileTree, offset: u64, out: &mut [u8]) -> Result<usize> {
    if offset >= file.size {
        return Ok(0);
    }
    let wanted = (file.size - offset).min(out.len() as u64) as usize;
    let out = &mut out[..wanted];
    let piece = find(medium, file, offset)?;
    if piece.len() < wanted as u64 {
        read_pieces(medium, file, offset, piece, out)?;
    } else {
        if file.root.height() > 0 {
            prefetch_sequential(medium, file, offset, wanted as u64);
        }
        read_piece(medium, piece, out)?;
    }
    Ok(wanted)
}

/// Reads the first bytes of a piece.
#[inline]
fn read_piece(medium: &Medium, piece: FilePiece, out: &mut [u8]) -> Result<()> {
    match piece {
        FilePiece::Data(extent, from) => medium.read(extent.addr.add(from), out)?,
        FilePiece::Hole(_) => out.fill(0),
    }
    Ok(())
}

/// A copy is extended by neighbouring pieces until it has at least this number of bytes.
const COPY_BYTES: u64 = span(MAX_LEAF_POINTER_LEVEL);

/// Reads several pieces, of which the first one is `piece`. Pieces with consecutive addresses are read by one
/// copy. The beginning of the next piece is fetched into the caches during each copy.
fn read_pieces(
    medium: &Medium,
    file: FileTree,
    mut offset: u64,
    mut piece: FilePiece,
    mut out: &mut [u8],
) -> Result<()> {
    loop {
        let left = out.len() as u64;
        let mut len = piece.len().min(left);
        let mut next = None;
        while len < left {
            let following = find(medium, file, offset + len)?;
            if len >= COPY_BYTES || !piece.goes_on_with(len, following) {
                prefetch_piece(medium, following);
                next = Some(following);
                break;
            }
            len += following.len().min(left - len);
        }
        let (here, rest) = out.split_at_mut(len as usize);
        read_piece(medium, piece, here)?;
        let Some(following) = next else { return Ok(()) };
        (piece, offset, out) = (following, offset + len, rest);
    }
}

/// Fetches the first page of a piece into the caches. The processor itself fetches only addresses that follow
/// one another, and stops at the end of a page.
fn prefetch_piece(medium: &Medium, piece: FilePiece) {
    if let FilePiece::Data(extent, from) = piece {
        medium.prefetch_bytes(extent.addr.add(from), PAGE_SIZE.min(extent.bytes() - from));
    }
}

thread_local! {
    /// The file and the offset at which the previous read of this thread ended, as one number. A read is
    /// recorded here only if it lies within one piece of a file with a tree. Two different ends of reads may
    /// have the same number. Then a prefetch is useless, but does no harm.
    static READ_END: Cell<u64> = const { Cell::new(0) };
}

/// If a read begins where the previous read of this thread ended, fetches the bytes after the read into the
/// caches, but no more than a page.
#[inline]
fn prefetch_sequential(medium: &Medium, file: FileTree, offset: u64, len: u64) {
    let number = |offset: u64| file.at.raw().rotate_left(32) ^ offset;
    let end = offset + len;
    // A failure needs no report. The read of these bytes finds the same error.
    if READ_END.replace(number(end)) == number(offset)
        && end < file.size
        && let Ok(FilePiece::Data(extent, from)) = find(medium, file, end)
    {
        medium.prefetch_bytes(extent.addr.add(from), len.min(PAGE_SIZE).min(extent.bytes() - from));
    }
}

/// Returns the first offset, at or after `offset`, that has data. If `hole` is true, returns instead the
/// first offset, at or after `offset`, that is in a hole. The end of the file counts as a hole. Returns
/// `None` if `offset` is at or past the end, or if no data follows. `shares` is true if several pointers may
/// lead to a page of the volume.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn seek(medium: &Medium, file: FileTree, offset: u64, hole: bool, shares: bool) -> Result<Option<u64>> {
    let size = file.size;
    let mut at = offset;
    // Every hole has a slot of a node, and every piece of data has a page of its own, or a slot if it shares
    // the page. A tree with more pieces than the volume can hold must use some page more than once.
    let pages = medium.segment_sizes().sum::<u64>() / PAGE_SIZE;
    let mut pieces = if hole && !shares { pages } else { pages * FANOUT as u64 };
    while at < size {
        // As in Linux, a page with some data has no hole. Its extent may be shorter than the page.
        let page = at / PAGE_SIZE * PAGE_SIZE;
        let piece = find(medium, file, page)?;
        if matches!(piece, FilePiece::Hole(_)) == hole {
            return Ok(Some(at));
        }
        if piece.len() == 0 {
            return Err(Error::corrupt(file.at, "empty piece of a file"));
        }
        if pieces == 0 {
            return Err(Error::corrupt(file.at, "more pieces of a file than the volume has room for"));
        }
        pieces -= 1;
        at = page.saturating_add(piece.len()).checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX);
    }
    Ok((hole && offset < size).then_some(size))
}

/// Returns true if a page of the file, or a page past its end, has storage, written or not.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn has_storage(medium: &Medium, file: FileTree) -> Result<bool> {
    match file.root.height() {
        0 => Ok(file.root_extent()?.is_some()),
        height if height <= MAX_HEIGHT => {
            // Every node has a page of its own.
            let mut nodes = medium.segment_sizes().sum::<u64>() / PAGE_SIZE;
            has_leaf(medium, file.subtree(), file.storage_end(), &mut nodes)
        }
        _ => Err(file.impossible_height()),
    }
}

/// Returns true if a leaf is under one pointer. Pointers from `end` on have no meaning. `end` counts from the
/// start of the subtree. Reads at most `nodes` nodes.
fn has_leaf(medium: &Medium, subtree: Subtree, end: u64, nodes: &mut u64) -> Result<bool> {
    let addr = match subtree.look()? {
        Under::Hole => return Ok(false),
        Under::Leaf(_) | Under::Shared(_) | Under::Unwritten(_) => return Ok(true),
        Under::Node(addr) => addr,
    };
    if *nodes == 0 {
        return Err(Error::corrupt(subtree.at, "more nodes of a file than the volume has room for"));
    }
    *nodes -= 1;
    let level = subtree.level - 1;
    for slot in 0..FANOUT {
        let (start, at) = (start_of(subtree.level, slot), slot_addr(addr, slot));
        if start >= end {
            break;
        }
        let child = Subtree { pointer: Pointer::from_raw(medium.load(at)?), level, at };
        if has_leaf(medium, child, end - start, nodes)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the address and length of stored bytes from `offset` on, up to `end`. Extents whose addresses
/// follow one another count as one. The length is 0 in a hole, and at and past the end of the file.
///
/// `require` returns an error for an extent that cannot be an extent of an object.
///
/// # Errors
/// The errors of `require`; `Corrupt`, `Fault`.
#[inline]
pub fn contiguous(
    medium: &Medium,
    file: FileTree,
    (offset, end): (u64, u64),
    require: impl Fn(Extent) -> Result<()>,
) -> Result<(Addr, u64)> {
    let end = end.min(file.size);
    // Most values of keys and most small files are one extent.
    if file.root.height() == 0
        && let Some(extent) = file.root_extent()?
        && offset < end
        && end <= extent.bytes()
    {
        require(extent)?;
        return Ok((extent.addr.add(offset), end - offset));
    }
    let (mut first, mut len) = (Addr::NULL, 0);
    while offset + len < end {
        let piece = find(medium, file, offset + len)?;
        let FilePiece::Data(extent, from) = piece else { break };
        let addr = extent.addr.add(from);
        if len == 0 {
            first = addr;
        } else if addr != first.add(len) {
            break;
        }
        require(extent)?;
        len += piece.len().min(end - offset - len);
    }
    Ok((first, len))
}

/// Maximum number of nodes that one count of storage reads. This limit bounds the cost of `stat`. Below a
/// node that is not read, every page counts as allocated.
const MAX_COUNTED: usize = 256;

/// Returns the number of bytes of storage under a root, without the nodes. Searches for holes, and for
/// storage past the end, only if the file may have them.
///
/// # Errors
/// `Corrupt`, `Fault`.
#[inline]
pub fn allocated(medium: &Medium, file: FileTree, may_have_holes: bool) -> Result<u64> {
    let FileTree { root, size, .. } = file;
    match (root.height(), root.extent()) {
        (0, extent) => Ok(extent.map_or(0, Extent::bytes)),
        (height, _) if height > MAX_HEIGHT => Err(file.impossible_height()),
        (_, None) => Ok(0),
        (_, Some(_)) if may_have_holes || root.is_preallocated() => {
            let mut nodes = MAX_COUNTED;
            counted(medium, file.subtree(), file.storage_end(), &mut nodes)
        }
        (height, Some(_)) => Ok(pages(size, height)),
    }
}

/// Returns the bytes of the pages up to `size` under a pointer at `level`, for a subtree without holes.
fn pages(size: u64, level: u8) -> u64 {
    size.min(span(level)).next_multiple_of(PAGE_SIZE)
}

/// Returns the bytes of the allocated pages under one pointer. Reads at most `nodes` nodes. Pointers from
/// `end` on have no meaning. `end` counts from the start of the subtree.
#[cold]
fn counted(medium: &Medium, subtree: Subtree, end: u64, nodes: &mut usize) -> Result<u64> {
    let level = subtree.level;
    let addr = match subtree.look()? {
        Under::Hole => return Ok(0),
        Under::Node(addr) if *nodes > 0 => addr,
        Under::Leaf(_) | Under::Shared(_) | Under::Unwritten(_) | Under::Node(_) => {
            return Ok(pages(end, level));
        }
    };
    *nodes -= 1;
    let node = medium.words(addr, FANOUT)?;
    let valid = end.div_ceil(span(level - 1)).min(FANOUT as u64) as usize;
    let mut bytes = 0;
    // The last nodes are read first, because the nodes near the end of the storage are the least full ones.
    for slot in (0..valid).rev() {
        let pointer = Pointer::from_raw(node.load(slot));
        if !pointer.is_null() {
            let child = Subtree { pointer, level: level - 1, at: slot_addr(addr, slot) };
            bytes += counted(medium, child, end - start_of(level, slot), nodes)?;
        }
    }
    Ok(bytes)
}
