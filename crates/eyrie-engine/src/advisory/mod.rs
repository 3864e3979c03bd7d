//! Advisory locks: ranges of bytes, owned by a process or by an open file, and whole files (`flock`).
//!
//! An engine has one [`LockTable`]. Locks are on objects and are never stored. The results are those of
//! Linux. A request never waits in the table: it is granted or refused at once. A caller that waits passes a
//! [`LockWaiter`]. The table wakes the waiter when a lock of the object ends or becomes shared. The caller
//! then repeats its request. The table cannot wake a client of a service. It only notes the request of such a
//! client, to find deadlocks, and the client repeats the request after a pause.
//!
//! Invariants:
//! - The ranges of one owner on one object are sorted and disjoint, and neighbours of the same kind are
//!   joined.
//! - Two owners have no conflicting locks.
//! - No thread waits while it holds the mutex of a table.

mod lock;
mod notes;
mod object;
mod ranges;
mod table;
mod wait;

pub use lock::{
    HeldLock, LOCK_OFFSET_MAX, LockKind, LockOwner, LockRange, LockRequest, LockTarget, OwnerClass,
};
pub use table::{LockTable, LockedObject};
pub use wait::{Canceller, LockWait, LockWaiter};

#[cfg(test)]
mod tests;
