//! The error of the library: an errno, the call that failed, and its path.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Errno;

/// Result of a call of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call: an errno with context.
///
/// An error names the call that failed. Errors of [`PosixExt`](crate::PosixExt), of a [`File`](crate::File),
/// of [`Kvfs::open`](crate::Kvfs::open) and of volumes also have the path. An error of a call on one key of a
/// [`Kvfs`](crate::Kvfs) has the key as its path. An error that the errno does not fully describe, such as
/// damage or a fault of the medium, keeps the error of the engine. Only an error with a path, a reason or an
/// error of the engine allocates memory.
///
/// The message has the call, the path and the text of the cause, and for some errors advice.
/// [`source`](std::error::Error::source) always returns `None`, because otherwise a program that prints the
/// chain of sources would print the cause twice. [`Error::engine`] returns the error of the engine.
///
/// # Conversion
/// `?` converts this error to [`std::io::Error`]. The result has the errno as its
/// [`raw_os_error`](std::io::Error::raw_os_error), and the kind that [`std::fs`] returns for this errno. But
/// it has neither the message, the path nor the error of the engine, because an [`std::io::Error`] has an
/// errno or a wrapped error, never both. A program that needs the message keeps the [`Error`], for example in
/// a `Box<dyn std::error::Error>`. Or it wraps the error, and gives up the errno:
///
/// ```
/// # use eyrie::{Errno, Error};
/// let error = Error::new(Errno::NOENT, "open").at("/notes");
/// let wrapped = std::io::Error::new(error.kind(), error);
/// assert_eq!(wrapped.to_string(), "open /notes: No such file or directory");
/// assert_eq!(wrapped.raw_os_error(), None);
/// ```
///
/// [`Errno::from_io_error`] returns the errno of an [`std::io::Error`].
#[derive(thiserror::Error)]
pub struct Error {
    errno: Errno,
    operation: &'static str,
    detail: Option<Box<Detail>>,
}

/// Context beyond errno and operation. The context is boxed, so that [`Error`] is small.
#[derive(Default)]
struct Detail {
    path: Option<PathBuf>,
    engine: Option<eyrie_engine::Error>,
    reason: Option<String>,
}

impl Error {
    /// Makes an error of `operation`, which is the name of a call, such as `open`.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::new(Errno::NOENT, "open").at("/egg");
    /// assert_eq!(error.to_string(), "open /egg: No such file or directory");
    /// ```
    #[cold]
    pub fn new(errno: Errno, operation: &'static str) -> Error {
        Error { errno, operation, detail: None }
    }

    /// Makes an error whose message has this reason in place of the meaning of the errno.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::with_reason(Errno::INVAL, "put", "a key must have at least one byte");
    /// assert_eq!(error.to_string(), "put: a key must have at least one byte");
    /// ```
    #[cold]
    pub fn with_reason(errno: Errno, operation: &'static str, reason: impl Into<String>) -> Error {
        let mut error = Error::new(errno, operation);
        error.detail().reason = Some(reason.into());
        error
    }

    /// Makes an error of `operation` from an error of the engine. The result keeps the engine's error only if
    /// that error says more than its errno.
    #[doc(hidden)]
    #[cold]
    pub fn from_engine(error: eyrie_engine::Error, operation: &'static str) -> Error {
        use eyrie_engine::Error as Engine;
        let errno = error.errno();
        let is_plain = matches!(
            error,
            Engine::NotFound
                | Engine::Exists
                | Engine::NotDirectory
                | Engine::IsDirectory
                | Engine::NotEmpty
                | Engine::NameTooLong
                | Engine::TooManyLinks
                | Engine::NoXattr
                | Engine::NoSpace
                | Engine::Stale
                | Engine::LockConflict
                | Engine::AccessDenied
                | Engine::NotPermitted
        );
        let mut out = Error::new(errno, operation);
        if !is_plain {
            out.detail().engine = Some(error);
        }
        out
    }

    /// Sets the path of the error.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::new(Errno::NOENT, "open").at("/egg");
    /// assert_eq!(error.path(), Some("/egg".as_ref()));
    /// ```
    #[must_use]
    #[cold]
    pub fn at(mut self, path: impl AsRef<Path>) -> Error {
        self.detail().path = Some(path.as_ref().to_owned());
        self
    }

    /// Returns the errno that the POSIX call gives.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::new(Errno::NOENT, "open").at("/egg");
    /// assert_eq!(error.errno(), Errno::NOENT);
    /// ```
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// Returns the call that failed, such as `open`.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::new(Errno::NOENT, "open").at("/egg");
    /// assert_eq!(error.operation(), "open");
    /// ```
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the path that the call failed on, if it is known.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::new(Errno::NOENT, "open").at("/egg");
    /// assert_eq!(error.path(), Some("/egg".as_ref()));
    /// ```
    pub fn path(&self) -> Option<&Path> {
        self.detail.as_ref()?.path.as_deref()
    }

    /// Returns the error of the engine, if it says more than the errno.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::new(Errno::NOENT, "open").at("/egg");
    /// assert!(error.engine().is_none(), "the errno says everything");
    /// ```
    pub fn engine(&self) -> Option<&eyrie_engine::Error> {
        self.detail.as_ref()?.engine.as_ref()
    }

    /// Returns the error kind of the standard library for this errno.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::new(Errno::NOENT, "open").at("/egg");
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    /// ```
    pub fn kind(&self) -> std::io::ErrorKind {
        self.errno.kind()
    }

    /// Returns the meaning of the errno, in the words of `strerror(3)`.
    ///
    /// ```
    /// # use eyrie::{Errno, Error};
    /// let error = Error::new(Errno::NOENT, "open").at("/egg");
    /// assert_eq!(error.meaning(), "No such file or directory");
    /// ```
    pub fn meaning(&self) -> String {
        self.errno.meaning()
    }

    fn detail(&mut self) -> &mut Detail {
        self.detail.get_or_insert_default()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if let Some(path) = self.path() {
            write!(f, " {}", path.display())?;
        }
        let detail = self.detail.as_deref();
        if let Some(reason) = detail.and_then(|detail| detail.reason.as_deref()) {
            write!(f, ": {reason}")
        } else if let Some(engine) = self.engine() {
            match (engine, self.path()) {
                // The message names the volume only once.
                (eyrie_engine::Error::Volume { place, what, .. }, Some(path))
                    if *place == path.to_string_lossy() =>
                {
                    write!(f, ": {what}")
                }
                _ => write!(f, ": {engine}"),
            }
        } else {
            write!(f, ": {}", self.meaning())
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.errno)
    }
}

/// Converts to the errno, so that [`std::io::Error::raw_os_error`] returns it. The message, the path and the
/// error of the engine are lost: see [`Error`].
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        error.errno.into()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use eyrie_engine::Error as Engine;
    use eyrie_medium::{Addr, Fault};

    use super::*;

    /// Returns errors without context, with each part of the context, and from some errors of the engine.
    fn samples() -> Vec<(Error, Errno)> {
        let io = |errno: Errno| Fault::Io { what: "write".to_owned(), source: errno.into() };
        let volume = Engine::Volume { place: "/v".to_owned(), what: "in use".to_owned(), errno: Errno::BUSY };
        let of_engine = [
            (Engine::NotFound, Errno::NOENT),
            (Engine::NoSpace, Errno::NOSPC),
            (Engine::XattrsFull, Errno::NOSPC),
            (Engine::Unsupported("this"), Errno::OPNOTSUPP),
            (Engine::corrupt(Addr::from_raw(4096), "a contradiction"), Errno::IO),
            (Engine::Fault(Fault::ReadOnly), Errno::ROFS),
            (Engine::Fault(Fault::HostFull), Errno::NOSPC),
            (Engine::Fault(io(Errno::IO)), Errno::IO),
            (Engine::Fault(io(Errno::NOSPC)), Errno::NOSPC),
            (volume, Errno::BUSY),
            (Engine::Invalid("this is impossible"), Errno::INVAL),
            (Engine::TooLarge, Errno::FBIG),
            (Engine::LocksLost, Errno::NOLCK),
            (Engine::ServiceEnded, Errno::NOTCONN),
        ];
        let mut all = vec![
            (Error::new(Errno::LOOP, "open"), Errno::LOOP),
            (Error::new(Errno::NOENT, "open").at("/a"), Errno::NOENT),
            (Error::with_reason(Errno::FBIG, "put", "a value must have at most 64 MiB"), Errno::FBIG),
            (Error::with_reason(Errno::IO, "walk", "damaged").at("/a"), Errno::IO),
        ];
        all.extend(of_engine.map(|(error, errno)| (Error::from_engine(error, "open").at("/v"), errno)));
        all
    }

    #[test]
    fn error_message_names_call_path_and_reason() {
        let error = Error::new(Errno::NOENT, "open").at("/a/b");
        assert_eq!(error.to_string(), "open /a/b: No such file or directory");
        let error = Error::with_reason(Errno::IO, "walk", "damaged").at("/a");
        assert_eq!(error.to_string(), "walk /a: damaged");
        for (place, expected) in
            [("/v", "open volume /v: in use"), ("/v/lock", "open volume /v: /v/lock: in use")]
        {
            let error =
                Engine::Volume { place: place.to_owned(), what: "in use".to_owned(), errno: Errno::BUSY };
            let error = Error::from_engine(error, "open volume").at("/v");
            assert_eq!(error.to_string(), expected);
        }
    }

    /// `docs/troubleshooting.md` has a row for each of these texts, except the first one.
    #[test]
    fn regression_message_has_the_text_of_the_engine() {
        for error in [
            Engine::Invalid("this is impossible"),
            Engine::TooLarge,
            Engine::XattrName,
            Engine::XattrTooLarge,
            Engine::Deadlock,
            Engine::TooManyLocks,
            Engine::LocksLost,
            Engine::LockPastEnd,
            Engine::LockTimedOut,
            Engine::LockCancelled,
            Engine::ServiceEnded,
            Engine::NotReserved,
        ] {
            let text = format!("stat: {error}");
            assert_eq!(Error::from_engine(error, "stat").to_string(), text);
        }
    }

    #[test]
    fn io_error_has_the_errno_and_kind_of_every_error() {
        for (error, errno) in samples() {
            let (text, kind) = (error.to_string(), error.kind());
            assert_eq!(error.errno(), errno, "{text}");
            let io = io::Error::from(error);
            assert_eq!(io.raw_os_error(), Some(errno.raw_os_error()), "{text}");
            assert_eq!(io.kind(), kind, "{text}");
            assert_eq!(io.kind(), io::Error::from_raw_os_error(errno.raw_os_error()).kind(), "{text}");
            assert_eq!(Errno::from_io_error(&io), Some(errno), "{text}");
        }
    }

    #[test]
    fn message_has_the_cause_so_there_is_no_source() {
        for (error, _) in samples() {
            assert!(error.source().is_none(), "{error}");
            let Some(engine) = error.engine() else { continue };
            let cause = match engine {
                Engine::Volume { what, .. } => what.clone(),
                engine => engine.to_string(),
            };
            assert!(error.to_string().ends_with(&cause), "{error}");
        }
    }

    #[test]
    fn error_is_small() {
        assert!(size_of::<Error>() <= 32);
    }
}
