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
        let whole = len.min(pages * PAGE_SIZE);
        // The clone of the whole range is refused if the source file ends inside the last page and the range
        // does not end there. It is also refused if the range ends inside a page, and either the source file
        // or the target file goes on after this end. In both cases the pages before the last one can still be
        // cloned.
        let before_last = (whole - 1) / PAGE_SIZE * PAGE_SIZE;
        for length in [whole, before_last].into_iter().filter(|&length| length > 0) {
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
                Ok(_) => return Ok(length),
                Err(Error::Invalid(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
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
    use crate::{Content, Kind, Model, Owner};

    /// The copy ends inside its third page. Another file has all bytes of this page.
    #[test]
    fn pages_before_a_short_page_are_cloned() {
        let (owner, time) = (Owner { mode: 0o755, uid: 0, gid: 0 }, Time::new(1, 0));
        let to = Model::new(ObjectId::new(64, Kind::Directory), owner, time);
        let make = |name: &[u8], bytes: &[u8]| {
            let (dir, id, content) =
                (to.root(), to.reserve(Kind::File).expect("room"), Content::Bytes(bytes));
            to.apply(&Op::Create { dir, name, id, owner, content, time }).expect("a new name");
            id
        };
        let page = |number| Addr::new(SegmentId(0), number * PAGE_SIZE);
        let (short, target) = (make(b"short", &[7; 3 * 4096 - 100]), make(b"target", b""));
        let mut copied = CopiedPages::default();
        copied.note(page(9), (short, 0, 3 * PAGE_SIZE - 100));
        let clone = |at: u64| {
            let place = (target, at * PAGE_SIZE, (3 - at) * PAGE_SIZE);
            copied.clone_run(&to, page(9 + at), place, time).expect("no fault")
        };
        assert_eq!((clone(0), clone(2)), (2 * PAGE_SIZE, 0));
        let mut bytes = [0; 3 * 4096];
        assert_eq!(to.read(target, 0, &mut bytes).expect("alive"), 2 * 4096);
        assert!(bytes[..2 * 4096].iter().all(|&byte| byte == 7));
    }

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
