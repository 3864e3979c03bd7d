//! Random calls over a small universe of paths, and how to make them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie::posix::{Access, ListEntry, OpenFlags, Posix, SetTime, Stat, Whence};
use eyrie::{Errno, FallocateMode, Kind, RenameMode, Time};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::xattr::{self, Ask, Of};

/// Files that a run keeps open at a time.
pub(super) const SLOTS: usize = 4;
/// Modes that make a difference to somebody.
const MODES: &[u16] = &[
    0o777, 0o755, 0o700, 0o644, 0o600, 0, 0o4755, 0o2755, 0o2745, 0o2767, 0o6777, 0o1777, 0o2777, 0o770,
    0o750, 0o070, 0o007, 0o111,
];

/// A path, in bytes.
pub(super) type Name = Vec<u8>;

/// One call, by the user of that number. Slots number open files; a call on an empty one is not made.
#[expect(missing_docs, reason = "they are the calls of `Posix` and their arguments")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Open { slot: usize, path: Name, flags: OpenFlags, mode: u16 },
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
    ListHandle { slot: usize },
    Stat { path: Name },
    Lstat { path: Name },
    Truncate { path: Name, size: u64 },
    TruncateToSame { path: Name },
    Mkdir { path: Name, mode: u16 },
    Rmdir { path: Name },
    Unlink { path: Name },
    Rename { from: Name, to: Name, mode: RenameMode },
    Link { existing: Name, path: Name },
    Symlink { target: Name, path: Name },
    Readlink { path: Name },
    Chmod { path: Name, mode: u16 },
    Chown { path: Name, uid: Option<u32>, gid: Option<u32> },
    Lchown { path: Name, uid: Option<u32>, gid: Option<u32> },
    Utimens { path: Name, accessed: SetTime, modified: SetTime },
    Lutimens { path: Name, accessed: SetTime, modified: SetTime },
    Mknod { path: Name, kind: Kind, mode: u16, device: u64 },
    Access { path: Name, access: Access },
    List { path: Name },
    Xattr { path: Name, follow: bool, ask: Ask },
    Fxattr { slot: usize, ask: Ask },
}

/// What a call answered, as far as two file systems must agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Done,
    /// The call was not made: its slot is empty.
    Skipped,
    Count(u64),
    Bytes(Vec<u8>),
    Stat(Shown),
    Names(Vec<(Vec<u8>, Kind)>),
}

/// The attributes that must agree. Sizes of directories are the file system's own business.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    pub kind: Kind,
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u64,
    pub size: Option<u64>,
}

impl From<&Stat> for Shown {
    fn from(stat: &Stat) -> Shown {
        let &Stat { kind, mode, links, uid, gid, device, size, .. } = stat;
        let has_size = matches!(kind, Kind::File | Kind::Symlink);
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let device = if is_device { device } else { 0 };
        Shown { kind, mode, links, uid, gid, device, size: has_size.then_some(size) }
    }
}

/// Files that a run has open.
pub(super) type Slots<P> = [Option<<P as Posix>::Handle>; SLOTS];

pub(super) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Makes a call.
pub(super) fn perform<P: Posix>(fs: &P, slots: &mut Slots<P>, call: &Call) -> Result<Answer, Errno> {
    let result = match call {
        Call::Open { slot, path: name, flags, mode } => {
            if let Some(old) = slots[*slot].take() {
                fs.close(old).map_err(|error| error.errno())?;
            }
            fs.open(path(name), *flags, *mode).map(|handle| {
                slots[*slot] = Some(handle);
                Answer::Done
            })
        }
        Call::Close { slot } => match slots[*slot].take() {
            Some(handle) => fs.close(handle).map(|()| Answer::Done),
            None => Ok(Answer::Skipped),
        },
        Call::Read { slot, .. }
        | Call::Write { slot, .. }
        | Call::Append { slot, .. }
        | Call::Fstat { slot }
        | Call::SetLen { slot, .. }
        | Call::Fallocate { slot, .. }
        | Call::Fchmod { slot, .. }
        | Call::Futimens { slot, .. }
        | Call::Seek { slot, .. }
        | Call::ListHandle { slot }
        | Call::Fxattr { slot, .. } => match &slots[*slot] {
            Some(handle) => on_handle(fs, handle, call),
            None => Ok(Answer::Skipped),
        },
        _ => on_path(fs, call),
    };
    result.map_err(|error| error.errno())
}

fn on_handle<P: Posix>(fs: &P, handle: &P::Handle, call: &Call) -> eyrie::Result<Answer> {
    let done = |()| Answer::Done;
    match call {
        Call::Read { length, offset, .. } => {
            let mut out = vec![0; *length];
            let count = fs.read_at(handle, &mut out, *offset)?;
            out.truncate(count);
            Ok(Answer::Bytes(out))
        }
        Call::Write { data, offset, .. } => {
            fs.write_at(handle, data, *offset).map(|count| Answer::Count(count as u64))
        }
        Call::Append { data, .. } => fs.append(handle, data).map(|count| Answer::Count(count as u64)),
        Call::Fstat { .. } => fs.fstat(handle).map(|stat| Answer::Stat(Shown::from(&stat))),
        Call::SetLen { size, .. } => fs.set_len(handle, *size).map(done),
        Call::Fallocate { mode, offset, length, .. } => {
            fs.fallocate(handle, *mode, *offset, *length).map(done)
        }
        Call::Fchmod { mode, .. } => fs.fchmod(handle, *mode).map(done),
        Call::Futimens { accessed, modified, .. } => fs.futimens(handle, *accessed, *modified).map(done),
        Call::Seek { offset, whence, .. } => fs.seek(handle, *offset, *whence).map(Answer::Count),
        Call::ListHandle { .. } => list(fs, handle),
        Call::Fxattr { ask, .. } => xattr::ask(fs, &Of::Handle(handle), ask),
        _ => Ok(Answer::Skipped),
    }
}

fn on_path<P: Posix>(fs: &P, call: &Call) -> eyrie::Result<Answer> {
    let done = |()| Answer::Done;
    match call {
        Call::Stat { path: name } => fs.stat(path(name)).map(|stat| Answer::Stat(Shown::from(&stat))),
        Call::Lstat { path: name } => fs.lstat(path(name)).map(|stat| Answer::Stat(Shown::from(&stat))),
        Call::Truncate { path: name, size } => fs.truncate(path(name), *size).map(done),
        Call::TruncateToSame { path: name } => {
            let size = fs.stat(path(name))?.size;
            fs.truncate(path(name), size).map(done)
        }
        Call::Mkdir { path: name, mode } => fs.mkdir(path(name), *mode).map(done),
        Call::Rmdir { path: name } => fs.rmdir(path(name)).map(done),
        Call::Unlink { path: name } => fs.unlink(path(name)).map(done),
        Call::Rename { from, to, mode } => fs.rename(path(from), path(to), *mode).map(done),
        Call::Link { existing, path: name } => fs.link(path(existing), path(name)).map(done),
        Call::Symlink { target, path: name } => fs.symlink(path(target), path(name)).map(done),
        Call::Readlink { path: name } => fs.readlink(path(name)).map(Answer::Bytes),
        Call::Chmod { path: name, mode } => fs.chmod(path(name), *mode).map(done),
        Call::Chown { path: name, uid, gid } => fs.chown(path(name), *uid, *gid).map(done),
        Call::Lchown { path: name, uid, gid } => fs.lchown(path(name), *uid, *gid).map(done),
        Call::Utimens { path: name, accessed, modified } => {
            fs.utimens(path(name), *accessed, *modified).map(done)
        }
        Call::Lutimens { path: name, accessed, modified } => {
            fs.lutimens(path(name), *accessed, *modified).map(done)
        }
        Call::Mknod { path: name, kind, mode, device } => {
            fs.mknod(path(name), *kind, *mode, *device).map(done)
        }
        Call::Access { path: name, access } => fs.access(path(name), *access).map(done),
        Call::Xattr { path: name, follow, ask } => xattr::ask(fs, &Of::Path(name, *follow), ask),
        Call::List { path: name } => {
            let dir = fs.open(path(name), OpenFlags::READ | OpenFlags::DIRECTORY, 0)?;
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

/// The calls that `seed` stands for, each with the number of the user who makes it.
pub fn generate(seed: u64, count: usize, users: usize) -> Vec<(usize, Call)> {
    let mut random = Random(StdRng::seed_from_u64(seed));
    (0..count).map(|_| (random.user(users), random.call())).collect()
}

pub(super) struct Random(pub(super) StdRng);

impl Random {
    /// User 0, who is root, makes two calls of five.
    fn user(&mut self, users: usize) -> usize {
        if self.0.random_ratio(2, 5) { 0 } else { self.0.random_range(0..users) }
    }

    fn call(&mut self) -> Call {
        let slot = self.0.random_range(0..SLOTS);
        match self.0.random_range(0..118) {
            0..18 => self.open(slot),
            18..21 => Call::Close { slot },
            21..24 => Call::Read { slot, length: self.0.random_range(0..9000), offset: self.offset() },
            24..30 => Call::Write { slot, data: self.data(), offset: self.offset() },
            30..32 => Call::Append { slot, data: self.data() },
            32 => Call::Fstat { slot },
            33..35 => Call::SetLen { slot, size: self.offset() },
            35 => Call::Fchmod { slot, mode: self.mode() },
            36 => Call::Futimens { slot, accessed: self.time(), modified: self.time() },
            37 => {
                Call::Seek { slot, offset: self.offset(), whence: self.one_of(&[Whence::Data, Whence::Hole]) }
            }
            38 => Call::ListHandle { slot },
            39..43 => Call::Stat { path: self.path() },
            43..46 => Call::Lstat { path: self.path() },
            46 => Call::Truncate { path: self.path(), size: self.offset() },
            47 => Call::TruncateToSame { path: self.path() },
            48..57 => Call::Mkdir { path: self.path(), mode: self.mode() },
            57..61 => Call::Rmdir { path: self.path() },
            61..65 => Call::Unlink { path: self.path() },
            65..74 => Call::Rename { from: self.path(), to: self.path(), mode: self.rename_mode() },
            74..78 => Call::Link { existing: self.path(), path: self.path() },
            78..83 => Call::Symlink { target: self.path(), path: self.path() },
            83 => Call::Readlink { path: self.path() },
            84..89 => Call::Chmod { path: self.path(), mode: self.mode() },
            89..91 => Call::Chown { path: self.path(), uid: self.id(), gid: self.id() },
            91 => Call::Lchown { path: self.path(), uid: self.id(), gid: self.id() },
            92..94 => Call::Utimens { path: self.path(), accessed: self.time(), modified: self.time() },
            94 => Call::Lutimens { path: self.path(), accessed: self.time(), modified: self.time() },
            95 => self.mknod(),
            96..98 => Call::Access { path: self.path(), access: Access::from_bits_truncate(self.0.random()) },
            98..100 => Call::List { path: self.path() },
            100..106 => {
                let mode = self.one_of(&FallocateMode::ALL);
                Call::Fallocate { slot, mode, offset: self.offset(), length: self.length() }
            }
            _ => self.xattr(slot),
        }
    }

    fn xattr(&mut self, slot: usize) -> Call {
        let (path, ask) = self.ask();
        if path.is_none() && self.0.random_ratio(1, 3) {
            return Call::Fxattr { slot, ask };
        }
        Call::Xattr { path: path.unwrap_or_else(|| self.path()), follow: self.0.random(), ask }
    }

    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices.choose(&mut self.0).expect("there are choices")
    }

    fn open(&mut self, slot: usize) -> Call {
        let access = [OpenFlags::READ, OpenFlags::WRITE, OpenFlags::READ | OpenFlags::WRITE];
        let mut flags = self.one_of(&access);
        for (flag, percent) in [
            (OpenFlags::CREATE, 60),
            (OpenFlags::EXCLUSIVE, 15),
            (OpenFlags::TRUNCATE, 15),
            (OpenFlags::APPEND, 15),
            (OpenFlags::DIRECTORY, 8),
            (OpenFlags::NOFOLLOW, 10),
        ] {
            flags.set(flag, self.0.random_ratio(percent, 100));
        }
        // Exclusive without creating is undefined.
        flags.set(OpenFlags::EXCLUSIVE, flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE));
        Call::Open { slot, path: self.path(), flags, mode: self.mode() }
    }

    fn mknod(&mut self) -> Call {
        let kinds =
            [Kind::File, Kind::Directory, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];
        let kind = self.one_of(&kinds);
        // Twelve bits of a major number and twenty of a minor, and what is more.
        let devices = [0, 0x103, 0x0801, 0xfff0_0fff, u32::MAX.into(), 1 << 32, (1 << 44) + 3, u64::MAX];
        Call::Mknod { path: self.path(), kind, mode: self.mode(), device: self.one_of(&devices) }
    }

    fn path(&mut self) -> Name {
        let mut path = Vec::new();
        match self.0.random_range(0..200) {
            0 => return path,
            1 => return b"/".to_vec(),
            2 => return vec![b'a'; self.one_of(&[255, 256])],
            3 => return b"a/".repeat(2048),
            4..100 => path.push(b'/'),
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
                _ => b"c",
            });
        }
        if self.0.random_ratio(1, 12) {
            path.extend(if self.0.random_ratio(1, 4) { &b"//"[..] } else { b"/" });
        }
        path
    }

    fn mode(&mut self) -> u16 {
        // Often open to all, or nothing happens under it any more.
        if self.0.random_ratio(1, 3) { 0o777 } else { self.one_of(MODES) }
    }

    fn rename_mode(&mut self) -> RenameMode {
        self.one_of(&[
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ])
    }

    fn id(&mut self) -> Option<u32> {
        self.one_of(&[None, None, Some(0), Some(1000), Some(1001), Some(2000)])
    }

    fn time(&mut self) -> SetTime {
        let seconds = self.0.random_range(-5..1_000_000);
        let set = SetTime::To(Time::new(seconds, self.0.random_range(0..1_000_000_000)));
        self.one_of(&[SetTime::Now, SetTime::Omit, set])
    }

    fn offset(&mut self) -> u64 {
        const END: u64 = i64::MAX as u64;
        match self.0.random_range(0..40) {
            0 => self.one_of(&[END, END - 1, END - 4096, END + 1, u64::MAX]),
            1..10 => 0,
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
