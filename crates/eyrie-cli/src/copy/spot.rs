//! The position of one entry in the target of a copy.

use std::path::Path;

use eyrie::{Dir, Posix};

/// The position at which an entry is made.
pub struct Spot<'s, D: Posix> {
    /// The target, or an open directory of it.
    pub target: &'s Dir<D>,
    /// The path of the entry in `target`. In a copy it is usually one name. In a load it is the whole path.
    pub name: &'s Path,
    /// The path of the entry below the root of the tree that the copy or the load makes. Messages show it.
    pub relative: &'s Path,
}
