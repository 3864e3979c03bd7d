//! The reference model: an engine of in-memory maps under one lock. Tests compare other engines with the
//! model. The model is so simple that its correctness is obvious.
//!
//! The model accepts ids that another engine has reserved. Therefore a test can apply the same [`Op`] to that
//! engine and to the model, and compare the results. Tests do not compare [`Attributes::allocated`], the
//! generation of a [`Birth`], [`Engine::directory_changes`], [`Engine::space`], and the cookies and the order
//! of [`Engine::list`]. The model counts the objects of each account with a quota, and enforces the limits on
//! this number. It counts no bytes, because storage depends on the engine. So tests do not compare the bytes
//! of [`Engine::quotas`] and the grace times of the limits on bytes. For [`Engine::version`], tests compare
//! only that the version of the other engine changes when the version of the model does. For
//! [`Engine::seek`], tests compare only the meaning: a hole must read as zeros. In the model, a 4 KiB page is
//! data if it was written, and if no truncation, punch, zeroing or collapse has removed it since then. A
//! clone gives its target the data pages and the holes of its source.
//!
//! If several errors apply to a change of one entry (`Create`, `Link`, `Unlink`, `RemoveDirectory`,
//! `Rename`), the model returns the first one in this order:
//!
//! 1. an id that is not a directory
//! 2. a bad name
//! 3. a stale directory
//! 4. a stale object
//! 5. a name that exists or is missing
//! 6. a removed directory (`NotFound`)
//! 7. a directory that would be moved below itself
//! 8. a wrong kind
//! 9. a directory that is not empty
//! 10. values out of range
//! 11. a limit of a quota
//!
//! A new name in another tree with a quota is refused between checks 9 and 10 (`OtherTree`). `Rename` makes
//! checks 1 to 3 for the source, and then for the target. This is the order of Linux, with one exception:
//! Linux reports a removed directory before it looks at names. The order of any other Op is that of the
//! checks in its function.
//!
//! Decisions that POSIX leaves open:
//!
//! - A file cannot replace a directory above it. The error is `IsDirectory` (Linux returns `ENOTEMPTY`).
//! - `SetSize` sets the times even if the size is unchanged. An empty `Write`, `Append` or `CloneRange` sets
//!   no times.
//! - An object without a name cannot get one, except a linkable file of `CreateUnnamed` that has never had a
//!   name. `Link` returns `NotFound` for any other object without a name.
//! - A `Batch` applies its parts in their order. The changes get the time of the batch, not the times of the
//!   parts.
//! - Only Ops on the bytes, the size or the storage of a file change its version.
//! - A removed directory that is still open is empty, has 0 links and has no parent. It refuses every `Batch`
//!   that has parts, even if the parts would have no effect.

mod acl;
mod apply;
mod batch;
mod data;
mod quotas;
mod ranges;
mod state;
#[cfg(test)]
mod tests;
mod xattr;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use eyrie_medium::sync::unpoisoned;

use self::state::{ModelBody, ModelDirectory, ModelState};
use crate::access::{self, AclKind};
use crate::advisory::{HeldLock, LockOwner, LockRequest, LockTable, LockWaiter, LockedObject};
use crate::engine::next_instance;
use crate::quota::QuotaReport;
use crate::{
    Applied, Attributes, Birth, Engine, InodeFlags, Kind, ListedEntry, ObjectId, Op, Owner, Result,
    SpaceUsage, Time, Version,
};

/// Total space that the model reports, in bytes.
const TOTAL_SPACE: u64 = 1 << 63;

/// The reference engine.
#[derive(Debug)]
pub struct Model {
    state: Mutex<ModelState>,
    instance: u32,
    advisory: LockTable,
}

impl Model {
    /// Makes an empty volume. `root` is the id of its root directory. A test usually passes the root of the
    /// engine that it compares with the model.
    ///
    /// # Panics
    /// If `root` is not the id of a directory.
    pub fn new(root: ObjectId, owner: Owner, time: Time) -> Model {
        assert!(root.is_directory(), "the root is a directory");
        let mut state = ModelState {
            root,
            objects: BTreeMap::new(),
            reserved: 0,
            created: 0,
            directory_changes: 0,
            limits: None,
        };
        state.insert(root, owner, ModelBody::Directory(ModelDirectory::new(root)), time);
        Model { state: Mutex::new(state), instance: next_instance(), advisory: LockTable::default() }
    }

    /// Makes an independent copy of the model in the same state. The copy has the same opens and no locks.
    #[must_use]
    pub fn fork(&self) -> Model {
        let state = Mutex::new(self.lock().clone());
        Model { state, instance: next_instance(), advisory: LockTable::default() }
    }

    /// Returns all live objects, in the order of their ids.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.lock().objects.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, ModelState> {
        unpoisoned(self.state.lock())
    }

    fn locked(&self, id: ObjectId) -> Result<LockedObject> {
        Ok(LockedObject { id, generation: self.lock().birth(id)?.generation })
    }
}

impl Engine for Model {
    fn root(&self) -> ObjectId {
        self.lock().root
    }

    fn instance(&self) -> u32 {
        self.instance
    }

    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        self.lock().entry(dir, name)
    }

    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        self.lock().attributes(id)
    }

    fn inode_flags(&self, id: ObjectId) -> Result<InodeFlags> {
        Ok(self.lock().object(id)?.flags)
    }

    fn project(&self, id: ObjectId) -> Result<u32> {
        Ok(self.lock().object(id)?.project)
    }

    fn birth(&self, id: ObjectId) -> Result<Birth> {
        self.lock().birth(id)
    }

    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        Ok(self.lock().data(id)?.read(offset, out))
    }

    fn version(&self, id: ObjectId) -> Result<Version> {
        self.lock().version(id)
    }

    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        let state = self.lock();
        let data = state.data(id)?;
        Ok(if hole { data.next_hole(offset) } else { data.next_data(offset) })
    }

    fn has_storage(&self, id: ObjectId) -> Result<bool> {
        Ok(self.lock().data(id)?.has_storage())
    }

    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let state = self.lock();
        let object = state.object(id)?;
        let Some(value) = object.xattrs.get(name) else { return Ok(None) };
        if let Some(out) = out.get_mut(..value.len()) {
            out.copy_from_slice(value);
            if AclKind::of_name(name) == Some(AclKind::Access) {
                access::restore_mode(out, object.owner.mode);
            }
        }
        Ok(Some(value.len()))
    }

    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.lock().object(id)?.xattrs.keys().for_each(|name| visit(name));
        Ok(())
    }

    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()> {
        // The loop uses a copy of the directory, so that `visit` may call the model.
        let directory = self.lock().directory(dir)?.clone();
        for (cookie, name, id) in directory.entries_from(cookie) {
            if !visit(ListedEntry { name, id, next: cookie + 1 }) {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, id: ObjectId) -> Result<()> {
        self.lock().object_mut(id)?.opens += 1;
        Ok(())
    }

    fn close(&self, id: ObjectId) {
        let mut state = self.lock();
        match state.objects.get_mut(&id) {
            Some(object) if object.opens > 0 => object.opens -= 1,
            _ => debug_assert!(false, "close without open of {id:?}"),
        }
        state.drop_if_unreachable(id);
        // A removal begins no grace time, so the time has no meaning.
        state.update_deadlines(Time::default());
    }

    fn may_have_locks(&self) -> bool {
        !self.advisory.is_empty()
    }

    fn try_lock(&self, id: ObjectId, request: &LockRequest, waiter: Option<&LockWaiter>) -> Result<()> {
        self.advisory.try_lock(self.locked(id)?, request, waiter)
    }

    fn end_wait(&self, waiter: &LockWaiter) {
        self.advisory.end_wait(waiter);
    }

    fn find_lock(&self, id: ObjectId, request: &LockRequest) -> Result<Option<HeldLock>> {
        Ok(self.advisory.find(self.locked(id)?, request))
    }

    fn end_locks(&self, id: ObjectId, _generation: u64, owners: &[LockOwner]) {
        self.advisory.end(id, owners);
    }

    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        Ok(self.lock().reserve(kind))
    }

    fn unreserve(&self, _id: ObjectId) {}

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        self.lock().apply_within_limits(op)
    }

    fn apply_above_limits(&self, op: &Op<'_>) -> Result<Applied> {
        self.lock().apply_above_limits(op)
    }

    fn quotas(&self) -> Result<Option<Vec<QuotaReport>>> {
        Ok(self.lock().quota_reports())
    }

    fn directory_changes(&self) -> u64 {
        self.lock().directory_changes
    }

    fn wait_for(&self, _id: ObjectId) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn space(&self) -> SpaceUsage {
        let state = self.lock();
        let used: u64 = state
            .objects
            .values()
            .map(|object| if let ModelBody::Data(data) = &object.body { data.allocated() } else { 0 })
            .sum();
        SpaceUsage { total: TOTAL_SPACE, free: TOTAL_SPACE - used, objects: state.objects.len() as u64 }
    }
}
