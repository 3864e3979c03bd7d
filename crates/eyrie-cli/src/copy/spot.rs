//! The position of one entry in the target of a copy.

use std::path::Path;

/// The position at which an entry is made.
pub struct Spot<'s, D> {
    /// The target, or the same file system with an open directory as its root.
    pub target: &'s D,
    /// The name of the entry in `target`.
    pub name: &'s Path,
    /// The path of the entry under the root of the copied tree.
    pub relative: &'s Path,
}
