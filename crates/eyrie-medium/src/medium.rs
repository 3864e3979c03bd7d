//! The medium: checked access to the segments of a volume. The module `order` has its ordering.

use std::fs::File;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::addr::Addr;
use crate::ahead::Ahead;
use crate::backing::Backing;
use crate::copy;
use crate::epoch::Guard;
use crate::fault::Fault;
use crate::image::{CrashImage, ImageBase};
use crate::mapping::{Mapping, Sentinel};
use crate::pmem::Pmem;
use crate::sync::{interleave, prefetch_line};
use crate::token::Dirty;
use crate::trace::Recorder;
#[cfg(feature = "testing")]
use crate::written::WrittenBack;

/// What a medium is, and so what survives on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumKind {
    /// Shared memory of the host: survives the death of the process.
    Dram,
    /// Persistent memory of the host, mapped so that what is written back is durable: survives a failure of power.
    Pmem,
    /// Pages of a disk: survives power failures as of the last drain.
    Paged,
    /// Memory of this process, for tests: what survives is what a crash explorer decides.
    Traced,
}

/// The mapped segments of one volume.
pub struct Medium {
    /// Segment 0's place and length once more: nearly every access is to it.
    first: (NonNull<u8>, u64),
    /// Where the host is asked for memory ahead of need.
    pub(crate) ahead: Option<Ahead>,
    // Dropped before the sentinel, which their registrations point to.
    pub(crate) segments: Box<[Arc<Mapping>]>,
    sentinel: Sentinel,
    pub(crate) backing: Backing,
}

// SAFETY: `first` names the memory of `segments[0]`, which is Send and Sync.
unsafe impl Send for Medium {}
// SAFETY: as above.
unsafe impl Sync for Medium {}

/// Aligned words, for reading one by one without further checks.
#[derive(Clone, Copy)]
pub struct Words<'m>(&'m [AtomicU64]);

impl Words<'_> {
    /// Word `index`, with acquire ordering.
    #[inline(always)]
    #[track_caller]
    pub fn load(self, index: usize) -> u64 {
        interleave();
        self.0[index].load(Ordering::Acquire)
    }

    /// The first `N` words, in order.
    #[inline(always)]
    pub fn load_all<const N: usize>(self) -> [u64; N] {
        std::array::from_fn(|index| self.load(index))
    }
}

impl Medium {
    pub(crate) fn over(segments: Box<[Arc<Mapping>]>, sentinel: Sentinel, backing: Backing) -> Medium {
        let first =
            segments.first().map_or((NonNull::dangling(), 0), |segment| (segment.place(), segment.len()));
        Medium { first, ahead: None, segments, sentinel, backing }
    }

    /// Maps host files (with how many bytes of each) as segments 0, 1, ...
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses a mapping.
    pub fn dram(files: Vec<(File, u64)>) -> Result<Medium, Fault> {
        Medium::host(files, false, Backing::Dram)
    }

    /// As [`Medium::dram`], for files on persistent memory.
    ///
    /// # Errors
    /// [`Fault::NotSynchronous`] when a file is on no persistent memory, or not mounted with DAX; [`Fault::Io`].
    pub fn pmem(files: Vec<(File, u64)>) -> Result<Medium, Fault> {
        Medium::host(files, true, Backing::Pmem(Pmem::new()))
    }

    /// Maps one file as persistent memory wherever it is, synchronously if the host does that, and records what is
    /// written back. Nothing on it survives more than its host does.
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses the mapping.
    #[cfg(feature = "testing")]
    pub fn pmem_anywhere(file: File, len: u64) -> Result<(Medium, WrittenBack), Fault> {
        let copy =
            file.try_clone().map_err(|source| Fault::Io { what: "copying a handle".into(), source })?;
        let mut medium = match Medium::pmem(vec![(copy, len)]) {
            Err(Fault::NotSynchronous) => Medium::host(vec![(file, len)], false, Backing::Pmem(Pmem::new())),
            mapped => mapped,
        }?;
        // SAFETY: the first segment is mapped.
        let written = unsafe { WrittenBack::new(medium.segments[0].base(), len as usize) };
        if let Backing::Pmem(pmem) = &mut medium.backing {
            pmem.written = Some(written.clone());
        }
        Ok((medium, written))
    }

    fn host(files: Vec<(File, u64)>, synchronously: bool, backing: Backing) -> Result<Medium, Fault> {
        let sentinel = Sentinel::new()?;
        let segments = files
            .into_iter()
            .map(|(file, len)| Mapping::file(file, len, &sentinel, synchronously).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Medium { ahead: Some(Ahead::new()), ..Medium::over(segments, sentinel, backing) })
    }

    /// Maps a host file as segment 0 for this medium alone: nothing that is stored reaches the file. Only pages that are
    /// changed take memory.
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses the mapping.
    pub fn copy_of(file: &File, len: u64) -> Result<Medium, Fault> {
        let sentinel = Sentinel::new()?;
        let segment = Arc::new(Mapping::copy(file, len, &sentinel)?);
        Ok(Medium::over(Box::new([segment]), sentinel, Backing::Dram))
    }

    /// One segment of private memory, `len` bytes of zeros, every store and fence recorded.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn traced(len: u64, recorder: Recorder) -> Result<Medium, Fault> {
        Medium::private(len, false, Backing::Record(recorder))
    }

    /// One segment of private memory that holds `base`, every further store and fence recorded.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn traced_from(base: &[u8], recorder: Recorder) -> Result<Medium, Fault> {
        let medium = Medium::private(base.len() as u64, true, Backing::Record(recorder))?;
        // SAFETY: the segment is as long as `base`, and no one else has it.
        unsafe { copy::copy(medium.segments[0].base(), base.as_ptr(), base.len()) };
        Ok(medium)
    }

    /// One segment of private memory, `len` bytes of zeros, nothing recorded: a volume that ends with the process.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn memory(len: u64) -> Result<Medium, Fault> {
        Medium::private(len, false, Backing::Dram)
    }

    /// One segment of memory that holds `base` and changes for itself, with the pending stores of `image` decided as they are met.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn image(base: &ImageBase, image: CrashImage) -> Result<Medium, Fault> {
        let sentinel = Sentinel::new()?;
        let segments = Box::new([Arc::new(base.map(&sentinel)?)]);
        Ok(Medium::over(segments, sentinel, Backing::Image(image)))
    }

    fn private(len: u64, filled: bool, backing: Backing) -> Result<Medium, Fault> {
        let segments = Box::new([Arc::new(Mapping::anonymous(len, filled)?)]);
        Ok(Medium::over(segments, Sentinel::new()?, backing))
    }

    /// What kind of medium this is.
    pub fn kind(&self) -> MediumKind {
        match self.backing {
            Backing::Dram => MediumKind::Dram,
            Backing::Pmem(_) => MediumKind::Pmem,
            Backing::Paged(_) => MediumKind::Paged,
            Backing::Record(_) | Backing::Image(_) => MediumKind::Traced,
        }
    }

    /// The recorder of a traced medium.
    pub fn recorder(&self) -> Option<&Recorder> {
        if let Backing::Record(recorder) = &self.backing { Some(recorder) } else { None }
    }

    /// The crash image that this medium shows, if it shows one.
    pub fn crash_image(&self) -> Option<&CrashImage> {
        if let Backing::Image(image) = &self.backing { Some(image) } else { None }
    }

    /// Length of each segment, in bytes.
    pub fn segment_sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().map(|segment| segment.len())
    }

    /// Memory that is taken for pages of a disk, in bytes; `None` where the medium is the memory.
    pub fn resident_bytes(&self) -> Option<u64> {
        match &self.backing {
            Backing::Paged(keeper) => Some(keeper.pager().resident() as u64 * crate::addr::PAGE_SIZE),
            _ => None,
        }
    }

    /// A copy of segment 0 as the program sees it now.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.segments[0].len() as usize];
        // SAFETY: the vector is as long as the segment.
        unsafe { copy::copy(bytes.as_mut_ptr(), self.segments[0].base(), bytes.len()) };
        bytes
    }

    /// Whether the medium is sound and belongs to this process: to be asked at the start of every Op and after reads.
    ///
    /// # Errors
    /// [`Fault::Forked`] in a forked child, [`Fault::Failed`] once a mapping has failed.
    #[inline]
    pub fn check(&self) -> Result<(), Fault> {
        self.sentinel.check()
    }

    /// The place of `len` bytes in this process, if all of them are in one segment.
    #[inline(always)]
    pub(crate) fn resolve(&self, addr: Addr, len: u64) -> Result<*mut u8, Fault> {
        let (base, size) = self.first;
        if len <= size && addr.raw() <= size - len {
            // SAFETY: in segment 0 the raw form is the offset, and offset + len is within the mapping.
            return Ok(unsafe { base.as_ptr().add(addr.raw() as usize) });
        }
        self.resolve_further(addr, len)
    }

    #[cold]
    fn resolve_further(&self, addr: Addr, len: u64) -> Result<*mut u8, Fault> {
        if let Some(segment) = self.segments.get(addr.segment_index()) {
            let offset = addr.offset();
            if len <= segment.len() && offset <= segment.len() - len {
                // SAFETY: offset + len is within the mapping.
                return Ok(unsafe { segment.base().add(offset as usize) });
            }
        }
        Err(Fault::OutOfBounds { addr, len })
    }

    #[inline(always)]
    pub(crate) fn resolve_word(&self, addr: Addr) -> Result<&AtomicU64, Fault> {
        let place = self.resolve(addr, 8)?;
        if !addr.is_aligned(8) {
            return Err(Fault::Misaligned { addr });
        }
        // SAFETY: eight mapped bytes, aligned because segments are page-aligned; shared words are only accessed
        // atomically or by copies outside the compiler's view.
        Ok(unsafe { AtomicU64::from_ptr(place.cast()) })
    }

    /// `count` aligned words (so few that their bytes can be counted).
    #[inline(always)]
    pub(crate) fn resolve_words(&self, addr: Addr, count: usize) -> Result<&[AtomicU64], Fault> {
        let place = self.resolve(addr, count as u64 * 8)?;
        if !addr.is_aligned(8) {
            return Err(Fault::Misaligned { addr });
        }
        // SAFETY: mapped and aligned words that live as long as the medium, and that are only accessed atomically or by
        // copies outside the compiler's view.
        Ok(unsafe { std::slice::from_raw_parts(place.cast::<AtomicU64>(), count) })
    }

    /// An aligned word, with acquire ordering.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`].
    #[inline]
    #[track_caller]
    pub fn load(&self, addr: Addr) -> Result<u64, Fault> {
        let word = self.resolve_word(addr)?;
        self.before_access(addr, 8)?;
        Ok(word.load(Ordering::Acquire))
    }

    /// `count` aligned words, which are then loaded one by one without further checks.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`].
    #[inline(always)]
    #[track_caller]
    pub fn words(&self, addr: Addr, count: usize) -> Result<Words<'_>, Fault> {
        let words = self.resolve_words(addr, count)?;
        self.before_access(addr, count as u64 * 8)?;
        Ok(Words(words))
    }

    /// Fills `out` from `addr` on. Racing writes may leave any mix of old and new; 8 aligned bytes never tear.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    #[track_caller]
    pub fn read(&self, addr: Addr, out: &mut [u8]) -> Result<(), Fault> {
        let place = self.resolve(addr, out.len() as u64)?;
        self.before_access(addr, out.len() as u64)?;
        // SAFETY: both sides are valid for the length; `out` is borrowed exclusively and is not mapped memory.
        unsafe { copy::copy(out.as_mut_ptr(), place, out.len()) };
        compiler_fence(Ordering::Acquire);
        Ok(())
    }

    /// A plain structure at `addr`, unverified. Racing writes may leave any mix of old and new.
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

    /// The bytes themselves, for as long as `_guard` holds their grace period.
    ///
    /// The caller (an engine that holds the volume exclusively) promises that nothing stores to these bytes while they
    /// are published or within a grace period: they are the extent of an object that is never changed in place.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    #[track_caller]
    pub fn bytes<'a>(&'a self, addr: Addr, len: u64, _guard: &'a Guard) -> Result<&'a [u8], Fault> {
        let place = self.resolve(addr, len)?;
        self.before_access(addr, len)?;
        // SAFETY: mapped for the length; unchanged while the guard lives, by the contract above; the volume is held
        // exclusively, so no other process changes it.
        Ok(unsafe { std::slice::from_raw_parts(place, len as usize) })
    }

    /// Asks the processor to fetch the line at `addr`; nothing where it is not in the volume.
    #[inline]
    pub fn prefetch(&self, addr: Addr) {
        if let Ok(place) = self.resolve(addr, 1) {
            prefetch_line(place);
        }
    }

    /// Stores `bytes` at `addr`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]; nothing was stored.
    #[inline]
    #[track_caller]
    pub fn write(&self, addr: Addr, bytes: &[u8]) -> Result<Dirty, Fault> {
        let place = self.resolve(addr, bytes.len() as u64)?;
        self.before_store(addr, bytes.len() as u64)?;
        // SAFETY: both sides are valid for the length; racing readers copy outside the compiler's view and validate.
        unsafe { self.copy_in(place, bytes.as_ptr(), bytes.len()) };
        self.after_store(addr, place, bytes.len());
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

    /// Stores an aligned word that nothing can reach yet.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]; nothing was stored.
    #[inline]
    #[track_caller]
    pub fn write_word(&self, addr: Addr, value: u64) -> Result<Dirty, Fault> {
        self.store_word(addr, value)?;
        Ok(Dirty::new())
    }

    /// Stores aligned words that nothing can reach yet, one after another.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]; nothing was stored.
    #[inline]
    #[track_caller]
    pub fn write_words(&self, addr: Addr, words: impl ExactSizeIterator<Item = u64>) -> Result<Dirty, Fault> {
        let places = self.resolve_words(addr, words.len())?;
        let len = size_of_val(places);
        debug_assert!(len < crate::pmem::STREAM_FROM, "what is long is streamed, with `write`");
        self.before_store(addr, len as u64)?;
        for (place, word) in places.iter().zip(words) {
            place.store(word, Ordering::Release);
        }
        self.after_store(addr, places.as_ptr().cast(), len);
        Ok(Dirty::new())
    }

    /// Stores `len` zero bytes at `addr`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]; nothing was stored.
    #[track_caller]
    pub fn zero(&self, addr: Addr, len: u64) -> Result<Dirty, Fault> {
        let place = self.resolve(addr, len)?;
        self.before_store(addr, len)?;
        // SAFETY: mapped for the length.
        unsafe { self.zero_in(place, len as usize) };
        self.after_store(addr, place, len as usize);
        Ok(Dirty::new())
    }

    /// Copies `len` bytes from `from` to `to`, which do not overlap.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]; nothing was stored.
    #[track_caller]
    pub fn copy(&self, to: Addr, from: Addr, len: u64) -> Result<Dirty, Fault> {
        let src = self.resolve(from, len)?;
        let dst = self.resolve(to, len)?;
        debug_assert!(to.raw() + len <= from.raw() || from.raw() + len <= to.raw());
        self.before_access(from, len)?;
        self.before_store(to, len)?;
        // SAFETY: mapped for the length; an overlap would only mix bytes of one mapping, in code outside the
        // compiler's view.
        unsafe { self.copy_in(dst, src, len as usize) };
        self.after_store(to, dst, len as usize);
        Ok(Dirty::new())
    }
}
