//! What can be read of a volume, sound or not.

use std::collections::{BTreeMap, HashSet};

use eyrie_engine::{Engine, Time};

use eyrie_sim::compare::{Include, Node, Path, object};

/// Most entries that are looked at.
const MOST_ENTRIES: usize = 4000;
/// Largest object that is read, in bytes: no base has a larger one.
const MOST_BYTES: u64 = 16 << 20;

/// Everything that can be read whole, by path: what an object is by itself, whatever names and neighbours it has.
pub fn readable(engine: &dyn Engine) -> BTreeMap<Path, Node> {
    let mut found = BTreeMap::new();
    let mut seen = HashSet::from([engine.root()]);
    let mut waiting = vec![(engine.root(), Path::new())];
    let mut count = 0;
    while let Some((dir, path)) = waiting.pop() {
        let mut entries = Vec::new();
        // What was shown before an error can be read.
        let _ = engine.list(dir, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.id));
            count += 1;
            count < MOST_ENTRIES
        });
        for (name, id) in entries {
            let mut path = path.clone();
            path.push(name);
            let small = engine.attributes(id).is_ok_and(|attributes| attributes.size <= MOST_BYTES);
            let node = small.then(|| object(engine, id, Include::ALL));
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

/// Without what the loss of another object changes.
fn by_itself(node: Node) -> Node {
    let node = Node { links: 0, same_as: None, ..node };
    if node.kind == eyrie_engine::Kind::Directory {
        let none = Time::default();
        return Node { size: 0, modified: none, changed: none, ..node };
    }
    node
}
