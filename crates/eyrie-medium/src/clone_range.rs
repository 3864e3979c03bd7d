//! A call of the host that `rustix` lacks: clones of ranges of files.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Clones a range of the source, a file of the host, into the target. Both files then share the storage of
/// the range. A length of 0 means all bytes up to the end of the source.
///
/// # Errors
/// As `ioctl_ficlonerange(2)`.
pub fn clone_range(
    (source, source_offset): (BorrowedFd<'_>, u64),
    (target, target_offset): (BorrowedFd<'_>, u64),
    length: u64,
) -> Result<(), Errno> {
    let range = libc::file_clone_range {
        src_fd: source.as_raw_fd().into(),
        src_offset: source_offset,
        src_length: length,
        dest_offset: target_offset,
    };
    // SAFETY: the kernel reads `range`, which lives throughout the call, and changes no memory of this
    // process. Both descriptors are open.
    match unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONERANGE, &raw const range) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
