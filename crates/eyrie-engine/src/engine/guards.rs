//! The attributes of an object that decide about permissions.

use super::Engine;
use crate::op::AclKind;
use crate::{InodeFlags, ObjectId, Owner, Result};

/// The attributes of an object that decide about permissions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredProtection {
    /// Owner and permissions.
    pub owner: Owner,
    /// Bytes of the access ACL, if the object has one.
    pub access_acl: Option<Vec<u8>>,
    /// True for a directory with a default ACL.
    pub has_default_acl: bool,
    /// The inode flags.
    pub flags: InodeFlags,
}

impl StoredProtection {
    /// Reads these attributes by other calls of the engine, for an engine without a quicker way.
    pub(super) fn read<E: Engine + ?Sized>(engine: &E, id: ObjectId) -> Result<StoredProtection> {
        let owner = engine.owner(id)?;
        let read = |kind: AclKind| -> Result<Option<Vec<u8>>> {
            let Some(size) = engine.xattr(id, kind.name(), &mut [])? else { return Ok(None) };
            let mut bytes = vec![0; size];
            engine.xattr(id, kind.name(), &mut bytes)?;
            Ok(Some(bytes))
        };
        let has_default_acl = read(AclKind::Default)?.is_some();
        let (access_acl, flags) = (read(AclKind::Access)?, engine.inode_flags(id)?);
        Ok(StoredProtection { owner, access_acl, has_default_acl, flags })
    }
}
