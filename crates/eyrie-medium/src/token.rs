//! The order tokens: `Dirty` → `Ordered` → `Published` → `Settled`.
//!
//! The tokens carry no data and cost nothing in release builds. Debug builds also count the open `Dirty`
//! tokens of each thread, so that a publish over a forgotten write of the thread fails an assertion.
//!
//! A commit in the only order that compiles:
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
//! Without the barrier it is a type error:
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
//! A write that is forgotten is a warning, here denied:
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
//! So is a publish that nothing settles:
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use eyrie_medium::{Addr, Fault, Medium, Ordered};
//! # let medium = Medium::memory(4096)?;
//! medium.publish(Addr::from_raw(0), 1, Ordered::nothing())?;
//! # Ok::<(), Fault>(())
//! ```
//!
//! One barrier does not count for two publishes, and no code outside can make a `Settled`:
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

    /// A token for a barrier that orders no write of its own.
    pub fn nothing() -> Dirty {
        Dirty::new()
    }

    /// Joins two groups of writes, which one barrier then orders.
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

/// Every earlier write of this thread persists before its later writes.
#[must_use = "a barrier without a later publish is needless"]
#[derive(Debug)]
pub struct Ordered {
    pub(crate) _private: (),
}

impl Ordered {
    /// A token for a commit that makes no earlier write reachable.
    pub fn nothing() -> Ordered {
        Ordered { _private: () }
    }
}

/// A committed word. Until a barrier, a crash may undo the commit.
#[must_use = "storage that a publish made unreachable may be reused only after a settle"]
#[derive(Debug)]
pub struct Published {
    pub(crate) _private: (),
}

impl Published {
    /// Joins two commits, which one barrier then settles.
    pub fn and(self, _other: Published) -> Published {
        self
    }
}

/// A publish that no crash undoes any more. Storage that it made unreachable may be reused.
#[derive(Debug)]
pub struct Settled {
    pub(crate) _private: (),
}

impl From<Settled> for Ordered {
    fn from(_: Settled) -> Ordered {
        Ordered { _private: () }
    }
}
