//! Changing extended attributes. A new block replaces the old one.

use std::collections::BTreeMap;

use eyrie_medium::rules::SafetyRule;
use zerocopy::IntoBytes;

use super::layout::{XattrBlockHead, XattrEntryHead, XattrSums};
use super::read::{self, XattrRoot};
use crate::object::pointer::Pointer;
use crate::op::{XATTR_SIZE_MAX, is_xattr_name};
use crate::transaction::Transaction;
use crate::{Error, Result, XattrMode};

/// Names and values of one object.
type XattrMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Prepares a new attribute, or a new value of an existing one. Returns the root to be published.
///
/// # Errors
/// `XattrName`, `XattrTooLarge`, `XattrsFull`, `NoSpace`, `Corrupt`, `Fault`. `Exists` or `NoXattr` if the
/// attribute violates `mode`.
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

/// Prepares the removal of an attribute. Returns the root to be published.
///
/// # Errors
/// `XattrName`, `NoXattr`, `NoSpace`, `Corrupt`, `Fault`.
pub fn remove(transaction: &mut Transaction<'_>, root: XattrRoot, name: &[u8]) -> Result<Pointer> {
    check_name(name)?;
    let mut attributes = all(transaction, root)?;
    attributes.remove(name).ok_or(Error::NoXattr)?;
    replace(transaction, root, &attributes)
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
    if let Some(old) = root.extent()? {
        transaction.retire(old);
    }
    if attributes.is_empty() {
        return Ok(Pointer::NULL);
    }
    let extent = transaction.allocate(block.len() as u64)?;
    transaction.precedes(SafetyRule::AttributesBeforeTheirPointer, extent.addr, block.len())?;
    transaction.write(extent.addr, &block)?;
    Ok(Pointer::leaf(extent))
}
