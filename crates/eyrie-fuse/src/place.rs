//! The places of a mount in the tree of directories.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::mountinfo::{MountLine, TABLE};

/// The path at which a file system was mounted, and its connection to the kernel.
#[derive(Clone, Debug)]
pub(crate) struct MountPlace {
    path: PathBuf,
    /// Number of the connection: the minor number of the file system's device. `0` if it is unknown.
    connection: u32,
}

impl MountPlace {
    /// Returns the place of the file system that has just been mounted at a path.
    pub(crate) fn new(path: PathBuf) -> MountPlace {
        let connection = device_at(&path).map_or(0, |(_, connection)| connection);
        MountPlace { path, connection }
    }

    /// Returns the path at which the file system was mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the paths at which the file system is mounted now and visible, the latest mount first. After a
    /// lazy unmount, another file system may be mounted at the first path. `mount --move` and `mount --bind`
    /// give the file system other paths. The caller knows that the connection has not ended long ago.
    pub(crate) fn now(&self) -> Vec<PathBuf> {
        let device = (0, self.connection);
        if self.connection == 0 {
            return vec![self.path.clone()];
        }
        let mut points: Vec<PathBuf> = match std::fs::read(TABLE) {
            Ok(table) => {
                let own = MountLine::all(&table).rev().filter(|line| line.device == device);
                own.map(|line| line.point).collect()
            }
            // This process may not see `/proc`.
            Err(_) => vec![self.path.clone()],
        };
        // Another file system may hide this one.
        points.retain(|point| device_at(point).is_none_or(|found| found == device));
        points
    }

    /// True if a file system, whichever it is, may be mounted at the path at which this one was mounted.
    pub(crate) fn is_mount_point(&self) -> bool {
        std::fs::read(TABLE).map_or(true, |table| MountLine::all(&table).any(|line| line.point == self.path))
    }

    /// Returns the file of the kernel that ends the connection.
    pub(crate) fn abort_path(&self) -> String {
        format!("/sys/fs/fuse/connections/{}/abort", self.connection)
    }
}

/// Returns the device of the file system at a path, or `None` if the kernel cannot tell it.
fn device_at(path: &Path) -> Option<(u32, u32)> {
    // Without this flag the kernel would ask the session, which may not be able to answer.
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

/// True until the connection of this device ends, which is at the end of its last mount, or earlier.
pub(crate) fn is_connected(device: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut devices = [PollFd::new(device, PollFlags::empty())];
    // The kernel reports an error of the device after the end of its connection.
    poll(&mut devices, Some(&at_once)).is_err() || !devices[0].revents().contains(PollFlags::ERR)
}
