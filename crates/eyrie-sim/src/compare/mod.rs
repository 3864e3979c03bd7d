//! Volumes as values: all reachable objects by path, without object ids.

mod difference;
#[cfg(test)]
mod tests;
mod tree;

pub use difference::{difference, xattr_differences};
pub use tree::{Tree, TreeError, TreeNode, TreeParts, TreePath, Xattrs, object, tree, try_tree, xattrs};

use eyrie_engine::Attributes;

/// Clears the attributes that may differ between two correct engines: the allocated bytes, and the parent of
/// a removed directory.
#[must_use]
pub fn comparable(attributes: Attributes) -> Attributes {
    let parent = attributes.parent.filter(|_| attributes.links > 0);
    Attributes { allocated: 0, parent, ..attributes }
}
