//! A volume on a block device: the device is its segment, with the journal behind it.
//!
//! The descriptor is the lock: the kernel gives a device exclusively to one mount or one descriptor (`O_EXCL`), and a lock of
//! the whole file (`flock`) tells those who look at devices without claiming them. Both end when the last copy of
//! the descriptor is closed, so a forked child holds them too.
//!
//! The volume and its journal take the start of the device, as many bytes as the superblock says; the journal's anchor is
//! the last page of those. A device may get larger under a volume.
//!
//! Invariants:
//! - How much the volume takes is read from the superblock in its place, whatever the journal has. It changes only while
//!   the journal is empty, and no record of a journal changes it.
//! - A device that has anything where file systems and their like have their marks is not written to unasked.
//! - A journal is replayed only on a device whose first pages say that it has a volume: after another program took the
//!   device the journal may still be there. Hence a new volume has its superblock in its place from the start.
//!
//! Safe when power fails while the size changes: everything is in its place and the journal is empty. First there is another
//! empty journal where the new one is to be, then the superblock's copies switch to that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use eyrie_medium::{Blocks, Fault, FileBlocks, Medium, Overlay, PAGE_SIZE, PagedOptions, host_call};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::geometry::Geometry;
use super::host::{Hold, MIN_HOST_BYTES, host_error};
use super::layout::{MAGIC, MEDIUM_PAGED, SUPERBLOCKS, Superblock};
use super::medium::{MediumChoice, blocks};
use super::superblock::{self, Options, failure};
use crate::{Error, Result};

/// Bytes at either end of a device in which file systems, partition tables and the like have their marks.
const MARKS_BYTES: u64 = 1 << 20;

/// Whether there is a block device at `path`. In this crate's tests a file whose name ends with `.device` passes for one.
pub(super) fn is_device(path: &Path) -> bool {
    let passes = cfg!(test) && path.extension().is_some_and(|ending| ending == "device");
    passes || fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// The first pages of a device, aligned as direct transfers need it.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(super) struct Start([Superblock; 2]);

const _: () = assert!(SUPERBLOCKS[0].offset() == 0 && SUPERBLOCKS[1].offset() == PAGE_SIZE);

impl Start {
    /// `None` where the device, or file, ends before.
    #[track_caller]
    pub(super) fn read(file: &File) -> io::Result<Option<Start>> {
        let mut start = Start::new_zeroed();
        match host_call(|| file.read_exact_at(start.as_mut_bytes(), 0)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(start)),
        }
    }

    /// Whether it says that a volume is on a disk. That never changes, so a copy that is damaged says it, too.
    pub(super) fn is_paged(&self) -> bool {
        self.0.iter().any(|copy| copy.magic == MAGIC && copy.medium == MEDIUM_PAGED)
    }

    pub(super) fn has_volume(&self) -> bool {
        self.0.iter().any(|copy| copy.magic == MAGIC)
    }

    /// Bytes of the device that its volume takes; `None` where it says nothing.
    fn taken(&self) -> Option<u64> {
        let copy = &self.0[superblock::newest(&self.0, superblock::is_whole)?];
        Some(copy.disk_bytes.get()).filter(|&bytes| bytes > 0)
    }
}

/// Takes the device at `path` for a new volume that fills it, has `fill` write that, and gives what `fill` gave. After an
/// error the device can be taken again.
pub(super) fn create<T>(
    path: &Path,
    options: &Options,
    fill: impl FnOnce(Medium, Hold) -> Result<T>,
) -> Result<T> {
    let (file, place) = (claim(path)?, path.display().to_string());
    let (mapped, held) = (again(&file, path)?, again(&file, path)?);
    let new = NewVolume::measure(&file, options, &place)?;
    new.clear(&file).map_err(failed(&place, "cannot be written"))?;
    let done = new.format(mapped, options).and_then(|medium| fill(medium, Hold::Device(held)));
    if done.is_err() {
        // The error that led here is the one to report.
        let _ = new.clear(&file);
    }
    done
}

/// Takes the device at `path` with the volume on it.
pub(super) fn open(path: &Path, paged: PagedOptions) -> Result<(Medium, File)> {
    let file = claim(path)?;
    Ok((mount(&file, paged, &path.display().to_string())?, file))
}

/// Another descriptor of a claimed device, under the same claim.
pub(super) fn again(file: &File, path: &Path) -> Result<File> {
    host_call(|| file.try_clone()).map_err(|error| host_error(path, "cannot be used", &error))
}

/// Bytes of its device that a volume takes with its journal.
pub(super) fn taken(medium: &Medium) -> u64 {
    let (volume, journal) = (medium.segment_sizes().next(), medium.journal_bytes());
    volume.unwrap_or(0) + journal.unwrap_or(0) + PAGE_SIZE
}

/// Size of the largest volume that the device has room for.
pub(super) fn room(file: &File, place: &str) -> Result<u64> {
    Ok(Medium::volume_bytes_on(size(file).map_err(failed(place, "cannot be measured"))?))
}

#[track_caller]
fn size(mut file: &File) -> io::Result<u64> {
    host_call(|| file.seek(SeekFrom::End(0)))
}

/// Takes the device at `path`, and shows it so that nothing that is changed reaches it.
pub(super) fn open_copy(path: &Path, paged: PagedOptions) -> Result<(Medium, File)> {
    let (file, place) = (claim(path)?, path.display().to_string());
    let medium = paged_on(Overlay::new(blocks_of_volume(&file, &place)?), paged, &place)?;
    Ok((medium, file))
}

/// Opens a device for this process alone.
fn claim(path: &Path) -> Result<File> {
    let in_use = || {
        let what = "in use: it is mounted, or another process (or this one) has it open";
        failure(&path.display().to_string(), what, Errno::BUSY)
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::EXCL.bits() as i32);
    let file = host_call(|| options.open(path)).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => in_use(),
        _ => host_error(path, "cannot be opened", &error),
    })?;
    match host_call(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(in_use()),
        Err(errno) => Err(host_error(path, "cannot be locked", &errno.into())),
    }
}

fn failed(place: &str, doing: &str) -> impl FnOnce(io::Error) -> Error {
    let (place, doing) = (place.to_string(), doing.to_string());
    move |error| host_error(Path::new(&place), &doing, &error)
}

/// A volume that is to fill a device.
pub(super) struct NewVolume {
    /// Size of the volume.
    bytes: u64,
    /// Where it must find zeros, and where file systems and their like have their marks.
    ends: [Range<u64>; 2],
}

impl NewVolume {
    /// Refuses a device that cannot be taken.
    pub(super) fn measure(file: &File, options: &Options, place: &str) -> Result<NewVolume> {
        if matches!(options.medium, MediumChoice::Dram | MediumChoice::Pmem) {
            let what = "a volume on a block device has the medium paged: choose that, or make a file system on the device";
            return Err(failure(place, what, Errno::INVAL));
        }
        let size = size(file).map_err(failed(place, "cannot be measured"))?;
        let bytes = Medium::volume_bytes_on(size);
        if bytes < MIN_HOST_BYTES {
            let what = format!(
                "a device of {size} bytes is too small: a volume takes 1 MiB, and its journal as much"
            );
            return Err(failure(place, what, Errno::INVAL));
        }
        let geometry =
            Geometry::new(bytes, options.group_bytes).map_err(|what| failure(place, what, Errno::INVAL))?;
        if !options.overwrite {
            let occupied = occupant(file, size).map_err(failed(place, "cannot be read"))?;
            if let Some(what) = occupied {
                return Err(failure(place, what, Errno::EXIST));
            }
        }
        let start = geometry.data_start().max(MARKS_BYTES).min(bytes);
        Ok(NewVolume { bytes, ends: [0..start, size - MARKS_BYTES..size] })
    }

    /// Makes the end of a file that was [cleared](NewVolume::clear) a journal.
    pub(super) fn format(&self, file: File, options: &Options) -> Result<Medium> {
        let blocks = blocks(file);
        Medium::fill_paged(&blocks, self.bytes)?;
        Ok(Medium::paged(Arc::new(blocks), options.paged)?)
    }

    /// Makes both ends zeros, durably.
    pub(super) fn clear(&self, file: &File) -> io::Result<()> {
        self.ends.iter().try_for_each(|range| zero(file, range))?;
        host_call(|| file.sync_data())
    }
}

/// Zeros, aligned as direct transfers need it.
#[repr(align(4096))]
struct Zeros([u8; 1 << 16]);

fn zero(file: &File, range: &Range<u64>) -> io::Result<()> {
    static ZEROS: Zeros = Zeros([0; 1 << 16]);
    host_call(|| {
        range.clone().step_by(ZEROS.0.len()).try_for_each(|offset| {
            let len = (range.end - offset).min(ZEROS.0.len() as u64);
            file.write_all_at(&ZEROS.0[..len as usize], offset)
        })
    })
}

/// What is on the device already.
fn occupant(file: &File, size: u64) -> io::Result<Option<&'static str>> {
    if Start::read(file)?.is_some_and(|start| start.has_volume()) {
        return Ok(Some("there is an Eyrie volume on it"));
    }
    let mut marks = vec![0; MARKS_BYTES as usize];
    for offset in [0, size - MARKS_BYTES] {
        host_call(|| file.read_exact_at(&mut marks, offset))?;
        if marks.iter().any(|&byte| byte != 0) {
            return Ok(Some(
                "there is something on it, such as a file system (its first or last MiB is not zeros)",
            ));
        }
    }
    Ok(None)
}

/// The volume on the device.
pub(super) fn mount(file: &File, paged: PagedOptions, place: &str) -> Result<Medium> {
    paged_on(blocks_of_volume(file, place)?, paged, place)
}

/// The blocks of its device that a volume takes.
fn blocks_of_volume(file: &File, place: &str) -> Result<FileBlocks> {
    let start = Start::read(file).map_err(failed(place, "cannot be read"))?;
    let Some(start) = start.filter(Start::has_volume) else {
        return Err(failure(place, "not an Eyrie volume (or its creation did not finish)", Errno::INVAL));
    };
    let size = size(file).map_err(failed(place, "cannot be measured"))?;
    let again = host_call(|| file.try_clone()).map_err(failed(place, "cannot be used"))?;
    let blocks = blocks(again);
    match start.taken() {
        Some(taken) if taken > size => {
            let what = format!(
                "truncated volume: it takes {taken} bytes of its device, which now has {size}; make that larger again"
            );
            Err(failure(place, what, Errno::IO))
        }
        Some(taken) => Ok(blocks.up_to(taken)),
        None => Ok(blocks),
    }
}

fn paged_on(blocks: impl Blocks + 'static, paged: PagedOptions, place: &str) -> Result<Medium> {
    match Medium::paged(Arc::new(blocks), paged) {
        Err(Fault::NotPaged) => {
            let what = "damaged volume: there is no journal behind it on the device";
            Err(failure(place, what, Errno::IO))
        }
        mapped => Ok(mapped?),
    }
}

/// Gives the volume on the device, which is not mapped and whose journal is empty, room for `bytes` and no more. `step` is
/// called between what comes one after the other.
pub(super) fn resize(
    file: &File,
    bytes: u64,
    place: &str,
    step: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let failed = |error| failed(place, "cannot be resized")(error);
    let whole = blocks(host_call(|| file.try_clone()).map_err(failed)?);
    let taken = Medium::move_paged(&whole, bytes)?;
    step()?;
    let start = Start::read(file).map_err(failed)?;
    let newest = start.and_then(|start| Some((superblock::newest(&start.0, superblock::is_whole)?, start)));
    let Some((newest, mut start)) = newest else {
        return Err(failure(place, "corrupt volume: both copies of the superblock are damaged", Errno::IO));
    };
    let before = start.taken();
    let mut block = start.0[newest];
    block.disk_bytes.set(taken);
    superblock::seal(&mut block);
    start.0 = [block; 2];
    for copy in [1 - newest, newest] {
        let (bytes, place) = (start.0[copy].as_bytes(), SUPERBLOCKS[copy].offset());
        host_call(|| file.write_all_at(bytes, place)).map_err(failed)?;
        host_call(|| file.sync_data()).map_err(failed)?;
        step()?;
    }
    if let Some(behind) = before.and_then(|before| before.checked_sub(taken)) {
        host_call(|| whole.discard(taken, behind)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;
    use crate::volume::{Opened, Volume, host};

    const BYTES: u64 = 16 << 20;

    fn options() -> Options {
        Options { group_bytes: 1 << 18, ..Options::random(crate::Time::new(0, 0)).expect("random bytes") }
    }

    /// A file that stands for a device of zeros.
    fn device(bytes: u64) -> NamedTempFile {
        let file = NamedTempFile::new().expect("a file");
        file.as_file().set_len(bytes).expect("room");
        file
    }

    fn refusal<T>(result: Result<T>) -> String {
        result.err().expect("refused").to_string()
    }

    fn make(file: &NamedTempFile, options: &Options) -> Result<Volume> {
        let reopened = file.reopen().expect("a file");
        let new = NewVolume::measure(&reopened, options, "here")?;
        new.clear(&reopened).expect("room");
        let medium = new.format(reopened, options)?;
        let taken = taken(&medium);
        let volume = Volume::create_in(medium, options, taken, "here")?;
        volume.medium().drain_home()?;
        Ok(volume)
    }

    fn reopen(file: &NamedTempFile) -> Result<(Volume, Opened)> {
        Volume::open_in(
            mount(&file.reopen().expect("a file"), PagedOptions::for_host(), "here")?,
            None,
            "here",
        )
    }

    #[test]
    fn a_volume_fills_a_device_of_any_size() {
        for bytes in [(2 << 20) + 4096, BYTES, BYTES + 512, BYTES + 4096 * 3 + 4095, 3 << 30] {
            let file = device(bytes);
            let volume = make(&file, &options()).expect("created");
            let (size, journal) = (volume.geometry().volume_bytes(), volume.medium().journal_bytes());
            assert_eq!(size + journal.expect("a journal") + PAGE_SIZE, bytes - bytes % PAGE_SIZE);
            assert!(
                size >= 1 << 20 && journal >= Some(1 << 20) && journal <= Some(65 << 20),
                "{size} {journal:?}"
            );
            let id = volume.volume_id();
            volume.close().expect("sound");
            let (volume, opened) = reopen(&file).expect("a volume");
            assert_eq!((volume.volume_id(), opened), (id, Opened::Clean));
            assert_eq!(file.as_file().metadata().expect("a file").len(), bytes);
        }
        assert!(refusal(make(&device((2 << 20) + 4095), &options())).contains("too small"));
        assert!(refusal(make(&device(0), &options())).contains("too small"));
        assert!(refusal(make(&device(2 << 40), &options())).contains("at most 1 TiB"));
    }

    #[test]
    fn what_is_on_a_device_stays_unless_it_may_be_overwritten() {
        // The superblocks of ext4 and btrfs, the label of a partition table at the end, and a lone byte.
        for (offset, mark) in [
            (1024 + 0x38, &b"\x53\xef"[..]),
            ((64 << 10) + 64, b"_BHRfS_M"),
            (BYTES - 512, b"EFI PART"),
            (BYTES - MARKS_BYTES, b"x"),
            (0, b"x"),
        ] {
            let file = device(BYTES);
            file.as_file().write_all_at(mark, offset).expect("room");
            assert!(refusal(make(&file, &options())).contains("something on it"), "{offset}");
            assert!(refusal(reopen(&file)).contains("not an Eyrie volume"));
            let mut kept = vec![0; mark.len()];
            file.as_file().read_exact_at(&mut kept, offset).expect("there");
            assert_eq!(kept, mark);
            make(&file, &Options { overwrite: true, ..options() }).expect("created").close().expect("sound");
            assert!(refusal(make(&file, &options())).contains("an Eyrie volume on it"));
            assert!(reopen(&file).is_ok());
        }
    }

    #[test]
    fn a_volume_over_an_old_one_sees_nothing_of_it() {
        let file = device(BYTES);
        file.as_file().write_all_at(&vec![0xa5; BYTES as usize], 0).expect("room");
        let options = Options { overwrite: true, ..options() };
        let first = make(&file, &options).expect("created").volume_id();
        // Not closed: the device is as a crash leaves it.
        let (volume, opened) = reopen(&file).expect("a volume");
        assert_eq!((volume.volume_id(), opened), (first, Opened::Crashed));
        drop(volume);
        let second = Options::random(crate::Time::new(1, 0)).expect("random bytes").volume_id;
        make(&file, &Options { volume_id: second, ..options }).expect("created");
        assert_eq!(reopen(&file).expect("a volume").0.volume_id(), second);
    }

    #[test]
    fn no_journal_is_replayed_over_something_else() {
        let file = device(BYTES);
        let volume = make(&file, &options()).expect("created");
        let gate = volume.medium().enter().expect("sound");
        volume.space().allocate_header().expect("empty");
        drop(gate);
        volume.medium().drain().expect("a record in the journal");
        drop(volume);
        file.as_file().write_all_at(&[7; 2 * PAGE_SIZE as usize], 0).expect("room");
        assert!(refusal(reopen(&file)).contains("not an Eyrie volume"));
        let mut start = [0; 2 * PAGE_SIZE as usize];
        file.as_file().read_exact_at(&mut start, 0).expect("there");
        assert!(start.iter().all(|&byte| byte == 7), "what took the device is whole");

        let file = device(BYTES);
        make(&file, &options()).expect("created").close().expect("sound");
        file.as_file().set_len(BYTES - PAGE_SIZE).expect("shorter");
        assert!(refusal(reopen(&file)).contains("truncated volume: it takes 16777216 bytes"));
    }

    fn resize(file: &NamedTempFile, bytes: Option<u64>) -> Result<u64> {
        let (volume, opened) = reopen(file)?;
        assert_eq!(opened, Opened::Clean);
        let volume = Volume { hold: Some(Hold::Device(file.reopen().expect("a file"))), ..volume };
        let (mut volume, _) = volume.resize(Path::new("here"), bytes, PagedOptions::for_host())?;
        let marks = volume.marks();
        volume.adopt(&marks);
        let bytes = volume.geometry().volume_bytes();
        volume.close()?;
        Ok(bytes)
    }

    #[test]
    fn a_device_changes_its_size_under_a_volume() {
        let file = device(BYTES);
        let volume = make(&file, &options()).expect("created");
        let full = volume.geometry().volume_bytes();
        let half = full / 2 / PAGE_SIZE * PAGE_SIZE;
        volume.close().expect("sound");
        let what = refusal(resize(&file, Some(full + PAGE_SIZE)));
        assert!(what.contains(&format!("its device has room for {full} bytes")), "{what}");
        assert_eq!(resize(&file, None).expect("sound"), full);

        file.as_file().set_len(2 * BYTES).expect("room");
        let larger = resize(&file, None).expect("sound");
        assert!(larger > full + BYTES / 16 * 15, "{larger}");
        assert_eq!(resize(&file, Some(full)).expect("sound"), full);
        assert_eq!(resize(&file, Some(half)).expect("sound"), half);

        let (volume, _) = reopen(&file).expect("a volume");
        let taken = taken(volume.medium());
        assert_eq!(taken, Medium::paged_bytes(half));
        volume.close().expect("sound");
        file.as_file().set_len(taken).expect("shorter");
        reopen(&file).expect("a volume").0.close().expect("sound");
        file.as_file().set_len(taken - 1).expect("shorter");
        assert!(refusal(reopen(&file)).contains("truncated volume"));
    }

    #[test]
    fn media_and_sizes_that_a_device_does_not_have() {
        for medium in [MediumChoice::Dram, MediumChoice::Pmem] {
            let what = refusal(make(&device(BYTES), &Options { medium, ..options() }));
            assert!(what.contains("has the medium paged"), "{what}");
        }
        make(&device(BYTES), &Options { medium: MediumChoice::Paged, ..options() }).expect("created");
        let sized = host::create(Path::new("any.device"), Some(BYTES), &options(), |_, _| Ok(()));
        assert!(refusal(sized).contains("used whole"));
    }

    #[test]
    fn a_device_that_another_holds_is_in_use() {
        let file = NamedTempFile::new().expect("a file");
        let held = claim(file.path()).expect("free");
        assert!(refusal(claim(file.path())).contains("in use"));
        drop(held);
        claim(file.path()).expect("free again");
    }
}
