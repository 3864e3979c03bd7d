//! Writing, appending, truncating and extending files.

use eyrie_medium::PAGE_SIZE;
use eyrie_medium::rules::{SafetyRule, broken};

use super::Scm;
use super::arguments::require_file;
use super::features::Feature;
use crate::object::header::{Cold, Header, Hot, HotChange};
use crate::object::mfile::{self, AllocatedAs, FileChange, FileTree};
use crate::object::pointer::Pointer;
use crate::object::xattr;
use crate::op::{CAPABILITY_XATTR, FILE_MAX};
use crate::transaction::Transaction;
use crate::{Applied, Error, FallocateMode, ObjectId, Result, SetIds, Time, access};

/// True if a write at `offset` leaves a hole of whole pages between the end of the file and `offset`.
pub(super) fn leaves_hole(now: &Hot, offset: u64) -> bool {
    offset / PAGE_SIZE > now.size.div_ceil(PAGE_SIZE)
}

/// True if a new size leaves a hole of whole pages at the end of the file.
pub(super) fn makes_hole(now: &Hot, size: u64) -> bool {
    leaves_hole(now, size.next_multiple_of(PAGE_SIZE))
}

/// Returns the end of the range of a fallocate, and the size that the file gets. The checks have the same
/// order as in ext4.
fn resized(mode: FallocateMode, offset: u64, length: u64, size: u64) -> Result<(u64, u64)> {
    if length == 0 {
        return Err(Error::Invalid("a range must have at least one byte"));
    }
    let end = offset.checked_add(length).filter(|&end| end <= FILE_MAX).ok_or(Error::TooLarge)?;
    if mode.shifts() && !(offset.is_multiple_of(PAGE_SIZE) && length.is_multiple_of(PAGE_SIZE)) {
        return Err(Error::Invalid("offset and length must be multiples of 4096"));
    }
    match mode {
        FallocateMode::CollapseRange if end < size => Ok((end, size - length)),
        FallocateMode::InsertRange if length > FILE_MAX - size => Err(Error::TooLarge),
        FallocateMode::InsertRange if offset < size => Ok((end, size + length)),
        FallocateMode::CollapseRange => Err(Error::Invalid("the range must end before the end of the file")),
        FallocateMode::InsertRange => Err(Error::Invalid("the offset must be before the end of the file")),
        mode if mode.extends() => Ok((end, size.max(end))),
        _ => Ok((end, size)),
    }
}

/// True if a write removes the capability of the file by a commit of its own. Only the mutant of the rule
/// `capability-goes-with-the-bytes` does this.
#[inline(always)]
fn drops_capability_late() -> bool {
    broken(SafetyRule::CapabilityGoesWithTheBytes)
}

/// Attributes that change together with the bytes of a file.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    /// Set-id bits that the file loses.
    pub(super) set_ids: SetIds,
    /// The new modification and change time of the file.
    pub(super) time: Time,
}

impl Scm {
    /// Writes at `offset`, or at the end of the file if `offset` is `None`.
    pub(super) fn write_data(
        &self,
        id: ObjectId,
        offset: Option<u64>,
        data: &[u8],
        touch: Touch,
    ) -> Result<Applied> {
        require_file(id)?;
        let header = self.header(id)?;
        if broken(SafetyRule::BytesBeforeTheirSize)
            && let Some(end) = offset.and_then(|offset| offset.checked_add(data.len() as u64))
            && header.hot(self.medium())?.size < end
        {
            self.set_size(id, end, touch)?;
        }
        let applied = self.write_locked(id, header, offset, data, touch)?;
        if drops_capability_late() {
            let _ = self.remove_xattr(id, CAPABILITY_XATTR, touch.time);
        }
        Ok(applied)
    }

    /// Takes the lock of the file, and writes.
    #[inline(always)]
    fn write_locked(
        &self,
        id: ObjectId,
        header: Header,
        offset: Option<u64>,
        data: &[u8],
        touch: Touch,
    ) -> Result<Applied> {
        let _held = self.locks.hold(&[id]);
        let hot = header.hot(self.medium())?;
        let began = if offset.is_none() { hot.size } else { 0 };
        let offset = offset.unwrap_or(hot.size);
        if data.is_empty() {
            return Ok(Applied { offset: began, ..Applied::default() });
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_MAX) {
            return Err(Error::TooLarge);
        }
        let mut transaction = Transaction::begin(&self.volume);
        match mfile::write(&mut transaction, hot.selector, FileTree::of(header, &hot), offset, data)? {
            FileChange::Root(root, size) => {
                let change = HotChange::data(root, size, touch.time);
                let makes_holes = leaves_hole(&hot, offset);
                self.change_data(&mut transaction, header, &hot, change, touch.set_ids, makes_holes)?;
            }
            FileChange::BelowRoot => {
                let change = HotChange::data(hot.root, hot.size, touch.time);
                // If set-id bits or a capability are removed, a redo record commits the removal together with
                // the bytes. Otherwise the words of the transaction commit the bytes, and a prelude publishes
                // the new time no later than these words.
                if !self.may_lose_rights(touch.set_ids)
                    || !self.change_cold(&mut transaction, header, &hot, change, touch.set_ids, false)?
                {
                    header.touch_first(&mut transaction, &hot, touch.time);
                }
            }
        }
        self.commit_charged(&mut transaction, header, &[], touch.time)?;
        Ok(Applied { offset: began, ..Applied::default() })
    }

    pub(super) fn set_size(&self, id: ObjectId, size: u64, touch: Touch) -> Result<Applied> {
        require_file(id)?;
        let header = self.header(id)?;
        let _held = self.locks.hold(&[id]);
        let hot = header.hot(self.medium())?;
        let mut transaction = Transaction::begin(&self.volume);
        let root = self.resize_data(&mut transaction, header, &hot, size)?;
        let change = HotChange::data(root, size, touch.time);
        self.change_data(&mut transaction, header, &hot, change, touch.set_ids, makes_hole(&hot, size))?;
        self.commit_charged(&mut transaction, header, &[], touch.time)?;
        Ok(Applied::default())
    }

    /// Truncates or extends the bytes of a file. Returns their root. The caller holds the lock of the file.
    pub(super) fn resize_data(
        &self,
        transaction: &mut Transaction<'_>,
        header: Header,
        now: &Hot,
        size: u64,
    ) -> Result<Pointer> {
        if size > FILE_MAX {
            return Err(Error::TooLarge);
        }
        mfile::set_size(transaction, FileTree::of(header, now), size)
    }

    /// Changes the storage of `length` bytes from `offset` on, according to `mode`.
    pub(super) fn fallocate(
        &self,
        id: ObjectId,
        mode: FallocateMode,
        offset: u64,
        length: u64,
        touch: Touch,
    ) -> Result<Applied> {
        require_file(id)?;
        let header = self.header(id)?;
        let _held = self.locks.hold(&[id]);
        let hot = header.hot(self.medium())?;
        let (end, size) = resized(mode, offset, length, hot.size)?;
        let change = || self.change_storage(header, &hot, mode, (offset, end), size, touch);
        let is_past_end = mode.allocates() && end > size.next_multiple_of(PAGE_SIZE);
        if is_past_end { self.with_feature(Feature::PREALLOCATION, change) } else { change() }
    }

    /// Changes the storage of a range of a file, which gets the size `size`. The caller holds the lock of the
    /// file.
    fn change_storage(
        &self,
        header: Header,
        hot: &Hot,
        mode: FallocateMode,
        (offset, end): (u64, u64),
        size: u64,
        touch: Touch,
    ) -> Result<Applied> {
        let length = end - offset;
        let mut transaction = Transaction::begin(&self.volume);
        let file = FileTree::of(header, hot);
        let root = match mode {
            FallocateMode::PunchHole => mfile::punch(&mut transaction, file, offset, end)?,
            FallocateMode::CollapseRange => mfile::collapse(&mut transaction, file, offset, length)?,
            FallocateMode::InsertRange => mfile::insert(&mut transaction, file, offset, length)?,
            FallocateMode::Allocate
            | FallocateMode::KeepSize
            | FallocateMode::ZeroRange
            | FallocateMode::ZeroRangeKeepSize
            | FallocateMode::UnshareRange
            | FallocateMode::UnshareRangeKeepSize => {
                let wanted = match mode {
                    FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize => AllocatedAs::Zeros,
                    FallocateMode::Allocate | FallocateMode::KeepSize => AllocatedAs::Storage,
                    _ => AllocatedAs::OwnStorage,
                };
                mfile::allocate(&mut transaction, hot.selector, file, size, (offset, end), wanted)?
            }
        };
        let makes_holes = matches!(mode, FallocateMode::PunchHole | FallocateMode::InsertRange)
            || mode.extends() && leaves_hole(hot, offset);
        let change = HotChange::data(root, size, touch.time);
        self.change_data(&mut transaction, header, hot, change, touch.set_ids, makes_holes)?;
        self.commit_charged(&mut transaction, header, &[], touch.time)?;
        Ok(Applied::default())
    }

    /// Adds `change` to the commit, and the cold attributes that change with it, if there are any.
    #[inline]
    pub(super) fn change_data(
        &self,
        transaction: &mut Transaction<'_>,
        header: Header,
        now: &Hot,
        change: HotChange,
        set_ids: SetIds,
        makes_holes: bool,
    ) -> Result<()> {
        let may_change_cold = makes_holes || self.may_lose_rights(set_ids);
        if !may_change_cold || !self.change_cold(transaction, header, now, change, set_ids, makes_holes)? {
            header.change(transaction, now, &change);
        }
        Ok(())
    }

    /// True if a change of the bytes of a file may take rights from the file: set-id bits, or a capability.
    #[inline]
    fn may_lose_rights(&self, set_ids: SetIds) -> bool {
        set_ids != SetIds::Keep || self.volume.board().has_capabilities()
    }

    /// Adds `change` to the commit together with changed cold attributes. If the cold attributes do not
    /// change, returns false and adds nothing. A file that may get holes of whole pages gets the flag
    /// [`Cold::SPARSE`]. The same commit changes the bytes, clears the set-id bits and removes the
    /// capability.
    #[cold]
    #[inline(never)]
    fn change_cold(
        &self,
        transaction: &mut Transaction<'_>,
        header: Header,
        now: &Hot,
        change: HotChange,
        set_ids: SetIds,
        makes_holes: bool,
    ) -> Result<bool> {
        let (_, mut cold) = header.hot_and_cold(self.medium())?;
        let flags = cold.flags | if makes_holes { Cold::SPARSE } else { 0 };
        let mode = access::mode_after(cold.mode, set_ids);
        if (flags, mode) == (cold.flags, cold.mode) && flags & Cold::CAPABILITY == 0 {
            return Ok(false);
        }
        (cold.flags, cold.mode) = (flags, mode);
        if !drops_capability_late() {
            xattr::drop_capability(transaction, header, &mut cold)?;
        }
        header.change_cold(transaction, now, &cold, change)?;
        Ok(true)
    }
}
