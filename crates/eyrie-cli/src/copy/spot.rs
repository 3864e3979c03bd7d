//! The place of one entry in the target.

use std::path::Path;

/// The place that an entry goes to.
pub struct Spot<'s, D> {
    /// The target, or the target as seen from a directory in it.
    pub target: &'s D,
    /// The name of the entry there.
    pub name: &'s Path,
    /// The path of the entry under the root of the tree.
    pub relative: &'s Path,
}
