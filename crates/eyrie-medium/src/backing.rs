//! What stands behind the mapping of a medium, and the hooks by which it takes part in every access.
//!
//! Plain shared memory takes no part: each hook is then one test of a tag that never changes, and nothing else.

use std::panic::Location;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::addr::{Addr, LINE_SIZE};
use crate::copy;
use crate::fault::Fault;
use crate::image::CrashImage;
use crate::medium::Medium;
use crate::sync::interleave;
use crate::trace::Recorder;

const LINE: usize = LINE_SIZE as usize;

/// What stands behind the mapped bytes.
pub(crate) enum Backing {
    /// Nothing: the mapping is the medium.
    Dram,
    /// A record of every store and fence.
    Record(Recorder),
    /// A crash image whose lines are decided as they are met.
    Image(CrashImage),
}

impl Medium {
    #[inline(always)]
    fn is_plain(&self) -> bool {
        matches!(self.backing, Backing::Dram)
    }

    /// Announces a read before it happens. Nothing of it may be read if this fails.
    #[inline]
    pub(crate) fn before_access(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        interleave();
        if self.is_plain() { Ok(()) } else { self.reading(addr, len) }
    }

    /// Announces a store before it happens. Nothing of it may be stored if this fails.
    #[inline]
    pub(crate) fn before_store(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        interleave();
        if self.is_plain() { Ok(()) } else { self.storing(addr, len) }
    }

    /// Tells of a store that was made: `len` bytes at `addr`, which is mapped at `place`.
    #[inline]
    pub(crate) fn after_store(&self, addr: Addr, place: *const u8, len: usize) {
        if !self.is_plain() {
            self.stored(addr, place, len);
        }
    }

    /// Tells of words that were stored in this order to the line at `line`.
    #[inline]
    pub(crate) fn after_line(&self, line: Addr, words: &[(usize, u64)]) {
        if !self.is_plain() {
            self.line_stored(line, words);
        }
    }

    /// Tells of a fence, which comes after every store of the thread so far.
    #[inline]
    pub(crate) fn fence(&self, site: &'static Location<'static>) {
        compiler_fence(Ordering::SeqCst);
        if !self.is_plain() {
            self.fenced(site);
        }
    }

    #[cold]
    fn reading(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        if let Backing::Image(image) = &self.backing {
            self.decide(image, addr, len);
        }
        Ok(())
    }

    #[cold]
    fn storing(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        self.reading(addr, len)
    }

    #[cold]
    fn stored(&self, addr: Addr, place: *const u8, len: usize) {
        if let Backing::Record(recorder) = &self.backing {
            let mut bytes = vec![0; len];
            // SAFETY: `place` was resolved for `len` bytes, and the vector is as long.
            unsafe { copy::copy(bytes.as_mut_ptr(), place, len) };
            recorder.store(addr, &bytes);
        }
    }

    #[cold]
    fn line_stored(&self, line: Addr, words: &[(usize, u64)]) {
        if let Backing::Record(recorder) = &self.backing {
            for &(index, value) in words {
                recorder.store(line.add(index as u64 * 8), &value.to_le_bytes());
            }
        }
    }

    #[cold]
    fn fenced(&self, site: &'static Location<'static>) {
        if let Backing::Record(recorder) = &self.backing {
            recorder.fence(site);
        }
    }

    fn decide(&self, image: &CrashImage, addr: Addr, len: u64) {
        let load = |line: Addr| {
            let mut bytes = [0; LINE];
            if let Ok(place) = self.resolve(line, LINE_SIZE) {
                // SAFETY: a whole line was resolved.
                unsafe { copy::copy(bytes.as_mut_ptr(), place, LINE) };
            }
            bytes
        };
        let store = |line: Addr, bytes: &[u8; LINE]| {
            if let Ok(place) = self.resolve(line, LINE_SIZE) {
                // SAFETY: a whole line was resolved.
                unsafe { copy::copy(place, bytes.as_ptr(), LINE) };
            }
        };
        image.touch(addr, len, load, store);
    }
}
