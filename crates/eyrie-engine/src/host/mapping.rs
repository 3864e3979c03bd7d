//! Chooses the medium of a volume in a directory of the host. For a new volume, the user's choice and the
//! abilities of the host decide. The superblock records the medium of an existing volume.

use std::fs::File;
use std::sync::Arc;

use eyrie_medium::{Fault, Medium, Overlay, PagedOptions, host};

use super::device::failed;
use super::segment::{FirstPages, blocks, duplicate};
use crate::tables::layout::{MEDIUM_PAGED, MEDIUM_PMEM};
use crate::tables::superblock::{self, Purpose};
use crate::tables::{MediumChoice, Options};
use crate::{Errno, Error, Result};

/// The medium for [`MediumChoice::Auto`] if the volume has checksums, or if the host's files are neither
/// persistent memory nor in memory.
const ON_DISK: MediumChoice = MediumChoice::Paged;

/// Maps the segment of a new volume of `bytes` at `shown_path`, and makes the file as large as the medium
/// needs.
pub(super) fn map_new(file: &File, bytes: u64, options: &Options, shown_path: &str) -> Result<Medium> {
    host::set_len(file, bytes).map_err(failed(shown_path, "cannot be made as large as requested"))?;
    choose(file, bytes, options.medium, options, shown_path)
}

fn choose(
    file: &File,
    bytes: u64,
    choice: MediumChoice,
    options: &Options,
    shown_path: &str,
) -> Result<Medium> {
    let Options { checksums, paged, .. } = *options;
    let duplicate_file = || duplicate(file, shown_path);
    if checksums && matches!(choice, MediumChoice::Dram | MediumChoice::Pmem) {
        let what = "only a volume on a disk can have checksums: choose the medium paged";
        return Err(Error::volume(shown_path, what, Errno::INVAL));
    }
    match choice {
        MediumChoice::Auto if checksums => choose(file, bytes, ON_DISK, options, shown_path),
        MediumChoice::Auto => match Medium::pmem(vec![(duplicate_file()?, bytes)]) {
            Err(Fault::NotSynchronous) if is_memory(file) => {
                choose(file, bytes, MediumChoice::Dram, options, shown_path)
            }
            Err(Fault::NotSynchronous) => choose(file, bytes, ON_DISK, options, shown_path),
            mapped => Ok(mapped?),
        },
        MediumChoice::Dram => Ok(Medium::dram(vec![(duplicate_file()?, bytes)])?),
        MediumChoice::Pmem => Medium::pmem(vec![(duplicate_file()?, bytes)]).map_err(|fault| {
            let advice = "name a place on persistent memory mounted with `-o dax`, or choose the medium dram";
            explain(fault, shown_path, format!("no persistent memory (the host refuses MAP_SYNC); {advice}"))
        }),
        MediumChoice::Paged => {
            let blocks = blocks(duplicate_file()?);
            let total = Medium::paged_bytes(bytes, checksums);
            host::set_len(file, total).map_err(failed(shown_path, "cannot be made as large as requested"))?;
            Medium::format_paged(&blocks, bytes, checksums)?;
            Ok(Medium::paged(Arc::new(blocks), paged)?)
        }
    }
}

/// Maps the segment of the volume at `shown_path`, on the medium that its superblock records.
pub(super) fn map(file: &File, bytes: u64, paged: PagedOptions, shown_path: &str) -> Result<Medium> {
    let duplicate_file = || duplicate(file, shown_path);
    // Only a volume on a disk has a journal. The last pages of any other volume belong to its users, who may
    // have written bytes there that look like a journal.
    let start = FirstPages::read(file).map_err(failed(shown_path, "cannot be read"))?;
    if let Some(start) = start.filter(FirstPages::is_paged) {
        start.check_known(Purpose::Changes, shown_path)?;
        match Medium::paged(Arc::new(blocks(duplicate_file()?)), paged) {
            Err(Fault::NotPaged) => {}
            mapped => return Ok(mapped?),
        }
    }
    let medium = Medium::dram(vec![(duplicate_file()?, bytes)])?;
    match superblock::read(&medium, shown_path)?.block.medium {
        MEDIUM_PMEM => Medium::pmem(vec![(duplicate_file()?, bytes)]).map_err(|fault| {
            let what = "made on persistent memory, which this place lacks (the host refuses MAP_SYNC)";
            let advice = "mount its file system with `-o dax` again, or move the volume back to where it was";
            explain(fault, shown_path, format!("{what}; {advice}"))
        }),
        MEDIUM_PAGED => Err(without_journal(bytes, shown_path)),
        _ => Ok(medium),
    }
}

/// Returns the error for a file that has no journal at its end, although its superblock records the medium
/// `paged`.
pub(crate) fn without_journal(bytes: u64, shown_path: &str) -> Error {
    let what =
        format!("truncated volume: segment 0 has {bytes} bytes and no journal at its end; restore the file");
    Error::volume(shown_path, what, Errno::IO)
}

/// Maps a copy of the segment of a volume. No change reaches the host.
pub(super) fn map_copy(file: &File, bytes: u64, paged: PagedOptions, shown_path: &str) -> Result<Medium> {
    let duplicate_file = || duplicate(file, shown_path);
    let start = FirstPages::read(file).map_err(failed(shown_path, "cannot be read"))?;
    // Without a superblock the medium is unknown. The code then tries the medium `paged` first.
    if start.as_ref().is_none_or(|start| start.is_paged() || !start.has_volume()) {
        match Medium::paged(Arc::new(Overlay::new(blocks(duplicate_file()?))), paged) {
            Err(Fault::NotPaged) => {}
            mapped => return Ok(mapped?),
        }
    }
    // In a volume with checksums, checksum pages lie between the other pages, so the offset of a page in the
    // file differs from its offset in the volume. A plain mapping of the file would therefore show wrong
    // pages.
    if let Some(whole) = start.and_then(|start| start.bytes_with_checksums()) {
        let whole = whole.min(Medium::most_volume_bytes(bytes, true));
        let blocks = Arc::new(Overlay::new(blocks(duplicate_file()?)));
        return Ok(Medium::paged_without_journal(blocks, whole, true, paged)?);
    }
    Ok(Medium::copy_of(file, bytes)?)
}

/// Turns the lack of persistent memory into an error with the text `what`. Other faults pass unchanged.
fn explain(fault: Fault, shown_path: &str, what: String) -> Error {
    match fault {
        Fault::NotSynchronous => Error::volume(shown_path, what, Errno::OPNOTSUPP),
        fault => fault.into(),
    }
}

/// True if the host keeps the file in memory only.
fn is_memory(file: &File) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const HUGETLBFS: u64 = 0x9584_58f6;
    // The kernel's type of this number is signed on some architectures.
    let magic = |stat: rustix::fs::StatFs| stat.f_type as u64 & 0xffff_ffff;
    rustix::fs::fstatfs(file).is_ok_and(|stat| [TMPFS, RAMFS, HUGETLBFS].contains(&magic(stat)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    use eyrie_medium::{Anchor, ChangedPage, FreshPage, MediumKind, PAGE_SIZE, RecordHead};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::Time;
    use crate::format_doc::{assert_described, fields};
    use crate::tables::layout::Superblock;
    use crate::volume::{Volume, segment_path};

    /// The last pages of a volume with the medium `dram` may hold any bytes, even bytes that look like a
    /// journal.
    #[test]
    fn regression_journal_written_by_user_is_not_replayed() {
        let dir = tempfile::tempdir().expect("room");
        let path = dir.path().join("vol");
        let random = Options::random(Time::new(1, 0)).expect("random bytes");
        let options = Options { medium: MediumChoice::Dram, group_bytes: 64 << 10, ..random };
        let volume = Volume::create(&path, Some(1 << 20), &options).expect("room");
        volume.save().expect("sound");
        drop(volume);
        let file = File::options().read(true).write(true).open(segment_path(&path)).expect("there");
        let anchor = Anchor::create((1 << 20) - 2 * PAGE_SIZE, PAGE_SIZE, false).expect("random bytes");
        file.write_all_at(anchor.as_bytes(), (1 << 20) - PAGE_SIZE).expect("room");
        let mut before = vec![0; 1 << 20];
        file.read_exact_at(&mut before, 0).expect("there");
        let medium = map(&file, 1 << 20, options.paged, "vol").expect("it is on no disk");
        assert_eq!(medium.kind(), MediumKind::Dram);
        assert!(medium.snapshot() == before, "opening it changed something");
    }

    /// Makes a volume on a disk below `dir`, and changes both copies of its superblock. Returns the path.
    fn volume_with(dir: &Path, edit: fn(&mut Superblock)) -> PathBuf {
        let path = dir.join("vol");
        let random = Options::random(Time::new(1, 0)).expect("random bytes");
        let options = Options { medium: MediumChoice::Paged, ..random };
        Volume::create(&path, Some(1 << 20), &options).expect("room").save().expect("sound");
        let file = File::options().read(true).write(true).open(segment_path(&path)).expect("there");
        let mut start = FirstPages::read(&file).expect("there").expect("large enough");
        for copy in &mut start.0 {
            edit(copy);
            superblock::renumber(copy);
        }
        file.write_all_at(start.as_bytes(), 0).expect("room");
        path
    }

    #[test]
    fn newer_format_on_a_disk_is_refused_and_unchanged() {
        for edit in [
            (|block| block.version.set(2)) as fn(&mut Superblock),
            |block| block.incompat.set(1 << 40),
            |block| block.ro_compat.set(1 << 40),
        ] {
            let dir = tempfile::tempdir().expect("room");
            let path = volume_with(dir.path(), edit);
            let before = std::fs::read(segment_path(&path)).expect("there");
            let refused = Volume::open(&path, PagedOptions::for_host()).err().expect("a newer format");
            assert!(refused.to_string().contains("newer format"), "{refused}");
            let after = std::fs::read(segment_path(&path)).expect("there");
            assert!(after == before, "the refused volume was changed");
        }
    }

    #[test]
    fn unknown_read_only_feature_lets_a_copy_open() {
        let dir = tempfile::tempdir().expect("room");
        let path = volume_with(dir.path(), |block| block.ro_compat.set(8));
        let paged = PagedOptions::for_host();
        drop(Volume::open_copy(&path, paged).expect("readers may ignore the feature"));
        let refused = Volume::open_damaged(&path, paged).err().expect("a repair would lose the feature");
        assert!(refused.to_string().contains("this program may only read the volume"), "{refused}");
    }

    #[test]
    fn format_page_matches_journal() {
        let anchor = fields!(Anchor { magic, id, volume_bytes, journal_bytes, version, checksum, reserved });
        assert_described("Journal anchor", size_of::<Anchor>(), &anchor);
        let head =
            fields!(RecordHead { magic, id, sequence, bytes, fresh, changed, checksum, overflow, reserved });
        assert_described("Journal record", size_of::<RecordHead>(), &head);
        let fresh = fields!(FreshPage { page, checksum, reserved });
        assert_described("Fresh page", size_of::<FreshPage>(), &fresh);
        assert_described("Changed page", size_of::<ChangedPage>(), &fields!(ChangedPage { page, lines }));
    }
}
