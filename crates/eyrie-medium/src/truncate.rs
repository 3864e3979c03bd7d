//! `truncate(2)`, because rustix has no wrapper for it.

use std::ffi::CStr;
use std::io;

use rustix::io::Errno;

/// Sets the length of the host's file `path` to `size` bytes: shortens the file, or extends it with zeros.
///
/// # Errors
/// As `truncate(2)`.
pub fn truncate(path: &CStr, size: u64) -> Result<(), Errno> {
    let size = libc::off_t::try_from(size).map_err(|_| Errno::INVAL)?;
    // SAFETY: `path` ends with NUL and lives throughout the call, which changes no memory of this process.
    match unsafe { libc::truncate(path.as_ptr(), size) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
