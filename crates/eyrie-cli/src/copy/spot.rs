//! The position of one entry in the target of a copy.

use std::path::Path;

/// The position at which an entry is made.
pub struct Spot<'s, D> {
    /// The target, or the same file system with an open directory as its root.
    pub target: &'s D,
    /// The path of the entry in `target`. In a copy it is usually one name, in a load the whole path.
    pub name: &'s Path,
    /// The path of the entry below the root of the tree that the copy or the load makes.
    pub relative: &'s Path,
}
