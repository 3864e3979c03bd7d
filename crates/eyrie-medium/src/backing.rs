//! What stands behind the mapping of a medium, and the hooks by which it takes part in every access.
//!
//! Plain shared memory takes no part: each hook is then one test of a tag that never changes, and nothing else.

use std::panic::Location;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::addr::{Addr, LINE_SIZE, PAGE_SIZE};
use crate::copy;
use crate::fault::Fault;
use crate::image::CrashImage;
use crate::medium::Medium;
use crate::paged::Keeper;
use crate::plan::{Plan, SiteKind};
use crate::pmem::{Pmem, STREAM_FROM};
use crate::sync::interleave;
use crate::trace::Recorder;
use crate::turns;

const LINE: usize = LINE_SIZE as usize;

/// What stands behind the mapped bytes. The plain ones come first, so that the tests below are comparisons of one byte.
#[repr(u8)]
pub(crate) enum Backing {
    /// Nothing: the mapping is the medium.
    Dram,
    /// Memory that keeps what was written back to it.
    Pmem(Pmem),
    /// A disk, and the pages of it that are in memory.
    Paged(Keeper),
    /// A record of every store and fence.
    Record(Recorder),
    /// A crash image whose lines are decided as they are met.
    Image(CrashImage),
}

impl Medium {
    /// Whether stores need nothing but the mapping.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        matches!(self.backing, Backing::Dram)
    }

    /// Whether reads need nothing but the mapping.
    #[inline(always)]
    pub(crate) fn reads_plainly(&self) -> bool {
        matches!(self.backing, Backing::Dram | Backing::Pmem(_))
    }

    /// Whether what is stored may be seen before it lasts, which it does from the next fence on.
    pub fn lasts_from_fences(&self) -> bool {
        matches!(self.backing, Backing::Pmem(_) | Backing::Record(_))
    }

    /// Announces a read before it happens. Nothing of it may be read if this fails.
    #[inline]
    #[track_caller]
    pub(crate) fn before_access(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        interleave();
        if self.reads_plainly() { Ok(()) } else { self.reading(addr, len, Location::caller()) }
    }

    /// Announces a store before it happens. Nothing of it may be stored if this fails.
    #[inline]
    #[track_caller]
    pub(crate) fn before_store(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        interleave();
        if self.reads_plainly() { Ok(()) } else { self.storing(addr, len, Location::caller()) }
    }

    /// Announces a commit before it happens, and says whether it does. Nothing of it may be stored if this fails.
    #[inline]
    #[track_caller]
    pub(crate) fn before_publish(&self, addr: Addr, len: u64) -> Result<bool, Fault> {
        interleave();
        if self.reads_plainly() { Ok(true) } else { self.publishing(addr, len, Location::caller()) }
    }

    /// Whether a checksum on the medium is right. A test may leave the comparison out, and be content with any.
    #[track_caller]
    pub fn verify(&self, is_right: bool) -> bool {
        let location = Location::caller();
        let is_compared = self.plan().is_none_or(|plan| plan.point(SiteKind::Checksum, location));
        is_right || !is_compared
    }

    /// The plan of a test.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        match &self.backing {
            Backing::Record(recorder) => Some(recorder.plan()),
            Backing::Image(image) => Some(image.plan()),
            Backing::Dram | Backing::Pmem(_) | Backing::Paged(_) => None,
        }
    }

    /// Fails if a test has planned so.
    pub(crate) fn planned(&self, kind: SiteKind, location: &'static Location<'static>) -> Result<(), Fault> {
        match self.plan().and_then(|plan| plan.call(kind, location)) {
            None => Ok(()),
            Some(failure) => Err(failure.into()),
        }
    }

    /// Tells of a store that was made: `len` bytes at `addr`, which is mapped at `place`.
    #[inline]
    pub(crate) fn after_store(&self, addr: Addr, place: *const u8, len: usize) {
        if !self.is_plain() {
            self.stored(addr, place, len);
        }
    }

    /// Tells of words that were stored in this order to the line at `line`, which is mapped at `place`.
    #[inline]
    pub(crate) fn after_line(&self, line: Addr, place: *const u8, words: &[(usize, u64)]) {
        if !self.is_plain() {
            self.line_stored(line, place, words);
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

    /// Fails if a test has planned so for an access.
    fn planned_access(
        &self,
        kind: SiteKind,
        location: &'static Location<'static>,
        addr: Addr,
        len: u64,
    ) -> Result<(), Fault> {
        let pages = addr.raw() / PAGE_SIZE..(addr.raw() + len).div_ceil(PAGE_SIZE);
        match self.plan().and_then(|plan| plan.access(kind, location, pages)) {
            None => Ok(()),
            Some(failure) => Err(failure.into()),
        }
    }

    #[cold]
    fn reading(&self, addr: Addr, len: u64, location: &'static Location<'static>) -> Result<(), Fault> {
        self.planned_access(SiteKind::Read, location, addr, len)?;
        self.meet(addr, len)
    }

    #[cold]
    fn storing(&self, addr: Addr, len: u64, location: &'static Location<'static>) -> Result<(), Fault> {
        self.planned_access(SiteKind::Write, location, addr, len)?;
        self.change(addr, len)
    }

    #[cold]
    fn publishing(&self, addr: Addr, len: u64, location: &'static Location<'static>) -> Result<bool, Fault> {
        self.planned_access(SiteKind::Publish, location, addr, len)?;
        self.change(addr, len)?;
        Ok(self.plan().is_none_or(|plan| plan.point(SiteKind::Publish, location)))
    }

    fn meet(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        match &self.backing {
            Backing::Paged(keeper) => return keeper.pager().reading(addr.offset(), len),
            Backing::Image(image) => self.decide(image, addr, len),
            Backing::Dram | Backing::Pmem(_) | Backing::Record(_) => {}
        }
        Ok(())
    }

    fn change(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().storing(addr.offset(), len).inspect(|()| turns::step()),
            _ => self.meet(addr, len),
        }
    }

    #[cold]
    fn stored(&self, addr: Addr, place: *const u8, len: usize) {
        match &self.backing {
            // SAFETY: `place` was resolved for `len` bytes.
            Backing::Pmem(pmem) if len < STREAM_FROM => unsafe { pmem.write_back(place, len) },
            Backing::Record(recorder) => {
                let mut bytes = vec![0; len];
                // SAFETY: `place` was resolved for `len` bytes, and the vector is as long.
                unsafe { copy::copy(bytes.as_mut_ptr(), place, len) };
                recorder.store(addr, &bytes);
            }
            // Bulk stores to persistent memory have been streamed.
            Backing::Dram | Backing::Pmem(_) | Backing::Paged(_) | Backing::Image(_) => {}
        }
    }

    #[cold]
    fn line_stored(&self, line: Addr, place: *const u8, words: &[(usize, u64)]) {
        match &self.backing {
            // SAFETY: `place` was resolved for a line.
            Backing::Pmem(pmem) => unsafe { pmem.write_back(place, LINE) },
            Backing::Record(recorder) => {
                for &(index, value) in words {
                    recorder.store(line.add(index as u64 * 8), &value.to_le_bytes());
                }
            }
            Backing::Dram | Backing::Paged(_) | Backing::Image(_) => {}
        }
    }

    #[cold]
    fn fenced(&self, site: &'static Location<'static>) {
        match &self.backing {
            Backing::Pmem(pmem) => pmem.fence(),
            Backing::Record(recorder) => drop(recorder.fence(SiteKind::Fence, site)),
            Backing::Dram | Backing::Paged(_) | Backing::Image(_) => {}
        }
    }

    /// Copies to the medium, bulk data in the way that suits it.
    ///
    /// # Safety
    /// As [`copy::copy`], with `dst` in the medium.
    #[inline]
    pub(crate) unsafe fn copy_in(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: passed on.
        unsafe {
            if len >= STREAM_FROM
                && let Backing::Pmem(pmem) = &self.backing
            {
                pmem.copy(dst, src, len);
            } else {
                copy::copy(dst, src, len);
            }
        }
    }

    /// Sets bytes of the medium to zero, bulk data in the way that suits it.
    ///
    /// # Safety
    /// As [`copy::zero`], with `dst` in the medium.
    #[inline]
    pub(crate) unsafe fn zero_in(&self, dst: *mut u8, len: usize) {
        // SAFETY: passed on.
        unsafe {
            if len >= STREAM_FROM
                && let Backing::Pmem(pmem) = &self.backing
            {
                pmem.zero(dst, len);
            } else {
                copy::zero(dst, len);
            }
        }
    }

    fn decide(&self, image: &CrashImage, addr: Addr, len: u64) {
        let load = |line: Addr, out: &mut [u8]| {
            if let Ok(place) = self.resolve(line, out.len() as u64) {
                // SAFETY: as many bytes were resolved.
                unsafe { copy::copy(out.as_mut_ptr(), place, out.len()) };
            }
        };
        let store = |line: Addr, bytes: &[u8]| {
            if let Ok(place) = self.resolve(line, bytes.len() as u64) {
                // SAFETY: as many bytes were resolved.
                unsafe { copy::copy(place, bytes.as_ptr(), bytes.len()) };
            }
        };
        image.touch(addr, len, load, store);
    }
}
