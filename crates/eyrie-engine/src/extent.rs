//! Extents: ranges of storage. Every extent belongs to one of 71 size classes.

use eyrie_medium::{Addr, PAGE_SIZE};

/// Sizes in bytes of the small classes, which are below a page. Extents of these classes share slab pages.
const SMALL: [u16; 14] = [64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 768, 1024, 1344, 2048];
/// Number of doublings from 4 KiB to 64 MiB. Each range from one power of two to the next has four classes,
/// and 64 MiB is one more class.
const DOUBLINGS: u8 = 14;
/// Size in bytes of each class, by its number. The first entry is unused, because the numbers begin at 1.
/// Look-ups in directories compute sizes several times, and the table saves them the divisions of
/// [`Class::computed_bytes`].
const SIZES: [u32; Class::COUNT as usize + 1] = {
    let mut sizes = [0; Class::COUNT as usize + 1];
    let mut raw = 1;
    while raw <= Class::COUNT {
        sizes[raw as usize] = Class(raw).computed_bytes() as u32;
        raw += 1;
    }
    sizes
};

/// A size class of extents: 1 to [`Class::COUNT`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// Number of classes.
    pub const COUNT: u8 = SMALL.len() as u8 + DOUBLINGS * 4 + 1;
    /// Number of classes below a page.
    pub(crate) const SMALL_COUNT: u8 = SMALL.len() as u8;
    /// The largest class whose extents share pages: 2 KiB.
    pub(crate) const HALF_PAGE: Class = Class(Class::SMALL_COUNT);
    /// The class of one page, for example for a node of a tree, or for a leaf of 4 KiB.
    pub const PAGE: Class = Class(SMALL.len() as u8 + 1);
    /// The largest extent, in bytes: 64 MiB.
    pub(crate) const MAX_BYTES: u64 = PAGE_SIZE << DOUBLINGS;

    /// Returns the class with this number; `None` if no class has it.
    pub const fn from_raw(raw: u8) -> Option<Class> {
        if raw >= 1 && raw <= Class::COUNT { Some(Class(raw)) } else { None }
    }

    /// Returns the number that names this class on media.
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// Returns a class of the smallest size that holds `bytes`; `None` above 64 MiB.
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
        // A class of one page or more is a pair (doubling, quarter). Its size is `(4 + quarter) << doubling`
        // quarters of a page.
        let quarters = pages * 4;
        let mut doubling = pages.ilog2();
        let mut quarter = quarters.div_ceil(1 << doubling) - 4;
        if quarter == 4 {
            (doubling, quarter) = (doubling + 1, 0);
        }
        let class = Class(Class::PAGE.0 + doubling as u8 * 4 + quarter as u8);
        // The size of a class is rounded up to whole pages, so up to 16 KiB several classes may have the same
        // size. This formula gives the last of these classes.
        Some(class)
    }

    /// Returns the bytes of an extent of this class.
    #[inline]
    pub const fn bytes(self) -> u64 {
        SIZES[self.0 as usize] as u64
    }

    const fn computed_bytes(self) -> u64 {
        if self.0 <= Class::SMALL_COUNT {
            SMALL[self.0 as usize - 1] as u64
        } else {
            let index = (self.0 - Class::PAGE.0) as u64;
            let quarters = (4 + index % 4) << (index / 4);
            quarters.div_ceil(4) * PAGE_SIZE
        }
    }

    /// True if extents of this class share pages with other extents.
    pub(crate) const fn is_small(self) -> bool {
        self.0 <= Class::SMALL_COUNT
    }
}

/// A range of storage: its address and its class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// First byte.
    pub addr: Addr,
    /// Size class.
    pub class: Class,
}

impl Extent {
    /// Returns the length, in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.class.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc;

    #[test]
    fn fitting_class_is_the_smallest() {
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
    fn format_page_matches_size_classes() {
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
