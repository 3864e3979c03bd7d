//! The calls of a medium that concern disks. Except in tests, a call on a medium without a disk is only a
//! test of the tag of [`Backing`].

use std::fs::File;
use std::io;
use std::panic::Location;
use std::sync::Arc;

use crate::addr::{Addr, PAGE_SIZE, SegmentId};
use crate::backing::Backing;
use crate::epoch::pin;
use crate::fault::Fault;
use crate::mapping::{Mapping, Sentinel};
use crate::medium::Medium;
use crate::paged::blocks::Blocks;
use crate::paged::journal::Anchor;
use crate::paged::{
    Drain, Gate, Keeper, MAX_JOURNAL_BYTES, PAGE_ENTRY, PagedOptions, Pager, Places, SharedPages,
    journal_bytes, most_room,
};
use crate::site::{Caller, SiteKind};

/// Maximum number of bytes that one call of [`Medium::bring`] brings into memory.
const MOST_BROUGHT: u64 = 1 << 20;

/// Returns the offset of the last whole page of a disk.
#[track_caller]
fn last_page(blocks: &dyn Blocks) -> Result<u64, Fault> {
    let size = blocks.here().size();
    let size =
        size.map_err(|source| Fault::Io { what: "reading the size of the disk".to_string(), source })?;
    Ok((size / PAGE_SIZE).saturating_sub(1) * PAGE_SIZE)
}

/// Turns an error of the disk into the error of a journal that could not be made.
fn made(result: io::Result<()>) -> Result<(), Fault> {
    result.map_err(|source| Fault::of_room("making the journal", source))
}

impl Medium {
    /// Opens the paged volume of a disk (see [`Medium::format_paged`]) in the state of its last durable cut.
    ///
    /// # Errors
    /// [`Fault::NotPaged`] when the disk has no such volume; [`Fault::Io`] when the disk or another call to
    /// the host fails.
    pub fn paged(blocks: Arc<dyn Blocks>, options: PagedOptions) -> Result<Medium, Fault> {
        let anchor = Anchor::read(&*blocks)?.ok_or(Fault::NotPaged)?;
        Medium::cached(anchor, options, |memory| Pager::open(blocks, anchor, options, memory))
    }

    /// Opens a volume of `volume_bytes` whose journal is lost. Each page of the volume has the bytes that are
    /// in its place on the disk. The medium has a journal of 0 bytes, so it accepts no store. Only a repair
    /// may use such a volume, because changes that only the journal had are missing.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn paged_without_journal(
        blocks: Arc<dyn Blocks>,
        volume_bytes: u64,
        checksums: bool,
        options: PagedOptions,
    ) -> Result<Medium, Fault> {
        let anchor = Anchor::create(volume_bytes, 0, checksums);
        let anchor = anchor.map_err(|source| Fault::of_room("making the journal", source))?;
        Medium::cached(anchor, options, |memory| Pager::over(blocks, anchor, options, memory))
    }

    fn cached(
        anchor: Anchor,
        options: PagedOptions,
        open: impl FnOnce(Arc<Mapping>) -> Result<Pager, Fault>,
    ) -> Result<Medium, Fault> {
        let (memory, for_readers) = if options.is_shared {
            let (memory, file) = Mapping::of_shared_pages(anchor.volume_bytes)?;
            (memory, Some(file))
        } else {
            (Mapping::of_pages(anchor.volume_bytes)?, None)
        };
        let memory = Arc::new(memory);
        let pager = open(Arc::clone(&memory))?;
        let keeper = Keeper::start(Arc::new(pager), for_readers)?;
        Ok(Medium::over(Box::new([memory]), Sentinel::new()?, Backing::Paged(keeper)))
    }

    /// Returns the files of the page cache that other processes map for reading: the pages, and their flags.
    /// Returns `None` if the medium has no page cache, or if the cache belongs to this process alone.
    pub fn cache_files(&self) -> Option<(&File, &File)> {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pages_file().zip(keeper.pager().flags_file()),
            _ => None,
        }
    }

    /// Returns the memory of the page cache that [`Medium::cache_files`] shares, so that it can be given back
    /// after the medium has been dropped.
    pub fn shared_pages(&self) -> Option<SharedPages> {
        self.cache_files().map(|_| SharedPages(Arc::clone(&self.segments[0])))
    }

    /// True if more than twice as many pages of a disk are in memory as the limit permits.
    pub fn is_overfull(&self) -> bool {
        matches!(&self.backing, Backing::Paged(keeper) if keeper.pager().is_overfull())
    }

    /// True if long pins keep more than twice as many pages of a disk in memory as the limit permits.
    pub fn is_overfull_by_pins(&self) -> bool {
        matches!(&self.backing, Backing::Paged(keeper) if keeper.pager().is_overfull_by_pins())
    }

    /// Brings the first pages of a range into memory for another process, which holds a pin that this process
    /// watches. The pages then stay in memory until that pin ends. Brings at least the first page, and at
    /// most 1 MiB.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. The errors of a read.
    pub fn bring(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        let len = len.clamp(1, MOST_BROUGHT);
        self.resolve(addr, len)?;
        let _pin = pin();
        self.backing.before_read(self.mapped(), addr, len)
    }

    /// Returns the number of bytes that the first `volume_bytes` of a volume take on a disk, with or without
    /// checksums of its pages.
    pub fn place_bytes(volume_bytes: u64, checksums: bool) -> u64 {
        Places::new(volume_bytes, checksums).end()
    }

    /// Returns the size of the largest volume that fits in `bytes` without a journal, with or without
    /// checksums of its pages.
    pub fn most_volume_bytes(bytes: u64, checksums: bool) -> u64 {
        Places::most_volume_bytes(bytes, checksums)
    }

    /// Returns the number of bytes that a volume of `volume_bytes`, with or without checksums of its pages,
    /// and its journal need on a disk.
    pub fn paged_bytes(volume_bytes: u64, checksums: bool) -> u64 {
        Places::new(volume_bytes, checksums).end() + journal_bytes(volume_bytes) + PAGE_SIZE
    }

    /// Allocates a journal after the pages and checksum pages of a volume of `volume_bytes` (whole pages),
    /// and writes the anchor of the journal.
    ///
    /// # Errors
    /// [`Fault::HostFull`], [`Fault::Io`].
    pub fn format_paged(blocks: &dyn Blocks, volume_bytes: u64, checksums: bool) -> Result<(), Fault> {
        let anchor = Anchor::create(volume_bytes, journal_bytes(volume_bytes), checksums);
        made(anchor.and_then(|anchor| anchor.write(blocks)))
    }

    /// Returns the size of the volume that fills a disk of `disk_bytes` together with its journal and its
    /// checksums. Returns 0 if the disk has no room for them.
    pub fn volume_bytes_on(disk_bytes: u64, checksums: bool) -> u64 {
        let bytes = (disk_bytes - disk_bytes % PAGE_SIZE).saturating_sub(PAGE_SIZE);
        // A journal between its least and greatest size is a sixteenth of the volume, so the volume takes
        // about 16 of 17 parts of the disk.
        let journal = journal_bytes((bytes / 17 * 16).next_multiple_of(PAGE_SIZE));
        let volume = |journal| Places::most_volume_bytes(bytes.saturating_sub(journal), checksums);
        let largest = volume(journal);
        // The journal takes all pages that are left. On some disks, one page more is left than the journal
        // may have.
        let left = bytes.saturating_sub(Places::new(largest, checksums).end());
        if left > MAX_JOURNAL_BYTES { volume(journal - PAGE_SIZE) } else { largest }
    }

    /// As [`Medium::format_paged`], for a disk of fixed size: the journal takes all pages between the volume
    /// and the anchor, which is the last page of the disk.
    ///
    /// # Errors
    /// [`Fault::HostFull`], [`Fault::Io`].
    pub fn fill_paged(blocks: &dyn Blocks, volume_bytes: u64, checksums: bool) -> Result<(), Fault> {
        let journal_bytes = last_page(blocks)?.saturating_sub(Places::new(volume_bytes, checksums).end());
        made(Anchor::create(volume_bytes, journal_bytes, checksums).and_then(|anchor| anchor.write(blocks)))
    }

    /// As [`Medium::format_paged`], for a file that grows when a write goes past its end. Only the write of
    /// the anchor makes the file grow, so a crash leaves the old length or the full new length.
    ///
    /// # Errors
    /// [`Fault::HostFull`], [`Fault::Io`].
    pub fn extend_paged(blocks: &dyn Blocks, volume_bytes: u64, checksums: bool) -> Result<(), Fault> {
        let anchor = Anchor::create(volume_bytes, journal_bytes(volume_bytes), checksums);
        made(anchor.and_then(|anchor| anchor.extend(blocks)))
    }

    /// As [`Medium::format_paged`], for a volume that changes its size on its disk. The caller has written
    /// the pages of the volume to their places and has emptied the present journal. The present anchor stays,
    /// unless the new anchor has the same place. Returns the number of bytes that the volume, its checksum
    /// pages, the new journal and its anchor take together.
    ///
    /// # Errors
    /// [`Fault::HostFull`], [`Fault::Io`].
    pub fn move_paged(blocks: &dyn Blocks, volume_bytes: u64, checksums: bool) -> Result<u64, Fault> {
        let end = Places::new(volume_bytes, checksums).end();
        let journal_bytes = journal_bytes(volume_bytes).min(last_page(blocks)?.saturating_sub(end));
        let anchor = Anchor::create(volume_bytes, journal_bytes, checksums);
        made(anchor.and_then(|anchor| anchor.extend(blocks)))?;
        Ok(end + journal_bytes + PAGE_SIZE)
    }

    /// Enters the gate for an ordinary Op, as [`Medium::enter_with`] does.
    ///
    /// # Errors
    /// As [`Medium::enter_with`].
    #[inline]
    pub fn enter(&self) -> Result<Gate<'_>, Fault> {
        self.enter_with(|| 0)
    }

    /// Enters the gate for an Op. Callers make every change of a medium while they hold the [`Gate`]. On a
    /// paged medium this call waits until memory and the journal have room for the changes of an Op. No drain
    /// makes a cut before the [`Gate`] is dropped. A thread must not hold two gates at a time.
    ///
    /// On a paged medium the Op reserves room in the journal. Its stores fail with [`Fault::OpTooLarge`] when
    /// they need more. An ordinary Op has room for some pages. `extra` returns the additional room that this
    /// Op is likely to need, in bytes. An Op gets at most [`Medium::most_room`] in this way, and more by
    /// [`Medium::lend`].
    ///
    /// # Errors
    /// [`Fault::ReadOnly`] after a drain has failed. [`Fault::Forked`] in a forked child.
    #[inline]
    pub fn enter_with(&self, extra: impl FnOnce() -> u64) -> Result<Gate<'_>, Fault> {
        match &self.backing {
            Backing::Paged(keeper) => {
                self.check()?;
                keeper.pager().enter(extra()).map(Gate::new)
            }
            _ => Ok(Gate::free()),
        }
    }

    /// Returns the largest room that an Op can reserve in the journal, in bytes.
    pub fn most_room(&self) -> u64 {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().most_room_of_an_op(),
            _ => u64::MAX,
        }
    }

    /// Returns the room in the journal that `bytes` of newly allocated pages need, in bytes.
    pub fn room_of_new(bytes: u64) -> u64 {
        bytes / PAGE_SIZE * PAGE_ENTRY
    }

    /// Returns the room in the journal that stores to `bytes` consecutive bytes may need, in bytes.
    pub fn room_of_stores(bytes: u64) -> u64 {
        most_room(bytes)
    }

    /// Lends a range of whole free pages to the journal, and raises the room of this thread's Op by nearly as
    /// many bytes. If the changes of a cut are larger than the journal, the drain records the rest of them in
    /// such pages. The caller holds a gate, and no durable pointer leads to the range. Returns the number of
    /// a cut. As after [`Medium::mark_freed`], the allocator may allocate the range again when this cut is
    /// durable.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. [`Fault::OpTooLarge`] if a record cannot name so many pages. A record can name
    /// pages of 1 GiB, or less if the journal is small.
    pub fn lend(&self, addr: Addr, len: u64) -> Result<u64, Fault> {
        self.resolve(addr, len)?;
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().lend(addr.offset(), len),
            _ => Ok(0),
        }
    }

    /// Reserves the store of a word: marks the word as changed before the store, so that the store itself
    /// cannot fail for lack of room.
    ///
    /// # Errors
    /// The errors of a store.
    #[inline]
    #[track_caller]
    pub fn reserve_store(&self, addr: Addr) -> Result<(), Fault> {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().before_store(addr.offset(), 8),
            _ => Ok(()),
        }
    }

    /// Makes every earlier change durable on a paged medium. Does nothing on any other medium. The caller
    /// must hold no [`Gate`], because the cut would wait for the caller's own Op.
    ///
    /// # Errors
    /// [`Fault::Io`] when the disk fails. [`Fault::ReadOnly`] after a drain has failed. [`Fault::Forked`] in
    /// a forked child.
    pub fn drain(&self) -> Result<(), Fault> {
        self.drained(Drain::Cut)
    }

    /// As [`Medium::drain`], for a thread that waits for the disk. For some time afterwards, an Op of another
    /// thread waits if it would leave too many pages to the next call of this function.
    ///
    /// # Errors
    /// As [`Medium::drain`].
    pub fn sync(&self) -> Result<(), Fault> {
        self.drain()?;
        if let Backing::Paged(keeper) = &self.backing {
            keeper.pager().note_sync();
        }
        Ok(())
    }

    /// Drains as [`Medium::drain`] does, writes every page with lines in the journal to its place, writes
    /// every new checksum to its checksum page, and then empties the journal.
    ///
    /// # Errors
    /// As [`Medium::drain`].
    pub fn checkpoint(&self) -> Result<(), Fault> {
        self.drained(Drain::Checkpoint)
    }

    /// Drains a paged medium. Does nothing on any other medium.
    fn drained(&self, drain: Drain) -> Result<(), Fault> {
        match &self.backing {
            Backing::Paged(keeper) => {
                self.check()?;
                keeper.pager().drain(drain)
            }
            _ => Ok(()),
        }
    }

    /// Announces the allocation of a range. A range of whole pages need not be read from the disk, because no
    /// durable pointer leads to it: see [`Medium::mark_freed`].
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. [`Fault::OpTooLarge`] if the Op has no room for the entries of the pages.
    /// [`Fault::Forked`] in a forked child that would have to wait.
    #[inline]
    #[track_caller]
    pub fn mark_allocated(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        if self.backing.has_no_hooks_before() {
            Ok(())
        } else {
            self.allocating(addr, len, Location::caller())
        }
    }

    #[inline(never)]
    fn allocating(&self, addr: Addr, len: u64, caller: Caller) -> Result<(), Fault> {
        self.backing.before_call(SiteKind::Allocate, caller)?;
        match &self.backing {
            // A range that is not whole pages shares a page with other data, so that page must be read and
            // journalled as usual.
            Backing::Paged(keeper) if len.is_multiple_of(PAGE_SIZE) => {
                self.resolve(addr, len)?;
                keeper.pager().mark_allocated(addr.offset(), len)
            }
            _ => Ok(()),
        }
    }

    /// Announces that a page-aligned range is free. The caller ensures that no reader can reach the range any
    /// more. If the call returns a number, the allocator may allocate the range again only when
    /// [`Medium::durable_cut`] has reached that number. Otherwise the allocator may do so immediately.
    #[inline]
    pub fn mark_freed(&self, addr: Addr, len: u64) -> Option<u64> {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().mark_freed(addr.offset(), len),
            _ => None,
        }
    }

    /// Returns the number of bytes that the volume takes on its disk with its journal and its checksums.
    /// Returns `None` if the medium has no disk.
    pub fn disk_bytes(&self) -> Option<u64> {
        match &self.backing {
            Backing::Paged(keeper) => Some(keeper.pager().disk_bytes()),
            _ => None,
        }
    }

    /// Reads the pages of a range from the disk, also those in memory, and compares them with their
    /// checksums. Returns the addresses of the pages that cannot be read or do not match. Leaves out pages
    /// whose places may lack the bytes of the last durable cut. Returns no address on a medium without a
    /// disk.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. [`Fault::Forked`] in a forked child.
    pub fn scrub(&self, addr: Addr, len: u64) -> Result<Vec<Addr>, Fault> {
        self.resolve(addr, len)?;
        let Backing::Paged(keeper) = &self.backing else { return Ok(Vec::new()) };
        let first = (addr.offset() / PAGE_SIZE) as usize;
        let damaged = keeper.pager().scrub(first..first + (len / PAGE_SIZE) as usize)?;
        Ok(damaged.into_iter().map(|page| Addr::new(SegmentId(0), page as u64 * PAGE_SIZE)).collect())
    }

    /// Reads a whole page from the disk, also if the page is in memory. Returns `None` if the place of the
    /// page may lack the bytes of the last durable cut, and on a medium without a disk.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]; [`Fault::Io`]. [`Fault::Forked`] in a forked child.
    pub fn read_from_disk(&self, page: Addr) -> Result<Option<Vec<u8>>, Fault> {
        self.resolve(page, PAGE_SIZE)?;
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().read_place((page.offset() / PAGE_SIZE) as usize),
            _ => Ok(None),
        }
    }

    /// Returns true if the medium is a disk whose pages have checksums.
    pub fn has_checksums(&self) -> bool {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().has_checksums(),
            _ => false,
        }
    }

    /// From now on, the medium accepts every page whose checksum is unknown. A checksum is unknown if no
    /// record has listed the page, if the disk has lost the checksum, or if the disk cannot read it. Only a
    /// repair should make this call. A page that does not match its checksum is still an error.
    pub fn accept_unknown_checksums(&self) {
        if let Backing::Paged(keeper) = &self.backing {
            keeper.pager().accept_unknown_checksums();
        }
    }

    /// Returns the size of the journal, in bytes, or 0 if the journal is lost. Returns `None` if the medium
    /// has no disk.
    pub fn journal_bytes(&self) -> Option<u64> {
        match &self.backing {
            Backing::Paged(keeper) => Some(keeper.pager().journal_bytes()),
            _ => None,
        }
    }

    /// Returns the number of the last durable cut, for comparison with the result of [`Medium::mark_freed`].
    /// On a medium without cuts it returns the largest number.
    #[inline]
    pub fn durable_cut(&self) -> u64 {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().durable_cut(),
            _ => u64::MAX,
        }
    }
}
