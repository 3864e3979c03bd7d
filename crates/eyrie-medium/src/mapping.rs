//! One mapped segment: a host file, or anonymous memory for tests.

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
use crate::plan::{self, SiteKind, host_call};

fn io_fault(what: &str) -> impl FnOnce(Errno) -> Fault {
    move |errno| Fault::of_room(what, errno.into())
}

/// Size of a huge page, in bytes, and the alignment that lets the kernel use one.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// `MADV_COLLAPSE` of `madvise(2)`, which the C library's bindings lack.
const MADV_COLLAPSE: libc::c_int = 25;

/// Address space of `len` bytes that begins at a huge page's boundary.
fn reserve(len: usize) -> Result<*mut libc::c_void, Fault> {
    let most = len + HUGE_PAGE;
    // SAFETY: a new mapping at an address of the kernel's choice, of which only the ends are given back.
    unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let base = host_call(|| rustix::mm::mmap_anonymous(ptr::null_mut(), most, ProtFlags::empty(), flags))
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

/// Makes a hole in a file where the host can do that.
pub(crate) fn punch(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, len)) {
        Err(Errno::NODEV | Errno::OPNOTSUPP) => Ok(()),
        done => done,
    }
}

/// A mapping of one host file, shared or private, or anonymous memory; unmapped on drop.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: u64,
    /// Where changes go, if they go anywhere.
    file: Option<File>,
    huge_pages: HugePages,
    _registration: Option<Registration>,
}

// SAFETY: the mapping is plain memory, reached only through the checked accessors of `Medium`, which use atomics or
// race-tolerant copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`: `synchronously`, so that a store to it needs no system call to persist, or
    /// as any file.
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

    /// Maps the first `len` bytes of `file` for this mapping alone: pages that are changed are copied first.
    pub(crate) fn copy(file: &File, len: u64, sentinel: &Sentinel) -> Result<Mapping, Fault> {
        Mapping::map(file, len, sentinel, MapFlags::PRIVATE)
    }

    fn map(file: &File, len: u64, sentinel: &Sentinel, sharing: MapFlags) -> Result<Mapping, Fault> {
        let place = reserve(len as usize)?;
        let flags = sharing | MapFlags::NORESERVE | MapFlags::FIXED;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: takes the place of the reservation, which nothing else knows of.
        let base =
            host_call(|| unsafe { rustix::mm::mmap(place, len as usize, rights, flags, file.as_fd(), 0) });
        let base = base.map_err(|errno| {
            // SAFETY: the reservation was not replaced, and nothing refers to it.
            let _ = unsafe { rustix::mm::munmap(place, len as usize) };
            match errno {
                // Which of the two depends on how much of the kernel knows the flags.
                Errno::OPNOTSUPP | Errno::INVAL if sharing.contains(MapFlags::SYNC) => Fault::NotSynchronous,
                errno => io_fault("mapping a segment")(errno),
            }
        })?;
        // SAFETY: the range is this mapping; the medium drops its segments before its sentinel.
        let registration = unsafe { Registration::new(base.cast(), len as usize, sentinel.word.as_ptr()) };
        let base = NonNull::new(base.cast()).expect("mmap gives no null");
        Ok(Mapping { base, len, file: None, huge_pages: HugePages::default(), _registration: registration })
    }

    /// Zeroed private memory of `len` bytes; all of it at once, if it is about to be `filled`.
    pub(crate) fn anonymous(len: u64, filled: bool) -> Result<Mapping, Fault> {
        let flags = MapFlags::PRIVATE | if filled { MapFlags::POPULATE } else { MapFlags::NORESERVE };
        // SAFETY: a new mapping at an address of the kernel's choice.
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
            base: NonNull::new(base).expect("mmap gives no null"),
            len,
            file: None,
            huge_pages: HugePages::default(),
            _registration: None,
        })
    }

    /// Zeroed private memory of `len` bytes that comes and goes page by page, and begins at a huge page's boundary. The
    /// kernel would give, and later fill up, huge pages for single ones otherwise, where it is told to do so always.
    pub(crate) fn of_pages(len: u64) -> Result<Mapping, Fault> {
        let place = reserve(len as usize)?;
        let base = NonNull::new(place.cast()).expect("mmap gives no null");
        let mapping =
            Mapping { base, len, file: None, huge_pages: HugePages::default(), _registration: None };
        // SAFETY: the range is this mapping, which nothing else knows of; the size of its pages changes no byte. A kernel
        // that has no huge pages refuses to do without them.
        unsafe {
            let rights = MprotectFlags::READ | MprotectFlags::WRITE;
            host_call(|| rustix::mm::mprotect(place, len as usize, rights))
                .map_err(io_fault("mapping memory"))?;
            let _ = rustix::mm::madvise(place, len as usize, Advice::LinuxNoHugepage);
        }
        Ok(mapping)
    }

    /// Takes the memory of a range of [`HUGE_PAGE`] bytes of [`Mapping::of_pages`], none of which is in use, with one fault
    /// where the host can. Only memory that comes later is page by page again.
    pub(crate) fn bring_huge_page(&self, offset: u64) {
        debug_assert!(offset.is_multiple_of(HUGE_PAGE as u64) && offset + HUGE_PAGE as u64 <= self.len);
        for advice in [Advice::LinuxHugepage, Advice::LinuxPopulateWrite, Advice::LinuxNoHugepage] {
            // SAFETY: a range inside the mapping; neither the size of its pages nor populating them changes a byte. Where it
            // fails, pages come one by one.
            let _ =
                unsafe { rustix::mm::madvise(self.base().add(offset as usize).cast(), HUGE_PAGE, advice) };
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn place(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Makes durable what any mapping of the file shows. The kernel notes each page of a DAX file that is stored to, whoever stores,
    /// and writes back the lines of those that it has noted since the last call.
    #[track_caller]
    pub(crate) fn sync(&self) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        host_call(|| rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)))
            .map_err(io_fault("writing back the stores of a process that died"))
    }

    /// Gives the memory of a page-aligned range back to the host, if that can take it.
    pub(crate) fn unback(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        punch(file, offset, len).map_err(io_fault("giving host blocks of the volume back"))
    }

    /// Makes the host provide the memory of a page-aligned range, so that no later store can fail for want of it.
    pub(crate) fn back(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        debug_assert!(offset.is_multiple_of(PAGE_SIZE) && offset + len <= self.len);
        self.allocate(file, offset, len)?;
        let asked = plan::ask(SiteKind::Back, Location::caller()).map_err(Errno::from);
        // SAFETY: populating page tables of a range inside the mapping changes no byte.
        let populated = asked.and_then(|()| unsafe {
            let place = self.base().add(offset as usize).cast();
            rustix::mm::madvise(place, len as usize, Advice::LinuxPopulateWrite)
        });
        // Pre-faulting only saves time: a kernel without it (before 5.14) faults the pages in as they are used.
        match populated {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(io_fault("pre-faulting the volume")(errno)),
        }
    }

    fn allocate(&self, file: &File, offset: u64, len: u64) -> Result<(), Fault> {
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, len))
            .map_err(io_fault("allocating host blocks for the volume"))
    }

    /// As [`Mapping::back`] for a range of [`HUGE_PAGE`] bytes that nobody uses, as one huge page where the host has one. It may wait
    /// for other threads of the kernel.
    pub(crate) fn back_huge_page(&self, offset: u64) -> Result<(), Fault> {
        if let Some(file) = &self.file
            && self.huge_pages.are_worth_asking()
        {
            // The kernel makes no huge page where there is nothing at all.
            self.allocate(file, offset, PAGE_SIZE)?;
            self.huge_pages.asked(self.collapse(offset));
        }
        self.back(offset, HUGE_PAGE as u64)
    }

    /// Makes one huge page of the pages in its range, and of zeros where there are none. It spares translation misses, and
    /// where pages are missing it takes a third of the time that they would take one by one.
    fn collapse(&self, offset: u64) -> Result<(), Errno> {
        debug_assert!(offset.is_multiple_of(HUGE_PAGE as u64) && offset + HUGE_PAGE as u64 <= self.len);
        // SAFETY: collapsing a range inside the mapping into a huge page changes no byte.
        match unsafe { libc::madvise(self.base().add(offset as usize).cast(), HUGE_PAGE, MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }
}

/// When the host is worth asking for a huge page.
#[derive(Default)]
struct HugePages(AtomicU32);

impl HugePages {
    /// The host never gives any.
    const NEVER: u32 = u32::MAX;
    /// Huge pages for which the host is not asked once it had none: 64 MiB of them.
    const PAUSE: u32 = 32;

    fn are_worth_asking(&self) -> bool {
        let pause = self.0.load(Ordering::Relaxed);
        // Two threads that count one down as one do no harm.
        if pause > 0 && pause != HugePages::NEVER {
            self.0.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// Notes the host's answer: tmpfs gives them since Linux 6.1, if it has the memory in one piece.
    fn asked(&self, answer: Result<(), Errno>) {
        match answer {
            Ok(()) => {}
            Err(Errno::INVAL) => self.0.store(HugePages::NEVER, Ordering::Relaxed),
            Err(_) => self.0.store(HugePages::PAUSE, Ordering::Relaxed),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self._registration = None;
        // SAFETY: the mapping is this value's own and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base().cast(), self.len as usize) };
    }
}

/// A word in a page that the kernel wipes in forked children: tells a child that the medium is not its own.
pub(crate) struct Sentinel {
    word: NonNull<AtomicU64>,
}

// SAFETY: the word is an atomic that lives as long as the value.
unsafe impl Send for Sentinel {}
// SAFETY: as above.
unsafe impl Sync for Sentinel {}

impl Sentinel {
    pub(crate) fn new() -> Result<Sentinel, Fault> {
        let (size, rights) = (PAGE_SIZE as usize, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new private page at an address of the kernel's choice.
        let map = || unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), size, rights, MapFlags::PRIVATE) };
        let page = host_call(map).map_err(io_fault("mapping a page"))?;
        let word = NonNull::new(page.cast::<AtomicU64>()).expect("mmap gives no null");
        let sentinel = Sentinel { word };
        // SAFETY: advising the page changes what forked children see of it, and nothing else.
        host_call(|| unsafe { rustix::mm::madvise(page, size, Advice::LinuxWipeOnFork) })
            .map_err(io_fault("marking a page wiped on fork"))?;
        sentinel.word().store(STATE_SOUND, Ordering::Release);
        Ok(sentinel)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped and aligned, and lives as long as `self`.
        unsafe { self.word.as_ref() }
    }

    /// Whether the mapping is sound and this process's own.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.word().load(Ordering::Acquire) == STATE_SOUND { Ok(()) } else { self.refuse() }
    }

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
        // SAFETY: the page is this value's own; registrations that point to it are dropped before it.
        let _ = unsafe { rustix::mm::munmap(self.word.as_ptr().cast(), PAGE_SIZE as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says of the mapping that `place` is in: its line of flags.
    fn flags_at(place: *const u8) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("this process's own");
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
    fn memory_that_comes_and_goes_page_by_page_has_no_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let mapping = Mapping::of_pages(8 << 20).expect("memory");
        assert!(flags_at(mapping.base()).contains(" nh"), "{}", flags_at(mapping.base()));
        let others = Mapping::anonymous(8 << 20, false).expect("memory");
        assert!(!flags_at(others.base()).contains(" nh"));
    }

    #[test]
    fn a_huge_page_comes_where_it_is_asked_for_and_nowhere_else() {
        let mapping = Mapping::of_pages(8 << 20).expect("memory");
        assert!(mapping.base().addr().is_multiple_of(HUGE_PAGE));
        mapping.bring_huge_page(HUGE_PAGE as u64);
        let resident = |page: usize| {
            let mut found = [0_u8; 1];
            // SAFETY: a page of the mapping, and room for what is said of it.
            let asked =
                unsafe { libc::mincore(mapping.base().add(page * 4096).cast(), 4096, found.as_mut_ptr()) };
            asked == 0 && found[0] & 1 == 1
        };
        assert!((512..1024).all(resident), "all of it is there");
        assert!(![0, 511, 1024, 2047].into_iter().any(resident), "nothing else is");
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            let place = mapping.base().wrapping_add(HUGE_PAGE);
            assert!(flags_at(place).contains(" nh"), "later memory comes page by page again");
        }
    }
}
