//! The calls of the trait [`Engine`]. Most calls delegate to the module of `scm` that does the work.

use std::cell::Cell;

use eyrie_medium::Addr;
use eyrie_medium::epoch::{Guard, pin};

use super::Scm;
use super::create::Creation;
use super::quotas::without_limits;
use super::remove::RemovedAs;
use super::rename::MoveRequest;
use super::write::Touch;
use crate::advisory::{HeldLock, LockOwner, LockRequest, LockWaiter};
use crate::notices::may_have_changed;
use crate::object::header::Header;
use crate::quota::{QuotaId, QuotaReport};
use crate::{
    Applied, Attributes, Engine, Error, FileView, Kind, ListedEntry, Notice, ObjectId, Op, Owner, Result,
    SpaceUsage, StoredProtection, Version, Watcher,
};

impl Engine for Scm {
    crate::delegate_reads!(reading_object, reading_object);

    #[inline]
    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        self.reading(|view| view.read_lookup(dir, name))
    }

    fn owner(&self, id: ObjectId) -> Result<Owner> {
        self.reading(|view| view.read_owner(id))
    }

    fn guards(&self, id: ObjectId) -> Result<StoredProtection> {
        self.reading(|view| view.read_guards(id))
    }

    fn root(&self) -> ObjectId {
        self.root
    }

    #[inline]
    fn instance(&self) -> u32 {
        self.instance
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        self.read_only
    }

    #[inline]
    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        self.sound(self.read_attributes(id))
    }

    #[inline]
    fn view<'a>(&'a self, id: ObjectId, range: (u64, u64), guard: &'a Guard) -> Result<Option<FileView<'a>>> {
        self.sound(self.volume.read_view(id, range, self.read_only, guard))
    }

    fn seal(&self, id: ObjectId) -> Result<()> {
        self.medium().check()?;
        self.sound(self.seal_file(id))
    }

    #[inline]
    fn version(&self, id: ObjectId) -> Result<Version> {
        self.sound(self.read_version(id))
    }

    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.sound(self.volume.read_xattr_names(id, visit))
    }

    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()> {
        self.sound(self.volume.read_list(dir, cookie, visit))
    }

    #[inline]
    fn prefetch_object(&self, id: ObjectId) {
        self.medium().prefetch(Header::of(id).hot_line());
    }

    #[inline]
    fn prefetch_bytes(&self, id: ObjectId) {
        self.volume.prefetch_data(id);
    }

    #[inline]
    fn open(&self, id: ObjectId) -> Result<()> {
        self.open_object(id)
    }

    #[inline]
    fn close(&self, id: ObjectId) {
        self.close_object(id);
    }

    fn hold(&self, id: ObjectId) -> Result<()> {
        self.hold_object(id)
    }

    fn release(&self, id: ObjectId, count: u64) {
        self.release_object(id, count);
    }

    #[inline]
    fn may_have_flags(&self) -> bool {
        self.volume.board().has_flags()
    }

    fn may_share_extents(&self) -> bool {
        self.volume.has_shared_extents()
    }

    #[inline]
    fn may_have_locks(&self) -> bool {
        !self.advisory.is_empty()
    }

    fn try_lock(&self, id: ObjectId, request: &LockRequest, waiter: Option<&LockWaiter>) -> Result<()> {
        self.advisory.try_lock(self.locked_object(id)?, request, waiter)
    }

    fn end_wait(&self, waiter: &LockWaiter) {
        if self.medium().check().is_ok() {
            self.advisory.end_wait(waiter);
        }
    }

    fn find_lock(&self, id: ObjectId, request: &LockRequest) -> Result<Option<HeldLock>> {
        Ok(self.advisory.find(self.locked_object(id)?, request))
    }

    #[cold]
    fn end_locks(&self, id: ObjectId, _generation: u64, owners: &[LockOwner]) {
        if self.medium().check().is_ok() {
            self.advisory.end(id, owners);
        }
    }

    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        self.check_change()?;
        let _gate = self.medium().enter()?;
        let space = self.volume.space();
        let place = space.stop_on_panic(|| space.allocate_header())?;
        Ok(ObjectId::new(place.raw(), kind))
    }

    fn unreserve(&self, id: ObjectId) {
        let space = self.volume.space();
        space.stop_on_panic(|| space.release_header(Addr::from_raw(id.place())));
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        self.apply_with(op, None)
    }

    fn apply_above_limits(&self, op: &Op<'_>) -> Result<Applied> {
        if self.has_quotas() { self.apply_without_limits(op) } else { self.apply(op) }
    }

    fn quotas(&self) -> Result<Option<Vec<QuotaReport>>> {
        self.load_quotas_for_report()?;
        self.sound(Ok(self.has_quotas().then(|| self.quota_reports())))
    }

    fn quota(&self, id: QuotaId) -> Result<Option<QuotaReport>> {
        self.load_quotas_for_report()?;
        self.sound(Ok(self.has_quotas().then(|| self.quota_report(id))))
    }

    fn reclaim(&self) -> bool {
        let space = self.volume.space();
        space.stop_on_panic(|| space.reclaim())
    }

    #[inline]
    fn directory_changes(&self) -> u64 {
        self.volume.board().directory_changes()
    }

    fn watch(&self, capacity: usize) -> Option<Watcher> {
        let watcher = self.notices.watch(capacity);
        // An Op that changes an entry looks for watchers while it holds its locks. So, after this wait, each
        // change either is visible or gives a notice.
        self.locks.wait_for_all();
        Some(watcher)
    }

    fn wait_for(&self, id: ObjectId) -> Result<()> {
        // In a forked child, the holder of a lock may be a thread that exists only in the parent. The check
        // of the medium refuses a forked child.
        self.medium().check()?;
        // On persistent memory, a change may be visible before it is durable. The Op holds its locks until
        // its commit is durable, so taking the lock waits for the Op. On shared memory, a visible change
        // needs no wait. On a disk, only a later drain makes an Op durable, so a wait for the end of the Op
        // would not help.
        if self.medium().fences_make_durable() {
            self.locks.wait_for(id);
        }
        Ok(self.medium().check()?)
    }

    fn sync(&self) -> Result<()> {
        self.medium().check()?;
        if self.read_only {
            return Ok(());
        }
        let space = self.volume.space();
        space.stop_on_panic(|| space.sync())
    }

    fn space(&self) -> SpaceUsage {
        self.volume.space().usage()
    }
}

impl Scm {
    /// Tells the watchers about an Op that changes one object and no entry.
    #[cold]
    fn notify_of_object(&self, op: &Op<'_>) {
        match *op {
            Op::Write { id, .. }
            | Op::Append { id, .. }
            | Op::SetSize { id, .. }
            | Op::CloneRange { id, .. }
            | Op::Fallocate { id, .. } => self.notices.add(&Notice::Object(id)),
            Op::SetAttributes { id, change, .. } if change.size.is_some() => {
                self.notices.add(&Notice::Object(id));
            }
            Op::SetAttributes { id, .. }
            | Op::SetXattr { id, .. }
            | Op::RemoveXattr { id, .. }
            | Op::SetAcl { id, .. } => self.notices.add(&Notice::Attributes(id)),
            Op::MarkAccess { id, .. } => self.notices.add(&Notice::Access(id)),
            // Nobody watches a file that has never had a name. The commits of the other Ops give notices of
            // entries. A `Put` and a batch also give notices of the values that they replace.
            Op::CreateUnnamed { .. }
            | Op::Create { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::RemoveDirectory { .. }
            | Op::Rename { .. }
            | Op::Put { .. }
            | Op::Erase { .. }
            | Op::Expect { .. }
            | Op::Batch { .. } => {}
        }
    }

    /// Applies an Op. A new object of `Create` or `Put` gets `generation`. If `generation` is `None`, the
    /// object gets the next generation of the volume.
    // Inlining would put a second copy into `apply_without_limits`.
    #[inline(never)]
    pub(super) fn apply_with(&self, op: &Op<'_>, generation: Option<u64>) -> Result<Applied> {
        self.check_change()?;
        let space = self.volume.space();
        let sparse = Cell::new(false);
        let apply = || self.apply_in_room(op, generation, &sparse);
        let result = space.with_room(|| op.journal_room(), || op.data_len(), apply);
        if sparse.get() {
            self.shrink_after(op);
        }
        result
    }

    #[cold]
    #[inline(never)]
    fn apply_without_limits(&self, op: &Op<'_>) -> Result<Applied> {
        without_limits(|| self.apply(op))
    }

    /// Runs an Op whose user may exceed the limits of quotas.
    pub(super) fn above_limits(&self, apply: impl FnOnce() -> Result<Applied>) -> Result<Applied> {
        if self.has_quotas() { without_limits(apply) } else { apply() }
    }

    /// Applies an Op for which the medium has room.
    #[inline(always)]
    fn apply_in_room(&self, op: &Op<'_>, generation: Option<u64>, sparse: &Cell<bool>) -> Result<Applied> {
        let _pin = pin();
        let apply = || self.sound(self.apply_one(op, generation, sparse));
        let result = self.volume.space().stop_on_panic(apply);
        if self.notices.is_watched() && may_have_changed(&result) {
            self.notify_of_object(op);
        }
        result
    }

    /// Calls the method for an Op. The method sets `sparse` if it leaves few entries in a page of a
    /// directory.
    fn apply_one(&self, op: &Op<'_>, generation: Option<u64>, sparse: &Cell<bool>) -> Result<Applied> {
        match *op {
            Op::Create { dir, name, id, owner, content, time } => {
                let new = Creation { id, owner, generation, time };
                self.create_object(dir, name, new, content)
            }
            Op::CreateUnnamed { dir, id, owner, linkable, time } => {
                self.create_unnamed(dir, id, owner, linkable, time)
            }
            Op::Link { dir, name, id, time } => self.link(dir, name, id, time),
            Op::Unlink { dir, name, time } => self.unlink(dir, name, time, RemovedAs::Name, sparse),
            Op::Erase { dir, name, time } => self.unlink(dir, name, time, RemovedAs::Key, sparse),
            Op::RemoveDirectory { dir, name, time } => self.remove_directory(dir, name, time, sparse),
            Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time } => self
                .rename(MoveRequest { from_dir, from_name, to_dir, to_name, mode, whiteout, time, sparse }),
            Op::Write { id, offset, data, set_ids, time } => {
                self.write_data(id, Some(offset), data, Touch { set_ids, time })
            }
            Op::Append { id, data, set_ids, time } => {
                self.write_data(id, None, data, Touch { set_ids, time })
            }
            Op::SetSize { id, size, set_ids, time } => self.set_size(id, size, Touch { set_ids, time }),
            Op::Fallocate { id, mode, offset, length, set_ids, time } => {
                self.fallocate(id, mode, offset, length, Touch { set_ids, time })
            }
            Op::CloneRange { source, source_offset, id, offset, length, set_ids, time } => {
                self.clone_range((source, source_offset), (id, offset), length, Touch { set_ids, time })
            }
            Op::SetAttributes { id, change, time } => self.set_attributes(id, &change, time),
            Op::MarkAccess { id, time } => self.mark_access(id, time),
            Op::SetXattr { id, name, value, mode, time } => self.set_xattr(id, name, value, mode, time),
            Op::RemoveXattr { id, name, time } => self.remove_xattr(id, name, time),
            Op::SetAcl { id, kind, acl, drops_set_gid, time } => {
                self.set_acl(id, kind, acl, drops_set_gid, time)
            }
            Op::Put { dir, name, id, owner, data, time } => {
                self.put(dir, name, Creation { id, owner, generation, time }, data)
            }
            Op::Expect { .. } => Err(Error::Invalid("only a batch can have conditions")),
            Op::Batch { dir, ops, time } => self.batch(dir, ops, time, sparse),
        }
    }
}
