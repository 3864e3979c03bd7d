//! Images: a base volume and its edits.

use std::mem::offset_of;

use eyrie_engine::volume::layout::{SUPERBLOCKS, Superblock, VOLUME_PAGE, VolumePage};
use eyrie_engine::volume::{REDO_SLOTS, redo_slot};
use eyrie_medium::{Addr, Medium, PAGE_SIZE};

use super::BaseVolume;
use super::base::BEHIND_BYTES;

/// A volume with edits.
pub struct Image<'b> {
    /// The volume without the edits.
    pub base: &'b BaseVolume,
    len: u64,
    /// Offsets and bytes. A later edit overrides earlier ones.
    edits: Vec<(u64, Vec<u8>)>,
}

impl<'b> Image<'b> {
    /// Returns an image of `base` without edits.
    pub fn new(base: &'b BaseVolume) -> Image<'b> {
        Image { base, len: base.bytes.len() as u64, edits: Vec::new() }
    }

    /// Builds an image from the bytes of a fuzzer. The first byte selects one of `bases` (high seven bits),
    /// and says if the checksums are made valid (lowest bit). Each edit takes the next five bytes: an offset
    /// (4 bytes, modulo the length) and the new byte. Returns `None` if `bytes` or `bases` is empty.
    pub fn from_fuzzer(bases: &'b [BaseVolume], bytes: &[u8]) -> Option<Image<'b>> {
        let (&first, rest) = bytes.split_first()?;
        let mut image = Image::new(bases.get(usize::from(first >> 1) % bases.len().max(1))?);
        for difference in rest.as_chunks::<5>().0 {
            let [offset @ .., byte] = *difference;
            image.write(u64::from(u32::from_le_bytes(offset)) % image.len, &[byte]);
        }
        if first & 1 == 1 {
            image.mend_checksums();
        }
        Some(image)
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if the image has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Truncates the image, or extends it with zeros. The size is rounded up to whole pages. The minimum is
    /// two pages. The maximum is 16 pages more than the base has.
    pub fn set_len(&mut self, len: u64) {
        let most = self.base.bytes.len() as u64 + BEHIND_BYTES;
        self.len = len.next_multiple_of(PAGE_SIZE).clamp(2 * PAGE_SIZE, most);
    }

    /// Overwrites bytes. [`Image::medium`] and [`Image::to_bytes`] leave out bytes past the end of the
    /// image.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.edits.push((at, bytes.to_vec()));
    }

    /// Overwrites a word.
    pub fn write_word(&mut self, at: u64, word: u64) {
        self.write(at, &word.to_le_bytes());
    }

    /// Returns the edits in order. A later edit overrides earlier ones, and an edit may lie past the end.
    pub(super) fn edits(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.edits.iter().map(|(at, bytes)| (*at, &bytes[..]))
    }

    /// Reads bytes. Bytes past the end of the base are zeros unless an edit changed them.
    pub fn read(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        let overlay = |bytes: &mut [u8], from: u64, source: &[u8]| {
            let (start, end) = (at.max(from), (at + len).min(from + source.len() as u64));
            if start < end {
                let part = &source[(start - from) as usize..(end - from) as usize];
                bytes[(start - at) as usize..(end - at) as usize].copy_from_slice(part);
            }
        };
        overlay(&mut bytes, 0, &self.base.bytes);
        self.edits.iter().for_each(|(from, source)| overlay(&mut bytes, *from, source));
        bytes
    }

    /// Reads a word.
    pub fn word(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.read(at, 8));
        u64::from_le_bytes(word)
    }

    /// Returns a medium that holds the image.
    ///
    /// # Panics
    /// Panics if the host has no memory.
    pub fn medium(&self) -> Medium {
        let medium = self.base.medium(self.len);
        for (at, bytes) in &self.edits {
            let room = self.len.saturating_sub(*at).min(bytes.len() as u64);
            let stored = medium.write(Addr::from_raw((*at).min(self.len)), &bytes[..room as usize]);
            drop(stored.expect("within the image"));
        }
        medium
    }

    /// Returns all bytes of the image.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.read(0, self.len)
    }

    /// Recomputes the checksums of the superblocks, of the saved allocator and of the redo slots. Skips the
    /// checksums of free redo slots, and each checksum whose covered range does not lie in the image.
    pub fn mend_checksums(&mut self) {
        for place in SUPERBLOCKS {
            let block = self.read(place.offset(), PAGE_SIZE);
            let at = offset_of!(Superblock, checksum);
            let sum = crc32c::crc32c_append(crc32c::crc32c(&block[..at]), &block[at + 4..]);
            self.write(place.offset() + at as u64, &sum.to_le_bytes());
        }
        self.mend_saved_allocator();
        (0..REDO_SLOTS).for_each(|slot| self.mend_redo(redo_slot(slot).offset()));
    }

    fn mend_saved_allocator(&mut self) {
        let page = VOLUME_PAGE.offset();
        let place = self.word(page + offset_of!(VolumePage, saved_addr) as u64);
        let bytes = self.word(page + offset_of!(VolumePage, saved_bytes) as u64);
        if place.checked_add(bytes).is_some_and(|end| end <= self.len) {
            let sum = crc32c::crc32c(&self.read(place, bytes));
            self.write(page + offset_of!(VolumePage, saved_checksum) as u64, &sum.to_le_bytes());
        }
    }

    fn mend_redo(&mut self, slot: u64) {
        let count = self.word(slot) & u64::from(u32::MAX);
        let place = self.word(slot + 8);
        let end = (count * 16).checked_add(place);
        if count > 0 && end.is_some_and(|end| end <= self.len) {
            let words = self.read(place, count * 16);
            let sum = crc32c::crc32c_append(crc32c::crc32c(&place.to_le_bytes()), &words);
            self.write_word(slot, u64::from(sum) << 32 | count);
        }
    }
}
