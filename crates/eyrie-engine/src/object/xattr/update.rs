//! Changing extended attributes: a new block takes the place of the old one.

use std::collections::BTreeMap;

use eyrie_medium::rules::SafetyRule;
use zerocopy::IntoBytes;

use super::layout::{BlockHead, EntryHead, Sums};
use super::read;
use crate::object::pointer::Pointer;
use crate::op::{XATTR_SIZE_MAX, is_xattr_name};
use crate::transaction::Transaction;
use crate::{Error, Result, XattrMode};

/// Names and values.
type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// Prepares an attribute that is new, or has a new value; the root to be published.
///
/// # Errors
/// `XattrName`, `XattrTooLarge`, `XattrsFull`; `Exists` or `NoXattr`, as `mode` has it; `NoSpace`, `Corrupt`, `Fault`.
pub fn set(
    transaction: &mut Transaction<'_>,
    root: Pointer,
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

/// Prepares the removal of an attribute; the root to be published.
///
/// # Errors
/// `XattrName`, `NoXattr`, `NoSpace`, `Corrupt`, `Fault`.
pub fn remove(transaction: &mut Transaction<'_>, root: Pointer, name: &[u8]) -> Result<Pointer> {
    check_name(name)?;
    let mut attributes = all(transaction, root)?;
    attributes.remove(name).ok_or(Error::NoXattr)?;
    replace(transaction, root, &attributes)
}

fn check_name(name: &[u8]) -> Result<()> {
    if is_xattr_name(name) { Ok(()) } else { Err(Error::XattrName) }
}

fn all(transaction: &Transaction<'_>, root: Pointer) -> Result<Attributes> {
    let medium = transaction.medium();
    let mut attributes = Attributes::new();
    read::visit(medium, root, &mut |name, value| {
        let mut bytes = vec![0; value.bytes];
        medium.read(value.addr, &mut bytes)?;
        attributes.insert(name.to_vec(), bytes);
        Ok(())
    })?;
    Ok(attributes)
}

/// Writes the block of `attributes`, and retires that of `root`.
fn replace(transaction: &mut Transaction<'_>, root: Pointer, attributes: &Attributes) -> Result<Pointer> {
    let mut block = vec![0; size_of::<BlockHead>()];
    let mut sums = Sums::default();
    for (name, value) in attributes {
        if !sums.add(name.len(), value.len()) {
            return Err(Error::XattrsFull);
        }
        let head =
            EntryHead { value_bytes: (value.len() as u32).into(), name_bytes: (name.len() as u16).into() };
        block.extend_from_slice(head.as_bytes());
        block.extend_from_slice(name);
        block.extend_from_slice(value);
    }
    let head = BlockHead { bytes: (block.len() as u32).into(), count: (attributes.len() as u32).into() };
    block[..size_of::<BlockHead>()].copy_from_slice(head.as_bytes());
    if let Some(old) = read::extent(root)? {
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
