//! Makes and opens volumes, and the host's file system, for commands.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use eyrie::{Credentials, Errno, Files, Host, PagedOptions, Report, Volume, VolumeOptions};

use crate::failure::{Doing, Failure, Result, reason};
use crate::text;

/// Memory for pages of volumes on disks, in bytes, if the user chose it. It is a setting of the process, as
/// the umask is.
static MEMORY_BYTES: OnceLock<u64> = OnceLock::new();

/// Sets the memory for pages of each volume on a disk. The first call counts.
pub fn set_memory(bytes: u64) {
    MEMORY_BYTES.get_or_init(|| bytes);
}

/// Returns the memory and the timing of volumes on disks.
pub fn paged() -> PagedOptions {
    let host = PagedOptions::for_host();
    PagedOptions { memory_bytes: MEMORY_BYTES.get().copied().unwrap_or(host.memory_bytes), ..host }
}

/// Fails if something exists at `path`, where a volume is to be made. `advice` says how to name another
/// place.
///
/// # Errors
/// With one line for the user.
pub fn refuse_existing(path: &Path, advice: &str) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let why = format!("it exists already: {advice}, or remove it first");
    Err(Failure::new("cannot make a volume", text::path(path), why))
}

/// Makes a volume. `note` goes to the end of the message if something is there already.
///
/// # Errors
/// As [`VolumeOptions::create`].
pub fn create(path: &Path, options: VolumeOptions, note: &str) -> Result<Volume> {
    options.paged(paged()).create(path).map_err(|error| {
        let failure = refused("cannot make a volume", path, &error);
        if error.errno() == Errno::EXIST { failure.with_note(note) } else { failure }
    })
}

/// Opens a volume.
///
/// # Errors
/// When there is none, it is in use, or it cannot be read.
pub fn open(volume: &Path) -> Result<Volume> {
    Volume::open_with(volume, paged()).map_err(|error| {
        if error.errno() == Errno::NOENT {
            let why = "there is none: make it with `eyrie mkfs`, or check the spelling";
            return Failure::new("cannot open the volume", text::path(volume), why);
        }
        refused("cannot open the volume", volume, &error)
    })
}

/// Returns the failure of a call on a whole volume. The place is printed once, although the error often names
/// it, too.
pub fn refused(what: &str, volume: &Path, error: &eyrie::Error) -> Failure {
    let place = text::path(volume);
    let why = reason(error);
    let why = why.strip_prefix(&format!("{place}: ")).unwrap_or(&why);
    Failure::new(what, place, why)
}

/// Returns the user of this process, with its umask.
pub fn credentials() -> Credentials {
    // The umask can only be read by setting it. No other thread makes files in between.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    Credentials::of_process().with_umask(u16::try_from(umask.bits() & 0o777).unwrap_or(0))
}

/// Runs `work` on a volume, and closes the volume in any case.
///
/// # Errors
/// Those of `work`, then those of closing.
pub fn with_volume<T>(path: &Path, work: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
    let volume = open(path)?;
    let result = work(&volume);
    let closed = volume.close().doing("close the volume", text::path(path));
    let result = result?;
    closed?;
    Ok(result)
}

/// Works as [`with_volume`], on the files of the volume as the user of this process may use them.
///
/// # Errors
/// As [`with_volume`].
pub fn with_files<T>(path: &Path, work: impl FnOnce(&Files) -> Result<T>) -> Result<T> {
    with_volume(path, |volume| work(&volume.files(credentials())))
}

/// Returns the host's file system from its root, and `path` as an absolute path in it.
///
/// # Errors
/// When the path is empty, or the root cannot be opened.
pub fn host(path: &Path) -> Result<(Host, PathBuf)> {
    let path = std::path::absolute(path).doing("use", text::path(path))?;
    Ok((Host::new("/").doing("open", "/")?, path))
}

/// Returns the number of objects that a check looked at.
pub fn object_count(report: &Report) -> u64 {
    report.directories + report.files + report.others
}

/// Returns true if `path` is a block device, which a volume fills.
pub fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}
