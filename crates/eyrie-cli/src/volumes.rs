//! Makes and opens volumes for commands, and opens the host's file system.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use eyrie::{Credentials, Errno, Files, Host, PagedOptions, Report, Volume, VolumeOptions};

use crate::failure::{Doing, Failure, Result, reason, with_close};
use crate::text;

/// Memory for the pages of each volume on a disk, in bytes, if the user chose a size. Like the umask, it is a
/// setting of the process.
static MEMORY_BYTES: OnceLock<u64> = OnceLock::new();

/// Sets the memory for pages of each volume on a disk. Later calls have no effect.
pub fn set_memory(bytes: u64) {
    MEMORY_BYTES.get_or_init(|| bytes);
}

/// Returns the memory for pages of each volume on a disk, if the user chose one.
pub fn memory() -> Option<u64> {
    MEMORY_BYTES.get().copied()
}

/// Returns the options for memory and timing of volumes on disks.
pub fn paged() -> PagedOptions {
    let host = PagedOptions::for_host();
    PagedOptions::new(MEMORY_BYTES.get().copied().unwrap_or(host.memory_bytes), host.drain_interval)
}

/// Fails if anything exists at `path`, where a volume is to be made. A dangling symbolic link counts, too.
/// `advice` tells the user how to name another place.
///
/// # Errors
/// The failure has one line for the user.
pub fn refuse_existing(path: &Path, advice: &str) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let why = format!("it exists already: {advice}, or remove it first");
    Err(Failure::new("cannot make a volume", text::path(path), why))
}

/// Makes a volume. If a volume or other contents exist at `path`, `note` is appended to the error message.
///
/// # Errors
/// As [`VolumeOptions::create`].
pub fn create(path: &Path, options: VolumeOptions, note: &str) -> Result<Volume> {
    options.paged(paged()).create(path).map_err(|error| {
        let failure = refused("cannot make a volume", path, &error);
        if error.errno() == Errno::EXIST { failure.with_note(note) } else { failure }
    })
}

/// The purpose for which a command opens a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The command only reads the volume, so other commands can read it meanwhile.
    Read,
    /// The command may change the volume, so no other command can use it meanwhile, unless a service shares
    /// it.
    Change,
}

/// Opens a volume.
///
/// # Errors
/// Fails if the volume does not exist, is in use or cannot be read.
pub fn open(volume: &Path, purpose: Purpose) -> Result<Volume> {
    let opened = match purpose {
        Purpose::Read => Volume::open_read_only_with(volume, paged()),
        Purpose::Change => Volume::open_with(volume, paged()),
    };
    opened.map_err(|error| unopened("cannot open the volume", volume, &error))
}

/// Returns the failure of a call of the library that opens a volume, also as a part of its work (a resize,
/// for example). Works like [`refused`], with advice if nothing exists at the path.
pub fn unopened(what: &str, volume: &Path, error: &eyrie::Error) -> Failure {
    match error.errno() {
        Errno::NOENT if !volume.exists() => missing(what, volume),
        _ => refused(what, volume, error),
    }
}

/// Returns the failure of a command that needs a volume at a path at which nothing exists.
pub fn missing(what: &str, volume: &Path) -> Failure {
    let why = "no volume is there: make one with `eyrie mkfs`, or check the spelling";
    Failure::not_found(what, text::path(volume), why)
}

/// Returns the failure of a call on a whole volume. The failure names the volume once: a name at the start of
/// the error's text is left out.
pub fn refused(what: &str, volume: &Path, error: &eyrie::Error) -> Failure {
    let place = text::path(volume);
    let why = reason(error);
    let why = why.strip_prefix(&format!("{place}: ")).unwrap_or(&why);
    Failure::of_errno(error.errno(), what, place, why)
}

/// Opens a volume, calls `work`, and closes the volume even after an error of `work`.
///
/// # Errors
/// The error of the open. After the open, as [`with_close`].
pub fn with_volume<T>(path: &Path, purpose: Purpose, work: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
    let volume = open(path, purpose)?;
    let result = work(&volume);
    with_close(result, volume.close().doing("close the volume", text::path(path)))
}

/// Works like [`with_volume`], but calls `work` with the files of the volume, for the user of this process.
///
/// # Errors
/// As [`with_volume`].
pub fn with_files<T>(path: &Path, purpose: Purpose, work: impl FnOnce(&Files) -> Result<T>) -> Result<T> {
    with_volume(path, purpose, |volume| work(&volume.files(Credentials::of_process())))
}

/// Opens the host's file system at its root. Also returns `path` as an absolute path.
///
/// # Errors
/// Fails if `path` is empty, if the working directory is unknown, or if the root cannot be opened.
pub fn host(path: &Path) -> Result<(Host, PathBuf)> {
    let path = std::path::absolute(path).doing("use", text::path(path))?;
    Ok((Host::new("/").doing("open", "/")?, path))
}

/// Returns the number of objects that a check visited.
pub fn object_count(report: &Report) -> u64 {
    report.directories + report.files + report.others
}

/// Returns true if `path` is a block device. Commands need no size for a device, because a volume fills it by
/// default.
pub fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}
