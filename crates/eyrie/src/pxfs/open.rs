//! Opening files, and the calls on open files.

use std::ops::Range;

use eyrie_engine::access::{self, Rights};
use eyrie_engine::{
    Applied, Content, Engine, InodeFlags, Kind, ListedEntry, ObjectId, Op, SetIds, with_reserved,
};

use super::path::{Last, Parent, PathWalk};
use super::{AsUser, CallError, CallResult, Handle};
use crate::posix::{ListEntry, OpenFlags, PathAt, Whence};
use crate::{Errno, kept, names};

/// The largest offset, and the largest size of a file.
pub(super) const OFFSET_MAX: u64 = i64::MAX as u64;
/// Flags with which an open does not try [`AsUser::resolve_quickly`] first.
const SLOWLY_OPENED: OpenFlags =
    OpenFlags::CREATE.union(OpenFlags::DIRECTORY).union(OpenFlags::TEMPORARY).union(OpenFlags::PATH);
/// Flags of a handle whose writes do more than store bytes at an offset.
const SPECIAL_WRITES: OpenFlags = OpenFlags::APPEND.union(SYNCHRONOUS);
/// Flags of a handle whose writes are durable before they return.
const SYNCHRONOUS: OpenFlags = OpenFlags::SYNC.union(OpenFlags::DATA_SYNC);

/// The file that an earlier attempt of one call has made. If the service ends between the creation and the
/// open, the call begins again in the next session, and finds its own file. The call must then open this
/// file, even with `EXCLUSIVE`, and whatever the permission bits of the file are.
#[derive(Default)]
pub(super) struct MadeFile(Option<CreatedFile>);

struct CreatedFile {
    id: ObjectId,
    generation: u64,
    session: u64,
}

impl MadeFile {
    /// Returns true if `id` is this file, and the call goes on in another session. In that session the id may
    /// also name a file that another client has made after this file was lost or removed. So this function
    /// compares the generations.
    fn is(&self, id: ObjectId, engine: &impl Engine) -> bool {
        self.0.as_ref().is_some_and(|made| {
            made.id == id
                && made.session != engine.session()
                && engine.generation(id).is_ok_and(|generation| generation == made.generation)
        })
    }
}

impl<E: Engine> AsUser<'_, E> {
    pub(super) fn open_path(
        &self,
        path: PathAt<'_, Handle>,
        flags: OpenFlags,
        mode: u16,
        made: &mut MadeFile,
    ) -> CallResult<Handle> {
        let has_access = flags.intersects(OpenFlags::READ | OpenFlags::WRITE);
        if has_access
            && !flags.intersects(SLOWLY_OPENED)
            && let Some(id) = self.resolve_quickly(path)?
        {
            return self.open_object(id, flags);
        }
        if flags.contains(OpenFlags::PATH) {
            self.open_without_access(path, flags)
        } else if !has_access || flags.contains(OpenFlags::CREATE | OpenFlags::DIRECTORY) {
            // Linux also refuses `CREATE` together with `DIRECTORY`.
            Err(Errno::INVAL.into())
        } else if flags.contains(OpenFlags::TEMPORARY) {
            self.open_temporary(path, flags, mode)
        } else if flags.contains(OpenFlags::CREATE) {
            self.open_or_create(PathWalk::new(*self, path)?, flags, mode, made)
        } else {
            self.open_existing(path, flags)
        }
    }

    /// Opens with [`OpenFlags::PATH`].
    #[cold]
    fn open_without_access(&self, path: PathAt<'_, Handle>, flags: OpenFlags) -> CallResult<Handle> {
        let id = PathWalk::new(*self, path)?.resolve(!flags.contains(OpenFlags::NOFOLLOW))?;
        // `O_TMPFILE` has the bit of `O_DIRECTORY`.
        if flags.intersects(OpenFlags::DIRECTORY | OpenFlags::TEMPORARY) && !id.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.open_id(id, OpenFlags::PATH)
    }

    fn open_existing(&self, path: PathAt<'_, Handle>, flags: OpenFlags) -> CallResult<Handle> {
        let id = PathWalk::new(*self, path)?.resolve(!flags.contains(OpenFlags::NOFOLLOW))?;
        if flags.contains(OpenFlags::DIRECTORY) && !id.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.open_object(id, flags)
    }

    /// Makes a file without a name, and opens it. The checks come in the order of Linux.
    #[cold]
    fn open_temporary(&self, path: PathAt<'_, Handle>, flags: OpenFlags, mode: u16) -> CallResult<Handle> {
        if flags.contains(OpenFlags::CREATE) || !flags.contains(OpenFlags::WRITE) {
            return Err(Errno::INVAL.into());
        }
        let dir = PathWalk::new(*self, path)?.resolve(!flags.contains(OpenFlags::NOFOLLOW))?;
        if !dir.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.check_writable(dir, Rights::WRITE)?;
        let protection = self.protection(dir)?;
        access::check_add(self.credentials(), &protection)?;
        let owner = access::owner_of_new(self.credentials(), &protection, Kind::File, mode);
        let linkable = !flags.contains(OpenFlags::EXCLUSIVE);
        let id = with_reserved(self.engine(), Kind::File, |id| {
            let time = self.now([dir]);
            self.apply(&Op::CreateUnnamed { dir, id, owner, linkable, time })?;
            Ok(id)
        })?;
        // The file has no name and is not open yet, so a close of another file may free it meanwhile. The
        // call then begins again.
        self.open_id(id, flags)
    }

    /// Opens with [`OpenFlags::CREATE`]. Symbolic links are followed one by one, because a link may lead to a
    /// missing file, which is then made.
    pub(super) fn open_or_create(
        &self,
        mut walk: PathWalk<'_, '_, E>,
        flags: OpenFlags,
        mode: u16,
        made: &mut MadeFile,
    ) -> CallResult<Handle> {
        let exclusive = flags.contains(OpenFlags::EXCLUSIVE);
        let follow = !exclusive && !flags.contains(OpenFlags::NOFOLLOW);
        let mut parent = walk.parent()?;
        if exclusive && self.may_create_unseen(&parent) {
            let id = self.create_unseen(&walk, &parent, mode)?;
            return self.open_id(id, flags);
        }
        let id = loop {
            if parent.has_trailing_slash && parent.last == Last::Name {
                return Err(Errno::ISDIR.into());
            }
            let id = match walk.object(&parent) {
                Err(CallError::Errno(Errno::NOENT)) => {
                    return self.create_and_open(&walk, &parent, flags, mode, made);
                }
                target => target?,
            };
            if id.kind() != Kind::Symlink || !follow {
                break id;
            }
            parent = walk.follow(&parent, id)?;
        };
        if made.is(id, self.engine()) {
            return self.open_id(id, flags);
        }
        if exclusive {
            return Err(Errno::EXIST.into());
        }
        if id.is_directory() {
            return Err(Errno::ISDIR.into());
        }
        let dir = &parent.dir.protection;
        if access::guards_opens(self.rules(), dir, id.kind()) {
            access::check_open_for_create(self.rules(), self.credentials(), dir, &self.protection(id)?)?;
        }
        // Another thread may have just made the file, and that change may not be durable yet.
        self.engine().wait_for(id)?;
        self.open_object(id, flags)
    }

    fn create_and_open(
        &self,
        walk: &PathWalk<'_, '_, E>,
        parent: &Parent,
        flags: OpenFlags,
        mode: u16,
        made: &mut MadeFile,
    ) -> CallResult<Handle> {
        let name = walk.new_name(parent)?;
        self.check_new_entry(&parent.dir)?;
        let session = self.engine().session();
        let (id, generation) = match self.create(&parent.dir, name, Kind::File, mode, Content::Empty) {
            // Another thread made the file since the look-up. The call begins again and opens that file. With
            // `EXCLUSIVE` the call fails.
            Err(CallError::Engine(eyrie_engine::Error::Exists)) if !flags.contains(OpenFlags::EXCLUSIVE) => {
                return Err(CallError::Again);
            }
            created => created?,
        };
        *made = MadeFile(Some(CreatedFile { id, generation, session }));
        self.open_id(id, flags)
    }

    pub(super) fn open_object(&self, id: ObjectId, flags: OpenFlags) -> CallResult<Handle> {
        let mut rights = Rights::empty();
        rights.set(Rights::READ, flags.contains(OpenFlags::READ));
        rights.set(Rights::WRITE, flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE));
        match id.kind() {
            Kind::Symlink => return Err(Errno::LOOP.into()),
            Kind::Directory if rights.contains(Rights::WRITE) => return Err(Errno::ISDIR.into()),
            _ => {}
        }
        self.check_writable(id, rights)?;
        if rights.contains(Rights::WRITE) && self.engine().may_have_flags() {
            self.check_open_of_flagged(id, flags, rights)?;
        } else if !access::passes_everywhere(self.credentials()) {
            access::check(self.credentials(), &self.protection(id)?, rights)?;
        }
        if flags.contains(OpenFlags::NOATIME) {
            access::check_noatime(self.credentials(), &self.protection(id)?)?;
        }
        match id.kind() {
            Kind::File => {}
            // tmpfs refuses this open, too, because there only files have direct input and output.
            Kind::Directory if flags.contains(OpenFlags::DIRECT) => return Err(Errno::INVAL.into()),
            Kind::Directory => {}
            _ => return Err(Errno::NXIO.into()),
        }
        let handle = self.open_id(id, flags)?;
        if flags.contains(OpenFlags::TRUNCATE)
            && let Err(error) = self.set_size(id, 0)
        {
            self.engine().close(id);
            return Err(error);
        }
        Ok(handle)
    }

    /// Checks the rights and the inode flags of an object that is opened for writing.
    #[cold]
    fn check_open_of_flagged(&self, id: ObjectId, flags: OpenFlags, rights: Rights) -> CallResult<()> {
        let object = self.protection(id)?;
        access::check(self.credentials(), &object, rights)?;
        let (appends, truncates) = (OpenFlags::APPEND, OpenFlags::TRUNCATE);
        Ok(access::check_open_flags(&object, flags.contains(appends), flags.contains(truncates))?)
    }

    /// Refuses to write to the object if the volume was opened read-only. As on Linux, pipes, sockets and
    /// devices can be written all the same, because their data are not in the volume.
    #[inline]
    pub(super) fn check_writable(&self, id: ObjectId, rights: Rights) -> CallResult<()> {
        if rights.contains(Rights::WRITE)
            && self.engine().is_read_only()
            && matches!(id.kind(), Kind::File | Kind::Directory | Kind::Symlink)
        {
            return Err(eyrie_engine::Error::OpenedReadOnly.into());
        }
        Ok(())
    }

    pub(super) fn close_handle(&self, handle: &Handle) -> CallResult<()> {
        self.check_engine(handle)?;
        // As on Linux, a handle without rights ends no locks.
        if self.engine().may_have_locks() && !handle.flags.contains(OpenFlags::PATH) {
            self.end_locks(handle);
        }
        self.engine().close(handle.id());
        Ok(())
    }

    #[inline]
    pub(super) fn read_handle(&self, handle: &Handle, out: &mut [u8], offset: u64) -> CallResult<usize> {
        // Linux checks the offset, then the handle, then the length, and returns the first error.
        let id = self.readable(handle, offset)?;
        check_range(offset, out.len())?;
        let count = self.engine().read(id, offset, out)?;
        self.note_read(id, handle.flags);
        Ok(count)
    }

    /// Returns the object of a handle that was opened for reading. Refuses an impossible offset first.
    #[inline]
    pub(super) fn readable(&self, handle: &Handle, offset: u64) -> CallResult<ObjectId> {
        check_range(offset, 0)?;
        let id = self.opened(handle)?;
        if handle.flags.contains(OpenFlags::READ) { Ok(id) } else { Err(Errno::BADF.into()) }
    }

    /// Returns the object of a handle that was opened for writing.
    #[inline]
    pub(super) fn writable(&self, handle: &Handle) -> CallResult<ObjectId> {
        let id = self.opened(handle)?;
        if handle.flags.contains(OpenFlags::WRITE) { Ok(id) } else { Err(Errno::BADF.into()) }
    }

    #[inline]
    pub(super) fn write_handle(&self, handle: &Handle, data: &[u8], offset: u64) -> CallResult<usize> {
        check_range(offset, 0)?;
        let id = self.writable(handle)?;
        check_range(offset, data.len())?;
        let data = self.writable_at_once(data);
        if handle.flags.intersects(SPECIAL_WRITES) {
            return self.write_special(handle.flags, id, data, offset);
        }
        self.write_object(id, data, offset)?;
        Ok(data.len())
    }

    /// Writes through a handle for appends or for durable writes.
    #[inline(never)]
    fn write_special(&self, flags: OpenFlags, id: ObjectId, data: &[u8], offset: u64) -> CallResult<usize> {
        if flags.contains(OpenFlags::APPEND) {
            return self.append_to(id, flags, data).map(|written| (written.end - written.start) as usize);
        }
        self.write_object(id, data, offset)?;
        if !data.is_empty() {
            self.sync_write()?;
        }
        Ok(data.len())
    }

    /// Makes a change through a handle durable, if the handle was opened for durable writes.
    pub(super) fn sync_if(&self, flags: OpenFlags) -> CallResult<()> {
        if flags.intersects(SYNCHRONOUS) { self.sync_write() } else { Ok(()) }
    }

    /// Makes the write that this thread has just made durable. After an error the call does not begin again,
    /// because the bytes are written.
    #[cold]
    fn sync_write(&self) -> CallResult<()> {
        self.engine().sync().map_err(CallError::Final)
    }

    /// Writes bytes to a file, without a permission check.
    #[inline]
    pub(super) fn write_object(&self, id: ObjectId, data: &[u8], offset: u64) -> CallResult<()> {
        check_range(offset, data.len())?;
        if !data.is_empty() {
            let set_ids = self.dropped_set_ids(id)?;
            self.apply(&Op::Write { id, offset, data, set_ids, time: self.now([id]) })?;
        }
        Ok(())
    }

    /// Writes bytes for a caller that has checked the rights at an open, but not the inode flags. Returns the
    /// number of written bytes.
    pub(super) fn write_node(&self, id: ObjectId, data: &[u8], offset: u64) -> CallResult<usize> {
        let may_have_flags = self.engine().may_have_flags();
        let flags = if may_have_flags { self.engine().inode_flags(id)? } else { InodeFlags::empty() };
        if flags.is_empty() {
            check_range(offset, data.len())?;
            let data = self.writable_at_once(data);
            self.write_object(id, data, offset)?;
            return Ok(data.len());
        }
        access::check_write(flags, self.engine().attributes(id)?.size == offset)?;
        // The file may have grown since its size was read. An append does not overwrite its new bytes.
        self.append_object(id, data).map(|written| (written.end - written.start) as usize)
    }

    /// Appends bytes for a caller that has checked the rights at an open, but not the inode flags.
    pub(super) fn append_node(&self, id: ObjectId, data: &[u8]) -> CallResult<Range<u64>> {
        if self.engine().may_have_flags() {
            access::check_write(self.engine().inode_flags(id)?, true)?;
        }
        self.append_object(id, data)
    }

    /// Appends bytes. Returns the range of the file that has them.
    #[inline]
    pub(super) fn append_handle(&self, handle: &Handle, data: &[u8]) -> CallResult<Range<u64>> {
        self.append_to(self.writable(handle)?, handle.flags, data)
    }

    /// Returns the part of the bytes that one Op can write. As on Linux, which has a limit of 2 GiB, the call
    /// then writes only this part.
    #[inline]
    fn writable_at_once<'d>(&self, data: &'d [u8]) -> &'d [u8] {
        &data[..data.len().min(self.engine().write_max())]
    }

    /// Appends bytes to the file of a handle with these flags.
    #[inline]
    fn append_to(&self, id: ObjectId, flags: OpenFlags, data: &[u8]) -> CallResult<Range<u64>> {
        let written = self.append_object(id, data)?;
        if flags.intersects(SYNCHRONOUS) && !data.is_empty() {
            self.sync_write()?;
        }
        Ok(written)
    }

    /// Appends the bytes that one Op can write to a file, without a permission check.
    #[inline]
    pub(super) fn append_object(&self, id: ObjectId, data: &[u8]) -> CallResult<Range<u64>> {
        if data.is_empty() {
            return Ok(0..0);
        }
        let data = self.writable_at_once(data);
        let set_ids = self.dropped_set_ids(id)?;
        match self.apply(&Op::Append { id, data, set_ids, time: self.now([id]) }) {
            Ok(Applied { offset, .. }) => Ok(offset..offset + data.len() as u64),
            Err(eyrie_engine::Error::TooLarge) => self.append_what_fits(id, data, set_ids),
            Err(error) => Err(error.into()),
        }
    }

    /// Appends the bytes that fit below the largest size, as the kernel does. Another thread may change the
    /// size of the file meanwhile.
    #[cold]
    fn append_what_fits(&self, id: ObjectId, data: &[u8], set_ids: SetIds) -> CallResult<Range<u64>> {
        loop {
            let room = OFFSET_MAX.saturating_sub(self.engine().attributes(id)?.size) as usize;
            let fitting = &data[..data.len().min(room)];
            if fitting.is_empty() {
                return Err(Errno::FBIG.into());
            }
            match self.apply(&Op::Append { id, data: fitting, set_ids, time: self.now([id]) }) {
                Ok(Applied { offset, .. }) => return Ok(offset..offset + fitting.len() as u64),
                // The file has grown since its size was read, so fewer bytes fit.
                Err(eyrie_engine::Error::TooLarge) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn seek_handle(&self, handle: &Handle, offset: u64, whence: Whence) -> CallResult<u64> {
        self.seek_object(self.usable(handle)?, offset, whence)
    }

    /// Returns the next offset of data or of a hole in a file, without a permission check.
    pub(super) fn seek_object(&self, id: ObjectId, offset: u64, whence: Whence) -> CallResult<u64> {
        if id.is_directory() {
            return Err(Errno::INVAL.into());
        }
        if offset > OFFSET_MAX || offset >= self.engine().attributes(id)?.size {
            return Err(Errno::NXIO.into());
        }
        let found = self.engine().seek(id, offset, whence == Whence::Hole)?;
        found.ok_or(Errno::NXIO.into())
    }

    pub(super) fn list_handle(
        &self,
        handle: &Handle,
        cookie: u64,
        visit: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> CallResult<()> {
        self.check_engine(handle)?;
        if handle.flags.contains(OpenFlags::PATH) {
            return Err(Errno::BADF.into());
        }
        self.list_object(|| handle.current(self.engine()), cookie, &mut |entry| {
            visit(ListEntry {
                name: &names::encode(entry.name),
                kind: entry.id.kind(),
                inode: entry.id.raw(),
                next: entry.next,
            })
        })?;
        if let Ok(id) = handle.current(self.engine()) {
            self.note_read(id, handle.flags);
        }
        Ok(())
    }

    /// Lists a directory, without a permission check. The names are those that the directory stores.
    pub(super) fn list_object(
        &self,
        dir: impl Fn() -> eyrie_engine::Result<ObjectId>,
        cookie: u64,
        visit: &mut dyn FnMut(ListedEntry<'_>) -> bool,
    ) -> CallResult<()> {
        let existing = || {
            let id = dir()?;
            if !id.is_directory() {
                return Err(CallError::from(Errno::NOTDIR));
            }
            if self.engine().is_removed(id)? { Err(Errno::NOENT.into()) } else { Ok(id) }
        };
        kept::list(self.engine(), existing, cookie, visit)
    }
}

/// Checks that the `length` bytes that begin at `offset` end at or before the largest offset.
#[inline]
fn check_range(offset: u64, length: usize) -> Result<(), Errno> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= OFFSET_MAX => Ok(()),
        _ => Err(Errno::INVAL),
    }
}
