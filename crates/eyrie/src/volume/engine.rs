//! The engine of an open volume: the engine of its owner ([`Scm`]), or of a client of its service
//! ([`Client`]).

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use eyrie_client::{Client, SOCKET_NAME, absence};
use eyrie_engine::advisory::{HeldLock, LockOwner, LockRequest, LockWaiter};
use eyrie_engine::quota::{QuotaId, QuotaReport};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::VolumeView;
use eyrie_engine::{
    Applied, Attributes, Birth, Engine, Error as EngineError, FileView, InodeFlags, Kind, ListedEntry,
    Notice, ObjectId, Op, Owner, Result, SpaceUsage, StoredProtection, Version, Watcher,
};
use eyrie_medium::PagedOptions;
use eyrie_medium::epoch::Guard;

use crate::{Errno, Error};

/// The engine of an open [`Volume`](crate::Volume). The process owns the volume, or it is a client of the
/// service that owns it.
///
/// ```
/// # use eyrie::*; fn f(files: &Files) {
/// let engine: &VolumeEngine = files.engine();
/// # let _ = engine;
/// # }
/// ```
pub struct VolumeEngine(Role);

#[expect(
    clippy::large_enum_variant,
    reason = "a volume has one such value, and the owner's calls must not lead through a pointer"
)]
enum Role {
    Owner(Scm),
    Client(Client),
}

impl fmt::Debug for VolumeEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeEngine").field("is_client", &self.is_client()).finish_non_exhaustive()
    }
}

/// Calls this method of the owner's engine or of the client's engine.
macro_rules! each {
    ($engine:expr, $call:ident($($argument:expr),*)) => {
        match &$engine.0 {
            Role::Owner(engine) => engine.$call($($argument),*),
            Role::Client(engine) => engine.$call($($argument),*),
        }
    };
}

fn refused(path: &Path, what: String, errno: Errno) -> EngineError {
    EngineError::Volume { place: path.display().to_string(), what, errno }
}

impl VolumeEngine {
    pub(super) fn of_owner(engine: Scm) -> VolumeEngine {
        VolumeEngine(Role::Owner(engine.closed_on_drop()))
    }

    /// Opens the volume at `path`. If another process has it open and serves it, or if `path` is the socket
    /// of a service, connects to the service.
    pub(super) fn open(path: &Path, paged: PagedOptions, read_only: bool) -> Result<VolumeEngine> {
        let connect = |socket: &Path| {
            let client = Client::connect(socket, read_only).map_err(|error| match error {
                // The message names the volume as the caller does.
                EngineError::Volume { what, errno, .. } => refused(path, what, errno),
                other => other,
            });
            client.map(|client| VolumeEngine(Role::Client(client)))
        };
        if path.metadata().is_ok_and(|found| found.file_type().is_socket()) {
            return connect(path).map_err(|error| match absence(&error) {
                Some(errno) => {
                    let reason = std::io::Error::from(errno);
                    refused(path, format!("no service can be reached at this socket: {reason}"), errno)
                }
                None => error,
            });
        }
        let opened = if read_only { Scm::open_read_only(path, paged) } else { Scm::open(path, paged) };
        let error = match opened {
            Ok(engine) => return Ok(VolumeEngine::of_owner(engine)),
            Err(error) => error,
        };
        // The service may admit users who may not open the files of the volume.
        if ![Errno::BUSY, Errno::ACCESS].contains(&error.errno()) {
            return Err(error);
        }
        match connect(&path.join(SOCKET_NAME)) {
            Err(absent) if absence(&absent).is_some() => Err(error),
            connected => connected,
        }
    }

    /// Returns the engine of the owner. A client has none.
    pub(super) fn owner(&self, operation: &'static str) -> std::result::Result<&Scm, Error> {
        match &self.0 {
            Role::Owner(engine) => Ok(engine),
            Role::Client(_) => {
                let reason = "the service of the volume must stop first";
                Err(Error::with_reason(Errno::BUSY, operation, reason))
            }
        }
    }

    /// Returns the volume as its readers see it.
    pub(super) fn volume(&self) -> &VolumeView {
        match &self.0 {
            Role::Owner(engine) => engine.volume(),
            Role::Client(client) => client.volume(),
        }
    }

    pub(super) fn recovered(&self) -> bool {
        matches!(&self.0, Role::Owner(engine) if engine.recovered())
    }

    /// True if this process is a client of the service that owns the volume.
    pub(super) fn is_client(&self) -> bool {
        matches!(self.0, Role::Client(_))
    }

    pub(super) fn try_close(&mut self) -> Result<()> {
        match &mut self.0 {
            Role::Owner(engine) => engine.try_close(),
            // The service saves the volume when it ends, but a kill would lose changes on a disk.
            Role::Client(client) => client.save(),
        }
    }
}

impl Engine for VolumeEngine {
    fn root(&self) -> ObjectId {
        each!(self, root())
    }

    #[inline]
    fn instance(&self) -> u32 {
        each!(self, instance())
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        each!(self, is_read_only())
    }

    #[inline]
    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        each!(self, lookup(dir, name))
    }

    #[inline]
    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        each!(self, attributes(id))
    }

    #[inline]
    fn birth(&self, id: ObjectId) -> Result<Birth> {
        each!(self, birth(id))
    }

    fn generation(&self, id: ObjectId) -> Result<u64> {
        each!(self, generation(id))
    }

    #[inline]
    fn owner(&self, id: ObjectId) -> Result<Owner> {
        each!(self, owner(id))
    }

    #[inline]
    fn guards(&self, id: ObjectId) -> Result<StoredProtection> {
        each!(self, guards(id))
    }

    fn inode_flags(&self, id: ObjectId) -> Result<InodeFlags> {
        each!(self, inode_flags(id))
    }

    fn project(&self, id: ObjectId) -> Result<u32> {
        each!(self, project(id))
    }

    #[inline]
    fn parent_of(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        each!(self, parent_of(dir))
    }

    #[inline]
    fn is_removed(&self, id: ObjectId) -> Result<bool> {
        each!(self, is_removed(id))
    }

    #[inline]
    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        each!(self, read(id, offset, out))
    }

    #[inline]
    fn view<'a>(&'a self, id: ObjectId, range: (u64, u64), guard: &'a Guard) -> Result<Option<FileView<'a>>> {
        each!(self, view(id, range, guard))
    }

    #[inline]
    fn seal(&self, id: ObjectId) -> Result<()> {
        each!(self, seal(id))
    }

    #[inline]
    fn version(&self, id: ObjectId) -> Result<Version> {
        each!(self, version(id))
    }

    #[inline]
    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        each!(self, seek(id, offset, hole))
    }

    #[inline]
    fn has_storage(&self, id: ObjectId) -> Result<bool> {
        each!(self, has_storage(id))
    }

    #[inline]
    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        each!(self, xattr(id, name, out))
    }

    #[inline]
    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        each!(self, xattr_names(id, visit))
    }

    #[inline]
    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()> {
        each!(self, list(dir, cookie, visit))
    }

    #[inline]
    fn prefetch_object(&self, id: ObjectId) {
        each!(self, prefetch_object(id));
    }

    #[inline]
    fn prefetch_bytes(&self, id: ObjectId) {
        each!(self, prefetch_bytes(id));
    }

    #[inline]
    fn open(&self, id: ObjectId) -> Result<()> {
        each!(self, open(id))
    }

    #[inline]
    fn close(&self, id: ObjectId) {
        each!(self, close(id));
    }

    #[inline]
    fn hold(&self, id: ObjectId) -> Result<()> {
        each!(self, hold(id))
    }

    #[inline]
    fn release(&self, id: ObjectId, count: u64) {
        each!(self, release(id, count));
    }

    #[inline]
    fn may_have_flags(&self) -> bool {
        each!(self, may_have_flags())
    }

    fn write_max(&self) -> usize {
        each!(self, write_max())
    }

    fn may_share_extents(&self) -> bool {
        each!(self, may_share_extents())
    }

    #[inline]
    fn may_have_locks(&self) -> bool {
        each!(self, may_have_locks())
    }

    fn try_lock(&self, id: ObjectId, request: &LockRequest, waiter: Option<&LockWaiter>) -> Result<()> {
        each!(self, try_lock(id, request, waiter))
    }

    fn end_wait(&self, waiter: &LockWaiter) {
        each!(self, end_wait(waiter));
    }

    fn wakes_waiters(&self) -> bool {
        each!(self, wakes_waiters())
    }

    fn find_lock(&self, id: ObjectId, request: &LockRequest) -> Result<Option<HeldLock>> {
        each!(self, find_lock(id, request))
    }

    fn end_locks(&self, id: ObjectId, generation: u64, owners: &[LockOwner]) {
        each!(self, end_locks(id, generation, owners));
    }

    #[inline]
    fn session(&self) -> u64 {
        each!(self, session())
    }

    #[inline]
    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        each!(self, reserve(kind))
    }

    #[inline]
    fn unreserve(&self, id: ObjectId) {
        each!(self, unreserve(id));
    }

    #[inline]
    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        each!(self, apply(op))
    }

    #[inline]
    fn apply_above_limits(&self, op: &Op<'_>) -> Result<Applied> {
        each!(self, apply_above_limits(op))
    }

    fn quotas(&self) -> Result<Option<Vec<QuotaReport>>> {
        each!(self, quotas())
    }

    fn quota(&self, id: QuotaId) -> Result<Option<QuotaReport>> {
        each!(self, quota(id))
    }

    fn reclaim(&self) -> bool {
        each!(self, reclaim())
    }

    #[inline]
    fn directory_changes(&self) -> u64 {
        each!(self, directory_changes())
    }

    fn watch(&self, capacity: usize) -> Option<Watcher> {
        each!(self, watch(capacity))
    }

    fn next_notice(&self, watcher: &Watcher, timeout: Duration) -> Option<Notice> {
        each!(self, next_notice(watcher, timeout))
    }

    fn stop_watch(&self, watcher: &Watcher) {
        each!(self, stop_watch(watcher));
    }

    fn wait_for(&self, id: ObjectId) -> Result<()> {
        each!(self, wait_for(id))
    }

    fn sync(&self) -> Result<()> {
        each!(self, sync())
    }

    fn space(&self) -> SpaceUsage {
        each!(self, space())
    }
}
