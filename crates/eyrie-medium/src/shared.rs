//! Memory that several processes map: words that all of them access, and bytes that one side writes and the
//! other reads.
//!
//! Invariants:
//! - The file of the memory has a fixed size: it is sealed against truncation, so no other process can
//!   shorten it and make an access fault. [`SharedMemory::map_own`] is the exception: its file is not sealed,
//!   and its caller ensures that only trusted processes can shorten it.
//! - Other processes may change the memory at any moment. So words are atomics, and bytes are copied by
//!   inline assembly. Callers validate the copies.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
#[cfg(feature = "testing")]
use std::panic::Location;
use std::ptr::{self, NonNull};
#[cfg(feature = "testing")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::time::Duration;

use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use crate::copy;
use crate::fault::Fault;
#[cfg(feature = "testing")]
use crate::site::Caller;
use crate::sync::{interleave, sleep};

/// Rights of this process to shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedAccess {
    /// The process reads the memory.
    Read,
    /// The process reads and writes the memory.
    ReadWrite,
}

/// Memory that several processes map.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    access: SharedAccess,
    /// `None` for memory of this process alone.
    file: Option<File>,
    /// Inode of the file; 0 for memory of this process alone.
    inode: AtomicU64,
}

// SAFETY: the mapping is plain memory. Threads access it by atomics and by copies that tolerate races.
unsafe impl Send for SharedMemory {}
// SAFETY: as for Send.
unsafe impl Sync for SharedMemory {}

/// Bytes of a copy between two scheduling points. With the feature `shuttle` a copy has several pieces, so
/// that other threads can change the memory in the middle of the copy.
const PIECE: usize = if cfg!(feature = "shuttle") { 16 } else { usize::MAX };

/// The seals of a file of fixed size.
const FIXED_SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

#[cfg(feature = "testing")]
type StoreObserver = Box<dyn Fn(Caller) + Send + Sync>;
#[cfg(feature = "testing")]
static STORE_OBSERVER: OnceLock<StoreObserver> = OnceLock::new();

/// Calls `observer` before each store of this process to shared memory, from now on. A process has one such
/// observer: later calls change nothing.
#[cfg(feature = "testing")]
pub fn observe_stores(observer: impl Fn(Caller) + Send + Sync + 'static) {
    let _ = STORE_OBSERVER.set(Box::new(observer));
}

/// Tells the observer of a test about a store to shared memory. The store follows immediately.
#[inline(always)]
#[track_caller]
pub fn announce_store() {
    #[cfg(feature = "testing")]
    if let Some(observer) = STORE_OBSERVER.get() {
        observer(Location::caller());
    }
}

fn io_fault(what: &str, errno: rustix::io::Errno) -> Fault {
    Fault::Io { what: what.to_string(), source: errno.into() }
}

/// Moves the mapping of `len` bytes at `new` over the one at `old`, in one step.
///
/// # Safety
/// The caller owns both mappings. The accesses of other threads to the bytes at `old` tolerate any bytes.
///
/// # Aborts
/// If the host has no memory for its own tables after it has removed the old mapping.
pub(crate) unsafe fn move_over(old: *mut libc::c_void, new: *mut libc::c_void, len: usize) {
    // SAFETY: the contract of this function.
    if unsafe { rustix::mm::mremap_fixed(new, len, len, MremapFlags::MAYMOVE, old) }.is_err() {
        // The old memory may be gone, and other threads access it.
        std::process::abort();
    }
}

/// Makes a memory file of `len` zeros, in which its owner can punch holes. The file is not sealed against
/// stores, because the kernel would then refuse to punch holes. Also returns a read-only descriptor for other
/// processes. The file has mode 0400. Only root can open it for stores, and this user only after changing the
/// mode.
pub(crate) fn page_file(len: u64) -> Result<(File, File), Fault> {
    let fault = |errno| io_fault("making shared memory for pages", errno);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("eyrie-pages", flags).map_err(fault)?);
    rustix::fs::ftruncate(&file, len).map_err(fault)?;
    rustix::fs::fchmod(&file, Mode::RUSR).map_err(fault)?;
    rustix::fs::fcntl_add_seals(&file, FIXED_SIZE).map_err(fault)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let for_readers = File::open(path)
        .map_err(|source| Fault::Io { what: "opening shared memory for readers".to_string(), source })?;
    Ok((file, for_readers))
}

impl SharedMemory {
    /// Makes `len` bytes of zeros. The host provides a page at its first use.
    ///
    /// # Errors
    /// [`Fault::Io`] if the host refuses, for example because the process has too many open files.
    pub fn create(len: usize) -> Result<SharedMemory, Fault> {
        SharedMemory::sealed(len, FIXED_SIZE)
    }

    /// Makes `len` bytes of zeros that other processes can only read. The kernel refuses every other mapping
    /// for writing, also to processes of the same user.
    ///
    /// # Errors
    /// As [`SharedMemory::create`].
    pub fn create_for_readers(len: usize) -> Result<SharedMemory, Fault> {
        SharedMemory::sealed(len, FIXED_SIZE | SealFlags::FUTURE_WRITE)
    }

    fn sealed(len: usize, seals: SealFlags) -> Result<SharedMemory, Fault> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("eyrie", flags).map_err(|e| io_fault("making shared memory", e))?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(|e| io_fault("sizing shared memory", e))?;
        let memory = SharedMemory::over(fd, len, SharedAccess::ReadWrite)?;
        // The seals come after the mapping of this process, which stores to the memory.
        let file = memory.file.as_ref().expect("the memory is shared");
        rustix::fs::fcntl_add_seals(file, seals).map_err(|e| io_fault("sealing shared memory", e))?;
        Ok(memory)
    }

    /// Makes `len` bytes of zeros that no other process can map. The host provides a page at its first use,
    /// so the length may exceed the memory of the host.
    ///
    /// # Errors
    /// [`Fault::Io`] if the host refuses, for example because the process has too little address space left.
    pub fn private(len: usize) -> Result<SharedMemory, Fault> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses the address of the new mapping.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, rights, flags) };
        let base = base.map_err(|errno| io_fault("mapping memory", errno))?;
        let base = NonNull::new(base.cast()).expect("mmap never returns null");
        Ok(SharedMemory { base, len, access: SharedAccess::ReadWrite, file: None, inode: AtomicU64::new(0) })
    }

    /// Maps memory that another process made. The memory must have `len` bytes.
    ///
    /// # Errors
    /// [`Fault::Io`] with `EINVAL` if the file has another size or can be shortened. [`Fault::Io`] if the
    /// host refuses the mapping.
    pub fn map(fd: OwnedFd, len: usize, access: SharedAccess) -> Result<SharedMemory, Fault> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|e| io_fault("checking shared memory", e))?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| io_fault("checking shared memory", e))?;
        if !seals.contains(SealFlags::SHRINK) || stat.st_size as u64 != len as u64 {
            return Err(io_fault("checking shared memory", rustix::io::Errno::INVAL));
        }
        SharedMemory::over(fd, len, access)
    }

    /// Maps a file of the host of `len` bytes. The caller ensures that only trusted processes can shorten the
    /// file, because an access past its end faults.
    ///
    /// # Errors
    /// [`Fault::Io`] with `EINVAL` if the file has another size. [`Fault::Io`] if the host refuses the
    /// mapping.
    pub fn map_own(fd: OwnedFd, len: usize, access: SharedAccess) -> Result<SharedMemory, Fault> {
        let stat = rustix::fs::fstat(&fd).map_err(|e| io_fault("checking shared memory", e))?;
        if stat.st_size as u64 != len as u64 {
            return Err(io_fault("checking shared memory", rustix::io::Errno::INVAL));
        }
        SharedMemory::over(fd, len, access)
    }

    /// Maps another file of the same size in place of this memory, at the same address. The rights of this
    /// process stay the same. A thread that accesses the memory meanwhile accesses either the old or the new
    /// memory. [`SharedMemory::file`] still returns the first file.
    ///
    /// # Errors
    /// As [`SharedMemory::map`]. After an error the old memory is still mapped.
    ///
    /// # Aborts
    /// If the host has no memory for its own tables after it has removed the old mapping.
    pub fn replace(&self, fd: OwnedFd) -> Result<(), Fault> {
        let mut new = SharedMemory::map(fd, self.len, self.access)?;
        // SAFETY: both mappings have the same length; `self` owns one and `new` owns the other. The move
        // leaves nothing mapped at the address in `new`, and `forget` keeps its drop from unmapping this
        // address. All accesses are atomics or copies that tolerate any bytes.
        unsafe { move_over(self.base.as_ptr().cast(), new.base.as_ptr().cast(), self.len) };
        // The descriptor is closed here, because `forget` would leave it open.
        new.file = None;
        std::mem::forget(new);
        Ok(())
    }

    fn over(fd: OwnedFd, len: usize, access: SharedAccess) -> Result<SharedMemory, Fault> {
        let rights = match access {
            SharedAccess::Read => ProtFlags::READ,
            SharedAccess::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| io_fault("checking shared memory", errno))?;
        // SAFETY: the kernel chooses the address of the new mapping.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, fd.as_fd(), 0) };
        let base = base.map_err(|errno| io_fault("mapping shared memory", errno))?;
        let base = NonNull::new(base.cast()).expect("mmap never returns null");
        Ok(SharedMemory { base, len, access, file: Some(fd.into()), inode: AtomicU64::new(stat.st_ino) })
    }

    /// Returns the file of the memory, which another process can map. `None` for private memory.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Returns the size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.len
    }

    /// Returns the words of the memory. A process with [`SharedAccess::Read`] only loads them.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory is aligned to a page, and is mapped as long as `self` lives. Every process
        // accesses its words only by atomics, or by copies about which the compiler assumes nothing.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }

    /// Returns the words of four bytes of the memory, such as those on which a thread waits. A process with
    /// [`SharedAccess::Read`] only loads them.
    pub fn short_words(&self) -> &[AtomicU32] {
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 4) }
    }

    /// Returns a word. With the feature `shuttle`, this is a scheduling point.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        interleave();
        &self.words()[index]
    }

    /// Returns a word of four bytes. With the feature `shuttle`, this is a scheduling point.
    #[inline]
    pub fn short_word(&self, index: usize) -> &AtomicU32 {
        interleave();
        &self.short_words()[index]
    }

    /// As [`SharedMemory::word`], for a store or an exchange that follows immediately. A test can observe the
    /// store.
    #[inline]
    #[track_caller]
    pub fn word_to_store(&self, index: usize) -> &AtomicU64 {
        announce_store();
        self.word(index)
    }

    /// As [`SharedMemory::short_word`], for a store or an exchange that follows immediately. A test can
    /// observe the store.
    #[inline]
    #[track_caller]
    pub fn short_word_to_store(&self, index: usize) -> &AtomicU32 {
        announce_store();
        self.short_word(index)
    }

    /// If a word of four bytes is `expected`, sleeps until another thread or process wakes a sleeper of the
    /// word, but at most for `limit`. A change of the word alone does not end the sleep. May return early.
    pub fn sleep_on(&self, index: usize, expected: u32, limit: Duration) {
        let name = (self.inode.load(Ordering::Relaxed), index);
        sleep::sleep_on(&self.short_words()[index], name, expected, limit);
    }

    /// Wakes a thread that sleeps on a word of four bytes.
    pub fn wake_one(&self, index: usize) {
        sleep::wake_one(&self.short_words()[index], (self.inode.load(Ordering::Relaxed), index));
    }

    /// Copies bytes from `offset` on. The bytes may be any mix of old and new ones.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.require(offset, out.len());
        let mut at = offset;
        for piece in out.chunks_mut(PIECE) {
            interleave();
            // SAFETY: the range was checked, and `piece` is private memory that is borrowed exclusively.
            unsafe { copy::copy(piece.as_mut_ptr(), self.base.as_ptr().add(at), piece.len()) };
            at += piece.len();
        }
        compiler_fence(Ordering::Acquire);
    }

    /// Stores bytes from `offset` on.
    ///
    /// # Panics
    /// If the range is outside the memory, or the process may only read it.
    #[track_caller]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.require(offset, bytes.len());
        assert_eq!(self.access, SharedAccess::ReadWrite, "the memory is mapped for reading");
        announce_store();
        compiler_fence(Ordering::Release);
        let mut at = offset;
        for piece in bytes.chunks(PIECE) {
            interleave();
            // SAFETY: the range was checked and is writable. `piece` is private memory.
            unsafe { copy::copy(self.base.as_ptr().add(at), piece.as_ptr(), piece.len()) };
            at += piece.len();
        }
    }

    /// Replaces the memory and its file by new ones in a forked child, so that the child and its parent no
    /// longer share them. The words keep the values that they have at this moment. Other processes can only
    /// read the new memory, as after [`SharedMemory::create_for_readers`].
    ///
    /// # Errors
    /// [`Fault::Io`] if the host has no memory or no descriptor.
    pub fn unshare_in_child(&self) -> Result<(), Fault> {
        let before: Vec<u64> = self.words().iter().map(|word| word.load(Ordering::SeqCst)).collect();
        if !self.replace_in_child(false) {
            return Err(io_fault("making shared memory", rustix::io::Errno::NOMEM));
        }
        self.words().iter().zip(before).for_each(|(word, value)| word.store(value, Ordering::SeqCst));
        Ok(())
    }

    /// Replaces the memory and its file by new ones in a forked child, so that the child and its parent no
    /// longer share them. All bytes become zero. Returns false if the host refuses. If it refuses the new
    /// file, the memory is still the old memory. If it refuses a later call, the new file may already be in
    /// place of the old file.
    ///
    /// Memory without a file only becomes zero. If the program has closed the descriptor of the file, the
    /// memory becomes private.
    ///
    /// A fork handler passes true for `is_alone`: the child then has one thread, so the old descriptor can be
    /// closed for a moment. Apart from stores to atomics, the function makes only system calls.
    pub(crate) fn replace_in_child(&self, is_alone: bool) -> bool {
        let Some(fd) = self.file.as_ref().map(AsRawFd::as_raw_fd) else {
            self.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
            return true;
        };
        // SAFETY: the descriptor belongs to `self.file`, and has its number again after these calls. The new
        // mapping replaces the one that `self` owns, with the same length and rights.
        unsafe {
            // A program may have closed all descriptors, and the number may be that of another file now.
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &raw mut stat) != 0 || stat.st_ino != self.inode.load(Ordering::Relaxed) {
                let (rights, flags) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                let base = self.base.as_ptr().cast();
                return libc::mmap(base, self.len, rights, flags | libc::MAP_FIXED, -1, 0) == base;
            }
            let make = || libc::memfd_create(c"eyrie".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            let mut new = make();
            if new == -1 && is_alone {
                // The limit of descriptors may leave no other number than the old one.
                libc::close(fd);
                new = make();
            }
            if new == -1 {
                return false;
            }
            if libc::ftruncate(new, self.len as libc::off_t) != 0 {
                libc::close(new);
                return false;
            }
            if new != fd {
                let moved = libc::dup3(new, fd, libc::O_CLOEXEC);
                libc::close(new);
                if moved == -1 {
                    return false;
                }
            }
            if libc::fstat(fd, &raw mut stat) == 0 {
                self.inode.store(stat.st_ino, Ordering::Relaxed);
            }
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let base = self.base.as_ptr().cast();
            let seals = (FIXED_SIZE | SealFlags::FUTURE_WRITE).bits();
            libc::mmap(base, self.len, rights, flags, fd, 0) == base
                && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
        }
    }

    fn require(&self, offset: usize, len: usize) {
        assert!(len <= self.len && offset <= self.len - len, "a range outside shared memory");
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_share_words_and_bytes() {
        let mine = SharedMemory::create(8192).expect("room");
        let fd = mine.file().expect("shared").try_clone().expect("room").into();
        let other = SharedMemory::map(fd, 8192, SharedAccess::Read).expect("the same memory");
        mine.words()[3].store(7, Ordering::Release);
        mine.write(4090, b"nest");
        let mut bytes = [0; 4];
        other.read(4090, &mut bytes);
        assert_eq!((other.words()[3].load(Ordering::Acquire), &bytes), (7, b"nest"));
        assert_eq!(other.short_words()[6].load(Ordering::Acquire), 7);
    }

    /// The flags of the pages of a large volume may need more memory than a small host has. Without
    /// overcommit (mode 2), the kernel reserves memory for every mapping.
    #[test]
    fn regression_private_memory_may_exceed_the_memory_of_the_host() {
        let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
        if mode.trim() != "2" {
            let memory = SharedMemory::private(1 << 44).expect("address space");
            memory.words()[1 << 40].store(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn memory_that_can_shrink_or_has_another_size_is_refused() {
        let open = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let open = open.expect("room");
        rustix::fs::ftruncate(&open, 4096).expect("room");
        assert!(SharedMemory::map(open, 4096, SharedAccess::Read).is_err());
        let fixed = SharedMemory::create(4096).expect("room");
        let fd = fixed.file().expect("shared").try_clone().expect("room").into();
        assert!(SharedMemory::map(fd, 8192, SharedAccess::Read).is_err());
        let read_only = SharedMemory::create_for_readers(4096).expect("room");
        let fd = || read_only.file().expect("shared").try_clone().expect("room").into();
        assert!(SharedMemory::map(fd(), 4096, SharedAccess::ReadWrite).is_err());
        assert!(SharedMemory::map(fd(), 4096, SharedAccess::Read).is_ok());
        assert!(rustix::fs::ftruncate(fixed.file().expect("shared"), 0).is_err());
    }
}
