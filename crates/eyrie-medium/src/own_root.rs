//! A root directory for one thread, for tests.

use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread a root, a working directory and a umask that changes by other threads do not
/// touch. The new ones are those that the thread has.
///
/// # Errors
/// As `unshare(2)`.
pub fn own_root() -> Result<(), Errno> {
    // SAFETY: the thread keeps the table of descriptors that it shares with the other threads.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}
