//! The place of a volume on the host: a directory or a block device. [`HostPlace::of`] decides which of the
//! two a path leads to.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use eyrie_medium::{Medium, PagedOptions};

use super::lock::{Hold, Sharing};
use super::segment::SEGMENT_FILE;
use super::{device, directory};
use crate::tables::Options;
use crate::{Errno, Error, Result};

/// The present or future place of a volume on the host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostPlace<'a> {
    /// Any path that does not lead to a block device: in a correct call a directory, or a path at which no
    /// file exists yet.
    Directory(&'a Path),
    /// A block device.
    Device(&'a Path),
}

impl<'a> HostPlace<'a> {
    /// Returns the place that a path leads to.
    pub(crate) fn of(path: &'a Path) -> HostPlace<'a> {
        match fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => HostPlace::Device(path),
            _ => HostPlace::Directory(path),
        }
    }

    /// Returns the path of the place.
    pub(crate) fn path(self) -> &'a Path {
        match self {
            HostPlace::Directory(path) | HostPlace::Device(path) => path,
        }
    }

    /// Returns the path of segment 0 of the volume: a file in its directory, or the device itself.
    pub(crate) fn segment_path(self) -> PathBuf {
        match self {
            HostPlace::Directory(path) => path.join(SEGMENT_FILE),
            HostPlace::Device(path) => path.to_path_buf(),
        }
    }

    /// Makes the files of a volume of `bytes`, lets `fill` write the volume, and returns the result of
    /// `fill`. On a device, `bytes` must be `None`, because a volume fills its device. An error leaves no new
    /// files behind in a directory. After an error, a device can be used for another volume.
    pub(crate) fn create<T>(
        self,
        bytes: Option<u64>,
        options: &Options,
        fill: impl FnOnce(Medium, Hold) -> Result<T>,
    ) -> Result<T> {
        match self {
            HostPlace::Directory(path) => directory::create(path, bytes, options, fill),
            HostPlace::Device(path) if bytes.is_some() => {
                let what = "a volume fills its block device: leave the size out";
                Err(Error::volume(&path.display().to_string(), what, Errno::INVAL))
            }
            HostPlace::Device(path) => device::create(path, options, fill),
        }
    }

    /// Locks and maps the volume.
    pub(crate) fn open(self, paged: PagedOptions) -> Result<(Medium, Hold)> {
        match self {
            HostPlace::Directory(path) => directory::open(path, paged),
            HostPlace::Device(path) => device::open(path, paged),
        }
    }

    /// Locks the volume, and maps a copy of it. No change reaches the host.
    pub(crate) fn open_copy(self, paged: PagedOptions, sharing: Sharing) -> Result<(Medium, Hold)> {
        match self {
            HostPlace::Directory(path) => directory::open_copy(path, paged, sharing),
            HostPlace::Device(path) => device::open_copy(path, paged, sharing),
        }
    }
}

/// Returns the path of segment 0 of the volume at `path`: a file in its directory, or the device itself.
pub fn segment_path(path: &Path) -> PathBuf {
    HostPlace::of(path).segment_path()
}
