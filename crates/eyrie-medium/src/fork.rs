//! A forked child, for tests of what it may do.

use std::io;

/// How long a child may take, in seconds.
const PATIENCE_SECONDS: u32 = 20;

/// Runs `check` in a forked child of this process and gives its verdict.
///
/// The child has only the calling thread and ends without running anything else: `check` must not need a lock that
/// another thread may hold, and so must not panic. A child that is not done after 20 seconds is ended, and says
/// no.
///
/// # Errors
/// When the host refuses to fork, or to tell how the child ended.
pub fn in_forked_child(check: impl FnOnce() -> bool) -> io::Result<bool> {
    // SAFETY: the child runs `check`, which needs nothing of other threads by the contract above, and then `_exit`,
    // which runs no code of this program.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: the default action of the alarm ends the child.
            unsafe { libc::alarm(PATIENCE_SECONDS) };
            let said = check();
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!said)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is valid for the call.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
        }
    }
}
