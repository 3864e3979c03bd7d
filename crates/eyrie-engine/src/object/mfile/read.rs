//! Reading an mFile. Callers check the header's version around it.

use eyrie_medium::{Addr, Medium, PAGE_SIZE};

use super::tree::{FANOUT, MAX_HEIGHT, Under, root_extent, slot_addr, slot_of, span, start_of, under};
use crate::object::pointer::Pointer;
use crate::{Error, Result};

/// What lies at an offset, and for how many bytes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Bytes at an address.
    Data(Addr, u64),
    /// Zeros.
    Hole(u64),
}

impl Piece {
    fn len(self) -> u64 {
        match self {
            Piece::Data(_, len) | Piece::Hole(len) => len,
        }
    }
}

/// The piece of the tree under `root` that `offset` is in.
///
/// # Errors
/// `Corrupt`, `Fault`.
#[inline]
pub fn find(medium: &Medium, root: Pointer, offset: u64) -> Result<Piece> {
    let mut level = root.height();
    let mut at = Addr::NULL;
    if level == 0 {
        let Some(extent) = root_extent(root, at)? else { return Ok(Piece::Hole(u64::MAX - offset)) };
        let bytes = extent.bytes();
        return Ok(match offset < bytes {
            true => Piece::Data(extent.addr.add(offset), bytes - offset),
            false => Piece::Hole(u64::MAX - offset),
        });
    }
    if level > MAX_HEIGHT || offset >= span(level) {
        return Ok(Piece::Hole(u64::MAX - offset));
    }
    let mut pointer = root.with_height(0);
    let mut within = offset;
    loop {
        match under(pointer, level, at)? {
            Under::Hole | Under::Unwritten(_) => return Ok(Piece::Hole(span(level) - within)),
            Under::Leaf(extent) => return Ok(Piece::Data(extent.addr.add(within), span(level) - within)),
            Under::Node(node) => {
                at = slot_addr(node, slot_of(level, within));
                level -= 1;
                within %= span(level);
                pointer = Pointer::from_raw(medium.load(at)?);
            }
        }
    }
}

/// Reads from `offset` on; the number of bytes, less than asked only at `size`.
///
/// # Errors
/// `Corrupt`, `Fault`.
#[inline]
pub fn read(medium: &Medium, root: Pointer, size: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
    if offset >= size {
        return Ok(0);
    }
    let wanted = (size - offset).min(out.len() as u64) as usize;
    let mut done = 0;
    while done < wanted {
        let piece = find(medium, root, offset + done as u64)?;
        let len = piece.len().min((wanted - done) as u64) as usize;
        let part = &mut out[done..done + len];
        match piece {
            Piece::Data(addr, _) => medium.read(addr, part)?,
            Piece::Hole(_) => part.fill(0),
        }
        done += len;
    }
    Ok(wanted)
}

/// The next offset from `offset` on that holds data, or that begins a hole (the end counts as one). `None` past the
/// end, and where no data follows.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn seek(medium: &Medium, root: Pointer, size: u64, offset: u64, hole: bool) -> Result<Option<u64>> {
    let mut at = offset;
    // Every piece of data has a page of its own, and every hole a slot of a node: a tree with more pieces repeats itself.
    let pages = medium.segment_sizes().sum::<u64>() / PAGE_SIZE;
    let mut pieces = if hole { pages } else { pages * FANOUT as u64 };
    while at < size {
        let piece = find(medium, root, at)?;
        if matches!(piece, Piece::Hole(_)) == hole {
            return Ok(Some(at));
        }
        if piece.len() == 0 {
            return Err(Error::corrupt(Addr::NULL, "empty piece of a file"));
        }
        if pieces == 0 {
            return Err(Error::corrupt(Addr::NULL, "more pieces of a file than the volume has room for"));
        }
        pieces -= 1;
        at = at.saturating_add(piece.len());
    }
    Ok((hole && offset < size).then_some(size))
}

/// Where all bytes of a file lie, if in one place: address and length.
///
/// # Errors
/// `Corrupt`.
#[inline]
pub fn single(root: Pointer, size: u64) -> Result<Option<(Addr, u64)>> {
    if size == 0 {
        return Ok(Some((Addr::NULL, 0)));
    }
    if root.height() != 0 {
        return Ok(None);
    }
    let extent = root_extent(root, Addr::NULL)?;
    Ok(extent.filter(|extent| size <= extent.bytes()).map(|extent| (extent.addr, size)))
}

/// Nodes of a tree that are looked at to count what it takes; pages under others count whether they are there or not.
const MOST_COUNTED: usize = 256;

/// Bytes of storage under a root. Holes are looked for if there may be some.
///
/// # Errors
/// `Corrupt`, `Fault`.
#[inline]
pub fn allocated(medium: &Medium, root: Pointer, size: u64, may_have_holes: bool) -> Result<u64> {
    match root.extent() {
        None => Ok(0),
        Some(extent) if root.height() == 0 => Ok(extent.bytes()),
        Some(_) if may_have_holes && root.height() <= MAX_HEIGHT => {
            let mut nodes = MOST_COUNTED;
            counted(medium, root.with_height(0), root.height(), size, &mut nodes)
        }
        Some(_) => Ok(pages(size, root.height())),
    }
}

/// Bytes of the pages up to `size` under a pointer at `level`, if all are there.
fn pages(size: u64, level: u8) -> u64 {
    size.min(span(level)).next_multiple_of(PAGE_SIZE)
}

/// Bytes of the pages that are there under one pointer, as long as `nodes` may be looked at; `size` counts from its
/// start.
#[cold]
fn counted(medium: &Medium, pointer: Pointer, level: u8, size: u64, nodes: &mut usize) -> Result<u64> {
    let addr = match under(pointer, level, Addr::NULL)? {
        Under::Hole => return Ok(0),
        Under::Node(addr) if *nodes > 0 => addr,
        Under::Leaf(_) | Under::Unwritten(_) | Under::Node(_) => return Ok(pages(size, level)),
    };
    *nodes -= 1;
    let node = medium.words(addr, FANOUT)?;
    let visible = size.div_ceil(span(level - 1)).min(FANOUT as u64) as usize;
    let mut bytes = 0;
    for slot in 0..visible {
        let pointer = Pointer::from_raw(node.load(slot));
        if !pointer.is_null() {
            bytes += counted(medium, pointer, level - 1, size - start_of(level, slot), nodes)?;
        }
    }
    Ok(bytes)
}
