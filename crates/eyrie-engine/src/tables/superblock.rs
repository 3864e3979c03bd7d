//! Writes and reads the superblock.
//!
//! A write is safe when power fails. It overwrites the two copies one after the other, with a barrier between
//! them. The copy from which the superblock was read comes last, because that copy is whole. So at least one
//! copy is whole at any moment, and the checksum tells which copies are whole.

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, lock};
use eyrie_medium::{Medium, MediumKind, PAGE_SIZE};
use zerocopy::{FromZeros, IntoBytes};

use super::geometry::Geometry;
use super::layout::{
    CHECKSUMS, COMPAT, FORMAT_VERSION, INCOMPAT, MAGIC, MAX_SEGMENTS, MEDIUM_DRAM, MEDIUM_PAGED, MEDIUM_PMEM,
    RO_COMPAT, SUPERBLOCKS, Superblock,
};
use super::options::Options;
use crate::{Errno, Error, Result};

/// Returns the superblock of a new volume on `medium`. On a block device, `disk_bytes` is the number of bytes
/// that the volume takes, with its journal and its checksums. In a file it is 0.
pub(crate) fn new(geometry: &Geometry, options: &Options, medium: &Medium, disk_bytes: u64) -> Superblock {
    let mut block = Superblock::new_zeroed();
    block.magic = MAGIC;
    block.version.set(FORMAT_VERSION);
    block.volume_id = options.volume_id;
    block.block_bytes.set(PAGE_SIZE as u32);
    block.realms.set(1);
    block.group_bytes.set(geometry.group_bytes());
    block.volume_bytes.set(geometry.volume_bytes());
    block.hash_seed.set(options.hash_seed);
    block.created_seconds.set(options.created.seconds);
    block.created_nanoseconds.set(options.created.nanoseconds);
    block.segments.set(1);
    block.medium = medium_code(medium.kind());
    block.incompat.set(if medium.has_checksums() { CHECKSUMS } else { 0 });
    block.segment_bytes[0].set(geometry.volume_bytes());
    block.most_bytes.set(geometry.most_bytes());
    block.disk_bytes.set(disk_bytes);
    block
}

/// Returns the number that stands for a medium in the superblock. Traced memory, which only tests use, has
/// the number of `dram`.
fn medium_code(kind: MediumKind) -> u8 {
    match kind {
        MediumKind::Dram | MediumKind::Traced => MEDIUM_DRAM,
        MediumKind::Pmem => MEDIUM_PMEM,
        MediumKind::Paged => MEDIUM_PAGED,
    }
}

fn checksum(block: &Superblock) -> u32 {
    let bytes = block.as_bytes();
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// True if the checksum of a copy matches its bytes.
pub(crate) fn is_whole(block: &Superblock) -> bool {
    block.checksum.get() == checksum(block)
}

/// Returns the index of the whole copy with the higher sequence number, or `None` if no copy is whole. After
/// a finished write both copies have the same number, and the first copy counts.
pub(crate) fn newest(copies: &[Superblock; 2], is_whole: impl Fn(&Superblock) -> bool) -> Option<usize> {
    let whole = (0..2).filter(|&i| copies[i].magic == MAGIC && is_whole(&copies[i]));
    whole.max_by_key(|&i| (copies[i].sequence.get(), 1 - i))
}

/// The purpose for which a volume is opened. It decides if unknown features of [`Superblock::ro_compat`]
/// matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The volume itself does not change. At most a copy of it in memory changes.
    Reading,
    /// The volume itself changes, or a repair replaces it.
    Changes,
}

/// A superblock that was read and verified.
pub(crate) struct VerifiedSuperblock {
    /// The fields as they were read, and as `set_size` and `set_root` changed them. The medium may have a
    /// newer sequence number and more features.
    pub(crate) block: Superblock,
    pub(crate) geometry: Geometry,
    /// Index of the copy from which this superblock was read.
    copy: usize,
    /// The fields that change while other threads use the volume.
    newest: Mutex<NewestFields>,
}

#[derive(Clone, Copy)]
struct NewestFields {
    sequence: u64,
    incompat: u64,
}

/// Gives a changed superblock the next sequence number and a new checksum.
pub(crate) fn renumber(block: &mut Superblock) {
    block.sequence.set(block.sequence.get().wrapping_add(1));
    block.checksum.set(checksum(block));
}

/// Writes a superblock over both copies, with the next sequence number. The `current` copy is written last.
/// It stays whole while a crash may tear the other copy.
pub(crate) fn write(medium: &Medium, block: &mut Superblock, current: usize) -> Result<()> {
    renumber(block);
    for copy in [1 - current, current] {
        let dirty = medium.write_value(SUPERBLOCKS[copy], block)?;
        if copy == current || !broken(SafetyRule::SuperblockCopiesAreOrdered) {
            let _whole = medium.barrier(dirty);
        }
    }
    Ok(())
}

impl VerifiedSuperblock {
    /// Refuses features that this program does not know, if they matter for `purpose`.
    pub(crate) fn check_known(&self, purpose: Purpose, place: &str) -> Result<()> {
        check_known(&self.block, purpose, place)
    }

    /// Returns an error unless the superblock and the journal of `medium` agree about checksums.
    pub(crate) fn require_checksums_of(&self, medium: &Medium, place: &str) -> Result<()> {
        if (self.block.incompat.get() & CHECKSUMS != 0) == medium.has_checksums() {
            return Ok(());
        }
        let what = "corrupt volume: its superblock and its journal disagree about checksums";
        Err(Error::volume(place, what, Errno::IO))
    }

    /// Stores the size of `geometry` as the size of the volume.
    pub(crate) fn set_size(&mut self, medium: &Medium, geometry: Geometry) -> Result<()> {
        let mut block = self.block;
        block.volume_bytes.set(geometry.volume_bytes());
        block.segment_bytes[0].set(geometry.volume_bytes());
        self.store(medium, &mut block, 0)?;
        (self.block, self.geometry) = (block, geometry);
        Ok(())
    }

    /// Stores the object id of the root directory.
    pub(crate) fn set_root(&mut self, medium: &Medium, root: u64) -> Result<()> {
        let mut block = self.block;
        block.root.set(root);
        self.store(medium, &mut block, 0)?;
        self.block = block;
        Ok(())
    }

    /// True if the volume has this incompatible feature.
    pub(crate) fn has_feature(&self, feature: u64) -> bool {
        lock(&self.newest).incompat & feature != 0
    }

    /// Records that the volume has this incompatible feature. Other threads may use the volume meanwhile.
    pub(crate) fn add_feature(&self, medium: &Medium, feature: u64) -> Result<()> {
        if self.has_feature(feature) { Ok(()) } else { self.store(medium, &mut { self.block }, feature) }
    }

    /// Writes `block` with the newest features and the features in `added`.
    fn store(&self, medium: &Medium, block: &mut Superblock, added: u64) -> Result<()> {
        let mut newest = lock(&self.newest);
        block.sequence.set(newest.sequence);
        block.incompat.set(newest.incompat | added);
        write(medium, block, self.copy)?;
        *newest = NewestFields { sequence: block.sequence.get(), incompat: block.incompat.get() };
        Ok(())
    }
}

/// Reads and verifies the superblock of the volume at `place`. Refuses a volume that is shorter than its
/// superblock says.
pub(crate) fn read(medium: &Medium, place: &str) -> Result<VerifiedSuperblock> {
    let found = find(medium, place)?;
    let (actual, volume_bytes) = (length(medium), found.geometry.volume_bytes());
    if actual < volume_bytes {
        let what = format!(
            "truncated volume: segment 0 has {actual} bytes, the superblock says {volume_bytes}; \
             restore the file"
        );
        return Err(Error::volume(place, what, Errno::IO));
    }
    Ok(found)
}

/// Returns the key of the hash of names in each copy of the superblock that can be read, sound or not.
pub(crate) fn hash_seeds(medium: &Medium) -> Vec<u64> {
    let _pin = pin();
    let copies = SUPERBLOCKS.into_iter().filter_map(|copy| medium.read_value::<Superblock>(copy).ok());
    copies.map(|copy| copy.hash_seed.get()).collect()
}

fn length(medium: &Medium) -> u64 {
    medium.segment_sizes().next().unwrap_or(0)
}

/// Works like [`read`], but accepts a volume that is shorter than its superblock says.
pub(crate) fn find(medium: &Medium, place: &str) -> Result<VerifiedSuperblock> {
    let actual = length(medium);
    if actual < 2 * PAGE_SIZE {
        let what = format!("not an Eyrie volume (only {actual} bytes)");
        return Err(Error::volume(place, what, Errno::INVAL));
    }
    let copies: [Superblock; 2] = [medium.read_value(SUPERBLOCKS[0])?, medium.read_value(SUPERBLOCKS[1])?];
    let named = copies.iter().filter(|copy| copy.magic == MAGIC).count();
    if named == 0 {
        let what = "not an Eyrie volume (or its creation did not finish)";
        return Err(Error::volume(place, what, Errno::INVAL));
    }
    let Some(copy) = newest(&copies, |copy| medium.verify(is_whole(copy))) else {
        // A newer format may compute its checksum in another way, so copies with a newer version may look
        // damaged.
        if named == 2 && copies.iter().all(|copy| copy.version.get() > FORMAT_VERSION) {
            return Err(newer(place, copies[0].version.get()));
        }
        let what = "corrupt volume: both copies of the superblock are damaged";
        return Err(Error::volume(place, what, Errno::IO));
    };
    let geometry = verify(&copies[copy], place)?;
    let block = copies[copy];
    let newest = NewestFields { sequence: block.sequence.get(), incompat: block.incompat.get() };
    Ok(VerifiedSuperblock { block, geometry, copy, newest: Mutex::new(newest) })
}

fn newer(place: &str, version: u32) -> Error {
    let what =
        format!("newer format: version {version}, this program knows {FORMAT_VERSION}; use a newer eyrie");
    Error::volume(place, what, Errno::OPNOTSUPP)
}

/// Refuses a whole superblock with a version or with features that this program does not know.
pub(crate) fn check_known(block: &Superblock, purpose: Purpose, place: &str) -> Result<()> {
    if block.version.get() > FORMAT_VERSION {
        return Err(newer(place, block.version.get()));
    }
    let unknown = block.incompat.get() & !INCOMPAT;
    if unknown != 0 {
        let what =
            format!("newer format: incompatible features {unknown:#x} are unknown here; use a newer eyrie");
        return Err(Error::volume(place, what, Errno::OPNOTSUPP));
    }
    let unknown = block.ro_compat.get() & !RO_COMPAT;
    if unknown != 0 && purpose == Purpose::Changes {
        let what = format!(
            "newer format: read-only features {unknown:#x} are unknown here, so this program may only read \
             the volume; use a newer eyrie"
        );
        return Err(Error::volume(place, what, Errno::OPNOTSUPP));
    }
    let _ignored = block.compat.get() & !COMPAT;
    Ok(())
}

/// Returns the geometry that a whole superblock describes. Returns an error if this program cannot use the
/// volume.
fn verify(block: &Superblock, place: &str) -> Result<Geometry> {
    // Unknown features are refused before the fields are checked, because they may change the meaning of the
    // fields. An open for changes also calls `VerifiedSuperblock::check_known`.
    check_known(block, Purpose::Reading, place)?;
    let corrupt = |what: &str| Error::volume(place, format!("corrupt volume: superblock: {what}"), Errno::IO);
    if block.version.get() != FORMAT_VERSION {
        return Err(corrupt("version 0"));
    }
    if u64::from(block.block_bytes.get()) != PAGE_SIZE {
        return Err(corrupt("the block size is not 4096"));
    }
    let volume_bytes = block.volume_bytes.get();
    if block.segments.get() != 1 || block.realms.get() != 1 {
        return Err(corrupt("the number of segments or of realms is not 1"));
    }
    if ![MEDIUM_DRAM, MEDIUM_PMEM, MEDIUM_PAGED].contains(&block.medium) {
        return Err(corrupt("unknown medium"));
    }
    let sizes = &block.segment_bytes;
    if sizes[0].get() != volume_bytes || sizes[1..MAX_SEGMENTS].iter().any(|size| size.get() != 0) {
        return Err(corrupt("the table of segments contradicts the size"));
    }
    let geometry = Geometry::with_room(volume_bytes, block.group_bytes.get(), block.most_bytes.get());
    geometry.map_err(corrupt)
}

#[cfg(test)]
mod tests {
    use eyrie_medium::Addr;

    use super::*;
    use crate::Time;
    use crate::tables::options::MediumChoice;

    const SIZE: u64 = 1 << 20;

    fn options() -> Options {
        Options {
            group_bytes: 1 << 16,
            hash_seed: 7,
            volume_id: [9; 16],
            created: Time::new(5, 6),
            medium: MediumChoice::Auto,
            overwrite: false,
            checksums: false,
            paged: eyrie_medium::PagedOptions::for_host(),
        }
    }

    fn written() -> Medium {
        let medium = Medium::memory(SIZE).expect("memory");
        let geometry = Geometry::new(SIZE, 1 << 16).expect("a volume");
        write(&medium, &mut new(&geometry, &options(), &medium, 0), 0).expect("in bounds");
        medium
    }

    fn store(medium: &Medium, addr: Addr, bytes: &[u8]) {
        drop(medium.write(addr, bytes).expect("in bounds"));
    }

    fn refusal(medium: &Medium) -> String {
        read(medium, "here").err().expect("refused").to_string()
    }

    /// Changes both copies and corrects their checksums.
    fn change(medium: &Medium, edit: impl Fn(&mut Superblock)) {
        for addr in SUPERBLOCKS {
            let mut block: Superblock = medium.read_value(addr).expect("in bounds");
            edit(&mut block);
            block.checksum.set(checksum(&block));
            store(medium, addr, block.as_bytes());
        }
    }

    #[test]
    fn superblock_is_read_back_as_written() {
        let found = read(&written(), "here").expect("whole");
        assert_eq!(found.block.volume_id, [9; 16]);
        assert_eq!(found.block.sequence.get(), 1);
        assert_eq!((found.geometry.volume_bytes(), found.geometry.group_bytes()), (SIZE, 1 << 16));
    }

    #[test]
    fn one_bad_copy_leaves_the_other() {
        for bad in 0..2 {
            let medium = written();
            store(&medium, SUPERBLOCKS[bad].add(500), &[1]);
            let mut found = read(&medium, "here").expect("the other copy");
            assert_eq!(found.copy, 1 - bad);
            found.set_root(&medium, 0x4002).expect("in bounds");
            store(&medium, SUPERBLOCKS[1 - bad].add(500), &[1]);
            assert_eq!(read(&medium, "here").expect("repaired").block.root.get(), 0x4002);
        }
    }

    #[test]
    fn damage_is_named() {
        let medium = written();
        store(&medium, SUPERBLOCKS[0].add(500), &[1]);
        store(&medium, SUPERBLOCKS[1].add(4000), &[1]);
        assert!(refusal(&medium).contains("both copies"), "{}", refusal(&medium));
        assert!(refusal(&Medium::memory(SIZE).expect("memory")).contains("not an Eyrie volume"));
        assert!(refusal(&Medium::memory(4096).expect("memory")).contains("not an Eyrie volume"));

        let medium = written();
        let mut bytes = medium.snapshot();
        bytes.truncate(SIZE as usize / 2);
        let short = Medium::memory(SIZE / 2).expect("memory");
        store(&short, Addr::NULL, &bytes);
        let what = refusal(&short);
        assert!(what.contains("524288") && what.contains("1048576"), "{what}");
    }

    #[test]
    fn newer_formats_are_refused() {
        for (edit, word) in [
            (&(|b: &mut Superblock| b.version.set(2)) as &dyn Fn(&mut Superblock), "version 2"),
            (&|b| b.incompat.set(CHECKSUMS | 1 << 40), "incompatible features 0x10000000000"),
        ] {
            let medium = written();
            change(&medium, edit);
            let what = refusal(&medium);
            assert!(what.contains("newer format") && what.contains(word), "{what}");
        }
        let medium = written();
        change(&medium, |block| block.ro_compat.set(8));
        let found = read(&medium, "here").expect("a reader may ignore the feature");
        assert!(found.check_known(Purpose::Reading, "here").is_ok());
        let what = found.check_known(Purpose::Changes, "here").expect_err("unknown").to_string();
        assert!(what.contains("newer format: read-only features 0x8"), "{what}");
        let medium = written();
        change(&medium, |block| block.compat.set(1));
        assert!(read(&medium, "here").is_ok(), "compatible features do no harm");
    }

    #[test]
    fn hostile_superblock_is_refused() {
        for edit in [
            &(|b: &mut Superblock| b.group_bytes.set(3)) as &dyn Fn(&mut Superblock),
            &|b| b.group_bytes.set(0),
            &|b| b.volume_bytes.set(u64::MAX),
            &|b| b.volume_bytes.set(0),
            &|b| b.segments.set(2),
            &|b| b.realms.set(0),
            &|b| b.segment_bytes[0].set(5),
            &|b| b.segment_bytes[9].set(5),
            &|b| b.block_bytes.set(512),
            &|b| b.most_bytes.set(0),
            &|b| b.most_bytes.set(SIZE),
            &|b| b.most_bytes.set(u64::MAX),
            &|b| b.version.set(0),
            &|b| b.medium = 0,
            &|b| b.medium = 4,
        ] {
            let medium = written();
            change(&medium, edit);
            assert!(refusal(&medium).contains("corrupt volume"), "{}", refusal(&medium));
        }
    }
}
