//! Errors of mounting.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a volume could not be mounted or unmounted.
///
/// ```no_run
/// # use eyrie_fuse::*; fn f(volume: &eyrie::Volume) {
/// match mount(volume, "/mnt/nest", &MountOptions::default()) {
///     Err(MountError::Busy { path, .. }) => println!("{} has a mount", path.display()),
///     result => println!("{result:?}"),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("mount {}: {}", path.display(), meaning(source))]
    #[non_exhaustive]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// `ENOENT`, `ENOTDIR`, `EACCES`, or another error of the host.
        source: io::Error,
    },
    /// A file system is already mounted at the mount point.
    #[error("mount {}: another file system is mounted there; unmount it first", path.display())]
    #[non_exhaustive]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// The kernel has no FUSE, or the user may not use it.
    #[error("mount {}: no FUSE: {}; load the module with `modprobe fuse`", path.display(), meaning(source))]
    #[non_exhaustive]
    NoFuse {
        /// The mount point.
        path: PathBuf,
        /// The error of opening `/dev/fuse`.
        source: io::Error,
    },
    /// `fusermount3` is missing. Only root may mount and unmount without it.
    #[error(
        "{action} {}: only root may {action} without `fusermount3`; install the package fuse3",
        path.display()
    )]
    #[non_exhaustive]
    NoHelper {
        /// The action: `mount` or `unmount`.
        action: &'static str,
        /// The mount point.
        path: PathBuf,
    },
    /// An option that is unknown, has a wrong value, or is refused.
    #[error("mount option {option}: {reason}")]
    #[non_exhaustive]
    Option {
        /// The option.
        option: String,
        /// The reason, and advice.
        reason: &'static str,
    },
    /// The kernel, `fusermount3` or the host refused.
    #[error("{action} {}: {}", path.display(), meaning(source))]
    #[non_exhaustive]
    Refused {
        /// The action: `mount` or `unmount`.
        action: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Result of mounting.
pub type Result<T> = std::result::Result<T, MountError>;

/// Returns the text of an error without its number, and with advice for some errors.
fn meaning(error: &io::Error) -> String {
    let text = error.to_string();
    // The helper ends its message with a line break.
    let text = text.split(" (os error").next().unwrap_or_default().trim_end();
    match error.kind() {
        io::ErrorKind::ResourceBusy => format!("{text}: end the programs that use it, or unmount it lazily"),
        io::ErrorKind::NotConnected => format!("{text}: its server has died: unmount it first"),
        _ => text.to_owned(),
    }
}

impl MountError {
    /// Returns the error of an action that the kernel or the host refused.
    pub(crate) fn refused(action: &'static str, path: &Path, source: io::Error) -> MountError {
        MountError::Refused { action, path: path.to_owned(), source }
    }
}
