//! Decides permissions. No code outside this module and its submodules knows permission rules.
//!
//! The functions that decide are pure: they decide as Linux does, and only from their arguments. The
//! arguments are [`Credentials`], the [`Protection`] of objects, the enabled [`AccessRules`], and values of
//! the call. User id 0 has all [`Capabilities`], and other users have none, unless
//! [`Credentials::with_capabilities`] sets them.
//!
//! The comments of this file say *root* for each user who has the capability that the code checks.

mod acl;
mod authorize;
mod credentials;
mod file_capability;
mod flags;
mod rules;

pub use crate::op::AclKind;
pub use acl::{Acl, Judgement, protection};
pub use authorize::Requester;
pub use credentials::{Capabilities, Credentials};
pub use file_capability::stored_capability;
pub use flags::{
    check_fallocate, check_key_flags, check_open_flags, check_set_flags, check_set_size, check_write,
};
pub use rules::{
    AccessRules, Sticky, check_follow, check_new_name, check_open_for_create, guards_links, guards_opens,
};

pub(crate) use acl::{acl_of_op, mode_with, restore_mode};
pub(crate) use file_capability::check_stored_capability;

use flags::check_unflagged;

use crate::op::{CAPABILITY_XATTR, InodeFlags, Owner, SetIds};
use crate::quota::{QuotaId, QuotaKind};
use crate::{Error, Kind, Result};

/// Set-user-id bit.
pub(crate) const SET_UID: u16 = 0o4000;
/// Set-group-id bit.
pub(crate) const SET_GID: u16 = 0o2000;
/// Sticky bit: only the owner of an entry's object, the owner of the directory, and root can remove an entry
/// from a directory with this bit.
pub(crate) const STICKY: u16 = 0o1000;
/// All bits of a mode.
pub(crate) const MODE_BITS: u16 = 0o7777;
const GROUP_EXECUTE: u16 = 0o010;

/// The attributes of an object that decide about the permissions of one user: its kind, mode, owner, group,
/// ACLs and inode flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection {
    /// Kind of the object.
    pub kind: Kind,
    /// Permission bits, up to 0o7777.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// The judgement of the access ACL about the user.
    pub judgement: Judgement,
    /// True for a directory with a default ACL.
    pub has_default_acl: bool,
    /// The inode flags.
    pub flags: InodeFlags,
}

impl Protection {
    /// Returns the protection of an object without ACLs and inode flags.
    #[inline]
    pub fn without_acls(kind: Kind, owner: Owner) -> Protection {
        let Owner { mode, uid, gid } = owner;
        let (judgement, flags) = (Judgement::BY_MODE, InodeFlags::empty());
        Protection { kind, mode, uid, gid, judgement, has_default_acl: false, flags }
    }
}

bitflags::bitflags! {
    /// Kinds of access, with the values of the three bits that a mode has for each class of users.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Rights: u8 {
        /// To read.
        const READ = 4;
        /// To write.
        const WRITE = 2;
        /// To execute a file, to search a directory.
        const EXECUTE = 1;
    }
}

/// True if `who` passes every [`check`] of a directory, and every [`check`] for reading or writing any
/// object. The only exception is a check for writing to an [immutable](InodeFlags::IMMUTABLE) object. The
/// caller can then skip reading the protection of objects, unless they [may have
/// flags](crate::Engine::may_have_flags).
#[inline]
pub fn passes_everywhere(who: &Credentials) -> bool {
    who.has(Capabilities::DAC_OVERRIDE)
}

/// Checks that `who` has all of `rights` on `object`.
///
/// # Errors
/// `NotPermitted` for writing to an immutable object. `AccessDenied` if `who` lacks one of the rights.
#[inline]
pub fn check(who: &Credentials, object: &Protection, rights: Rights) -> Result<()> {
    // Exactly one class applies, as in POSIX: an owner without a right does not get the right from the group.
    let grants = |shift: u16| (object.mode >> shift) as u8 & rights.bits() == rights.bits();
    let granted = if who.uid() == object.uid {
        grants(6)
    } else if let Some(granted) = object.judgement.grants(rights) {
        granted
    } else if who.in_group(object.gid) {
        grants(3)
    } else {
        grants(0)
    };
    if granted && object.flags.is_empty() { Ok(()) } else { check_further(who, object, rights, granted) }
}

/// Completes a [`check`] of an object with inode flags, or of one whose mode and ACL do not grant the rights.
#[inline(never)]
fn check_further(who: &Credentials, object: &Protection, rights: Rights, granted: bool) -> Result<()> {
    if rights.contains(Rights::WRITE) && object.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    if granted || overrides(who, object, rights) { Ok(()) } else { Err(Error::AccessDenied) }
}

/// True if the capabilities of `who` grant `rights`. `DAC_OVERRIDE` grants the execution of a file only if at
/// least one execution bit of the file's mode is set.
fn overrides(who: &Credentials, object: &Protection, rights: Rights) -> bool {
    let is_directory = object.kind == Kind::Directory;
    let executable = is_directory || object.mode & 0o111 != 0;
    let readable = if is_directory { Rights::READ | Rights::EXECUTE } else { Rights::READ };
    who.has(Capabilities::DAC_OVERRIDE) && (executable || !rights.contains(Rights::EXECUTE))
        || who.has(Capabilities::DAC_READ_SEARCH) && readable.contains(rights)
}

/// Checks that `who` may search the directory `dir`.
///
/// # Errors
/// `AccessDenied`.
#[inline]
pub fn check_search(who: &Credentials, dir: &Protection) -> Result<()> {
    check(who, dir, Rights::EXECUTE)
}

/// Checks that `who` may add entries to `dir`.
///
/// # Errors
/// As [`check`].
#[inline]
pub fn check_add(who: &Credentials, dir: &Protection) -> Result<()> {
    check(who, dir, Rights::WRITE | Rights::EXECUTE)
}

/// Checks that `who` may use the directory `dir` as a store of keys, by its mode and ACL. The inode flags do
/// not count: the keys of an immutable directory can be read, and their values can be replaced. A change that
/// makes or removes a key has further checks.
///
/// # Errors
/// `AccessDenied`.
#[inline]
pub fn check_store(who: &Credentials, dir: &Protection) -> Result<()> {
    check(who, &Protection { flags: InodeFlags::empty(), ..*dir }, Rights::all())
}

/// True if [`check_remove`] by `who` depends on the owner of the entry's object.
#[inline]
pub fn is_sticky(who: &Credentials, dir: &Protection) -> bool {
    dir.mode & STICKY != 0 && !who.owns(dir)
}

/// Checks that `who` may remove the entry of `dir` that names `victim`. Considers the sticky bit and the
/// inode flags.
///
/// # Errors
/// As [`check`]. `NotPermitted` when only the sticky bit or a flag forbids the removal.
#[inline]
pub fn check_remove(who: &Credentials, dir: &Protection, victim: &Protection) -> Result<()> {
    check_add(who, dir)?;
    check_unflagged(dir)?;
    check_unflagged(victim)?;
    if is_sticky(who, dir) && who.uid() != victim.uid { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Checks that `who` may create an object of `kind`, which has the number `device` if it is a device. Only
/// users with [`Capabilities::MKNOD`] may create devices, except character device 0. Every user may create
/// that device, because it is the whiteout of overlay file systems.
///
/// # Errors
/// `NotPermitted`.
pub fn check_device(who: &Credentials, kind: Kind, device: u64) -> Result<()> {
    let is_whiteout = kind == Kind::CharDevice && device == 0;
    let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
    if is_device && !is_whiteout && !who.has(Capabilities::MKNOD) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Returns the mode that `object` gets when `who` sets its mode to `mode`. The set-group-id bit is dropped if
/// `who` is outside the object's group and not root.
///
/// # Errors
/// `NotPermitted` if `who` does not own the object, or if the object has inode flags.
pub fn chmod(who: &Credentials, object: &Protection, mode: u16) -> Result<u16> {
    check_unflagged(object)?;
    if !who.owns(object) {
        return Err(Error::NotPermitted);
    }
    let mode = mode & MODE_BITS;
    let foreign = !who.has(Capabilities::FSETID) && !who.in_group(object.gid);
    Ok(if foreign { mode & !SET_GID } else { mode })
}

/// Returns the set-id bits that `object` loses when `who` sets its user and group (`None` leaves a value
/// unchanged). Directories keep their set-id bits.
///
/// # Errors
/// `NotPermitted`, except in these three cases:
///
/// - `who` is root.
/// - `who` owns `object`, does not change its user, and keeps its group or sets a group that `who` is in.
/// - `uid` and `gid` are `None`, and `object` loses no set-id bits.
///
/// For an object with inode flags, even root gets `NotPermitted`, unless `uid` and `gid` are `None`.
pub fn chown(who: &Credentials, object: &Protection, uid: Option<u32>, gid: Option<u32>) -> Result<SetIds> {
    if uid.is_some() || gid.is_some() {
        check_unflagged(object)?;
    }
    let own = who.uid() == object.uid;
    let uid_fits = uid.is_none_or(|uid| own && uid == object.uid);
    let gid_fits = gid.is_none_or(|gid| own && (gid == object.gid || who.in_group(gid)));
    let fits = uid_fits && gid_fits;
    if !fits && !who.has(Capabilities::CHOWN) {
        return Err(Error::NotPermitted);
    }
    if object.kind == Kind::Directory {
        return Ok(SetIds::Keep);
    }
    // If the call clears the set-user-id bit, Linux sets the mode again, as a `chmod` in the new group would.
    let foreign = gid.filter(|&gid| object.mode & SET_UID != 0 && !who.in_group(gid));
    let set_ids = if who.has(Capabilities::FSETID) {
        SetIds::DropAsMember
    } else {
        dropped_by(who, foreign.unwrap_or(object.gid))
    };
    let changes_mode = mode_after(object.mode, set_ids) != object.mode;
    if changes_mode && !who.owns(object) { Err(Error::NotPermitted) } else { Ok(set_ids) }
}

/// True if a write by `who` never clears set-id bits. The caller can then skip reading the file's protection.
#[inline]
pub fn keeps_set_ids(who: &Credentials) -> bool {
    who.has(Capabilities::FSETID)
}

/// Returns the set-id bits that `file` loses when `who` writes to it, or changes its size or storage. A write
/// by root clears none of them.
#[inline]
pub fn set_ids_after_write(who: &Credentials, file: &Protection) -> SetIds {
    let has_none = file.mode & (SET_UID | SET_GID) == 0;
    if has_none || keeps_set_ids(who) { SetIds::Keep } else { dropped_by(who, file.gid) }
}

#[inline]
fn dropped_by(who: &Credentials, gid: u32) -> SetIds {
    if who.in_group(gid) { SetIds::DropAsMember } else { SetIds::DropAsStranger }
}

/// Returns `mode` without the set-id bits that `set_ids` names. Without the group's execution bit, the
/// set-group-id bit gives no rights. A change by a member of the group, or a `chown` by root, therefore keeps
/// the set-group-id bit of a file without that execution bit (`DropAsMember`).
#[inline]
pub fn mode_after(mode: u16, set_ids: SetIds) -> u16 {
    let executable = mode & GROUP_EXECUTE != 0;
    match set_ids {
        SetIds::Keep => mode,
        SetIds::DropAsMember if !executable => mode & !SET_UID,
        SetIds::DropAsMember | SetIds::DropAsStranger => mode & !(SET_UID | SET_GID),
    }
}

/// Checks that `who` may set the times of `object`. `now` is true if the call sets both times to the present.
///
/// # Errors
/// For a user who is neither the owner of the object nor root: `NotPermitted` if `now` is false, and
/// `AccessDenied` if `now` is true and the user may not write to the object.
///
/// `NotPermitted` for all users if the inode flags of the object forbid the change: an immutable object keeps
/// its times, and an append-only object takes no other time than the present.
pub fn check_set_times(who: &Credentials, object: &Protection, now: bool) -> Result<()> {
    if object.flags.contains(InodeFlags::IMMUTABLE) || !now && !object.flags.is_empty() {
        return Err(Error::NotPermitted);
    }
    if who.owns(object) {
        return Ok(());
    }
    if now { check(who, object, Rights::WRITE) } else { Err(Error::NotPermitted) }
}

/// Checks that `who` may open `object` for reads that set no access time (`O_NOATIME`).
///
/// # Errors
/// `NotPermitted` for a user who neither owns the object nor is root.
pub fn check_noatime(who: &Credentials, object: &Protection) -> Result<()> {
    if who.owns(object) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Namespaces of extended attributes, by the prefix of the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Namespace {
    User,
    Trusted,
    Security,
    System,
    None,
}

impl Namespace {
    /// Returns the namespace of `name`, and the rest of the name.
    fn of(name: &[u8]) -> (Namespace, &[u8]) {
        let prefixes: [(&[u8], Namespace); 4] = [
            (b"user.", Namespace::User),
            (b"trusted.", Namespace::Trusted),
            (b"security.", Namespace::Security),
            (b"system.", Namespace::System),
        ];
        let found =
            prefixes.into_iter().find_map(|(prefix, space)| Some((space, name.strip_prefix(prefix)?)));
        found.unwrap_or((Namespace::None, name))
    }

    /// Refuses attributes that the file system does not keep. This check comes last, as in Linux.
    fn check_kept(self, rest: &[u8]) -> Result<()> {
        match self {
            Namespace::System | Namespace::None => Err(Error::Unsupported(
                "an extended attribute that is no ACL and not in user.*, trusted.* or security.*",
            )),
            _ if rest.is_empty() => {
                Err(Error::Invalid("an extended attribute must have a name after its namespace"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks that `who` may read the extended attribute `name` of `object`. Only files and directories have
/// `user` attributes, and only root sees `trusted` ones. A `user` attribute of any other object, and a
/// `trusted` attribute for any other user, give `NoXattr`, as if they did not exist.
///
/// # Errors
/// `NoXattr`; `AccessDenied`; `Unsupported` for an ACL of a symbolic link, and for namespaces other than
/// `user`, `trusted` and `security`; `Invalid` for a namespace without a name.
pub fn check_get_xattr(who: &Credentials, object: &Protection, name: &[u8]) -> Result<()> {
    if AclKind::of_name(name).is_some() {
        return check_has_acls(object);
    }
    let (space, rest) = Namespace::of(name);
    match space {
        Namespace::Trusted if !who.has(Capabilities::SYS_ADMIN) => return Err(Error::NoXattr),
        Namespace::User if !has_user_xattrs(object) => return Err(Error::NoXattr),
        Namespace::User | Namespace::None => check(who, object, Rights::READ)?,
        Namespace::Trusted | Namespace::Security | Namespace::System => {}
    }
    space.check_kept(rest)
}

/// Checks that `who` may set and remove the extended attribute `name` of `object`.
///
/// # Errors
/// `NotPermitted`; `AccessDenied`; `Unsupported` for namespaces other than `user`, `trusted` and `security`;
/// `Invalid` for a namespace without a name.
pub fn check_set_xattr(who: &Credentials, object: &Protection, name: &[u8]) -> Result<()> {
    check_unflagged(object)?;
    let (space, rest) = Namespace::of(name);
    let needed = if name == CAPABILITY_XATTR { Capabilities::SETFCAP } else { Capabilities::SYS_ADMIN };
    match space {
        Namespace::Trusted | Namespace::Security if !who.has(needed) => {
            return Err(Error::NotPermitted);
        }
        Namespace::User if !has_user_xattrs(object) => return Err(Error::NotPermitted),
        Namespace::User if object.kind == Kind::Directory && is_sticky(who, object) => {
            return Err(Error::NotPermitted);
        }
        Namespace::User | Namespace::None => check(who, object, Rights::WRITE)?,
        Namespace::Trusted | Namespace::Security | Namespace::System => {}
    }
    space.check_kept(rest)
}

/// Refuses a symbolic link, because it has no ACLs.
fn check_has_acls(object: &Protection) -> Result<()> {
    if object.kind == Kind::Symlink { Err(Error::Unsupported("an ACL of a symbolic link")) } else { Ok(()) }
}

/// Checks that `who` may set or remove an ACL of `object`. Returns the ACL that `bytes` hold, or `None` if
/// they have no entry. `None` stands for the removal of the ACL.
///
/// # Errors
/// `NotPermitted` if `who` does not own the object, or if the object has inode flags. `AccessDenied` for a
/// default ACL of an object that is no directory (the removal of such an ACL is no error for any user).
/// `Invalid` for bytes that are no valid ACL. `Unsupported` for a symbolic link, and for bytes of another
/// version than 2.
pub fn check_set_acl(
    who: &Credentials,
    object: &Protection,
    kind: AclKind,
    bytes: &[u8],
) -> Result<Option<Acl>> {
    let acl = Acl::parse(bytes)?;
    check_unflagged(object)?;
    check_has_acls(object)?;
    if kind == AclKind::Default && object.kind != Kind::Directory {
        return if acl.is_some() { Err(Error::AccessDenied) } else { Ok(None) };
    }
    if !who.owns(object) {
        return Err(Error::NotPermitted);
    }
    acl.as_ref().map_or(Ok(()), Acl::check)?;
    Ok(acl)
}

/// True if `object` loses its set-group-id bit when `who` sets or removes its access ACL.
pub fn acl_drops_set_gid(who: &Credentials, object: &Protection) -> bool {
    object.mode & SET_GID != 0 && !who.has(Capabilities::FSETID) && !who.in_group(object.gid)
}

fn has_user_xattrs(object: &Protection) -> bool {
    matches!(object.kind, Kind::File | Kind::Directory)
}

/// True if a list of extended attributes shows `name` to `who`.
pub fn lists_xattr(who: &Credentials, name: &[u8]) -> bool {
    who.has(Capabilities::SYS_ADMIN) || Namespace::of(name).0 != Namespace::Trusted
}

/// True if `who` may see the usage and the limits of an account. As on Linux, a user sees the accounts of
/// this user and of the user's groups, and [`Capabilities::SYS_ADMIN`] shows all accounts.
pub fn sees_quota(who: &Credentials, account: QuotaId) -> bool {
    who.has(Capabilities::SYS_ADMIN)
        || match account.kind {
            QuotaKind::User => account.number == who.uid(),
            QuotaKind::Group => who.in_group(account.number),
            QuotaKind::Tree => false,
        }
}

/// Checks that `who` may read and set all limits of the volume.
///
/// # Errors
/// `NotPermitted`.
pub fn check_limits(who: &Credentials) -> Result<()> {
    if who.has(Capabilities::SYS_ADMIN) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// True if the Ops of `who` may exceed the limits of quotas.
#[inline]
pub fn may_exceed_limits(who: &Credentials) -> bool {
    who.has(Capabilities::SYS_RESOURCE)
}

/// Checks that `who` may set the project id of an object, which decides about the quota of its tree.
///
/// # Errors
/// `NotPermitted`.
pub fn check_set_project(who: &Credentials) -> Result<()> {
    if who.has(Capabilities::SYS_ADMIN) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Returns the owner and mode of an object of `kind` that `who` creates in `dir` with `mode`. Applies the
/// umask, except to symbolic links, which have all permissions. In a directory with a default ACL, the mode
/// of every new object except a symbolic link gets [`Owner::INHERITS`], and the umask is not applied. An
/// object in a set-group-id directory gets the group of that directory, and a subdirectory also gets the
/// set-group-id bit. A new directory gets this bit in no other way.
#[inline]
pub fn owner_of_new(who: &Credentials, dir: &Protection, kind: Kind, mode: u16) -> Owner {
    let inherits = dir.mode & SET_GID != 0;
    let gid = if inherits { dir.gid } else { who.gid() };
    let (umask, inherited) = if dir.has_default_acl { (0, Owner::INHERITS) } else { (who.umask(), 0) };
    let mode = match kind {
        Kind::Symlink => 0o777,
        Kind::Directory => mode & !umask & 0o1777 | if inherits { SET_GID } else { 0 } | inherited,
        _ => {
            // A user outside the group must not create a file that runs with the group's rights.
            let grants_group = mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE;
            let foreign = inherits && grants_group && !who.has(Capabilities::FSETID) && !who.in_group(gid);
            mode & MODE_BITS & !umask & if foreign { !SET_GID } else { MODE_BITS } | inherited
        }
    };
    Owner { mode, uid: who.uid(), gid }
}

#[cfg(test)]
mod tests;
