//! Extended attributes of the model.

use super::state::{ModelState, ModelXattrs};
use crate::access::AclKind;
use crate::op::{CAPABILITY_XATTR, XATTR_LIST_MAX, XATTR_SIZE_MAX, is_xattr_name};
use crate::quota::{QUOTA_XATTR, QuotaTable};
use crate::{Error, ObjectId, Result, Time, XattrMode, access};

impl ModelState {
    pub(super) fn set_xattr(
        &mut self,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        time: Time,
    ) -> Result<()> {
        let root = self.root;
        let object = self.object_mut(id)?;
        check_xattr_name(name)?;
        if name == CAPABILITY_XATTR {
            access::check_stored_capability(value)?;
        }
        let is_limits = name == QUOTA_XATTR && id == root;
        let limits = is_limits.then(|| QuotaTable::decode(value)).transpose()?;
        if value.len() > XATTR_SIZE_MAX {
            return Err(Error::XattrTooLarge);
        }
        match (mode, object.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoXattr),
            _ => {}
        }
        check_xattr_room(&object.xattrs, name, value)?;
        object.xattrs.insert(name.to_vec(), value.to_vec());
        object.changed = time;
        if is_limits {
            self.set_limits(limits);
        }
        Ok(())
    }

    pub(super) fn remove_xattr(&mut self, id: ObjectId, name: &[u8], time: Time) -> Result<()> {
        let object = self.object_mut(id)?;
        check_xattr_name(name)?;
        object.xattrs.remove(name).ok_or(Error::NoXattr)?;
        object.changed = time;
        if name == QUOTA_XATTR && id == self.root {
            self.set_limits(None);
        }
        Ok(())
    }
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    match AclKind::of_name(name) {
        None if is_xattr_name(name) => Ok(()),
        None => Err(Error::XattrName),
        Some(_) => Err(Error::Invalid("an ACL must be changed with the calls for ACLs")),
    }
}

/// Checks that an object with these extended attributes has room for `value` under `name`: as a new
/// attribute, or in place of the value that `name` has.
pub(super) fn check_xattr_room(xattrs: &ModelXattrs, name: &[u8], value: &[u8]) -> Result<()> {
    let others = || xattrs.iter().filter(|(other, _)| *other != name);
    let names: usize = others().map(|(name, _)| name.len() + 1).sum();
    let values: usize = others().map(|(_, value)| value.len()).sum();
    if names + name.len() + 1 > XATTR_LIST_MAX || values + value.len() > XATTR_SIZE_MAX {
        return Err(Error::XattrsFull);
    }
    Ok(())
}
