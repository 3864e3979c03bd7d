//! The order tokens: `Dirty` → `Ordered` → `Published` → `Settled`.
//!
//! They carry no data and cost nothing in release builds. Debug builds also count the `Dirty` tokens that each thread
//! has open, so that a publish over somebody else's forgotten write is an assertion.
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
//! No barrier counts for two publishes, and no settled publish can be made up:
//!
//! ```compile_fail,E0382
//! # use eyrie_medium::{Addr, Fault, Medium};
//! # let medium = Medium::memory(4096)?;
//! # let root = Addr::from_raw(0);
//! let ordered = medium.barrier(medium.epoch());
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

/// Some writes are not yet ordered before anything.
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

    /// Both groups of writes as one epoch.
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

/// In debug builds: panics if this thread has writes that no barrier has ordered.
#[track_caller]
pub(crate) fn assert_nothing_dirty() {
    #[cfg(debug_assertions)]
    OPEN_DIRTY.with(|open| assert_eq!(open.get(), 0, "publish while a write of this thread is not ordered"));
}

/// Everything this thread wrote before persists before anything it writes after.
#[must_use = "an epoch that nothing is published after was a needless barrier"]
#[derive(Debug)]
pub struct Ordered {
    pub(crate) _private: (),
}

impl Ordered {
    /// For a commit that says nothing about any earlier write.
    pub fn nothing() -> Ordered {
        Ordered { _private: () }
    }
}

/// A word was committed; until a barrier, a crash may undo that.
#[must_use = "what a publish made unreachable may be reused only when it has settled"]
#[derive(Debug)]
pub struct Published {
    pub(crate) _private: (),
}

impl Published {
    /// Both commits as one.
    pub fn and(self, _other: Published) -> Published {
        self
    }
}

/// A publish that no crash undoes any more: what it made unreachable may be reused.
#[derive(Debug)]
pub struct Settled {
    pub(crate) _private: (),
}

impl From<Settled> for Ordered {
    fn from(_: Settled) -> Ordered {
        Ordered { _private: () }
    }
}
