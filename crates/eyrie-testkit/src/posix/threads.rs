//! Threads that make random calls at the same time, each below a directory of its own, on one volume and on
//! one file system of the host.
//!
//! The directory of a thread is its root on both sides. So the answers that a thread gets do not depend on
//! the other threads, and the kernel can be the oracle. The threads share everything else of the volume: its
//! allocator, tables, redo slots and grace periods.

use std::sync::Arc;

use eyrie::posix::Posix;
use eyrie::{Credentials, Engine, Host, Pxfs};
use eyrie_engine::advisory::{HeldLock, LockOwner, LockRequest, LockWaiter};
use eyrie_engine::scm::Scm;
use eyrie_engine::{Applied, ObjectId, Op, Result, StoredProtection, forward_calls};
use eyrie_medium::{Medium, own_root};

use super::{Comparison, check, compare_engine_with_host, new_engine};

/// A directory of a volume as the root of an engine, as chroot(2) makes a directory the root of a process.
pub(super) struct Subtree {
    pub volume: Arc<Scm>,
    pub root: ObjectId,
}

impl Subtree {
    fn volume(&self) -> &Scm {
        &self.volume
    }
}

impl Engine for Subtree {
    forward_calls! {
        volume:
        instance lookup attributes birth owner inode_flags read version seek has_storage xattr xattr_names
        list open close reserve unreserve apply reclaim directory_changes wait_for sync space
    }

    fn root(&self) -> ObjectId {
        self.root
    }

    fn apply_above_limits(&self, op: &Op<'_>) -> Result<Applied> {
        self.volume.apply_above_limits(op)
    }

    fn guards(&self, id: ObjectId) -> Result<StoredProtection> {
        self.volume.guards(id)
    }

    fn may_have_flags(&self) -> bool {
        self.volume.may_have_flags()
    }

    fn may_have_locks(&self) -> bool {
        self.volume.may_have_locks()
    }

    fn try_lock(&self, id: ObjectId, request: &LockRequest, waiter: Option<&LockWaiter>) -> Result<()> {
        self.volume.try_lock(id, request, waiter)
    }

    fn find_lock(&self, id: ObjectId, request: &LockRequest) -> Result<Option<HeldLock>> {
        self.volume.find_lock(id, request)
    }

    fn end_locks(&self, id: ObjectId, generation: u64, owners: &[LockOwner]) {
        self.volume.end_locks(id, generation, owners);
    }

    fn parent_of(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        if dir == self.root { Ok(Some(dir)) } else { self.volume.parent_of(dir) }
    }

    fn is_removed(&self, id: ObjectId) -> Result<bool> {
        self.volume.is_removed(id)
    }
}

/// Makes the calls of several comparisons at the same time, each in a thread of its own, as
/// [`compare_with_host`](super::compare_with_host) does. Then checks the volume, which is a new one of the
/// `scm` engine on `medium`.
///
/// # Panics
/// Panics at the first difference, with its description, or if the volume is not sound in the end.
pub fn compare_threads_with_host(medium: Medium, comparisons: &[Comparison]) {
    let volume = new_engine(medium);
    let roots = Pxfs::new(Arc::clone(&volume), Credentials::root());
    let host = Host::new("/").expect("the host's root can be opened");
    std::thread::scope(|scope| {
        for (number, comparison) in comparisons.iter().enumerate() {
            let name = format!("/{number}");
            roots.mkdir(name.as_str().into(), 0o777).expect("a new volume has room");
            host.mkdir(name.as_str().into(), 0o777).expect("the host has room");
            let root = volume.lookup(volume.root(), &name.as_bytes()[1..]).expect("the volume is sound");
            let subtree =
                Subtree { volume: Arc::clone(&volume), root: root.expect("the directory is there") };
            scope.spawn(move || {
                own_root().expect("root gives a thread a root");
                rustix::process::chroot(&name).expect("root changes the root of a thread");
                compare_engine_with_host(Arc::new(subtree), comparison);
            });
        }
    });
    check(&volume);
}
