//! Changing extended attributes. A new block replaces the old one.

use std::collections::BTreeMap;

use eyrie_medium::rules::SafetyRule;
use zerocopy::IntoBytes;

use super::layout::{XattrBlockHead, XattrEntryHead, XattrSums};
use super::read::{self, XattrRoot};
use crate::object::header::{Cold, Header};
use crate::object::pointer::Pointer;
use crate::op::{AclKind, CAPABILITY_XATTR, XATTR_SIZE_MAX, is_xattr_name};
use crate::transaction::Transaction;
use crate::{Error, Result, XattrMode};

/// Names and values of one object.
type XattrMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Refuses impossible names, and the names of ACLs, which have an Op of their own.
///
/// # Errors
/// `XattrName`, `Invalid`.
pub fn check_no_acl(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if AclKind::of_name(name).is_none() {
        Ok(())
    } else {
        Err(Error::Invalid("an ACL must be changed with the calls for ACLs"))
    }
}

/// Prepares a new attribute, or a new value of an existing one. Returns the pointer to the new block, which
/// the caller publishes in the cold attributes.
///
/// # Errors
/// `XattrName`, `XattrTooLarge`, `XattrsFull`, `NoSpace`, `Corrupt`, `Fault`. `Exists` if `mode` requires a
/// new attribute, and `NoXattr` if `mode` requires an existing one.
pub fn set(
    transaction: &mut Transaction<'_>,
    root: XattrRoot,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Result<Pointer> {
    check_name(name)?;
    if value.len() > XATTR_SIZE_MAX {
        return Err(Error::XattrTooLarge);
    }
    let mut attributes = all(transaction, root)?;
    match (mode, attributes.contains_key(name)) {
        (XattrMode::Create, true) => return Err(Error::Exists),
        (XattrMode::Replace, false) => return Err(Error::NoXattr),
        _ => attributes.insert(name.to_vec(), value.to_vec()),
    };
    replace(transaction, root, &attributes)
}

/// Prepares the removal of an attribute. Returns the pointer to the new block, or null if no attribute is
/// left. The caller publishes the pointer in the cold attributes.
///
/// # Errors
/// `XattrName`, `NoXattr`, `NoSpace`, `Corrupt`, `Fault`.
pub fn remove(transaction: &mut Transaction<'_>, root: XattrRoot, name: &[u8]) -> Result<Pointer> {
    check_name(name)?;
    let mut attributes = all(transaction, root)?;
    attributes.remove(name).ok_or(Error::NoXattr)?;
    replace(transaction, root, &attributes)
}

/// Prepares the removal of `security.capability`, if the object has it. The caller commits `cold`.
///
/// # Errors
/// Those of [`remove`].
pub fn drop_capability(transaction: &mut Transaction<'_>, header: Header, cold: &mut Cold) -> Result<()> {
    if cold.flags & Cold::CAPABILITY != 0 {
        cold.xattr_root = remove(transaction, XattrRoot::of(header, cold), CAPABILITY_XATTR)?.raw();
        cold.flags &= !Cold::CAPABILITY;
    }
    Ok(())
}

/// Prepares the first attributes of a new object. The attributes may be in any order. Returns the pointer to
/// their block, or null if there are none.
///
/// # Errors
/// `XattrsFull`, `NoSpace`, `Fault`.
pub fn first(transaction: &mut Transaction<'_>, attributes: &[(&[u8], &[u8])]) -> Result<Pointer> {
    let owned = attributes.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    write(transaction, &owned)
}

fn check_name(name: &[u8]) -> Result<()> {
    if is_xattr_name(name) { Ok(()) } else { Err(Error::XattrName) }
}

fn all(transaction: &Transaction<'_>, root: XattrRoot) -> Result<XattrMap> {
    let medium = transaction.medium();
    let mut attributes = XattrMap::new();
    read::visit(medium, root, &mut |name, value| {
        let mut bytes = vec![0; value.bytes];
        medium.read(value.addr, &mut bytes)?;
        attributes.insert(name.to_vec(), bytes);
        Ok(())
    })?;
    Ok(attributes)
}

/// Retires the block of `root`, and writes a block with `attributes`. Returns null if there are no
/// attributes.
fn replace(transaction: &mut Transaction<'_>, root: XattrRoot, attributes: &XattrMap) -> Result<Pointer> {
    let old = root.extent()?;
    let new = write(transaction, attributes)?;
    if let Some(old) = old {
        transaction.retire(old);
    }
    Ok(new)
}

/// Writes a block with `attributes`. Returns null if there are none.
fn write(transaction: &mut Transaction<'_>, attributes: &XattrMap) -> Result<Pointer> {
    let mut block = vec![0; size_of::<XattrBlockHead>()];
    let mut sums = XattrSums::default();
    for (name, value) in attributes {
        if !sums.add(name.len(), value.len()) {
            return Err(Error::XattrsFull);
        }
        let head = XattrEntryHead {
            value_bytes: (value.len() as u32).into(),
            name_bytes: (name.len() as u16).into(),
        };
        block.extend_from_slice(head.as_bytes());
        block.extend_from_slice(name);
        block.extend_from_slice(value);
    }
    let head = XattrBlockHead { bytes: (block.len() as u32).into(), count: (attributes.len() as u32).into() };
    block[..size_of::<XattrBlockHead>()].copy_from_slice(head.as_bytes());
    if attributes.is_empty() {
        return Ok(Pointer::NULL);
    }
    let extent = transaction.allocate(block.len() as u64)?;
    transaction.precedes(SafetyRule::AttributesBeforeTheirPointer, extent.addr, block.len())?;
    transaction.write(extent.addr, &block)?;
    Ok(Pointer::leaf(extent))
}
