//! A volume on the host: a directory with `segment-0000` and `lock`, or a block device (`device`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use eyrie_medium::{Medium, MediumKind, PAGE_SIZE, PagedOptions, host_call};
use rustix::io::Errno;

use super::device;
use super::lock::HostLock;
use super::medium::{map, map_copy, map_new};
use super::superblock::{Options, failure};
use crate::{Error, Result};

/// Smallest volume on a host, in bytes: 1 MiB.
pub const MIN_HOST_BYTES: u64 = 1 << 20;

/// Size of a volume that was given none, in bytes: 1 GiB.
const DEFAULT_BYTES: u64 = 1 << 30;

const SEGMENT_FILE: &str = "segment-0000";
pub(super) const LOCK: &str = "lock";

/// The file that segment 0 of the volume `path` is: one in its directory, or the device itself.
pub fn segment_path(path: &Path) -> PathBuf {
    if device::is_device(path) { path.to_path_buf() } else { path.join(SEGMENT_FILE) }
}

pub(super) fn host_error(path: &Path, doing: &str, error: &io::Error) -> Error {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    failure(&path.display().to_string(), format!("{doing}: {error}"), errno)
}

/// What keeps others away from a volume, until dropped.
pub(super) enum Hold {
    Directory {
        _lock: HostLock,
    },
    /// The claimed device itself.
    Device(File),
}

/// A change of the host's files on the way to a volume.
enum Change {
    Directory(PathBuf),
    File(PathBuf),
    /// Of the mode of what was there, and had this one.
    Mode(PathBuf, fs::Permissions),
}

/// Undoes what it lists, last first, unless told to keep it.
struct Undo(Vec<Change>);

impl Drop for Undo {
    fn drop(&mut self) {
        for change in self.0.drain(..).rev() {
            // The error that led here is the one to report.
            let _ = match change {
                Change::Directory(path) => fs::remove_dir(path),
                Change::File(path) => fs::remove_file(path),
                Change::Mode(path, before) => fs::set_permissions(path, before),
            };
        }
    }
}

/// Makes the directory and files of a volume of `bytes`, has `fill` write it, and gives what `fill` gave. Nothing is
/// left behind on an error.
pub(super) fn create<T>(
    path: &Path,
    bytes: Option<u64>,
    options: &Options,
    fill: impl FnOnce(Medium, Hold) -> Result<T>,
) -> Result<T> {
    let place = path.display().to_string();
    if device::is_device(path) {
        if bytes.is_some() {
            return Err(failure(&place, "a block device is used whole: leave the size out", Errno::INVAL));
        }
        return device::create(path, options, fill);
    }
    let bytes = bytes.unwrap_or(DEFAULT_BYTES);
    if bytes < MIN_HOST_BYTES {
        let what = format!("a volume of {bytes} bytes is too small; the least is 1 MiB");
        return Err(failure(&place, what, Errno::INVAL));
    }
    let mut undo = Undo(Vec::new());
    let (file, lock) = make_files(path, &mut undo)?;
    let medium = map_new(&file, bytes, options, &place)?;
    let kind = medium.kind();
    let done = fill(medium, Hold::Directory { _lock: lock })?;
    if matches!(kind, MediumKind::Pmem | MediumKind::Paged) {
        // What the mapping does not cover: the file's size, and the names that lead to it.
        let names = [path, path.parent().filter(|up| !up.as_os_str().is_empty()).unwrap_or(Path::new("."))];
        let synced = names.iter().try_for_each(|directory| sync_directory(directory));
        let synced = host_call(|| file.sync_all()).and(synced);
        synced.map_err(|error| host_error(path, "cannot be made durable", &error))?;
    }
    undo.0.clear();
    Ok(done)
}

/// Makes the names in a directory durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = host_call(|| File::open(path))?;
    host_call(|| directory.sync_all())
}

/// Makes a volume on the host of the bytes of its segment, whatever they say. Nothing is left behind on an error.
///
/// # Errors
/// `Volume` when something is in the way, or the host fails.
pub fn create_from(path: &Path, image: &[u8]) -> Result<()> {
    let mut undo = Undo(Vec::new());
    let (file, _lock) = make_files(path, &mut undo)?;
    host_call(|| file.write_all_at(image, 0))
        .map_err(|error| host_error(path, "cannot be written", &error))?;
    undo.0.clear();
    Ok(())
}

/// Makes the directory of a volume, its lock, which is then held, and its segment, which is empty.
fn make_files(path: &Path, undo: &mut Undo) -> Result<(File, HostLock)> {
    make_directory(path, undo)?;
    let lock_path = path.join(LOCK);
    let mut private = OpenOptions::new();
    private.read(true).write(true).create_new(true).mode(0o600);
    host_call(|| private.open(&lock_path))
        .map_err(|error| host_error(&lock_path, "cannot be created", &error))?;
    undo.0.push(Change::File(lock_path));
    let lock = HostLock::take(path)?;
    let segment = path.join(SEGMENT_FILE);
    let file = host_call(|| private.open(&segment))
        .map_err(|error| host_error(&segment, "cannot be created", &error))?;
    undo.0.push(Change::File(segment));
    Ok((file, lock))
}

fn make_directory(path: &Path, undo: &mut Undo) -> Result<()> {
    match host_call(|| fs::DirBuilder::new().mode(0o700).create(path)) {
        Ok(()) => {
            undo.0.push(Change::Directory(path.to_path_buf()));
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(host_error(path, "cannot be created", &error)),
    }
    let mut entries =
        host_call(|| fs::read_dir(path)).map_err(|error| host_error(path, "exists already", &error))?;
    let first = host_call(|| entries.next().transpose());
    if first.map_err(|error| host_error(path, "exists already", &error))?.is_some() {
        let what = "exists already and is not empty; name a new directory, or remove it first";
        return Err(failure(&path.display().to_string(), what, Errno::EXIST));
    }
    let failed = |error| host_error(path, "cannot be made private (mode 0700)", &error);
    let before = host_call(|| fs::metadata(path)).map_err(failed)?.permissions();
    host_call(|| fs::set_permissions(path, fs::Permissions::from_mode(0o700))).map_err(failed)?;
    undo.0.push(Change::Mode(path.to_path_buf(), before));
    Ok(())
}

/// Locks and maps the volume at `path`.
pub(super) fn open(path: &Path, paged: PagedOptions) -> Result<(Medium, Hold)> {
    if device::is_device(path) {
        let (medium, file) = device::open(path, paged)?;
        return Ok((medium, Hold::Device(file)));
    }
    let (lock, file) = take(path)?;
    Ok((map_segment(path, &file, paged)?, Hold::Directory { _lock: lock }))
}

/// Locks the volume at `path` and maps it so that nothing that is changed reaches the host.
pub(super) fn open_copy(path: &Path, paged: PagedOptions) -> Result<(Medium, Hold)> {
    let place = path.display().to_string();
    if device::is_device(path) {
        let (medium, file) = device::open_copy(path, paged)?;
        return Ok((medium, Hold::Device(file)));
    }
    let (lock, file) = take(path)?;
    let bytes = whole_pages(path, &file)?;
    Ok((map_copy(&file, bytes, paged, &place)?, Hold::Directory { _lock: lock }))
}

/// Locks the volume in directory `path`, and opens its segment.
fn take(path: &Path) -> Result<(HostLock, File)> {
    let place = path.display().to_string();
    let directory =
        host_call(|| fs::metadata(path)).map_err(|error| host_error(path, "cannot be opened", &error))?;
    if !directory.is_dir() {
        let what = "not an Eyrie volume (a volume is a directory or a block device)";
        return Err(failure(&place, what, Errno::NOTDIR));
    }
    let segment = path.join(SEGMENT_FILE);
    match host_call(|| fs::symlink_metadata(&segment)) {
        Ok(file) if file.is_file() => {}
        Ok(_) => return Err(failure(&place, "not an Eyrie volume (segment-0000 is no file)", Errno::INVAL)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(failure(&place, "not an Eyrie volume (it has no segment-0000)", Errno::INVAL));
        }
        Err(error) => return Err(host_error(&segment, "cannot be opened", &error)),
    }
    let lock = HostLock::take(path)?;
    Ok((lock, segment_file(path)?))
}

/// The file of segment 0.
pub(super) fn segment_file(path: &Path) -> Result<File> {
    let segment = path.join(SEGMENT_FILE);
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    host_call(|| options.open(&segment)).map_err(|error| host_error(&segment, "cannot be opened", &error))
}

/// Maps the segment of the volume in directory `path`.
pub(super) fn map_segment(path: &Path, file: &File, paged: PagedOptions) -> Result<Medium> {
    map(file, whole_pages(path, file)?, paged, &path.display().to_string())
}

/// Bytes of the whole pages that a segment has.
fn whole_pages(path: &Path, file: &File) -> Result<u64> {
    let segment = path.join(SEGMENT_FILE);
    let found = host_call(|| file.metadata());
    let bytes = found.map_err(|error| host_error(&segment, "cannot be read", &error))?.len();
    let pages = bytes - bytes % PAGE_SIZE;
    if pages == 0 {
        let what = format!("not an Eyrie volume (only {bytes} bytes)");
        return Err(failure(&path.display().to_string(), what, Errno::INVAL));
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{MediumChoice, Opened, Volume};
    use crate::{Result, Time};

    const BYTES: u64 = 2 << 20;

    fn options() -> Options {
        Options {
            group_bytes: 1 << 18,
            medium: MediumChoice::Dram,
            ..Options::random(Time::new(0, 0)).expect("random bytes")
        }
    }

    fn refusal<T>(result: Result<T>) -> String {
        result.err().expect("refused").to_string()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn a_volume_is_created_closed_and_opened() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("v");
        let volume = Volume::create(&path, Some(BYTES), &options()).expect("created");
        assert_eq!(
            (mode(&path), mode(&path.join(SEGMENT_FILE)), mode(&path.join(LOCK))),
            (0o700, 0o600, 0o600)
        );
        let id = volume.volume_id();
        let extent = volume.space().allocate(100).expect("empty");
        volume.close().expect("sound");
        let (volume, opened) = Volume::open(&path, PagedOptions::for_host()).expect("a volume");
        assert_eq!((opened, volume.volume_id()), (Opened::Clean, id));
        assert_ne!(volume.space().allocate(100).expect("room"), extent);
        drop(volume);
        assert_eq!(Volume::open(&path, PagedOptions::for_host()).expect("a volume").1, Opened::Crashed);
    }

    #[test]
    fn a_volume_keeps_the_medium_that_it_was_made_for() {
        let parent = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let path = parent.path().join("v");
        let choose = |medium| Volume::create(&path, Some(BYTES), &Options { medium, ..options() });
        assert!(refusal(choose(MediumChoice::Pmem)).contains("refuses MAP_SYNC"));
        assert!(!path.exists());
        for (choice, kind) in [
            (MediumChoice::Auto, MediumKind::Dram),
            (MediumChoice::Dram, MediumKind::Dram),
            (MediumChoice::Paged, MediumKind::Paged),
        ] {
            choose(choice).expect("created").close().expect("sound");
            let (volume, _) = Volume::open(&path, PagedOptions::for_host()).expect("a volume");
            assert_eq!(volume.medium().kind(), kind);
            fs::remove_dir_all(&path).expect("closed");
        }

        // Persistent memory that has become an ordinary file: the volume says what it is missing.
        fs::create_dir(&path).expect("a directory");
        let segment = path.join(SEGMENT_FILE);
        let file = File::options().read(true).write(true).create_new(true).open(segment).expect("a file");
        file.set_len(BYTES).expect("room");
        let (medium, _) = Medium::pmem_anywhere(file, BYTES).expect("mapped");
        drop(Volume::create_on(medium, &options()).expect("created"));
        let what = refusal(Volume::open(&path, PagedOptions::for_host()));
        assert!(what.contains("made on persistent memory") && what.contains("-o dax"), "{what}");
    }

    #[test]
    fn what_is_in_the_way_is_named_and_nothing_is_left_behind() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("v");
        assert!(refusal(Volume::create(&path, Some(4096), &options())).contains("too small"));
        assert!(refusal(Volume::create(&path, Some(BYTES + 1), &options())).contains("multiple of 4096"));
        assert!(refusal(Volume::create(&path.join("w"), Some(BYTES), &options())).contains("No such file"));
        assert!(refusal(Volume::open(&path, PagedOptions::for_host())).contains("No such file"));
        assert!(!path.exists());

        fs::write(&path, "x").expect("a file");
        assert!(refusal(Volume::create(&path, Some(BYTES), &options())).contains("exists already"));
        assert!(
            refusal(Volume::open(&path, PagedOptions::for_host())).contains("a volume is a directory or")
        );
        fs::remove_file(&path).expect("a file");

        fs::create_dir(&path).expect("a directory");
        assert!(refusal(Volume::open(&path, PagedOptions::for_host())).contains("no segment-0000"));
        assert!(!path.join(LOCK).exists(), "opening what is no volume makes no file");
        drop(Volume::create(&path, Some(BYTES), &options()).expect("an empty directory will do"));
        assert!(refusal(Volume::create(&path, Some(BYTES), &options())).contains("not empty"));

        let segment = OpenOptions::new().write(true).open(path.join(SEGMENT_FILE)).expect("a segment");
        segment.set_len(BYTES / 2).expect("shorter");
        let what = refusal(Volume::open(&path, PagedOptions::for_host()));
        assert!(what.contains("1048576") && what.contains("2097152"), "{what}");
        segment.set_len(100).expect("shorter");
        assert!(refusal(Volume::open(&path, PagedOptions::for_host())).contains("only 100 bytes"));
    }
}
