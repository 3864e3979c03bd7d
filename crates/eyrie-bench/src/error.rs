//! The error of a run.

use std::io;

/// Result of a part of a run.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The user interrupted the run.
    #[error("interrupted")]
    Interrupted,
    /// A call on a volume or on the host failed.
    #[error(transparent)]
    Call(#[from] eyrie::Error),
    /// A call of another store failed.
    #[error("{0}")]
    Peer(String),
    /// A result is wrong. For example, a side returned other bytes than the last write stored, or has too
    /// many files.
    #[error("{0}")]
    Wrong(String),
    /// A row touched too few of its blocks, files or keys.
    #[error("{touched} different {unit} were touched, but at least {least} are needed")]
    Uncovered {
        /// Number of different targets that the row touched.
        touched: u64,
        /// Number of different targets that the row must touch.
        least: u64,
        /// The kind of the targets, such as blocks.
        unit: &'static str,
    },
    /// The run cannot begin: its arguments do not fit together, the space is too small, or a side lacks
    /// something that the workload needs.
    #[error("{0}")]
    Request(String),
    /// A call outside the workload failed, such as the creation of a directory.
    #[error("{action}: {source}")]
    Host {
        /// The action that failed.
        action: String,
        /// The error of the host.
        source: io::Error,
    },
    /// An error, with the side and the row in which it occurred.
    #[error("{place}: {source}")]
    At {
        /// The side and the row.
        place: String,
        /// The error.
        source: Box<Error>,
    },
}

impl Error {
    /// Adds the side and the row to the error. An interrupt stays as it is, because it is no failure of the
    /// row.
    #[must_use]
    pub fn at(self, place: impl Into<String>) -> Error {
        match self {
            Error::Interrupted => Error::Interrupted,
            source => Error::At { place: place.into(), source: Box::new(source) },
        }
    }

    /// Makes an error of an action outside the measured calls.
    pub(crate) fn host(action: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Host { action: action.into(), source: source.into() }
    }

    /// Makes the error of a wrong result.
    pub(crate) fn wrong(what: impl Into<String>) -> Error {
        Error::Wrong(what.into())
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Error {
        Error::host("a call of the host", source)
    }
}
