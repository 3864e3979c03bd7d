//! Opening, and what is done with open files.

use eyrie_engine::access::{self, Rights};
use eyrie_engine::{Content, Engine, FallocateMode, Kind, ObjectId, Op, SetIds};
use rustix::io::Errno;

use super::walk::{Last, Parent, Walk};
use super::{Failure, Pxfs, Step};
use crate::names;
use crate::posix::{ListEntry, OpenFlags, Whence};

/// Offsets and sizes are at most this.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// Bytes that one Op gives storage to, at most: on a disk others wait while their pages are noted.
const ALLOCATED_AT_ONCE: u64 = 64 << 20;

/// An open file or directory of a [`Pxfs`]: an object and the rights that it was opened with, which outlive later
/// changes of its mode. Closed only by [`Posix::close`](crate::posix::Posix::close).
#[derive(Debug)]
#[must_use = "a handle keeps its file until it is closed"]
pub struct Handle {
    id: ObjectId,
    flags: OpenFlags,
}

impl Handle {
    /// The object that is open.
    pub fn id(&self) -> ObjectId {
        self.id
    }
}

impl<E: Engine> Pxfs<E> {
    pub(super) fn open_path(&self, path: &[u8], flags: OpenFlags, mode: u16) -> Step<Handle> {
        let directory_too = OpenFlags::CREATE | OpenFlags::DIRECTORY;
        if !flags.intersects(OpenFlags::READ | OpenFlags::WRITE) || flags.contains(directory_too) {
            return Err(Errno::INVAL.into());
        }
        let create = flags.contains(OpenFlags::CREATE);
        if !create
            && !flags.contains(OpenFlags::DIRECTORY)
            && let Some(id) = self.resolve_quickly(path)?
        {
            return self.open_object(id, flags);
        }
        let exclusive = create && flags.contains(OpenFlags::EXCLUSIVE);
        let follow = !exclusive && !flags.contains(OpenFlags::NOFOLLOW);
        let mut walk = Walk::new(self, path)?;
        let mut parent = walk.parent()?;
        let id = loop {
            if create && parent.slash && parent.last == Last::Name {
                return Err(Errno::ISDIR.into());
            }
            let id = match walk.target(&parent) {
                Err(Failure::Errno(Errno::NOENT)) if create => {
                    return self.create_and_open(&walk, &parent, flags, mode);
                }
                found => found?,
            };
            if id.kind() != Kind::Symlink || !(follow || parent.slash) {
                break id;
            }
            parent = walk.follow(&parent, id)?;
        };
        if exclusive {
            return Err(Errno::EXIST.into());
        }
        if create && id.is_directory() {
            return Err(Errno::ISDIR.into());
        }
        let dir = &parent.dir.protection;
        if create && access::guards_opens(self.rules, dir, id.kind()) {
            access::check_open_for_create(self.rules, &self.credentials, dir, &self.protection(id)?)?;
        }
        if (parent.slash || flags.contains(OpenFlags::DIRECTORY)) && !id.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        if create {
            // Another thread's call may be about to make it.
            self.engine.wait_for(id)?;
        }
        self.open_object(id, flags)
    }

    fn create_and_open(
        &self,
        walk: &Walk<'_, '_, E>,
        parent: &Parent,
        flags: OpenFlags,
        mode: u16,
    ) -> Step<Handle> {
        let name = walk.new_name(parent)?;
        access::check_add(&self.credentials, &parent.dir.protection)?;
        let id = match self.create(&parent.dir, name, Kind::File, mode, Content::Empty) {
            // Somebody else made it since it was looked up: that one is opened, unless it had to be new.
            Err(Failure::Engine(eyrie_engine::Error::Exists)) if !flags.contains(OpenFlags::EXCLUSIVE) => {
                return Err(Failure::Again);
            }
            created => created?,
        };
        self.engine.open(id)?;
        Ok(Handle { id, flags })
    }

    fn open_object(&self, id: ObjectId, flags: OpenFlags) -> Step<Handle> {
        let mut rights = Rights::empty();
        rights.set(Rights::READ, flags.contains(OpenFlags::READ));
        rights.set(Rights::WRITE, flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE));
        match id.kind() {
            Kind::Symlink => return Err(Errno::LOOP.into()),
            Kind::Directory if rights.contains(Rights::WRITE) => return Err(Errno::ISDIR.into()),
            _ => {}
        }
        if !access::passes_everywhere(&self.credentials) {
            access::check(&self.credentials, &self.protection(id)?, rights)?;
        }
        if !matches!(id.kind(), Kind::File | Kind::Directory) {
            return Err(Errno::NXIO.into());
        }
        self.engine.open(id)?;
        let handle = Handle { id, flags };
        if flags.contains(OpenFlags::TRUNCATE)
            && let Err(failure) = self.cut(id, 0)
        {
            self.engine.close(id);
            return Err(failure);
        }
        Ok(handle)
    }

    pub(super) fn close_handle(&self, handle: &Handle) {
        self.engine.close(handle.id);
    }

    #[inline]
    pub(super) fn read_handle(&self, handle: &Handle, out: &mut [u8], offset: u64) -> Step<usize> {
        check_range(offset, 0)?;
        if !handle.flags.contains(OpenFlags::READ) {
            return Err(Errno::BADF.into());
        }
        check_range(offset, out.len())?;
        Ok(self.engine.read(handle.id, offset, out)?)
    }

    #[inline]
    pub(super) fn write_handle(&self, handle: &Handle, data: &[u8], offset: u64) -> Step<usize> {
        check_range(offset, 0)?;
        if !handle.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::BADF.into());
        }
        check_range(offset, data.len())?;
        if handle.flags.contains(OpenFlags::APPEND) {
            return self.append_handle(handle, data);
        }
        if !data.is_empty() {
            let (id, set_ids) = (handle.id, self.dropped_set_ids(handle.id)?);
            self.engine.apply(&Op::Write { id, offset, data, set_ids, time: self.now([id]) })?;
        }
        Ok(data.len())
    }

    #[inline]
    pub(super) fn append_handle(&self, handle: &Handle, data: &[u8]) -> Step<usize> {
        if !handle.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::BADF.into());
        }
        if data.is_empty() {
            return Ok(0);
        }
        let (id, set_ids) = (handle.id, self.dropped_set_ids(handle.id)?);
        match self.engine.apply(&Op::Append { id, data, set_ids, time: self.now([id]) }) {
            Ok(_) => Ok(data.len()),
            Err(eyrie_engine::Error::TooLarge) => self.append_what_fits(id, data, set_ids),
            Err(error) => Err(error.into()),
        }
    }

    /// At the largest size the kernel appends what still fits.
    #[cold]
    fn append_what_fits(&self, id: ObjectId, data: &[u8], set_ids: SetIds) -> Step<usize> {
        let room = OFFSET_MAX.saturating_sub(self.engine.attributes(id)?.size) as usize;
        match data.get(..room) {
            Some(fitting) if !fitting.is_empty() => {
                self.engine.apply(&Op::Append { id, data: fitting, set_ids, time: self.now([id]) })?;
                Ok(room)
            }
            _ => Err(Errno::FBIG.into()),
        }
    }

    pub(super) fn set_handle_size(&self, handle: &Handle, size: u64) -> Step<()> {
        if size > OFFSET_MAX || handle.id.kind() != Kind::File || !handle.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::INVAL.into());
        }
        self.cut(handle.id, size)
    }

    /// Handles for writing are of regular files: Linux's other errors have no cause here.
    pub(super) fn fallocate_handle(
        &self,
        handle: &Handle,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Step<()> {
        if offset > OFFSET_MAX || length == 0 || length > OFFSET_MAX {
            return Err(Errno::INVAL.into());
        }
        if !handle.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::BADF.into());
        }
        if length > OFFSET_MAX - offset {
            return Err(Errno::FBIG.into());
        }
        let (id, set_ids) = (handle.id, self.dropped_set_ids(handle.id)?);
        let step = match mode {
            FallocateMode::CollapseRange | FallocateMode::InsertRange | FallocateMode::PunchHole => length,
            _ => ALLOCATED_AT_ONCE,
        };
        // What certainly does not fit changes nothing.
        if length > step && length > self.engine.space().free + self.engine.attributes(id)?.allocated {
            return Err(Errno::NOSPC.into());
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let length = (end - at).min(step);
            self.engine.apply(&Op::Fallocate {
                id,
                mode,
                offset: at,
                length,
                set_ids,
                time: self.now([id]),
            })?;
            at += length;
        }
        Ok(())
    }

    pub(super) fn truncate_path(&self, path: &[u8], size: u64) -> Step<()> {
        if size > OFFSET_MAX {
            return Err(Errno::INVAL.into());
        }
        let id = Walk::new(self, path)?.resolve(true)?;
        match id.kind() {
            Kind::File => {}
            Kind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        let attributes = self.engine.attributes(id)?;
        access::check(&self.credentials, &(&attributes).into(), Rights::WRITE)?;
        if attributes.size == size && self.engine.seek(id, 0, false)?.is_none() {
            // Unlike `ftruncate`, this leaves the times of a file without data alone, as on a tmpfs. The size may be another call's that has not returned.
            self.engine.wait_for(id)?;
            return self.take_set_ids(id, attributes.changed);
        }
        self.cut(id, size)
    }

    pub(super) fn seek_handle(&self, handle: &Handle, offset: u64, whence: Whence) -> Step<u64> {
        if handle.id.is_directory() {
            return Err(Errno::INVAL.into());
        }
        if offset > OFFSET_MAX || offset >= self.engine.attributes(handle.id)?.size {
            return Err(Errno::NXIO.into());
        }
        let found = self.engine.seek(handle.id, offset, whence == Whence::Hole)?;
        found.ok_or(Errno::NXIO.into())
    }

    pub(super) fn list_handle(
        &self,
        handle: &Handle,
        cookie: u64,
        visit: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Step<()> {
        if !handle.id.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        if self.engine.is_removed(handle.id)? {
            return Err(Errno::NOENT.into());
        }
        Ok(self.engine.list(handle.id, cookie, &mut |entry| {
            visit(ListEntry {
                name: &names::encode(entry.name),
                kind: entry.id.kind(),
                inode: entry.id.raw(),
                next: entry.next,
            })
        })?)
    }

    fn cut(&self, id: ObjectId, size: u64) -> Step<()> {
        let set_ids = self.dropped_set_ids(id)?;
        self.engine.apply(&Op::SetSize { id, size, set_ids, time: self.now([id]) })?;
        Ok(())
    }
}

/// Whether `length` bytes from `offset` on are within what offsets can say.
#[inline]
fn check_range(offset: u64, length: usize) -> Result<(), Errno> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= OFFSET_MAX => Ok(()),
        _ => Err(Errno::INVAL),
    }
}
