//! Bytes of bucket pages: their slots and records. Their commit words are in `commit`.
//!
//! `docs/format.md` describes these bytes, and a test compares the description with the structures here.

use std::mem::offset_of;

use eyrie_medium::{Addr, LINE_SIZE};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::extent::{Class, Extent};
use crate::{ObjectId, Time};

/// Bytes of a bucket page.
pub const PAGE_BYTES: u64 = 2048;
/// Number of lines of slots in a page.
pub const LINES: usize = 4;
/// Words of a line: seven slots, and one word with the tags and the spilled bits.
pub(crate) const LINE_WORDS: u32 = (LINE_SIZE / 8) as u32;
/// The set of all slots of a page, with one bit for each. The number of a slot is the number of its word in
/// the four lines. Every eighth word has the tags of a line, so it is not a slot.
pub const SLOTS: u32 = 0x7f7f_7f7f;
/// Maximum number of entries in a page.
pub(crate) const CAPACITY: u32 = SLOTS.count_ones();
/// Bytes of a unit. Offsets and lengths of records are stored in units.
pub(crate) const UNIT: u64 = 8;
/// Units in a page.
pub(crate) const PAGE_UNITS: u32 = (PAGE_BYTES / UNIT) as u32;
/// First unit of the heap. The heap is the part of a page that holds the records.
pub(crate) const HEAP_UNIT: u32 = (size_of::<PageHead>() as u64 / UNIT) as u32;

/// The time of a page's last change, and the version that the directory's times had at that change. A call
/// that sets the directory's modification time begins a new version. From then on, stamps of older versions
/// do not count for the modification time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PageStamp {
    /// Whole seconds since 1970. Equal to the seconds of [`PageStamp::NONE`] if the page never changed.
    pub seconds: i64,
    /// Nanoseconds after the whole seconds.
    pub nanoseconds: u32,
    /// Version of the directory's times.
    pub times_version: u32,
}

impl PageStamp {
    /// The stamp of a page that never changed. It is earlier than every time.
    pub const NONE: PageStamp = PageStamp { seconds: i64::MIN, nanoseconds: 0, times_version: 0 };

    /// Makes the stamp of a change at `time`.
    pub fn new(time: Time, times_version: u32) -> PageStamp {
        PageStamp { seconds: time.seconds, nanoseconds: time.nanoseconds, times_version }
    }

    /// Returns the two words to store.
    pub const fn words(self) -> [u64; 2] {
        [self.seconds as u64, self.nanoseconds as u64 | (self.times_version as u64) << 32]
    }

    /// Returns the time of the last change, or `None` if the page never changed.
    pub fn time(self) -> Option<Time> {
        (self.seconds != i64::MIN).then_some(Time::new(self.seconds, self.nanoseconds))
    }
}

/// A bucket page without its records.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PageHead {
    /// The [`Commit`](super::commit::Commit) word.
    pub commit: u64,
    /// Pointer to a further page of the same bucket, or 0 if this page is the last.
    pub link: u64,
    /// A bit for each slot whose entry names a directory. This field and the two fields of the gap are the
    /// page's [`Inventory`].
    pub directories: u32,
    /// First unit of a gap between the records of live slots. The memory of new records is taken from this
    /// gap.
    pub gap_start: u16,
    /// The unit after the last unit of the gap.
    pub gap_end: u16,
    /// Zero.
    pub reserved: u64,
    /// Two stamps. The commit word says which of them is the current one.
    pub stamps: [PageStamp; 2],
    /// The slots.
    pub lines: [SlotLine; LINES],
    /// Length in units of each slot's record, by the number of the slot. 0 for words that are not slots.
    pub lengths: [u8; 32],
}

/// A line of slots: one cache line of a bucket page, with seven slots and their tags.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct SlotLine {
    /// The slots, each an [`EntrySlot`].
    pub slots: [u64; 7],
    /// The tag of each slot: the high byte of the hash of the slot's entry. A look-up reads only records
    /// whose tag matches. The tags and `spilled` together are the line's [`Tags`].
    pub tags: [u8; 7],
    /// A bit for each other line that may hold entries whose [`home`] is this line.
    pub spilled: u8,
}

/// The fixed part of a record. A record has the hash and the name of an entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct NameRecordHead {
    /// Keyed hash of the name.
    pub hash: u64,
    /// Length of the name in bytes, 1 to 255.
    pub name_len: u16,
    /// The first bytes of the name. The rest of the name follows this structure.
    pub name: [u8; 6],
}

/// Offset of `PageHead::link`, in bytes.
pub const LINK: u64 = offset_of!(PageHead, link) as u64;
/// Offset of the [`Inventory`], in bytes.
pub(crate) const INVENTORY: u64 = offset_of!(PageHead, directories) as u64;
/// Offset of [`PageHead::stamps`], in bytes.
const STAMPS: u64 = offset_of!(PageHead, stamps) as u64;
/// Offset of [`PageHead::lines`], in bytes.
const SLOT_LINES: u64 = offset_of!(PageHead, lines) as u64;
/// Offset of `PageHead::lengths`, in bytes.
pub const LENGTHS: u64 = offset_of!(PageHead, lengths) as u64;
/// Offset of the name in a record, in bytes.
pub(crate) const RECORD_NAME: usize = offset_of!(NameRecordHead, name);

const _: () = {
    assert!(cfg!(target_endian = "little"), "words are stored as the processor has them");
    assert!(
        size_of::<PageStamp>() == 16 && size_of::<PageHead>() == 352 && size_of::<NameRecordHead>() == 16
    );
    assert!(LINK == 8 && INVENTORY == 16 && STAMPS == 32 && SLOT_LINES == 64 && LENGTHS == 320);
    assert!(
        size_of::<SlotLine>() == 64
            && offset_of!(SlotLine, tags) == 56
            && offset_of!(SlotLine, spilled) == 63
    );
    assert!(Class::HALF_PAGE.bytes() == PAGE_BYTES);
    assert!(HEAP_UNIT == 44 && PAGE_UNITS == 256 && RECORD_NAME == 10 && CAPACITY == 28);
};

/// Returns the extent of the bucket page at `addr`. The page may be part of a segment, which is a larger
/// extent.
pub(crate) const fn page_extent(addr: Addr) -> Extent {
    Extent { addr, class: Class::HALF_PAGE }
}

/// Returns the address of one of the two stamps of a page.
pub(crate) const fn stamp_at(page: Addr, selector: usize) -> Addr {
    page.add(STAMPS + selector as u64 * size_of::<PageStamp>() as u64)
}

/// Returns the address of a line of slots.
pub(crate) const fn line_at(page: Addr, line: u32) -> Addr {
    page.add(SLOT_LINES + line as u64 * LINE_SIZE)
}

/// Returns the address of a slot.
pub const fn slot_at(page: Addr, slot: u32) -> Addr {
    page.add(SLOT_LINES + slot as u64 * 8)
}

/// Returns the address of the word that has the length of a slot's record. The index of the slot in its line
/// ([`index_of`]) says which byte of the word is the length.
pub(crate) const fn length_at(page: Addr, slot: u32) -> Addr {
    page.add(LENGTHS + line_of(slot) as u64 * 8)
}

/// Returns the address of the [`Tags`] of a line.
pub(crate) const fn tags_at(page: Addr, line: u32) -> Addr {
    slot_at(page, line * LINE_WORDS + TAGS_WORD as u32)
}

/// Index of the word of a line that holds its [`Tags`].
pub(crate) const TAGS_WORD: usize = LINE_WORDS as usize - 1;

/// Returns the number of the line of a slot.
pub(crate) const fn line_of(slot: u32) -> u32 {
    slot / LINE_WORDS
}

/// Returns the number of a slot in its line.
pub(crate) const fn index_of(slot: u32) -> u32 {
    slot % LINE_WORDS
}

/// Returns the home of entries with this hash: the line in which they should be. The home is chosen by two
/// bits of the hash that select no bucket and are not in the tag. Therefore the four lines fill evenly.
#[inline]
pub const fn home(hash: u64) -> u32 {
    (hash >> 54) as u32 % LINES as u32
}

/// Returns the tag of a hash: its high byte, which selects no bucket.
pub const fn tag(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// Chooses a slot for a new entry with this hash. `taken` has a bit for each slot in use. Prefers the home of
/// the hash, and then the lines after the home. (Line 0 follows the last line.) Returns `None` if all slots
/// are in use.
pub(crate) const fn free_slot(hash: u64, taken: u32) -> Option<u32> {
    let first = home(hash) * LINE_WORDS;
    let free = (SLOTS & !taken).rotate_right(first);
    if free == 0 { None } else { Some((free.trailing_zeros() + first) % u32::BITS) }
}

/// The word of a slot. Bits 0 to 55 are the object id. Bits 56 to 63 are the unit at which the record begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntrySlot(u64);

impl EntrySlot {
    const ID_MASK: u64 = (1 << EntrySlot::OFFSET_SHIFT) - 1;
    const OFFSET_SHIFT: u32 = 56;

    /// Makes the slot of an entry.
    pub const fn new(id: ObjectId, unit: u32) -> EntrySlot {
        EntrySlot(id.raw() & EntrySlot::ID_MASK | (unit as u64) << EntrySlot::OFFSET_SHIFT)
    }

    /// Returns the slot with this stored form.
    pub const fn from_raw(raw: u64) -> EntrySlot {
        EntrySlot(raw)
    }

    /// Returns the stored form.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the raw id of the object.
    pub const fn id(self) -> u64 {
        self.0 & EntrySlot::ID_MASK
    }

    /// Returns the unit of the page at which the record begins.
    pub const fn unit(self) -> u32 {
        (self.0 >> EntrySlot::OFFSET_SHIFT) as u32
    }
}

/// The word that describes a line of slots: a tag for each slot, and the spilled bits. A spilled bit names
/// another line that may hold entries whose home is this line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tags(u64);

impl Tags {
    const SPILLED_SHIFT: u32 = 56;

    /// Returns the tags with this stored form.
    pub const fn from_raw(raw: u64) -> Tags {
        Tags(raw)
    }

    /// Returns the stored form.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the tag of slot number `index` of the line.
    pub const fn get(self, index: u32) -> u8 {
        (self.0 >> (8 * index)) as u8
    }

    /// Returns a bit for each other line that may hold entries whose home is this line.
    #[inline]
    pub const fn spilled(self) -> u32 {
        (self.0 >> Tags::SPILLED_SHIFT) as u32 & ((1 << LINES) - 1)
    }

    /// Returns the same tags with other spilled bits.
    #[must_use]
    pub(crate) const fn with_spilled(self, lines: u32) -> Tags {
        Tags(self.0 & !(0xff << Tags::SPILLED_SHIFT) | (lines as u64) << Tags::SPILLED_SHIFT)
    }

    /// Returns a bit for each slot of the line whose tag is `tag`.
    #[inline]
    pub(crate) const fn matching(self, tag: u8) -> u32 {
        const LOW: u64 = 0x0101_0101_0101_0101;
        const SEVEN: u64 = LOW * 0x7f;
        // Finds equal bytes without a loop. A byte of `differs` is zero if the tag matches. `equal` has a 1
        // in each such byte and 0 in each other byte.
        let differs = self.0 ^ (LOW * tag as u64);
        let equal = !(((differs & SEVEN) + SEVEN) | differs | SEVEN) >> 7;
        // Gathers the lowest bits of the bytes. The last byte is left out, because it holds the spilled bits.
        (equal.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32 & (SLOTS & 0xff)
    }
}

/// Free memory of a page's heap, in units from the start of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gap {
    /// The first unit of the gap.
    pub start: u32,
    /// The unit after the last unit of the gap.
    pub end: u32,
}

impl Gap {
    /// Returns the length in units.
    pub const fn units(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// True if the gap lies in the heap.
    pub(crate) const fn is_in_heap(self) -> bool {
        HEAP_UNIT <= self.start && self.start <= self.end && self.end <= PAGE_UNITS
    }

    /// Returns the rest of the gap after its first `units`. The gap has at least that many units.
    #[must_use]
    pub const fn after(self, units: u32) -> Gap {
        Gap { start: self.start + units, end: self.end }
    }
}

/// A word that repeats facts of a page's slots and records. With it, an insert finds free memory without
/// reading the records, and the directories of a page are counted without reading the slots. Bits 0 to 31
/// have a bit for each slot that names a directory. Bits 32 to 47 are the start of a gap between the records,
/// and bits 48 to 63 are the end of this gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inventory(u64);

impl Inventory {
    const START_SHIFT: u32 = 32;
    const END_SHIFT: u32 = 48;

    /// Returns the inventory with this stored form.
    pub const fn from_raw(raw: u64) -> Inventory {
        Inventory(raw)
    }

    /// Returns the stored form.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns a bit for each slot that names a directory.
    pub const fn directories(self) -> u32 {
        self.0 as u32
    }

    /// Returns the gap. It is not verified.
    pub const fn gap(self) -> Gap {
        Gap {
            start: (self.0 >> Inventory::START_SHIFT) as u16 as u32,
            end: (self.0 >> Inventory::END_SHIFT) as u32,
        }
    }

    /// Returns the same inventory with another entry in a slot.
    #[must_use]
    pub(crate) const fn with_entry(self, slot: u32, is_directory: bool) -> Inventory {
        Inventory(self.0 & !(1 << slot) | (is_directory as u64) << slot)
    }

    /// Returns the same inventory with another gap.
    #[must_use]
    pub(crate) const fn with_gap(self, gap: Gap) -> Inventory {
        let places = (gap.start as u64) << Inventory::START_SHIFT | (gap.end as u64) << Inventory::END_SHIFT;
        Inventory(self.0 & u32::MAX as u64 | places)
    }
}

/// An entry's record: its hash and name.
#[derive(Clone, Copy)]
pub(crate) struct NameRecord<'a> {
    /// Keyed hash of the name.
    pub hash: u64,
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
}

impl NameRecord<'_> {
    /// Returns the length of the record in units.
    #[inline]
    pub const fn units(&self) -> u32 {
        record_units(self.name.len())
    }

    /// Returns word `index` of the record. The record has more than `index` words.
    #[inline]
    pub fn word(&self, index: u32) -> u64 {
        match index {
            0 => self.hash,
            1 => self.name_from(0) << (8 * (RECORD_NAME - 8)) | self.name.len() as u64,
            _ => self.name_from(index as usize * 8 - RECORD_NAME),
        }
    }

    /// Returns the words to store.
    #[inline]
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> {
        (0..self.units()).map(|index| self.word(index))
    }

    /// Returns up to eight bytes of the name from byte `at` on, padded with zeros.
    #[inline]
    fn name_from(&self, at: usize) -> u64 {
        let rest = &self.name[at..];
        match (rest.first_chunk(), self.name.last_chunk()) {
            (Some(&whole), _) => u64::from_le_bytes(whole),
            (None, Some(&last)) => u64::from_le_bytes(last) >> (8 * (8 - rest.len())),
            (None, None) => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        }
    }
}

/// Returns the units of the record of a name of `name_len` bytes.
pub(crate) const fn record_units(name_len: usize) -> u32 {
    (RECORD_NAME + name_len).div_ceil(UNIT as usize) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::{assert_described, fields};
    use crate::op::NAME_MAX;

    #[test]
    fn format_page_matches_bucket_pages() {
        let page = fields!(PageHead {
            commit,
            link,
            directories,
            gap_start,
            gap_end,
            reserved,
            stamps,
            lines,
            lengths
        });
        assert_described("Bucket page", size_of::<PageHead>(), &page);
        let stamp = fields!(PageStamp { seconds, nanoseconds, times_version });
        assert_described("Stamp of a bucket page", size_of::<PageStamp>(), &stamp);
        let line = fields!(SlotLine { slots, tags, spilled });
        assert_described("Line of slots", size_of::<SlotLine>(), &line);
        let offset = EntrySlot::OFFSET_SHIFT as usize;
        assert_described("Slot", 64, &[("id", 0, offset), ("offset", offset, 64 - offset)]);
        let record = fields!(NameRecordHead { hash, name_len, name });
        assert_described("Record", size_of::<NameRecordHead>(), &record);
    }

    #[test]
    fn page_words_match_page_head() {
        let id = ObjectId::new(0x1234_5678_9a00, crate::Kind::Symlink);
        let slot = EntrySlot::new(id, 250);
        assert_eq!((slot.id(), slot.unit()), (id.raw(), 250));
        let line = SlotLine { slots: [slot.raw(); 7], tags: [1, 2, 3, 2, 255, 0, 7], spilled: 0b0110 };
        let words: [u64; 8] = zerocopy::transmute!(line);
        let tags = Tags::from_raw(words[TAGS_WORD]);
        assert_eq!((0..7).map(|index| tags.get(index)).collect::<Vec<_>>(), line.tags);
        assert_eq!((tags.spilled(), tags.with_spilled(0b1001).spilled()), (0b0110, 0b1001));
        assert_eq!(tags.with_spilled(0b1001).with_spilled(0b0110), tags);
        for tag in 0..=255 {
            let expected = (0..7).fold(0, |set, index| set | u32::from(line.tags[index] == tag) << index);
            assert_eq!(tags.matching(tag), expected, "tag {tag}");
        }
        let gap = Gap { start: 45, end: 256 };
        let inventory = Inventory::from_raw(0).with_entry(6, true).with_entry(30, true).with_gap(gap);
        assert_eq!((inventory.directories(), inventory.gap()), (1 << 6 | 1 << 30, gap));
        assert_eq!(inventory.with_entry(6, false).directories(), 1 << 30);
        assert_eq!(inventory.raw().to_le_bytes()[4..], [45, 0, 0, 1]);
    }

    #[test]
    fn entry_takes_slot_in_home_line_first() {
        for first in 0..LINES as u32 {
            let hash = u64::from(first) << 54 | 0xff3f_ffff_ffff_ffff;
            assert_eq!(home(hash), first);
            let mut taken = 0;
            for nth in 0..CAPACITY {
                let slot = free_slot(hash, taken).expect("not full");
                assert_eq!((line_of(slot), index_of(slot)), ((first + nth / 7) % LINES as u32, nth % 7));
                taken |= 1 << slot;
            }
            assert_eq!((taken, free_slot(hash, taken)), (SLOTS, None));
        }
    }

    #[test]
    fn a_record_is_the_bytes_of_its_head_and_name() {
        let name: Vec<u8> = (1..=255).collect();
        for len in 1..=NAME_MAX {
            let record = NameRecord { hash: 0x0102_0304_0506_0708 * 0x11, name: &name[..len] };
            let mut bytes = record.hash.to_le_bytes().to_vec();
            bytes.extend((len as u16).to_le_bytes());
            bytes.extend(&name[..len]);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let words: Vec<u8> = record.words().flat_map(u64::to_le_bytes).collect();
            assert_eq!(words, bytes, "name of {len} bytes");
            assert_eq!(words.len(), record.units() as usize * 8);
        }
    }
}
