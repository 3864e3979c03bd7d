//! The header of an object: 256 bytes, four cache lines.
//!
//! Line 0 is written once. Line 1, the *hot line*, has two copies of root, size and modification time. The
//! selector word of the line names the current copy. One publish of the selector changes root and size
//! together, which BPFS could not do (section 3.2 of the paper, SOSP 2009). Lines 2 and 3 are two copies of
//! the *cold* attributes, which change rarely. The same selector names the current cold copy.
//!
//! Invariants:
//! - A copy that is not current may hold any bytes. Nothing reads it as a state of the object.
//! - Every change of a hot or cold copy increases the version in the selector. A reader that finds the same
//!   selector before and after its reads has therefore read one state.
//!
//! There is one exception: a clone sets the shared bit of the root pointer in the current hot copy, in place,
//! and leaves the selector as it is. The bit does no harm, because the pointer leads to the same extent with
//! and without it.
//!
//! Safe when power fails: a change stores only into copies that are not current, and then publishes the
//! selector. The cold copies are not in the selector's cache line. Therefore the barrier of the transaction
//! separates the store of a cold copy from the publish. A hot copy needs no barrier, because it is in the
//! selector's own line, and the stores to one line persist in program order.

mod layout;
mod read;
mod update;

pub use layout::{Cold, Identity};
pub use read::{Header, Hot, Selector};
pub(crate) use update::{HotChange, NewObject};
