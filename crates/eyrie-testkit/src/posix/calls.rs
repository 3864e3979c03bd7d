//! Draws random calls over a few paths, and makes them.

use eyrie::posix::{Access, ListEntry, OpenFlags, Posix, SetTime, Whence};
use eyrie::{Errno, FallocateMode, InodeFlags, Kind, RenameMode, Target, Time};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::values::{Answer, ComparedStat, PathBytes, Random, path};
use super::xattr::{self, Ask, Of};

/// Maximum number of files that a run keeps open.
pub(super) const SLOTS: usize = 4;
/// Modes that grant or refuse a right to some user of the run.
const MODES: &[u16] = &[
    0o777, 0o755, 0o700, 0o644, 0o600, 0, 0o4755, 0o2755, 0o2745, 0o2767, 0o6777, 0o1777, 0o2777, 0o770,
    0o750, 0o070, 0o007, 0o111,
];
/// Offsets around which the storage of a file changes its shape. Each is a power of two.
const CORNER_OFFSETS: [u64; 4] = [1 << 12, 1 << 21, 1 << 30, 1 << 40];
/// Times at the ends of 32 and of 64 bits, in seconds since 1970. The clocks of a run never show them.
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

/// One call. A slot has a number, and holds one open file or is empty. A call on an empty slot is skipped,
/// except `Open`.
#[expect(missing_docs, reason = "they are the calls of `Posix` and their arguments")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PosixCall {
    Open { slot: usize, path: PathBytes, flags: OpenFlags, mode: u16 },
    Close { slot: usize },
    Read { slot: usize, length: usize, offset: u64 },
    Write { slot: usize, data: Vec<u8>, offset: u64 },
    Append { slot: usize, data: Vec<u8> },
    Fstat { slot: usize },
    SetLen { slot: usize, size: u64 },
    Fallocate { slot: usize, mode: FallocateMode, offset: u64, length: u64 },
    Fchmod { slot: usize, mode: u16 },
    Futimens { slot: usize, accessed: SetTime, modified: SetTime },
    Seek { slot: usize, offset: u64, whence: Whence },
    CopyRange { slot: usize, offset: u64, target: usize, target_offset: u64, length: u64 },
    ListHandle { slot: usize },
    Stat { path: PathBytes },
    Lstat { path: PathBytes },
    Truncate { path: PathBytes, size: u64 },
    TruncateToSame { path: PathBytes },
    Mkdir { path: PathBytes, mode: u16 },
    Rmdir { path: PathBytes },
    Unlink { path: PathBytes },
    Rename { from: PathBytes, to: PathBytes, mode: RenameMode },
    Link { existing: PathBytes, path: PathBytes },
    Flink { slot: usize, path: PathBytes },
    Symlink { target: PathBytes, path: PathBytes },
    Readlink { path: PathBytes },
    Freadlink { slot: usize },
    Chmod { path: PathBytes, mode: u16 },
    Chown { path: PathBytes, uid: Option<u32>, gid: Option<u32> },
    Lchown { path: PathBytes, uid: Option<u32>, gid: Option<u32> },
    Utimens { path: PathBytes, accessed: SetTime, modified: SetTime },
    Lutimens { path: PathBytes, accessed: SetTime, modified: SetTime },
    Mknod { path: PathBytes, kind: Kind, mode: u16, device: u64 },
    Access { path: PathBytes, access: Access },
    List { path: PathBytes },
    Xattr { path: PathBytes, follow: bool, ask: Ask },
    Fxattr { slot: usize, ask: Ask },
    InodeFlags { slot: usize },
    SetInodeFlags { slot: usize, flags: InodeFlags },
}

impl PosixCall {
    /// Returns the slot of a call on an open file.
    pub(super) fn slot(&self) -> Option<usize> {
        match self {
            PosixCall::Read { slot, .. }
            | PosixCall::Write { slot, .. }
            | PosixCall::Append { slot, .. }
            | PosixCall::Fstat { slot }
            | PosixCall::SetLen { slot, .. }
            | PosixCall::Fallocate { slot, .. }
            | PosixCall::Fchmod { slot, .. }
            | PosixCall::Futimens { slot, .. }
            | PosixCall::Seek { slot, .. }
            | PosixCall::ListHandle { slot }
            | PosixCall::Flink { slot, .. }
            | PosixCall::Freadlink { slot }
            | PosixCall::Fxattr { slot, .. }
            | PosixCall::InodeFlags { slot }
            | PosixCall::SetInodeFlags { slot, .. } => Some(*slot),
            _ => None,
        }
    }
}

/// The open files of a run.
pub(super) type Slots<P> = [Option<<P as Posix>::Handle>; SLOTS];

/// Makes a call.
pub(super) fn perform<P: Posix>(fs: &P, slots: &mut Slots<P>, call: &PosixCall) -> Result<Answer, Errno> {
    let result = match call {
        PosixCall::Open { slot, path: name, flags, mode } => {
            if let Some(old) = slots[*slot].take() {
                fs.close(old).map_err(|error| error.errno())?;
            }
            fs.open(path(name).into(), *flags, *mode).map(|handle| {
                slots[*slot] = Some(handle);
                Answer::Done
            })
        }
        PosixCall::Close { slot } => match slots[*slot].take() {
            Some(handle) => fs.close(handle).map(|()| Answer::Done),
            None => Ok(Answer::Skipped),
        },
        _ => match call.slot().map(|slot| &slots[slot]) {
            Some(Some(handle)) => on_handle(fs, handle, call),
            Some(None) => Ok(Answer::Skipped),
            None => match call {
                PosixCall::CopyRange { slot, offset, target, target_offset, length } => {
                    let (Some(from), Some(to)) = (&slots[*slot], &slots[*target]) else {
                        return Ok(Answer::Skipped);
                    };
                    copy_range(fs, (from, *offset), (to, *target_offset), *length)
                }
                _ => on_path(fs, call),
            },
        },
    };
    result.map_err(|error| error.errno())
}

/// Copies a range. One call may copy only the first part of it, so further calls copy the rest.
fn copy_range<P: Posix>(
    fs: &P,
    (from, offset): (&P::Handle, u64),
    (to, target_offset): (&P::Handle, u64),
    length: u64,
) -> eyrie::Result<Answer> {
    let count = length.min(fs.stat(Target::Open(from))?.size.saturating_sub(offset));
    let mut copied = fs.copy_file_range((from, offset), (to, target_offset), length)?;
    while copied > 0 && copied < count {
        let (source, target) = ((from, offset + copied), (to, target_offset + copied));
        match fs.copy_file_range(source, target, count - copied)? {
            0 => break,
            more => copied += more,
        }
    }
    Ok(Answer::Count(copied))
}

fn on_handle<P: Posix>(fs: &P, handle: &P::Handle, call: &PosixCall) -> eyrie::Result<Answer> {
    let done = |()| Answer::Done;
    match call {
        PosixCall::Read { length, offset, .. } => {
            let mut out = vec![0; *length];
            let count = fs.read_at(handle, &mut out, *offset)?;
            out.truncate(count);
            Ok(Answer::Bytes(out))
        }
        PosixCall::Write { data, offset, .. } => {
            fs.write_at(handle, data, *offset).map(|count| Answer::Count(count as u64))
        }
        PosixCall::Append { data, .. } => fs.append(handle, data).map(|count| Answer::Count(count as u64)),
        PosixCall::Fstat { .. } => {
            fs.stat(Target::Open(handle)).map(|stat| Answer::Stat(ComparedStat::from(&stat)))
        }
        PosixCall::SetLen { size, .. } => fs.truncate(Target::Open(handle), *size).map(done),
        PosixCall::Fallocate { mode, offset, length, .. } => {
            fs.fallocate(handle, *mode, *offset, *length).map(done)
        }
        PosixCall::Fchmod { mode, .. } => fs.chmod(Target::Open(handle), *mode).map(done),
        PosixCall::Futimens { accessed, modified, .. } => {
            fs.utimens(Target::Open(handle), *accessed, *modified).map(done)
        }
        PosixCall::Seek { offset, whence, .. } => fs.seek(handle, *offset, *whence).map(Answer::Count),
        PosixCall::ListHandle { .. } => list(fs, handle),
        PosixCall::Flink { path: name, .. } => fs.link(Target::Open(handle), path(name).into()).map(done),
        PosixCall::Freadlink { .. } => fs.readlink(Target::Open(handle)).map(Answer::Bytes),
        PosixCall::Fxattr { ask, .. } => xattr::ask(fs, &Of::Handle(handle), ask),
        PosixCall::InodeFlags { .. } => {
            fs.inode_flags(handle).map(|flags| Answer::Count(flags.bits().into()))
        }
        PosixCall::SetInodeFlags { flags, .. } => fs.set_inode_flags(handle, *flags).map(done),
        _ => Ok(Answer::Skipped),
    }
}

fn on_path<P: Posix>(fs: &P, call: &PosixCall) -> eyrie::Result<Answer> {
    let done = |()| Answer::Done;
    match call {
        PosixCall::Stat { path: name } => {
            fs.stat(path(name).into()).map(|stat| Answer::Stat(ComparedStat::from(&stat)))
        }
        PosixCall::Lstat { path: name } => {
            fs.stat(Target::NoFollow(path(name).into())).map(|stat| Answer::Stat(ComparedStat::from(&stat)))
        }
        PosixCall::Truncate { path: name, size } => fs.truncate(path(name).into(), *size).map(done),
        PosixCall::TruncateToSame { path: name } => {
            let size = fs.stat(path(name).into())?.size;
            fs.truncate(path(name).into(), size).map(done)
        }
        PosixCall::Mkdir { path: name, mode } => fs.mkdir(path(name).into(), *mode).map(done),
        PosixCall::Rmdir { path: name } => fs.rmdir(path(name).into()).map(done),
        PosixCall::Unlink { path: name } => fs.unlink(path(name).into()).map(done),
        PosixCall::Rename { from, to, mode } => {
            fs.rename_with(path(from).into(), path(to).into(), *mode).map(done)
        }
        PosixCall::Link { existing, path: name } => {
            fs.link(Target::NoFollow(path(existing).into()), path(name).into()).map(done)
        }
        PosixCall::Symlink { target, path: name } => fs.symlink(path(target), path(name).into()).map(done),
        PosixCall::Readlink { path: name } => fs.readlink(path(name).into()).map(Answer::Bytes),
        PosixCall::Chmod { path: name, mode } => fs.chmod(path(name).into(), *mode).map(done),
        PosixCall::Chown { path: name, uid, gid } => fs.chown(path(name).into(), *uid, *gid).map(done),
        PosixCall::Lchown { path: name, uid, gid } => {
            fs.chown(Target::NoFollow(path(name).into()), *uid, *gid).map(done)
        }
        PosixCall::Utimens { path: name, accessed, modified } => {
            fs.utimens(path(name).into(), *accessed, *modified).map(done)
        }
        PosixCall::Lutimens { path: name, accessed, modified } => {
            fs.utimens(Target::NoFollow(path(name).into()), *accessed, *modified).map(done)
        }
        PosixCall::Mknod { path: name, kind, mode, device } => {
            fs.mknod(path(name).into(), *kind, *mode, *device).map(done)
        }
        PosixCall::Access { path: name, access } => fs.access(path(name).into(), *access).map(done),
        PosixCall::Xattr { path: name, follow, ask } => xattr::ask(fs, &Of::Path(name, *follow), ask),
        PosixCall::List { path: name } => {
            let dir = fs.open(path(name).into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0)?;
            let names = list(fs, &dir);
            fs.close(dir)?;
            names
        }
        _ => Ok(Answer::Skipped),
    }
}

fn list<P: Posix>(fs: &P, dir: &P::Handle) -> eyrie::Result<Answer> {
    let mut names = Vec::new();
    fs.list(dir, 0, &mut |ListEntry { name, kind, .. }| {
        names.push((name.to_vec(), kind));
        true
    })?;
    names.sort();
    Ok(Answer::Names(names))
}

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
        match self.0.random_range(0..128) {
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
            38 => PosixCall::ListHandle { slot },
            39..43 => PosixCall::Stat { path: self.path() },
            43..46 => PosixCall::Lstat { path: self.path() },
            46 => PosixCall::Truncate { path: self.path(), size: self.offset() },
            47 => PosixCall::TruncateToSame { path: self.path() },
            48..57 => PosixCall::Mkdir { path: self.path(), mode: self.mode() },
            57..61 => PosixCall::Rmdir { path: self.path() },
            61..65 => PosixCall::Unlink { path: self.path() },
            65..74 => PosixCall::Rename { from: self.path(), to: self.path(), mode: self.rename_mode() },
            74..78 => PosixCall::Link { existing: self.path(), path: self.path() },
            78..83 => PosixCall::Symlink { target: self.path(), path: self.path() },
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
            _ => self.xattr(slot),
        }
    }

    fn inode_flags(&mut self) -> InodeFlags {
        let none = InodeFlags::empty();
        self.one_of(&[none, none, InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY, InodeFlags::all()])
    }

    fn xattr(&mut self, slot: usize) -> PosixCall {
        let (path, ask) = self.ask();
        if path.is_none() && self.0.random_ratio(1, 3) {
            return PosixCall::Fxattr { slot, ask };
        }
        PosixCall::Xattr { path: path.unwrap_or_else(|| self.path()), follow: self.0.random(), ask }
    }

    fn open(&mut self, slot: usize) -> PosixCall {
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
            // The call fails without `WRITE` and with `CREATE`, so both cases are rare.
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

    fn path(&mut self) -> PathBytes {
        let mut path = Vec::new();
        match self.0.random_range(0..200) {
            0 => return path,
            1 => return b"/".to_vec(),
            2 => return vec![b'a'; self.one_of(&[255, 256])],
            3 => return b"a/".repeat(2048),
            4 => {
                // The longest path has 4,095 bytes.
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
