//! A volume in a directory of the host, with the files `segment-0000` and `lock`.
//!
//! Safe when power fails: a crash during a creation may leave the directory and its files behind. An open
//! refuses these files until they have a whole superblock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyrie_medium::{Medium, MediumKind, PAGE_SIZE, PagedOptions, host};

use super::lock::{Hold, HostLock, LOCK, Sharing};
use super::mapping::{map, map_copy, map_new};
use super::segment::{SEGMENT_FILE, host_error};
use crate::tables::{Geometry, MIN_HOST_BYTES, Options};
use crate::{Errno, Error, Result};

/// Default size of a volume, in bytes: 1 GiB.
const DEFAULT_BYTES: u64 = 1 << 30;

/// A change to the host's files that the creation of a volume made.
enum HostChange {
    Directory(PathBuf),
    File(PathBuf),
    /// A new mode of an existing directory. The permissions are those from before the change.
    Mode(PathBuf, fs::Permissions),
}

/// A list of changes. Its drop undoes the changes that are still in the list, the last change first.
#[derive(Default)]
struct UndoList {
    changes: Vec<HostChange>,
    /// Keeps other processes away until the changes are undone. Otherwise a process that locked the volume
    /// meanwhile would lose the files of the volume.
    lock: Option<Arc<HostLock>>,
}

impl Drop for UndoList {
    fn drop(&mut self) {
        for change in self.changes.drain(..).rev() {
            // A failure of this clean-up is ignored, because the caller needs the first error.
            let _ = host::call(|| match change {
                HostChange::Directory(path) => fs::remove_dir(path),
                HostChange::File(path) => fs::remove_file(path),
                HostChange::Mode(path, before) => fs::set_permissions(path, before),
            });
        }
    }
}

/// Makes the directory and files of a volume of `bytes`, lets `fill` write the volume, and returns the result
/// of `fill`. Leaves nothing behind on an error.
pub(super) fn create<T>(
    path: &Path,
    bytes: Option<u64>,
    options: &Options,
    fill: impl FnOnce(Medium, Hold) -> Result<T>,
) -> Result<T> {
    let place = path.display().to_string();
    let bytes = bytes.unwrap_or(DEFAULT_BYTES);
    if bytes < MIN_HOST_BYTES {
        let what = format!("a volume of {bytes} bytes is too small; the least is 1 MiB");
        return Err(Error::volume(&place, what, Errno::INVAL));
    }
    // This check comes before the calls to the host, because the host has another error for a size that is
    // too large for its files.
    Geometry::new(bytes, options.group_bytes).map_err(|what| Error::volume(&place, what, Errno::INVAL))?;
    let mut undo = UndoList::default();
    let (file, lock) = make_files(path, &mut undo)?;
    let medium = map_new(&file, bytes, options, &place)?;
    let kind = medium.kind();
    if kind == MediumKind::Paged {
        lock.hold_segment(path, &file)?;
    }
    let done = fill(medium, Hold::Directory(lock))?;
    if matches!(kind, MediumKind::Pmem | MediumKind::Paged) {
        // The syncs of the mapping cover neither the size of the file nor the names that lead to the file.
        let parent = path.parent().filter(|up| !up.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = [path, parent].iter().try_for_each(|directory| sync_directory(directory));
        let synced = host::sync_all(&file).and(synced);
        synced.map_err(|error| host_error(path, "cannot be made durable", &error))?;
    }
    undo.changes.clear();
    Ok(done)
}

/// Makes the entries of a directory durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = host::call(|| File::open(path))?;
    host::sync_all(&directory)
}

/// Makes a volume on the host from the bytes of its segment. The bytes are not checked. Leaves nothing behind
/// on an error.
///
/// # Errors
/// `Volume` if `path` exists and is not an empty directory, or if a call of the host fails.
pub fn create_from(path: &Path, image: &[u8]) -> Result<()> {
    let mut undo = UndoList::default();
    let (file, _lock) = make_files(path, &mut undo)?;
    host::write_all_at(&file, image, 0).map_err(|error| host_error(path, "cannot be written", &error))?;
    undo.changes.clear();
    Ok(())
}

/// Makes the directory of a volume, its lock file, and its empty segment. Returns the segment and the held
/// lock.
fn make_files(path: &Path, undo: &mut UndoList) -> Result<(File, Arc<HostLock>)> {
    let is_new = make_directory(path, undo)?;
    let lock_path = path.join(LOCK);
    let mut private = OpenOptions::new();
    private.read(true).write(true).create_new(true).mode(0o600);
    host::open(&private, &lock_path).map_err(|error| host_error(&lock_path, "cannot be created", &error))?;
    undo.changes.push(HostChange::File(lock_path));
    let lock = Arc::new(HostLock::acquire(path, Sharing::Exclusive)?);
    undo.lock = Some(Arc::clone(&lock));
    if !is_new {
        // The mode changes after the lock file is made, and is restored before that file is removed. So a
        // creation that fails does not change the directory of another process that makes its volume here.
        make_private(path, undo)?;
    }
    let segment = path.join(SEGMENT_FILE);
    let file =
        host::open(&private, &segment).map_err(|error| host_error(&segment, "cannot be created", &error))?;
    undo.changes.push(HostChange::File(segment));
    Ok((file, lock))
}

/// Makes a private directory, or finds an empty one. Returns true if the directory is new.
fn make_directory(path: &Path, undo: &mut UndoList) -> Result<bool> {
    match host::call(|| fs::DirBuilder::new().mode(0o700).create(path)) {
        Ok(()) => {
            undo.changes.push(HostChange::Directory(path.to_path_buf()));
            return Ok(true);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(host_error(path, "cannot be created", &error)),
    }
    let unreadable = |error| host_error(path, "exists already, but its entries cannot be read", &error);
    let mut entries = host::call(|| fs::read_dir(path)).map_err(unreadable)?;
    let first = host::call(|| entries.next().transpose());
    if first.map_err(unreadable)?.is_some() {
        let what = "exists already and is not empty; name a new directory, or remove it first";
        return Err(Error::volume(&path.display().to_string(), what, Errno::EXIST));
    }
    Ok(false)
}

/// Makes a directory private, because an access to the host's files bypasses the permissions inside the
/// volume.
fn make_private(path: &Path, undo: &mut UndoList) -> Result<()> {
    let failed = |error| host_error(path, "cannot be made private (mode 0700)", &error);
    let before = host::metadata(path).map_err(failed)?.permissions();
    host::call(|| fs::set_permissions(path, fs::Permissions::from_mode(0o700))).map_err(failed)?;
    undo.changes.push(HostChange::Mode(path.to_path_buf(), before));
    Ok(())
}

/// Locks and maps the volume at `path`.
pub(super) fn open(path: &Path, paged: PagedOptions) -> Result<(Medium, Hold)> {
    let (lock, file) = lock_and_open(path, Sharing::Exclusive)?;
    Ok((map_segment(path, &file, &lock, paged)?, Hold::Directory(Arc::new(lock))))
}

/// Locks the volume at `path`, and maps a copy of it. No change reaches the host.
pub(super) fn open_copy(path: &Path, paged: PagedOptions, sharing: Sharing) -> Result<(Medium, Hold)> {
    let place = path.display().to_string();
    let (lock, file) = lock_and_open(path, sharing)?;
    let bytes = whole_pages(path, &file)?;
    Ok((map_copy(&file, bytes, paged, &place)?, Hold::Directory(Arc::new(lock))))
}

/// Locks the volume in directory `path`, and opens its segment. If the lock is shared, the file is open only
/// for reading. Otherwise it is open for writing, too.
fn lock_and_open(path: &Path, sharing: Sharing) -> Result<(HostLock, File)> {
    let place = path.display().to_string();
    let directory = host::metadata(path).map_err(|error| host_error(path, "cannot be opened", &error))?;
    if !directory.is_dir() {
        let what = "not an Eyrie volume (a volume is a directory or a block device)";
        return Err(Error::volume(&place, what, Errno::NOTDIR));
    }
    let segment = path.join(SEGMENT_FILE);
    match host::call(|| fs::symlink_metadata(&segment)) {
        Ok(file) if file.is_file() => {}
        Ok(_) => {
            return Err(Error::volume(&place, "not an Eyrie volume (segment-0000 is no file)", Errno::INVAL));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let missing =
                || Error::volume(&place, "not an Eyrie volume (it has no segment-0000)", Errno::INVAL);
            // A process that makes a volume locks the directory before it makes the segment.
            return Err(HostLock::refusal(path).unwrap_or_else(missing));
        }
        Err(error) => return Err(host_error(&segment, "cannot be opened", &error)),
    }
    let lock = HostLock::acquire(path, sharing)?;
    Ok((lock, segment_file(path, sharing)?))
}

/// Opens the file of segment 0. If the volume is shared, the file is open only for reading. Otherwise it is
/// open for writing, too.
pub(super) fn segment_file(path: &Path, sharing: Sharing) -> Result<File> {
    let segment = path.join(SEGMENT_FILE);
    let mut options = OpenOptions::new();
    options.read(true).write(sharing == Sharing::Exclusive);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    host::open(&options, &segment).map_err(|error| host_error(&segment, "cannot be opened", &error))
}

/// Maps the segment of the volume in directory `path`, which `lock` holds, after the writes of a killed owner
/// have ended. If the volume is on a disk, its segment stays locked.
pub(super) fn map_segment(path: &Path, file: &File, lock: &HostLock, paged: PagedOptions) -> Result<Medium> {
    lock.hold_segment(path, file)?;
    let medium = map(file, whole_pages(path, file)?, paged, &path.display().to_string())?;
    if medium.kind() != MediumKind::Paged {
        lock.release_segment();
    }
    Ok(medium)
}

/// Returns the size of a segment in bytes, without an incomplete last page.
fn whole_pages(path: &Path, file: &File) -> Result<u64> {
    let segment = path.join(SEGMENT_FILE);
    let found = host::metadata_of(file);
    let bytes = found.map_err(|error| host_error(&segment, "cannot be read", &error))?.len();
    let pages = bytes - bytes % PAGE_SIZE;
    if pages == 0 {
        let what = format!("not an Eyrie volume (only {bytes} bytes)");
        return Err(Error::volume(&path.display().to_string(), what, Errno::INVAL));
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use eyrie_medium::SiteKind;
    use eyrie_medium::host::HostObserver;
    use eyrie_medium::{Caller, host};
    use rustix::fs::{FlockOperation, flock};

    use super::super::lock::is_held;
    use super::*;
    use crate::Time;
    use crate::volume::{MediumChoice, Volume};

    /// Counts the calls to the host during which the volume has a segment. The volume must be locked then.
    struct SegmentIsLocked {
        path: PathBuf,
        calls: Cell<u32>,
    }

    impl HostObserver for SegmentIsLocked {
        fn before_call(&self, _: SiteKind, _: Caller) -> std::result::Result<(), rustix::io::Errno> {
            if self.path.join(SEGMENT_FILE).exists() {
                assert!(is_held(&self.path), "another process could lock the volume");
                self.calls.set(self.calls.get() + 1);
            }
            Ok(())
        }
    }

    #[test]
    fn volume_that_cannot_be_made_is_locked_until_its_files_are_gone() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("v");
        let options =
            Options { medium: MediumChoice::Dram, ..Options::random(Time::new(1, 0)).expect("random") };
        let observer = Rc::new(SegmentIsLocked { path: path.clone(), calls: Cell::new(0) });
        for is_there in [false, true] {
            if is_there {
                fs::create_dir(&path).expect("a directory");
            }
            let before = Cell::new(0);
            let made: Result<()> = host::observed_by(Rc::clone(&observer) as Rc<dyn HostObserver>, || {
                create(&path, None, &options, |_, _| {
                    before.set(observer.calls.get());
                    Err(Error::NoSpace)
                })
            });
            assert!(matches!(made, Err(Error::NoSpace)));
            assert_eq!(observer.calls.get(), before.get() + 1, "the removal of the segment");
            assert!(path.exists() == is_there && !path.join(LOCK).exists() && !is_held(&path));
        }
    }

    /// True if a descriptor has the lock of the segment: see [`HostLock::hold_segment`].
    fn has_locked_segment(path: &Path) -> bool {
        let segment = File::open(path.join(SEGMENT_FILE)).expect("there");
        let is_locked = flock(&segment, FlockOperation::NonBlockingLockExclusive).is_err();
        // A child that another test starts meanwhile may have a copy of the descriptor for a moment.
        flock(&segment, FlockOperation::Unlock).expect("locks work");
        is_locked
    }

    #[test]
    fn open_volume_on_a_disk_has_locked_its_segment() {
        let paged = PagedOptions::for_host();
        for (medium, is_locked) in [(MediumChoice::Dram, false), (MediumChoice::Paged, true)] {
            let parent = tempfile::tempdir().expect("a directory");
            let path = parent.path().join("v");
            let options = Options { medium, ..Options::random(Time::new(1, 0)).expect("random") };
            let volume = Volume::create(&path, Some(2 << 20), &options).expect("room");
            assert_eq!(has_locked_segment(&path), is_locked, "{medium:?}, created");
            volume.close().expect("sound");
            assert!(!has_locked_segment(&path), "{medium:?}, closed");
            let (volume, _) = Volume::open(&path, paged).expect("a volume");
            assert_eq!(has_locked_segment(&path), is_locked, "{medium:?}, opened");
            let (volume, _) = volume.resize(&path, Some(4 << 20), paged).expect("room");
            assert_eq!(has_locked_segment(&path), is_locked, "{medium:?}, resized");
            drop(volume);
            assert!(!has_locked_segment(&path), "{medium:?}, dropped");
        }
    }

    /// Another process, which makes its volume in the same directory just before one of the calls to the
    /// host.
    struct OtherCreator {
        path: PathBuf,
        at: u32,
        calls: Cell<u32>,
        is_first: Cell<bool>,
    }

    impl HostObserver for OtherCreator {
        fn before_call(&self, _: SiteKind, _: Caller) -> std::result::Result<(), rustix::io::Errno> {
            self.calls.set(self.calls.get() + 1);
            if self.calls.get() == self.at && File::create_new(self.path.join(LOCK)).is_ok() {
                fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700)).expect("mine");
                self.is_first.set(true);
            }
            Ok(())
        }
    }

    #[test]
    fn second_creator_leaves_the_directory_of_the_first_private() {
        let options =
            Options { medium: MediumChoice::Dram, ..Options::random(Time::new(1, 0)).expect("random") };
        let mut first = 0;
        for at in 1..8 {
            let parent = tempfile::tempdir().expect("a directory");
            let path = parent.path().join("v");
            fs::DirBuilder::new().mode(0o755).create(&path).expect("room");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mine");
            let other =
                OtherCreator { path: path.clone(), at, calls: Cell::new(0), is_first: Cell::new(false) };
            let other = Rc::new(other);
            let made = host::observed_by(Rc::clone(&other) as Rc<dyn HostObserver>, || {
                create(&path, Some(1 << 20), &options, |_, _| Ok(()))
            });
            assert_eq!(made.is_err(), other.is_first.get(), "call {at}: {made:?}");
            if other.is_first.get() {
                first += 1;
                assert_eq!(made.expect_err("the other one is first").errno(), Errno::EXIST);
                let mode = fs::metadata(&path).expect("there").permissions().mode();
                assert_eq!(mode & 0o777, 0o700, "call {at}");
            }
        }
        assert!(first >= 4, "{first}");
    }

    #[test]
    fn volume_that_is_being_made_is_in_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let refusal = || open(path, PagedOptions::for_host()).err().expect("no segment");
        assert_eq!(refusal().errno(), Errno::INVAL);
        // The creation of a volume makes and locks the lock file before it makes the segment.
        let lock = HostLock::acquire(path, Sharing::Exclusive).expect("free");
        let refused = refusal();
        assert_eq!(refused.errno(), Errno::BUSY);
        assert!(refused.to_string().contains(&format!("in use by process {}", std::process::id())));
        drop(lock);
        assert_eq!(refusal().errno(), Errno::INVAL);
    }
}
