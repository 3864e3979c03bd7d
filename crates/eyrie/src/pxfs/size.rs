//! The size and the storage of files.

use eyrie_engine::access::{self, Rights};
use eyrie_engine::{Engine, FallocateMode, Kind, ObjectId, Op, Time};

use super::open::OFFSET_MAX;
use super::space::space_usage;
use super::{AsUser, CallResult, Handle};
use crate::Errno;
use crate::posix::{OpenFlags, Target};

/// Maximum number of bytes that one Op of a `fallocate` allocates. On a disk other calls wait while the new
/// pages are marked dirty, so a larger Op would delay these calls too long.
const ALLOCATED_AT_ONCE: u64 = 64 << 20;

impl<E: Engine> AsUser<'_, E> {
    pub(super) fn set_handle_size(&self, handle: &Handle, size: u64) -> CallResult<()> {
        check_size(size)?;
        let id = self.usable(handle)?;
        if id.kind() != Kind::File || !handle.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::INVAL.into());
        }
        self.check_size_of_open(id, size)?;
        self.set_size(id, size)
    }

    /// Checks that a file may have this size, and that its inode flags permit the change. The caller has a
    /// handle for writing, so the rights were checked at the open.
    pub(super) fn check_size_of_open(&self, id: ObjectId, size: u64) -> CallResult<()> {
        check_size(size)?;
        if self.engine().may_have_flags() {
            access::check_set_size(self.engine().inode_flags(id)?)?;
        }
        Ok(())
    }

    /// Allocates, frees, zeroes, unshares, collapses or inserts a range of bytes. Only regular files have
    /// handles for writing, so Linux's errors for other kinds of file cannot happen.
    pub(super) fn fallocate_handle(
        &self,
        handle: &Handle,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> CallResult<()> {
        let id = self.usable(handle)?;
        check_storage_range(offset, length)?;
        if !handle.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::BADF.into());
        }
        self.fallocate_object(id, mode, offset, length)
    }

    /// Changes the storage of a range of a file, without a permission check.
    pub(super) fn fallocate_object(
        &self,
        id: ObjectId,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> CallResult<()> {
        check_storage_range(offset, length)?;
        if self.engine().may_have_flags() {
            access::check_fallocate(self.engine().inode_flags(id)?, mode)?;
        }
        if length > OFFSET_MAX - offset {
            return Err(Errno::FBIG.into());
        }
        let set_ids = self.dropped_set_ids(id)?;
        // A collapse or an insertion is one step, because a crash between two steps would leave only a part
        // of the bytes moved. A punched hole is also one step, because it allocates nothing.
        let step = match mode {
            FallocateMode::CollapseRange | FallocateMode::InsertRange | FallocateMode::PunchHole => length,
            _ => ALLOCATED_AT_ONCE,
        };
        // A call whose range certainly does not fit must change nothing. Without this check the first steps
        // of the call would succeed.
        if length > step
            && length > space_usage(self.engine())?.free + self.engine().attributes(id)?.allocated
        {
            return Err(Errno::NOSPC.into());
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let length = (end - at).min(step);
            self.apply(&Op::Fallocate { id, mode, offset: at, length, set_ids, time: self.now([id]) })?;
            at += length;
        }
        Ok(())
    }

    /// Sets the size of the file of a path.
    pub(super) fn truncate_path(&self, file: Target<'_, Handle>, size: u64) -> CallResult<()> {
        check_size(size)?;
        let id = self.object_of(file)?;
        match self.check_new_size(id, size)? {
            Some(changed) => self.drop_rights(id, changed),
            None => self.set_size(id, size),
        }
    }

    /// Checks that the user may set the size of a file, for a call without an open handle. If the call
    /// changes neither the size nor the times, returns the change time of the file.
    pub(super) fn check_new_size(&self, id: ObjectId, size: u64) -> CallResult<Option<Time>> {
        check_size(size)?;
        match id.kind() {
            Kind::File => {}
            Kind::Directory => return Err(Errno::ISDIR.into()),
            Kind::Symlink => return Err(Errno::LOOP.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        self.check_writable(id, Rights::WRITE)?;
        let attributes = self.engine().attributes(id)?;
        let file = self.protection(id)?;
        access::check(self.credentials(), &file, Rights::WRITE)?;
        access::check_set_size(file.flags)?;
        if attributes.size != size || self.engine().has_storage(id)? {
            return Ok(None);
        }
        // Unlike `ftruncate`, a `truncate` to the present size keeps the times of a file without storage, as
        // on tmpfs. Another thread may have set this size, and that change may not be durable yet.
        self.engine().wait_for(id)?;
        Ok(Some(attributes.changed))
    }

    pub(super) fn set_size(&self, id: ObjectId, size: u64) -> CallResult<()> {
        let set_ids = self.dropped_set_ids(id)?;
        self.apply(&Op::SetSize { id, size, set_ids, time: self.now([id]) })?;
        Ok(())
    }
}

/// Checks that a file may have this size.
fn check_size(size: u64) -> CallResult<()> {
    if size > OFFSET_MAX { Err(Errno::INVAL.into()) } else { Ok(()) }
}

/// Checks the offset and the length of a range whose storage changes.
fn check_storage_range(offset: u64, length: u64) -> Result<(), Errno> {
    let is_range = offset <= OFFSET_MAX && (1..=OFFSET_MAX).contains(&length);
    if is_range { Ok(()) } else { Err(Errno::INVAL) }
}
