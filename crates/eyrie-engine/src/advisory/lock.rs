//! Locks, their owners, and requests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// The largest offset that a range lock covers.
pub const LOCK_OFFSET_MAX: u64 = i64::MAX as u64;

/// This bit is set in the number of an owner that uses the volume through a mount.
const IN_MOUNT: u64 = 1 << 63;
/// Bits of a process id. Linux has at most 2^22 processes.
const PROCESS_BITS: u32 = 22;

/// The kind of an advisory lock.
///
/// ```
/// # use eyrie_engine::advisory::LockKind;
/// assert!(LockKind::Exclusive.conflicts(LockKind::Shared));
/// assert!(!LockKind::Shared.conflicts(LockKind::Shared));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LockKind {
    /// Other owners may have shared locks (`F_RDLCK`, `LOCK_SH`).
    Shared,
    /// Other owners have no lock (`F_WRLCK`, `LOCK_EX`).
    Exclusive,
}

impl LockKind {
    /// True if two owners cannot have locks of these kinds on the same bytes.
    pub fn conflicts(self, other: LockKind) -> bool {
        self == LockKind::Exclusive || other == LockKind::Exclusive
    }
}

/// The class of a lock's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum OwnerClass {
    /// A process. All its locks on an object end when it closes any handle of the object.
    Process,
    /// An open file. Its locks end when it is closed.
    OpenFile,
}

/// The owner of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LockOwner {
    /// The session of a client. 0 in the process that owns the volume.
    pub session: u64,
    /// The class of the owner.
    pub class: OwnerClass,
    /// Number of the owner in its session and class.
    pub number: u64,
}

impl LockOwner {
    /// Returns an owner in the process that owns the volume.
    pub fn local(class: OwnerClass, number: u64) -> LockOwner {
        LockOwner { session: 0, class, number }
    }

    /// Returns a number for an owner that uses the volume through a mount. No other owner of this process has
    /// the number. Its low bits are the process id `process`.
    pub fn number_in_mount(process: u32) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let sequence = NEXT.fetch_add(1, Ordering::Relaxed);
        IN_MOUNT | (sequence << PROCESS_BITS) | u64::from(process) & !(u64::MAX << PROCESS_BITS)
    }

    /// Returns the number of the process that owns the lock. If the process uses the volume through a mount,
    /// the number is its process id. `None` if an open file owns the lock.
    pub fn process(self) -> Option<u64> {
        let number = match self.number & IN_MOUNT {
            0 => self.number,
            _ => self.number & !(u64::MAX << PROCESS_BITS),
        };
        (self.class == OwnerClass::Process).then_some(number)
    }
}

/// A range of bytes that has at least one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRange {
    start: u64,
    /// Offset of the last byte.
    last: u64,
}

impl LockRange {
    /// All bytes.
    pub const ALL: LockRange = LockRange { start: 0, last: LOCK_OFFSET_MAX };

    /// Returns the range from `start` to `last`. `None` unless both are at most [`LOCK_OFFSET_MAX`] and the
    /// range has a byte.
    pub fn new(start: u64, last: u64) -> Option<LockRange> {
        (start <= last && last <= LOCK_OFFSET_MAX).then_some(LockRange { start, last })
    }

    /// Returns the range of `length` bytes from `start` on. Length 0 stands for all bytes from `start` on.
    ///
    /// # Errors
    /// `Invalid` for a start or a length of 2^63 or more. `LockPastEnd` if the range would end past the
    /// largest offset.
    pub fn of_length(start: u64, length: u64) -> Result<LockRange> {
        if start > LOCK_OFFSET_MAX || length > LOCK_OFFSET_MAX {
            return Err(Error::Invalid("offsets and lengths of locks must be below 2^63"));
        }
        match length {
            0 => Ok(LockRange { start, last: LOCK_OFFSET_MAX }),
            _ if length - 1 > LOCK_OFFSET_MAX - start => Err(Error::LockPastEnd),
            _ => Ok(LockRange { start, last: start + (length - 1) }),
        }
    }

    /// Returns the offset of the first byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Returns the offset of the last byte.
    pub fn last(self) -> u64 {
        self.last
    }

    /// Returns the number of bytes, or 0 if the range ends at the largest offset.
    pub fn length(self) -> u64 {
        if self.last == LOCK_OFFSET_MAX { 0 } else { self.last - self.start + 1 }
    }
}

/// The part of an object that a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockTarget {
    /// The object as a whole (`flock`). The owner is an open file.
    Object,
    /// A range of bytes (`fcntl`).
    Bytes(LockRange),
}

/// A request to lock or to unlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest {
    /// The owner.
    pub owner: LockOwner,
    /// The part of the object.
    pub target: LockTarget,
    /// Kind of the new lock. `None` unlocks.
    pub kind: Option<LockKind>,
}

/// A lock on a range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// The owner.
    pub owner: LockOwner,
    /// The locked bytes.
    pub range: LockRange,
    /// Kind of the lock.
    pub kind: LockKind,
}
