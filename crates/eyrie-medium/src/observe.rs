//! The trait by which a test observes a medium.
//!
//! An observer reads and writes mapped bytes only through [`Mapped`], so an observer needs no unsafe code.

use std::sync::Arc;

use crate::addr::Addr;
use crate::copy;
use crate::fault::Fault;
use crate::mapping::Mapping;
use crate::site::{Caller, SiteKind};

/// The mapped bytes of an observed medium.
#[derive(Clone, Copy)]
pub struct Mapped<'m>(&'m [Arc<Mapping>]);

impl<'m> Mapped<'m> {
    #[inline(always)]
    pub(crate) fn new(segments: &'m [Arc<Mapping>]) -> Mapped<'m> {
        Mapped(segments)
    }

    /// Returns the pointer to `len` bytes at `addr`, if all of them are in one segment.
    fn place(self, addr: Addr, len: usize) -> Result<*mut u8, Fault> {
        let segment = self.0.get(addr.segment_index());
        let place = segment.and_then(|segment| segment.place_of(addr.offset(), len as u64));
        place.ok_or(Fault::OutOfBounds { addr, len: len as u64 })
    }

    /// Fills `out` from `addr` on. The observer is not called for this read.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    pub fn read(self, addr: Addr, out: &mut [u8]) -> Result<(), Fault> {
        let place = self.place(addr, out.len())?;
        // SAFETY: `place` is mapped for the length. `out` is borrowed exclusively and is not mapped memory.
        unsafe { copy::copy(out.as_mut_ptr(), place, out.len()) };
        Ok(())
    }

    /// Stores `bytes` at `addr`. The observer is not called for this store.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    pub fn write(self, addr: Addr, bytes: &[u8]) -> Result<(), Fault> {
        let place = self.place(addr, bytes.len())?;
        // SAFETY: `place` is mapped for the length. Racing readers copy by inline assembly, about which the
        // compiler assumes nothing.
        unsafe { copy::copy(place, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}

/// Observes a medium. A medium of kind [`Traced`](crate::MediumKind::Traced) calls every method except
/// [`Observer::after_write_back`]. Persistent memory calls only that method and [`Observer::fence`]. By
/// default each method changes nothing: an observer overrides those that it needs.
pub trait Observer: Send + Sync {
    /// Called before a read of `len` bytes at `addr`.
    ///
    /// # Errors
    /// The error that the read returns instead.
    fn before_read(&self, mapped: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        let _ = (mapped, addr, len, caller);
        Ok(())
    }

    /// Called before a store of `len` bytes at `addr`.
    ///
    /// # Errors
    /// The error that the store returns instead.
    fn before_store(&self, mapped: Mapped<'_>, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        let _ = (mapped, addr, len, caller);
        Ok(())
    }

    /// Called before a commit of words within the `len` bytes at `addr`. Returns false to leave the commit
    /// out.
    ///
    /// # Errors
    /// The error that the commit returns instead.
    fn before_publish(
        &self,
        mapped: Mapped<'_>,
        addr: Addr,
        len: u64,
        caller: Caller,
    ) -> Result<bool, Fault> {
        let _ = (mapped, addr, len, caller);
        Ok(true)
    }

    /// Called after `bytes` were stored at `addr`.
    fn after_store(&self, addr: Addr, bytes: &[u8]) {
        let _ = (addr, bytes);
    }

    /// Called after whole lines of persistent memory at `addr`, which hold `bytes`, were written back or
    /// streamed past the caches.
    fn after_write_back(&self, addr: Addr, bytes: &[u8]) {
        let _ = (addr, bytes);
    }

    /// Called at a fence, which orders the earlier stores of this thread before its later stores.
    fn fence(&self, caller: Caller) {
        let _ = caller;
    }

    /// Called at a flush, which makes all stores of all threads and processes durable.
    fn flush(&self, caller: Caller) {
        let _ = caller;
    }

    /// Called when a checksum is compared. Returns false to leave the comparison out.
    fn compares_checksum(&self, caller: Caller) -> bool {
        let _ = caller;
        true
    }

    /// Called before a call that allocates, provisions or discards storage.
    ///
    /// # Errors
    /// The error that the call returns instead.
    fn before_call(&self, kind: SiteKind, caller: Caller) -> Result<(), Fault> {
        let _ = (kind, caller);
        Ok(())
    }

    /// Returns true if the medium behaves like persistent memory: a fence makes the earlier stores of its
    /// thread durable, and other threads may see a store before that fence.
    fn fences_make_durable(&self) -> bool {
        false
    }
}
