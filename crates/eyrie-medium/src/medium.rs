//! The medium: checked access to the segments of a volume. The calls that order stores are in the module
//! `order`. On a disk each access may also fail with [`Fault::Io`] or [`Fault::Checksum`], because the page
//! may have to be read, and with [`Fault::Forked`] in a forked child. A store may also fail with
//! [`Fault::OpTooLarge`]. A store to the page cache of another process fails with [`Fault::ReadOnly`].

use std::fs::File;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::addr::Addr;
use crate::backing::Backing;
use crate::copy;
use crate::epoch::Guard;
use crate::fault::Fault;
use crate::mapping::{Mapping, Sentinel};
use crate::observe::{Mapped, Observer};
use crate::paged::PagedStats;
use crate::pmem::Pmem;
use crate::provider::Provider;
use crate::sync::{interleave, prefetch_line, prefetch_lines};
use crate::token::Dirty;

/// The kind of a medium. It decides which changes survive a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumKind {
    /// Shared memory of the host. Changes survive the death of the process. Private memory without an
    /// observer also has this kind, but its changes end with the process.
    Dram,
    /// Persistent memory of the host, mapped so that written-back lines are durable. Changes survive a power
    /// failure.
    Pmem,
    /// Pages of a disk. Changes up to the last durable cut survive a power failure.
    Paged,
    /// Memory of this process, for tests. A crash explorer decides which changes survive.
    Traced,
}

/// The mapped segments of one volume.
pub struct Medium {
    /// Copy of the base and length of segment 0. Nearly every access is to segment 0, and the copy saves such
    /// an access two loads.
    first: (NonNull<u8>, u64),
    /// The background thread that provides memory of the host ahead of need.
    pub(crate) provider: Option<Provider>,
    // Fields are dropped in the order of their declaration. The segments come before the sentinel, because
    // their registrations point to the word of the sentinel.
    pub(crate) segments: Box<[Arc<Mapping>]>,
    pub(crate) sentinel: Sentinel,
    pub(crate) backing: Backing,
}

// SAFETY: `first` names the memory of `segments[0]`, which is Send and Sync.
unsafe impl Send for Medium {}
// SAFETY: as for Send.
unsafe impl Sync for Medium {}

/// Aligned words of a medium. Their addresses were checked in one step, so a load checks only its index.
#[derive(Clone, Copy)]
pub struct Words<'m>(&'m [AtomicU64]);

impl Words<'_> {
    /// Loads word `index` with acquire ordering.
    #[inline(always)]
    #[track_caller]
    pub fn load(self, index: usize) -> u64 {
        interleave();
        self.0[index].load(Ordering::Acquire)
    }

    /// Loads the first `N` words, in order.
    #[inline(always)]
    pub fn load_all<const N: usize>(self) -> [u64; N] {
        std::array::from_fn(|index| self.load(index))
    }
}

impl Medium {
    /// Makes a medium of segments that are mapped already.
    pub(crate) fn over(segments: Box<[Arc<Mapping>]>, sentinel: Sentinel, backing: Backing) -> Medium {
        let first =
            segments.first().map_or((NonNull::dangling(), 0), |segment| (segment.start(), segment.len()));
        Medium { first, provider: None, segments, sentinel, backing }
    }

    /// Maps host files as segments 0, 1, ... The number with each file is the number of bytes to map.
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses a mapping.
    pub fn dram(files: Vec<(File, u64)>) -> Result<Medium, Fault> {
        Medium::host(files, false, Backing::Dram)
    }

    /// As [`Medium::dram`], for files on persistent memory.
    ///
    /// # Errors
    /// [`Fault::NotSynchronous`] when a file is not on persistent memory or its file system is not mounted
    /// with DAX. [`Fault::Io`] when the host refuses a mapping.
    pub fn pmem(files: Vec<(File, u64)>) -> Result<Medium, Fault> {
        Medium::host(files, true, Backing::Pmem(Pmem::new()))
    }

    /// Maps one file of any file system as persistent memory, with `MAP_SYNC` where the host supports that.
    /// This function is for tests, because without `MAP_SYNC` a fence makes no store durable.
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses the mapping.
    #[cfg(feature = "testing")]
    pub fn pmem_anywhere(file: File, len: u64) -> Result<Medium, Fault> {
        let copy =
            file.try_clone().map_err(|source| Fault::Io { what: "copying a handle".into(), source })?;
        match Medium::pmem(vec![(copy, len)]) {
            Err(Fault::NotSynchronous) => Medium::host(vec![(file, len)], false, Backing::Pmem(Pmem::new())),
            mapped => mapped,
        }
    }

    /// Maps host files as segments, with `MAP_SYNC` if `synchronously` is true.
    fn host(files: Vec<(File, u64)>, synchronously: bool, backing: Backing) -> Result<Medium, Fault> {
        let sentinel = Sentinel::new()?;
        let segments = files
            .into_iter()
            .map(|(file, len)| Mapping::file(file, len, &sentinel, synchronously).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Medium { provider: Some(Provider::new()), ..Medium::over(segments, sentinel, backing) })
    }

    /// Maps a host file as segment 0, copy-on-write, so that no store reaches the file. Only changed pages
    /// take memory.
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses the mapping.
    pub fn copy_of(file: &File, len: u64) -> Result<Medium, Fault> {
        let sentinel = Sentinel::new()?;
        let segment = Arc::new(Mapping::copy(file, len, &sentinel)?);
        Ok(Medium::over(Box::new([segment]), sentinel, Backing::Dram))
    }

    /// Makes a medium of one segment of private memory, `len` bytes of zeros. The bytes are lost when the
    /// medium is dropped.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn memory(len: u64) -> Result<Medium, Fault> {
        Medium::private(len, false)
    }

    /// Makes a medium of one segment of private memory that holds `bytes`.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn memory_holding(bytes: &[u8]) -> Result<Medium, Fault> {
        let medium = Medium::private(bytes.len() as u64, true)?;
        // SAFETY: the segment is as long as `bytes`, and no other code has a reference to it yet.
        unsafe { copy::copy(medium.segments[0].base(), bytes.as_ptr(), bytes.len()) };
        Ok(medium)
    }

    /// Returns the medium under an observer.
    ///
    /// # Panics
    /// If the medium is on a disk, because a test observes the disk itself instead.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Medium {
        match &mut self.backing {
            Backing::Pmem(pmem) => pmem.observe(observer, self.segments[0].base()),
            Backing::Dram | Backing::Observed(_) => self.backing = Backing::Observed(observer),
            Backing::Paged(_) | Backing::Remote(_) => panic!("a disk is observed, not its medium"),
        }
        self
    }

    /// Makes a medium of one segment of private memory. If `filled` is true, the caller is about to store to
    /// all of it.
    fn private(len: u64, filled: bool) -> Result<Medium, Fault> {
        let segments = Box::new([Arc::new(Mapping::anonymous(len, filled)?)]);
        Ok(Medium::over(segments, Sentinel::new()?, Backing::Dram))
    }

    /// Returns the kind of the medium.
    pub fn kind(&self) -> MediumKind {
        match self.backing {
            Backing::Dram => MediumKind::Dram,
            Backing::Pmem(_) => MediumKind::Pmem,
            Backing::Paged(_) | Backing::Remote(_) => MediumKind::Paged,
            Backing::Observed(_) => MediumKind::Traced,
        }
    }

    /// Returns the length of each segment, in bytes.
    pub fn segment_sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().map(|segment| segment.len())
    }

    /// Returns the memory of the cached pages of a disk, in bytes. Returns `None` if the medium has no disk.
    pub fn resident_bytes(&self) -> Option<u64> {
        match &self.backing {
            Backing::Paged(keeper) => Some(keeper.pager().resident() as u64 * crate::addr::PAGE_SIZE),
            _ => None,
        }
    }

    /// Returns the state and the work of the page cache. Returns `None` if the medium has no disk.
    pub fn paged_stats(&self) -> Option<PagedStats> {
        match &self.backing {
            Backing::Paged(keeper) => Some(keeper.pager().stats()),
            _ => None,
        }
    }

    /// Returns a copy of segment 0 as the program sees it now. On a disk, the copy has zeros for pages that
    /// are not in memory.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.segments[0].len() as usize];
        // SAFETY: the vector is as long as the segment.
        unsafe { copy::copy(bytes.as_mut_ptr(), self.segments[0].base(), bytes.len()) };
        bytes
    }

    /// Checks that the medium is sound and belongs to this process. Callers call this at the start of every
    /// Op, and again after reads, because a read of a failed mapping finds zeros.
    ///
    /// # Errors
    /// [`Fault::Forked`] in a forked child. [`Fault::Failed`] after a mapping has failed.
    #[inline]
    pub fn check(&self) -> Result<(), Fault> {
        self.sentinel.check()
    }

    /// Returns true if a fence makes the earlier stores of its thread durable. On such a medium other threads
    /// may see a store before it is durable.
    pub fn fences_make_durable(&self) -> bool {
        match &self.backing {
            Backing::Pmem(_) => true,
            Backing::Observed(observer) => observer.fences_make_durable(),
            Backing::Dram | Backing::Paged(_) | Backing::Remote(_) => false,
        }
    }

    /// Returns `is_right`, the result of comparing a checksum on the medium. Returns true in any case if a
    /// test leaves this comparison out.
    #[track_caller]
    pub fn verify(&self, is_right: bool) -> bool {
        let caller = Location::caller();
        let is_compared = self.backing.observer().is_none_or(|observer| observer.compares_checksum(caller));
        is_right || !is_compared
    }

    /// Returns the mapped bytes, for an observer.
    #[inline(always)]
    pub(crate) fn mapped(&self) -> Mapped<'_> {
        Mapped::new(&self.segments)
    }

    /// Returns the pointer to `len` bytes at `addr`, if all of them are in one segment.
    #[inline(always)]
    pub(crate) fn resolve(&self, addr: Addr, len: u64) -> Result<*mut u8, Fault> {
        let (base, size) = self.first;
        if addr.raw().checked_add(len).is_some_and(|end| end <= size) {
            // SAFETY: in segment 0 the raw form is the offset, and offset + len is within the mapping.
            return Ok(unsafe { base.as_ptr().add(addr.raw() as usize) });
        }
        self.resolve_further(addr, len)
    }

    /// Resolves a range that is not wholly within segment 0.
    #[cold]
    fn resolve_further(&self, addr: Addr, len: u64) -> Result<*mut u8, Fault> {
        let segment = self.segments.get(addr.segment_index());
        let place = segment.and_then(|segment| segment.place_of(addr.offset(), len));
        place.ok_or(Fault::OutOfBounds { addr, len })
    }

    /// Resolves an aligned word.
    #[inline(always)]
    pub(crate) fn resolve_word(&self, addr: Addr) -> Result<&AtomicU64, Fault> {
        let place = self.resolve(addr, 8)?;
        if !addr.is_aligned(8) {
            return Err(Fault::Misaligned { addr });
        }
        // SAFETY: the eight bytes are mapped, and aligned because segments are page-aligned. Words that a
        // thread may change are accessed only atomically, or by copies in inline assembly, about which the
        // compiler assumes nothing.
        Ok(unsafe { AtomicU64::from_ptr(place.cast()) })
    }

    /// Resolves `count` aligned words. `count * 8` must not overflow.
    #[inline(always)]
    pub(crate) fn resolve_words(&self, addr: Addr, count: usize) -> Result<&[AtomicU64], Fault> {
        let place = self.resolve(addr, count as u64 * 8)?;
        if !addr.is_aligned(8) {
            return Err(Fault::Misaligned { addr });
        }
        // SAFETY: the words are mapped and aligned, and live as long as the medium. Words that a thread may
        // change are accessed only as `resolve_word` says.
        Ok(unsafe { std::slice::from_raw_parts(place.cast::<AtomicU64>(), count) })
    }

    /// Loads an aligned word with acquire ordering.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`].
    #[inline]
    #[track_caller]
    pub fn load(&self, addr: Addr) -> Result<u64, Fault> {
        let word = self.resolve_word(addr)?;
        self.backing.before_read(self.mapped(), addr, 8)?;
        Ok(word.load(Ordering::Acquire))
    }

    /// Checks the bounds of `count` aligned words. A load from the [`Words`] then checks only the index of
    /// the word.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`].
    #[inline(always)]
    #[track_caller]
    pub fn words(&self, addr: Addr, count: usize) -> Result<Words<'_>, Fault> {
        let words = self.resolve_words(addr, count)?;
        self.backing.before_read(self.mapped(), addr, count as u64 * 8)?;
        Ok(Words(words))
    }

    /// Fills `out` from `addr` on. If another thread writes at the same time, `out` may get any mix of old
    /// and new bytes, also within an aligned word. [`Medium::load`] reads a word whole.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    #[track_caller]
    pub fn read(&self, addr: Addr, out: &mut [u8]) -> Result<(), Fault> {
        let place = self.resolve(addr, out.len() as u64)?;
        self.backing.before_read(self.mapped(), addr, out.len() as u64)?;
        // SAFETY: both sides are valid for the length; `out` is borrowed exclusively and is not mapped
        // memory.
        unsafe { copy::copy(out.as_mut_ptr(), place, out.len()) };
        // The compiler does not see the loads of the copy. The fence keeps the compiler from moving the
        // caller's check of a version word before these loads.
        compiler_fence(Ordering::Acquire);
        Ok(())
    }

    /// Reads a plain structure at `addr`, unverified. If another thread writes at the same time, the
    /// structure may get any mix of old and new bytes.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    #[track_caller]
    pub fn read_value<T: FromBytes + IntoBytes>(&self, addr: Addr) -> Result<T, Fault> {
        let mut value = T::new_zeroed();
        self.read(addr, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Borrows bytes in place for as long as `_guard` keeps the current epoch pinned.
    ///
    /// The caller is an engine that holds the volume exclusively, or that has it open read-only, when all
    /// other engines of the volume are read-only, too. Or it is a client of the service that holds the volume
    /// exclusively, and the service watches the pins of the client until the end of its session. The caller
    /// must ensure that no code, also of the service, stores to these bytes while a published pointer leads
    /// to them, nor in the grace period after that. Extents that are never changed in place are such bytes.
    ///
    /// The caller also relies on a sound volume. In a damaged volume, two objects may have the same extent. A
    /// write to one object would then change the bytes that this call returned for the other.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    #[track_caller]
    pub fn bytes<'a>(&'a self, addr: Addr, len: u64, _guard: &'a Guard) -> Result<&'a [u8], Fault> {
        let place = self.resolve(addr, len)?;
        self.backing.before_read(self.mapped(), addr, len)?;
        // SAFETY: the range is mapped. By the contract above no thread, also of a service, changes it while
        // the guard lives. The lock of the volume keeps all other writers away. If the lock is shared, each
        // holder maps the volume privately or keeps its stores in memory, so its recovery changes no byte.
        Ok(unsafe { std::slice::from_raw_parts(place, len as usize) })
    }

    /// Prefetches the lines of `len` bytes at `addr` into the second-level cache. Does nothing if the range
    /// is not wholly in the volume.
    #[inline]
    pub fn prefetch_bytes(&self, addr: Addr, len: u64) {
        if let Ok(place) = self.resolve(addr, len) {
            prefetch_lines(place, len as usize);
        }
    }

    /// Prefetches the line at `addr`. Does nothing if the address is outside the volume.
    #[inline]
    pub fn prefetch(&self, addr: Addr) {
        if let Ok(place) = self.resolve(addr, 1) {
            prefetch_line(place);
        }
    }

    /// Stores `bytes` at `addr`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. After an error nothing was stored.
    #[inline]
    #[track_caller]
    pub fn write(&self, addr: Addr, bytes: &[u8]) -> Result<Dirty, Fault> {
        let place = self.resolve(addr, bytes.len() as u64)?;
        self.backing.before_store(self.mapped(), addr, bytes.len() as u64)?;
        // SAFETY: both sides are valid for the length. Racing readers load atomically or copy by inline
        // assembly, and validate the bytes.
        unsafe { self.backing.copy_in(place, bytes.as_ptr(), bytes.len()) };
        self.backing.after_store(addr, place, bytes.len());
        Ok(Dirty::new())
    }

    /// As [`Medium::write`], but past the caches. This is faster if the lines at `addr` are not cached.
    ///
    /// # Errors
    /// As [`Medium::write`].
    #[track_caller]
    pub fn write_past_caches(&self, addr: Addr, bytes: &[u8]) -> Result<Dirty, Fault> {
        let place = self.resolve(addr, bytes.len() as u64)?;
        self.backing.before_store(self.mapped(), addr, bytes.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { self.backing.copy_in_past_caches(place, bytes.as_ptr(), bytes.len()) };
        self.backing.after_store(addr, place, bytes.len());
        Ok(Dirty::new())
    }

    /// Stores a plain structure at `addr`.
    ///
    /// # Errors
    /// As [`Medium::write`].
    #[inline]
    #[track_caller]
    pub fn write_value<T: IntoBytes + Immutable>(&self, addr: Addr, value: &T) -> Result<Dirty, Fault> {
        self.write(addr, value.as_bytes())
    }

    /// Stores an aligned word that no reader can reach yet.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]. After an error nothing was stored.
    #[inline]
    #[track_caller]
    pub fn write_word(&self, addr: Addr, value: u64) -> Result<Dirty, Fault> {
        self.store_word(addr, value)?;
        Ok(Dirty::new())
    }

    /// Stores consecutive aligned words that no reader can reach yet.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]. After an error nothing was stored.
    #[inline]
    #[track_caller]
    pub fn write_words(&self, addr: Addr, words: impl ExactSizeIterator<Item = u64>) -> Result<Dirty, Fault> {
        let places = self.resolve_words(addr, words.len())?;
        let len = size_of_val(places);
        debug_assert!(len < crate::pmem::STREAM_FROM, "long data is streamed, with `write`");
        self.backing.before_store(self.mapped(), addr, len as u64)?;
        for (place, word) in places.iter().zip(words) {
            place.store(word, Ordering::Release);
        }
        self.backing.after_store(addr, places.as_ptr().cast(), len);
        Ok(Dirty::new())
    }

    /// Stores `len` zero bytes at `addr`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. After an error nothing was stored.
    #[track_caller]
    pub fn zero(&self, addr: Addr, len: u64) -> Result<Dirty, Fault> {
        let place = self.resolve(addr, len)?;
        self.backing.before_store(self.mapped(), addr, len)?;
        // SAFETY: the range is mapped for the length.
        unsafe { self.backing.zero_in(place, len as usize) };
        self.backing.after_store(addr, place, len as usize);
        Ok(Dirty::new())
    }

    /// Copies `len` bytes from `from` to `to`. The two ranges must not overlap.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. After an error nothing was stored.
    #[track_caller]
    pub fn copy(&self, to: Addr, from: Addr, len: u64) -> Result<Dirty, Fault> {
        let src = self.resolve(from, len)?;
        let dst = self.resolve(to, len)?;
        debug_assert!(to.raw() + len <= from.raw() || from.raw() + len <= to.raw());
        self.backing.before_read(self.mapped(), from, len)?;
        self.backing.before_store(self.mapped(), to, len)?;
        // SAFETY: both ranges are mapped for the length. An overlap would only mix bytes of one mapping, in
        // inline assembly.
        unsafe { self.backing.copy_in(dst, src, len as usize) };
        self.backing.after_store(to, dst, len as usize);
        Ok(Dirty::new())
    }
}
