//! Bytes of a block of extended attributes. `docs/format.md` describes them; a test compares the two.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::op::{XATTR_LIST_MAX, XATTR_SIZE_MAX};

/// The start of a block; its entries follow, one right after another.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Debug)]
#[repr(C)]
pub struct BlockHead {
    /// Bytes of the block, this head included.
    pub bytes: U32,
    /// Number of entries, at least 1.
    pub count: U32,
}

/// The start of an entry; its name and its value follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Debug)]
#[repr(C)]
pub struct EntryHead {
    /// Bytes of the value.
    pub value_bytes: U32,
    /// Bytes of the name, 1 to 255.
    pub name_bytes: U16,
}

const _: () = assert!(size_of::<BlockHead>() == 8 && size_of::<EntryHead>() == 6);

/// What the attributes of one object have together.
#[derive(Default)]
pub struct Sums {
    /// Bytes of the names, with one more each.
    names: usize,
    /// Bytes of the values.
    values: usize,
}

impl Sums {
    /// Counts an attribute; whether an object may have so much.
    pub fn add(&mut self, name_bytes: usize, value_bytes: usize) -> bool {
        self.names += name_bytes + 1;
        self.values += value_bytes;
        self.names <= XATTR_LIST_MAX && self.values <= XATTR_SIZE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::{assert_described, fields};

    #[test]
    fn the_format_description_agrees_with_blocks_of_extended_attributes() {
        let head = fields!(BlockHead { bytes, count });
        assert_described("Block of extended attributes", size_of::<BlockHead>(), &head);
        let entry = fields!(EntryHead { value_bytes, name_bytes });
        assert_described("Entry of a block", size_of::<EntryHead>(), &entry);
    }
}
