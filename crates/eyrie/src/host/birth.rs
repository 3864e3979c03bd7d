//! Times of birth, by `statx(2)`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, StatxFlags};

use super::Host;
use super::convert::named;
use crate::posix::{PosixBirth, Target};
use crate::{Errno, Error, Result, Time};

impl PosixBirth for Host {
    fn created(&self, file: Target<'_, OwnedFd>) -> Result<Time> {
        let ((dir, path), flags) = match file {
            Target::Follow(path) => (self.place(path), AtFlags::empty()),
            Target::NoFollow(path) => (self.place(path), AtFlags::SYMLINK_NOFOLLOW),
            Target::Open(handle) => ((handle.as_fd(), OsStr::new("")), AtFlags::EMPTY_PATH),
        };
        let found = named("statx", fs::statx(dir, path, flags, StatxFlags::BTIME))?;
        if found.stx_mask & StatxFlags::BTIME.bits() == 0 {
            return Err(Error::new(Errno::OPNOTSUPP, "statx"));
        }
        Ok(Time::new(found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
    }
}
