//! The protections that an administrator of Linux can enable: `fs.protected_hardlinks`,
//! `fs.protected_symlinks`, `fs.protected_fifos` and `fs.protected_regular` of `sysctl`.
//!
//! These protections stop attacks with links, pipes and files in directories that many users may write to.
//! All of them apply to root too, except `fs.protected_hardlinks`.

use super::{
    Credentials, GROUP_EXECUTE, Protection, Rights, SET_GID, SET_UID, STICKY, check, check_add,
    check_unflagged,
};
use crate::{Error, Kind, Result};

const WRITABLE_BY_ALL: u16 = 0o002;
const WRITABLE_BY_GROUP: u16 = 0o020;

/// Sticky directories in which `O_CREAT` does not open an object of a third user, who is neither the caller
/// nor the owner of the directory. The number in brackets is the value of the `sysctl`.
///
/// ```
/// use eyrie_engine::access::{AccessRules, Sticky};
///
/// let mut rules = AccessRules::default();
/// rules.protected_regular = Sticky::WritableByAll;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Sticky {
    /// No directories (0).
    #[default]
    None,
    /// Directories that all users may write to (1).
    WritableByAll,
    /// Also directories that the group may write to (2).
    WritableByGroup,
}

/// The protections that are enabled. By default only `protected_hardlinks` is enabled.
///
/// The Linux kernel enables none of these protections by default. Most distributions enable most of them.
///
/// ```
/// use eyrie_engine::access::AccessRules;
///
/// let mut rules = AccessRules::default();
/// rules.protected_symlinks = true;
/// assert!(rules.protected_hardlinks && rules != AccessRules::NONE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AccessRules {
    /// `fs.protected_hardlinks`: a user can link only objects that the user owns, and regular files that the
    /// user may read and write. Such a file must have no set-user-id bit, and not both the set-group-id bit
    /// and the group's execution bit. Root can link every object. Off by default in the kernel, on by default
    /// in Eyrie.
    pub protected_hardlinks: bool,
    /// `fs.protected_symlinks` applies to symbolic links at the end of a path, in sticky directories that all
    /// users may write to. Such a link is followed only if it belongs to the caller or to the owner of the
    /// directory. Off by default in the kernel and in Eyrie.
    pub protected_symlinks: bool,
    /// `fs.protected_fifos`: in the directories that this value names, `O_CREAT` does not open a pipe that
    /// belongs neither to the caller nor to the owner of the directory. Off by default in the kernel and in
    /// Eyrie.
    pub protected_fifos: Sticky,
    /// `fs.protected_regular`: the same for regular files. Off by default in the kernel and in Eyrie.
    pub protected_regular: Sticky,
}

impl Default for AccessRules {
    fn default() -> AccessRules {
        AccessRules { protected_hardlinks: true, ..AccessRules::NONE }
    }
}

impl AccessRules {
    /// No protection, the default of the kernel.
    pub const NONE: AccessRules = AccessRules {
        protected_hardlinks: false,
        protected_symlinks: false,
        protected_fifos: Sticky::None,
        protected_regular: Sticky::None,
    };

    /// Returns the protections of this host, read from `/proc/sys/fs`. A value that cannot be read gets the
    /// default of [`AccessRules::default`].
    pub fn of_host() -> AccessRules {
        let value = |name: &str| -> Option<u32> {
            let text = std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}")).ok()?;
            text.trim().parse().ok()
        };
        let sticky = |name| match value(name) {
            None | Some(0) => Sticky::None,
            Some(1) => Sticky::WritableByAll,
            Some(_) => Sticky::WritableByGroup,
        };
        AccessRules {
            protected_hardlinks: value("hardlinks") != Some(0),
            protected_symlinks: value("symlinks").is_some_and(|value| value != 0),
            protected_fifos: sticky("fifos"),
            protected_regular: sticky("regular"),
        }
    }

    /// Returns the sticky directories in which objects of this kind are protected. Kinds without a rule of
    /// their own are protected in directories that all users may write to.
    fn sticky(self, kind: Kind) -> Sticky {
        match kind {
            Kind::File => self.protected_regular,
            Kind::Fifo => self.protected_fifos,
            _ => Sticky::WritableByAll,
        }
    }
}

/// True if [`check_open_for_create`] may depend on the owner of an object of this kind in `dir`.
#[inline]
pub fn guards_opens(rules: AccessRules, dir: &Protection, kind: Kind) -> bool {
    dir.mode & STICKY != 0 && rules.sticky(kind) != Sticky::None
}

/// Checks that `who` may open an existing `object` of `dir` with `O_CREAT`. The check refuses some objects of
/// a third user, who is neither the caller nor the owner of `dir`. A pipe or a regular file is refused in the
/// sticky directories that `rules` name for its kind. A symbolic link, socket or device is refused in every
/// sticky directory that all users may write to. Root is refused, too.
///
/// # Errors
/// `AccessDenied`.
pub fn check_open_for_create(
    rules: AccessRules,
    who: &Credentials,
    dir: &Protection,
    object: &Protection,
) -> Result<()> {
    let own = object.uid == dir.uid || object.uid == who.uid();
    if own || !guards_opens(rules, dir, object.kind) {
        return Ok(());
    }
    let by_group = rules.sticky(object.kind) == Sticky::WritableByGroup;
    let guarded = WRITABLE_BY_ALL | if by_group { WRITABLE_BY_GROUP } else { 0 };
    if dir.mode & guarded == 0 { Ok(()) } else { Err(Error::AccessDenied) }
}

/// True if [`check_follow`] depends on the owner of a symbolic link in `dir`.
#[inline]
pub fn guards_links(rules: AccessRules, dir: &Protection) -> bool {
    let shared = STICKY | WRITABLE_BY_ALL;
    rules.protected_symlinks && dir.mode & shared == shared
}

/// Checks that `who` may follow the symbolic link `link` in `dir` at the end of a path.
///
/// # Errors
/// `AccessDenied`.
pub fn check_follow(
    rules: AccessRules,
    who: &Credentials,
    dir: &Protection,
    link: &Protection,
) -> Result<()> {
    let own = link.uid == who.uid() || link.uid == dir.uid;
    if own || !guards_links(rules, dir) { Ok(()) } else { Err(Error::AccessDenied) }
}

/// Checks that `who` may add to `dir` another name of `object`.
///
/// # Errors
/// As [`check`] of `dir`. `NotPermitted` for an object with inode flags, and for one that
/// [`AccessRules::protected_hardlinks`] protects.
pub fn check_new_name(
    rules: AccessRules,
    who: &Credentials,
    object: &Protection,
    dir: &Protection,
) -> Result<()> {
    check_link(rules, who, object)?;
    check_add(who, dir)?;
    check_unflagged(object)
}

/// Checks the rule for another name of `object`, see [`AccessRules::protected_hardlinks`].
///
/// # Errors
/// `NotPermitted`.
fn check_link(rules: AccessRules, who: &Credentials, object: &Protection) -> Result<()> {
    if !rules.protected_hardlinks || who.owns(object) {
        return Ok(());
    }
    let dangerous = object.mode & SET_UID != 0
        || object.mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE
        || object.kind != Kind::File;
    if dangerous || check(who, object, Rights::READ | Rights::WRITE).is_err() {
        return Err(Error::NotPermitted);
    }
    Ok(())
}
