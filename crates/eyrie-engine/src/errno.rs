//! The error numbers of Linux.

use std::fmt;
use std::io;

use rustix::io::Errno as Raw;

/// An error number of Linux, such as `ENOENT`.
///
/// The constants have the names of errno(3) without the `E`. Two names differ: `ACCESS` is `EACCES`, and
/// `TOOBIG` is `E2BIG`. Calls on the host may return other numbers, too, so a `match` needs an arm for these.
///
/// # Examples
/// ```
/// # use eyrie_engine::Errno;
/// let errno = Errno::NOENT;
/// assert_eq!(format!("{errno:?}"), "ENOENT");
/// assert_eq!(errno.to_string(), "No such file or directory (ENOENT)");
/// assert_eq!(std::io::Error::from(errno).raw_os_error(), Some(i32::from(errno)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(i32);

/// Defines the constants, and the function that returns their names.
macro_rules! errnos {
    ($($constant:ident $name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $constant: Errno = Errno(Raw::$constant.raw_os_error());
            )*

            /// Returns the name in errno(3), such as `ENOENT`. `None` for a number without a constant here.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$constant => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    TOOBIG E2BIG
    ACCESS EACCES
    AGAIN EAGAIN
    BADF EBADF
    BUSY EBUSY
    CANCELED ECANCELED
    CONNREFUSED ECONNREFUSED
    DEADLK EDEADLK
    DQUOT EDQUOT
    EXIST EEXIST
    FBIG EFBIG
    ILSEQ EILSEQ
    INTR EINTR
    INVAL EINVAL
    IO EIO
    ISDIR EISDIR
    LOOP ELOOP
    MFILE EMFILE
    MLINK EMLINK
    NAMETOOLONG ENAMETOOLONG
    NFILE ENFILE
    NODATA ENODATA
    NODEV ENODEV
    NOENT ENOENT
    NOLCK ENOLCK
    NOMEM ENOMEM
    NOSPC ENOSPC
    NOSYS ENOSYS
    NOTCONN ENOTCONN
    NOTDIR ENOTDIR
    NOTEMPTY ENOTEMPTY
    NOTTY ENOTTY
    NXIO ENXIO
    OPNOTSUPP EOPNOTSUPP
    OVERFLOW EOVERFLOW
    PERM EPERM
    RANGE ERANGE
    ROFS EROFS
    SPIPE ESPIPE
    STALE ESTALE
    TIMEDOUT ETIMEDOUT
    TXTBSY ETXTBSY
    XDEV EXDEV
}

impl Errno {
    /// Returns the errno with this number. [`std::io::Error::raw_os_error`] returns such numbers.
    ///
    /// ```
    /// use eyrie_engine::Errno;
    ///
    /// assert_eq!(Errno::from_raw_os_error(2), Errno::NOENT);
    /// let error = std::io::Error::from(Errno::NOENT);
    /// assert_eq!(Errno::from_io_error(&error), Some(Errno::NOENT));
    /// ```
    pub const fn from_raw_os_error(number: i32) -> Errno {
        Errno(number)
    }

    /// Returns the number.
    pub const fn raw_os_error(self) -> i32 {
        self.0
    }

    /// Returns the errno of an error of the standard library. `None` if it has no number.
    pub fn from_io_error(error: &io::Error) -> Option<Errno> {
        error.raw_os_error().map(Errno)
    }

    /// Returns the kind that the standard library has for this errno.
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from(self).kind()
    }

    /// Returns the meaning in the words of strerror(3).
    pub fn meaning(self) -> String {
        // The standard library appends the number.
        let mut text = io::Error::from(self).to_string();
        if let Some(end) = text.find(" (os error") {
            text.truncate(end);
        }
        text
    }
}

impl From<Errno> for i32 {
    fn from(errno: Errno) -> i32 {
        errno.0
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

/// Writes the name, or `errno 4095` for a number without a name.
impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

/// Writes the meaning and the name.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self:?})", self.meaning())
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_keeps_number_and_kind() {
        for (errno, name, kind) in [
            (Errno::TOOBIG, "E2BIG", io::ErrorKind::ArgumentListTooLong),
            (Errno::ACCESS, "EACCES", io::ErrorKind::PermissionDenied),
            (Errno::CANCELED, "ECANCELED", io::Error::from_raw_os_error(125).kind()),
            (Errno::NOENT, "ENOENT", io::ErrorKind::NotFound),
            (Errno::from_raw_os_error(4095), "errno 4095", io::Error::from_raw_os_error(4095).kind()),
        ] {
            assert_eq!(format!("{errno:?}"), name);
            assert_eq!(errno.kind(), kind, "{name}");
            assert_eq!(Errno::from_io_error(&errno.into()), Some(errno));
        }
        assert_eq!((Errno::NOENT.raw_os_error(), Errno::STALE.raw_os_error()), (2, 116));
        assert_eq!(Errno::from_io_error(&io::Error::other("no number")), None);
    }

    #[test]
    fn errno_is_shown_with_meaning_and_name() {
        assert_eq!(Errno::NOSPC.to_string(), "No space left on device (ENOSPC)");
        assert_eq!(Errno::from_raw_os_error(4095).to_string(), "Unknown error 4095 (errno 4095)");
    }

    #[test]
    fn errno_is_small() {
        assert_eq!(size_of::<Errno>(), 4);
    }
}
