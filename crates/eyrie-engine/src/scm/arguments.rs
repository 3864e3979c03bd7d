//! Refuses Ops with impossible arguments.

use crate::op::NAME_MAX;
use crate::{Error, Kind, ObjectId, Result};

/// Refuses an id that is not a directory, and a name that no entry can have.
#[inline]
pub(super) fn check_entry(dir: ObjectId, name: &[u8]) -> Result<()> {
    if !dir.is_directory() {
        return Err(Error::NotDirectory);
    }
    match name.len() {
        0 => Err(Error::Invalid("empty name")),
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

/// Refuses modes with more than twelve bits.
pub(super) fn check_mode(mode: u16) -> Result<()> {
    if mode <= 0o7777 { Ok(()) } else { Err(Error::Invalid("mode of more than twelve bits")) }
}

/// Refuses objects without bytes.
#[inline(always)]
pub(super) fn require_bytes(id: ObjectId) -> Result<()> {
    match id.kind() {
        Kind::File | Kind::Symlink => Ok(()),
        Kind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("pipes, sockets and devices hold no bytes")),
    }
}

/// Refuses objects that are not regular files.
pub(super) fn require_file(id: ObjectId) -> Result<()> {
    match id.kind() {
        Kind::File => Ok(()),
        Kind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("the object is not a regular file")),
    }
}
