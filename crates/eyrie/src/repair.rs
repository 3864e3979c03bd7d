//! Checks and repairs volumes. A check does not change the volume. A repair builds a sound volume from the
//! readable parts of a damaged one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use eyrie_engine::salvage::{self, Salvaged};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options, segment_path};
use eyrie_engine::{Engine, Time, check};
use eyrie_medium::{Addr, PAGE_SIZE, PagedOptions};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};

use crate::stamps::coarse_time;
use crate::{Errno, Error, Result};

/// Divisor of the growth: if the new volume is too small, the next attempt adds the size divided by this
/// number.
const GROWTH_DIVISOR: u64 = 4;
/// Bytes of the smallest volume that can be made.
const MIN_BYTES: u64 = 1 << 20;
/// Maximum number of attempts, with growing sizes. The last attempt makes a volume of about twice the size of
/// the damaged one, at most 1 TiB.
const TRIES: u32 = 4;

/// Options for repairing a volume.
///
/// ```
/// # use eyrie::*; fn f() -> Result<()> {
/// match Repair::new().into("/volumes/repaired").run("/volumes/nest")? {
///     None => println!("no damage"),
///     Some(repaired) => println!("{} files, {} losses", repaired.files, repaired.losses.len()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Repair {
    into: Option<PathBuf>,
    discard: bool,
    paged: Option<PagedOptions>,
}

/// The result of a repair. Paths begin with `/`.
///
/// ```
/// # fn f(repaired: eyrie::Repaired) {
/// for (path, reason) in &repaired.losses {
///     println!("{}: {reason}", path.display());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Repaired {
    /// The findings of the check of the damaged volume, one line for each.
    pub findings: Vec<String>,
    /// The paths in the new volume where something is missing or different, with the reasons.
    pub losses: Vec<(PathBuf, String)>,
    /// Number of directories of the new volume, including the root.
    pub directories: u64,
    /// Number of regular files of the new volume.
    pub files: u64,
    /// Number of objects of other kinds in the new volume.
    pub others: u64,
    /// Number of bytes that were copied into files. Holes do not count.
    pub bytes: u64,
    /// The path at which the damaged volume is left. `None` if the repair has removed that volume.
    pub damaged: Option<PathBuf>,
    /// The reason why the damaged volume, or a part of it, could not be removed although [`Repair::discard`]
    /// is set.
    pub not_discarded: Option<String>,
}

impl Repair {
    /// Makes the options of a repair in place. The new volume gets the name of the damaged one. The damaged
    /// volume is kept, with `.damaged` added to its name.
    ///
    /// ```
    /// let repair = eyrie::Repair::new();
    /// ```
    pub fn new() -> Repair {
        Repair::default()
    }

    /// Makes the new volume in this directory, and keeps the damaged one as it is.
    ///
    /// ```
    /// let repair = eyrie::Repair::new().into("/volumes/repaired");
    /// ```
    #[must_use]
    pub fn into(mut self, path: impl AsRef<Path>) -> Repair {
        self.into = Some(path.as_ref().to_owned());
        self
    }

    /// Removes the damaged volume after the new volume has taken the name of the damaged one. False by
    /// default. This option has no effect with [`Repair::into`].
    ///
    /// ```
    /// let repair = eyrie::Repair::new().discard(true);
    /// ```
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Repair {
        self.discard = discard;
        self
    }

    /// Sets the memory and timing of volumes on disks, [`PagedOptions::for_host`] by default.
    ///
    /// ```
    /// use eyrie::{PagedOptions, Repair};
    ///
    /// let repair = Repair::new().paged(PagedOptions::for_host());
    /// ```
    #[must_use]
    pub fn paged(mut self, paged: PagedOptions) -> Repair {
        self.paged = Some(paged);
        self
    }

    /// Builds a sound volume from the readable parts of the volume at `path`. Returns `None` if a check finds
    /// no damage. Without [`Repair::into`], the new volume takes the name of the damaged one after a check
    /// finds no damage in the new volume. Its files then also have the owners and the permission bits of the
    /// files of the damaged one, if the host lets this process set them. If the repair fails before the new
    /// volume has that name, the damaged volume is unchanged. If the host refuses a rename, the repair takes
    /// back the earlier renames. If the host refuses to undo them, or cannot make the renames durable, the
    /// damaged volume is left at `path` with `.damaged` or `.repairing` added. [`Repaired::losses`] lists the
    /// missing objects and parts.
    ///
    /// The repair first makes the new volume as large as the damaged one is now, and tries larger sizes if
    /// the copies need more room. So the new volume may have another
    /// [`Information::most_bytes`](crate::Information::most_bytes).
    ///
    /// ```
    /// # use eyrie::*; fn f() -> Result<()> {
    /// let repaired = Repair::new().run("/volumes/nest")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EEXIST` if the directory of [`Repair::into`] is not empty. Without that option, `EEXIST` if the path
    /// with `.damaged` or `.repairing` added exists. `ENOSPC` if the new volume does not fit on the host, or
    /// does not fit in the largest size that the repair tries. `EOPNOTSUPP` if the volume has a newer format,
    /// if a killed service of another version has left changes in its logs, or if the volume is a block
    /// device and [`Repair::into`] is not set. Other errors if no superblock is valid, if the file ends
    /// before the header-chunk bitmap ends, if the volume is in use, or if the host fails.
    pub fn run(&self, path: impl AsRef<Path>) -> Result<Option<Repaired>> {
        let path = path.as_ref();
        let paged = self.paged.unwrap_or_else(PagedOptions::for_host);
        let findings = inspect(path, paged)?.findings;
        if findings.is_empty() {
            return Ok(None);
        }
        let path = &fs::canonicalize(path).map_err(|error| of_host(path, &error))?;
        let (place, kept) = self.places(path)?;
        let source = eyrie_engine::Volume::open_damaged(path, paged).map_err(|error| failed(path, error))?;
        let made = if self.into.is_some() { place.clone() } else { with_ending(path, ".repairing") };
        let medium = if self.into.is_some() { MediumChoice::Auto } else { source.medium_choice() };
        let salvaged = build(&source, &made, medium, paged)?;
        let has_logs = eyrie_engine::volume::has_unapplied_entries(path);
        if self.into.is_none() {
            keep_owners(path, &made);
            let swapped = swap(path, &made, &kept);
            swapped.map_err(|error| of_host(path, &error))?;
        }
        let mut damaged = Some(if self.into.is_some() { path.clone() } else { kept });
        let mut not_discarded = None;
        if let (true, Some(old), None) = (self.discard, &damaged, &self.into) {
            // The repair is done, so a failure of the removal is not a failure of the repair.
            match fs::remove_dir_all(old) {
                Ok(()) => damaged = None,
                Err(error) => not_discarded = Some(error.to_string()),
            }
        }
        let mut repaired = Repaired { not_discarded, ..Repaired::new(findings, salvaged, damaged) };
        if has_logs {
            let what = "the latest changes, which a killed service had not applied".to_owned();
            repaired.losses.push((PathBuf::from("/"), what));
        }
        Ok(Some(repaired))
    }

    /// Returns the paths of the new volume and of the damaged one after the repair.
    fn places(&self, path: &Path) -> Result<(PathBuf, PathBuf)> {
        let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        let refuse = |errno, why: &str| Err(Error::with_reason(errno, "repair volume", why).at(path));
        if let Some(into) = &self.into {
            return Ok((into.clone(), path.to_owned()));
        }
        if is_device {
            let why = "a block device cannot be repaired in place: name a directory for the new volume";
            return refuse(Errno::OPNOTSUPP, why);
        }
        let kept = with_ending(path, ".damaged");
        for obstacle in [&kept, &with_ending(path, ".repairing")] {
            if obstacle.symlink_metadata().is_ok() {
                let why = format!("{} is in the way: remove or rename it first", obstacle.display());
                return refuse(Errno::EXIST, &why);
            }
        }
        Ok((path.to_owned(), kept))
    }
}

impl Repaired {
    fn new(findings: Vec<String>, salvaged: Salvaged, damaged: Option<PathBuf>) -> Repaired {
        use std::os::unix::ffi::OsStringExt;
        let path = |names: &[Vec<u8>]| {
            let mut path = PathBuf::from("/");
            path.extend(names.iter().map(|name| std::ffi::OsString::from_vec(name.clone())));
            path
        };
        let Salvaged { directories, files, others, bytes, .. } = salvaged;
        let losses = salvaged.losses.iter().map(|loss| (path(&loss.names), loss.what.clone())).collect();
        Repaired { findings, losses, directories, files, others, bytes, damaged, not_discarded: None }
    }
}

/// Checks the volume at `path` in the state after recovery. No process may have the volume open for changes.
/// The check changes nothing, even if the volume was not closed, because it works on a copy.
pub(crate) fn inspect(path: &Path, paged: PagedOptions) -> Result<check::Report> {
    let report = match Scm::inspect(path, paged) {
        // A truncated volume, for example, cannot be opened. But a repair can save the rest if the rest has a
        // superblock and the header-chunk bitmap. The error is therefore a finding, unless another version of
        // this program can open the volume.
        Err(eyrie_engine::Error::Volume { what, errno, .. })
            if errno != Errno::OPNOTSUPP && eyrie_engine::Volume::open_damaged(path, paged).is_ok() =>
        {
            Ok(check::Report::of_finding(what))
        }
        report => report,
    };
    report.map_err(|error| Error::from_engine(error, "check volume").at(path))
}

fn failed(path: &Path, error: eyrie_engine::Error) -> Error {
    Error::from_engine(error, "repair volume").at(path)
}

fn of_host(path: &Path, error: &io::Error) -> Error {
    Error::new(Errno::from_io_error(error).unwrap_or(Errno::IO), "repair volume").at(path)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Returns the size of the attempt after that with a volume of `bytes`. Returns `None` if no volume can be
/// larger.
fn larger(bytes: u64) -> Option<u64> {
    let more = bytes + (bytes / GROWTH_DIVISOR).next_multiple_of(PAGE_SIZE);
    (bytes < Addr::MAX_OFFSET).then(|| more.min(Addr::MAX_OFFSET))
}

/// The directory in which a volume is made.
struct NewPlace<'a> {
    path: &'a Path,
    /// The permissions of the directory, if it was there before.
    before: Option<fs::Permissions>,
}

impl<'a> NewPlace<'a> {
    fn new(path: &'a Path) -> NewPlace<'a> {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_dir);
        NewPlace { path, before: found.map(|found| found.permissions()) }
    }

    /// Removes the volume that was made in the directory. A directory that was there before stays: it may be
    /// a mount point, or lie in a directory that this process may not change.
    fn clear(&self) -> io::Result<()> {
        let Some(before) = &self.before else { return fs::remove_dir_all(self.path) };
        for entry in fs::read_dir(self.path)? {
            fs::remove_file(entry?.path())?;
        }
        fs::set_permissions(self.path, before.clone())
    }
}

/// Makes a sound volume at `place` from the readable parts of `source`. After an error, removes the volume
/// that this function has made.
fn build(
    source: &eyrie_engine::Volume,
    place: &Path,
    medium: MediumChoice,
    paged: PagedOptions,
) -> Result<Salvaged> {
    // The size that the damaged volume states may be less than the size of the smallest volume.
    let mut bytes = source.geometry().volume_bytes().max(MIN_BYTES);
    let new = NewPlace::new(place);
    for attempt in 1..=TRIES {
        let next = larger(bytes).filter(|_| attempt < TRIES);
        let engine = make(source, place, bytes, medium, paged)?;
        let filled = fill(source, engine, place);
        match filled {
            Ok(salvaged) if !salvaged.is_full && !salvaged.is_full_of_copies => return Ok(salvaged),
            // After damage many files may share the same bytes, so their copies may not fit in a volume of
            // any size. The losses then name the copies that are missing.
            Ok(salvaged) if !salvaged.is_full && next.is_none() => return Ok(salvaged),
            // The new volume was too small. Copies are made in another order than the originals and may need
            // more space, and bytes that two objects share are copied twice.
            Ok(_) => new.clear().map_err(|error| of_host(place, &error))?,
            Err(error) => {
                // The call reports the error of the attempt, and ignores an error of this removal.
                let _ = new.clear();
                return Err(error);
            }
        }
        let Some(next) = next else { break };
        bytes = next;
    }
    let why = "not enough room for the new volume: make room on the host, or name another directory for it";
    Err(Error::with_reason(Errno::NOSPC, "repair volume", why).at(place))
}

/// Makes an empty volume of `bytes` with the group size and the creation time of `source`. The root directory
/// has the owner of the root of `source`.
fn make(
    source: &eyrie_engine::Volume,
    place: &Path,
    bytes: u64,
    medium: MediumChoice,
    paged: PagedOptions,
) -> Result<Scm> {
    let failed = |error| failed(place, error);
    let (owner, born) = salvage::root_of(source);
    let created = source.created();
    let options = Options {
        checksums: source.medium().has_checksums(),
        group_bytes: source.geometry().group_bytes(),
        created: Time { nanoseconds: created.nanoseconds % Time::NANOSECONDS, ..created },
        medium,
        paged,
        ..Options::random(born).map_err(failed)?
    };
    Scm::create(place, Some(bytes), &options, owner, born)
        .or_else(|error| match error {
            // The superblock may record a wrong medium, or be from a host that has persistent memory.
            eyrie_engine::Error::Volume { .. } if medium == MediumChoice::Pmem => {
                let options = Options { medium: MediumChoice::Auto, ..options };
                Scm::create(place, Some(bytes), &options, owner, born)
            }
            error => Err(error),
        })
        .map_err(failed)
}

/// Fills a new volume, checks it and closes it.
fn fill(source: &eyrie_engine::Volume, engine: Scm, place: &Path) -> Result<Salvaged> {
    let failed = |error| failed(place, error);
    let salvaged = salvage::salvage(source, &engine, coarse_time()).map_err(failed)?;
    let report = engine.check().map_err(failed)?;
    if let Some(finding) = report.findings.first() {
        let why = format!("a check found damage in the new volume, too: {finding}");
        return Err(Error::with_reason(Errno::IO, "repair volume", why).at(place));
    }
    engine.sync().map_err(failed)?;
    engine.close().map_err(failed)?;
    Ok(salvaged)
}

/// Gives the files of the new volume at `made` the owners and the permission bits of the files of the old
/// one, so that everybody who could open the old volume can open the new one. A failure is ignored: only root
/// can give a file to another user.
fn keep_owners(old: &Path, made: &Path) {
    // The paths may lead through a directory of another user, who may replace the new directory. Therefore no
    // symbolic link is followed, no file with a second name is changed, no pipe is waited for, and the
    // directory stays private until its files are done.
    let open = |directory: &dyn AsFd, name: &Path, flags: OFlags| {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(directory.as_fd(), name, flags, Mode::empty()).map(File::from)
    };
    let Ok(directory) = open(&CWD, made, OFlags::DIRECTORY) else { return };
    for entry in fs::read_dir(made).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Ok(file) = open(&directory, Path::new(&name), OFlags::empty())
            && file.metadata().is_ok_and(|found| found.nlink() == 1)
        {
            // A copy of a volume may lack the lock file.
            let found = fs::symlink_metadata(old.join(&name));
            keep_owner(found.or_else(|_| fs::symlink_metadata(segment_path(old))), &file);
        }
    }
    keep_owner(fs::symlink_metadata(old), &directory);
}

/// Gives a file the owner, the group and the permission bits that were found at another file.
fn keep_owner(found: io::Result<fs::Metadata>, file: &File) {
    let _ = found.and_then(|found| {
        fchown(file, Some(found.uid()), Some(found.gid()))?;
        file.set_permissions(found.permissions())
    });
}

/// Gives the volume at `made` the name `path`, and the old volume the name `kept`. If the host can exchange
/// names in one call, a crash at any time leaves a whole volume at `path`. Otherwise a crash between the two
/// renames leaves the old volume at `kept`, the new one at `made`, and none at `path`. If the host refuses a
/// change, the old volume gets its name back and the new one is removed. If the host refuses even the change
/// back, nothing is removed.
fn swap(path: &Path, made: &Path, kept: &Path) -> io::Result<()> {
    let exchange = || renameat_with(CWD, made, CWD, path, RenameFlags::EXCHANGE);
    let undone = |back: io::Result<()>, error: io::Error| {
        // Unless the old volume has its name again, `made` may name the old volume.
        if back.is_ok() {
            // The call reports the first error, and ignores an error of this removal.
            let _ = fs::remove_dir_all(made);
        }
        error
    };
    match exchange() {
        // After the exchange `made` names the damaged volume.
        Ok(()) => {
            fs::rename(made, kept).map_err(|error| undone(exchange().map_err(io::Error::from), error))?;
        }
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {
            fs::rename(path, kept).map_err(|error| undone(Ok(()), error))?;
            fs::rename(made, path).map_err(|error| undone(fs::rename(kept, path), error))?;
        }
        Err(errno) => return Err(undone(Ok(()), errno.into())),
    }
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;
    use crate::Volume;

    #[test]
    fn repaired_volume_keeps_owners_and_permission_bits() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("vol");
        let options = Volume::options().size(2 << 20).medium(MediumChoice::Paged);
        options.create(&path).expect("room").close().expect("sound");
        let is_root = rustix::process::geteuid().is_root();
        let files = [(path.clone(), 0o770), (segment_path(&path), 0o660), (path.join("lock"), 0o640)];
        for (file, mode) in &files {
            if is_root {
                chown(file, Some(4711), Some(4712)).expect("root may do this");
            }
            fs::set_permissions(file, fs::Permissions::from_mode(*mode)).expect("mine");
        }
        // Without its last page, the volume has no journal.
        let segment = File::options().write(true).open(segment_path(&path)).expect("there");
        segment.set_len(segment.metadata().expect("there").len() - PAGE_SIZE).expect("shorter");
        drop(segment);
        Repair::new().run(&path).expect("room").expect("the journal is gone");
        for (file, mode) in files {
            let found = fs::metadata(&file).expect("there");
            assert_eq!(found.mode() & 0o7777, mode, "{}", file.display());
            assert!(!is_root || (found.uid(), found.gid()) == (4711, 4712), "{}", file.display());
        }
        Volume::open(&path).expect("a volume").close().expect("sound");
    }

    /// Another user has put a file of this process into the directory of the new volume.
    #[test]
    fn file_with_a_second_name_keeps_its_permission_bits() {
        let place = tempfile::tempdir().expect("a directory");
        let [old, made, other] = ["old", "made", "other"].map(|name| place.path().join(name));
        for (directory, mode) in [(&old, 0o640), (&made, 0o600)] {
            fs::create_dir(directory).expect("room");
            for name in ["one", "two"] {
                fs::write(directory.join(name), "").expect("room");
                let permissions = fs::Permissions::from_mode(mode);
                fs::set_permissions(directory.join(name), permissions).expect("mine");
            }
        }
        fs::hard_link(made.join("two"), &other).expect("one file system");
        keep_owners(&old, &made);
        let modes = [made.join("one"), other].map(|path| fs::metadata(path).expect("there").mode() & 0o7777);
        assert_eq!(modes, [0o640, 0o600]);
    }

    #[test]
    fn failed_attempt_leaves_the_directory_that_was_there() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("new");
        for is_there in [true, false] {
            if is_there {
                fs::create_dir(&path).expect("room");
                fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).expect("mine");
            }
            let before = fs::metadata(&path).ok().map(|found| (found.ino(), found.mode()));
            let new = NewPlace::new(&path);
            Volume::create(&path, 2 << 20).expect("room").close().expect("sound");
            new.clear().expect("mine");
            let after = fs::metadata(&path).ok().map(|found| (found.ino(), found.mode()));
            assert_eq!((after, before.is_some()), (before, is_there));
            if is_there {
                fs::remove_dir(&path).expect("the directory is empty");
            }
        }
    }

    #[test]
    fn attempts_stop_at_the_largest_volume() {
        assert_eq!(larger(MIN_BYTES), Some(MIN_BYTES + (MIN_BYTES / 4)));
        assert_eq!(larger(900 << 30), Some(1 << 40));
        assert_eq!(larger(1 << 40), None);
    }

    #[test]
    fn refused_change_of_names_leaves_the_damaged_volume_as_it_was() {
        let place = tempfile::tempdir().expect("a directory");
        let [path, made, kept] = ["vol", "vol.repairing", "vol.damaged"].map(|name| place.path().join(name));
        for (directory, contents) in [(&path, "old"), (&made, "new"), (&kept, "in the way")] {
            fs::create_dir(directory).expect("a directory");
            fs::write(directory.join("file"), contents).expect("a file");
        }
        let error = swap(&path, &made, &kept).expect_err("a directory with entries is in the way");
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        assert_eq!(fs::read(path.join("file")).expect("a file"), b"old");
        assert_eq!(fs::read(kept.join("file")).expect("a file"), b"in the way");
        assert!(!made.exists(), "the new volume is removed");
        fs::create_dir(&made).expect("a directory");
        fs::write(made.join("file"), "new").expect("a file");
        fs::remove_dir_all(&kept).expect("a directory");
        swap(&path, &made, &kept).expect("nothing is in the way");
        assert_eq!(fs::read(path.join("file")).expect("a file"), b"new");
        assert_eq!(fs::read(kept.join("file")).expect("a file"), b"old");
    }
}
