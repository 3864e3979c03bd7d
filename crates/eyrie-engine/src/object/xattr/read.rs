//! Reading blocks of extended attributes. Every entry is untrusted, and is checked before a caller sees it.

use eyrie_medium::{Addr, Medium};

use super::layout::{XattrBlockHead, XattrEntryHead, XattrSums};
use crate::extent::Extent;
use crate::object::header::{Cold, Header};
use crate::object::pointer::Pointer;
use crate::op::XATTR_NAME_MAX;
use crate::{Error, Result};

/// The location of an extended attribute's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct XattrValue {
    /// Address of the first byte.
    pub addr: Addr,
    /// Number of bytes.
    pub bytes: usize,
}

/// The pointer to an object's block, as the header stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrRoot {
    pub(super) pointer: Pointer,
    /// Address of the header. Errors name this address if the pointer is corrupt.
    pub(super) at: Addr,
}

impl XattrRoot {
    /// Returns the root in a header's cold attributes.
    #[inline]
    pub fn of(header: Header, cold: &Cold) -> XattrRoot {
        XattrRoot { pointer: cold.xattrs(), at: header.addr() }
    }

    /// Returns the extent of the block, or `None` if the object has no extended attributes.
    ///
    /// # Errors
    /// `Corrupt` if the pointer cannot lead to a block.
    #[inline]
    pub fn extent(self) -> Result<Option<Extent>> {
        let XattrRoot { pointer, at } = self;
        if pointer == Pointer::NULL {
            return Ok(None);
        }
        let extent = pointer.extent().filter(|&extent| pointer == Pointer::leaf(extent));
        extent.map(Some).ok_or_else(|| Error::corrupt(at, "bad pointer to extended attributes"))
    }
}

/// The unread rest of a block.
struct BlockRest {
    at: Addr,
    bytes: u64,
}

impl BlockRest {
    /// Skips the next `bytes` bytes, and returns their address.
    fn skip(&mut self, bytes: usize) -> Result<Addr> {
        let at = self.at;
        self.bytes = self
            .bytes
            .checked_sub(bytes as u64)
            .ok_or_else(|| Error::corrupt(at, "extended attribute beyond the end of its block"))?;
        self.at = at.add(bytes as u64);
        Ok(at)
    }
}

/// Calls `visit` with all attributes under `root`, sorted by the bytes of their names.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `visit`.
pub fn visit(
    medium: &Medium,
    root: XattrRoot,
    visit: &mut dyn FnMut(&[u8], XattrValue) -> Result<()>,
) -> Result<()> {
    let Some(extent) = root.extent()? else { return Ok(()) };
    let corrupt = |what| Err(Error::corrupt(extent.addr, what));
    let head: XattrBlockHead = medium.read_value(extent.addr)?;
    let mut rest = BlockRest { at: extent.addr, bytes: head.bytes.get().into() };
    if rest.bytes > extent.bytes() {
        return corrupt("extended attributes larger than their extent");
    }
    rest.skip(size_of::<XattrBlockHead>())?;
    let mut sums = XattrSums::default();
    let mut count = 0;
    // The previous name and the current name take turns in two buffers, so names of any length need no
    // allocation.
    let (mut last, mut buffer) = ([0; XATTR_NAME_MAX], [0; XATTR_NAME_MAX]);
    let mut last_bytes = 0;
    while rest.bytes > 0 {
        let head: XattrEntryHead = medium.read_value(rest.skip(size_of::<XattrEntryHead>())?)?;
        let (name_bytes, value_bytes) = (head.name_bytes.get().into(), head.value_bytes.get() as usize);
        let Some(name) = buffer.get_mut(..name_bytes) else {
            return corrupt("extended attribute whose name has more than 255 bytes");
        };
        medium.read(rest.skip(name_bytes)?, name)?;
        let value = XattrValue { addr: rest.skip(value_bytes)?, bytes: value_bytes };
        // The empty name sorts before all other names, so this check also refuses an empty name.
        if *name <= last[..last_bytes] {
            return corrupt("extended attributes out of order");
        }
        if !sums.add(name_bytes, value_bytes) {
            return corrupt("more extended attributes than an object may have");
        }
        count += 1;
        visit(name, value)?;
        std::mem::swap(&mut last, &mut buffer);
        last_bytes = name_bytes;
    }
    if count != head.count.get() || count == 0 {
        return corrupt("wrong number of extended attributes");
    }
    Ok(())
}

/// Returns a copy of the value of `name`, or `None` if the object has no such attribute.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn value(medium: &Medium, root: XattrRoot, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    visit(medium, root, &mut |other, value| {
        if other == name {
            let mut bytes = vec![0; value.bytes];
            medium.read(value.addr, &mut bytes)?;
            found = Some(bytes);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the size in bytes of the value of `name`, or `None` if the object has no such attribute. Copies
/// the value to the start of `out` if `out` is large enough.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn get(medium: &Medium, root: XattrRoot, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
    let mut found = None;
    visit(medium, root, &mut |other, value| {
        if other == name {
            if let Some(out) = out.get_mut(..value.bytes) {
                medium.read(value.addr, out)?;
            }
            found = Some(value.bytes);
        }
        Ok(())
    })?;
    Ok(found)
}
