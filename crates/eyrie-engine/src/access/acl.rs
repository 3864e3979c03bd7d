//! Access control lists (ACLs), as POSIX.1e draft 17 and Linux have them.
//!
//! An ACL is a list of entries. It is encoded as in the extended attributes `system.posix_acl_access` and
//! `system.posix_acl_default` of Linux. The *access* ACL of an object decides which rights users have on the
//! object. The *default* ACL of a directory is inherited by the objects that are made in it.
//!
//! The mode of an object with an access ACL is a part of this ACL: the bits of the owner are the owner's
//! entry, the bits of the group are the mask, and the bits of the others are their entry. So a volume stores
//! the rights of these three entries in the mode only. An access ACL that has no named user, no named group
//! and no mask says no more than the mode, and no volume stores it.

use super::{Credentials, Protection};
use crate::engine::StoredProtection;
use crate::op::AclKind;
use crate::{Engine, Error, Kind, ObjectId, Result};

/// Bytes before the entries: the version.
const HEAD: usize = 4;
/// Bytes of an entry: tag, rights and id.
const ENTRY: usize = 8;
/// The only version of the bytes.
const VERSION: u32 = 2;
/// The id of an entry that names no user and no group.
const NO_ID: u32 = u32::MAX;
const RIGHTS: u16 = 7;
const GROUP_RIGHTS: u16 = 0o070;

/// The kind of subject of an entry, with the number that Linux gives to this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    Group = 0x04,
    NamedGroup = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

impl Tag {
    fn from_raw(raw: u16) -> Option<Tag> {
        [Tag::Owner, Tag::User, Tag::Group, Tag::NamedGroup, Tag::Mask, Tag::Other]
            .into_iter()
            .find(|&tag| tag as u16 == raw)
    }

    fn is_named(self) -> bool {
        matches!(self, Tag::User | Tag::NamedGroup)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct AclEntry {
    tag: Tag,
    rights: u16,
    /// The user or the group of a named entry, else [`NO_ID`].
    id: u32,
}

/// An ACL with at least one entry.
///
/// ```
/// use eyrie_engine::access::Acl;
///
/// let mut bytes = 2_u32.to_le_bytes().to_vec();
/// for (tag, rights) in [(1_u16, 6_u16), (4, 4), (0x20, 0)] {
///     bytes.extend(tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()).chain([0xff; 4]));
/// }
/// let acl = Acl::parse(&bytes)?.expect("it has entries");
/// acl.check()?;
/// assert_eq!((acl.mode(), acl.is_mode()), (0o640, true));
/// # Ok::<(), eyrie_engine::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Returns the ACL that these bytes hold. `None` if they hold no entry: Linux then removes the ACL.
    ///
    /// # Errors
    /// `Unsupported` for a version other than 2. `Invalid` for all other bytes that are no ACL.
    pub fn parse(bytes: &[u8]) -> Result<Option<Acl>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some((version, rest)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(Error::Invalid("an ACL must have at least four bytes"));
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::Unsupported("an ACL of another version than 2"));
        }
        let (entries, end) = rest.as_chunks::<ENTRY>();
        if !end.is_empty() {
            return Err(Error::Invalid("each entry of an ACL must have eight bytes"));
        }
        let entries: Option<Vec<AclEntry>> = entries.iter().map(AclEntry::parse).collect();
        let entries =
            entries.ok_or(Error::Invalid("an entry of an ACL has an unknown tag, or no user or group"))?;
        Ok((!entries.is_empty()).then_some(Acl { entries }))
    }

    /// Checks that the entries have only known rights, and the right order and number: the owner, named
    /// users, the group, named groups, the mask, the others. Named users and groups may occur any number of
    /// times, and every other entry occurs once. The mask may be missing if no user and no group is named.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<()> {
        let mut tags = self.entries.iter().map(|entry| entry.tag).peekable();
        let mut has_names = false;
        let mut has = |tag: Tag, is_many: bool| {
            let mut count = 0;
            while tags.next_if_eq(&tag).is_some() {
                count += 1;
                if !is_many {
                    break;
                }
            }
            count > 0
        };
        let is_ordered = has(Tag::Owner, false)
            && {
                has_names |= has(Tag::User, true);
                has(Tag::Group, false)
            }
            && {
                has_names |= has(Tag::NamedGroup, true);
                has(Tag::Mask, false) || !has_names
            }
            && has(Tag::Other, false);
        let has_rights = self.entries.iter().all(|entry| entry.rights & !RIGHTS == 0);
        if is_ordered && tags.peek().is_none() && has_rights {
            Ok(())
        } else {
            Err(Error::Invalid(
                "an ACL must have entries for the owner, users, the group, groups, a mask and others",
            ))
        }
    }

    /// Returns the bytes of this ACL.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for AclEntry { tag, rights, id } in &self.entries {
            bytes.extend_from_slice(&(*tag as u16).to_le_bytes());
            bytes.extend_from_slice(&rights.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Returns the permission bits of a mode that correspond to this ACL.
    pub fn mode(&self) -> u16 {
        let group = if self.has(Tag::Mask) { Tag::Mask } else { Tag::Group };
        self.rights(Tag::Owner) << 6 | self.rights(group) << 3 | self.rights(Tag::Other)
    }

    /// True if the ACL says no more than its mode.
    pub fn is_mode(&self) -> bool {
        !self.has(Tag::Mask) && !self.entries.iter().any(|entry| entry.tag.is_named())
    }

    /// Returns the bytes that a volume stores for this access ACL. They have zeros in place of the rights
    /// that the mode has. `None` if the ACL says no more than the mode.
    pub(crate) fn to_stored(&self) -> Option<Vec<u8>> {
        (!self.is_mode()).then(|| self.clone().with_mode(0).to_bytes())
    }

    /// Returns the mode of a new object in a directory with this default ACL. `mode` is the mode of the call.
    /// The access ACL of the new object has the entries of this default ACL, with the rights of the returned
    /// mode.
    pub(crate) fn inherited(&self, mode: u16) -> u16 {
        mode & (self.mode() | !0o777)
    }

    /// Replaces the rights of the owner, the mask and the others by those of `mode`.
    #[must_use]
    pub(crate) fn with_mode(mut self, mode: u16) -> Acl {
        for entry in &mut self.entries {
            if let Some(rights) = rights_in_mode(entry.tag as u16, mode) {
                entry.rights = rights;
            }
        }
        self
    }

    fn has(&self, tag: Tag) -> bool {
        self.entries.iter().any(|entry| entry.tag == tag)
    }

    fn rights(&self, tag: Tag) -> u16 {
        self.entries.iter().find(|entry| entry.tag == tag).map_or(0, |entry| entry.rights)
    }

    /// Returns the judgement of this access ACL of `object` about a user who does not own the object.
    ///
    /// As in Linux, an entry that names the user decides alone. Otherwise, if entries of groups apply to the
    /// user, one of these entries must have all wanted rights. The mask limits the entries of named users and
    /// of groups. If no entry of a named user or of a group applies, the entry of the others decides.
    pub(crate) fn judge(&self, who: &Credentials, object: &Protection) -> Judgement {
        let mask = if self.has(Tag::Mask) { self.rights(Tag::Mask) } else { RIGHTS };
        let named = self.entries.iter().find(|entry| entry.tag == Tag::User && entry.id == who.uid());
        let of_groups = |entry: &&AclEntry| match entry.tag {
            Tag::Group => who.in_group(object.gid),
            Tag::NamedGroup => who.in_group(entry.id),
            _ => false,
        };
        if let Some(entry) = named {
            return Judgement::new(|wanted| entry.rights & mask & wanted == wanted);
        }
        if !self.entries.iter().any(|entry| of_groups(&entry)) {
            let others = self.rights(Tag::Other);
            return Judgement::new(|wanted| others & wanted == wanted);
        }
        Judgement::new(|wanted| {
            let mut groups = self.entries.iter().filter(of_groups);
            mask & wanted == wanted && groups.any(|entry| entry.rights & wanted == wanted)
        })
    }
}

impl AclEntry {
    fn parse(bytes: &[u8; ENTRY]) -> Option<AclEntry> {
        let [tag, tag_high, rights, rights_high, id @ ..] = *bytes;
        let tag = Tag::from_raw(u16::from_le_bytes([tag, tag_high]))?;
        let id = if tag.is_named() { u32::from_le_bytes(id) } else { NO_ID };
        if tag.is_named() && id == NO_ID {
            return None;
        }
        Some(AclEntry { tag, rights: u16::from_le_bytes([rights, rights_high]), id })
    }
}

/// Returns the rights that `mode` has in place of an entry of an access ACL. `None` if the ACL itself has the
/// rights of the entry.
fn rights_in_mode(tag: u16, mode: u16) -> Option<u16> {
    let shift = match Tag::from_raw(tag)? {
        Tag::Owner => 6,
        Tag::Mask => 3,
        Tag::Other => 0,
        Tag::User | Tag::Group | Tag::NamedGroup => return None,
    };
    Some(mode >> shift & RIGHTS)
}

/// Puts the rights that are in the mode into the bytes of a stored access ACL.
pub(crate) fn restore_mode(stored: &mut [u8], mode: u16) {
    let Some(entries) = stored.get_mut(HEAD..) else { return };
    for entry in entries.chunks_exact_mut(ENTRY) {
        if let Some(rights) = rights_in_mode(u16::from_le_bytes([entry[0], entry[1]]), mode) {
            entry[2..4].copy_from_slice(&rights.to_le_bytes());
        }
    }
}

/// The judgement of an access ACL about one user. The ACL may refuse a set of rights although it grants each
/// right alone. Therefore the judgement has a bit for each set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judgement(u8);

impl Judgement {
    /// The object has no access ACL, so its mode decides.
    pub const BY_MODE: Judgement = Judgement(0);

    /// Calls `grants` with each set of rights that is not empty. No ACL refuses the empty set, so the result
    /// differs from `BY_MODE`.
    fn new(grants: impl Fn(u16) -> bool) -> Judgement {
        let sets = (0..=RIGHTS).filter(|&wanted| wanted == 0 || grants(wanted));
        Judgement(sets.fold(0, |sum, wanted| sum | 1 << wanted))
    }

    /// True if the ACL grants these rights; `None` if the mode decides.
    #[inline]
    pub(super) fn grants(self, rights: super::Rights) -> Option<bool> {
        if self.0 == 0 { None } else { Some(self.0 >> (rights.bits() & 7) & 1 != 0) }
    }
}

/// True if the access ACL of an object with this mode decides. Linux ignores the ACL if the group has no
/// right in the mode, that is, if the mask is empty.
fn decides(mode: u16) -> bool {
    mode & GROUP_RIGHTS != 0
}

/// Returns the mode of an object whose access ACL becomes `acl`. `None` removes the ACL and keeps the
/// permission bits. `drops_set_gid` also clears the set-group-id bit.
pub(crate) fn mode_with(mode: u16, acl: Option<&Acl>, drops_set_gid: bool) -> u16 {
    let mode = acl.map_or(mode, |acl| mode & !0o777 | acl.mode());
    if drops_set_gid { mode & !super::SET_GID } else { mode }
}

/// Returns the ACL that an Op sets. `None` if it removes the ACL.
///
/// # Errors
/// `Invalid` if the object cannot have this ACL, or if `bytes` are no ACL. `Unsupported` for a version other
/// than 2.
pub(crate) fn acl_of_op(object: Kind, kind: AclKind, bytes: &[u8]) -> Result<Option<Acl>> {
    if object == Kind::Symlink || kind == AclKind::Default && object != Kind::Directory {
        return Err(Error::Invalid("an object of this kind has no such ACL"));
    }
    let acl = Acl::parse(bytes)?;
    acl.as_ref().map_or(Ok(()), Acl::check)?;
    Ok(acl)
}

/// Returns the attributes of an object that decide about the permissions of `who`.
///
/// # Errors
/// `Stale`, `Corrupt`, `Fault`.
#[inline]
pub fn protection<E: Engine + ?Sized>(engine: &E, id: ObjectId, who: &Credentials) -> Result<Protection> {
    let StoredProtection { owner, access_acl, has_default_acl, flags } = engine.guards(id)?;
    let object = Protection { has_default_acl, flags, ..Protection::without_acls(id.kind(), owner) };
    match access_acl {
        None => Ok(object),
        Some(bytes) => judged(object, &bytes, who),
    }
}

/// Adds the judgement of an access ACL.
#[cold]
fn judged(mut object: Protection, bytes: &[u8], who: &Credentials) -> Result<Protection> {
    if decides(object.mode)
        && who.uid() != object.uid
        && let Some(acl) = Acl::parse(bytes)?
    {
        object.judgement = acl.judge(who, &object);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::super::{Capabilities, Rights, check};
    use super::*;
    use crate::Owner;

    const READ: u16 = 4;
    const WRITE: u16 = 2;
    const ADA: u32 = 1000;
    const TEAM: u32 = 2000;

    fn entry(tag: Tag, rights: u16, id: u32) -> AclEntry {
        AclEntry { tag, rights, id }
    }

    fn acl(named: &[AclEntry], mask: Option<u16>) -> Acl {
        let of = |tag| named.iter().copied().filter(move |entry| entry.tag == tag);
        let mut entries = vec![entry(Tag::Owner, 7, NO_ID)];
        entries.extend(of(Tag::User));
        entries.push(entry(Tag::Group, READ, NO_ID));
        entries.extend(of(Tag::NamedGroup));
        entries.extend(mask.map(|mask| entry(Tag::Mask, mask, NO_ID)));
        entries.push(entry(Tag::Other, 1, NO_ID));
        Acl { entries }
    }

    fn may(acl: &Acl, who: &Credentials, rights: Rights) -> bool {
        let owner = Owner { mode: acl.mode(), uid: 1, gid: 1 };
        let mut object = Protection::without_acls(Kind::File, owner);
        object.judgement = acl.judge(who, &object);
        check(who, &object, rights).is_ok()
    }

    #[test]
    fn bytes_are_those_of_linux() {
        let acl = acl(&[entry(Tag::User, 6, ADA)], Some(5));
        acl.check().expect("in order");
        let bytes = acl.to_bytes();
        assert_eq!(bytes.len(), HEAD + 5 * ENTRY);
        assert_eq!(bytes[..20], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 0xe8, 3, 0, 0]);
        assert_eq!(Acl::parse(&bytes).expect("an ACL").as_ref(), Some(&acl));
        assert_eq!((acl.mode(), acl.is_mode()), (0o751, false));
        let mut stored = acl.to_stored().expect("not the mode alone");
        assert_eq!(stored[6], 0);
        restore_mode(&mut stored, 0o751);
        assert_eq!(stored, bytes);
        restore_mode(&mut stored, 0o4640);
        assert_eq!(Acl::parse(&stored).expect("an ACL").map(|acl| acl.mode()), Some(0o640));
    }

    #[test]
    fn impossible_acls_are_refused() {
        let named = acl(&[entry(Tag::User, 6, ADA)], None);
        assert!(named.check().is_err(), "a named user needs a mask");
        let mut doubled = acl(&[], None);
        doubled.check().expect("the mode alone");
        doubled.entries.push(entry(Tag::Other, 0, NO_ID));
        assert!(doubled.check().is_err());
        let mut rights = acl(&[], Some(7));
        rights.entries[0].rights = 8;
        assert!(rights.check().is_err());
        let whole = named.to_bytes();
        for length in 1..whole.len() {
            let is_whole = length >= HEAD && (length - HEAD).is_multiple_of(ENTRY);
            assert_eq!(Acl::parse(&whole[..length]).is_ok(), is_whole, "{length}");
        }
        assert!(matches!(Acl::parse(&[1, 0, 0, 0]), Err(Error::Unsupported(_))));
        assert!(matches!(Acl::parse(&[2, 0, 0, 0]), Ok(None)));
        assert!(Acl::parse(&[2, 0, 0, 0, 2, 0, 7, 0, 255, 255, 255, 255]).is_err(), "a user without id");
        assert!(Acl::parse(&[2, 0, 0, 0, 3, 0, 7, 0, 255, 255, 255, 255]).is_err(), "an unknown tag");
    }

    #[test]
    fn first_entry_that_applies_decides() {
        let (read, write, both) = (Rights::READ, Rights::WRITE, Rights::READ | Rights::WRITE);
        let ada = Credentials::new(ADA, ADA, &[TEAM, 1]);
        // The entry of the user decides, although a group of this user has more rights.
        let of_user = acl(&[entry(Tag::User, READ, ADA), entry(Tag::NamedGroup, 7, TEAM)], Some(7));
        assert!(may(&of_user, &ada, read) && !may(&of_user, &ada, write));
        // One group grants to read and another one to write, but none grants both.
        let of_groups = acl(&[entry(Tag::NamedGroup, WRITE, TEAM)], Some(7));
        assert!(may(&of_groups, &ada, read) && may(&of_groups, &ada, write) && !may(&of_groups, &ada, both));
        // A member of a group never gets rights from the entry of the others.
        assert!(!may(&of_groups, &ada, Rights::EXECUTE));
        let stranger = Credentials::new(5, 5, &[]);
        assert!(may(&of_groups, &stranger, Rights::EXECUTE) && !may(&of_groups, &stranger, read));
        // The mask limits the entries of named users and of groups, but not the entry of the others.
        let masked = acl(&[entry(Tag::User, 7, ADA), entry(Tag::NamedGroup, 7, TEAM)], Some(READ));
        assert!(may(&masked, &ada, read) && !may(&masked, &ada, write));
        let member = Credentials::new(5, TEAM, &[]);
        assert!(may(&masked, &member, read) && !may(&masked, &member, write));
        assert!(may(&masked, &stranger, Rights::EXECUTE));
        // The owner has the rights in the mode, and a capability overrides the ACL.
        assert!(may(&masked, &Credentials::new(1, 1, &[]), Rights::all()));
        let backup = stranger.with_capabilities(Capabilities::DAC_READ_SEARCH);
        assert!(may(&masked, &backup, read) && !may(&masked, &backup, write));
    }

    #[test]
    fn mode_limits_the_inherited_acl() {
        let acl = acl(&[entry(Tag::User, 7, ADA)], Some(6));
        assert_eq!(acl.inherited(0o666), 0o660);
        assert_eq!(acl.inherited(0o2755), 0o2741);
        assert_eq!(mode_with(0o4777, Some(&acl), false), 0o4761);
        assert_eq!((mode_with(0o2640, None, true), mode_with(0o2640, None, false)), (0o640, 0o2640));
        assert!(decides(0o010) && !decides(0o707));
    }
}
