//! Advisory locks on the objects of a volume: see [`advisory`](crate::advisory).
//!
//! A forked child uses no locks of its parent. The check of the medium refuses the child before the child
//! takes the mutex of the table, which a thread of the parent may hold.

use super::Scm;
use crate::advisory::{LockTable, LockedObject};
use crate::{Engine, ObjectId, Result};

impl Scm {
    /// Returns the table of locks. A service takes locks in it for its clients.
    pub fn lock_table(&self) -> &LockTable {
        &self.advisory
    }

    /// Returns an object with its generation, for the table of locks.
    ///
    /// # Errors
    /// As [`Engine::birth`].
    pub fn locked_object(&self, id: ObjectId) -> Result<LockedObject> {
        let _pin = eyrie_medium::epoch::pin();
        Ok(LockedObject { id, generation: self.birth(id)?.generation })
    }
}
