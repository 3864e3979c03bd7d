//! The calls of a POSIX file system as a trait, and a layer over it in the style of [`std::fs`].
//!
//! [`Posix`] has the calls. [`Pxfs`](crate::Pxfs) implements them over an engine, and [`Host`](crate::Host)
//! by system calls. [`PosixExt`], [`File`] and [`OpenOptions`] are written once, over [`Posix`].
//!
//! # Examples
//! ```
//! # use eyrie::{Host, OpenFlags, Posix, Target};
//! # fn main() -> eyrie::Result<()> {
//! # let place = tempfile::tempdir().unwrap();
//! # let fs = Host::new(place.path())?;
//! fs.mkdir("/nest".into(), 0o755)?;
//! let nest = fs.open("/nest".into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0)?;
//! fs.symlink("egg".as_ref(), (&nest, "link").into())?; // a name in an open directory
//! assert!(fs.stat(Target::NoFollow("/nest/link".into()))?.is_symlink());
//! assert!(fs.stat(Target::Open(&nest))?.is_dir());
//! fs.close(nest)
//! # }
//! ```

mod birth;
mod calls;
mod clones;
mod dir;
mod ext;
mod file;
mod ladder;
mod locks;
mod options;
mod projects;
mod read_dir;
mod steps;
mod target;
mod types;
mod walk;

pub use birth::PosixBirth;
pub use calls::Posix;
pub use clones::PosixClones;
pub use dir::Dir;
pub use ext::PosixExt;
pub use file::File;
pub use ladder::Ladder;
pub use locks::{FoundLock, PosixLocks, RangeOwner};
pub use options::OpenOptions;
pub use projects::PosixProjects;
pub use read_dir::{DirEntry, ReadDir};
pub use target::{PathAt, Target};
pub use types::{Access, ListEntry, OpenFlags, SetTime, Stat, StatVfs, Whence};
pub use walk::{Walk, WalkEntry, WalkStep};

#[cfg(test)]
mod tests;
