//! Advisory locks of the host. A wait with a deadline or a canceller repeats a system call that does not
//! wait, because no system call waits for a lock with a time limit.

use std::os::fd::{AsFd, OwnedFd};

use eyrie_engine::{LockKind, LockWait};
use eyrie_medium::{HostLockKind, HostRangeLock, RangeLockCall, range_lock};
use rustix::fs::{self, FlockOperation};
use rustix::io;

use super::Host;
use super::convert::named;
use crate::posix::{FoundLock, PosixLocks, RangeOwner};
use crate::retry::Pauses;
use crate::{Error, Result};

impl PosixLocks for Host {
    fn flock(&self, handle: &OwnedFd, kind: Option<LockKind>, wait: LockWait<'_>) -> Result<()> {
        let (at_once, waiting) = match kind {
            Some(LockKind::Shared) => (FlockOperation::NonBlockingLockShared, FlockOperation::LockShared),
            Some(LockKind::Exclusive) => {
                (FlockOperation::NonBlockingLockExclusive, FlockOperation::LockExclusive)
            }
            None => (FlockOperation::Unlock, FlockOperation::Unlock),
        };
        lock("flock", wait, |waits| fs::flock(handle, if waits { waiting } else { at_once }))
    }

    fn set_range_lock(
        &self,
        handle: &OwnedFd,
        owner: RangeOwner,
        (start, length): (u64, u64),
        kind: Option<LockKind>,
        wait: LockWait<'_>,
    ) -> Result<()> {
        let kind = kind.map_or(HostLockKind::Unlock, host_kind);
        let wanted = HostRangeLock { kind, start, length, process: None };
        lock("fcntl", wait, |waits| {
            let call = if waits { RangeLockCall::SetAndWait } else { RangeLockCall::Set };
            range_lock(handle.as_fd(), call, owner == RangeOwner::OpenFile, &wanted).map(drop)
        })
    }

    fn find_range_lock(
        &self,
        handle: &OwnedFd,
        owner: RangeOwner,
        (start, length): (u64, u64),
        kind: LockKind,
    ) -> Result<Option<FoundLock>> {
        let wanted = HostRangeLock { kind: host_kind(kind), start, length, process: None };
        let of_open_file = owner == RangeOwner::OpenFile;
        let found = range_lock(handle.as_fd(), RangeLockCall::Find, of_open_file, &wanted);
        let found = named("fcntl", found)?;
        let kind = match found.kind {
            HostLockKind::Shared => LockKind::Shared,
            HostLockKind::Exclusive => LockKind::Exclusive,
            HostLockKind::Unlock => return Ok(None),
        };
        let process = found.process.map(u64::from);
        Ok(Some(FoundLock { process, ..FoundLock::new(kind, found.start, found.length) }))
    }
}

fn host_kind(kind: LockKind) -> HostLockKind {
    match kind {
        LockKind::Shared => HostLockKind::Shared,
        LockKind::Exclusive => HostLockKind::Exclusive,
    }
}

/// Makes a system call that locks. `call` gets true if the system call is to wait.
fn lock(operation: &'static str, wait: LockWait<'_>, call: impl Fn(bool) -> io::Result<()>) -> Result<()> {
    if !wait.is_wait() || wait.is_endless() {
        return named(operation, call(wait.is_wait()));
    }
    let (waiter, mut pauses) = (wait.waiter(), Pauses::default());
    loop {
        match call(false) {
            Err(io::Errno::AGAIN | io::Errno::ACCESS) => {}
            done => return named(operation, done),
        }
        wait.pause(&waiter, Some(pauses.next())).map_err(|end| Error::from_engine(end, operation))?;
    }
}
