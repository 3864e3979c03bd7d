//! One mapped segment: a host file, or anonymous memory.

use std::fs::File;
use std::os::fd::AsFd;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::addr::PAGE_SIZE;
use crate::fault::{Fault, Registration, STATE_FAILED, STATE_FORKED, STATE_SOUND};
use crate::host;
use crate::shared::{move_over, page_file};
use crate::site::SiteKind;

fn io_fault(what: &str) -> impl FnOnce(Errno) -> Fault {
    move |errno| Fault::of_room(what, errno.into())
}

/// Size of a huge page, in bytes, and the alignment that allows the kernel to use one.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// `MADV_COLLAPSE` of `madvise(2)`, which the C library's bindings lack.
const MADV_COLLAPSE: libc::c_int = 25;

/// Reserves `len` bytes of address space at the boundary of a huge page.
fn reserve(len: usize) -> Result<*mut libc::c_void, Fault> {
    let most = len + HUGE_PAGE;
    // SAFETY: the kernel chooses the address of the new mapping. Only the ends of this mapping are unmapped.
    unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let base =
            host::call(|| rustix::mm::mmap_anonymous(ptr::null_mut(), most, ProtFlags::empty(), flags))
                .map_err(io_fault("reserving address space"))?;
        let head = base.align_offset(HUGE_PAGE);
        let place = base.byte_add(head);
        let used = len.next_multiple_of(PAGE_SIZE as usize);
        if head > 0 {
            let _ = rustix::mm::munmap(base, head);
        }
        let _ = rustix::mm::munmap(place.byte_add(used), most - head - used);
        Ok(place)
    }
}

/// Punches a hole in a file. Does nothing on a host that cannot punch holes.
pub(crate) fn punch(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, len)) {
        Err(Errno::NODEV | Errno::OPNOTSUPP) => Ok(()),
        done => done,
    }
}

/// A mapping of one host file (shared or private), or of anonymous memory. Dropping the value unmaps the
/// memory.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: u64,
    /// The file that receives the changes; `None` for private memory and for a read-only mapping.
    file: Option<File>,
    huge_pages: HugePages,
    _registration: Option<Registration>,
}

// SAFETY: the mapping is plain memory. Threads access it by atomics, or by copies that tolerate races. (A
// read from a disk fills only a page that the reading thread has locked, and `Medium::bytes` states its own
// contract.)
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`. If `synchronously` is true, the mapping has `MAP_SYNC`, and a
    /// store needs no system call to persist.
    pub(crate) fn file(
        file: File,
        len: u64,
        sentinel: &Sentinel,
        synchronously: bool,
    ) -> Result<Mapping, Fault> {
        let sharing =
            if synchronously { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        let mut mapping = Mapping::map(&file, len, sentinel, sharing)?;
        mapping.file = Some(file);
        Ok(mapping)
    }

    /// Maps the first `len` bytes of `file` copy-on-write.
    pub(crate) fn copy(file: &File, len: u64, sentinel: &Sentinel) -> Result<Mapping, Fault> {
        Mapping::map(file, len, sentinel, MapFlags::PRIVATE)
    }

    /// Maps the first `len` bytes of `file`, which another process changes, for reading.
    pub(crate) fn for_reading(file: &File, len: u64, sentinel: &Sentinel) -> Result<Mapping, Fault> {
        Mapping::map_with(file, len, Some(sentinel), MapFlags::SHARED, ProtFlags::READ)
    }

    /// Maps another file of the same size for reading, in place of this mapping and at the same address. A
    /// thread that reads meanwhile reads bytes of the old file or of the new file.
    pub(crate) fn replace(&self, file: &File) -> Result<(), Fault> {
        let new = Mapping::map_with(file, self.len, None, MapFlags::SHARED, ProtFlags::READ)?;
        // SAFETY: both mappings have the same length; `self` owns one and `new` owns the other. All reads
        // tolerate any bytes. The move leaves nothing mapped at the address in `new`, so `forget` keeps `new`
        // from unmapping this address.
        unsafe { move_over(self.base().cast(), new.base().cast(), self.len as usize) };
        std::mem::forget(new);
        Ok(())
    }

    /// Maps the first `len` bytes of `file`, shared or private as `sharing` says.
    fn map(file: &File, len: u64, sentinel: &Sentinel, sharing: MapFlags) -> Result<Mapping, Fault> {
        Mapping::map_with(file, len, Some(sentinel), sharing, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map_with(
        file: &File,
        len: u64,
        sentinel: Option<&Sentinel>,
        sharing: MapFlags,
        rights: ProtFlags,
    ) -> Result<Mapping, Fault> {
        let place = reserve(len as usize)?;
        let flags = sharing | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the new mapping replaces the reservation, to which no other code refers.
        let base =
            host::call(|| unsafe { rustix::mm::mmap(place, len as usize, rights, flags, file.as_fd(), 0) });
        let base = base.map_err(|errno| {
            // SAFETY: the reservation was not replaced, and nothing refers to it.
            let _ = unsafe { rustix::mm::munmap(place, len as usize) };
            match errno {
                // A kernel without these flags and a file system without the feature return different errors.
                Errno::OPNOTSUPP | Errno::INVAL if sharing.contains(MapFlags::SYNC) => Fault::NotSynchronous,
                errno => io_fault("mapping a segment")(errno),
            }
        })?;
        let registration = sentinel.and_then(|sentinel| {
            // SAFETY: the range is this mapping; the medium drops its segments before its sentinel.
            unsafe { Registration::new(base.cast(), len as usize, sentinel.word.as_ptr()) }
        });
        let base = NonNull::new(base.cast()).expect("mmap never returns null");
        Ok(Mapping { base, len, file: None, huge_pages: HugePages::default(), _registration: registration })
    }

    /// Maps `len` bytes of zeroed private memory. If the caller is about to store to all of it (`filled`),
    /// this call also populates it.
    pub(crate) fn anonymous(len: u64, filled: bool) -> Result<Mapping, Fault> {
        let flags = MapFlags::PRIVATE | if filled { MapFlags::POPULATE } else { MapFlags::NORESERVE };
        // SAFETY: the kernel chooses the address of the new mapping.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let base = base.map_err(io_fault("mapping memory"))?.cast();
        Ok(Mapping {
            base: NonNull::new(base).expect("mmap never returns null"),
            len,
            file: None,
            huge_pages: HugePages::default(),
            _registration: None,
        })
    }

    /// Maps `len` bytes of zeroed private memory, which begin at the boundary of a huge page. The kernel
    /// provides this memory page by page (except for [`Mapping::populate_huge_page`]), and frees it page by
    /// page.
    ///
    /// Huge pages are switched off. Otherwise the kernel could provide 2 MiB for one page, and later
    /// repopulate ranges that were discarded.
    pub(crate) fn of_pages(len: u64) -> Result<Mapping, Fault> {
        let place = reserve(len as usize)?;
        let base = NonNull::new(place.cast()).expect("mmap never returns null");
        let mapping =
            Mapping { base, len, file: None, huge_pages: HugePages::default(), _registration: None };
        // SAFETY: the range is this mapping, to which no other code refers yet. The size of its pages changes
        // no byte. The advice fails on a kernel without huge pages, and such a kernel does not need it.
        unsafe {
            let rights = MprotectFlags::READ | MprotectFlags::WRITE;
            host::call(|| rustix::mm::mprotect(place, len as usize, rights))
                .map_err(io_fault("mapping memory"))?;
            let _ = rustix::mm::madvise(place, len as usize, Advice::LinuxNoHugepage);
        }
        Ok(mapping)
    }

    /// Maps `len` bytes of zeros as [`Mapping::of_pages`] does, in a memory file that other processes can map
    /// for reading. Returns the mapping, and a descriptor of the file by which other users can only read.
    pub(crate) fn of_shared_pages(len: u64) -> Result<(Mapping, File), Fault> {
        let (file, for_readers) = page_file(len)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // The file cannot shrink, so no access to its pages faults, and the mapping needs no registration.
        let mut mapping = Mapping::map_with(&file, len, None, MapFlags::SHARED, rights)?;
        mapping.file = Some(file);
        // SAFETY: the range is this mapping. The size of its pages changes no byte.
        let _ = unsafe { rustix::mm::madvise(mapping.base().cast(), len as usize, Advice::LinuxNoHugepage) };
        Ok((mapping, for_readers))
    }

    /// Gives the memory of unused pages of [`Mapping::of_pages`] or [`Mapping::of_shared_pages`] back to the
    /// kernel. If the kernel refuses, the pages keep their memory.
    ///
    /// # Safety
    /// No thread of this process accesses the pages during the call.
    pub(crate) unsafe fn let_go(&self, offset: u64, len: u64) {
        debug_assert!(offset.is_multiple_of(PAGE_SIZE) && offset + len <= self.len);
        if self.file.is_some() {
            let _ = self.discard(offset, len);
        } else {
            // SAFETY: the range is whole pages of the mapping, which no thread accesses by contract.
            let _ = unsafe {
                let place = self.base().add(offset as usize).cast();
                rustix::mm::madvise(place, len as usize, Advice::LinuxDontNeed)
            };
        }
    }

    /// Populates an unused range of [`HUGE_PAGE`] bytes of [`Mapping::of_pages`], as one huge page where the
    /// host supports that. Does nothing for a memory file. If the range is discarded later, the kernel
    /// provides its memory page by page again.
    pub(crate) fn populate_huge_page(&self, offset: u64) {
        debug_assert!(offset.is_multiple_of(HUGE_PAGE as u64) && offset + HUGE_PAGE as u64 <= self.len);
        if self.file.is_some() {
            return;
        }
        for advice in [Advice::LinuxHugepage, Advice::LinuxPopulateWrite, Advice::LinuxNoHugepage] {
            // SAFETY: a range inside the mapping; neither the size of its pages nor populating them changes a
            // byte. If a call fails, the kernel provides the pages one by one.
            let _ =
                unsafe { rustix::mm::madvise(self.base().add(offset as usize).cast(), HUGE_PAGE, advice) };
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the pointer to `len` bytes at `offset`, if the mapping has all of them.
    #[inline]
    pub(crate) fn place_of(&self, offset: u64, len: u64) -> Option<*mut u8> {
        // SAFETY: the condition has checked that offset + len is within the mapping.
        (len <= self.len && offset <= self.len - len).then(|| unsafe { self.base().add(offset as usize) })
    }

    /// Makes all stores to the file durable, also those that other processes made through their own mappings.
    /// The kernel records each page of a DAX file to which any process stores. This call writes back the
    /// lines of the pages that were recorded since the previous call.
    #[track_caller]
    pub(crate) fn sync(&self) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        host::call(|| rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)))
            .map_err(io_fault("flushing the mapped file"))
    }

    /// Gives the memory of a page-aligned range of a file back to the host, if the host supports that. Does
    /// nothing for private memory.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        punch(file, offset, len).map_err(io_fault("giving host blocks of the volume back"))
    }

    /// Makes the host provide the memory of a page-aligned range of a file, so that no later store to the
    /// range fails for lack of memory. Does nothing for private memory.
    pub(crate) fn provision(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        debug_assert!(offset.is_multiple_of(PAGE_SIZE) && offset + len <= self.len);
        self.allocate(file, offset, len)?;
        let asked = host::announce(SiteKind::Provision, Location::caller());
        // SAFETY: populating page tables of a range inside the mapping changes no byte.
        let populated = asked.and_then(|()| unsafe {
            let place = self.base().add(offset as usize).cast();
            rustix::mm::madvise(place, len as usize, Advice::LinuxPopulateWrite)
        });
        // Populating in advance only saves time. A kernel that cannot do so (before 5.14) faults each page in
        // at its first use.
        match populated {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(io_fault("pre-faulting the volume")(errno)),
        }
    }

    /// Makes the host allocate the blocks of a range of the file.
    fn allocate(&self, file: &File, offset: u64, len: u64) -> Result<(), Fault> {
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, len))
            .map_err(io_fault("allocating host blocks for the volume"))
    }

    /// As [`Mapping::provision`], for an unused range of [`HUGE_PAGE`] bytes. The range becomes one huge page
    /// if the host can provide a huge page. The call may wait for kernel threads, so only a background thread
    /// makes it.
    pub(crate) fn provision_huge_page(&self, offset: u64) -> Result<(), Fault> {
        if let Some(file) = &self.file
            && self.huge_pages.are_worth_asking()
        {
            // One page is allocated first, because the kernel builds a huge page only in a range that has a
            // page already.
            self.allocate(file, offset, PAGE_SIZE)?;
            self.huge_pages.note_result(self.collapse(offset));
        }
        self.provision(offset, HUGE_PAGE as u64)
    }

    /// Collapses the pages of a range into one huge page. The missing pages of the range become zeros. A huge
    /// page causes fewer TLB misses, and the host provides it in a third of the time of 512 single pages.
    fn collapse(&self, offset: u64) -> Result<(), Errno> {
        debug_assert!(offset.is_multiple_of(HUGE_PAGE as u64) && offset + HUGE_PAGE as u64 <= self.len);
        // SAFETY: collapsing a range inside the mapping into a huge page changes no byte.
        match unsafe { libc::madvise(self.base().add(offset as usize).cast(), HUGE_PAGE, MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }
}

/// The rest of a pause in the requests for huge pages: the number of ranges of 2 MiB that are still to be
/// provided without such a request. It is 0 outside a pause, and [`HugePages::NEVER`] if the host cannot
/// collapse pages.
#[derive(Default)]
struct HugePages(AtomicU32);

impl HugePages {
    /// The host is not asked again, because it cannot provide huge pages on request.
    const NEVER: u32 = u32::MAX;
    /// Length of a pause, in huge pages (64 MiB). A pause begins when the host has no free huge page.
    const PAUSE: u32 = 32;

    /// Returns true if the host should be asked for a huge page. During a pause, counts one huge page of the
    /// pause. [`HugePages::NEVER`] is not a pause and counts nothing.
    fn are_worth_asking(&self) -> bool {
        let pause = self.0.load(Ordering::Relaxed);
        // If two threads load the same count, they subtract one in all, and not two. This only delays the
        // next request.
        if pause > 0 && pause != HugePages::NEVER {
            self.0.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// Notes the result of a request. `MADV_COLLAPSE`, which Linux has had since version 6.1, fails if no
    /// contiguous memory is free.
    fn note_result(&self, result: Result<(), Errno>) {
        match result {
            Ok(()) => {}
            Err(Errno::INVAL) => self.0.store(HugePages::NEVER, Ordering::Relaxed),
            Err(_) => self.0.store(HugePages::PAUSE, Ordering::Relaxed),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The registration ends first, because the host may give these addresses to another mapping.
        self._registration = None;
        // SAFETY: this value owns the mapping, and no code refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base().cast(), self.len as usize) };
    }
}

/// A word in a page that the kernel wipes in forked children. The value 0 tells a child that the medium
/// belongs to its parent.
pub(crate) struct Sentinel {
    word: NonNull<AtomicU64>,
}

// SAFETY: the word is an atomic that lives as long as the value.
unsafe impl Send for Sentinel {}
// SAFETY: as for Send.
unsafe impl Sync for Sentinel {}

impl Sentinel {
    pub(crate) fn new() -> Result<Sentinel, Fault> {
        let (size, rights) = (PAGE_SIZE as usize, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the kernel chooses the address of the new page.
        let map = || unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), size, rights, MapFlags::PRIVATE) };
        let page = host::call(map).map_err(io_fault("mapping a page"))?;
        let word = NonNull::new(page.cast::<AtomicU64>()).expect("mmap never returns null");
        let sentinel = Sentinel { word };
        // SAFETY: the advice changes only the bytes that forked children see.
        host::call(|| unsafe { rustix::mm::madvise(page, size, Advice::LinuxWipeOnFork) })
            .map_err(io_fault("marking a page wiped on fork"))?;
        sentinel.word().store(STATE_SOUND, Ordering::Release);
        Ok(sentinel)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped and aligned, and lives as long as `self`.
        unsafe { self.word.as_ref() }
    }

    /// Checks that the mapping is sound and belongs to this process.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.word().load(Ordering::Acquire) == STATE_SOUND { Ok(()) } else { self.refuse() }
    }

    /// Makes a forked child accept the mapping that it has from its parent.
    pub(crate) fn accept_in_child(&self) {
        let (forked, sound) = (STATE_FORKED, STATE_SOUND);
        let _ = self.word().compare_exchange(forked, sound, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the error for a state other than sound.
    #[cold]
    fn refuse(&self) -> Result<(), Fault> {
        match self.word().load(Ordering::Acquire) {
            STATE_FORKED => Err(Fault::Forked),
            state => {
                debug_assert_eq!(state, STATE_FAILED);
                Err(Fault::Failed)
            }
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // SAFETY: this value owns the page. Registrations that point to the page are dropped before it.
        let _ = unsafe { rustix::mm::munmap(self.word.as_ptr().cast(), PAGE_SIZE as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line of flags that the kernel reports for the mapping at `place`.
    fn flags_at(place: *const u8) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("readable");
        let has_place = |line: &&str| {
            let ends = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let ends = ends.map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16)));
            matches!(ends, Some([Ok(from), Ok(to)]) if (from..to).contains(&place.addr()))
        };
        let flags =
            maps.lines().skip_while(|line| !has_place(line)).find(|line| line.starts_with("VmFlags:"));
        flags.expect("every mapping has them").to_string()
    }

    #[test]
    fn page_by_page_memory_has_no_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let mapping = Mapping::of_pages(8 << 20).expect("memory");
        assert!(flags_at(mapping.base()).contains(" nh"), "{}", flags_at(mapping.base()));
        let others = Mapping::anonymous(8 << 20, false).expect("memory");
        assert!(!flags_at(others.base()).contains(" nh"));
    }

    #[test]
    fn huge_page_request_populates_only_its_range() {
        let mapping = Mapping::of_pages(8 << 20).expect("memory");
        assert!(mapping.base().addr().is_multiple_of(HUGE_PAGE));
        mapping.populate_huge_page(HUGE_PAGE as u64);
        let resident = |page: usize| {
            let mut found = [0_u8; 1];
            // SAFETY: the page is in the mapping, and the array has room for its flag.
            let asked =
                unsafe { libc::mincore(mapping.base().add(page * 4096).cast(), 4096, found.as_mut_ptr()) };
            asked == 0 && found[0] & 1 == 1
        };
        assert!((512..1024).all(resident), "the whole range is resident");
        assert!(![0, 511, 1024, 2047].into_iter().any(resident), "nothing else is resident");
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            let place = mapping.base().wrapping_add(HUGE_PAGE);
            assert!(flags_at(place).contains(" nh"), "later memory comes page by page again");
        }
    }
}
