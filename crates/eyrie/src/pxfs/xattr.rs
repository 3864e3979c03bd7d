//! Extended attributes.

use eyrie_engine::access::AclKind;
use eyrie_engine::op::{CAPABILITY_XATTR, XATTR_NAME_MAX, XATTR_SIZE_MAX};
use eyrie_engine::{Engine, ObjectId, Op, XattrMode, access};

use super::{AsUser, CallResult};
use crate::Errno;

/// Checks the rules for every name of an extended attribute. Linux makes this check before it resolves the
/// path, so an error of the name comes first.
pub(super) fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name.len() {
        1..=XATTR_NAME_MAX if name.contains(&0) => Err(Errno::INVAL),
        1..=XATTR_NAME_MAX => Ok(()),
        _ => Err(Errno::RANGE),
    }
}

/// Checks the rules for every value of an extended attribute. This check also comes before the path is
/// resolved.
pub(super) fn check_value(value: &[u8]) -> Result<(), Errno> {
    if value.len() > XATTR_SIZE_MAX { Err(Errno::TOOBIG) } else { Ok(()) }
}

/// Fails with `ERANGE` if `size` bytes do not fit into `out`. An empty `out` means that the caller reads only
/// the size, so this check then succeeds.
fn fitting(size: usize, out: &[u8]) -> CallResult<usize> {
    if out.is_empty() || size <= out.len() { Ok(size) } else { Err(Errno::RANGE.into()) }
}

impl<E: Engine> AsUser<'_, E> {
    pub(super) fn get_xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> CallResult<usize> {
        access::check_get_xattr(self.credentials(), &self.protection(id)?, name)?;
        fitting(self.engine().xattr(id, name, out)?.ok_or(Errno::NODATA)?, out)
    }

    pub(super) fn list_xattrs(&self, id: ObjectId, out: &mut [u8]) -> CallResult<usize> {
        let mut size = 0;
        self.engine().xattr_names(id, &mut |name| {
            if !access::lists_xattr(self.credentials(), name) {
                return;
            }
            let end = size + name.len() + 1;
            if let Some(place) = out.get_mut(size..end) {
                place[..name.len()].copy_from_slice(name);
                place[name.len()] = 0;
            }
            size = end;
        })?;
        fitting(size, out)
    }

    pub(super) fn set_xattr(
        &self,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> CallResult<()> {
        if let Some(kind) = AclKind::of_name(name) {
            return self.set_acl(id, kind, value);
        }
        let stored = if name == CAPABILITY_XATTR { Some(access::stored_capability(value)?) } else { None };
        let value = stored.as_deref().unwrap_or(value);
        access::check_set_xattr(self.credentials(), &self.protection(id)?, name)?;
        self.apply(&Op::SetXattr { id, name, value, mode, time: self.now([id]) })?;
        Ok(())
    }

    pub(super) fn remove_xattr(&self, id: ObjectId, name: &[u8]) -> CallResult<()> {
        if let Some(kind) = AclKind::of_name(name) {
            return self.set_acl(id, kind, &[]);
        }
        access::check_set_xattr(self.credentials(), &self.protection(id)?, name)?;
        self.apply(&Op::RemoveXattr { id, name, time: self.now([id]) })?;
        Ok(())
    }

    /// Sets an ACL, or removes it if `bytes` hold no entry. As on Linux, the removal of an ACL that the
    /// object does not have succeeds.
    fn set_acl(&self, id: ObjectId, kind: AclKind, bytes: &[u8]) -> CallResult<()> {
        let object = self.protection(id)?;
        let acl = access::check_set_acl(self.credentials(), &object, kind, bytes)?;
        if acl.is_none() && kind == AclKind::Default && !id.is_directory() {
            return Ok(());
        }
        let drops_set_gid = kind == AclKind::Access && access::acl_drops_set_gid(self.credentials(), &object);
        self.apply(&Op::SetAcl { id, kind, acl: bytes, drops_set_gid, time: self.now([id]) })?;
        Ok(())
    }
}
