//! Which medium a volume on the host has: what was asked for, what the host can do, and what the superblock records.

use std::fs::File;
use std::sync::Arc;

use eyrie_medium::{Fault, FileBlocks, Medium, MediumKind, Overlay, PagedOptions, host_call};
use rustix::io::Errno;

use super::device::Start;
use super::layout::{MEDIUM_DRAM, MEDIUM_PAGED, MEDIUM_PMEM};
use super::superblock::{self, Options, failure};
use crate::{Error, Result};

/// What a new volume is to be kept on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MediumChoice {
    /// Persistent memory where the host has it, else what suits the host's file system.
    #[default]
    Auto,
    /// Shared memory of the host: completed calls survive the death of the process.
    Dram,
    /// Persistent memory mounted with DAX: completed calls survive a failure of power.
    Pmem,
    /// A disk: what was synchronised, and everything but the last seconds, survives a failure of power.
    Paged,
}

/// What [`MediumChoice::Auto`] takes where the host's files are neither persistent memory nor memory.
const ON_DISK: MediumChoice = MediumChoice::Paged;

/// How the superblock records a medium. Memory for tests passes for the host's.
pub(super) fn code(kind: MediumKind) -> u8 {
    match kind {
        MediumKind::Dram | MediumKind::Traced => MEDIUM_DRAM,
        MediumKind::Pmem => MEDIUM_PMEM,
        MediumKind::Paged => MEDIUM_PAGED,
    }
}

/// Maps the segment of a new volume of `bytes` at `place`, and makes the file as large as that takes.
pub(super) fn map_new(file: &File, bytes: u64, options: &Options, place: &str) -> Result<Medium> {
    host_call(|| file.set_len(bytes)).map_err(|error| {
        failure(place, format!("cannot be made as large as asked: {error}"), errno(&error))
    })?;
    choose(file, bytes, options.medium, options.paged, place)
}

fn choose(file: &File, bytes: u64, choice: MediumChoice, paged: PagedOptions, place: &str) -> Result<Medium> {
    let failed = |error: std::io::Error| failure(place, format!("{error}"), errno(&error));
    let again = || host_call(|| file.try_clone()).map_err(failed);
    match choice {
        MediumChoice::Auto => match Medium::pmem(vec![(again()?, bytes)]) {
            Err(Fault::NotSynchronous) if is_memory(file) => {
                choose(file, bytes, MediumChoice::Dram, paged, place)
            }
            Err(Fault::NotSynchronous) => choose(file, bytes, ON_DISK, paged, place),
            mapped => Ok(mapped?),
        },
        MediumChoice::Dram => Ok(Medium::dram(vec![(again()?, bytes)])?),
        MediumChoice::Pmem => Medium::pmem(vec![(again()?, bytes)]).map_err(|fault| {
            let advice = "name a place on persistent memory mounted with `-o dax`, or choose the medium dram";
            explain(fault, place, format!("no persistent memory (the host refuses MAP_SYNC); {advice}"))
        }),
        MediumChoice::Paged => {
            let blocks = blocks(again()?);
            let total = Medium::paged_bytes(bytes);
            host_call(|| file.set_len(total)).map_err(failed)?;
            Medium::format_paged(&blocks, bytes)?;
            Ok(Medium::paged(Arc::new(blocks), paged)?)
        }
    }
}

/// Gives the file of a volume that is not mapped room for `bytes`, and no more, as its medium needs it. Safe when power
/// fails: the file of a volume on a disk ends with a sound anchor at any moment, because it gets longer by the write of
/// one, and shorter to where one was made durable.
pub(super) fn resize(file: &File, kind: MediumKind, bytes: u64, place: &str) -> Result<()> {
    let failed = |error: std::io::Error| failure(place, format!("cannot be resized: {error}"), errno(&error));
    let mut total = bytes;
    if kind == MediumKind::Paged {
        total = Medium::paged_bytes(bytes);
        let blocks = blocks(host_call(|| file.try_clone()).map_err(failed)?);
        if total > host_call(|| file.metadata()).map_err(failed)?.len() {
            Medium::extend_paged(&blocks, bytes)?;
        } else {
            Medium::format_paged(&blocks, bytes)?;
            // What ends the file then must be there before.
            host_call(|| file.sync_data()).map_err(failed)?;
        }
    }
    host_call(|| file.set_len(total)).map_err(failed)?;
    host_call(|| file.sync_all()).map_err(failed)
}

/// A file or device as blocks, its transfers direct where the host can do that.
pub(super) fn blocks(file: File) -> FileBlocks {
    if let Ok(flags) = rustix::fs::fcntl_getfl(&file) {
        // Without it the host keeps copies of the pages, which costs memory and nothing else.
        let _ = rustix::fs::fcntl_setfl(&file, flags | rustix::fs::OFlags::DIRECT);
    }
    FileBlocks::new(file)
}

/// Maps the segment of the volume at `place`, as its superblock says.
pub(super) fn map(file: &File, bytes: u64, paged: PagedOptions, place: &str) -> Result<Medium> {
    let failed = |error: std::io::Error| failure(place, format!("{error}"), errno(&error));
    let again = || host_call(|| file.try_clone()).map_err(failed);
    // The end of any other volume's file is its users', who may have written there what looks like a journal.
    let start = Start::read(file).map_err(failed)?;
    if start.is_some_and(|start| start.is_paged()) {
        match Medium::paged(Arc::new(blocks(again()?)), paged) {
            Err(Fault::NotPaged) => {}
            mapped => return Ok(mapped?),
        }
    }
    let medium = Medium::dram(vec![(again()?, bytes)])?;
    match superblock::read(&medium, place)?.block.medium {
        MEDIUM_PMEM => Medium::pmem(vec![(again()?, bytes)]).map_err(|fault| {
            let what =
                "made on persistent memory, which the host does not give it here (it refuses MAP_SYNC)";
            let advice = "mount its file system with `-o dax` again, or move the volume back to where it was";
            explain(fault, place, format!("{what}; {advice}"))
        }),
        MEDIUM_PAGED => Err(without_journal(bytes, place)),
        _ => Ok(medium),
    }
}

/// What a volume on a disk is told that ends before its journal does.
pub(super) fn without_journal(bytes: u64, place: &str) -> Error {
    let what =
        format!("truncated volume: segment 0 has {bytes} bytes and no journal at its end; restore the file");
    failure(place, what, Errno::IO)
}

/// Maps the segment of a volume so that nothing that is changed reaches the host.
pub(super) fn map_copy(file: &File, bytes: u64, paged: PagedOptions, place: &str) -> Result<Medium> {
    let failed = |error: std::io::Error| failure(place, format!("{error}"), errno(&error));
    let again = host_call(|| file.try_clone()).map_err(failed)?;
    let start = Start::read(file).map_err(failed)?;
    // A superblock that is gone says nothing either way.
    if start.is_none_or(|start| start.is_paged() || !start.has_volume()) {
        match Medium::paged(Arc::new(Overlay::new(blocks(again))), paged) {
            Err(Fault::NotPaged) => {}
            mapped => return Ok(mapped?),
        }
    }
    Ok(Medium::copy_of(file, bytes)?)
}

/// What a host without persistent memory is told; other faults speak for themselves.
fn explain(fault: Fault, place: &str, what: String) -> Error {
    match fault {
        Fault::NotSynchronous => failure(place, what, Errno::OPNOTSUPP),
        fault => fault.into(),
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Whether the host keeps the file in memory only.
fn is_memory(file: &File) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const HUGETLBFS: u64 = 0x9584_58f6;
    // The kernel's type of this number has a sign on some architectures.
    let magic = |stat: rustix::fs::StatFs| stat.f_type as u64 & 0xffff_ffff;
    rustix::fs::fstatfs(file).is_ok_and(|stat| [TMPFS, RAMFS, HUGETLBFS].contains(&magic(stat)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use eyrie_medium::{Anchor, ChangedPage, FreshPage, PAGE_SIZE, RecordHead};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::Time;
    use crate::format_doc::{assert_described, fields};
    use crate::volume::{Volume, segment_path};

    /// The last pages of a volume that is on no disk may have anything in them: also what looks like the end of one that is.
    #[test]
    fn regression_a_journal_that_a_user_wrote_is_not_replayed() {
        let dir = tempfile::tempdir().expect("room");
        let path = dir.path().join("vol");
        let random = Options::random(Time::new(1, 0)).expect("random bytes");
        let options = Options { medium: MediumChoice::Dram, group_bytes: 64 << 10, ..random };
        let volume = Volume::create(&path, Some(1 << 20), &options).expect("room");
        volume.save().expect("sound");
        drop(volume);
        let file = File::options().read(true).write(true).open(segment_path(&path)).expect("there");
        let anchor = Anchor::create((1 << 20) - 2 * PAGE_SIZE, PAGE_SIZE).expect("random bytes");
        file.write_all_at(anchor.as_bytes(), (1 << 20) - PAGE_SIZE).expect("room");
        let mut before = vec![0; 1 << 20];
        file.read_exact_at(&mut before, 0).expect("there");
        let medium = map(&file, 1 << 20, options.paged, "vol").expect("it is on no disk");
        assert_eq!(medium.kind(), MediumKind::Dram);
        assert!(medium.snapshot() == before, "opening it changed something");
    }

    #[test]
    fn the_description_of_the_journal_agrees() {
        let anchor = fields!(Anchor { magic, id, volume_bytes, journal_bytes, version, checksum, reserved });
        assert_described("Journal anchor", size_of::<Anchor>(), &anchor);
        let head = fields!(RecordHead { magic, id, sequence, bytes, fresh, changed, checksum, reserved });
        assert_described("Journal record", size_of::<RecordHead>(), &head);
        let fresh = fields!(FreshPage { page, checksum, reserved });
        assert_described("Fresh page", size_of::<FreshPage>(), &fresh);
        assert_described("Changed page", size_of::<ChangedPage>(), &fields!(ChangedPage { page, lines }));
    }
}
