//! Inode flags: immutable objects and append-only objects. The flags bind every user, including root.

use super::{Capabilities, Credentials, Protection};
use crate::op::{InodeFlags, Op};
use crate::{Engine, Error, FallocateMode, Result};

fn allowed(is_allowed: bool) -> Result<()> {
    if is_allowed { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Checks that `who` may set the inode flags of `object`.
///
/// # Errors
/// `NotPermitted` if `who` does not own the object, or changes a flag without the capability
/// [`Capabilities::LINUX_IMMUTABLE`].
pub fn check_set_flags(who: &Credentials, object: &Protection, flags: InodeFlags) -> Result<()> {
    allowed(who.owns(object) && (flags == object.flags || who.has(Capabilities::LINUX_IMMUTABLE)))
}

/// Checks that an object has no inode flags. The attributes and the names of an object with a flag do not
/// change.
///
/// # Errors
/// `NotPermitted`.
#[inline]
pub(super) fn check_unflagged(object: &Protection) -> Result<()> {
    allowed(object.flags.is_empty())
}

/// Checks that the flags of an object let it be opened for writing. `appends` is true if the handle can only
/// append, and `truncates` is true if the open sets the size to 0. The caller has [checked](super::check) the
/// rights.
///
/// # Errors
/// `NotPermitted`.
pub fn check_open_flags(object: &Protection, appends: bool, truncates: bool) -> Result<()> {
    allowed(!object.flags.contains(InodeFlags::APPEND_ONLY) || appends && !truncates)
}

/// Checks that the flags of a file let its size be set. A handle that was opened before the file became
/// immutable may still set the size, so this function accepts an immutable file. For a call without a handle,
/// [`check`](super::check) refuses such a file.
///
/// # Errors
/// `NotPermitted`.
pub fn check_set_size(file: InodeFlags) -> Result<()> {
    allowed(!file.contains(InodeFlags::APPEND_ONLY))
}

/// True for the modes of fallocate(2) that an append-only file allows, as on Linux: they add storage and do
/// nothing else.
pub(super) fn only_allocates(mode: FallocateMode) -> bool {
    matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize)
}

/// Checks that the flags of a file let its storage be changed.
///
/// # Errors
/// `NotPermitted`.
pub fn check_fallocate(file: InodeFlags, mode: FallocateMode) -> Result<()> {
    check_write(file, only_allocates(mode))
}

/// Checks that the flags of a file let bytes be written without a handle, that is, without the check of the
/// flags at an open. `keeps_bytes` is true for a change that keeps all bytes of the file, such as an append.
///
/// # Errors
/// `NotPermitted`.
pub fn check_write(file: InodeFlags, keeps_bytes: bool) -> Result<()> {
    allowed(file.is_empty() || file == InodeFlags::APPEND_ONLY && keeps_bytes)
}

/// Checks that the inode flags of the directory and of its entries allow the changes of keys that `op` makes.
///
/// # Errors
/// `NotPermitted`, and the errors of reading the objects.
#[cold]
pub fn check_key_flags<E: Engine + ?Sized>(engine: &E, op: &Op<'_>) -> Result<()> {
    match *op {
        Op::Put { dir, name, .. } => match engine.lookup(dir, name)? {
            Some(file) => allowed(engine.inode_flags(file)?.is_empty()),
            None => allowed(!engine.inode_flags(dir)?.contains(InodeFlags::IMMUTABLE)),
        },
        Op::Erase { dir, name, .. } => match engine.lookup(dir, name)? {
            Some(file) => allowed((engine.inode_flags(dir)? | engine.inode_flags(file)?).is_empty()),
            None => Ok(()),
        },
        Op::Batch { ops, .. } => ops.iter().try_for_each(|op| check_key_flags(engine, op)),
        _ => Ok(()),
    }
}
