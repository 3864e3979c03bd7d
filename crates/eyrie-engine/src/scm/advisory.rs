//! Advisory locks on the objects of a volume: see [`advisory`](crate::advisory).
//!
//! A forked child uses no locks of its parent. The check of the medium refuses it before it takes the mutex
//! of the table, which a thread of the parent may hold.

use super::Scm;
use crate::advisory::{HeldLock, LockOwner, LockRequest, LockTable, LockWaiter, LockedObject};
use crate::{Engine, ObjectId, Result};

impl Scm {
    /// Returns the table of locks. A service locks for its clients.
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

    pub(super) fn try_advisory(
        &self,
        id: ObjectId,
        request: &LockRequest,
        waiter: Option<&LockWaiter>,
    ) -> Result<()> {
        self.advisory.try_lock(self.locked_object(id)?, request, waiter)
    }

    pub(super) fn find_advisory(&self, id: ObjectId, request: &LockRequest) -> Result<Option<HeldLock>> {
        Ok(self.advisory.find(self.locked_object(id)?, request))
    }

    pub(super) fn end_advisory_wait(&self, waiter: &LockWaiter) {
        if self.medium().check().is_ok() {
            self.advisory.end_wait(waiter);
        }
    }

    #[cold]
    pub(super) fn end_advisory(&self, id: ObjectId, owners: &[LockOwner]) {
        if self.medium().check().is_ok() {
            self.advisory.end(id, owners);
        }
    }
}
