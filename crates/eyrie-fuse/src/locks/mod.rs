//! The advisory locks of a mount, which the volume keeps.
//!
//! - The kernel sends a `flush` for each close of a descriptor. A `flush` ends the POSIX locks of the process
//!   on the file.
//! - The kernel sends a `release` for the end of an open file. A `release` ends the locks of the open file.
//!   It names only the owner of locks of flock(2), so a [`LockUse`] notes which owners have used an open
//!   file. An owner that has used no other open file of this file loses its locks. So a process keeps the
//!   locks that it got through another open file.
//! - A use may end before the volume grants the lock of the use. So the mount looks for the use again after
//!   each grant. If the use has ended, the mount ends the lock, as if the close had come after the grant.
//!   Nothing else would end the lock, because the mount has forgotten the owner.
//! - A request that waits for a lock goes to [one thread](waits), which repeats the request. So the other
//!   requests of the mount do not wait.
//! - A program that gets a lock must see the bytes that the last owner of the lock has written. The notice of
//!   these bytes may still be on its way. So the kernel forgets the attributes and the pages of the file
//!   before the mount replies. For this the kernel waits for reads and writes of the file that are in
//!   progress, and these need the threads of the session. So another thread, [that of the waiting
//!   requests](waits), sends such replies.
//! - A `release` comes after the return of close(2). So a refused request that does not wait is repeated for
//!   [`GRACE`] if another open file has had locks on the file.
//!
//! The crate `fuser` does not tell if a request comes from flock(2) or from fcntl(2): see [`caller`]. If the
//! system call is unknown, a request for all bytes may come from either call, and needs the locks of both. In
//! NFS, too, the locks of the two calls conflict.

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
use fuser::{Errno, Notifier, ReplyEmpty};

use self::caller::{CallingThread, LockCall};
use self::owners::{LockUse, Owner, Owners};
use self::waits::{Waiting, Waits};
use crate::answer::{Answer, OrErrno};
use crate::convert::Numbers;

/// A refused request that does not wait is repeated for this time, because an open file may have ended
/// already, and the kernel reports its end only a moment later.
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
    caller: CallingThread,
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
            (Ok(()), _) if asked.kind.is_some() => self.waits.add_stale(asked.id, Some(reply)),
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

    /// Makes the kernel forget the attributes and the pages of a file, a moment later.
    pub(crate) fn forget_pages(&self, id: ObjectId) {
        self.waits.add_stale(id, None);
    }

    /// Repeats the waiting requests, and replies to the granted ones, until [`stop`](FileLocks::stop).
    pub(crate) fn run(&self, kernel: &Notifier) {
        self.waits.run(self, kernel);
    }

    /// Makes the kernel forget the attributes and the pages of a file. Then replies to the request for a lock
    /// of the file that was granted.
    fn forget_now(&self, kernel: &Notifier, id: ObjectId, granted: Option<ReplyEmpty>) {
        let numbers = Numbers { root: self.nodes.root() };
        // An error means that the mount ends.
        let _ = kernel.inval_inode(numbers.of(id), 0, 0);
        if let Some(reply) = granted {
            reply.ok();
        }
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

    /// Finds out the system call of a request, if the result of the request depends on it.
    fn understand(&self, asked: Asked) -> Understood {
        let caller = CallingThread::new(asked.thread, self.sees_threads);
        let known = self.owners.find(asked.id, asked.owner);
        let matters = known.is_none() || asked.range == LockRange::ALL;
        Understood { asked, caller, call: if matters { caller.call() } else { None } }
    }

    /// Makes a request to the volume. If the volume refuses the request, notes that `waiter` waits, for the
    /// search for deadlocks.
    fn attempt(&self, request: &Understood, waiter: Option<&LockWaiter>) -> Answer<()> {
        if request.asked.kind.is_some() {
            // Another thread may have ended the use of a waiting request meanwhile.
            return self.set_as(self.note_use(request), request, waiter);
        }
        match self.owners.find(request.asked.id, request.asked.owner) {
            Some(owner) => self.set_as(owner, request, None),
            None => Ok(()),
        }
    }

    /// Notes the use of a request that locks. Returns its owner.
    fn note_use(&self, request: &Understood) -> Owner {
        let Asked { id, handle, owner, process, .. } = request.asked;
        self.owners.note_use(id, LockUse { owner, handle }, || {
            let of_process = matches!(request.call, Some(LockCall::OfProcess) | None);
            let class = if of_process { OwnerClass::Process } else { OwnerClass::OpenFile };
            (eyrie::LockOwner::number_in_mount(process), class)
        })
    }

    /// Makes a request to the volume for this owner.
    fn set_as(&self, owner: Owner, request: &Understood, waiter: Option<&LockWaiter>) -> Answer<()> {
        let Asked { id, owner: number, range, kind, .. } = request.asked;
        let whole = LockRequest { owner: owner.of_flock(), target: LockTarget::Object, kind };
        let bytes = LockRequest { owner: owner.of_ranges(), target: LockTarget::Bytes(range), kind };
        let set = |request| self.nodes.try_lock(id, request, waiter).or_errno();
        match request.call {
            Some(LockCall::Flock) => set(&whole),
            None if range == LockRange::ALL => {
                set(&whole)?;
                set(&bytes).inspect_err(|_| {
                    // The request fails as a whole, so it keeps neither lock.
                    let _ = self.nodes.try_lock(id, &LockRequest { kind: None, ..whole }, None);
                })
            }
            _ => set(&bytes),
        }?;
        let has_claim = || self.owners.find(id, number).is_some_and(|now| now.has_number_of(owner));
        if kind.is_some() && !has_claim() {
            self.end(id, Some(owner));
        } else if kind != Some(LockKind::Exclusive) {
            self.waits.wake();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use eyrie::{Credentials, Kind, Volume};

    use super::*;

    const BYTES: LockRange = LockRange::ALL;

    /// Returns the locks of a volume, and a file in it.
    fn locks() -> (tempfile::TempDir, Volume, FileLocks, ObjectId) {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a place");
        let volume = Volume::create(place.path().join("volume"), 4 << 20).expect("a volume");
        let nodes = Arc::new(volume.nodes());
        let egg = nodes.make(&Credentials::root(), nodes.root(), b"egg", Kind::File, 0o644, 0);
        let id = egg.expect("a file").id;
        (place, volume, FileLocks::new(nodes), id)
    }

    fn request(id: ObjectId, owner: u64, handle: u64, call: LockCall) -> Understood {
        let kind = Some(LockKind::Exclusive);
        let asked = Asked { id, handle, owner, range: BYTES, kind, process: 7, thread: 0 };
        Understood { asked, caller: CallingThread::new(0, false), call: Some(call) }
    }

    /// True if nobody has a lock on the file. Another owner could then lock it.
    fn is_free(locks: &FileLocks, id: ObjectId) -> bool {
        let other = eyrie::LockOwner::local(OwnerClass::OpenFile, eyrie::LockOwner::number_in_mount(1));
        let unlock = |target| LockRequest { owner: other, target, kind: None };
        [LockTarget::Object, LockTarget::Bytes(BYTES)].into_iter().all(|target| {
            let lock = LockRequest { kind: Some(LockKind::Exclusive), ..unlock(target) };
            let is_free = locks.nodes.try_lock(id, &lock, None).is_ok();
            is_free && locks.nodes.try_lock(id, &unlock(target), None).is_ok()
        })
    }

    /// A close ends the use after the mount has noted the use, and before the volume grants the lock.
    /// Only the look for the use after the grant can then end the lock.
    #[test]
    fn lock_that_is_granted_after_a_close_ends() {
        let (_place, _volume, locks, egg) = locks();
        for call in [LockCall::OfProcess, LockCall::OfOpenFile, LockCall::Flock] {
            let request = request(egg, 1, 10, call);
            let owner = locks.note_use(&request);
            locks.flush(egg, 1);
            assert_eq!(locks.set_as(owner, &request, None).map_err(Errno::code), Ok(()));
            assert!(is_free(&locks, egg), "{call:?}");
            // If the use is noted again after its end, its owner gets another number in the volume, so the
            // lock of the first owner must still end.
            let owner = locks.note_use(&request);
            locks.flush(egg, 1);
            locks.note_use(&request);
            assert_eq!(locks.set_as(owner, &request, None).map_err(Errno::code), Ok(()));
            assert!(is_free(&locks, egg), "{call:?}");
            locks.flush(egg, 1);
        }
    }

    #[test]
    fn release_keeps_the_locks_of_another_open_file() {
        let (_place, _volume, locks, egg) = locks();
        let [first, second] = [10, 11].map(|handle| request(egg, 1, handle, LockCall::OfProcess));
        locks.note_use(&first);
        assert_eq!(locks.attempt(&second, None).map_err(Errno::code), Ok(()));
        locks.release(egg, 10);
        assert!(!is_free(&locks, egg));
        locks.release(egg, 11);
        assert!(is_free(&locks, egg));
    }
}
