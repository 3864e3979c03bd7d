//! Who may do what: the one place that knows permission rules.
//!
//! Pure functions over [`Attributes`] that answer as Linux does. User id 0 has every capability of a file system
//! (`CAP_DAC_OVERRIDE`, `CAP_FOWNER`, `CAP_CHOWN`, `CAP_FSETID`, `CAP_MKNOD`), any other user none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::op::Owner;
use crate::{Attributes, Error, Kind, Result};

/// Set-user-id bit.
pub const SET_UID: u16 = 0o4000;
/// Set-group-id bit.
pub const SET_GID: u16 = 0o2000;
/// Sticky bit: in a directory, only owners remove entries.
pub const STICKY: u16 = 0o1000;
/// All bits of a mode.
pub const MODE_BITS: u16 = 0o7777;
const GROUP_EXECUTE: u16 = 0o010;

/// Who asks: user, groups and umask.
///
/// Every set of credentials has an [`id`](Credentials::id) of its own in this process, which clones share: caches of
/// decisions are keyed by it.
#[derive(Clone, Debug)]
pub struct Credentials {
    id: u64,
    uid: u32,
    gid: u32,
    umask: u16,
    groups: Arc<[u32]>,
}

impl Credentials {
    /// A user with a primary group and supplementary groups; no umask.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Credentials { id, uid, gid, umask: 0, groups: groups.into() }
    }

    /// The superuser: user and group 0.
    pub fn root() -> Credentials {
        Credentials::new(0, 0, &[])
    }

    /// The effective user and group of this process and its supplementary groups; no umask.
    pub fn of_process() -> Credentials {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups: Vec<u32> = groups.into_iter().map(rustix::process::Gid::as_raw).collect();
        Credentials::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), &groups)
    }

    /// The same user with a umask: bits that the modes of new objects lose.
    #[must_use]
    pub fn with_umask(mut self, umask: u16) -> Credentials {
        self.umask = umask & 0o777;
        self
    }

    /// Tells these credentials from all others of this process; clones share it.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// User id.
    #[inline]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Primary group id: the group of new objects.
    #[inline]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Supplementary group ids.
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Bits that the modes of new objects lose.
    #[inline]
    pub fn umask(&self) -> u16 {
        self.umask
    }

    /// Whether this is the superuser.
    #[inline]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether `gid` is among the groups.
    #[inline]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether this is the owner, or root.
    #[inline]
    pub fn owns(&self, object: &Attributes) -> bool {
        self.is_root() || self.uid == object.uid
    }
}

bitflags::bitflags! {
    /// Kinds of access, as the three bits of a mode.
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

/// Whether `who` has all of `rights` on `object`.
///
/// # Errors
/// `AccessDenied`.
#[inline]
pub fn check(who: &Credentials, object: &Attributes, rights: Rights) -> Result<()> {
    let shift = if who.uid == object.uid {
        6
    } else if who.in_group(object.gid) {
        3
    } else {
        0
    };
    let granted = (object.mode >> shift) as u8 & 7;
    if granted & rights.bits() == rights.bits() || overrides(who, object, rights) {
        Ok(())
    } else {
        Err(Error::AccessDenied)
    }
}

/// Root passes every check, but executes a file only if somebody may.
fn overrides(who: &Credentials, object: &Attributes, rights: Rights) -> bool {
    who.is_root()
        && (object.kind == Kind::Directory || !rights.contains(Rights::EXECUTE) || object.mode & 0o111 != 0)
}

/// Whether `who` may search the directory `dir`.
///
/// # Errors
/// `AccessDenied`.
#[inline]
pub fn check_search(who: &Credentials, dir: &Attributes) -> Result<()> {
    check(who, dir, Rights::EXECUTE)
}

/// Whether `who` may add entries to `dir`.
///
/// # Errors
/// `AccessDenied`.
#[inline]
pub fn check_add(who: &Credentials, dir: &Attributes) -> Result<()> {
    check(who, dir, Rights::WRITE | Rights::EXECUTE)
}

/// Whether `who` may remove the entry of `dir` that names `victim`, the sticky bit considered.
///
/// # Errors
/// `AccessDenied`; `NotPermitted` when only the sticky bit is in the way.
#[inline]
pub fn check_remove(who: &Credentials, dir: &Attributes, victim: &Attributes) -> Result<()> {
    check_add(who, dir)?;
    let sticky = dir.mode & STICKY != 0 && who.uid != victim.uid && !who.owns(dir);
    if sticky { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Whether `who` may give `object` another name: as Linux with `fs.protected_hardlinks`, its owner may, and who may read
/// and write a regular file without dangerous set-id bits.
///
/// # Errors
/// `NotPermitted`.
pub fn check_link(who: &Credentials, object: &Attributes) -> Result<()> {
    if who.owns(object) {
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

/// The mode that `object` gets when `who` sets it to `mode`: the set-group-id bit is lost by users outside the group.
///
/// # Errors
/// `NotPermitted` unless `who` owns it.
pub fn chmod(who: &Credentials, object: &Attributes, mode: u16) -> Result<u16> {
    if !who.owns(object) {
        return Err(Error::NotPermitted);
    }
    let mode = mode & MODE_BITS;
    let foreign = !who.is_root() && !who.in_group(object.gid);
    Ok(if foreign { mode & !SET_GID } else { mode })
}

/// The mode that `object` has after `who` set its user and group (`None` leaves one as it is): files lose set-id bits.
///
/// # Errors
/// `NotPermitted` unless `who` is root, or owns it and sets a group of its own.
pub fn chown(who: &Credentials, object: &Attributes, uid: Option<u32>, gid: Option<u32>) -> Result<u16> {
    let own = who.uid == object.uid;
    let uid_fits = uid.is_none_or(|uid| own && uid == object.uid);
    let gid_fits = gid.is_none_or(|gid| own && (gid == object.gid || who.in_group(gid)));
    if !who.is_root() && !(uid_fits && gid_fits) {
        return Err(Error::NotPermitted);
    }
    if object.kind == Kind::Directory {
        return Ok(object.mode);
    }
    Ok(without_set_ids(who, object))
}

/// The mode that `object` has after `who` wrote to it or changed its size: others than root take set-id bits from files.
#[inline]
pub fn mode_after_write(who: &Credentials, object: &Attributes) -> u16 {
    if object.mode & (SET_UID | SET_GID) == 0 || who.is_root() || object.kind != Kind::File {
        return object.mode;
    }
    without_set_ids(who, object)
}

/// Without group execution the set-group-id bit gives no rights, and members of the group leave it.
fn without_set_ids(who: &Credentials, object: &Attributes) -> u16 {
    let executable = object.mode & GROUP_EXECUTE != 0;
    let drops_group = executable || !(who.is_root() || who.in_group(object.gid));
    object.mode & !SET_UID & if drops_group { !SET_GID } else { MODE_BITS }
}

/// Whether `who` may set the times of `object`; `now` when only to the time of the call.
///
/// # Errors
/// `NotPermitted` for other times unless `who` owns it; `AccessDenied` for `now` when it may not write either.
pub fn check_set_times(who: &Credentials, object: &Attributes, now: bool) -> Result<()> {
    if who.owns(object) {
        return Ok(());
    }
    if now { check(who, object, Rights::WRITE) } else { Err(Error::NotPermitted) }
}

/// Owner and mode of an object of `kind` that `who` makes in `dir` with `mode`, the umask applied: a set-group-id
/// directory gives its group, and to directories the bit itself.
#[inline]
pub fn owner_of_new(who: &Credentials, dir: &Attributes, kind: Kind, mode: u16) -> Owner {
    let mut mode = mode & MODE_BITS & !who.umask;
    let mut gid = who.gid;
    if dir.mode & SET_GID != 0 {
        gid = dir.gid;
        if kind == Kind::Directory {
            mode |= SET_GID;
        } else if mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE
            && !who.is_root()
            && !who.in_group(gid)
        {
            mode &= !SET_GID;
        }
    }
    Owner { mode, uid: who.uid, gid }
}
