//! Ops on ranges of files: changes of storage, and clones.

use eyrie_medium::PAGE_SIZE;

use super::state::ModelState;
use crate::op::FILE_MAX;
use crate::{Error, FallocateMode, ObjectId, Result};

impl ModelState {
    /// Changes the storage of a range. The checks have the same order as in ext4: the length and the end of
    /// the range, its alignment, the size of the file after an insert, and the place of the range in the
    /// file.
    pub(super) fn fallocate(
        &mut self,
        id: ObjectId,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let data = self.file_mut(id)?;
        if length == 0 {
            return Err(Error::Invalid("a range must have at least one byte"));
        }
        let end = offset.checked_add(length).filter(|&end| end <= FILE_MAX).ok_or(Error::TooLarge)?;
        if mode.shifts() && !(offset.is_multiple_of(PAGE_SIZE) && length.is_multiple_of(PAGE_SIZE)) {
            return Err(Error::Invalid("offset and length must be multiples of 4096"));
        }
        match mode {
            FallocateMode::Allocate
            | FallocateMode::KeepSize
            | FallocateMode::UnshareRange
            | FallocateMode::UnshareRangeKeepSize => {}
            FallocateMode::PunchHole | FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize => {
                data.punch(offset, end);
            }
            FallocateMode::CollapseRange if end < data.size() => data.collapse(offset, end),
            FallocateMode::InsertRange if length > FILE_MAX - data.size() => return Err(Error::TooLarge),
            FallocateMode::InsertRange if offset < data.size() => {
                if data.end_of_storage() > FILE_MAX.next_multiple_of(PAGE_SIZE) - length {
                    return Err(Error::Invalid("storage past the end would move past the largest offset"));
                }
                data.insert_hole(offset, length);
            }
            FallocateMode::CollapseRange => {
                return Err(Error::Invalid("the range must end before the end of the file"));
            }
            FallocateMode::InsertRange => {
                return Err(Error::Invalid("the offset must be before the end of the file"));
            }
        }
        if mode.extends() && end > data.size() {
            data.set_size(end);
        }
        if mode.allocates() {
            data.reserve(offset, end);
        }
        Ok(())
    }

    /// Copies the pages of a range. Returns false if the range is empty. The checks have the same order as in
    /// Linux.
    pub(super) fn clone_range(
        &mut self,
        (source, from): (ObjectId, u64),
        (id, to): (ObjectId, u64),
        length: u64,
    ) -> Result<bool> {
        let copied = self.file_mut(source)?.clone();
        let target = self.file_mut(id)?;
        let invalid = |what| Err(Error::Invalid(what));
        let end = if length == 0 { copied.size() } else { from.saturating_add(length) };
        if length == 0 && from == end {
            return Ok(false);
        }
        if !from.is_multiple_of(PAGE_SIZE) || !to.is_multiple_of(PAGE_SIZE) {
            return invalid("an offset is no multiple of 4096");
        }
        if from >= end || end > copied.size() {
            return invalid("the source is too short");
        }
        let new_end = to.saturating_add(end - from);
        if new_end > FILE_MAX {
            return invalid("the target would be too long");
        }
        let last_page = !end.is_multiple_of(PAGE_SIZE);
        if last_page && (end < copied.size() || new_end < target.size()) {
            return invalid("only the ends of both files may be inside a page");
        }
        if source == id && from.abs_diff(to) < (end - from).next_multiple_of(PAGE_SIZE) {
            return invalid("the ranges overlap");
        }
        target.clone_range(&copied, from, to, end - from);
        Ok(true)
    }
}
