//! Locks of byte ranges of the host's files, because rustix has no wrapper for them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// The kind of a lock of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostLockKind {
    /// `F_RDLCK`
    Shared,
    /// `F_WRLCK`
    Exclusive,
    /// `F_UNLCK`
    Unlock,
}

/// A lock of a byte range of the host, as `struct flock` describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostRangeLock {
    /// Kind of the lock.
    pub kind: HostLockKind,
    /// Offset of the first byte.
    pub start: u64,
    /// Number of bytes. 0 stands for all bytes from `start` on.
    pub length: u64,
    /// The process that has the lock, in an answer of [`RangeLockCall::Find`]. `None` if an open file has it.
    pub process: Option<u32>,
}

/// A call on locks of byte ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeLockCall {
    /// Find the first lock that conflicts (`F_GETLK`).
    Find,
    /// Lock or unlock, or fail without waiting (`F_SETLK`).
    Set,
    /// Lock or unlock, and wait while another lock conflicts (`F_SETLKW`).
    SetAndWait,
}

/// Makes a call on the locks of an open file. If `of_open_file` is true, the open file owns the lock.
/// Otherwise this process owns it. [`RangeLockCall::Find`] returns the lock that conflicts with `lock`, or a
/// lock of kind [`HostLockKind::Unlock`] if there is none. The other calls return kind and range of `lock`.
///
/// # Errors
/// As `fcntl(2)`. `EINVAL` for a start or a length of 2^63 or more.
pub fn range_lock(
    file: BorrowedFd<'_>,
    call: RangeLockCall,
    of_open_file: bool,
    lock: &HostRangeLock,
) -> Result<HostRangeLock, Errno> {
    let command = match (call, of_open_file) {
        (RangeLockCall::Find, false) => libc::F_GETLK,
        (RangeLockCall::Find, true) => libc::F_OFD_GETLK,
        (RangeLockCall::Set, false) => libc::F_SETLK,
        (RangeLockCall::Set, true) => libc::F_OFD_SETLK,
        (RangeLockCall::SetAndWait, false) => libc::F_SETLKW,
        (RangeLockCall::SetAndWait, true) => libc::F_OFD_SETLKW,
    };
    let kind = match lock.kind {
        HostLockKind::Shared => libc::F_RDLCK,
        HostLockKind::Exclusive => libc::F_WRLCK,
        HostLockKind::Unlock => libc::F_UNLCK,
    };
    // A negative length would stand for the bytes before the start. So a length of 2^63 or more is replaced
    // by a negative start, which the kernel refuses after its checks of the descriptor.
    let (start, length) =
        libc::off_t::try_from(lock.length).map_or((-1, 0), |length| (lock.start as libc::off_t, length));
    let mut flock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, because it is borrowed. Each of the six commands takes a pointer to a
    // `struct flock`, which lives throughout the call. The kernel writes no memory but this structure.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut flock) } != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(HostRangeLock {
        kind: match i32::from(flock.l_type) {
            libc::F_RDLCK => HostLockKind::Shared,
            libc::F_WRLCK => HostLockKind::Exclusive,
            _ => HostLockKind::Unlock,
        },
        start: flock.l_start as u64,
        length: flock.l_len as u64,
        process: u32::try_from(flock.l_pid).ok(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn open_files_lock_ranges_of_the_host() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).open(&path).expect("a file")
        };
        let (one, other) = (open(), open());
        let wanted = HostRangeLock { kind: HostLockKind::Exclusive, start: 5, length: 0, process: None };
        range_lock(one.as_fd(), RangeLockCall::Set, true, &wanted).expect("free");
        let refused = range_lock(other.as_fd(), RangeLockCall::Set, true, &wanted);
        assert_eq!(refused, Err(Errno::AGAIN));
        let all = HostRangeLock { start: 0, ..wanted };
        assert_eq!(range_lock(other.as_fd(), RangeLockCall::Find, true, &all), Ok(wanted));
        drop(one);
        range_lock(other.as_fd(), RangeLockCall::SetAndWait, false, &wanted).expect("free again");
        let bad = HostRangeLock { start: 1 << 63, ..wanted };
        assert_eq!(range_lock(other.as_fd(), RangeLockCall::Set, false, &bad), Err(Errno::INVAL));
    }
}
