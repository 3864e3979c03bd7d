//! Checks the fields of an object that no other part of the volume repeats.
//!
//! Each field must have a value that a call could have stored, because readers pass the value on unchecked.
//! Fields in which every value is possible are not checked: user and group ids, seconds, versions,
//! `times_version`, `follows`, `sealed`.

use std::mem::offset_of;

use eyrie_medium::epoch::pin;

use crate::access::{self, AclKind};
use crate::object::header::{Cold, Header, Hot, Identity};
use crate::object::mfile::{self, FileTree};
use crate::object::xattr::{self, XattrRoot};
use crate::op::{CAPABILITY_XATTR, DEVICE_MAX, TARGET_MAX, is_xattr_name};
use crate::quota::{QUOTA_XATTR, QuotaTable};
use crate::tables::layout::{VOLUME_PAGE, VolumePage};
use crate::volume::Volume;
use crate::{Error, Kind, ObjectId, Result, Time};

/// True if the nanoseconds of a time are below one second.
pub(super) fn is_possible(time: Time) -> bool {
    time.nanoseconds < Time::NANOSECONDS
}

/// Checks the fields of the object `id`. The caller has found its storage sound.
///
/// # Errors
/// `Corrupt` at the first impossible field. `Fault` if the object cannot be read.
pub(super) fn check(volume: &Volume, id: ObjectId) -> Result<()> {
    let _pin = pin();
    let medium = volume.medium();
    let header = Header::of(id);
    let identity = header.identity(medium)?;
    let (hot, cold) = header.hot_and_cold(medium)?;
    let limit = medium.load(VOLUME_PAGE.add(offset_of!(VolumePage, generation_limit) as u64))?;
    let found = of_identity(&identity, limit).or_else(|| of_attributes(id, &hot, &cold));
    if let Some(what) = found {
        return Err(Error::corrupt(header.addr(), what));
    }
    let (mut found_acls, mut has_capability) = (0, false);
    xattr::visit(medium, XattrRoot::of(header, &cold), &mut |name, _| {
        found_acls |= AclKind::of_name(name).map_or(0, Cold::flag_of);
        has_capability |= name == CAPABILITY_XATTR;
        match is_xattr_name(name) {
            true => Ok(()),
            false => Err(Error::corrupt(header.addr(), "extended attribute whose name has a zero byte")),
        }
    })?;
    acls(volume, header, &cold, found_acls)?;
    capability(volume, header, &cold, has_capability)?;
    quotas(volume, id, &cold)?;
    if !cold.inode_flags().is_empty() && !volume.has_flags() {
        let what = "inode flags in a volume whose superblock does not name the feature of inode flags";
        return Err(Error::corrupt(header.addr(), what));
    }
    if hot.root.is_preallocated() && id.kind() == Kind::File && !volume.has_preallocation() {
        let what = "storage past the end of a file in a volume whose superblock does not name this feature";
        return Err(Error::corrupt(header.addr(), what));
    }
    if id.kind() == Kind::Symlink { target(volume, header, &hot) } else { Ok(()) }
}

/// Checks the ACLs of an object. `found` has the flags of the ACLs among its extended attributes.
fn acls(volume: &Volume, header: Header, cold: &Cold, found: u16) -> Result<()> {
    let corrupt = |what| Err(Error::corrupt(header.addr(), what));
    if cold.flags & (Cold::ACCESS_ACL | Cold::DEFAULT_ACL) != found {
        return corrupt("flags of an object that contradict its ACLs");
    }
    if found != 0 && !volume.has_acls() {
        return corrupt("ACL in a volume whose superblock does not name the feature of ACLs");
    }
    for kind in AclKind::ALL {
        let bytes = xattr::value(volume.medium(), XattrRoot::of(header, cold), kind.name())?;
        let Some(bytes) = bytes else { continue };
        let acl = access::acl_of_op(header.kind(), kind, &bytes).ok().flatten();
        // A stored access ACL has zeros in place of the rights that the mode has.
        let is_sound = acl.is_some_and(|acl| kind == AclKind::Default || acl.to_stored() == Some(bytes));
        if !is_sound {
            return corrupt("impossible ACL");
        }
    }
    Ok(())
}

/// Checks the `security.capability` of an object. `found` is true if it is among the extended attributes.
fn capability(volume: &Volume, header: Header, cold: &Cold, found: bool) -> Result<()> {
    let corrupt = |what| Err(Error::corrupt(header.addr(), what));
    if (cold.flags & Cold::CAPABILITY != 0) != found {
        return corrupt("flag of an object that contradicts its extended attribute security.capability");
    }
    if !found {
        return Ok(());
    }
    if !volume.has_capabilities() {
        return corrupt("security.capability in a volume whose superblock does not name this feature");
    }
    let value = xattr::value(volume.medium(), XattrRoot::of(header, cold), CAPABILITY_XATTR)?;
    match value.is_some_and(|value| access::check_stored_capability(&value).is_ok()) {
        true => Ok(()),
        false => corrupt("impossible value of security.capability"),
    }
}

/// Checks the project id of an object, and the limits that the root directory holds.
fn quotas(volume: &Volume, id: ObjectId, cold: &Cold) -> Result<()> {
    let corrupt = |what| Err(Error::corrupt(Header::of(id).addr(), what));
    if !volume.has_quota_feature() {
        let what = "project id in a volume whose superblock does not name the feature of quotas";
        return if cold.project == 0 { Ok(()) } else { corrupt(what) };
    }
    if volume.root() != Some(id) {
        return Ok(());
    }
    let value = xattr::value(volume.medium(), XattrRoot::of(Header::of(id), cold), QUOTA_XATTR)?;
    match value.is_none_or(|value| QuotaTable::decode(&value).is_ok()) {
        true => Ok(()),
        false => corrupt("impossible table of quotas"),
    }
}

fn of_identity(identity: &Identity, generation_limit: u64) -> Option<&'static str> {
    let created = Time::new(identity.created_seconds, identity.created_nanoseconds);
    if identity.reserved_flags != [0; 3] || identity.reserved != [0; 4] {
        Some("reserved bytes of an object header are not zero")
    } else if identity.realm != 0 {
        Some("object of an unknown realm")
    } else if identity.generation >= generation_limit {
        Some("generation that was never assigned")
    } else if !is_possible(created) {
        Some("creation time with a billion nanoseconds or more")
    } else {
        None
    }
}

fn of_attributes(id: ObjectId, hot: &Hot, cold: &Cold) -> Option<&'static str> {
    let kind = id.kind();
    let flags = Cold::ACCESS_ACL
        | Cold::CAPABILITY
        | match kind {
            Kind::File => Cold::SPARSE | Cold::INODE_FLAGS,
            Kind::Directory => Cold::DEFAULT_ACL | Cold::INODE_FLAGS,
            _ => 0,
        };
    if !is_possible(hot.modified) {
        Some("modification time with a billion nanoseconds or more")
    } else if !is_possible(cold.accessed()) {
        Some("access time with a billion nanoseconds or more")
    } else if !hot.selector.follows() && !is_possible(cold.changed()) {
        Some("change time with a billion nanoseconds or more")
    } else if cold.mode > 0o7777 {
        Some("impossible permission bits")
    } else if cold.flags & !flags != 0 {
        Some("impossible flags")
    } else if kind == Kind::Directory && cold.links != 1 {
        Some("directory with a link count other than 1")
    } else if matches!(kind, Kind::CharDevice | Kind::BlockDevice) && cold.parent_or_device > DEVICE_MAX {
        Some("device number of more than 32 bits")
    } else if !kind.has_data() && hot.size != 0 {
        Some("size of an object that has no bytes")
    } else {
        None
    }
}

/// Checks the target of a symbolic link: 1 to 4095 bytes, none of them zero.
fn target(volume: &Volume, header: Header, hot: &Hot) -> Result<()> {
    let corrupt = |what| Err(Error::corrupt(header.addr(), what));
    if hot.size == 0 || hot.size > TARGET_MAX as u64 {
        return corrupt("symbolic link with a target of an impossible length");
    }
    if hot.root.is_preallocated() {
        return corrupt("symbolic link with storage past the end of its target");
    }
    let mut target = [0; TARGET_MAX];
    let target = &mut target[..hot.size as usize];
    let count = mfile::read(volume.medium(), FileTree::of(header, hot), 0, target)?;
    if target[..count].contains(&0) || count < target.len() {
        return corrupt("symbolic link whose target has a zero byte");
    }
    Ok(())
}
