//! Shared extents of the damaged volume: their bytes are written once, and cloned for each further pointer.

use std::collections::HashMap;

use eyrie_medium::{Addr, PAGE_SIZE};

use crate::{Engine, Error, ObjectId, Op, Result, SetIds, Time};

/// The pages of shared extents that were copied: for each page of the damaged volume, a file of the new
/// volume and the offset of the copy.
#[derive(Default)]
pub(super) struct CopiedPages(HashMap<Addr, (ObjectId, u64)>);

impl CopiedPages {
    /// Clones the first bytes of a shared extent from earlier copies of its pages. Returns the number of
    /// cloned bytes, at most `len`. The number is 0 if the first page has no copy, or one that cannot be
    /// cloned.
    ///
    /// # Errors
    /// Errors of the new volume.
    pub(super) fn clone_run(
        &self,
        to: &dyn Engine,
        addr: Addr,
        (id, offset, len): (ObjectId, u64, u64),
        time: Time,
    ) -> Result<u64> {
        let Some(&(source, source_offset)) = self.0.get(&addr) else { return Ok(0) };
        let is_next = |&at: &u64| self.0.get(&addr.add(at)) == Some(&(source, source_offset + at));
        let pages = (0..len).step_by(PAGE_SIZE as usize).take_while(is_next).count() as u64;
        let length = len.min(pages * PAGE_SIZE);
        let set_ids = SetIds::Keep;
        match to.apply_above_limits(&Op::CloneRange {
            source,
            source_offset,
            id,
            offset,
            length,
            set_ids,
            time,
        }) {
            Ok(_) => Ok(length),
            // `Stale`: the earlier copy was incomplete, so it was removed. `Invalid`: the range ends inside a
            // page, and this end is not the end of the source file, or would lie inside the target file.
            Err(Error::Invalid(_) | Error::Stale) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Returns the length of the run of bytes from `addr` on, at most `len`, whose pages have no copy. The
    /// first page always counts, because its copy, if there is one, could not be cloned.
    pub(super) fn new_run(&self, addr: Addr, len: u64) -> u64 {
        let is_new = |&at: &u64| at == 0 || !self.0.contains_key(&addr.add(at));
        let pages = (0..len).step_by(PAGE_SIZE as usize).take_while(is_new).count() as u64;
        len.min(pages * PAGE_SIZE)
    }

    /// Notes the copy of `len` bytes of a shared extent. Replaces the earlier copies of these pages.
    pub(super) fn note(&mut self, addr: Addr, (id, offset, len): (ObjectId, u64, u64)) {
        for at in (0..len).step_by(PAGE_SIZE as usize) {
            self.0.insert(addr.add(at), (id, offset + at));
        }
    }
}
