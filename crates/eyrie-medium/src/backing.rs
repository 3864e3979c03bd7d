//! The backing of a medium (the storage behind its mapping), and its hooks: functions that run before or
//! after an access.
//!
//! Plain shared memory needs no hooks. Each hook is then only a test of the tag of [`Backing`], which does
//! not change while a medium is in use.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::addr::{Addr, LINE_SIZE};
use crate::copy;
use crate::fault::Fault;
use crate::observe::{Mapped, Observer};
use crate::paged::{Keeper, RemotePages};
use crate::pmem::{Pmem, STREAM_FROM};
use crate::site::{Caller, SiteKind};
use crate::sync::{interleave, schedule};

const LINE: usize = LINE_SIZE as usize;

/// The backing of the mapped bytes. The variants without read hooks come first, so that
/// [`Backing::has_no_hooks_before`] is one comparison of a byte.
#[repr(u8)]
pub(crate) enum Backing {
    /// No backing: the mapping is the medium.
    Dram,
    /// Persistent memory. Lines that were written back survive a power failure.
    Pmem(Pmem),
    /// A disk, and the page cache over it.
    Paged(Keeper),
    /// The page cache of another process, which this process only reads.
    Remote(RemotePages),
    /// Memory under the observer of a test.
    Observed(Arc<dyn Observer>),
}

impl Backing {
    /// Returns true if stores need no hook after them, and fences need no hook.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        matches!(self, Backing::Dram)
    }

    /// Returns true if reads, stores and commits need no hook before them.
    #[inline(always)]
    pub(crate) fn has_no_hooks_before(&self) -> bool {
        matches!(self, Backing::Dram | Backing::Pmem(_))
    }

    /// Returns the observer of a traced medium. (The observer of persistent memory is in [`Pmem`].)
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        match self {
            Backing::Observed(observer) => Some(&**observer),
            Backing::Dram | Backing::Pmem(_) | Backing::Paged(_) | Backing::Remote(_) => None,
        }
    }

    /// Announces a read before it happens. On an error the caller must not read.
    #[inline]
    #[track_caller]
    pub(crate) fn before_read(&self, mapped: Mapped<'_>, addr: Addr, len: u64) -> Result<(), Fault> {
        interleave();
        if self.has_no_hooks_before() { Ok(()) } else { self.reading(mapped, addr, len, Location::caller()) }
    }

    /// Announces a store before it happens. On an error the caller must not store.
    #[inline]
    #[track_caller]
    pub(crate) fn before_store(&self, mapped: Mapped<'_>, addr: Addr, len: u64) -> Result<(), Fault> {
        interleave();
        if self.has_no_hooks_before() { Ok(()) } else { self.storing(mapped, addr, len, Location::caller()) }
    }

    /// Announces a commit before it happens. Returns false if a test leaves the commit out, and the caller
    /// then skips it. On an error the caller must not store.
    #[inline]
    #[track_caller]
    pub(crate) fn before_publish(&self, mapped: Mapped<'_>, addr: Addr, len: u64) -> Result<bool, Fault> {
        interleave();
        if self.has_no_hooks_before() {
            Ok(true)
        } else {
            self.publishing(mapped, addr, len, Location::caller())
        }
    }

    /// Announces a call that may fail. On an error the caller must not make the call.
    pub(crate) fn before_call(&self, kind: SiteKind, caller: Caller) -> Result<(), Fault> {
        self.observer().map_or(Ok(()), |observer| observer.before_call(kind, caller))
    }

    /// Reports a store of `len` bytes at `addr`, which is mapped at `place`.
    #[inline]
    pub(crate) fn after_store(&self, addr: Addr, place: *const u8, len: usize) {
        if !self.is_plain() {
            self.stored(addr, place, len);
        }
    }

    /// Reports words that were stored, in this order, to the line at `line`, which is mapped at `place`.
    #[inline]
    pub(crate) fn after_line(&self, line: Addr, place: *const u8, words: &[(usize, u64)]) {
        if !self.is_plain() {
            self.line_stored(line, place, words);
        }
    }

    /// Orders the earlier stores of this thread before its later stores.
    #[inline]
    pub(crate) fn fence(&self, caller: Caller) {
        // On `dram` the fence needs no instruction, because x86 keeps the stores of a thread in order, and no
        // store survives a power failure. Only the compiler must not reorder the stores.
        compiler_fence(Ordering::SeqCst);
        if !self.is_plain() {
            self.fenced(caller);
        }
    }

    #[cold]
    pub(crate) fn reading(
        &self,
        mapped: Mapped<'_>,
        addr: Addr,
        len: u64,
        caller: Caller,
    ) -> Result<(), Fault> {
        match self {
            Backing::Paged(keeper) => keeper.pager().before_read(addr.offset(), len),
            Backing::Remote(remote) => remote.before_read(addr.offset(), len),
            Backing::Observed(observer) => observer.before_read(mapped, addr, len, caller),
            Backing::Dram | Backing::Pmem(_) => Ok(()),
        }
    }

    #[cold]
    fn storing(&self, mapped: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        match self {
            Backing::Paged(keeper) => {
                keeper.pager().before_store(addr.offset(), len).inspect(|()| schedule::step())
            }
            Backing::Observed(observer) => observer.before_store(mapped, addr, len, caller),
            Backing::Remote(_) => Err(Fault::ReadOnly),
            Backing::Dram | Backing::Pmem(_) => Ok(()),
        }
    }

    #[cold]
    fn publishing(&self, mapped: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<bool, Fault> {
        match self {
            Backing::Observed(observer) => observer.before_publish(mapped, addr, len, caller),
            _ => self.storing(mapped, addr, len, caller).map(|()| true),
        }
    }

    #[cold]
    fn stored(&self, addr: Addr, place: *const u8, len: usize) {
        match self {
            // SAFETY: the caller has resolved `place` for `len` bytes.
            Backing::Pmem(pmem) if len < STREAM_FROM => unsafe { pmem.write_back(place, len) },
            Backing::Observed(observer) => {
                let mut bytes = vec![0; len];
                // SAFETY: the caller has resolved `place` for `len` bytes, and the vector is as long.
                unsafe { copy::copy(bytes.as_mut_ptr(), place, len) };
                observer.after_store(addr, &bytes);
            }
            // A store of `STREAM_FROM` bytes or more to persistent memory was streamed past the caches, and
            // its ends were written back. So no line needs a write-back here.
            Backing::Dram | Backing::Pmem(_) | Backing::Paged(_) | Backing::Remote(_) => {}
        }
    }

    #[cold]
    fn line_stored(&self, line: Addr, place: *const u8, words: &[(usize, u64)]) {
        match self {
            // SAFETY: the caller has resolved `place` for a line.
            Backing::Pmem(pmem) => unsafe { pmem.write_back(place, LINE) },
            Backing::Observed(observer) => {
                for &(index, value) in words {
                    observer.after_store(line.add(index as u64 * 8), &value.to_le_bytes());
                }
            }
            Backing::Dram | Backing::Paged(_) | Backing::Remote(_) => {}
        }
    }

    #[cold]
    fn fenced(&self, caller: Caller) {
        match self {
            Backing::Pmem(pmem) => pmem.fence(caller),
            Backing::Observed(observer) => observer.fence(caller),
            Backing::Dram | Backing::Paged(_) | Backing::Remote(_) => {}
        }
    }

    /// Copies bytes to the medium. A copy of [`STREAM_FROM`] bytes or more to persistent memory is streamed
    /// past the caches.
    ///
    /// # Safety
    /// As [`copy::copy`], with `dst` in the medium.
    #[inline]
    pub(crate) unsafe fn copy_in(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller keeps the contract of the functions called here.
        unsafe {
            if len >= STREAM_FROM
                && let Backing::Pmem(pmem) = self
            {
                pmem.copy(dst, src, len);
            } else {
                copy::copy(dst, src, len);
            }
        }
    }

    /// Copies bytes past the caches to the medium, and ends with a store fence. On persistent memory and on a
    /// traced medium this function only calls [`Backing::copy_in`]. It needs no fence there, because each
    /// barrier of persistent memory is a store fence, and the copy to a traced medium goes through the
    /// caches.
    ///
    /// # Safety
    /// As [`copy::copy`], with `dst` in the medium.
    pub(crate) unsafe fn copy_in_past_caches(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller keeps the contract of the functions called here.
        unsafe {
            match self {
                Backing::Dram | Backing::Paged(_) | Backing::Remote(_) => {
                    copy::copy_past_caches(dst, src, len)
                }
                Backing::Pmem(_) | Backing::Observed(_) => self.copy_in(dst, src, len),
            }
        }
    }

    /// Sets bytes of the medium to zero. If the range is [`STREAM_FROM`] bytes or more of persistent memory,
    /// the zeros are streamed past the caches.
    ///
    /// # Safety
    /// As [`copy::zero`], with `dst` in the medium.
    #[inline]
    pub(crate) unsafe fn zero_in(&self, dst: *mut u8, len: usize) {
        // SAFETY: the caller keeps the contract of the functions called here.
        unsafe {
            if len >= STREAM_FROM
                && let Backing::Pmem(pmem) = self
            {
                pmem.zero(dst, len);
            } else {
                copy::zero(dst, len);
            }
        }
    }
}
