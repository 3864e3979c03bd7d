//! The advisory locks of a mount, which the volume keeps.
//!
//! - The kernel sends a `flush` for each close of a descriptor. It ends the POSIX locks of the process on the
//!   file.
//! - The kernel sends a `release` for the end of an open file. It ends the locks of the open file. The kernel
//!   does not name the owners of these locks, so a [`Claim`] notes which owners have used an open file. A
//!   process that used it has no locks by then, because a `flush` came before.
//! - A request that waits goes to [one thread](waits), which repeats it. So no request of the mount waits for
//!   it.
//! - A `release` comes after the return of close(2). So a refused request that does not wait is repeated for
//!   [`GRACE`] if an open file has locks on the file.
//!
//! The crate `fuser` does not tell if a request comes from flock(2) or from fcntl(2): see [`caller`]. If the
//! system call is unknown, a request for all bytes may be either, and needs the lock of both calls. NFS also
//! makes both locks conflict.

mod caller;
mod owners;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyrie::{
    HeldLock, LockKind, LockRange, LockRequest, LockTarget, LockWait, LockWaiter, ObjectId, OwnerClass,
    VolumeNodes,
};
use fuser::{Errno, ReplyEmpty};

use self::caller::{Caller, LockCall};
use self::owners::{Claim, Owner, Owners};
use self::waits::{Waiting, Waits};
use crate::answer::{Answer, OrErrno};

/// A refused request that does not wait is repeated for this time, because the kernel may have reported the
/// end of an open file a moment ago.
const GRACE: Duration = Duration::from_millis(20);

/// The locks of one mount.
#[derive(Debug)]
pub(crate) struct FileLocks {
    nodes: Arc<VolumeNodes>,
    owners: Owners,
    waits: Waits,
    sees_threads: bool,
    next_handle: AtomicU64,
}

/// A request of the kernel about a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) id: ObjectId,
    /// The open file.
    pub(crate) handle: u64,
    /// Number of the owner in the kernel.
    pub(crate) owner: u64,
    pub(crate) range: LockRange,
    /// `None` for an unlock.
    pub(crate) kind: Option<LockKind>,
    pub(crate) process: u32,
    pub(crate) thread: u32,
}

/// A request with its system call, if that matters and is known.
#[derive(Clone, Copy, Debug)]
struct Understood {
    asked: Asked,
    caller: Caller,
    call: Option<LockCall>,
}

impl FileLocks {
    pub(crate) fn new(nodes: Arc<VolumeNodes>) -> FileLocks {
        let (owners, waits) = (Owners::default(), Waits::default());
        FileLocks {
            nodes,
            owners,
            waits,
            sees_threads: caller::sees_threads(),
            next_handle: AtomicU64::new(1),
        }
    }

    /// Returns a number for an open file.
    pub(crate) fn new_handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks or unlocks, and replies. A request that waits gets its reply later.
    pub(crate) fn set(&self, asked: Asked, waits: bool, reply: ReplyEmpty) {
        let request = self.understand(asked);
        let waiter = (waits && asked.kind.is_some()).then(|| LockWait::FOREVER.waiter());
        let result = self.attempt(&request, waiter.as_ref());
        let may_end = || self.owners.has_other_open_file(asked.id, asked.owner);
        let until = Instant::now() + GRACE;
        match (result, waiter) {
            (Err(Errno::EAGAIN), Some(waiter)) => {
                let caller = request.caller.with_visible_signals();
                self.waits.add(Waiting::new(Understood { caller, ..request }, Some(waiter), None, reply));
            }
            (Err(Errno::EAGAIN), None) if may_end() => {
                self.waits.add(Waiting::new(request, None, Some(until), reply));
            }
            (Ok(()), _) => reply.ok(),
            (Err(error), _) => reply.error(error),
        }
    }

    /// Returns the first lock that conflicts with a request.
    pub(crate) fn find(&self, asked: Asked) -> Answer<Option<HeldLock>> {
        let owner = match self.owners.find(asked.id, asked.owner) {
            Some(owner) => owner.of_ranges(),
            None => eyrie::LockOwner::local(OwnerClass::Process, eyrie::LockOwner::number_in_mount(0)),
        };
        let request = LockRequest { owner, target: LockTarget::Bytes(asked.range), kind: asked.kind };
        self.nodes.find_lock(asked.id, &request).or_errno()
    }

    /// Ends the POSIX locks of a process that has closed a descriptor of a file.
    pub(crate) fn flush(&self, id: ObjectId, owner: u64) {
        let ended = self.owners.end(id, owner);
        self.end(id, ended);
    }

    /// Ends the locks of an open file that has ended.
    pub(crate) fn release(&self, id: ObjectId, handle: u64) {
        let ended = self.owners.end_all_of(id, handle);
        self.end(id, ended);
    }

    /// Repeats the waiting requests until [`stop`](FileLocks::stop).
    pub(crate) fn run(&self) {
        self.waits.run(self);
    }

    /// Ends the thread of [`run`](FileLocks::run), and all locks. The mount has ended.
    pub(crate) fn stop(&self) {
        self.waits.stop();
    }

    /// Ends all locks of the mount.
    fn end_all(&self) {
        self.owners.end_all().into_iter().for_each(|(id, owner)| self.end(id, Some(owner)));
    }

    fn end(&self, id: ObjectId, owners: impl IntoIterator<Item = Owner>) {
        for owner in owners {
            self.nodes.end_locks(id, &owner.both());
            self.waits.wake();
        }
    }

    /// Finds the system call of a request out, if the result depends on it.
    fn understand(&self, asked: Asked) -> Understood {
        let caller = Caller::new(asked.thread, self.sees_threads);
        let known = self.owners.find(asked.id, asked.owner);
        let matters = known.is_none() || asked.range == LockRange::ALL;
        Understood { asked, caller, call: if matters { caller.call() } else { None } }
    }

    /// Makes a request of the volume. If it is refused, notes for the search for deadlocks that `waiter`
    /// waits.
    fn attempt(&self, request: &Understood, waiter: Option<&LockWaiter>) -> Answer<()> {
        let Asked { id, handle, owner, range, kind, process, .. } = request.asked;
        let owner = if kind.is_some() {
            // Another thread may have ended the claim of a waiting request meanwhile.
            self.owners.claim(id, Claim { owner, handle }, || {
                let of_process = matches!(request.call, Some(LockCall::OfProcess) | None);
                let class = if of_process { OwnerClass::Process } else { OwnerClass::OpenFile };
                (eyrie::LockOwner::number_in_mount(process), class)
            })
        } else {
            let Some(owner) = self.owners.find(id, owner) else { return Ok(()) };
            owner
        };
        let whole = LockRequest { owner: owner.of_flock(), target: LockTarget::Object, kind };
        let bytes = LockRequest { owner: owner.of_ranges(), target: LockTarget::Bytes(range), kind };
        let set = |request| self.nodes.try_lock(id, request, waiter).or_errno();
        match request.call {
            Some(LockCall::Flock) => set(&whole),
            None if range == LockRange::ALL => {
                set(&whole)?;
                set(&bytes).inspect_err(|_| {
                    // The request has got nothing.
                    let _ = self.nodes.try_lock(id, &LockRequest { kind: None, ..whole }, None);
                })
            }
            _ => set(&bytes),
        }?;
        if kind != Some(LockKind::Exclusive) {
            self.waits.wake();
        }
        Ok(())
    }
}
