//! Shared extents of the damaged volume: their bytes are written once, and cloned for each further pointer.

use std::collections::HashMap;

use eyrie_medium::{Addr, PAGE_SIZE};

use crate::{Engine, Error, ObjectId, Op, Result, SetIds, Time};

/// The pages of shared extents that were copied: for each page of the damaged volume, a file of the new
/// volume and the offset of the copy.
#[derive(Default)]
pub(super) struct CopiedPages {
    places: HashMap<Addr, (ObjectId, u64)>,
    /// The pages whose copies are in the object that is being copied.
    latest: Vec<Addr>,
}

impl CopiedPages {
    /// Begins the copy of the next object.
    pub(super) fn begin_object(&mut self) {
        self.latest.clear();
    }

    /// Forgets the copies in the object that is being copied, because this object is removed. Another object
    /// of the new volume may get its id.
    pub(super) fn forget_object(&mut self) {
        for addr in self.latest.drain(..) {
            self.places.remove(&addr);
        }
    }

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
        let Some(&(source, source_offset)) = self.places.get(&addr) else { return Ok(0) };
        let is_next = |&at: &u64| self.places.get(&addr.add(at)) == Some(&(source, source_offset + at));
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
            // The range ends inside a page, and this end is not the end of the source file, or would lie
            // inside the target file.
            Err(Error::Invalid(_)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Returns the length of the run of bytes from `addr` on, at most `len`, whose pages have no copy. The
    /// first page always counts, because its copy, if there is one, could not be cloned.
    pub(super) fn new_run(&self, addr: Addr, len: u64) -> u64 {
        let is_new = |&at: &u64| at == 0 || !self.places.contains_key(&addr.add(at));
        let pages = (0..len).step_by(PAGE_SIZE as usize).take_while(is_new).count() as u64;
        len.min(pages * PAGE_SIZE)
    }

    /// Notes the copy of `len` bytes of a shared extent. Replaces the earlier copies of these pages.
    pub(super) fn note(&mut self, addr: Addr, (id, offset, len): (ObjectId, u64, u64)) {
        for at in (0..len).step_by(PAGE_SIZE as usize) {
            self.places.insert(addr.add(at), (id, offset + at));
            self.latest.push(addr.add(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use eyrie_medium::SegmentId;

    use super::*;
    use crate::Kind;

    #[test]
    fn copies_in_a_removed_file_are_forgotten() {
        let page = |number| Addr::new(SegmentId(0), number * PAGE_SIZE);
        let file = |number: u64| ObjectId::new(number * 128, Kind::File);
        let mut copied = CopiedPages::default();
        copied.begin_object();
        copied.note(page(9), (file(1), 0, PAGE_SIZE));
        copied.begin_object();
        copied.note(page(7), (file(2), 0, 2 * PAGE_SIZE));
        assert_eq!(copied.new_run(page(6), 4 * PAGE_SIZE), PAGE_SIZE);
        copied.forget_object();
        assert_eq!(copied.new_run(page(6), 4 * PAGE_SIZE), 3 * PAGE_SIZE, "page 9 is in another file");
    }
}
