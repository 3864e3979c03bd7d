//! Bytes of a block of extended attributes. `docs/format.md` describes these bytes, and a test compares the
//! description with the structures here.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::op::{XATTR_LIST_MAX, XATTR_SIZE_MAX};

/// The start of a block. The entries follow without gaps.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Debug)]
#[repr(C)]
pub(crate) struct XattrBlockHead {
    /// Length of the block in bytes, including this head.
    pub bytes: U32,
    /// Number of entries, at least 1.
    pub count: U32,
}

/// The start of an entry. The name and the value follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Debug)]
#[repr(C)]
pub(crate) struct XattrEntryHead {
    /// Length of the value in bytes.
    pub value_bytes: U32,
    /// Length of the name in bytes, 1 to 255.
    pub name_bytes: U16,
}

const _: () = assert!(size_of::<XattrBlockHead>() == 8 && size_of::<XattrEntryHead>() == 6);

/// The total sizes of the attributes of one object. Both totals are limited.
#[derive(Default)]
pub(crate) struct XattrSums {
    /// Bytes of the names, plus one byte for each name, as in the list that Linux returns.
    names: usize,
    /// Bytes of the values.
    values: usize,
}

impl XattrSums {
    /// Adds the sizes of an attribute. Returns false if a total is then too large for one object.
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
    fn format_page_matches_xattr_blocks() {
        let head = fields!(XattrBlockHead { bytes, count });
        assert_described("Block of extended attributes", size_of::<XattrBlockHead>(), &head);
        let entry = fields!(XattrEntryHead { value_bytes, name_bytes });
        assert_described("Entry of a block", size_of::<XattrEntryHead>(), &entry);
    }
}
