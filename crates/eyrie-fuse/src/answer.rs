//! Answers to requests: results, errors, and the numbers of the protocol.

use std::time::Duration;

use eyrie::Access;
use fuser::{AccessFlags, Errno, FopenFlags, INodeNo, OpenFlags, ReplyXattr};

/// The kernel keeps attributes and entries this long, unless a notice makes it forget them earlier.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 3600);
/// The kernel keeps the entries of the root directory this long: see the docs of the crate.
const SHORT: Duration = Duration::from_secs(1);

/// A reply that can be an error.
pub(crate) type Answer<T> = Result<T, Errno>;

/// Returns the errno of an error.
pub(crate) fn errno(error: &eyrie::Error) -> Errno {
    Errno::from_i32(error.errno().raw_os_error())
}

/// Returns the answer to an open that should have made a file. The kernel neither checks the rights on a file
/// that such an open returns, nor truncates it, because it takes the file for a new one. So if somebody has
/// made the file since the look-up of the kernel, and not through this mount, the answer is `ESTALE`. The
/// kernel then begins the open again, and finds the file.
pub(crate) fn error_of_create(error: Errno, flags: i32) -> Errno {
    if error == Errno::EEXIST && flags & EXCLUSIVE == 0 { Errno::ESTALE } else { error }
}

/// Replies to a request: as `$success` does if the result is a success, and with its error otherwise. Then
/// waits until the thread should read the next request.
macro_rules! reply {
    ($adapter:ident, $reply:ident, $result:expr, $success:expr) => {
        match $result {
            Ok(value) => $success(value),
            Err(error) => $reply.error(error),
        }
        $adapter.next_turn();
    };
}
pub(crate) use reply;

/// Returns the time for which the kernel may keep an entry of a directory.
pub(crate) fn entry_life(dir: INodeNo) -> Duration {
    if dir == INodeNo::ROOT { SHORT } else { LONG }
}

/// True for buffered writes to a file that was opened with `O_APPEND`. Direct writes are left out, because
/// the kernel may send the parts of a direct write in any order.
pub(crate) fn is_append(opened: OpenFlags) -> bool {
    opened.0 & (APPEND | DIRECT) == APPEND
}

/// Returns the rights that a request of access(2) asks for.
pub(crate) fn rights(mask: AccessFlags) -> Access {
    Access::from_bits_truncate(mask.bits() as u8)
}

/// Returns the bits of a mode without those of the type.
pub(crate) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// Converts the error of a call.
pub(crate) trait OrErrno<T> {
    fn or_errno(self) -> Answer<T>;
}

impl<T> OrErrno<T> for eyrie::Result<T> {
    fn or_errno(self) -> Answer<T> {
        self.map_err(|error| errno(&error))
    }
}

/// Replies with the size of a list or value if the kernel asks only for the size, and with its bytes
/// otherwise.
pub(crate) fn xattr(reply: ReplyXattr, bytes: &[u8], length: usize) {
    if bytes.is_empty() { reply.size(length as u32) } else { reply.data(&bytes[..length]) }
}

/// The kernel keeps the pages of a file from one open to the next.
pub(crate) const KEEP: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE;
const EXCLUSIVE: i32 = rustix::fs::OFlags::EXCL.bits() as i32;
const APPEND: i32 = rustix::fs::OFlags::APPEND.bits() as i32;
const DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;
pub(crate) const NO_ACCESS_TIME: i32 = rustix::fs::OFlags::NOATIME.bits() as i32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_create_opens_no_file_of_another() {
        let answer = |error, flags| error_of_create(error, flags).code();
        assert_eq!(answer(Errno::EEXIST, 0), Errno::ESTALE.code());
        assert_eq!(answer(Errno::EEXIST, EXCLUSIVE), Errno::EEXIST.code());
        assert_eq!(answer(Errno::ENOSPC, 0), Errno::ENOSPC.code());
    }
}
