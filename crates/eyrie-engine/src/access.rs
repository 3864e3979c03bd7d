//! Who may do what: the one place that knows permission rules.
//!
//! Pure functions over the [`Protection`] of objects that answer as Linux does. User id 0 has every capability of a file system
//! (`CAP_DAC_OVERRIDE`, `CAP_FOWNER`, `CAP_CHOWN`, `CAP_FSETID`, `CAP_MKNOD`, and `CAP_SYS_ADMIN` where it is about
//! extended attributes), any other user none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::op::{Owner, SetIds};
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
    pub fn owns(&self, object: &Protection) -> bool {
        self.is_root() || self.uid == object.uid
    }
}

/// What decides who may use an object: its kind, mode and owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, at most 0o7777.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl From<&Attributes> for Protection {
    #[inline]
    fn from(attributes: &Attributes) -> Protection {
        let &Attributes { kind, mode, uid, gid, .. } = attributes;
        Protection { kind, mode, uid, gid }
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

/// Whether `who` passes [`check`] of any directory, and of any object for reading and writing: their protection need
/// not be looked at.
#[inline]
pub fn passes_everywhere(who: &Credentials) -> bool {
    who.is_root()
}

/// Whether `who` has all of `rights` on `object`.
///
/// # Errors
/// `AccessDenied`.
#[inline]
pub fn check(who: &Credentials, object: &Protection, rights: Rights) -> Result<()> {
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
fn overrides(who: &Credentials, object: &Protection, rights: Rights) -> bool {
    let executable = object.kind == Kind::Directory || object.mode & 0o111 != 0;
    who.is_root() && (executable || !rights.contains(Rights::EXECUTE))
}

/// Whether `who` may search the directory `dir`.
///
/// # Errors
/// `AccessDenied`.
#[inline]
pub fn check_search(who: &Credentials, dir: &Protection) -> Result<()> {
    check(who, dir, Rights::EXECUTE)
}

/// Whether `who` may add entries to `dir`.
///
/// # Errors
/// `AccessDenied`.
#[inline]
pub fn check_add(who: &Credentials, dir: &Protection) -> Result<()> {
    check(who, dir, Rights::WRITE | Rights::EXECUTE)
}

/// Whether the owner of an entry of `dir` matters to [`check_remove`] by `who`.
#[inline]
pub fn is_sticky(who: &Credentials, dir: &Protection) -> bool {
    dir.mode & STICKY != 0 && !who.owns(dir)
}

/// Whether `who` may remove the entry of `dir` that names `victim`, the sticky bit considered.
///
/// # Errors
/// `AccessDenied`; `NotPermitted` when only the sticky bit is in the way.
#[inline]
pub fn check_remove(who: &Credentials, dir: &Protection, victim: &Protection) -> Result<()> {
    check_add(who, dir)?;
    if is_sticky(who, dir) && who.uid != victim.uid { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Whether `who` may open with `O_CREAT` an `object` that is already there in `dir`: in a sticky directory that anybody may
/// write, Linux lets nobody (root included) do so with a symbolic link, socket or device of a third user.
///
/// # Errors
/// `AccessDenied`.
pub fn check_open_for_create(who: &Credentials, dir: &Protection, object: &Protection) -> Result<()> {
    let harmless = matches!(object.kind, Kind::File | Kind::Fifo)
        || dir.mode & STICKY == 0
        || dir.mode & 0o002 == 0
        || object.uid == dir.uid
        || object.uid == who.uid;
    if harmless { Ok(()) } else { Err(Error::AccessDenied) }
}

/// Whether `who` may give `object` another name: as Linux with `fs.protected_hardlinks`, its owner may, and who may read
/// and write a regular file without dangerous set-id bits.
///
/// # Errors
/// `NotPermitted`.
pub fn check_link(who: &Credentials, object: &Protection) -> Result<()> {
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

/// Whether `who` may make a device with this number. Character device 0 is the mark of overlay file systems.
///
/// # Errors
/// `NotPermitted`.
pub fn check_device(who: &Credentials, kind: Kind, device: u64) -> Result<()> {
    let mark = kind == Kind::CharDevice && device == 0;
    let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
    if is_device && !mark && !who.is_root() { Err(Error::NotPermitted) } else { Ok(()) }
}

/// The mode that `object` gets when `who` sets it to `mode`: the set-group-id bit is lost by users outside the group.
///
/// # Errors
/// `NotPermitted` unless `who` owns it.
pub fn chmod(who: &Credentials, object: &Protection, mode: u16) -> Result<u16> {
    if !who.owns(object) {
        return Err(Error::NotPermitted);
    }
    let mode = mode & MODE_BITS;
    let foreign = !who.is_root() && !who.in_group(object.gid);
    Ok(if foreign { mode & !SET_GID } else { mode })
}

/// The set-id bits that `object` loses when `who` sets its user and group (`None` leaves one as it is). Directories keep
/// theirs.
///
/// # Errors
/// `NotPermitted` unless `who` is root, or owns it and sets a group of its own, or changes nothing at all.
pub fn chown(who: &Credentials, object: &Protection, uid: Option<u32>, gid: Option<u32>) -> Result<SetIds> {
    let own = who.uid == object.uid;
    let uid_fits = uid.is_none_or(|uid| own && uid == object.uid);
    let gid_fits = gid.is_none_or(|gid| own && (gid == object.gid || who.in_group(gid)));
    let fits = uid_fits && gid_fits;
    if !fits && !who.is_root() {
        return Err(Error::NotPermitted);
    }
    if object.kind == Kind::Directory {
        return Ok(SetIds::Keep);
    }
    let set_ids = if who.is_root() { SetIds::DropAsMember } else { dropped_by(who, object.gid) };
    let changes_mode = mode_after(object.mode, set_ids) != object.mode;
    if changes_mode && !who.owns(object) { Err(Error::NotPermitted) } else { Ok(set_ids) }
}

/// Whether a write by `who` takes no set-id bits from any file: its protection need not be looked at.
#[inline]
pub fn keeps_set_ids(who: &Credentials) -> bool {
    who.is_root()
}

/// The set-id bits that a file of group `gid` loses when `who` writes to it, or changes its size or storage. Only root
/// leaves all.
#[inline]
pub fn set_ids_after_write(who: &Credentials, gid: u32) -> SetIds {
    if keeps_set_ids(who) { SetIds::Keep } else { dropped_by(who, gid) }
}

#[inline]
fn dropped_by(who: &Credentials, gid: u32) -> SetIds {
    if who.in_group(gid) { SetIds::DropAsMember } else { SetIds::DropAsStranger }
}

/// A mode that loses these set-id bits. Without group execution the set-group-id bit gives no rights, and members of the
/// group leave it.
#[inline]
pub fn mode_after(mode: u16, set_ids: SetIds) -> u16 {
    let executable = mode & GROUP_EXECUTE != 0;
    match set_ids {
        SetIds::Keep => mode,
        SetIds::DropAsMember if !executable => mode & !SET_UID,
        SetIds::DropAsMember | SetIds::DropAsStranger => mode & !(SET_UID | SET_GID),
    }
}

/// Whether `who` may set the times of `object`; `now` when both to the time of the call.
///
/// # Errors
/// `NotPermitted` for other times unless `who` owns it; `AccessDenied` for `now` when it may not write either.
pub fn check_set_times(who: &Credentials, object: &Protection, now: bool) -> Result<()> {
    if who.owns(object) {
        return Ok(());
    }
    if now { check(who, object, Rights::WRITE) } else { Err(Error::NotPermitted) }
}

/// Namespaces of extended attributes, which the prefixes of their names tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Namespace {
    User,
    Trusted,
    Security,
    System,
    None,
}

impl Namespace {
    /// The namespace of `name`, and the rest of it.
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

    /// Whether there can be such an attribute: the last thing that is asked, as by Linux. Every write would have to take
    /// the capabilities of a program away, so there are none.
    fn check_kept(self, rest: &[u8]) -> Result<()> {
        match self {
            Namespace::Security if rest == b"capability" => Err(Error::Unsupported("security.capability")),
            Namespace::System | Namespace::None => Err(Error::Unsupported(
                "an extended attribute that is none of user.*, trusted.* or security.*",
            )),
            _ if rest.is_empty() => Err(Error::Invalid("a namespace is no name of an extended attribute")),
            _ => Ok(()),
        }
    }
}

/// Whether `who` may read the extended attribute `name` of `object`. Where only files and directories, or only root, have
/// such attributes, others see none.
///
/// # Errors
/// `NoXattr`; `AccessDenied`; `Unsupported` for other namespaces than `user`, `trusted` and `security`.
pub fn check_get_xattr(who: &Credentials, object: &Protection, name: &[u8]) -> Result<()> {
    let (space, rest) = Namespace::of(name);
    match space {
        Namespace::Trusted if !who.is_root() => return Err(Error::NoXattr),
        Namespace::User if !has_user_xattrs(object) => return Err(Error::NoXattr),
        Namespace::User | Namespace::None => check(who, object, Rights::READ)?,
        Namespace::Trusted | Namespace::Security | Namespace::System => {}
    }
    space.check_kept(rest)
}

/// Whether `who` may set and remove the extended attribute `name` of `object`.
///
/// # Errors
/// `NotPermitted`; `AccessDenied`; `Unsupported` for other namespaces than `user`, `trusted` and `security`.
pub fn check_set_xattr(who: &Credentials, object: &Protection, name: &[u8]) -> Result<()> {
    let (space, rest) = Namespace::of(name);
    match space {
        Namespace::Trusted | Namespace::Security if !who.is_root() => return Err(Error::NotPermitted),
        Namespace::User if !has_user_xattrs(object) => return Err(Error::NotPermitted),
        Namespace::User if object.kind == Kind::Directory && is_sticky(who, object) => {
            return Err(Error::NotPermitted);
        }
        Namespace::User | Namespace::None => check(who, object, Rights::WRITE)?,
        Namespace::Trusted | Namespace::Security | Namespace::System => {}
    }
    space.check_kept(rest)
}

fn has_user_xattrs(object: &Protection) -> bool {
    matches!(object.kind, Kind::File | Kind::Directory)
}

/// Whether `who` sees the extended attribute `name` in a list.
pub fn lists_xattr(who: &Credentials, name: &[u8]) -> bool {
    who.is_root() || Namespace::of(name).0 != Namespace::Trusted
}

/// Owner and mode of an object of `kind` that `who` makes in `dir` with `mode`, the umask applied: a set-group-id
/// directory gives its group, and to directories the bit itself, which they get in no other way. Symbolic links have
/// all permissions.
#[inline]
pub fn owner_of_new(who: &Credentials, dir: &Protection, kind: Kind, mode: u16) -> Owner {
    let inherits = dir.mode & SET_GID != 0;
    let gid = if inherits { dir.gid } else { who.gid };
    let mode = match kind {
        Kind::Symlink => 0o777,
        Kind::Directory => mode & !who.umask & 0o1777 | if inherits { SET_GID } else { 0 },
        _ => {
            let grants_group = mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE;
            let foreign = inherits && grants_group && !who.is_root() && !who.in_group(gid);
            mode & MODE_BITS & !who.umask & if foreign { !SET_GID } else { MODE_BITS }
        }
    };
    Owner { mode, uid: who.uid, gid }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, mode: u16, uid: u32, gid: u32) -> Protection {
        Protection { kind, mode, uid, gid }
    }

    fn file(mode: u16, uid: u32, gid: u32) -> Protection {
        object(Kind::File, mode, uid, gid)
    }

    fn dir(mode: u16, uid: u32, gid: u32) -> Protection {
        object(Kind::Directory, mode, uid, gid)
    }

    /// User 1 of groups 10 and 11.
    fn user() -> Credentials {
        Credentials::new(1, 10, &[11])
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let (r, w, x) = (Rights::READ, Rights::WRITE, Rights::EXECUTE);
        for (object, rights, granted) in [
            (file(0o400, 1, 10), r, true),
            (file(0o400, 1, 10), w, false),
            (file(0o077, 1, 10), r, false),
            (file(0o040, 2, 10), r, true),
            (file(0o040, 2, 11), r, true),
            (file(0o707, 2, 11), r, false),
            (file(0o004, 2, 12), r, true),
            (file(0o004, 2, 12), r | w, false),
            (file(0o006, 2, 12), r | w, true),
            (dir(0o001, 2, 12), x, true),
            (dir(0o770, 2, 12), x, false),
            (file(0, 2, 12), Rights::empty(), true),
        ] {
            assert_eq!(check(&user(), &object, rights).is_ok(), granted, "{object:?} {rights:?}");
        }
    }

    #[test]
    fn root_executes_only_what_somebody_may() {
        let root = Credentials::root();
        for (object, rights, granted) in [
            (file(0, 1, 1), Rights::READ | Rights::WRITE, true),
            (file(0o600, 0, 0), Rights::EXECUTE, false),
            (file(0o010, 1, 1), Rights::EXECUTE, true),
            (dir(0, 1, 1), Rights::all(), true),
        ] {
            assert_eq!(check(&root, &object, rights).is_ok(), granted, "{object:?} {rights:?}");
        }
    }

    #[test]
    fn sticky_directories_protect_the_entries_of_others() {
        for (who, dir, victim, errno) in [
            (user(), dir(0o1777, 2, 2), file(0, 2, 2), Some(rustix::io::Errno::PERM)),
            (user(), dir(0o1777, 2, 2), file(0, 1, 2), None),
            (user(), dir(0o1777, 1, 2), file(0, 2, 2), None),
            (user(), dir(0o777, 2, 2), file(0, 2, 2), None),
            (user(), dir(0o1775, 2, 2), file(0, 2, 2), Some(rustix::io::Errno::ACCESS)),
            (Credentials::root(), dir(0o1000, 2, 2), file(0, 2, 2), None),
        ] {
            let result = check_remove(&who, &dir, &victim);
            assert_eq!(result.err().map(|error| error.errno()), errno, "{dir:?} {victim:?}");
        }
    }

    #[test]
    fn set_id_bits_survive_only_where_linux_keeps_them() {
        let root = Credentials::root();
        for (who, before, written, owned) in [
            (&user(), file(0o6777, 1, 10), 0o777, 0o777),
            (&user(), file(0o2767, 1, 10), 0o2767, 0o2767),
            (&user(), file(0o2767, 1, 12), 0o767, 0o767),
            (&user(), file(0o4755, 1, 10), 0o755, 0o755),
            (&root, file(0o6777, 1, 10), 0o6777, 0o777),
            (&root, file(0o2767, 1, 12), 0o2767, 0o2767),
        ] {
            let set_ids = set_ids_after_write(who, before.gid);
            assert_eq!(mode_after(before.mode, set_ids), written, "{before:?} written");
            let set_ids = chown(who, &before, None, None).expect("it changes nothing else");
            assert_eq!(mode_after(before.mode, set_ids), owned, "{before:?} chowned");
        }
    }

    #[test]
    fn directories_keep_their_set_id_bits() {
        assert_eq!(chown(&user(), &dir(0o6777, 1, 10), None, None).ok(), Some(SetIds::Keep));
    }

    #[test]
    fn owners_give_files_to_their_own_groups_only() {
        let own = file(0o644, 1, 10);
        for (object, uid, gid, allowed) in [
            (own, None, Some(11), true),
            (own, None, Some(12), false),
            (own, Some(1), Some(10), true),
            (own, Some(2), None, false),
            (file(0o644, 2, 10), None, Some(10), false),
            (file(0o644, 2, 10), None, None, true),
            (file(0o4644, 2, 10), None, None, false),
        ] {
            assert_eq!(chown(&user(), &object, uid, gid).is_ok(), allowed, "{object:?} {uid:?} {gid:?}");
            assert!(chown(&Credentials::root(), &object, uid, gid).is_ok());
        }
    }

    #[test]
    fn chmod_takes_the_set_group_id_bit_from_outsiders() {
        assert_eq!(chmod(&user(), &file(0, 1, 11), 0o2755).ok(), Some(0o2755));
        assert_eq!(chmod(&user(), &file(0, 1, 12), 0o2755).ok(), Some(0o755));
        assert_eq!(chmod(&Credentials::root(), &file(0, 1, 12), 0o2755).ok(), Some(0o2755));
        assert!(chmod(&user(), &file(0o777, 2, 10), 0o755).is_err());
    }

    #[test]
    fn times_are_set_by_owners_and_touched_by_writers() {
        for (object, now, errno) in [
            (file(0, 1, 1), false, None),
            (file(0o666, 2, 2), true, None),
            (file(0o666, 2, 2), false, Some(rustix::io::Errno::PERM)),
            (file(0o644, 2, 2), true, Some(rustix::io::Errno::ACCESS)),
        ] {
            let result = check_set_times(&user(), &object, now);
            assert_eq!(result.err().map(|error| error.errno()), errno, "{object:?} {now}");
        }
    }

    #[test]
    fn odd_things_of_third_users_in_sticky_directories_are_not_opened_for_creating() {
        let link = |uid| object(Kind::Symlink, 0o777, uid, 0);
        for (dir, object, allowed) in [
            (dir(0o1777, 2, 2), link(3), false),
            (dir(0o1777, 2, 2), link(2), true),
            (dir(0o1777, 2, 2), link(1), true),
            (dir(0o1777, 2, 2), file(0, 3, 3), true),
            (dir(0o1775, 2, 2), link(3), true),
            (dir(0o777, 2, 2), link(3), true),
        ] {
            assert_eq!(check_open_for_create(&user(), &dir, &object).is_ok(), allowed, "{dir:?} {object:?}");
        }
    }

    #[test]
    fn every_namespace_of_extended_attributes_has_its_rules() {
        use rustix::io::Errno;
        let (perm, access, none) = (Some(Errno::PERM), Some(Errno::ACCESS), Some(Errno::NODATA));
        let (unknown, invalid) = (Some(Errno::OPNOTSUPP), Some(Errno::INVAL));
        let (own, open, closed) = (file(0o600, 1, 10), file(0o666, 2, 12), file(0o600, 2, 12));
        let (sticky, fifo) = (dir(0o1777, 2, 12), object(Kind::Fifo, 0o666, 1, 10));
        let root = Credentials::root();
        // Who, of what, the name; what getting and setting answer.
        type Case<'a> = (&'a Credentials, Protection, &'a [u8], Option<Errno>, Option<Errno>);
        let cases: [Case<'_>; 24] = [
            (&user(), own, b"user.a", None, None),
            (&user(), open, b"user.a", None, None),
            (&user(), closed, b"user.a", access, access),
            (&user(), file(0o004, 2, 12), b"user.a", None, access),
            (&root, closed, b"user.a", None, None),
            (&user(), own, b"user.", invalid, invalid),
            (&user(), closed, b"user.", access, access),
            (&user(), fifo, b"user.a", none, perm),
            (&root, fifo, b"user.a", none, perm),
            (&user(), sticky, b"user.a", None, perm),
            (&user(), dir(0o1777, 1, 12), b"user.a", None, None),
            (&root, sticky, b"user.a", None, None),
            (&user(), file(0o1666, 2, 12), b"user.a", None, None),
            (&user(), own, b"trusted.a", none, perm),
            (&root, fifo, b"trusted.a", None, None),
            (&root, own, b"trusted.", invalid, invalid),
            (&user(), closed, b"security.a", None, perm),
            (&root, fifo, b"security.a", None, None),
            (&root, own, b"security.capability", unknown, unknown),
            (&user(), own, b"system.posix_acl_access", unknown, unknown),
            (&root, own, b"system.posix_acl_default", unknown, unknown),
            (&user(), own, b"other.a", unknown, unknown),
            (&user(), closed, b"other.a", access, access),
            (&root, own, b"user", unknown, unknown),
        ];
        for (who, object, name, get, set) in cases {
            let errno = |result: Result<()>| result.err().map(|error| error.errno());
            let name_shown = name.escape_ascii().to_string();
            assert_eq!(errno(check_get_xattr(who, &object, name)), get, "getting {name_shown} of {object:?}");
            assert_eq!(errno(check_set_xattr(who, &object, name)), set, "setting {name_shown} of {object:?}");
        }
        assert!(lists_xattr(&root, b"trusted.a") && !lists_xattr(&user(), b"trusted.a"));
        assert!(lists_xattr(&user(), b"security.a") && lists_xattr(&user(), b"user.a"));
    }

    #[test]
    fn links_are_for_those_who_could_have_copied() {
        for (object, allowed) in [
            (file(0, 1, 1), true),
            (file(0o666, 2, 2), true),
            (file(0o644, 2, 2), false),
            (file(0o4666, 2, 2), false),
            (file(0o2676, 2, 2), false),
            (object(Kind::Symlink, 0o777, 2, 2), false),
        ] {
            assert_eq!(check_link(&user(), &object).is_ok(), allowed, "{object:?}");
        }
    }

    #[test]
    fn new_objects_inherit_the_group_of_set_group_id_directories() {
        let masked = user().with_umask(0o022);
        let (plain, set) = (dir(0o777, 2, 12), dir(0o2777, 2, 12));
        for (who, parent, kind, mode, want) in [
            (&user(), plain, Kind::File, 0o6777, (0o6777, 10)),
            (&user(), set, Kind::File, 0o2777, (0o777, 12)),
            (&user(), set, Kind::File, 0o2767, (0o2767, 12)),
            (&user(), set, Kind::Directory, 0o755, (0o2755, 12)),
            (&user(), plain, Kind::Directory, 0o7777, (0o1777, 10)),
            (&masked, plain, Kind::File, 0o666, (0o644, 10)),
            (&masked, set, Kind::Symlink, 0, (0o777, 12)),
            (&Credentials::root(), set, Kind::File, 0o2777, (0o2777, 12)),
        ] {
            let owner = owner_of_new(who, &parent, kind, mode);
            assert_eq!((owner.mode, owner.gid), want, "{parent:?} {kind:?} {mode:o}");
            assert_eq!(owner.uid, who.uid());
        }
    }

    #[test]
    fn clones_share_the_id_that_caches_use() {
        let who = user();
        assert_eq!(who.id(), who.clone().id());
        assert_ne!(who.id(), user().id());
    }
}
