//! Volumes on the host: directories and block devices, their locks, their files and their medium.
//!
//! Callers start with [`HostPlace`], which decides if a path leads to a directory or to a device. `directory`
//! and `device` handle the two kinds of places. `lock` keeps other owners away, including those in this
//! process, but readers can share a volume. `change_logs` has the files of change logs. `mapping` chooses the
//! medium of a volume in a directory. `resize` changes the size of the file of a volume, or of the part of a
//! device that a volume takes.
//!
//! Invariant: apart from tests, no other module of this crate makes calls to the host about the files or the
//! device of a volume. Other modules only pass paths and open files on. The one exception is
//! `change_log::read`, which reads the entries of a log from an open file.

mod change_logs;
pub(crate) mod device;
mod directory;
mod lock;
mod mapping;
mod place;
mod resize;
mod segment;

pub(crate) use change_logs::{LeftLog, LeftLogs, has_left_logs, left_logs, remove_left};
pub use change_logs::{LogGrant, LogTable, has_unapplied_entries, provision_log};
pub use directory::create_from;
pub(crate) use lock::{Hold, Sharing};
pub(crate) use mapping::without_journal;
pub(crate) use place::HostPlace;
pub use place::segment_path;
pub(crate) use resize::ResizedSegment;
