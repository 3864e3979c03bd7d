//! Sizes and places in a volume of a given size.

use eyrie_medium::{Addr, PAGE_SIZE, SegmentId};

use super::layout::{CHUNK_BYTES, CHUNK_MAP, MAX_GROUP_BYTES, MIN_GROUP_BYTES};
use crate::extent::Extent;

/// Sizes and places that follow from the sizes in the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    volume_bytes: u64,
    group_bytes: u64,
    most_bytes: u64,
    data_start: u64,
}

/// Number of bytes of a volume that one page of the header-chunk bitmap covers.
const BYTES_PER_MAP_PAGE: u64 = CHUNK_BYTES * 8 * PAGE_SIZE;
/// A volume can grow to this many times its first size, but not beyond 1 TiB. The result is rounded up to
/// whole pages of the header-chunk bitmap, each of which covers 2 GiB. The largest size is fixed when the
/// volume is created, because the header-chunk bitmap must cover it and cannot move. The factor can be as
/// large as 16, because even the bitmap of 1 TiB takes only 2 MiB.
const ROOM_TO_GROW: u64 = 16;

impl Geometry {
    /// Returns the geometry of a new volume of `volume_bytes` in groups of `group_bytes`.
    ///
    /// # Errors
    /// A message that names the wrong size.
    pub fn new(volume_bytes: u64, group_bytes: u64) -> Result<Geometry, &'static str> {
        let most_bytes = volume_bytes.saturating_mul(ROOM_TO_GROW).min(Addr::MAX_OFFSET);
        let most_bytes = most_bytes.next_multiple_of(BYTES_PER_MAP_PAGE).max(volume_bytes);
        Geometry::with_room(volume_bytes, group_bytes, most_bytes)
    }

    /// Returns the geometry of a volume that can grow to `most_bytes`.
    ///
    /// # Errors
    /// A message that names the wrong size.
    pub(crate) fn with_room(
        volume_bytes: u64,
        group_bytes: u64,
        most_bytes: u64,
    ) -> Result<Geometry, &'static str> {
        if !volume_bytes.is_multiple_of(PAGE_SIZE) {
            return Err("the size of a volume must be a multiple of 4096 bytes");
        }
        if volume_bytes > Addr::MAX_OFFSET {
            return Err("the size of a volume must be at most 1 TiB");
        }
        if !group_bytes.is_power_of_two() || !(MIN_GROUP_BYTES..=MAX_GROUP_BYTES).contains(&group_bytes) {
            return Err("the size of a group must be a power of two, from 64 KiB to 64 MiB");
        }
        let pages = most_bytes / BYTES_PER_MAP_PAGE;
        let whole = pages > 0 && most_bytes.is_multiple_of(BYTES_PER_MAP_PAGE);
        if !whole || !(volume_bytes..=Addr::MAX_OFFSET).contains(&most_bytes) {
            return Err("the largest possible size must be a multiple of 2 GiB, up to 1 TiB");
        }
        let data_start = CHUNK_MAP.offset() + pages * PAGE_SIZE;
        if data_start >= volume_bytes {
            return Err("the volume is too small for its own tables");
        }
        Ok(Geometry { volume_bytes, group_bytes, most_bytes, data_start })
    }

    /// Returns the size of the volume, in bytes.
    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    /// Returns the geometry of the same volume with another size.
    ///
    /// # Errors
    /// A message that names the wrong size.
    pub(crate) fn resized(&self, volume_bytes: u64) -> Result<Geometry, &'static str> {
        Geometry::with_room(volume_bytes, self.group_bytes, self.most_bytes)
    }

    /// Returns the largest size that the volume can have without moving its data, in bytes.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Returns the size of a group, in bytes.
    pub fn group_bytes(&self) -> u64 {
        self.group_bytes
    }

    /// Returns the offset of the first byte that can be allocated.
    pub(crate) fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Returns the number of groups. Group 0 starts at offset 0, so the first groups may hold only tables.
    /// The last group may be short.
    pub fn groups(&self) -> u64 {
        self.volume_bytes.div_ceil(self.group_bytes)
    }

    /// Returns the number of the first group with bytes that can be allocated.
    pub(crate) fn first_group(&self) -> u64 {
        self.data_start / self.group_bytes
    }

    /// Returns the offset of the first byte past the first `groups` groups.
    pub(crate) fn end_of_groups(&self, groups: u64) -> u64 {
        groups.saturating_mul(self.group_bytes).min(self.volume_bytes)
    }

    /// Returns the number of those 64-bit words of the header-chunk bitmap that cover the present size of the
    /// volume.
    pub(crate) fn chunk_words(&self) -> usize {
        self.volume_bytes.div_ceil(CHUNK_BYTES * 64) as usize
    }

    /// Returns the order of the largest block of pages. A block of order n has 2^n pages.
    pub(crate) fn max_order(&self) -> u32 {
        (self.group_bytes / PAGE_SIZE).ilog2()
    }

    /// True if the extent is well formed and lies between the first allocatable byte and offset `end`.
    #[inline]
    pub(crate) fn holds(&self, extent: Extent, end: u64) -> bool {
        let Extent { addr, class } = extent;
        let (offset, bytes) = (addr.offset(), class.bytes());
        if addr.segment_index() != 0 || offset < self.data_start || offset >= end || bytes > end - offset {
            return false;
        }
        let within = (offset % PAGE_SIZE) as u32;
        if class.is_small() {
            let bytes = bytes as u32;
            within.is_multiple_of(bytes) && within + bytes <= PAGE_SIZE as u32
        } else {
            within == 0
        }
    }
}

/// Returns the address of page `page`.
pub(crate) fn page_addr(page: u32) -> Addr {
    Addr::new(SegmentId(0), u64::from(page) * PAGE_SIZE)
}

/// Returns the page that contains offset `offset`.
pub(crate) fn page_of(offset: u64) -> u32 {
    (offset / PAGE_SIZE) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Class;

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(Geometry::new(4097, 1 << 20).is_err());
        assert!(Geometry::new(1 << 41, 1 << 20).is_err());
        assert!(Geometry::new(1 << 20, 3 << 20).is_err());
        assert!(Geometry::new(1 << 20, 1 << 15).is_err());
        assert!(Geometry::new(80 << 10, 1 << 16).is_err());
        let largest = Geometry::new(1 << 40, 64 << 20).expect("1 TiB");
        assert_eq!(largest.groups(), 16384);
        assert_eq!(largest.data_start(), (19 << 12) + (2 << 20));
        let smallest = Geometry::new(84 << 10, 1 << 16).expect("one page of data");
        assert_eq!((smallest.data_start(), smallest.first_group(), smallest.groups()), (80 << 10, 1, 2));
    }

    #[test]
    fn volume_grows_to_sixteen_times_its_first_size_rounded_up_to_2_gib() {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        let cases = [
            (MIB, 2 * GIB),
            (128 * MIB, 2 * GIB),
            (128 * MIB + 4096, 4 * GIB),
            (GIB, 16 * GIB),
            (GIB + 4096, 18 * GIB),
            (64 * GIB - 4096, 1024 * GIB),
            (64 * GIB, 1024 * GIB),
            (65 * GIB, 1024 * GIB),
            (1024 * GIB, 1024 * GIB),
        ];
        for (first, most) in cases {
            let geometry = Geometry::new(first, 64 << 20).expect("a volume");
            assert_eq!(geometry.most_bytes(), most, "{first} bytes");
            let resized = geometry.resized(most).expect("the largest size");
            assert_eq!((resized.volume_bytes(), resized.most_bytes()), (most, most), "{first} bytes");
            assert!(geometry.resized(most + 4096).is_err(), "{first} bytes");
        }
    }

    #[test]
    fn misplaced_extents_are_not_held() {
        let geometry = Geometry::new(1 << 20, 1 << 16).expect("a volume");
        let holds = |offset, bytes| {
            let class = Class::fitting(bytes).expect("small enough");
            geometry.holds(Extent { addr: Addr::from_raw(offset), class }, 1 << 20)
        };
        assert!(holds(80 << 10, 4096) && holds((1 << 20) - 4096, 4096) && holds((80 << 10) + 192, 192));
        assert!(!holds(76 << 10, 4096) && !holds((1 << 20) - 4096, 8192) && !holds(1 << 20, 64));
        assert!(
            !holds((80 << 10) + 64, 192) && !holds((80 << 10) + 4032, 192) && !holds((80 << 10) + 64, 4096)
        );
        assert!(!holds((1 << 40) + (80 << 10), 4096) && !holds(u64::MAX, 64));
    }
}
