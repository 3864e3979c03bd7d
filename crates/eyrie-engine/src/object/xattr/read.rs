//! Reading blocks, which are hostile until checked: every entry is, before it is shown.

use eyrie_medium::{Addr, Medium};
use smallvec::SmallVec;

use super::layout::{BlockHead, EntryHead, Sums};
use crate::object::pointer::{Extent, Pointer};
use crate::op::XATTR_NAME_MAX;
use crate::{Error, Result};

/// Where the value of an attribute is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// First byte.
    pub addr: Addr,
    /// How many bytes.
    pub bytes: usize,
}

/// The extent that `root` points to; `None` where there are no attributes.
///
/// # Errors
/// `Corrupt` when the pointer can be none to a block.
pub fn extent(root: Pointer) -> Result<Option<Extent>> {
    if root == Pointer::NULL {
        return Ok(None);
    }
    let extent = root.extent().filter(|&extent| root == Pointer::leaf(extent));
    extent.map(Some).ok_or_else(|| Error::corrupt(Addr::NULL, "pointer to no extended attributes"))
}

/// What is left of a block.
struct Rest {
    at: Addr,
    bytes: u64,
}

impl Rest {
    /// Where the next `bytes` are.
    fn take(&mut self, bytes: usize) -> Result<Addr> {
        let at = self.at;
        self.bytes = self
            .bytes
            .checked_sub(bytes as u64)
            .ok_or_else(|| Error::corrupt(at, "extended attribute that ends behind its block"))?;
        self.at = at.add(bytes as u64);
        Ok(at)
    }
}

/// Shows all attributes under `root`, in the byte order of their names.
///
/// # Errors
/// `Corrupt`, `Fault`, and those of `visit`.
pub fn visit(
    medium: &Medium,
    root: Pointer,
    visit: &mut dyn FnMut(&[u8], Value) -> Result<()>,
) -> Result<()> {
    let Some(extent) = extent(root)? else { return Ok(()) };
    let corrupt = |what| Err(Error::corrupt(extent.addr, what));
    let head: BlockHead = medium.read_value(extent.addr)?;
    let mut rest = Rest { at: extent.addr, bytes: head.bytes.get().into() };
    if rest.bytes > extent.bytes() {
        return corrupt("extended attributes larger than their extent");
    }
    rest.take(size_of::<BlockHead>())?;
    let mut sums = Sums::default();
    let mut count = 0;
    let mut last: SmallVec<[u8; 64]> = SmallVec::new();
    let mut buffer = [0; XATTR_NAME_MAX];
    while rest.bytes > 0 {
        let head: EntryHead = medium.read_value(rest.take(size_of::<EntryHead>())?)?;
        let (name_bytes, value_bytes) = (head.name_bytes.get().into(), head.value_bytes.get() as usize);
        let Some(name) = buffer.get_mut(..name_bytes) else {
            return corrupt("name of an extended attribute of more than 255 bytes");
        };
        medium.read(rest.take(name_bytes)?, name)?;
        let value = Value { addr: rest.take(value_bytes)?, bytes: value_bytes };
        // The empty name is before all others, so it is refused here too.
        if &*name <= last.as_slice() {
            return corrupt("extended attributes out of order");
        }
        if !sums.add(name_bytes, value_bytes) {
            return corrupt("more extended attributes than an object may have");
        }
        count += 1;
        visit(name, value)?;
        last = SmallVec::from_slice(name);
    }
    if count != head.count.get() || count == 0 {
        return corrupt("another number of extended attributes than there are");
    }
    Ok(())
}

/// The size of the value of `name`, in bytes; the value is then at the start of `out`, if it fits there.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn get(medium: &Medium, root: Pointer, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
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
