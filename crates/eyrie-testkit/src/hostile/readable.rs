//! Finds the readable objects of a volume, sound or damaged.

use std::collections::{BTreeMap, HashSet};

use eyrie_engine::{Engine, Time};

use eyrie_sim::compare::{TreeNode, TreeParts, TreePath, object};

/// Total number of entries after which listings stop. Each directory that is listed later still gives one
/// entry.
const MAX_ENTRIES: usize = 4000;
/// Size of the largest object to read, in bytes. No [`BaseVolume`](super::BaseVolume) has a larger object.
const MAX_BYTES: u64 = 16 << 20;

/// Returns the objects below the root that can be read whole, by path. Each node lacks the parts that the
/// loss of another object changes, such as the number of names of a file.
pub fn readable(engine: &dyn Engine) -> BTreeMap<TreePath, TreeNode> {
    let mut found = BTreeMap::new();
    let mut seen = HashSet::from([engine.root()]);
    let mut waiting = vec![(engine.root(), TreePath::new())];
    let mut count = 0;
    while let Some((dir, path)) = waiting.pop() {
        let mut entries = Vec::new();
        // An error is ignored, because the entries before it are readable.
        let _ = engine.list(dir, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.id));
            count += 1;
            count < MAX_ENTRIES
        });
        for (name, id) in entries {
            let mut path = path.clone();
            path.push(name);
            let small = engine.attributes(id).is_ok_and(|attributes| attributes.size <= MAX_BYTES);
            let node = small.then(|| object(engine, id, TreeParts::ALL));
            if let Some(Ok(node)) = node {
                found.insert(path.clone(), by_itself(node));
            }
            if id.is_directory() && seen.insert(id) {
                waiting.push((id, path));
            }
        }
    }
    found
}

/// Returns the node without the parts that the loss of another object changes.
fn by_itself(node: TreeNode) -> TreeNode {
    let node = TreeNode { links: 0, same_as: None, ..node };
    if node.kind == eyrie_engine::Kind::Directory {
        let none = Time::default();
        return TreeNode { size: 0, modified: none, changed: none, ..node };
    }
    node
}
