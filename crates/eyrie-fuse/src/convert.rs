//! Conversions between the types of Eyrie and those of the protocol.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eyrie::{
    FallocateMode, HeldLock, Kind, LockKind, Node, ObjectId, SetTime, Stat, StatVfs, Time, Whence, XattrMode,
};
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyLock, ReplyStatfs, TimeOrNow};

use crate::answer::Answer;

const KEEP_SIZE: i32 = rustix::fs::FallocateFlags::KEEP_SIZE.bits() as i32;
const PUNCH_HOLE_KEEP_SIZE: i32 = rustix::fs::FallocateFlags::PUNCH_HOLE.bits() as i32 | KEEP_SIZE;
const ZERO_RANGE: i32 = rustix::fs::FallocateFlags::ZERO_RANGE.bits() as i32;
const ZERO_RANGE_KEEP_SIZE: i32 = ZERO_RANGE | KEEP_SIZE;
const XATTR_CREATE: i32 = rustix::fs::XattrFlags::CREATE.bits() as i32;
const XATTR_REPLACE: i32 = rustix::fs::XattrFlags::REPLACE.bits() as i32;
/// Linux's numbers of `lseek`, which rustix has only as an enum.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// `F_RDLCK`, `F_WRLCK` and `F_UNLCK` of Linux.
const READ_LOCK: i32 = 0;
const WRITE_LOCK: i32 = 1;
const UNLOCK: i32 = 2;

pub(crate) fn fallocate_mode(mode: i32) -> Answer<FallocateMode> {
    Ok(match mode {
        0 => FallocateMode::Allocate,
        KEEP_SIZE => FallocateMode::KeepSize,
        PUNCH_HOLE_KEEP_SIZE => FallocateMode::PunchHole,
        ZERO_RANGE => FallocateMode::ZeroRange,
        ZERO_RANGE_KEEP_SIZE => FallocateMode::ZeroRangeKeepSize,
        _ => return Err(Errno::EOPNOTSUPP),
    })
}

pub(crate) fn xattr_mode(flags: i32) -> Answer<XattrMode> {
    Ok(match flags {
        0 => XattrMode::Set,
        XATTR_CREATE => XattrMode::Create,
        XATTR_REPLACE => XattrMode::Replace,
        _ => return Err(Errno::EINVAL),
    })
}

pub(crate) fn whence(number: i32) -> Answer<Whence> {
    match number {
        SEEK_DATA => Ok(Whence::Data),
        SEEK_HOLE => Ok(Whence::Hole),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the kind of a lock, or `Some(None)` for an unlock.
pub(crate) fn lock_kind(number: i32) -> Option<Option<LockKind>> {
    match number {
        READ_LOCK => Some(Some(LockKind::Shared)),
        WRITE_LOCK => Some(Some(LockKind::Exclusive)),
        UNLOCK => Some(None),
        _ => None,
    }
}

/// Replies with a lock that conflicts, or with the fact that there is none.
pub(crate) fn send_lock(reply: ReplyLock, found: Option<HeldLock>) {
    let Some(HeldLock { owner, range, kind }) = found else { return reply.locked(0, 0, UNLOCK, 0) };
    let number = if kind == LockKind::Shared { READ_LOCK } else { WRITE_LOCK };
    // The process is 0 if an open file owns the lock.
    reply.locked(range.start(), range.last(), number, owner.process().unwrap_or_default() as u32);
}

/// Replies with the space of a file system.
pub(crate) fn send_space(reply: ReplyStatfs, space: &StatVfs) {
    let (size, free) = (space.block_size as u32, space.blocks_free);
    let name_max = space.name_max as u32;
    reply.statfs(space.blocks, free, free, space.files, space.files_free, size, name_max, size);
}

/// Returns the attributes of a node as the kernel takes them.
pub(crate) fn attributes(node: &Node, number: INodeNo) -> FileAttr {
    let Stat { kind, mode, links, uid, gid, device, size, allocated, accessed, modified, changed, .. } =
        node.stat;
    FileAttr {
        ino: number,
        size,
        blocks: allocated.div_ceil(512),
        atime: system_time(accessed),
        mtime: system_time(modified),
        ctime: system_time(changed),
        crtime: system_time(node.created),
        kind: file_type(kind),
        perm: mode,
        nlink: links,
        uid,
        gid,
        // A device number has 12 bits of major and 20 bits of minor number in 32 bits.
        rdev: device as u32,
        blksize: 4096,
        flags: 0,
    }
}

/// Returns attributes that stand for those of an object that cannot be read. Their number is that of no
/// object, so the kernel does not take them for new attributes of an object that it knows.
pub(crate) fn unreadable(id: ObjectId) -> FileAttr {
    FileAttr {
        // The number of an object is its place and its kind, which is at least 1.
        ino: INodeNo(id.place()),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: file_type(id.kind()),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// Returns the kind in the file type bits of a mode of mknod(2). A mode without type bits is that of a file.
/// Returns `None` for a directory and a symbolic link, because mknod(2) makes neither.
pub(crate) fn kind_of(mode: u32) -> Option<Kind> {
    Some(match mode & 0o170_000 {
        0 | 0o100_000 => Kind::File,
        0o010_000 => Kind::Fifo,
        0o140_000 => Kind::Socket,
        0o020_000 => Kind::CharDevice,
        0o060_000 => Kind::BlockDevice,
        _ => return None,
    })
}

/// Returns the time as the kernel takes it. A time that `SystemTime` cannot have becomes the start of 1970.
fn system_time(time: Time) -> SystemTime {
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    let second = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(Duration::from_secs(time.seconds.unsigned_abs()))
    } else {
        UNIX_EPOCH.checked_add(Duration::from_secs(time.seconds.unsigned_abs()))
    };
    second.and_then(|second| second.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

pub(crate) fn set_time(time: Option<TimeOrNow>) -> SetTime {
    match time {
        None => SetTime::Omit,
        Some(TimeOrNow::Now) => SetTime::Now,
        Some(TimeOrNow::SpecificTime(time)) => SetTime::To(sent_time(time)),
    }
}

/// Returns the time that the kernel has sent. The nanoseconds of a time count forward from its second, also
/// before 1970. But the crate `fuser` subtracts both numbers of a time before 1970 from the start of 1970.
/// This function finds the two numbers again.
fn sent_time(time: SystemTime) -> Time {
    match UNIX_EPOCH.duration_since(time) {
        Ok(before) => Time::new(0_i64.saturating_sub_unsigned(before.as_secs()), before.subsec_nanos()),
        Err(_) => time.into(),
    }
}

/// Numbers of nodes: the number of an object is its id. The root has the number 1, which is the id of no
/// object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) root: ObjectId,
}

impl Numbers {
    pub(crate) fn of(self, id: ObjectId) -> INodeNo {
        if id == self.root { INodeNo::ROOT } else { INodeNo(id.raw()) }
    }

    /// Returns the generation of a node. The kernel gives its root the generation 0. Some versions of the
    /// kernel refuse further use of the root after an answer with another generation.
    pub(crate) fn generation(self, node: &Node) -> Generation {
        Generation(if node.id == self.root { 0 } else { node.generation })
    }

    /// Returns the object of a number, or `None` if no object can have this number.
    pub(crate) fn object(self, number: INodeNo) -> Option<ObjectId> {
        if number == INodeNo::ROOT { Some(self.root) } else { ObjectId::from_raw(number.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_convert() {
        let half = Duration::from_millis(500);
        assert_eq!(system_time(Time::new(1, 500_000_000)), UNIX_EPOCH + Duration::from_secs(1) + half);
        assert_eq!(system_time(Time::new(-1, 500_000_000)), UNIX_EPOCH - half);
        // The ends of the range must not panic.
        system_time(Time::new(i64::MIN, 0));
        system_time(Time::new(i64::MAX, 999_999_999));
    }

    #[test]
    fn sent_times_before_1970_keep_their_nanoseconds() {
        let part = Duration::from_nanos(7);
        let sent = |seconds| UNIX_EPOCH - (Duration::from_secs(seconds) + part);
        assert_eq!(sent_time(sent(1)), Time::new(-1, 7));
        assert_eq!(sent_time(sent(i64::MAX as u64)), Time::new(-i64::MAX, 7));
        assert_eq!(sent_time(UNIX_EPOCH), Time::new(0, 0));
        assert_eq!(sent_time(UNIX_EPOCH + part), Time::new(0, 7));
    }

    #[test]
    fn root_has_the_number_one() {
        let root = ObjectId::new(4096, Kind::Directory);
        let numbers = Numbers { root };
        assert_eq!(numbers.of(root), INodeNo::ROOT);
        assert_eq!(numbers.object(INodeNo::ROOT), Some(root));
        let file = ObjectId::new(8192, Kind::File);
        assert_eq!(numbers.object(numbers.of(file)), Some(file));
        assert_eq!(numbers.object(INodeNo(0)), None);
        assert_eq!(numbers.object(unreadable(file).ino), None);
    }

    #[test]
    fn regression_root_has_the_generation_of_the_kernel() {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a place");
        let volume = eyrie::Volume::create(place.path().join("volume"), 4 << 20).expect("a volume");
        let nodes = volume.nodes();
        let numbers = Numbers { root: nodes.root() };
        let who = eyrie::Credentials::root();
        let root = nodes.lookup(&who, nodes.root(), b"..").expect("sound");
        assert_eq!(numbers.generation(&root).0, 0);
        let egg = nodes.make(&who, nodes.root(), b"egg", Kind::File, 0o644, 0).expect("room");
        assert_eq!((numbers.generation(&egg).0, egg.generation == 0), (egg.generation, false));
    }

    #[test]
    fn types_of_modes_are_those_of_linux() {
        assert_eq!(kind_of(0o644), Some(Kind::File));
        assert_eq!(kind_of(0o010_600), Some(Kind::Fifo));
        assert_eq!(kind_of(0o040_755), None);
    }
}
