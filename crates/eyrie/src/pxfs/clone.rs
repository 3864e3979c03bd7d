//! Clones and copies of ranges of files.

use eyrie_engine::{Engine, Error, InodeFlags, Kind, ObjectId, Op, access};

use super::open::OFFSET_MAX;
use super::{AsUser, CallError, CallResult, Handle, Pxfs};
use crate::posix::{OpenFlags, PosixClones};
use crate::{Errno, Result};

/// Maximum number of bytes that one Op clones. An Op of this size changes up to 4 MiB of pointers in both
/// files together. On a disk, other calls wait meanwhile.
const CLONED_AT_ONCE: u64 = 1 << 30;
/// Maximum number of bytes that one call copies if it cannot share them. The caller copies the rest with
/// further calls.
const COPIED_AT_ONCE: u64 = 1 << 20;
/// Size of a page, the unit of sharing.
const PAGE: u64 = 4096;

/// A file and an offset in it.
pub(super) type FilePlace = (ObjectId, u64);

impl<E: Engine> PosixClones for Pxfs<E> {
    fn clone_range(&self, source: (&Handle, u64), target: (&Handle, u64), length: u64) -> Result<()> {
        self.as_user().call("clone_range", |user| user.clone_handles(source, target, length))
    }
}

/// Checks that the source and the target of a copy are regular files.
pub(super) fn check_files(ids: [ObjectId; 2]) -> CallResult<()> {
    for id in ids {
        match id.kind() {
            Kind::File => {}
            Kind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
    }
    Ok(())
}

impl<E: Engine> AsUser<'_, E> {
    /// Clones a range of an open file. The order of the checks is that of Linux.
    pub(super) fn clone_handles(
        &self,
        (source, from): (&Handle, u64),
        (target, to): (&Handle, u64),
        length: u64,
    ) -> CallResult<()> {
        let (from_id, to_id) = self.files_of_copy(source, target)?;
        self.clone_object((from_id, from), (to_id, to), length)?;
        self.sync_if(target.flags)
    }

    /// Copies a range of an open file, or the first part of it. Returns the number of bytes.
    pub(super) fn copy_handles(
        &self,
        (source, from): (&Handle, u64),
        (target, to): (&Handle, u64),
        length: u64,
    ) -> CallResult<u64> {
        let (from_id, to_id) = self.files_of_copy(source, target)?;
        let copied = self.copy_object((from_id, from), (to_id, to), length)?;
        if copied > 0 {
            self.note_read(from_id, source.flags);
            self.sync_if(target.flags)?;
        }
        Ok(copied)
    }

    /// Returns the files of two handles. Refuses handles that cannot be the source and the target of a copy.
    fn files_of_copy(&self, source: &Handle, target: &Handle) -> CallResult<(ObjectId, ObjectId)> {
        let (from, to) = (self.usable(source)?, self.usable(target)?);
        check_files([from, to])?;
        let writes = target.flags.contains(OpenFlags::WRITE) && !target.flags.contains(OpenFlags::APPEND);
        if source.flags.contains(OpenFlags::READ) && writes {
            return Ok((from, to));
        }
        Err(Errno::BADF.into())
    }

    /// Clones a range of a file, without a permission check.
    pub(super) fn clone_object(
        &self,
        (source, from): FilePlace,
        (target, to): FilePlace,
        length: u64,
    ) -> CallResult<()> {
        if from.max(to).saturating_add(length) > OFFSET_MAX {
            return Err(Errno::INVAL.into());
        }
        self.check_target(target)?;
        let left = match length {
            0 => self.engine().attributes(source)?.size.saturating_sub(from),
            length => length,
        };
        if left <= CLONED_AT_ONCE {
            return self.clone_step((source, from), (target, to), length);
        }
        self.clone_in_steps((source, from), (target, to), left)
    }

    /// Clones a range that is too long for one Op.
    fn clone_in_steps(
        &self,
        (source, from): FilePlace,
        (target, to): FilePlace,
        length: u64,
    ) -> CallResult<()> {
        // Check the ranges of all steps before the first one, so that a call with an impossible range changes
        // nothing. Only the last step can clone a part of a page.
        let (end, to_end) = (from + length, to.saturating_add(length));
        let (size, to_size) =
            (self.engine().attributes(source)?.size, self.engine().attributes(target)?.size);
        let is_past = end > size || to_end > OFFSET_MAX;
        let overlaps = source == target && from.abs_diff(to) < length.next_multiple_of(PAGE);
        let ends_in_page = !length.is_multiple_of(PAGE);
        if is_past || overlaps || ends_in_page && (end < size || to_end < to_size) {
            return Err(Errno::INVAL.into());
        }
        let mut left = length;
        if source == target && ends_in_page {
            // Make the last step first. A range may end inside a page only at the end of the source, and the
            // other steps may make the file longer.
            let last = length % CLONED_AT_ONCE;
            left -= last;
            self.clone_step((source, from + left), (target, to + left), last)?;
        }
        let (mut at, mut has_begun) = (0, left < length);
        while at < left {
            let next = self.clone_next((source, from), (target, to), (at, left));
            at = next.map_err(|error| match error {
                // Earlier steps may have moved the end of the file, so a call that begins again would refuse
                // its own range.
                CallError::Engine(error) if source == target && has_begun => CallError::Final(error),
                error => error,
            })?;
            has_begun = true;
        }
        Ok(())
    }

    /// Makes the next step of a clone of `length` bytes, at `at` or after it. Returns the place of the step
    /// that follows.
    fn clone_next(
        &self,
        (source, from): FilePlace,
        (target, to): FilePlace,
        (mut at, length): (u64, u64),
    ) -> CallResult<u64> {
        if at > 0 {
            let hole = self.hole_from((source, from + at))?.min(self.hole_from((target, to + at))?);
            // A step is left out if both files have only holes there. The last step is never left out,
            // because it sets the size.
            let last = (length - 1) / CLONED_AT_ONCE * CLONED_AT_ONCE;
            at = (at + hole / CLONED_AT_ONCE * CLONED_AT_ONCE).min(last);
        }
        self.clone_step((source, from + at), (target, to + at), (length - at).min(CLONED_AT_ONCE))?;
        Ok(at + CLONED_AT_ONCE)
    }

    /// Returns the number of bytes from a place to the next data of the file, or [`OFFSET_MAX`] if no data
    /// follow.
    fn hole_from(&self, (id, offset): FilePlace) -> CallResult<u64> {
        Ok(self.engine().seek(id, offset, false)?.map_or(OFFSET_MAX, |data| data - offset))
    }

    fn clone_step(
        &self,
        (source, source_offset): FilePlace,
        (id, offset): FilePlace,
        length: u64,
    ) -> CallResult<()> {
        let (set_ids, time) = (self.dropped_set_ids(id)?, self.now([id]));
        self.apply(&Op::CloneRange { source, source_offset, id, offset, length, set_ids, time })?;
        Ok(())
    }

    /// Copies a range of a file, or the first part of it, without a permission check. Shares whole pages if
    /// both offsets are multiples of the size of a page. Returns the number of bytes.
    pub(super) fn copy_object(
        &self,
        (source, from): FilePlace,
        (target, to): FilePlace,
        length: u64,
    ) -> CallResult<u64> {
        self.check_target(target)?;
        // Linux checks the ranges in this order.
        if from.max(to).checked_add(length).is_none() {
            return Err(Errno::OVERFLOW.into());
        }
        if to == OFFSET_MAX {
            return Err(Errno::FBIG.into());
        }
        if from.max(to) > OFFSET_MAX {
            return Err(Errno::INVAL.into());
        }
        let source_size = self.engine().attributes(source)?.size;
        let count = length.min(source_size.saturating_sub(from)).min(OFFSET_MAX - to);
        if source == target && from.abs_diff(to) < count {
            return Err(Errno::INVAL.into());
        }
        if count == 0 {
            return Ok(0);
        }
        let is_end = from + count == source_size && to + count >= self.engine().attributes(target)?.size;
        let shared = if is_end { count } else { count / PAGE * PAGE }.min(CLONED_AT_ONCE);
        if shared > 0 && from.is_multiple_of(PAGE) && to.is_multiple_of(PAGE) {
            match self.clone_step((source, from), (target, to), shared) {
                Ok(()) => return Ok(shared),
                // Another thread has changed the size of a file, or the ranges have one page in common.
                Err(CallError::Engine(Error::Invalid(_))) => {}
                Err(error) => return Err(error),
            }
        }
        self.copy_bytes((source, from), (target, to), count)
    }

    /// Works as [`copy_object`](AsUser::copy_object) for a caller that has checked the rights at an open, but
    /// not the inode flags. An append-only file takes only bytes for its end.
    pub(super) fn copy_node(
        &self,
        (source, from): FilePlace,
        (target, to): FilePlace,
        length: u64,
    ) -> CallResult<u64> {
        let may_have_flags = self.engine().may_have_flags();
        let flags = if may_have_flags { self.engine().inode_flags(target)? } else { InodeFlags::empty() };
        if flags.is_empty() {
            return self.copy_object((source, from), (target, to), length);
        }
        access::check_write(flags, self.engine().attributes(target)?.size == to)?;
        let mut bytes = vec![0; length.min(COPIED_AT_ONCE) as usize];
        let read = self.engine().read(source, from, &mut bytes)?;
        // The file may have grown since its size was read. An append does not overwrite its new bytes.
        self.append_object(target, &bytes[..read]).map(|copied| copied.end - copied.start)
    }

    /// Copies bytes by a read and a write. If both offsets have the same position within a page, but not its
    /// start, the copy ends at the end of this page, so that the next call can share pages.
    fn copy_bytes(&self, (source, from): FilePlace, (target, to): FilePlace, count: u64) -> CallResult<u64> {
        let to_page = PAGE - from % PAGE;
        let most = if to_page < PAGE && from % PAGE == to % PAGE { to_page } else { COPIED_AT_ONCE };
        let mut bytes = vec![0; count.min(most) as usize];
        let read = self.engine().read(source, from, &mut bytes)?;
        self.write_object(target, &bytes[..read], to)?;
        Ok(read as u64)
    }

    /// Checks that the inode flags of a file permit a write through a handle that is already open. As in
    /// Linux, only an open checks the flag `APPEND_ONLY`.
    fn check_target(&self, id: ObjectId) -> CallResult<()> {
        if self.engine().may_have_flags() {
            access::check_write(self.engine().inode_flags(id)?, true)?;
        }
        Ok(())
    }
}
