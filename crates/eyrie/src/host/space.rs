//! The space of a file system, by `statvfs(3)`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags};

use super::Host;
use super::convert::named;
use crate::Result;
use crate::posix::{PathAt, StatVfs, Target};

impl Host {
    /// Returns the space of the file system of `file`.
    pub(super) fn space(&self, file: Target<'_, OwnedFd>) -> Result<StatVfs> {
        let open = |path: PathAt<'_, OwnedFd>, follow: OFlags| {
            let (dir, path) = self.place(path);
            named("statvfs", fs::openat(dir, path, OFlags::PATH | OFlags::CLOEXEC | follow, Mode::empty()))
        };
        let stat = match file {
            Target::Follow(path) => fs::fstatvfs(open(path, OFlags::empty())?),
            Target::NoFollow(path) => fs::fstatvfs(open(path, OFlags::NOFOLLOW)?),
            Target::Open(handle) => fs::fstatvfs(handle.as_fd()),
        };
        let stat = named("statvfs", stat)?;
        Ok(StatVfs {
            block_size: stat.f_frsize,
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            files: stat.f_files,
            files_free: stat.f_ffree,
            name_max: stat.f_namemax,
        })
    }
}
