//! Clones of ranges of files: both files share the extents of the range afterwards.

use eyrie_medium::PAGE_SIZE;

use super::Scm;
use super::arguments::require_file;
use super::features::Feature;
use super::write::{Touch, leaves_hole};
use crate::object::header::{Header, HotChange};
use crate::object::mfile::{self, ClonedRange, FileTree};
use crate::op::FILE_MAX;
use crate::transaction::Transaction;
use crate::{Applied, Error, ObjectId, Result};

/// A file and an offset in it.
pub(super) type FilePlace = (ObjectId, u64);

/// Returns the number of bytes that a clone shares, for files of these sizes. The checks are those of Linux.
fn cloned_length(
    is_one_file: bool,
    (from, source_size): (u64, u64),
    (to, target_size): (u64, u64),
    length: u64,
) -> Result<u64> {
    let past_the_end = Error::Invalid("the range is not within the source");
    let length = match length {
        0 if from > source_size => return Err(past_the_end),
        0 if from == source_size => return Ok(0),
        0 => source_size - from,
        length => length,
    };
    let is_page = |number: u64| number.is_multiple_of(PAGE_SIZE);
    if !is_page(from) || !is_page(to) {
        return Err(Error::Invalid("offsets of a clone must be multiples of 4096"));
    }
    let ends = (from.checked_add(length), to.checked_add(length).filter(|&end| end <= FILE_MAX));
    let (Some(end), Some(target_end)) = ends else {
        return Err(Error::Invalid("the range would end past the largest offset"));
    };
    if end > source_size {
        return Err(past_the_end);
    }
    if !is_page(length) && end != source_size {
        return Err(Error::Invalid(
            "the length of a clone must be a multiple of 4096, unless the range ends with the source",
        ));
    }
    let pages = length.next_multiple_of(PAGE_SIZE);
    if is_one_file && to < from + pages && from < to + pages {
        return Err(Error::Invalid("the ranges of a clone overlap"));
    }
    if !is_page(length) && target_end < target_size {
        return Err(Error::Invalid("a part of a page would end inside the target"));
    }
    Ok(length)
}

impl Scm {
    /// Makes `target` share the bytes of a range of `source`. A length of 0 means the bytes up to the end of
    /// `source`.
    #[inline(never)]
    pub(super) fn clone_range(
        &self,
        source: FilePlace,
        target: FilePlace,
        length: u64,
        touch: Touch,
    ) -> Result<Applied> {
        let ((from_id, from), (to_id, to)) = (source, target);
        require_file(from_id)?;
        require_file(to_id)?;
        let (from_header, to_header) = (self.header(from_id)?, self.header(to_id)?);
        let _held = self.locks.hold(&[from_id, to_id]);
        let source_size = from_header.hot(self.medium())?.size;
        let target_size = to_header.hot(self.medium())?.size;
        let length = cloned_length(from_id == to_id, (from, source_size), (to, target_size), length)?;
        if length == 0 {
            return Ok(Applied::default());
        }
        let range = ClonedRange { from, to, length };
        self.with_feature(Feature::SHARED_EXTENTS, || self.clone_held(from_header, to_header, range, touch))
    }

    /// Makes a clone of a range that was checked. The caller holds the locks of both files.
    fn clone_held(
        &self,
        source: Header,
        target: Header,
        range: ClonedRange,
        touch: Touch,
    ) -> Result<Applied> {
        let medium = self.medium();
        let mut transaction = Transaction::begin(&self.volume);
        let before = source.hot(medium)?;
        mfile::set_shared_bits(
            &mut transaction,
            FileTree::of(source, &before),
            source.root_at(before.selector),
            (range.from, range.from + range.length),
        )?;
        // The root of the source may have got the shared bit. If source and target are one file, this root is
        // also that of the target.
        let (shared, hot) = (source.hot(medium)?, target.hot(medium)?);
        let clone = mfile::clone_range(
            &mut transaction,
            FileTree::of(source, &shared),
            FileTree::of(target, &hot),
            range,
        )?;
        let makes_holes = clone.has_holes || leaves_hole(&hot, range.to);
        let change = HotChange::data(clone.root, hot.size.max(range.to + range.length), touch.time);
        self.change_data(&mut transaction, target, &hot, change, touch.set_ids, makes_holes)?;
        // The counts of pointers grow before the commit, because the commit may also drop pointers to the
        // same pages. Until the commit the counts are too high, so no page becomes free too early.
        let space = self.volume.space();
        space.share(&clone.shared);
        self.commit_charged(&mut transaction, target, &clone.shared, touch.time)
            .inspect_err(|_| space.unshare(&clone.shared))?;
        Ok(Applied::default())
    }
}
