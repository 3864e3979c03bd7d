//! ACLs of the model.

use super::state::{ModelState, ModelXattrs};
use super::xattr::check_xattr_room;
use crate::access::{self, Acl, AclKind};
use crate::{Error, Kind, ObjectId, Owner, Result, Time};

impl ModelState {
    /// Returns the owner and the ACLs of a new object.
    pub(super) fn inherited(&self, dir: ObjectId, kind: Kind, owner: Owner) -> Result<(Owner, ModelXattrs)> {
        let (default, mut xattrs) = (AclKind::Default.name(), ModelXattrs::new());
        let acl = self.object(dir)?.xattrs.get(default);
        if acl.is_none() && owner.mode & Owner::INHERITS != 0 {
            return Err(Error::Stale);
        }
        let mut owner = Owner { mode: owner.mode & !Owner::INHERITS, ..owner };
        let Some(bytes) = acl.filter(|_| kind != Kind::Symlink) else { return Ok((owner, xattrs)) };
        if let Some(acl) = Acl::parse(bytes)? {
            owner.mode = acl.inherited(owner.mode);
            xattrs.extend(acl.to_stored().map(|acl| (AclKind::Access.name().to_vec(), acl)));
        }
        if kind == Kind::Directory {
            xattrs.insert(default.to_vec(), bytes.clone());
        }
        Ok((owner, xattrs))
    }

    pub(super) fn set_acl(
        &mut self,
        id: ObjectId,
        kind: AclKind,
        bytes: &[u8],
        drops_set_gid: bool,
        time: Time,
    ) -> Result<()> {
        let object = self.object_mut(id)?;
        let acl = access::acl_of_op(id.kind(), kind, bytes)?;
        let mut owner = object.owner;
        let stored = match kind {
            AclKind::Access => {
                owner.mode = access::mode_with(owner.mode, acl.as_ref(), drops_set_gid);
                acl.and_then(|acl| acl.to_stored())
            }
            AclKind::Default => acl.map(|acl| acl.to_bytes()),
        };
        let mut xattrs = object.xattrs.clone();
        xattrs.remove(kind.name());
        if let Some(stored) = stored {
            check_xattr_room(&xattrs, kind.name(), &stored)?;
            xattrs.insert(kind.name().to_vec(), stored);
        }
        (object.owner, object.xattrs, object.changed) = (owner, xattrs, time);
        self.directory_changes += u64::from(id.is_directory());
        Ok(())
    }
}
