//! Pointers. A pointer is one 64-bit word that names an extent and describes it.
//!
//! Bits 56 to 63 are the size class, bits 6 to 55 the address, which is a multiple of 64. Bit 0 means leaf
//! (the extent is for data), bit 1 shared (other pointers may lead to the same pages), bit 2 unwritten (the
//! data read as zeros). If the root of a file leads to a node, bit 2 of the root means that the file may have
//! storage past its end. Only a root has a height, in bits 3 to 5. The class is part of the pointer, so an
//! extent can be freed or filled without another read.

use eyrie_medium::Addr;

use crate::extent::{Class, Extent};

/// A pointer in its stored form: an extent and the kind of its contents, or no extent. Without an extent all
/// bits are 0, except the height of a root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Pointer(u64);

impl Pointer {
    /// No extent. In a file, all bytes under this pointer read as zeros.
    pub const NULL: Pointer = Pointer(0);
    const LEAF: u64 = 1;
    const SHARED: u64 = 1 << 1;
    const UNWRITTEN: u64 = 1 << 2;
    const HEIGHT_SHIFT: u32 = 3;
    const CLASS_SHIFT: u32 = 56;
    const ADDR_MASK: u64 = Addr::MASK & !63;

    /// Makes a pointer to data.
    pub fn leaf(extent: Extent) -> Pointer {
        Pointer(Pointer::to(extent) | Pointer::LEAF)
    }

    /// Makes a pointer to an interior node, to a bucket page, or to the table or a segment of a collection.
    pub fn node(extent: Extent) -> Pointer {
        Pointer(Pointer::to(extent))
    }

    /// Makes a pointer to an unwritten extent: it reads as zeros until the first write.
    pub fn unwritten(extent: Extent) -> Pointer {
        Pointer(Pointer::leaf(extent).0 | Pointer::UNWRITTEN)
    }

    /// Returns the same pointer to data with the shared bit, which says that other pointers may lead to its
    /// pages.
    #[must_use]
    pub(crate) fn shared(self) -> Pointer {
        debug_assert!(self.is_leaf() && !self.is_unwritten());
        Pointer(self.0 | Pointer::SHARED)
    }

    /// Returns a pointer to a piece of the extent of this leaf. The piece is shared or unwritten if the leaf
    /// is.
    #[must_use]
    pub(crate) fn piece(self, extent: Extent) -> Pointer {
        Pointer(Pointer::to(extent) | self.0 & (Pointer::LEAF | Pointer::SHARED | Pointer::UNWRITTEN))
    }

    fn to(extent: Extent) -> u64 {
        debug_assert!(extent.addr.is_aligned(64));
        u64::from(extent.class.raw()) << Pointer::CLASS_SHIFT | extent.addr.raw()
    }

    /// Returns this pointer with its height set to `height` (0 to 7), for the root of a tree with at most
    /// that many levels of nodes.
    #[must_use]
    pub fn with_height(self, height: u8) -> Pointer {
        debug_assert!(height < 8);
        Pointer(self.0 & !(7 << Pointer::HEIGHT_SHIFT) | u64::from(height) << Pointer::HEIGHT_SHIFT)
    }

    /// Returns this pointer with the mark that the file may have storage past its end. The pointer must be
    /// the root of a file, and lead to a node.
    #[must_use]
    pub(crate) fn preallocated(self) -> Pointer {
        debug_assert!(!self.is_leaf() && !self.is_null());
        Pointer(self.0 | Pointer::UNWRITTEN)
    }

    /// True if the pointer is a root node with the mark of [`Pointer::preallocated`].
    #[inline]
    pub(crate) const fn is_preallocated(self) -> bool {
        self.0 & (Pointer::LEAF | Pointer::UNWRITTEN) == Pointer::UNWRITTEN
    }

    /// Returns the pointer of a root without its height and without the mark of [`Pointer::preallocated`].
    #[inline]
    #[must_use]
    pub(crate) const fn below_root(self) -> Pointer {
        let mark = (!self.0 & Pointer::LEAF) << Pointer::UNWRITTEN.trailing_zeros();
        Pointer(self.0 & !(7 << Pointer::HEIGHT_SHIFT | mark))
    }

    /// Returns the height of a root: the maximum number of levels of nodes under it.
    pub const fn height(self) -> u8 {
        (self.0 >> Pointer::HEIGHT_SHIFT & 7) as u8
    }

    /// Returns the pointer with this stored form. The pointer is untrusted. [`Pointer::extent`] checks its
    /// class, and the caller checks its address.
    pub const fn from_raw(raw: u64) -> Pointer {
        Pointer(raw)
    }

    /// Returns the stored form.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// True if the pointer has no extent. A null root may still have a height.
    pub const fn is_null(self) -> bool {
        self.0 & !(7 << Pointer::HEIGHT_SHIFT) == 0
    }

    /// True if the pointer leads to data, written or not. False for a pointer to a structure, and for null.
    pub const fn is_leaf(self) -> bool {
        self.0 & Pointer::LEAF != 0
    }

    /// True if other pointers may lead to pages of the extent. Only leaves of whole pages have this bit.
    pub(crate) const fn is_shared(self) -> bool {
        self.0 & Pointer::SHARED != 0
    }

    /// True if the extent is unwritten. Such an extent reads as zeros, and its bytes do not matter. In a root
    /// node the same bit has another meaning (see [`Pointer::is_preallocated`]), so callers ask only about
    /// leaves and about pointers [below a root](Pointer::below_root).
    pub(crate) const fn is_unwritten(self) -> bool {
        self.0 & Pointer::UNWRITTEN != 0
    }

    /// Returns the extent, or `None` if the pointer is null or its stored class does not exist.
    #[inline]
    pub const fn extent(self) -> Option<Extent> {
        match Class::from_raw((self.0 >> Pointer::CLASS_SHIFT) as u8) {
            Some(class) => Some(Extent { addr: Addr::from_raw(self.0 & Pointer::ADDR_MASK), class }),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc;

    #[test]
    fn pointer_keeps_extent_and_flags() {
        let extent = Extent { addr: Addr::from_raw(0x0003_0000_1234_5640), class: Class::PAGE };
        let pointer = Pointer::leaf(extent).with_height(5);
        assert_eq!(pointer.extent(), Some(extent));
        assert!(
            pointer.is_leaf() && !pointer.is_shared() && !pointer.is_unwritten() && pointer.height() == 5
        );
        let unwritten = Pointer::unwritten(extent);
        assert!(unwritten.is_leaf() && unwritten.is_unwritten() && unwritten.extent() == Some(extent));
        let shared = Pointer::leaf(extent).shared();
        assert!(shared.is_leaf() && shared.is_shared() && shared.extent() == Some(extent));
        assert_eq!((shared.with_height(3).piece(extent), unwritten.piece(extent)), (shared, unwritten));
        let node = Pointer::node(extent);
        let root = node.with_height(2).preallocated();
        assert!(root.is_preallocated() && !node.is_preallocated() && !unwritten.is_preallocated());
        assert_eq!((root.below_root(), unwritten.with_height(1).below_root()), (node, unwritten));
        assert_eq!(Pointer::from_raw(1 << 6).extent(), None);
        assert!(Pointer::NULL.with_height(3).is_null());
    }

    #[test]
    fn format_page_matches_pointers() {
        let bit = |mask: u64| mask.trailing_zeros() as usize;
        let (height, class) = (Pointer::HEIGHT_SHIFT as usize, Pointer::CLASS_SHIFT as usize);
        let address = bit(Pointer::ADDR_MASK);
        let fields = [
            ("leaf", bit(Pointer::LEAF), 1),
            ("shared", bit(Pointer::SHARED), 1),
            ("unwritten", bit(Pointer::UNWRITTEN), 1),
            ("height", height, address - height),
            ("address", address, class - address),
            ("class", class, 64 - class),
        ];
        format_doc::assert_described("Pointers", 64, &fields);
    }
}
