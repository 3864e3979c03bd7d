//! Mounts a volume of Eyrie with FUSE, so that programs that do not link Eyrie can use it.
//!
//! The fast path to a volume is the library `eyrie`. A mount is for all other programs. The program that
//! serves a mount can also use and change the volume directly, because a thread of the mount tells the kernel
//! of each such change.
//!
//! This crate only adapts: each request of the kernel becomes one call of [`eyrie::Nodes`]. The crate itself
//! decides two things:
//!
//! - **The kernel checks permissions** (the mount option `default_permissions`). Only the kernel can do so:
//!   it answers most look-ups from its cache, without a request, and no request has all groups and
//!   capabilities of the caller. So the calls of this crate have all capabilities that the kernel checks, and
//!   the user and the group of the caller, to whom new files belong. There are three exceptions: access(2), a
//!   list of extended attributes, and a change that clears set-id bits because its user is not root. If only
//!   root can use a mount, nobody checks, because root passes the checks: see
//!   [`MountOptions::default_permissions`].
//! - **The kernel caches attributes and entries for a day, and pages for as long as it likes**, because a
//!   thread tells the kernel of each change that did not come through the mount. Such a change is visible in
//!   the mount within about a millisecond. The entries of the root directory are an exception: the kernel
//!   caches them for at most one second. The reason is lost notices: after a loss, a kernel before Linux 6.16
//!   forgets only the entries of the root that the mount names, and the mount can name only entries that
//!   still exist.
//!
//! The kernel holds the nodes of open files, and it checked the rights when it opened them. So opens and
//! closes make requests only if the volume keeps [locks](MountOptions::volume_locks), or if the open makes
//! the file.
//!
//! # Examples
//! ```no_run
//! use eyrie::{Credentials, PosixExt, Volume};
//! use eyrie_fuse::MountOptions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let volume = Volume::open("/dev/shm/nest")?;
//! let mut mount = eyrie_fuse::mount(&volume, "/mnt/nest", &MountOptions::default())?;
//! volume.files(Credentials::of_process()).write("/egg", "blue")?;
//! assert_eq!(std::fs::read("/mnt/nest/egg")?, b"blue");
//! mount.unmount()?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod adapter;
mod answer;
mod convert;
mod error;
mod invalidate;
mod listing;
mod locks;
#[doc(hidden)]
pub mod mountinfo;
mod options;
mod place;
mod requests;
mod session;
mod turns;

pub use error::{MountError, Result};
pub use options::MountOptions;
pub use session::{Mount, Unmounter, mount, unmount};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/mount.md")]
struct Guide;
