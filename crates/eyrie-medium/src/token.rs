//! The order tokens: `Dirty` → `Ordered` → `Published` → `Settled`.
//!
//! The tokens carry no data and cost nothing in release builds. Debug builds also count, for each thread, the
//! `Dirty` tokens that were neither consumed by a barrier nor dropped. A publish, except
//! [`publish_apart`](crate::Medium::publish_apart), fails an assertion if the thread has such a token.
//!
//! A commit has this order:
//!
//! ```
//! #![deny(unused_must_use)]
//! # use eyrie_medium::{Addr, Fault, Medium};
//! # let medium = Medium::memory(4096)?;
//! # let (data, root) = (Addr::from_raw(64), Addr::from_raw(0));
//! let dirty = medium.write(data, b"bytes that nothing names yet")?;
//! let ordered = medium.barrier(dirty);
//! let published = medium.publish(root, data.raw(), ordered)?;
//! let _settled = medium.settle(published);
//! # Ok::<(), Fault>(())
//! ```
//!
//! Without the barrier the publish is a type error:
//!
//! ```compile_fail,E0277
//! # use eyrie_medium::{Addr, Fault, Medium};
//! # let medium = Medium::memory(4096)?;
//! # let (data, root) = (Addr::from_raw(64), Addr::from_raw(0));
//! let dirty = medium.write(data, b"bytes that nothing names yet")?;
//! let _ = medium.publish(root, data.raw(), dirty)?;
//! # Ok::<(), Fault>(())
//! ```
//!
//! A write whose token is not used gives a warning, which this example turns into an error:
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use eyrie_medium::{Addr, Fault, Medium};
//! # let medium = Medium::memory(4096)?;
//! # let data = Addr::from_raw(64);
//! medium.write(data, b"bytes that nothing names yet")?;
//! # Ok::<(), Fault>(())
//! ```
//!
//! A publish without a settle gives the same warning:
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use eyrie_medium::{Addr, Fault, Medium, Ordered};
//! # let medium = Medium::memory(4096)?;
//! medium.publish(Addr::from_raw(0), 1, Ordered::nothing())?;
//! # Ok::<(), Fault>(())
//! ```
//!
//! One barrier does not count for two publishes. Code outside this crate can neither make nor clone a
//! `Settled`:
//!
//! ```compile_fail,E0382
//! # use eyrie_medium::{Addr, Dirty, Fault, Medium};
//! # let medium = Medium::memory(4096)?;
//! # let root = Addr::from_raw(0);
//! let ordered = medium.barrier(Dirty::nothing());
//! let first = medium.publish(root, 1, ordered)?;
//! let second = medium.publish(root, 2, ordered)?;
//! # Ok::<(), Fault>(())
//! ```
//!
//! ```compile_fail,E0451
//! let _ = eyrie_medium::Settled { _private: () };
//! ```
//!
//! ```compile_fail,E0599
//! # use eyrie_medium::Settled;
//! fn twice(settled: &Settled) -> Settled {
//!     settled.clone()
//! }
//! ```

#[cfg(debug_assertions)]
use std::cell::Cell;

#[cfg(debug_assertions)]
crate::sync::thread_local! {
    static OPEN_DIRTY: Cell<u32> = const { Cell::new(0) };
}

/// Writes of this thread that no barrier has ordered yet.
#[must_use = "a write is not ordered until a barrier consumes its Dirty"]
#[derive(Debug)]
pub struct Dirty {
    _private: (),
}

impl Dirty {
    pub(crate) fn new() -> Dirty {
        #[cfg(debug_assertions)]
        OPEN_DIRTY.with(|open| open.set(open.get() + 1));
        Dirty { _private: () }
    }

    /// Returns a token for a barrier that orders no write of its own.
    pub fn nothing() -> Dirty {
        Dirty::new()
    }

    /// Joins two tokens, so that one barrier orders the writes of both.
    pub fn and(self, other: Dirty) -> Dirty {
        drop(other);
        self
    }
}

#[cfg(debug_assertions)]
impl Drop for Dirty {
    fn drop(&mut self) {
        OPEN_DIRTY.with(|open| open.set(open.get() - 1));
    }
}

/// In debug builds, panics if this thread has writes that no barrier has ordered.
#[track_caller]
pub(crate) fn assert_nothing_dirty() {
    #[cfg(debug_assertions)]
    OPEN_DIRTY.with(|open| assert_eq!(open.get(), 0, "publish while a write of this thread is not ordered"));
}

/// The result of a barrier: every earlier write of this thread persists before its later writes.
#[must_use = "a barrier without a later publish is needless"]
#[derive(Debug)]
pub struct Ordered {
    pub(crate) _private: (),
}

impl Ordered {
    /// Returns a token for a commit that makes no earlier write reachable.
    pub fn nothing() -> Ordered {
        Ordered { _private: () }
    }
}

/// The result of a publish. A crash may undo this commit until the next barrier, and on a disk until the
/// drain of its cut.
#[must_use = "storage that a publish made unreachable may be reused only after a settle"]
#[derive(Debug)]
pub struct Published {
    pub(crate) _private: (),
}

impl Published {
    /// Joins two tokens, so that one barrier settles both commits.
    pub fn and(self, _other: Published) -> Published {
        self
    }
}

/// A publish with a barrier after it: a crash that keeps a later store of the thread also keeps this publish.
/// So storage that the publish made unreachable may be reused.
#[derive(Debug)]
pub struct Settled {
    pub(crate) _private: (),
}

impl From<Settled> for Ordered {
    fn from(_: Settled) -> Ordered {
        Ordered { _private: () }
    }
}
