//! Advisory locks on nodes. A front-end names the owners of locks, and repeats refused requests by itself.

use eyrie_engine::Engine;
use eyrie_engine::ObjectId;
use eyrie_engine::advisory::{HeldLock, LockOwner, LockRequest, LockWaiter};
use eyrie_medium::epoch;

use super::Nodes;
use crate::Result;

impl<E: Engine> Nodes<E> {
    /// Locks or unlocks a node, or refuses at once. A caller that waits must pass a `waiter`, so that
    /// deadlocks are found, and must repeat the request at least twice a second. The owner must have session
    /// 0, as [`LockOwner::local`] makes it.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId) -> Result<()> {
    /// let owner = LockOwner::local(OwnerClass::OpenFile, LockOwner::number_in_mount(0));
    /// let request = LockRequest { owner, target: LockTarget::Object, kind: Some(LockKind::Shared) };
    /// nodes.try_lock(egg, &request, None)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EAGAIN` if another lock conflicts. The other errors are those of
    /// [`PosixLocks`](crate::PosixLocks::set_range_lock).
    pub fn try_lock(&self, id: ObjectId, request: &LockRequest, waiter: Option<&LockWaiter>) -> Result<()> {
        self.call(self.files.credentials(), "lock", [id], |user| {
            Ok(user.engine().try_lock(id, request, waiter)?)
        })
    }

    /// Ends the wait of a caller that gives up. A request that was granted needs no such call.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, waiter: &LockWaiter) {
    /// nodes.end_wait(waiter);
    /// # }
    /// ```
    pub fn end_wait(&self, waiter: &LockWaiter) {
        let _pin = epoch::pin();
        self.engine().end_wait(waiter);
    }

    /// Returns the first lock of another owner that conflicts with a request for a range.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId, request: &LockRequest) -> Result<()> {
    /// let process = nodes.find_lock(egg, request)?.and_then(|held| held.owner.process());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ESTALE`, `EIO`.
    pub fn find_lock(&self, id: ObjectId, request: &LockRequest) -> Result<Option<HeldLock>> {
        self.call(self.files.credentials(), "lock", [id], |user| Ok(user.engine().find_lock(id, request)?))
    }

    /// Ends all locks of these owners, which must be at most two, on a node. Does nothing if the node is
    /// gone.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId, owner: LockOwner) {
    /// nodes.end_locks(egg, &[owner]);
    /// # }
    /// ```
    pub fn end_locks(&self, id: ObjectId, owners: &[LockOwner]) {
        let _pin = epoch::pin();
        if let Ok(birth) = self.engine().birth(id) {
            self.engine().end_locks(id, birth.generation, owners);
        }
    }
}
