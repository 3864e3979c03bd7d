//! A root directory for one thread, for tests.

use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread a root, a working directory and a umask of its own, which start with the present
/// values. Other threads can no longer change them.
///
/// # Errors
/// As `unshare(2)`.
pub fn own_root() -> Result<(), Errno> {
    // SAFETY: the thread keeps the table of descriptors that it shares with the other threads.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}
