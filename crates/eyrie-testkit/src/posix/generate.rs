//! Draws random calls over a few paths.

use std::num::NonZero;
use std::ops::Range;

use eyrie::posix::{Access, OpenFlags, SetTime, Whence};
use eyrie::{FallocateMode, InodeFlags, Kind, LockKind, RangeOwner, RenameMode, Time};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::calls::{PosixCall, SLOTS};
use super::values::{CallPath, PathBytes, Random};

/// The slots that mostly hold directories. Most paths that begin at an open file begin at a file of these
/// slots.
const DIRECTORY_SLOTS: Range<usize> = 4..SLOTS;
/// Modes that grant or refuse a right to some user of the run.
const MODES: &[u16] = &[
    0o777, 0o755, 0o700, 0o644, 0o600, 0, 0o4755, 0o2755, 0o2745, 0o2767, 0o6777, 0o1777, 0o2777, 0o770,
    0o750, 0o070, 0o007, 0o111,
];
/// Offsets around which the storage of a file changes its shape. Each is a power of two.
const CORNER_OFFSETS: [u64; 4] = [1 << 12, 1 << 21, 1 << 30, 1 << 40];
/// Times at the limits of numbers of 32 and of 64 bits, in seconds since 1970. The clocks of a run never show
/// them.
pub(super) const CORNER_SECONDS: [i64; 12] = [
    i64::MIN,
    i64::MIN + 1,
    i32::MIN as i64 - 1,
    i32::MIN as i64,
    -1,
    0,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    u32::MAX as i64,
    u32::MAX as i64 + 1,
    i64::MAX - 1,
    i64::MAX,
];

/// Returns the calls of `seed`, each with the number of its user.
pub fn generate(seed: u64, count: usize, users: usize) -> Vec<(usize, PosixCall)> {
    let mut random = Random(StdRng::seed_from_u64(seed));
    (0..count).map(|_| (random.user(users), random.call())).collect()
}

impl Random {
    /// Draws the user of a call. With a chance of two in five, the user is root (user 0). Otherwise every
    /// user, also root, has the same chance.
    fn user(&mut self, users: usize) -> usize {
        if self.0.random_ratio(2, 5) { 0 } else { self.0.random_range(0..users) }
    }

    fn call(&mut self) -> PosixCall {
        let slot = self.0.random_range(0..SLOTS);
        match self.0.random_range(0..140) {
            0..18 => self.open(slot),
            18..21 => PosixCall::Close { slot },
            21..24 => PosixCall::Read { slot, length: self.0.random_range(0..9000), offset: self.offset() },
            24..30 => PosixCall::Write { slot, data: self.data(), offset: self.offset() },
            30..32 => PosixCall::Append { slot, data: self.data() },
            32 if self.0.random() => PosixCall::Freadlink { slot },
            32 => PosixCall::Fstat { slot },
            33..35 => PosixCall::SetLen { slot, size: self.offset() },
            35 => PosixCall::Fchmod { slot, mode: self.mode() },
            36 => PosixCall::Futimens { slot, accessed: self.time(), modified: self.time() },
            37 => PosixCall::Seek {
                slot,
                offset: self.offset(),
                whence: self.one_of(&[Whence::Data, Whence::Hole]),
            },
            38 => self.list_handle(slot),
            39..43 => PosixCall::Stat { path: self.path() },
            43..46 => PosixCall::Lstat { path: self.path() },
            46 => PosixCall::Truncate { path: self.path(), size: self.offset() },
            47 => PosixCall::TruncateToSame { path: self.path() },
            48..57 => PosixCall::Mkdir { path: self.path(), mode: self.mode() },
            57..61 => PosixCall::Rmdir { path: self.path() },
            61..65 => PosixCall::Unlink { path: self.path() },
            65..74 => PosixCall::Rename { from: self.path(), to: self.path(), mode: self.rename_mode() },
            74..78 => PosixCall::Link {
                existing: self.path(),
                follow: self.0.random_ratio(1, 3),
                path: self.path(),
            },
            78..83 => PosixCall::Symlink { target: self.path_bytes(), path: self.path() },
            83 => PosixCall::Readlink { path: self.path() },
            84..89 => PosixCall::Chmod { path: self.path(), mode: self.mode() },
            89..91 => PosixCall::Chown { path: self.path(), uid: self.id(), gid: self.id() },
            91 => PosixCall::Lchown { path: self.path(), uid: self.id(), gid: self.id() },
            92..94 => PosixCall::Utimens { path: self.path(), accessed: self.time(), modified: self.time() },
            94 => PosixCall::Lutimens { path: self.path(), accessed: self.time(), modified: self.time() },
            95 => self.mknod(),
            96..98 => {
                PosixCall::Access { path: self.path(), access: Access::from_bits_truncate(self.0.random()) }
            }
            98 => PosixCall::List { path: self.path() },
            99..101 => {
                let target = self.0.random_range(0..SLOTS);
                let (offset, target_offset) = (self.offset(), self.offset());
                PosixCall::CopyRange { slot, offset, target, target_offset, length: self.length() }
            }
            101..106 => {
                let mode = self.one_of(&FallocateMode::ALL);
                PosixCall::Fallocate { slot, mode, offset: self.offset(), length: self.length() }
            }
            106..112 => PosixCall::Flink { slot, path: self.path() },
            112 => PosixCall::InodeFlags { slot },
            113..116 => PosixCall::SetInodeFlags { slot, flags: self.inode_flags() },
            116..128 => self.xattr(slot),
            _ => self.later_call(slot),
        }
    }

    fn list_handle(&mut self, slot: usize) -> PosixCall {
        let part = self.one_of(&[0, 0, 1, 2, 3]);
        PosixCall::ListHandle { slot, part: NonZero::new(part) }
    }

    fn later_call(&mut self, slot: usize) -> PosixCall {
        let owner = self.one_of(&[RangeOwner::Process, RangeOwner::OpenFile]);
        let kind = self.one_of(&[LockKind::Shared, LockKind::Exclusive]);
        let set = (!self.0.random_ratio(1, 3)).then_some(kind);
        match self.0.random_range(0..12) {
            0 => PosixCall::Fchown { slot, uid: self.id(), gid: self.id() },
            1 => PosixCall::Faccess { slot, access: Access::from_bits_truncate(self.0.random()) },
            2 => PosixCall::AppendRange { slot, data: self.data() },
            3 if self.0.random() => PosixCall::Fsync { slot },
            3 => PosixCall::Fdatasync { slot },
            4 => self.list_handle(slot),
            5..7 => PosixCall::Flock { slot, kind: set },
            7..10 => {
                let range = (self.offset(), self.length());
                PosixCall::LockRange { slot, owner, range, kind: set }
            }
            _ => PosixCall::FindLock { slot, owner, range: (self.offset(), self.length()), kind },
        }
    }

    fn inode_flags(&mut self) -> InodeFlags {
        let none = InodeFlags::empty();
        self.one_of(&[none, none, InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY, InodeFlags::all()])
    }

    fn xattr(&mut self, slot: usize) -> PosixCall {
        let (path, call) = self.xattr_call();
        if path.is_none() && self.0.random_ratio(1, 3) {
            return PosixCall::Fxattr { slot, call };
        }
        PosixCall::Xattr { path: path.unwrap_or_else(|| self.path()), follow: self.0.random(), call }
    }

    fn open(&mut self, slot: usize) -> PosixCall {
        if DIRECTORY_SLOTS.contains(&slot) && self.0.random_ratio(7, 8) {
            let access = self.one_of(&[OpenFlags::READ, OpenFlags::READ, OpenFlags::PATH]);
            let flags = access | OpenFlags::DIRECTORY;
            return PosixCall::Open { slot, path: self.path(), flags, mode: 0 };
        }
        let access = [OpenFlags::READ, OpenFlags::WRITE, OpenFlags::READ | OpenFlags::WRITE];
        let mut flags = self.one_of(&access);
        for (flag, percent) in [
            (OpenFlags::CREATE, 60),
            (OpenFlags::EXCLUSIVE, 15),
            (OpenFlags::TRUNCATE, 15),
            (OpenFlags::APPEND, 15),
            (OpenFlags::DIRECTORY, 8),
            (OpenFlags::NOFOLLOW, 10),
            (OpenFlags::SYNC, 5),
            (OpenFlags::DATA_SYNC, 5),
            (OpenFlags::DIRECT, 5),
            (OpenFlags::PATH, 12),
            (OpenFlags::NOATIME, 10),
        ] {
            flags.set(flag, self.0.random_ratio(percent, 100));
        }
        if self.0.random_ratio(1, 8) {
            flags |= OpenFlags::TEMPORARY;
            // The call fails without `WRITE`, and it fails with `CREATE`. So both cases are rare.
            flags.set(OpenFlags::WRITE, !self.0.random_ratio(1, 10));
            flags.set(OpenFlags::CREATE, self.0.random_ratio(1, 10));
            let mode = self.mode();
            return PosixCall::Open { slot, path: self.path(), flags, mode };
        }
        // POSIX leaves `O_EXCL` without `O_CREAT` undefined.
        flags.set(OpenFlags::EXCLUSIVE, flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE));
        PosixCall::Open { slot, path: self.path(), flags, mode: self.mode() }
    }

    fn mknod(&mut self) -> PosixCall {
        let kinds =
            [Kind::File, Kind::Directory, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];
        let kind = self.one_of(&kinds);
        // A major number has twelve bits and a minor number has twenty. The last three device numbers have
        // more than 32 bits.
        let devices = [0, 0x103, 0x0801, 0xfff0_0fff, u32::MAX.into(), 1 << 32, (1 << 44) + 3, u64::MAX];
        PosixCall::Mknod { path: self.path(), kind, mode: self.mode(), device: self.one_of(&devices) }
    }

    /// Draws a path. Half of the relative paths begin at the open file of a slot, most often of a slot for
    /// directories.
    fn path(&mut self) -> CallPath {
        let bytes = self.path_bytes();
        let begins_at_slot = !bytes.starts_with(b"/") && self.0.random();
        let first = if self.0.random_ratio(1, 12) { 0 } else { DIRECTORY_SLOTS.start };
        let dir = begins_at_slot.then(|| self.0.random_range(first..DIRECTORY_SLOTS.end));
        CallPath { dir, bytes }
    }

    fn path_bytes(&mut self) -> PathBytes {
        let mut path = Vec::new();
        match self.0.random_range(0..200) {
            0 => return path,
            1 => return b"/".to_vec(),
            2 => return vec![b'a'; self.one_of(&[255, 256])],
            3 => return b"a/".repeat(2048),
            4 => {
                // These paths have 4,094, 4,095 and 4,096 bytes. The kernel accepts at most 4,095.
                let slashes = self.one_of(&[3, 4, 5]);
                return [&b"/"[..], &b"./".repeat(2045), &b"/////"[..slashes - 1], b"a"].concat();
            }
            5..100 => path.push(b'/'),
            _ => {}
        }
        let depth = self.one_of(&[1, 1, 1, 2, 2, 2, 3]);
        for level in 0..depth {
            if level > 0 {
                path.extend(if self.0.random_ratio(1, 30) { &b"//"[..] } else { b"/" });
            }
            path.extend_from_slice(match self.0.random_range(0..40) {
                0 => b".",
                1..3 => b"..",
                3..17 => b"a",
                17..29 => b"b",
                29 => b"\xff\n\\ ",
                30 => &[b'n'; 255],
                _ => b"c",
            });
        }
        if self.0.random_ratio(1, 12) {
            path.extend(if self.0.random_ratio(1, 4) { &b"//"[..] } else { b"/" });
        }
        path
    }

    fn mode(&mut self) -> u16 {
        // Many modes are open to all users. With other modes, most calls below a new directory would be
        // refused.
        if self.0.random_ratio(1, 3) { 0o777 } else { self.one_of(MODES) }
    }

    fn rename_mode(&mut self) -> RenameMode {
        self.one_of(&[
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
            RenameMode::Whiteout,
            RenameMode::NoReplaceWhiteout,
        ])
    }

    fn id(&mut self) -> Option<u32> {
        self.one_of(&[None, None, Some(0), Some(1000), Some(1001), Some(2000)])
    }

    fn time(&mut self) -> SetTime {
        let seconds = match self.0.random_range(0..4) {
            0 => self.one_of(&CORNER_SECONDS),
            _ => self.0.random_range(-5..1_000_000),
        };
        let set = SetTime::To(Time::new(seconds, self.0.random_range(0..1_000_000_000)));
        self.one_of(&[SetTime::Now, SetTime::Omit, set])
    }

    fn offset(&mut self) -> u64 {
        const END: u64 = i64::MAX as u64;
        match self.0.random_range(0..40) {
            0 => self.one_of(&[END, END - 1, END - 4096, END + 1, u64::MAX]),
            1..4 => self.one_of(&CORNER_OFFSETS) + self.one_of(&[0, 1]) - self.one_of(&[0, 1]),
            4..12 => 0,
            _ => self.0.random_range(0..12_000),
        }
    }

    fn length(&mut self) -> u64 {
        match self.0.random_range(0..20) {
            0 => self.one_of(&[i64::MAX as u64, 1 << 63, u64::MAX]),
            1..10 => self.one_of(&[0, 1, 100, 4096, 8192]),
            _ => self.0.random_range(0..12_000),
        }
    }

    fn data(&mut self) -> Vec<u8> {
        let length = self.one_of(&[0, 1, 2, 100, 4096, 6000]);
        vec![self.0.random_range(1..=255); length]
    }
}
