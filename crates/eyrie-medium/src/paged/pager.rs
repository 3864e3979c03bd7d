//! The state of the page cache, and the waits that its operations share.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::blocks::Blocks;
use super::buffer::PageBytes;
use super::checksums::Checksums;
use super::gate::Turnstile;
use super::journal::{self, Anchor, MAX_JOURNAL_BYTES};
use super::options::PagedOptions;
use super::pace::Pace;
use super::page::{ODD, Pages, REGION, WRITTEN};
use super::places::Places;
use super::read_ahead::ReadAhead;
use super::shadow::Shadows;
use super::stats::{DiskCounts, PagedStats};
use super::waker::Waker;
use crate::addr::PAGE_SIZE;
use crate::fault::Fault;
use crate::mapping::Mapping;
use crate::sync::schedule;

/// Number of shards of the list of dirty pages.
pub(super) const SHARDS: usize = 16;
/// Length of one sleep of a thread that waits in [`Pager::wait`].
const LOCK_SLEEP: Duration = Duration::from_micros(20);
/// Number of the first attempt that sleeps. Earlier attempts yield.
const YIELDS: u32 = 20;

/// Returns the default size of the journal of a new volume of `volume_bytes`: a sixteenth of the volume, but
/// at least 1 MiB and at most 64 MiB.
pub(crate) fn journal_bytes(volume_bytes: u64) -> u64 {
    (volume_bytes / 16).next_multiple_of(PAGE_SIZE).clamp(1 << 20, MAX_JOURNAL_BYTES)
}

/// The page cache.
pub(crate) struct Pager {
    pub(super) blocks: Arc<dyn Blocks>,
    pub(super) memory: Arc<Mapping>,
    pub(super) pages: Pages,
    pub(super) places: Places,
    pub(super) checksums: Checksums,
    pub(super) options: PagedOptions,
    /// Number of the next cut. Changes that Ops make now will be in this cut.
    pub(super) cut: AtomicU64,
    /// Number of the last durable cut.
    pub(super) durable: AtomicU64,
    pub(super) turnstile: Turnstile,
    /// Numbers of the pages that became dirty since the last cut. The index of a thread selects its shard.
    pub(super) dirty: [Mutex<Vec<usize>>; SHARDS],
    pub(super) shadows: Shadows,
    /// The state of drains. The drain in progress holds the lock.
    pub(super) drain: Mutex<DrainState>,
    pub(super) resident: AtomicUsize,
    /// Number of pages in memory in each region of [`REGION`] pages. The eviction skips regions without any
    /// such page. A count may be wrong for a moment, because a thread marks a page as resident and counts it
    /// in two steps.
    pub(super) regions: Box<[AtomicU32]>,
    /// Number of pages whose memory came with a huge page for an allocation, and that were not allocated
    /// since. The number is an estimate: an allocation of any page that was not in memory lowers it by one.
    pub(super) unused_huge: AtomicUsize,
    pub(super) dirty_pages: AtomicUsize,
    pub(super) pace: Pace,
    pub(super) counts: DiskCounts,
    /// Upper bound of the space in a record for the lines of pages that are not fresh and that changed since
    /// the last cut, in bytes.
    pub(super) changed_bytes: AtomicU64,
    /// Sum of the room in the journal that is reserved for the Ops in progress, in bytes.
    pub(super) reserved: AtomicU64,
    /// Free pages that the engine has lent to the next cut, as ranges of page numbers. If the record of the
    /// cut is larger than the journal, the rest of the record goes to these pages.
    pub(super) lent: Mutex<Vec<Range<usize>>>,
    /// One more than the highest number of a page that was ever in memory, or lent to a cut. Drains write no
    /// later page.
    pub(super) top: AtomicUsize,
    /// The page at which the clock hand of the eviction stands.
    pub(super) hand: Mutex<usize>,
    pub(super) ahead: ReadAhead,
    pub(super) journal_bytes: u64,
    /// True after a drain has failed.
    pub(super) failed: AtomicBool,
    /// True if the last eviction gave up because a pin lasted too long.
    pub(super) is_held_back: AtomicBool,
    /// The file of the pages for other processes, if they may read the pages.
    pub(super) pages_file: OnceLock<File>,
    /// Id of the process that made the cache.
    pub(super) process: u32,
    pub(super) waker: Waker,
}

/// The state that each drain leaves to the next one.
pub(super) struct DrainState {
    pub(super) anchor: Anchor,
    /// Number of the next record.
    pub(super) sequence: u64,
    /// The offset of the next record in the journal, in bytes.
    pub(super) at: u64,
    /// Numbers of the pages that have lines in the journal.
    pub(super) logged: Vec<usize>,
    /// True if the last record lists fresh pages. Replay ignores this record unless these pages match their
    /// checksums.
    pub(super) lists_fresh: bool,
    /// The buffer in which a drain collects pages before it writes them to their places. A drain leaves the
    /// buffer to the next drain, which then allocates less.
    pub(super) gathered: Vec<PageBytes>,
}

impl DrainState {
    pub(super) fn new(anchor: Anchor) -> DrainState {
        DrainState {
            anchor,
            sequence: 1,
            at: 0,
            logged: Vec::new(),
            lists_fresh: false,
            gathered: Vec::new(),
        }
    }
}

impl Pager {
    /// Replays the journal that `anchor` describes, gives the journal a new name, and makes the cache of the
    /// volume.
    pub(crate) fn open(
        blocks: Arc<dyn Blocks>,
        mut anchor: Anchor,
        options: PagedOptions,
        memory: Arc<Mapping>,
    ) -> Result<Pager, Fault> {
        journal::replay(&*blocks, &anchor)?;
        anchor
            .rename(&*blocks)
            .map_err(|source| Fault::Io { what: "giving the journal a new name".to_string(), source })?;
        Pager::over(blocks, anchor, options, memory)
    }

    /// Makes the cache of a volume whose journal is empty or lost.
    pub(crate) fn over(
        blocks: Arc<dyn Blocks>,
        anchor: Anchor,
        options: PagedOptions,
        memory: Arc<Mapping>,
    ) -> Result<Pager, Fault> {
        let count = (anchor.volume_bytes / PAGE_SIZE) as usize;
        Ok(Pager {
            pages: Pages::new(count, options.is_shared)?,
            places: anchor.places(),
            checksums: Checksums::new(anchor.places())?,
            blocks,
            memory,
            options,
            cut: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            turnstile: Turnstile::default(),
            dirty: Default::default(),
            shadows: Shadows::new(count)?,
            drain: Mutex::new(DrainState::new(anchor)),
            resident: AtomicUsize::new(0),
            regions: (0..count.div_ceil(REGION)).map(|_| AtomicU32::new(0)).collect(),
            unused_huge: AtomicUsize::new(0),
            dirty_pages: AtomicUsize::new(0),
            pace: Pace::new(),
            counts: DiskCounts::default(),
            changed_bytes: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            lent: Mutex::default(),
            top: AtomicUsize::new(0),
            hand: Mutex::new(0),
            ahead: ReadAhead::new(count, options.limit()),
            journal_bytes: anchor.journal_bytes,
            failed: AtomicBool::new(false),
            is_held_back: AtomicBool::new(false),
            pages_file: OnceLock::new(),
            process: std::process::id(),
            waker: Waker::new()
                .map_err(|source| Fault::Io { what: "creating an event descriptor".to_string(), source })?,
        })
    }

    /// Makes the host allocate the disk's blocks of a range.
    pub(crate) fn provision(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let done = self.allocate((offset / PAGE_SIZE) as usize, (len / PAGE_SIZE) as usize);
        done.map_err(|source| Fault::of_room("allocating host blocks for the volume", source))
    }

    /// Makes the host allocate the disk's blocks of `count` pages, and of their checksum pages.
    fn allocate(&self, first: usize, count: usize) -> io::Result<()> {
        let Some(last) = (first + count).checked_sub(1) else { return Ok(()) };
        if self.places.has_checksums() {
            // Only the first checksum page needs a call of its own: those of later chunks lie between the
            // pages of the range.
            self.blocks.here().allocate(Places::checksum_page_of(first), PAGE_SIZE)?;
        }
        let start = self.places.offset(first);
        self.blocks.here().allocate(start, self.places.offset(last) + PAGE_SIZE - start)
    }

    /// Returns the file of the flags of the pages, if other processes may read them.
    pub(crate) fn flags_file(&self) -> Option<&File> {
        self.pages.file()
    }

    /// Returns true if the volume has checksums of its pages.
    pub(crate) fn has_checksums(&self) -> bool {
        self.places.has_checksums()
    }

    /// From now on accepts every page whose checksum is unknown: see `Checksums::accept_unknown`.
    pub(crate) fn accept_unknown_checksums(&self) {
        self.checksums.accept_unknown();
    }

    /// Returns the number of bytes that the volume takes on the disk, with its checksum pages, its journal
    /// and the anchor.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.places.end() + self.journal_bytes + PAGE_SIZE
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal_bytes
    }

    /// Gives the disk's blocks of a range back to the host. The caller needs no byte of the range any more.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let first = (offset / PAGE_SIZE) as usize;
        let pages = first..first + (len / PAGE_SIZE) as usize;
        for run in self.places.runs(pages.clone()) {
            let (start, bytes) = (self.places.offset(run.start), run.len() as u64 * PAGE_SIZE);
            let what = || "giving back blocks of the volume's disk".to_string();
            self.blocks.here().discard(start, bytes).map_err(|source| Fault::Io { what: what(), source })?;
        }
        // Most of the range may never have been in use. The loop leaves out the flags of these pages, because
        // the kernel would provide memory for all flags that the loop changes.
        for page in pages.start..pages.end.min(self.top.load(Ordering::Relaxed)) {
            let flags = self.pages.flags(page);
            if flags.load(Ordering::Relaxed) & WRITTEN != 0 {
                flags.fetch_and(!WRITTEN, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// Returns the limit of memory for pages, in pages.
    pub(super) fn limit(&self) -> usize {
        self.options.limit()
    }

    /// Returns the address of a page in memory.
    pub(super) fn address(&self, page: usize) -> *mut u8 {
        debug_assert!(page < self.pages.count());
        // SAFETY: the page is within the mapping, which has as many pages as the volume.
        unsafe { self.memory.base().add(page * PAGE_SIZE as usize) }
    }

    /// Returns the parity of the next cut, to which present changes belong: [`ODD`], or 0 if its number is
    /// even.
    #[inline]
    pub(super) fn parity(&self) -> u64 {
        if self.cut.load(Ordering::Acquire) & 1 == 1 { ODD } else { 0 }
    }

    /// Returns the number of the last durable cut.
    #[inline]
    pub(crate) fn durable_cut(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Notes that this thread has synchronised, so that the pace of other threads allows for its next sync.
    pub(crate) fn note_sync(&self) {
        self.pace.synced();
    }

    /// Returns the number of pages in memory.
    pub(crate) fn resident(&self) -> usize {
        self.resident.load(Ordering::Relaxed)
    }

    /// Returns the state of the cache, and its work so far.
    pub(crate) fn stats(&self) -> PagedStats {
        // The count of changed pages may be below zero for a moment, because a thread first marks a page as
        // dirty, and counts it later.
        let dirty = (self.dirty_pages.load(Ordering::Relaxed) as isize).max(0) as u64;
        self.counts.stats(self.resident() as u64 * PAGE_SIZE, dirty * PAGE_SIZE)
    }

    /// Returns the number of pages in memory above which the keeper (the background thread of the page cache)
    /// evicts pages.
    pub(super) fn high_mark(&self) -> usize {
        self.limit() / 10 * 9
    }

    /// Returns the number of pages in memory at which the keeper stops an eviction that [`Pager::high_mark`]
    /// caused.
    pub(super) fn low_mark(&self) -> usize {
        self.limit() / 10 * 8
    }

    /// Gives the memory of pages back to the kernel. The caller holds the locks of the pages, none of which
    /// is resident.
    pub(super) fn let_go(&self, first: usize, count: usize) {
        // SAFETY: the pages are locked and not resident, so no thread accesses them.
        unsafe { self.memory.let_go(first as u64 * PAGE_SIZE, count as u64 * PAGE_SIZE) };
    }

    /// Waits a moment for the lock of a page, or for room for an Op. The awaited thread may be using the
    /// disk, so later attempts sleep.
    pub(super) fn wait(&self, attempts: &mut u32) -> Result<(), Fault> {
        self.refuse_if_forked()?;
        schedule::wait();
        *attempts += 1;
        if *attempts < YIELDS {
            std::thread::yield_now()
        } else {
            std::thread::sleep(LOCK_SLEEP)
        }
        Ok(())
    }

    /// Returns an error in a forked child. In the child, the holder of a page's lock may be a thread that
    /// only the parent has.
    pub(super) fn refuse_if_forked(&self) -> Result<(), Fault> {
        if std::process::id() == self.process { Ok(()) } else { Err(Fault::Forked) }
    }

    /// Returns an error if a drain has failed.
    pub(super) fn refuse_if_failed(&self) -> Result<(), Fault> {
        if self.failed.load(Ordering::Acquire) { Err(Fault::ReadOnly) } else { Ok(()) }
    }
}
