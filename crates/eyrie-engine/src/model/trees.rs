//! Trees with quotas in the model. The model has the project ids of objects, but no limits.

use super::state::ModelState;
use crate::quota::QUOTA_XATTR;
use crate::{Error, ObjectId, Result};

impl ModelState {
    /// Returns the project id that new objects in a directory inherit, or 0.
    pub(super) fn tree_of(&self, dir: ObjectId) -> Result<u32> {
        let has_quotas = self.object(self.root)?.xattrs.contains_key(QUOTA_XATTR);
        Ok(if has_quotas { self.object(dir)?.project } else { 0 })
    }

    /// Refuses to give an object a name in a directory of another tree.
    pub(super) fn check_tree(&self, dir: ObjectId, id: ObjectId) -> Result<()> {
        let tree = self.tree_of(dir)?;
        if tree == 0 || self.object(id)?.project == tree { Ok(()) } else { Err(Error::OtherTree) }
    }
}
