//! The error of the library: an errno, the call that failed, and its path.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Result of a call of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call: an errno with context.
///
/// An error names the call that failed. Errors of [`PosixExt`](crate::PosixExt), of
/// [`Kvfs::open`](crate::Kvfs::open) and of volumes also have the path. An error that the errno does not
/// fully describe, such as damage or a fault of the medium, keeps the error of the engine. Only an error with
/// a path, a reason or an error of the engine allocates memory.
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
    #[cold]
    pub fn new(errno: Errno, operation: &'static str) -> Error {
        Error { errno, operation, detail: None }
    }

    /// Makes an error whose message has this reason in place of the meaning of the errno.
    #[cold]
    pub fn with_reason(errno: Errno, operation: &'static str, reason: impl Into<String>) -> Error {
        let mut error = Error::new(errno, operation);
        error.detail().reason = Some(reason.into());
        error
    }

    /// Makes an error of `operation` from an error of the engine. The result keeps the engine's error only if
    /// that error says more than its errno.
    #[cold]
    pub fn from_engine(error: eyrie_engine::Error, operation: &'static str) -> Error {
        use eyrie_engine::Error as Engine;
        let errno = error.errno();
        let telling = matches!(
            error,
            Engine::Corrupt { .. }
                | Engine::Fault(_)
                | Engine::Volume { .. }
                | Engine::Unsupported(_)
                | Engine::XattrsFull
        );
        let mut out = Error::new(errno, operation);
        if telling {
            out.detail().engine = Some(error);
        }
        out
    }

    /// Sets the path of the error.
    #[must_use]
    #[cold]
    pub fn at(mut self, path: impl AsRef<Path>) -> Error {
        self.detail().path = Some(path.as_ref().to_owned());
        self
    }

    /// Returns the errno that the POSIX call gives.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// Returns the call that failed, such as `open`.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the path that the call failed on, if it is known.
    pub fn path(&self) -> Option<&Path> {
        self.detail.as_ref()?.path.as_deref()
    }

    /// Returns the error of the engine, if it says more than the errno.
    pub fn engine(&self) -> Option<&eyrie_engine::Error> {
        self.detail.as_ref()?.engine.as_ref()
    }

    /// Returns the error kind of the standard library for this errno.
    pub fn kind(&self) -> std::io::ErrorKind {
        self.errno.kind()
    }

    /// Returns the meaning of the errno, in the words of `strerror(3)`.
    pub fn meaning(&self) -> String {
        meaning(self.errno)
    }

    fn detail(&mut self) -> &mut Detail {
        self.detail.get_or_insert_default()
    }
}

/// Returns the meaning of an errno, without the number that the standard library appends.
fn meaning(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
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
            write!(f, ": {engine}")
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

/// Converts an error without context to its errno. An error with a path, a reason or an error of the engine
/// keeps its kind and is wrapped, and [`std::io::Error::get_ref`] returns the wrapped error.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        match error.detail {
            None => error.errno.into(),
            Some(_) => std::io::Error::new(error.kind(), error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_message_names_call_path_and_reason() {
        let error = Error::new(Errno::NOENT, "open").at("/a/b");
        assert_eq!(error.to_string(), "open /a/b: No such file or directory");
        let io = std::io::Error::from(error);
        assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
        let plain = std::io::Error::from(Error::new(Errno::LOOP, "open"));
        assert_eq!(plain.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }

    #[test]
    fn error_is_small() {
        assert!(size_of::<Error>() <= 32);
    }
}
