//! Calls to the host: files, their sizes and locks, address space, threads.
//!
//! If the failure of a call to the host may become an error of a medium or volume, the call goes through
//! [`call`], or the code announces the call first (`announce`). So a test can observe the call and make it
//! fail. (Exceptions are calls that only tests make, the calls of [`shared`](crate::shared), and the calls
//! about the process at the other end of a socket.) Without an observer an announcement costs one test of a
//! flag that only tests and the crash explorer set. The functions from [`open`] to [`write_all_at`] wrap
//! those calls of `std::fs` that volumes need.

use std::cell::RefCell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::site::{Caller, SiteKind};

/// Observes the calls that a thread makes to the host.
pub trait HostObserver {
    /// Called before each call to the host.
    ///
    /// # Errors
    /// The error that the caller gets instead. The call to the host is then not made.
    fn before_call(&self, kind: SiteKind, caller: Caller) -> Result<(), Errno>;
}

/// True after any thread has had an observer.
static USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OF_THREAD: RefCell<Option<Rc<dyn HostObserver>>> = const { RefCell::new(None) };
}

/// Runs `run` while `observer` observes this thread's calls to the host.
pub fn observed_by<T>(observer: Rc<dyn HostObserver>, run: impl FnOnce() -> T) -> T {
    struct Before(Option<Rc<dyn HostObserver>>);
    impl Drop for Before {
        fn drop(&mut self) {
            OF_THREAD.set(self.0.take());
        }
    }
    USED.store(true, Ordering::Relaxed);
    let _before = Before(OF_THREAD.replace(Some(observer)));
    run()
}

/// Announces a call to this thread's observer. On an error the caller must not make the call.
pub(crate) fn announce(kind: SiteKind, caller: Caller) -> Result<(), Errno> {
    if USED.load(Ordering::Relaxed) { announce_to_observer(kind, caller) } else { Ok(()) }
}

#[cold]
fn announce_to_observer(kind: SiteKind, caller: Caller) -> Result<(), Errno> {
    // A thread that is ending has lost its thread-locals, and so its observer.
    let observer = OF_THREAD.try_with(|observer| observer.borrow().clone()).ok().flatten();
    observer.map_or(Ok(()), |observer| observer.before_call(kind, caller))
}

/// Makes a call to the host, unless this thread's observer returns an error for it.
///
/// # Errors
/// The error of the call, or of the observer.
#[track_caller]
pub fn call<T, E: From<Errno>>(call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    announce(SiteKind::Host, Location::caller())?;
    call()
}

/// Opens a file by [`OpenOptions::open`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn open(options: &OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    call(|| options.open(path))
}

/// Reads the metadata of a path by [`std::fs::metadata`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    call(|| std::fs::metadata(path))
}

/// Reads the metadata of an open file by [`File::metadata`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn metadata_of(file: &File) -> io::Result<Metadata> {
    call(|| file.metadata())
}

/// Duplicates a file handle by [`File::try_clone`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn try_clone(file: &File) -> io::Result<File> {
    call(|| file.try_clone())
}

/// Sets the length of a file by [`File::set_len`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn set_len(file: &File, bytes: u64) -> io::Result<()> {
    call(|| file.set_len(bytes))
}

/// Makes the bytes and metadata of a file durable by [`File::sync_all`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn sync_all(file: &File) -> io::Result<()> {
    call(|| file.sync_all())
}

/// Makes the bytes of a file durable by [`File::sync_data`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn sync_data(file: &File) -> io::Result<()> {
    call(|| file.sync_data())
}

/// Fills `out` from a file by [`FileExt::read_exact_at`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    call(|| file.read_exact_at(out, offset))
}

/// Stores `bytes` in a file by [`FileExt::write_all_at`].
///
/// # Errors
/// The host's error.
#[track_caller]
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    call(|| file.write_all_at(bytes, offset))
}

/// A process at the other end of a Unix socket, with the ids that it had when it connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerProcess {
    /// Process id of the peer in the PID namespace of the calling process. 0 if the peer has no id there.
    pub process: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// Returns the process at the other end of a Unix socket. The kernel provides the ids, so the process cannot
/// forge them.
///
/// # Errors
/// Those of `getsockopt`.
pub fn peer_of(socket: BorrowedFd<'_>) -> io::Result<PeerProcess> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer is writable for `bytes` bytes, and the length is a valid pointer.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    match result {
        0 => Ok(PeerProcess { process: peer.pid as u32, uid: peer.uid, gid: peer.gid }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the supplementary groups that the process at the other end of a Unix socket had when it connected.
///
/// # Errors
/// Those of `getsockopt`.
pub fn groups_of_peer(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the buffer is writable for `bytes` bytes, and the length is a valid pointer.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<libc::gid_t>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // If the buffer is too small, the kernel returns the size that all groups need.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}
