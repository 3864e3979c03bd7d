//! Runs a check in a forked child, for tests of a medium that a process inherited.

use std::io;

/// Time limit for a child, in seconds.
const PATIENCE_SECONDS: u32 = 20;

/// Runs `check` in a forked child of this process and returns its result.
///
/// The child has only the calling thread. It exits when `check` returns, and runs no destructor of the
/// callers. So `check` must not take a lock that another thread may hold. `check` must not panic either,
/// because a panic takes locks. A signal kills the child after 20 seconds, and the result is then false.
///
/// # Errors
/// When the host refuses to fork or to report the exit of the child.
pub fn in_forked_child(check: impl FnOnce() -> bool) -> io::Result<bool> {
    // SAFETY: the child runs `check`, which needs nothing of other threads by the contract above, and then
    // `_exit`, which runs no code of this program.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: the default action of the alarm ends the child.
            unsafe { libc::alarm(PATIENCE_SECONDS) };
            let said = check();
            // SAFETY: `_exit` runs no code of this program.
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
