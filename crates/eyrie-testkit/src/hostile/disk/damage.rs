//! Damage to disks. Most of it hits the journal, its anchor or the checksum pages, with plausible values.

use std::mem::offset_of;

use eyrie_engine::volume::layout::SUPERBLOCKS;
use eyrie_medium::{Anchor, ChangedPage, FreshPage, PAGE_SIZE, RecordHead, SECTOR};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use super::journal::{Journal, put, volume_bytes, word};
use super::{DiskBase, journal};
use crate::hostile::Damage;
use crate::hostile::base::BEHIND_BYTES;

/// One damage. Offsets are in bytes from the start of the disk, and lengths are in bytes.
#[expect(missing_docs, reason = "the variants say it")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskDamage {
    /// Flips a bit.
    Flip { at: u64, bit: u8 },
    /// Overwrites eight bytes with a number.
    Word { at: u64, value: u64 },
    /// Overwrites four bytes with a number.
    Half { at: u64, value: u32 },
    /// Exchanges two ranges.
    Swap { a: u64, b: u64, len: u64 },
    /// Copies a range over another.
    Copy { from: u64, to: u64, len: u64 },
    /// Makes the disk shorter or longer. If `keeps_anchor` is true, the anchor moves to the new last page,
    /// and its journal size then fits the new length.
    Length { len: usize, keeps_anchor: bool },
    /// Moves the start of the journal: changes the sizes of the volume and of the journal in the anchor.
    Begin { volume_bytes: u64 },
    /// Adds a record that no drain wrote. The record lists fresh pages with their checksums, and changed
    /// pages with their packed lines.
    Forge { fresh: Vec<(u64, u32)>, changed: Vec<(u64, u64, Vec<u8>)> },
    /// Damages the volume.
    Volume(Damage),
}

impl DiskDamage {
    /// Draws a damage of `base`.
    pub fn draw(random: &mut SmallRng, base: &DiskBase) -> DiskDamage {
        let (disk, journal) = (&base.bytes, &base.journal);
        let bit = random.random_range(0..8);
        match random.random_range(0..100) {
            0..4 => DiskDamage::Flip { at: random.random_range(0..disk.len() as u64), bit },
            4..14 => DiskDamage::Flip { at: somewhere(random, journal), bit },
            14..19 => {
                let fields = [
                    offset_of!(Anchor, id),
                    offset_of!(Anchor, volume_bytes),
                    offset_of!(Anchor, journal_bytes),
                ];
                let at = journal.anchor + *fields.choose(random).expect("three") as u64;
                DiskDamage::Word { at, value: value(random, disk, journal) }
            }
            19..23 => {
                let pages = random.random_range(0..=journal.anchor / PAGE_SIZE);
                DiskDamage::Begin { volume_bytes: pages * PAGE_SIZE }
            }
            23..32 => of_head(random, base),
            32..40 => of_fresh(random, base),
            40..54 => of_changed(random, base),
            54..61 => moved(random, disk, journal),
            61..65 => DiskDamage::Length {
                len: random.random_range(1..=disk.len() + BEHIND_BYTES as usize),
                keeps_anchor: random.random(),
            },
            65..68 => renamed(random, journal),
            68..82 => forged(random, base),
            _ => DiskDamage::Volume(Damage::draw(random, &base.volume)),
        }
    }

    /// Applies the damage to the bytes of a disk. [`HostileDisk::of`](super::HostileDisk::of) applies damage
    /// to the volume.
    pub(super) fn apply(&self, disk: &mut Vec<u8>) {
        match *self {
            DiskDamage::Flip { at, bit } => {
                let byte = bytes(disk, at, 1)[0];
                put(disk, at, &[byte ^ 1 << bit]);
            }
            DiskDamage::Word { at, value } => put(disk, at, &value.to_le_bytes()),
            DiskDamage::Half { at, value } => put(disk, at, &value.to_le_bytes()),
            DiskDamage::Swap { a, b, len } => {
                let (first, second) = (bytes(disk, a, len), bytes(disk, b, len));
                put(disk, a, &second);
                put(disk, b, &first);
            }
            DiskDamage::Copy { from, to, len } => {
                let copied = bytes(disk, from, len);
                put(disk, to, &copied);
            }
            DiskDamage::Length { len, keeps_anchor } => {
                let anchor = bytes(disk, journal::anchor(disk), PAGE_SIZE);
                let volume_bytes = volume_bytes(disk);
                disk.resize(len, 0);
                if keeps_anchor {
                    let place = journal::anchor(disk);
                    put(disk, place, &anchor);
                    DiskDamage::Begin { volume_bytes }.apply(disk);
                }
            }
            DiskDamage::Begin { volume_bytes } => {
                let anchor = journal::anchor(disk);
                let start = journal::start(volume_bytes, journal::has_checksums(disk));
                let sizes = [volume_bytes, anchor.wrapping_sub(start)].map(u64::to_le_bytes);
                put(disk, anchor + offset_of!(Anchor, volume_bytes) as u64, &sizes.concat());
            }
            DiskDamage::Forge { ref fresh, ref changed } => forge(disk, fresh, changed),
            DiskDamage::Volume(_) => {}
        }
    }
}

/// Returns `len` bytes of a disk. Bytes past its end are zeros.
fn bytes(disk: &[u8], at: u64, len: u64) -> Vec<u8> {
    let start = disk.len().min(at as usize);
    let mut bytes = disk[start..disk.len().min(start + len as usize)].to_vec();
    bytes.resize(len as usize, 0);
    bytes
}

/// Draws the offset of a byte in a structure.
fn somewhere(random: &mut SmallRng, journal: &Journal) -> u64 {
    let entry = |places: &[u64], random: &mut SmallRng| places.choose(random).copied().map(|at| (at, 32));
    let checksums = journal.checksums.choose(random).map(|&at| (at, PAGE_SIZE));
    let place = match random.random_range(0..7) {
        0 => Some((journal.anchor, size_of::<Anchor>() as u64)),
        1 => journal.records.choose(random).map(|&(at, _)| (at, size_of::<RecordHead>() as u64)),
        2 => journal.records.choose(random).copied(),
        3 => entry(&journal.fresh, random),
        4 => entry(&journal.changed, random),
        5 if checksums.is_some() => checksums,
        _ => Some((SUPERBLOCKS[random.random_range(0..2)].offset(), 128)),
    };
    let (at, len) = place.unwrap_or((journal.anchor, PAGE_SIZE));
    at + random.random_range(0..len)
}

/// Draws an absurd or random number, a page number, an offset, or a number from another place.
fn value(random: &mut SmallRng, disk: &[u8], journal: &Journal) -> u64 {
    let pages = disk.len() as u64 / PAGE_SIZE;
    match random.random_range(0..10) {
        0 => 0,
        1 => random.random_range(0..4),
        2 => u64::MAX - random.random_range(0..2) * (SECTOR - 1),
        3 => 1 << random.random_range(0..64),
        4 => random.random_range(0..pages),
        5 => volume_bytes(disk) / PAGE_SIZE - random.random_range(0..2),
        6 => random.random_range(0..pages) * PAGE_SIZE,
        7 => random.random_range(0..pages * 8) * SECTOR,
        8 => word(disk, somewhere(random, journal) & !7),
        _ => random.random(),
    }
}

fn of_head(random: &mut SmallRng, base: &DiskBase) -> DiskDamage {
    let (disk, journal) = (&base.bytes, &base.journal);
    let Some(&(record, _)) = journal.records.choose(random) else { return forged(random, base) };
    let value = value(random, disk, journal);
    let field = match random.random_range(0..5) {
        0 => offset_of!(RecordHead, id),
        1 => offset_of!(RecordHead, sequence),
        2 => offset_of!(RecordHead, bytes),
        3 => {
            let at = record + offset_of!(RecordHead, fresh) as u64;
            return DiskDamage::Half { at, value: value as u32 };
        }
        _ => {
            let at = record + offset_of!(RecordHead, changed) as u64;
            return DiskDamage::Half { at, value: value as u32 };
        }
    };
    DiskDamage::Word { at: record + field as u64, value }
}

fn of_fresh(random: &mut SmallRng, base: &DiskBase) -> DiskDamage {
    let (disk, journal) = (&base.bytes, &base.journal);
    let Some(&entry) = journal.fresh.choose(random) else { return forged(random, base) };
    match random.random_range(0..3) {
        0 => DiskDamage::Half { at: entry + offset_of!(FreshPage, checksum) as u64, value: random.random() },
        1 => {
            let page = word(disk, entry + offset_of!(FreshPage, page) as u64);
            let at = page * PAGE_SIZE + random.random_range(0..PAGE_SIZE);
            DiskDamage::Flip { at: journal::place(journal::has_checksums(disk), at), bit: 3 }
        }
        _ => {
            let value = value(random, disk, journal);
            DiskDamage::Word { at: entry + offset_of!(FreshPage, page) as u64, value }
        }
    }
}

fn of_changed(random: &mut SmallRng, base: &DiskBase) -> DiskDamage {
    let (disk, journal) = (&base.bytes, &base.journal);
    let Some(&entry) = journal.changed.choose(random) else { return forged(random, base) };
    let value = value(random, disk, journal);
    match random.random_range(0..4) {
        0 => DiskDamage::Word { at: entry + offset_of!(ChangedPage, lines) as u64, value },
        1 => DiskDamage::Word { at: entry + offset_of!(ChangedPage, page) as u64, value },
        // The flip hits the start of the packed lines: usually the bitmap of the first line, or the first
        // word of this line.
        2 => DiskDamage::Flip {
            at: entry + size_of::<ChangedPage>() as u64 + random.random_range(0..10),
            bit: random.random_range(0..8),
        },
        // Overwrites the first word of the first line, or the eight bytes from offset 10 of the packed lines
        // on. If the first line has one word, these are the first word of the second line: a bitmap of one
        // byte comes before the words of a line, and each word has 8 bytes.
        _ => DiskDamage::Word {
            at: entry + size_of::<ChangedPage>() as u64 + random.random_range(0..2) * 9 + 1,
            value,
        },
    }
}

/// Draws a damage that exchanges or copies sectors, pages or whole records.
fn moved(random: &mut SmallRng, disk: &[u8], journal: &Journal) -> DiskDamage {
    let len = *[SECTOR, PAGE_SIZE].choose(random).expect("two");
    let place = |random: &mut SmallRng| match random.random_range(0..3) {
        0 => random.random_range(0..disk.len() as u64 / len) * len,
        _ => somewhere(random, journal) / SECTOR * SECTOR,
    };
    let (a, b) = (place(random), place(random));
    match (random.random_range(0..4), journal.records.choose(random)) {
        (0, Some(&(from, len))) => DiskDamage::Copy { from, to: journal::end(disk).0, len },
        (1, Some(&(from, len))) => DiskDamage::Copy { from, to: b, len },
        (2, _) => DiskDamage::Swap { a, b, len },
        _ => DiskDamage::Copy { from: a, to: b, len },
    }
}

/// Draws a damage that copies the journal's name (its random id) from one record to another record or to the
/// anchor. The copied name may be from an earlier use of the journal.
fn renamed(random: &mut SmallRng, journal: &Journal) -> DiskDamage {
    let id = |&(at, _): &(u64, u64)| at + offset_of!(RecordHead, id) as u64;
    let mut name = || journal.records.choose(random).map(id);
    let (from, other) = (name().unwrap_or(0), name().unwrap_or(0));
    let to = if random.random() { journal.anchor + offset_of!(Anchor, id) as u64 } else { other };
    DiskDamage::Copy { from, to, len: 16 }
}

fn forged(random: &mut SmallRng, base: &DiskBase) -> DiskDamage {
    let (disk, journal) = (&base.bytes, &base.journal);
    let pages = volume_bytes(disk) / PAGE_SIZE;
    // Draws a page and a line in it. On average, the line belongs to a structure in half of the draws.
    let line = |random: &mut SmallRng| match random.random_range(0..4) {
        0 => (random.random_range(0..pages), random.random_range(0..64)),
        1 => (pages - random.random_range(0..2), 63),
        _ => {
            let at = base.volume.somewhere(random);
            (at / PAGE_SIZE, at % PAGE_SIZE / 64)
        }
    };
    // 2000 entries fill 32 KB, so the record spans many sectors and may list a page several times.
    let count = *[0, 1, 3, 2000].choose(random).expect("four");
    // Most records have right checksums of their fresh pages, because a single wrong checksum makes the whole
    // record invalid.
    let wrong = random.random_range(0..4) == 0;
    let checksums = journal::has_checksums(disk);
    let fresh = (0..count).map(|_| {
        let page = line(random).0;
        let sum = crc32c::crc32c(&bytes(disk, journal::place(checksums, page * PAGE_SIZE), PAGE_SIZE));
        (page, if wrong { random.random() } else { sum })
    });
    let fresh = fresh.collect();
    let changed = (0..random.random_range(0..4)).map(|_| {
        let (page, line) = line(random);
        let lines: u64 = if random.random() { 1 << line } else { random.random() };
        let mut packed = Vec::new();
        for _ in 0..lines.count_ones() {
            packed.push(1 << random.random_range(0..8));
            packed.extend(value(random, disk, journal).to_le_bytes());
        }
        (page, lines, packed)
    });
    DiskDamage::Forge { changed: changed.collect(), fresh }
}

fn forge(disk: &mut [u8], fresh: &[(u64, u32)], changed: &[(u64, u64, Vec<u8>)]) {
    let (at, count) = journal::end(disk);
    let id = bytes(disk, journal::anchor(disk) + offset_of!(Anchor, id) as u64, 16);
    let mut record = [&b"EyrCut\0\0"[..], &id].concat();
    record.extend((count as u64 + 1).to_le_bytes());
    record.extend([0; 8]);
    record.extend([fresh.len() as u32, changed.len() as u32].map(u32::to_le_bytes).concat());
    record.extend([0; 16]);
    for (page, checksum) in fresh {
        record.extend([*page, u64::from(*checksum)].map(u64::to_le_bytes).concat());
    }
    for (page, lines, packed) in changed {
        record.extend([*page, *lines].map(u64::to_le_bytes).concat());
        record.extend(packed);
    }
    if journal::has_checksums(disk) {
        // These checksums are wrong for nearly every page: a replay stores 0 as the entry 1, and 256 as it
        // is. For most disks, `HostileDisk::medium` mends the checksums of pages after the replay.
        changed.iter().for_each(|(page, ..)| record.extend([0, *page as u8 & 1, 0, 0]));
    }
    record.resize(record.len().next_multiple_of(SECTOR as usize), 0);
    let bytes = (record.len() as u64).to_le_bytes();
    put(&mut record, offset_of!(RecordHead, bytes) as u64, &bytes);
    let sum = crc32c::crc32c(&record).to_le_bytes();
    put(&mut record, offset_of!(RecordHead, checksum) as u64, &sum);
    journal::put(disk, at, &record);
}
