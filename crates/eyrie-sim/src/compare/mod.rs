//! Volumes as values: everything reachable, independent of ids.

mod difference;
#[cfg(test)]
mod tests;
mod tree;

pub use difference::difference;
pub use tree::{Include, Node, Path, Tree, TreeError, Xattrs, object, tree, try_tree, xattrs};

use eyrie_engine::Attributes;

/// `attributes` without what engines need not agree on: the bytes allocated, and the parent of a
/// directory that was removed.
#[must_use]
pub fn comparable(attributes: Attributes) -> Attributes {
    let parent = attributes.parent.filter(|_| attributes.links > 0);
    Attributes { allocated: 0, parent, ..attributes }
}
