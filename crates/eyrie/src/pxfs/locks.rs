//! Advisory locks of open files: see [`eyrie_engine::advisory`].
//!
//! A call holds no pin while it waits. Each attempt looks up the object of the handle again.

use eyrie_engine::advisory::{LockOwner, LockRange, LockRequest, LockTarget, OwnerClass};
use eyrie_engine::{Engine, LockKind, LockWait, ObjectId};

use super::{AsUser, CallResult, Handle, Pxfs};
use crate::posix::{FoundLock, OpenFlags, PosixLocks, RangeOwner};
use crate::retry::Pauses;
use crate::{Errno, Error, Result};

impl<E: Engine> PosixLocks for Pxfs<E> {
    fn flock(&self, handle: &Handle, kind: Option<LockKind>, wait: LockWait<'_>) -> Result<()> {
        let owner = open_file(handle);
        let request = LockRequest { owner, target: LockTarget::Object, kind };
        self.as_user().lock("flock", request, wait, |user| user.usable(handle))
    }

    fn set_range_lock(
        &self,
        handle: &Handle,
        owner: RangeOwner,
        (start, length): (u64, u64),
        kind: Option<LockKind>,
        wait: LockWait<'_>,
    ) -> Result<()> {
        // The checks have this order: a handle that is unusable (`EBADF`), a bad range, a handle that lacks a
        // right (`EBADF`).
        let range = self.as_user().call("fcntl", |user| {
            user.usable(handle)?;
            Ok(LockRange::of_length(start, length)?)
        })?;
        let owner = self.as_user().lock_owner(handle, owner);
        let request = LockRequest { owner, target: LockTarget::Bytes(range), kind };
        self.as_user().lock("fcntl", request, wait, |user| {
            let needed = match kind {
                Some(LockKind::Shared) => OpenFlags::READ,
                Some(LockKind::Exclusive) => OpenFlags::WRITE,
                None => OpenFlags::empty(),
            };
            let id = user.usable(handle)?;
            if handle.flags.contains(needed) { Ok(id) } else { Err(Errno::BADF.into()) }
        })
    }

    fn find_range_lock(
        &self,
        handle: &Handle,
        owner: RangeOwner,
        (start, length): (u64, u64),
        kind: LockKind,
    ) -> Result<Option<FoundLock>> {
        self.as_user().call("fcntl", |user| {
            let id = user.usable(handle)?;
            let target = LockTarget::Bytes(LockRange::of_length(start, length)?);
            let owner = user.lock_owner(handle, owner);
            let found = user.engine().find_lock(id, &LockRequest { owner, target, kind: Some(kind) })?;
            Ok(found.map(|held| FoundLock {
                kind: held.kind,
                start: held.range.start(),
                length: held.range.length(),
                process: held.owner.process(),
            }))
        })
    }
}

/// Returns an open file as an owner of locks.
fn open_file(handle: &Handle) -> LockOwner {
    LockOwner::local(OwnerClass::OpenFile, handle.lock_owner_or_new())
}

impl<E: Engine> AsUser<'_, E> {
    /// Returns the process as an owner of locks.
    fn lock_process(&self) -> LockOwner {
        let number = self.shared.lock_process.unwrap_or_else(|| std::process::id().into());
        LockOwner::local(OwnerClass::Process, number)
    }

    fn lock_owner(&self, handle: &Handle, owner: RangeOwner) -> LockOwner {
        match owner {
            RangeOwner::Process => self.lock_process(),
            RangeOwner::OpenFile => open_file(handle),
        }
    }

    /// Locks or unlocks the object that `object` returns. If the caller waits, the request is repeated after
    /// each wake-up, or after a pause if the engine wakes no waiters.
    fn lock(
        self,
        operation: &'static str,
        request: LockRequest,
        wait: LockWait<'_>,
        object: impl Fn(&Self) -> CallResult<ObjectId>,
    ) -> Result<()> {
        let waiter = (wait.is_wait() && request.kind.is_some()).then(|| wait.waiter());
        let attempt = || {
            self.call(operation, |user| {
                Ok(user.engine().try_lock(object(&user)?, &request, waiter.as_ref())?)
            })
        };
        let Some(waiter) = &waiter else { return attempt() };
        let mut pauses = Pauses::default();
        let result = loop {
            match attempt() {
                Err(error) if error.errno() == Errno::AGAIN => {}
                done => break done,
            }
            let limit = if self.engine().wakes_waiters() { None } else { Some(pauses.next()) };
            if let Err(end) = wait.pause(waiter, limit) {
                break Err(Error::from_engine(end, operation));
            }
        };
        if result.is_err() {
            self.engine().end_wait(waiter);
        }
        result
    }

    /// Ends the locks that end with a close of this handle.
    #[cold]
    pub(super) fn end_locks(&self, handle: &Handle) {
        let (process, id, generation) = (self.lock_process(), handle.id(), handle.generation());
        match handle.lock_owner() {
            None => self.engine().end_locks(id, generation, &[process]),
            Some(number) => {
                let file = LockOwner::local(OwnerClass::OpenFile, number);
                self.engine().end_locks(id, generation, &[process, file]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
