//! Clones and copies of ranges of files, by system calls.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs;

use super::Host;
use super::convert::named;
use crate::Result;
use crate::posix::PosixClones;

impl PosixClones for Host {
    fn clone_range(&self, source: (&OwnedFd, u64), target: (&OwnedFd, u64), length: u64) -> Result<()> {
        let ((from, from_offset), (to, to_offset)) = (source, target);
        let cloned = eyrie_medium::clone_range((from.as_fd(), from_offset), (to.as_fd(), to_offset), length);
        named("clone_range", cloned)
    }
}

/// Copies bytes, and returns their number.
pub(super) fn copy_file_range(
    (from, mut from_offset): (&OwnedFd, u64),
    (to, mut to_offset): (&OwnedFd, u64),
    length: u64,
) -> Result<u64> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let copied = fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), length);
    named("copy_file_range", copied.map(|copied| copied as u64))
}
