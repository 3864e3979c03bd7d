//! Pointers and extents: one 64-bit word that names storage and describes it.
//!
//! Bits 56..64 size class, 6..56 address (64-byte aligned), 0 leaf, 1 shared, 2 unwritten, 3..6 height (in roots only).
//! Because the class is in the pointer, freeing or filling an extent needs to look at nothing else.

use eyrie_medium::{Addr, PAGE_SIZE};

/// Sizes of the classes that share slab pages, in bytes.
const SMALL: [u16; 14] = [64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 768, 1024, 1344, 2048];
/// Doublings from 4 KiB to 64 MiB, four classes each but the last.
const DOUBLINGS: u8 = 14;

/// A size class of extents: 1 to [`Class::COUNT`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// Number of classes.
    pub const COUNT: u8 = SMALL.len() as u8 + DOUBLINGS * 4 + 1;
    /// Number of classes below a page.
    pub const SMALL_COUNT: u8 = SMALL.len() as u8;
    /// The smallest class: 64 bytes.
    pub const SMALLEST: Class = Class(1);
    /// The largest that shares pages: 2 KiB.
    pub const HALF_PAGE: Class = Class(Class::SMALL_COUNT);
    /// One page: tree nodes, and leaves of trees.
    pub const PAGE: Class = Class(SMALL.len() as u8 + 1);
    /// The largest extent, in bytes: 64 MiB.
    pub const MAX_BYTES: u64 = PAGE_SIZE << DOUBLINGS;

    /// The class with this number, if there is one.
    pub const fn from_raw(raw: u8) -> Option<Class> {
        if raw >= 1 && raw <= Class::COUNT { Some(Class(raw)) } else { None }
    }

    /// The number that is stored.
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// The smallest class that holds `bytes`; `None` above [`Class::MAX_BYTES`].
    pub fn fitting(bytes: u64) -> Option<Class> {
        if bytes <= 512 {
            return Some(Class(bytes.div_ceil(64).max(1) as u8));
        }
        if bytes <= 2048 {
            let index = SMALL.iter().position(|&size| u64::from(size) >= bytes)?;
            return Some(Class(index as u8 + 1));
        }
        if bytes > Class::MAX_BYTES {
            return None;
        }
        let pages = bytes.div_ceil(PAGE_SIZE);
        // The class is (doubling, quarter): sizes (4 + quarter) << doubling quarter-pages.
        let quarters = pages * 4;
        let mut doubling = pages.ilog2();
        let mut quarter = quarters.div_ceil(1 << doubling) - 4;
        if quarter == 4 {
            (doubling, quarter) = (doubling + 1, 0);
        }
        let class = Class(Class::PAGE.0 + doubling as u8 * 4 + quarter as u8);
        // Below 16 KiB quarters round to whole pages, so two classes may be equally large; the first counts.
        Some(class)
    }

    /// Bytes of an extent of this class.
    pub const fn bytes(self) -> u64 {
        if self.0 <= Class::SMALL_COUNT {
            SMALL[self.0 as usize - 1] as u64
        } else {
            let step = (self.0 - Class::PAGE.0) as u64;
            let quarters = (4 + step % 4) << (step / 4);
            quarters.div_ceil(4) * PAGE_SIZE
        }
    }

    /// Whether extents of this class share pages with others.
    pub const fn is_small(self) -> bool {
        self.0 <= Class::SMALL_COUNT
    }
}

/// A range of storage: its address and its class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// First byte.
    pub addr: Addr,
    /// Size.
    pub class: Class,
}

impl Extent {
    /// Length, in bytes.
    pub const fn bytes(self) -> u64 {
        self.class.bytes()
    }
}

/// A pointer as stored: 0, or an extent and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Pointer(u64);

impl Pointer {
    /// No extent: zeros over the whole span.
    pub const NULL: Pointer = Pointer(0);
    const LEAF: u64 = 1;
    const SHARED: u64 = 1 << 1;
    const UNWRITTEN: u64 = 1 << 2;
    const HEIGHT_SHIFT: u32 = 3;
    const CLASS_SHIFT: u32 = 56;
    const ADDR_MASK: u64 = Addr::MASK & !63;

    /// A pointer to data.
    pub fn leaf(extent: Extent) -> Pointer {
        Pointer(Pointer::to(extent) | Pointer::LEAF)
    }

    /// A pointer to an interior node, or to the table of a collection.
    pub fn node(extent: Extent) -> Pointer {
        Pointer(Pointer::to(extent))
    }

    /// A pointer to storage for data that was never written.
    pub fn unwritten(extent: Extent) -> Pointer {
        Pointer(Pointer::leaf(extent).0 | Pointer::UNWRITTEN)
    }

    fn to(extent: Extent) -> u64 {
        debug_assert!(extent.addr.is_aligned(64));
        u64::from(extent.class.raw()) << Pointer::CLASS_SHIFT | extent.addr.raw()
    }

    /// The same pointer as the root of a tree of `height` (0 to 7) levels of nodes.
    #[must_use]
    pub fn with_height(self, height: u8) -> Pointer {
        debug_assert!(height < 8);
        Pointer(self.0 & !(7 << Pointer::HEIGHT_SHIFT) | u64::from(height) << Pointer::HEIGHT_SHIFT)
    }

    /// Levels of nodes under a root.
    pub const fn height(self) -> u8 {
        (self.0 >> Pointer::HEIGHT_SHIFT & 7) as u8
    }

    /// The pointer with this stored form; whether it makes sense, [`Pointer::extent`] says.
    pub const fn from_raw(raw: u64) -> Pointer {
        Pointer(raw)
    }

    /// The form that is stored.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether there is no extent. (A null root may still have a height.)
    pub const fn is_null(self) -> bool {
        self.0 & !(7 << Pointer::HEIGHT_SHIFT) == 0
    }

    /// Whether it points to data rather than to a node.
    pub const fn is_leaf(self) -> bool {
        self.0 & Pointer::LEAF != 0
    }

    /// Whether the extent is shared with other objects (a reflink) and so is never changed in place.
    pub const fn is_shared(self) -> bool {
        self.0 & Pointer::SHARED != 0
    }

    /// Whether the extent was never written: it reads as zeros.
    pub const fn is_unwritten(self) -> bool {
        self.0 & Pointer::UNWRITTEN != 0
    }

    /// The extent; `None` if the class is none there is.
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
    fn the_fitting_class_is_the_smallest_that_holds_the_bytes() {
        let sizes: Vec<u64> = (1..=Class::COUNT).filter_map(Class::from_raw).map(Class::bytes).collect();
        assert!(sizes.is_sorted());
        assert_eq!(sizes.last(), Some(&Class::MAX_BYTES));
        let probes = (0..20_000)
            .chain((1..=16_384).map(|pages| pages * 4096))
            .chain((2..=16_384).map(|p| p * 4096 - 4095));
        for bytes in probes {
            let class = Class::fitting(bytes).expect("at most 64 MiB");
            let smallest = sizes[sizes.partition_point(|&size| size < bytes)];
            assert_eq!(class.bytes(), smallest, "{bytes} bytes");
        }
        assert_eq!(Class::fitting(Class::MAX_BYTES + 1), None);
        assert_eq!(Class::PAGE.bytes(), 4096);
        assert_eq!(Class::fitting(4096), Some(Class::PAGE));
        assert_eq!(Class::fitting(2 << 20).map(Class::bytes), Some(2 << 20));
    }

    #[test]
    fn a_pointer_gives_back_what_it_was_made_of() {
        let extent = Extent { addr: Addr::from_raw(0x0003_0000_1234_5640), class: Class::PAGE };
        let pointer = Pointer::leaf(extent).with_height(5);
        assert_eq!(pointer.extent(), Some(extent));
        assert!(
            pointer.is_leaf() && !pointer.is_shared() && !pointer.is_unwritten() && pointer.height() == 5
        );
        let unwritten = Pointer::unwritten(extent);
        assert!(unwritten.is_leaf() && unwritten.is_unwritten() && unwritten.extent() == Some(extent));
        assert_eq!(Pointer::from_raw(1 << 6).extent(), None);
        assert!(Pointer::NULL.with_height(3).is_null());
    }

    #[test]
    fn the_format_description_agrees_with_pointers() {
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

    #[test]
    fn the_format_description_agrees_with_size_classes() {
        const TITLE: &str = "Size classes";
        let sizes: Vec<usize> = format_doc::cells(TITLE)
            .iter()
            .flat_map(|row| row[1].split(", ").map(|cell| format_doc::number(TITLE, cell)))
            .collect();
        let bytes = |raw: u8| Class::from_raw(raw).expect("a class").bytes();
        for (&size, raw) in sizes.iter().zip(1..) {
            assert_eq!(bytes(raw), size as u64, "class {raw}");
        }
        for raw in sizes.len() as u8 + 1..=Class::COUNT {
            assert_eq!(bytes(raw), 2 * bytes(raw - 4), "class {raw}");
        }
        assert_eq!((Class::COUNT, bytes(Class::COUNT), Class::from_raw(72)), (71, 64 << 20, None));
    }
}
