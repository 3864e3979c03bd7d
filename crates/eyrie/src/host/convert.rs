//! Conversions of arguments to those of the kernel, and of the kernel's results to those of
//! [`Posix`](crate::Posix).

use std::os::fd::OwnedFd;

use eyrie_engine::{FallocateMode, InodeFlags, Kind, Time, XattrMode};
use rustix::fs::{
    self, AtFlags, FallocateFlags, FileType, IFlags, Mode, OFlags, RawDirEntry, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io;

use crate::posix::{OpenFlags, SetTime, Stat};
use crate::{Errno, Error, Result};

/// Adds the name of the call to an error of a system call.
#[inline]
pub(super) fn named<T>(operation: &'static str, result: io::Result<T>) -> Result<T> {
    result.map_err(|errno| Error::new(Errno::from_raw_os_error(errno.raw_os_error()), operation))
}

pub(super) fn mode_bits(mode: u16) -> Mode {
    Mode::from_raw_mode(mode.into())
}

pub(super) fn xattr_flags(mode: XattrMode) -> XattrFlags {
    match mode {
        XattrMode::Set => XattrFlags::empty(),
        XattrMode::Create => XattrFlags::CREATE,
        XattrMode::Replace => XattrFlags::REPLACE,
    }
}

pub(super) fn fallocate_flags(mode: FallocateMode) -> FallocateFlags {
    match mode {
        FallocateMode::Allocate => FallocateFlags::empty(),
        FallocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
        FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateMode::ZeroRange => FallocateFlags::ZERO_RANGE,
        FallocateMode::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        FallocateMode::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
        FallocateMode::InsertRange => FallocateFlags::INSERT_RANGE,
        FallocateMode::UnshareRange => FallocateFlags::UNSHARE_RANGE,
        FallocateMode::UnshareRangeKeepSize => FallocateFlags::UNSHARE_RANGE | FallocateFlags::KEEP_SIZE,
    }
}

/// Converts the inode flags of a file of the host. Flags that Eyrie does not have are left out.
pub(super) fn inode_flags(flags: IFlags) -> InodeFlags {
    InodeFlags::from_bits_truncate(flags.bits() as u8)
}

/// Returns the new inode flags of a file of the host: `flags`, and those flags of `old` that Eyrie does not
/// have.
pub(super) fn with_inode_flags(old: IFlags, flags: InodeFlags) -> IFlags {
    let kept = old.bits() & !u32::from(InodeFlags::all().bits());
    IFlags::from_bits_retain(kept | u32::from(flags.bits()))
}

pub(super) fn open_flags(flags: OpenFlags) -> io::Result<OFlags> {
    let mut out = OFlags::CLOEXEC;
    out |= match (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (true, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (false, false) if flags.contains(OpenFlags::PATH) => OFlags::empty(),
        (false, false) => return Err(io::Errno::INVAL),
    };
    for (ours, theirs) in [
        (OpenFlags::CREATE, OFlags::CREATE),
        (OpenFlags::EXCLUSIVE, OFlags::EXCL),
        (OpenFlags::TRUNCATE, OFlags::TRUNC),
        (OpenFlags::APPEND, OFlags::APPEND),
        (OpenFlags::DIRECTORY, OFlags::DIRECTORY),
        (OpenFlags::NOFOLLOW, OFlags::NOFOLLOW),
        (OpenFlags::NONBLOCK, OFlags::NONBLOCK),
        (OpenFlags::TEMPORARY, OFlags::TMPFILE),
        (OpenFlags::SYNC, OFlags::SYNC),
        (OpenFlags::DATA_SYNC, OFlags::DSYNC),
        (OpenFlags::DIRECT, OFlags::DIRECT),
        (OpenFlags::PATH, OFlags::PATH),
        (OpenFlags::NOATIME, OFlags::NOATIME),
    ] {
        if flags.contains(ours) {
            out |= theirs;
        }
    }
    Ok(out)
}

/// Returns the kind of an entry of an open directory.
pub(super) fn kind_of_entry(dir: &OwnedFd, entry: &RawDirEntry<'_>) -> io::Result<Kind> {
    match kind_of(entry.file_type()) {
        Some(kind) => Ok(kind),
        // Some file systems of the host do not store the kind in a directory entry.
        None => {
            let stat = fs::statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(stat_from(&stat).kind)
        }
    }
}

fn kind_of(kind: FileType) -> Option<Kind> {
    Some(match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Unknown => return None,
    })
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn stat_from(stat: &fs::Stat) -> Stat {
    Stat {
        file_system: stat.st_dev,
        inode: stat.st_ino,
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)).unwrap_or(Kind::File),
        mode: (stat.st_mode & 0o7777) as u16,
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        device: stat.st_rdev,
        size: stat.st_size as u64,
        allocated: stat.st_blocks as u64 * 512,
        accessed: Time::new(stat.st_atime, stat.st_atime_nsec as u32),
        modified: Time::new(stat.st_mtime, stat.st_mtime_nsec as u32),
        changed: Time::new(stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}

pub(super) fn timestamps(accessed: SetTime, modified: SetTime) -> io::Result<Timestamps> {
    let one = |set| {
        Ok(match set {
            SetTime::Now => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
            SetTime::Omit => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
            // `UTIME_NOW` and `UTIME_OMIT` are numbers of nanoseconds above this limit. The kernel would take
            // such a number as a command, not as part of a time.
            SetTime::To(time) if time.nanoseconds >= 1_000_000_000 => return Err(io::Errno::INVAL),
            SetTime::To(time) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() },
        })
    };
    Ok(Timestamps { last_access: one(accessed)?, last_modification: one(modified)? })
}
