//! The calls of a comparison, and a function that makes them.

use std::num::NonZero;

use eyrie::posix::{Access, ListEntry, OpenFlags, Posix, SetTime, Whence};
use eyrie::{
    Errno, FallocateMode, FoundLock, InodeFlags, Kind, LockKind, LockWait, PosixLocks, RangeOwner,
    RenameMode, Target,
};

use super::values::{Answer, CallPath, ComparedStat, PathBytes, path};
use super::xattr::{self, XattrCall};

/// Maximum number of files that a run keeps open.
pub(super) const SLOTS: usize = 6;

/// One call. A slot has a number, and holds one open file or is empty. A call on an empty slot is skipped,
/// except `Open`. A path may begin at the open directory of a slot. With a `part`, a listing ends after that
/// number of entries, and further listings continue from the cookie of the last entry.
#[expect(missing_docs, reason = "they are the calls of `Posix` and their arguments")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PosixCall {
    Open { slot: usize, path: CallPath, flags: OpenFlags, mode: u16 },
    Close { slot: usize },
    Read { slot: usize, length: usize, offset: u64 },
    Write { slot: usize, data: Vec<u8>, offset: u64 },
    Append { slot: usize, data: Vec<u8> },
    AppendRange { slot: usize, data: Vec<u8> },
    Fstat { slot: usize },
    SetLen { slot: usize, size: u64 },
    Fallocate { slot: usize, mode: FallocateMode, offset: u64, length: u64 },
    Fchmod { slot: usize, mode: u16 },
    Fchown { slot: usize, uid: Option<u32>, gid: Option<u32> },
    Faccess { slot: usize, access: Access },
    Fsync { slot: usize },
    Fdatasync { slot: usize },
    Futimens { slot: usize, accessed: SetTime, modified: SetTime },
    Seek { slot: usize, offset: u64, whence: Whence },
    CopyRange { slot: usize, offset: u64, target: usize, target_offset: u64, length: u64 },
    ListHandle { slot: usize, part: Option<NonZero<usize>> },
    Stat { path: CallPath },
    Lstat { path: CallPath },
    Truncate { path: CallPath, size: u64 },
    TruncateToSame { path: CallPath },
    Mkdir { path: CallPath, mode: u16 },
    Rmdir { path: CallPath },
    Unlink { path: CallPath },
    Rename { from: CallPath, to: CallPath, mode: RenameMode },
    Link { existing: CallPath, follow: bool, path: CallPath },
    Flink { slot: usize, path: CallPath },
    Symlink { target: PathBytes, path: CallPath },
    Readlink { path: CallPath },
    Freadlink { slot: usize },
    Chmod { path: CallPath, mode: u16 },
    Chown { path: CallPath, uid: Option<u32>, gid: Option<u32> },
    Lchown { path: CallPath, uid: Option<u32>, gid: Option<u32> },
    Utimens { path: CallPath, accessed: SetTime, modified: SetTime },
    Lutimens { path: CallPath, accessed: SetTime, modified: SetTime },
    Mknod { path: CallPath, kind: Kind, mode: u16, device: u64 },
    Access { path: CallPath, access: Access },
    List { path: CallPath },
    Xattr { path: CallPath, follow: bool, call: XattrCall },
    Fxattr { slot: usize, call: XattrCall },
    InodeFlags { slot: usize },
    SetInodeFlags { slot: usize, flags: InodeFlags },
    Flock { slot: usize, kind: Option<LockKind> },
    LockRange { slot: usize, owner: RangeOwner, range: (u64, u64), kind: Option<LockKind> },
    FindLock { slot: usize, owner: RangeOwner, range: (u64, u64), kind: LockKind },
}

impl PosixCall {
    /// Returns the slot of a call on one open file. `None` for `Close`, and for all other calls.
    pub(super) fn slot(&self) -> Option<usize> {
        match self {
            PosixCall::Read { slot, .. }
            | PosixCall::Write { slot, .. }
            | PosixCall::Append { slot, .. }
            | PosixCall::AppendRange { slot, .. }
            | PosixCall::Fstat { slot }
            | PosixCall::SetLen { slot, .. }
            | PosixCall::Fallocate { slot, .. }
            | PosixCall::Fchmod { slot, .. }
            | PosixCall::Fchown { slot, .. }
            | PosixCall::Faccess { slot, .. }
            | PosixCall::Fsync { slot }
            | PosixCall::Fdatasync { slot }
            | PosixCall::Futimens { slot, .. }
            | PosixCall::Seek { slot, .. }
            | PosixCall::ListHandle { slot, .. }
            | PosixCall::Flink { slot, .. }
            | PosixCall::Freadlink { slot }
            | PosixCall::Fxattr { slot, .. }
            | PosixCall::InodeFlags { slot }
            | PosixCall::SetInodeFlags { slot, .. }
            | PosixCall::Flock { slot, .. }
            | PosixCall::LockRange { slot, .. }
            | PosixCall::FindLock { slot, .. } => Some(*slot),
            _ => None,
        }
    }
}

impl PosixCall {
    /// Returns the paths of a call. The first one leads to the object of the call.
    pub(super) fn paths(&self) -> Vec<&CallPath> {
        match self {
            PosixCall::Open { path, .. }
            | PosixCall::Stat { path }
            | PosixCall::Lstat { path }
            | PosixCall::Truncate { path, .. }
            | PosixCall::TruncateToSame { path }
            | PosixCall::Mkdir { path, .. }
            | PosixCall::Rmdir { path }
            | PosixCall::Unlink { path }
            | PosixCall::Flink { path, .. }
            | PosixCall::Symlink { path, .. }
            | PosixCall::Readlink { path }
            | PosixCall::Chmod { path, .. }
            | PosixCall::Chown { path, .. }
            | PosixCall::Lchown { path, .. }
            | PosixCall::Utimens { path, .. }
            | PosixCall::Lutimens { path, .. }
            | PosixCall::Mknod { path, .. }
            | PosixCall::Access { path, .. }
            | PosixCall::List { path }
            | PosixCall::Xattr { path, .. } => vec![path],
            PosixCall::Rename { from: first, to: second, .. }
            | PosixCall::Link { existing: first, path: second, .. } => vec![first, second],
            _ => Vec::new(),
        }
    }
}

/// The open files of a run.
pub(super) type Slots<P> = [Option<<P as Posix>::Handle>; SLOTS];

/// Makes a call.
pub(super) fn perform<P: PosixLocks>(
    fs: &P,
    slots: &mut Slots<P>,
    call: &PosixCall,
) -> Result<Answer, Errno> {
    let result = match call {
        PosixCall::Open { slot, path: name, flags, mode } => {
            // The path may begin at the old file of the slot.
            let opened = fs.open(name.at(slots), *flags, *mode);
            if let Some(old) = slots[*slot].take() {
                fs.close(old).map_err(|error| error.errno())?;
            }
            opened.map(|handle| {
                slots[*slot] = Some(handle);
                Answer::Done
            })
        }
        PosixCall::Close { slot } => match slots[*slot].take() {
            Some(handle) => fs.close(handle).map(|()| Answer::Done),
            None => Ok(Answer::Skipped),
        },
        _ => match call.slot().map(|slot| &slots[slot]) {
            Some(Some(handle)) => on_handle(fs, slots, handle, call),
            Some(None) => Ok(Answer::Skipped),
            None => match call {
                PosixCall::CopyRange { slot, offset, target, target_offset, length } => {
                    let (Some(from), Some(to)) = (&slots[*slot], &slots[*target]) else {
                        return Ok(Answer::Skipped);
                    };
                    copy_range(fs, (from, *offset), (to, *target_offset), *length)
                }
                _ => on_path(fs, slots, call),
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

fn on_handle<P: PosixLocks>(
    fs: &P,
    slots: &Slots<P>,
    handle: &P::Handle,
    call: &PosixCall,
) -> eyrie::Result<Answer> {
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
        // The position of an empty range means nothing.
        PosixCall::AppendRange { data, .. } => fs
            .append_range(handle, data)
            .map(|range| Answer::Range(if range.is_empty() { 0..0 } else { range })),
        PosixCall::Fstat { .. } => {
            fs.stat(Target::Open(handle)).map(|stat| Answer::Stat(ComparedStat::from(&stat)))
        }
        PosixCall::SetLen { size, .. } => fs.truncate(Target::Open(handle), *size).map(done),
        PosixCall::Fallocate { mode, offset, length, .. } => {
            fs.fallocate(handle, *mode, *offset, *length).map(done)
        }
        PosixCall::Fchmod { mode, .. } => fs.chmod(Target::Open(handle), *mode).map(done),
        PosixCall::Fchown { uid, gid, .. } => fs.chown(Target::Open(handle), *uid, *gid).map(done),
        PosixCall::Faccess { access, .. } => fs.access(Target::Open(handle), *access).map(done),
        PosixCall::Fsync { .. } => fs.fsync(handle).map(done),
        PosixCall::Fdatasync { .. } => fs.fdatasync(handle).map(done),
        PosixCall::Futimens { accessed, modified, .. } => {
            fs.utimens(Target::Open(handle), *accessed, *modified).map(done)
        }
        PosixCall::Seek { offset, whence, .. } => fs.seek(handle, *offset, *whence).map(Answer::Count),
        PosixCall::ListHandle { part, .. } => list(fs, handle, *part),
        PosixCall::Flink { path: name, .. } => fs.link(Target::Open(handle), name.at(slots)).map(done),
        PosixCall::Freadlink { .. } => fs.readlink(Target::Open(handle)).map(Answer::Bytes),
        PosixCall::Fxattr { call, .. } => xattr::perform_xattr(fs, Target::Open(handle), call),
        PosixCall::InodeFlags { .. } => {
            fs.inode_flags(handle).map(|flags| Answer::Count(flags.bits().into()))
        }
        PosixCall::SetInodeFlags { flags, .. } => fs.set_inode_flags(handle, *flags).map(done),
        PosixCall::Flock { kind, .. } => fs.flock(handle, *kind, LockWait::NO).map(done),
        PosixCall::LockRange { owner, range, kind, .. } => {
            fs.set_range_lock(handle, *owner, *range, *kind, LockWait::NO).map(done)
        }
        PosixCall::FindLock { owner, range, kind, .. } => {
            fs.find_range_lock(handle, *owner, *range, *kind).map(|found| {
                let shown =
                    |found: FoundLock| (found.kind, found.start, found.length, found.process.is_some());
                Answer::Lock(found.map(shown))
            })
        }
        _ => Ok(Answer::Skipped),
    }
}

fn on_path<P: Posix>(fs: &P, slots: &Slots<P>, call: &PosixCall) -> eyrie::Result<Answer> {
    let done = |()| Answer::Done;
    match call {
        PosixCall::Stat { path: name } => {
            fs.stat(target(slots, name, true)).map(|stat| Answer::Stat(ComparedStat::from(&stat)))
        }
        PosixCall::Lstat { path: name } => {
            fs.stat(target(slots, name, false)).map(|stat| Answer::Stat(ComparedStat::from(&stat)))
        }
        PosixCall::Truncate { path: name, size } => fs.truncate(target(slots, name, true), *size).map(done),
        PosixCall::TruncateToSame { path: name } => {
            let size = fs.stat(target(slots, name, true))?.size;
            fs.truncate(target(slots, name, true), size).map(done)
        }
        PosixCall::Mkdir { path: name, mode } => fs.mkdir(name.at(slots), *mode).map(done),
        PosixCall::Rmdir { path: name } => fs.rmdir(name.at(slots)).map(done),
        PosixCall::Unlink { path: name } => fs.unlink(name.at(slots)).map(done),
        PosixCall::Rename { from, to, mode } => fs.rename_with(from.at(slots), to.at(slots), *mode).map(done),
        PosixCall::Link { existing, follow, path: name } => {
            fs.link(target(slots, existing, *follow), name.at(slots)).map(done)
        }
        PosixCall::Symlink { target, path: name } => fs.symlink(path(target), name.at(slots)).map(done),
        PosixCall::Readlink { path: name } => {
            fs.readlink(Target::NoFollow(name.at(slots))).map(Answer::Bytes)
        }
        PosixCall::Chmod { path: name, mode } => fs.chmod(target(slots, name, true), *mode).map(done),
        PosixCall::Chown { path: name, uid, gid } => {
            fs.chown(target(slots, name, true), *uid, *gid).map(done)
        }
        PosixCall::Lchown { path: name, uid, gid } => {
            fs.chown(target(slots, name, false), *uid, *gid).map(done)
        }
        PosixCall::Utimens { path: name, accessed, modified } => {
            fs.utimens(target(slots, name, true), *accessed, *modified).map(done)
        }
        PosixCall::Lutimens { path: name, accessed, modified } => {
            fs.utimens(target(slots, name, false), *accessed, *modified).map(done)
        }
        PosixCall::Mknod { path: name, kind, mode, device } => {
            fs.mknod(name.at(slots), *kind, *mode, *device).map(done)
        }
        PosixCall::Access { path: name, access } => fs.access(target(slots, name, true), *access).map(done),
        PosixCall::Xattr { path: name, follow, call } => {
            xattr::perform_xattr(fs, target(slots, name, *follow), call)
        }
        PosixCall::List { path: name } => {
            let dir = fs.open(name.at(slots), OpenFlags::READ | OpenFlags::DIRECTORY, 0)?;
            let names = list(fs, &dir, None);
            fs.close(dir)?;
            names
        }
        _ => Ok(Answer::Skipped),
    }
}

/// Returns the file that a path leads to as the target of a call.
fn target<'a, H>(slots: &'a [Option<H>], path: &'a CallPath, follow: bool) -> Target<'a, H> {
    if follow { Target::Follow(path.at(slots)) } else { Target::NoFollow(path.at(slots)) }
}

fn list<P: Posix>(fs: &P, dir: &P::Handle, part: Option<NonZero<usize>>) -> eyrie::Result<Answer> {
    let part = part.map_or(usize::MAX, NonZero::get);
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let before = names.len();
        fs.list(dir, cookie, &mut |ListEntry { name, kind, next, .. }| {
            names.push((name.to_vec(), kind));
            cookie = next;
            names.len() - before < part
        })?;
        if names.len() - before < part {
            names.sort();
            return Ok(Answer::Names(names));
        }
    }
}
