//! Errors below a volume, and the signal handler that turns a failed mapping into an error.

use std::io;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::Addr;
use crate::addr::PAGE_SIZE;

/// The error of an access that a medium refused, or of a host that failed.
///
/// ```
/// use eyrie_medium::{Addr, Fault};
///
/// /// Returns the address of the page that a disk has damaged.
/// fn damaged(fault: &Fault) -> Option<Addr> {
///     let Fault::Checksum { addr, .. } = fault else { return None };
///     Some(*addr)
/// }
/// # assert_eq!(damaged(&Fault::Failed), None);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The address is outside the volume. A corrupt pointer is the usual cause.
    #[error("address {addr} (length {len} bytes) is outside the volume")]
    OutOfBounds {
        /// The address.
        addr: Addr,
        /// Length of the access, in bytes.
        len: u64,
    },
    /// The address of a word or line is not aligned. A corrupt pointer is the usual cause.
    #[error("address {addr} is not aligned")]
    Misaligned {
        /// The address.
        addr: Addr,
    },
    /// The mapping failed under the program: its file was truncated, or the host could not provide a page of
    /// the file.
    #[error("the volume's host file failed under its mapping (truncated, or its disk is full or broken)")]
    Failed,
    /// The volume was opened by this process's parent.
    #[error(
        "the volume belongs to the process that opened it, not to a forked child; open it again in the child"
    )]
    Forked,
    /// The host's file is not on persistent memory, or its file system is not mounted with DAX.
    #[error("the host does not map the volume's file synchronously (MAP_SYNC)")]
    NotSynchronous,
    /// The disk has no complete paged volume: none was made, the end of the volume is missing, or its anchor
    /// is damaged.
    #[error("there is no complete volume with a journal (truncated, or never finished)")]
    NotPaged,
    /// A page that was read from the disk does not match its checksum. The disk has lost or changed some of
    /// its bytes.
    #[error("the page at address {addr} does not match its checksum: the disk has damaged it")]
    Checksum {
        /// Address of the page.
        addr: Addr,
    },
    /// A drain failed, so the volume accepts no change any more. A store to the page cache of another process
    /// also returns this error, and so does each commit of the engine after a panic inside a change.
    #[error(
        "the volume accepts no changes now: close it, repair its disk if the disk failed, and open it again"
    )]
    ReadOnly,
    /// An Op needs more room in the journal than it has reserved, or it lends more pages to its cut than the
    /// overflow of a record may have. The Op has committed nothing that a second attempt would do twice, so
    /// it can be made again with more room.
    #[error("one call has more changes than the journal of the volume has room for: it needs {needed} bytes")]
    OpTooLarge {
        /// The room that the Op needs at least, in bytes.
        needed: u64,
    },
    /// The host has no room for more of the volume.
    #[error("the file system that holds the volume is full")]
    HostFull,
    /// The host refused a call.
    #[error("{what}: {source}")]
    Io {
        /// The purpose of the call, for the message.
        what: String,
        /// The host's error.
        source: io::Error,
    },
}

/// Returns true if the host has no room, or if the user of this process has reached a quota there.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Fault {
    /// Returns the error for a failed call that may need room on the host.
    pub(crate) fn of_room(what: &str, source: io::Error) -> Fault {
        if is_full(&source) { Fault::HostFull } else { Fault::Io { what: what.to_string(), source } }
    }

    /// Returns true if the host lacks room, also if the error is a [`Fault::Io`].
    #[doc(hidden)]
    pub fn lacks_room(&self) -> bool {
        match self {
            Fault::HostFull => true,
            Fault::Io { source, .. } => is_full(source),
            _ => false,
        }
    }
}

/// Value of a medium's state word in a forked child. It must be 0, because the word is in a page that the
/// kernel fills with zeros in a forked child.
pub(crate) const STATE_FORKED: u64 = 0;
pub(crate) const STATE_SOUND: u64 = 1;
pub(crate) const STATE_FAILED: u64 = 2;

/// Maximum number of registered ranges. Their table is static because a signal handler may not allocate.
const RANGES: usize = 1024;

/// A mapped range whose faults the handler turns into errors. The handler ignores an entry with `len` 0.
/// `len` is stored last and cleared first, because the handler may run at any moment and uses the other
/// fields if `len` is not 0. An entry with `claimed` 0 is free.
struct WatchedRange {
    base: AtomicUsize,
    len: AtomicUsize,
    state: AtomicPtr<AtomicU64>,
    claimed: AtomicU64,
}

static REGISTRY: [WatchedRange; RANGES] = [const {
    WatchedRange {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        state: AtomicPtr::new(ptr::null_mut()),
        claimed: AtomicU64::new(0),
    }
}; RANGES];

/// The action for SIGBUS that this process had before [`install`].
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Keeps one range registered with the signal handler.
pub(crate) struct Registration(usize);

impl Registration {
    /// Registers `len` bytes at `base`. Returns `None` when the table is full. A fault in that range is then
    /// passed to the previous handler, which usually ends the process.
    ///
    /// # Safety
    /// The range is one mapping, and `state` points to a word that outlives the registration.
    pub(crate) unsafe fn new(base: *mut u8, len: usize, state: *mut AtomicU64) -> Option<Registration> {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let claim = |range: &WatchedRange| {
            range.claimed.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let index = REGISTRY.iter().position(claim)?;
        let range = &REGISTRY[index];
        range.base.store(base as usize, Ordering::Relaxed);
        range.state.store(state, Ordering::Relaxed);
        // This store comes last, because the handler reads `len` first and then uses the fields above.
        range.len.store(len, Ordering::Release);
        Some(Registration(index))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let range = &REGISTRY[self.0];
        // This store comes first, so that no handler uses the entry while another thread claims it.
        range.len.store(0, Ordering::Release);
        range.claimed.store(0, Ordering::Release);
    }
}

/// Installs the handler, and keeps the previous action for [`pass_on`].
fn install() {
    // SAFETY: the structures are valid for the calls, and the handler is async-signal-safe, as its own
    // comment shows. The previous action is leaked on purpose, because the handler may need it until the
    // process ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        let previous = Box::into_raw(Box::new(std::mem::zeroed::<libc::sigaction>()));
        if libc::sigaction(libc::SIGBUS, &action, previous) == 0 {
            PREVIOUS.store(previous, Ordering::Release);
        }
    }
}

/// Maps a zero page at a fault in a registered range, and marks the medium as failed. The faulting
/// instruction then runs again on the zero page, and the next [`Medium::check`](crate::Medium::check) reports
/// the failure. Every other SIGBUS goes to the previous handler.
///
/// # Safety
/// Called by the kernel as a signal handler, with a valid `info`.
unsafe extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo. Accesses to atomics, mmap and sigaction are
    // async-signal-safe. A state word outlives its registration, and errno is put back.
    unsafe {
        // The kernel gives its own faults positive codes. A signal from `kill` or `sigqueue` has no address.
        if (*info).si_code <= 0 {
            return pass_on_sent(signal, info, context);
        }
        let address = (*info).si_addr() as usize;
        let hit = REGISTRY.iter().find(|range| {
            let len = range.len.load(Ordering::Acquire);
            address.wrapping_sub(range.base.load(Ordering::Relaxed)) < len
        });
        let Some(range) = hit else { return pass_on(signal, info, context) };
        // The interrupted code may have made a system call and not read errno yet. `mmap` may change errno,
        // so errno is saved.
        let errno = *libc::__errno_location();
        let page = address & !(PAGE_SIZE as usize - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let mapped =
            libc::mmap(page as *mut _, PAGE_SIZE as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        *libc::__errno_location() = errno;
        if mapped == libc::MAP_FAILED {
            return pass_on(signal, info, context);
        }
        (*range.state.load(Ordering::Relaxed)).store(STATE_FAILED, Ordering::Release);
    }
}

/// Passes a signal to the previous handler, or restores the default action if the previous action had no
/// handler.
///
/// # Safety
/// As [`on_bus_error`].
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: `sigaction` has stored the previous action, whose handler has the type that its flags say.
    // Without a previous handler the default action is restored. The faulting instruction then runs again
    // after this handler returns, and the default action ends the process.
    unsafe {
        let previous = PREVIOUS.load(Ordering::Acquire);
        let handler = if previous.is_null() { libc::SIG_DFL } else { (*previous).sa_sigaction };
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
        } else if (*previous).sa_flags & libc::SA_SIGINFO != 0 {
            type Action = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Action>(handler)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(i32)>(handler)(signal);
        }
    }
}

/// Passes on a signal that a program sent. No instruction repeats this signal after the handler returns. So
/// the signal is raised again if the previous action was the default, and is dropped if the previous action
/// ignored it.
///
/// # Safety
/// As [`on_bus_error`].
unsafe fn pass_on_sent(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as in `pass_on`. Besides, sigaction and raise are async-signal-safe, and the structure is valid
    // for the call.
    unsafe {
        let previous = PREVIOUS.load(Ordering::Acquire);
        if !previous.is_null() && (*previous).sa_sigaction == libc::SIG_IGN {
            return;
        }
        pass_on(signal, info, context);
        // The handler of the standard library also restores the default action, except for stack overflows.
        // So the action is read anew.
        let mut now: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_DFL {
            libc::raise(signal);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::fork::in_forked_child;

    static CALLED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn called(_: i32) {
        CALLED.fetch_add(1, Ordering::SeqCst);
    }

    /// Sends SIGBUS to this process, which is a forked child. The signal handler passes the signal on to
    /// `handler`. If `handler` is `None`, the signal goes to the previous handler.
    fn send_to(handler: Option<usize>) {
        // SAFETY: a structure of zeros is a valid action, and the child has one thread.
        unsafe {
            if let Some(handler) = handler {
                let mut previous: libc::sigaction = std::mem::zeroed();
                previous.sa_sigaction = handler;
                PREVIOUS.store(Box::into_raw(Box::new(previous)), Ordering::Release);
            }
            libc::kill(libc::getpid(), libc::SIGBUS);
        }
    }

    /// Makes a file of two pages, and a medium over it.
    fn two_pages() -> (std::fs::File, crate::Medium) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(2 * PAGE_SIZE).expect("room");
        let medium = crate::Medium::dram(vec![(file.try_clone().expect("a handle"), 2 * PAGE_SIZE)]);
        let medium = medium.expect("a mapping");
        (file, medium)
    }

    #[test]
    fn regression_sent_bus_error_is_passed_on() {
        let (file, medium) = two_pages();
        let lives = |check: &dyn Fn() -> bool| in_forked_child(check).expect("a child");
        // Without a `handler`, the signal goes to the standard library's handler, which restores the default
        // action. This action kills the child.
        let survives = |handler| {
            lives(&|| {
                send_to(handler);
                true
            })
        };
        assert!(!survives(None), "swallowed instead of passed to the handler of the standard library");
        assert!(!survives(Some(libc::SIG_DFL)), "swallowed instead of left to the default action");
        assert!(survives(Some(libc::SIG_IGN)), "ignored before");
        // The handler `called` runs once for each of the two signals. It does not run for the fault of the
        // load, because that fault is in the medium's mapping.
        assert!(lives(&|| {
            send_to(Some(called as *const () as usize));
            send_to(None);
            file.set_len(PAGE_SIZE).is_ok()
                && medium.load(Addr::from_raw(PAGE_SIZE)).is_ok()
                && CALLED.load(Ordering::SeqCst) == 2
        }));
    }

    const ERRNO: i32 = libc::EXDEV;

    extern "C" fn exit_with_errno(_: i32) {
        // SAFETY: the address is that of this thread's errno, and the child ends here.
        unsafe { libc::_exit(i32::from(*libc::__errno_location() != ERRNO)) }
    }

    #[test]
    fn regression_failed_mapping_in_the_handler_keeps_errno() {
        let (file, medium) = two_pages();
        file.set_len(PAGE_SIZE).expect("a shorter file");
        let kept = in_forked_child(|| {
            // SAFETY: structures of zeros are valid, and the child has one thread. Without address space the
            // handler cannot map a page, so it passes the signal on.
            unsafe {
                let mut previous: libc::sigaction = std::mem::zeroed();
                previous.sa_sigaction = exit_with_errno as *const () as usize;
                PREVIOUS.store(Box::into_raw(Box::new(previous)), Ordering::Release);
                let limit = libc::rlimit { rlim_cur: PAGE_SIZE, rlim_max: PAGE_SIZE };
                if libc::setrlimit(libc::RLIMIT_AS, &limit) != 0 {
                    return false;
                }
                *libc::__errno_location() = ERRNO;
            }
            let _ = medium.load(Addr::from_raw(PAGE_SIZE));
            false
        });
        assert!(kept.expect("a child"));
    }
}
