//! A volume on a block device. The device holds the segment of the volume, and after it the journal.
//!
//! The open descriptor of the device holds two locks. The first is `O_EXCL`: the kernel gives a device
//! exclusively to one mount or one descriptor. The second is a lock of the whole file (`flock`), which also
//! stops programs that take only this lock before they probe a device. Both locks end when the last copy of
//! the descriptor is closed, so a forked child holds them too. Readers share the second lock, and do not take
//! the first, which cannot be shared.
//!
//! The volume, its checksums and its journal take as many bytes from the start of the device as the
//! superblock says. The anchor of the journal is the last page of these bytes. A device may become larger
//! while a volume is on it.
//!
//! Invariants:
//! - The number of bytes that the volume takes is read from the superblock in its place, not from the
//!   journal. This number changes only while the journal is empty, and no record of a journal changes it.
//! - A device with any non-zero byte in its first or last MiB is overwritten only with the option
//!   `overwrite`. Such bytes may be the signature of a file system.
//! - A journal is replayed only on a device whose first pages name a volume. On any other device, the journal
//!   may be left over from a volume that another program has overwritten. Therefore the creation of a volume
//!   writes the superblock to its place, by a checkpoint, before it stores any object.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use eyrie_medium::{Blocks, Fault, FileBlocks, Medium, Overlay, PagedOptions, host};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::lock::{Hold, Sharing};
use super::segment::{FirstPages, blocks, duplicate, host_error};
use crate::tables::superblock::Purpose;
use crate::tables::{Geometry, MIN_HOST_BYTES, MediumChoice, Options};
use crate::{Errno, Error, Result};

/// Size of the range at either end of a device that holds the signatures of file systems and partition
/// tables. 1 MiB covers all common signatures.
const SIGNATURES_BYTES: u64 = 1 << 20;

/// Locks the device at `path` for a new volume that fills it, lets `fill` write the volume, and returns the
/// result of `fill`. After an error the device can be used for another volume.
pub(super) fn create<T>(
    path: &Path,
    options: &Options,
    fill: impl FnOnce(Medium, Hold) -> Result<T>,
) -> Result<T> {
    let (file, shown_path) = (lock_device(path, Sharing::Exclusive)?, path.display().to_string());
    let (mapped, held) = (duplicate_locked(&file, path)?, duplicate_locked(&file, path)?);
    let new = NewVolume::measure(&file, options, &shown_path)?;
    // Old signatures and an old superblock must be gone before the new volume can be found.
    new.clear(&file).map_err(failed(&shown_path, "cannot be written"))?;
    let done = new.format(mapped, options).and_then(|medium| fill(medium, Hold::Device(held)));
    if done.is_err() {
        // A failure of this clean-up is ignored, because the caller needs the first error.
        let _ = new.clear(&file);
    }
    done
}

/// Locks the device at `path` and opens the volume on it.
pub(super) fn open(path: &Path, paged: PagedOptions) -> Result<(Medium, Hold)> {
    let file = lock_device(path, Sharing::Exclusive)?;
    Ok((open_volume(&file, paged, &path.display().to_string())?, Hold::Device(file)))
}

/// Returns another descriptor of a locked device, under the same locks.
pub(super) fn duplicate_locked(file: &File, path: &Path) -> Result<File> {
    duplicate(file, &path.display().to_string())
}

/// Returns the size of the largest volume that fits on the device, with or without checksums of its pages.
pub(super) fn room(file: &File, checksums: bool, shown_path: &str) -> Result<u64> {
    Ok(Medium::volume_bytes_on(size(file).map_err(failed(shown_path, "cannot be measured"))?, checksums))
}

#[track_caller]
fn size(mut file: &File) -> io::Result<u64> {
    host::call(|| file.seek(SeekFrom::End(0)))
}

/// Locks the device at `path`, and opens an overlay of it in memory. No change reaches the device.
pub(super) fn open_copy(path: &Path, paged: PagedOptions, sharing: Sharing) -> Result<(Medium, Hold)> {
    let (file, shown_path) = (lock_device(path, sharing)?, path.display().to_string());
    let medium =
        paged_on(Overlay::new(blocks_of_volume(&file, Purpose::Reading, &shown_path)?), paged, &shown_path)?;
    Ok((medium, Hold::Device(file)))
}

/// Opens and locks a device. Until the returned file and all copies of its descriptor are closed, every other
/// call for the device fails, even a call by this process. Shared locks are the exception: they do not
/// exclude each other. With a shared lock the file is open only for reading.
pub(crate) fn lock_device(path: &Path, sharing: Sharing) -> Result<File> {
    let in_use = || {
        let what = "in use: it is mounted, or another process (or this one) has it open";
        Error::volume(&path.display().to_string(), what, Errno::BUSY)
    };
    let mut options = OpenOptions::new();
    options.read(true);
    let operation = match sharing {
        Sharing::Exclusive => {
            options.write(true).custom_flags(OFlags::EXCL.bits() as i32);
            FlockOperation::NonBlockingLockExclusive
        }
        Sharing::Shared => FlockOperation::NonBlockingLockShared,
    };
    let file = host::open(&options, path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => in_use(),
        _ => host_error(path, "cannot be opened", &error),
    })?;
    match host::call(|| flock(&file, operation)) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(in_use()),
        Err(errno) => Err(host_error(path, "cannot be locked", &errno.into())),
    }
}

pub(super) fn failed(shown_path: &str, doing: &str) -> impl FnOnce(io::Error) -> Error {
    let (shown_path, doing) = (shown_path.to_string(), doing.to_string());
    move |error| host_error(Path::new(&shown_path), &doing, &error)
}

/// A new volume that will fill a device.
pub(crate) struct NewVolume {
    /// Size of the volume.
    bytes: u64,
    /// Ranges at the start and the end that are cleared first: the tables of the volume, and the signatures
    /// of file systems.
    ends: [Range<u64>; 2],
}

impl NewVolume {
    /// Measures the device for a new volume. Refuses the media `dram` and `pmem`, and a device that is too
    /// small or too large. Also refuses a device that has non-zero bytes in its first or last MiB, unless the
    /// option `overwrite` is set.
    pub(crate) fn measure(file: &File, options: &Options, shown_path: &str) -> Result<NewVolume> {
        if matches!(options.medium, MediumChoice::Dram | MediumChoice::Pmem) {
            let what = "a volume on a block device must have the medium paged: choose paged, \
                        or make a file system on the device";
            return Err(Error::volume(shown_path, what, Errno::INVAL));
        }
        let size = size(file).map_err(failed(shown_path, "cannot be measured"))?;
        let bytes = Medium::volume_bytes_on(size, options.checksums);
        if bytes < MIN_HOST_BYTES {
            let what = format!(
                "a device of {size} bytes is too small: it needs 1 MiB for a volume and 1 MiB for a journal"
            );
            return Err(Error::volume(shown_path, what, Errno::INVAL));
        }
        let geometry = Geometry::new(bytes, options.group_bytes)
            .map_err(|what| Error::volume(shown_path, what, Errno::INVAL))?;
        if !options.overwrite {
            let occupied = occupant(file, size).map_err(failed(shown_path, "cannot be read"))?;
            if let Some(what) = occupied {
                return Err(Error::volume(shown_path, what, Errno::EXIST));
            }
        }
        let start =
            Medium::place_bytes(geometry.data_start(), options.checksums).max(SIGNATURES_BYTES).min(bytes);
        Ok(NewVolume { bytes, ends: [0..start, size - SIGNATURES_BYTES..size] })
    }

    /// Makes a journal at the end of a device that was [cleared](NewVolume::clear), and opens the device as a
    /// medium.
    pub(crate) fn format(&self, file: File, options: &Options) -> Result<Medium> {
        let blocks = blocks(file);
        Medium::fill_paged(&blocks, self.bytes, options.checksums)?;
        Ok(Medium::paged(Arc::new(blocks), options.paged)?)
    }

    /// Overwrites both ends with zeros, durably.
    pub(crate) fn clear(&self, file: &File) -> io::Result<()> {
        self.ends.iter().try_for_each(|range| zero(file, range))?;
        host::sync_data(file)
    }
}

/// Zeros, aligned for direct transfers.
#[repr(align(4096))]
struct Zeros([u8; 1 << 16]);

fn zero(file: &File, range: &Range<u64>) -> io::Result<()> {
    static ZEROS: Zeros = Zeros([0; 1 << 16]);
    host::call(|| {
        range.clone().step_by(ZEROS.0.len()).try_for_each(|offset| {
            let len = (range.end - offset).min(ZEROS.0.len() as u64);
            file.write_all_at(&ZEROS.0[..len as usize], offset)
        })
    })
}

/// Returns a description of the current content of the device; `None` if its first and last MiB are zeros.
fn occupant(file: &File, size: u64) -> io::Result<Option<&'static str>> {
    if FirstPages::read(file)?.is_some_and(|start| start.has_volume()) {
        return Ok(Some("there is an Eyrie volume on it"));
    }
    let mut bytes = vec![0; SIGNATURES_BYTES as usize];
    for offset in [0, size - SIGNATURES_BYTES] {
        host::read_exact_at(file, &mut bytes, offset)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(Some(
                "there is something on it, such as a file system (its first or last MiB is not zeros)",
            ));
        }
    }
    Ok(None)
}

/// Opens the volume on the device.
pub(crate) fn open_volume(file: &File, paged: PagedOptions, shown_path: &str) -> Result<Medium> {
    paged_on(blocks_of_volume(file, Purpose::Changes, shown_path)?, paged, shown_path)
}

/// Returns the blocks of the device, up to the end of the bytes that the volume takes. Returns all blocks if
/// no whole copy of the superblock records this end. Refuses a device that ends before this end.
fn blocks_of_volume(file: &File, purpose: Purpose, shown_path: &str) -> Result<FileBlocks> {
    let start = FirstPages::read(file).map_err(failed(shown_path, "cannot be read"))?;
    let Some(start) = start.filter(FirstPages::has_volume) else {
        return Err(Error::volume(
            shown_path,
            "not an Eyrie volume (or its creation did not finish)",
            Errno::INVAL,
        ));
    };
    start.check_known(purpose, shown_path)?;
    let size = size(file).map_err(failed(shown_path, "cannot be measured"))?;
    let blocks = blocks(duplicate(file, shown_path)?);
    match start.device_bytes() {
        Some(taken) if taken > size => {
            let what = format!(
                "truncated volume: it takes {taken} bytes of its device, which now has {size}; \
                 make the device larger again"
            );
            Err(Error::volume(shown_path, what, Errno::IO))
        }
        Some(taken) => Ok(blocks.up_to(taken)),
        None => Ok(blocks),
    }
}

fn paged_on(blocks: impl Blocks + 'static, paged: PagedOptions, shown_path: &str) -> Result<Medium> {
    match Medium::paged(Arc::new(blocks), paged) {
        Err(Fault::NotPaged) => {
            let what = "damaged volume: no journal follows it on the device";
            Err(Error::volume(shown_path, what, Errno::IO))
        }
        mapped => Ok(mapped?),
    }
}
