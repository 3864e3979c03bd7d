//! Paths of objects in the new volume.

use std::rc::Rc;

/// The names that lead to an object, from the root on. The paths in a directory share the path of the
/// directory. With a copy of all names in each path, a chain of nested directories would take memory in
/// proportion to the square of its length.
#[derive(Clone)]
pub(super) struct NamePath(Option<Rc<PathStep>>);

/// The last name of a path, and the path of the directory with this name.
struct PathStep {
    dir: NamePath,
    name: Vec<u8>,
}

impl NamePath {
    /// The path of the root.
    pub const ROOT: NamePath = NamePath(None);

    /// Returns the path of a name in the directory that has this path.
    pub fn join(&self, name: Vec<u8>) -> NamePath {
        NamePath(Some(Rc::new(PathStep { dir: self.clone(), name })))
    }

    /// Returns the last name. It is empty for the root.
    pub fn last(&self) -> &[u8] {
        self.0.as_ref().map(|step| step.name.as_slice()).unwrap_or_default()
    }

    /// Returns all names, from the root on.
    pub fn names(&self) -> Vec<Vec<u8>> {
        let (mut names, mut path) = (Vec::new(), self);
        while let Some(step) = &path.0 {
            names.push(step.name.clone());
            path = &step.dir;
        }
        names.reverse();
        names
    }
}

impl Drop for NamePath {
    fn drop(&mut self) {
        // Without this loop, the drop of a long path would call itself for each name, and overflow the stack.
        let mut last = self.0.take();
        while let Some(mut step) = last.and_then(Rc::into_inner) {
            last = step.dir.0.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_path_is_dropped() {
        let mut paths = vec![NamePath::ROOT];
        for number in 0..100_000_u32 {
            let name = number.to_le_bytes().to_vec();
            paths.push(paths[paths.len() - 1].join(name));
        }
        let last = paths.pop().expect("the longest path");
        drop(paths);
        assert_eq!(last.last(), 99_999_u32.to_le_bytes());
        assert!((0..100_000_u32).map(|number| number.to_le_bytes().to_vec()).eq(last.names()));
    }

    #[test]
    fn paths_of_one_directory_differ_in_their_last_name() {
        let dir = NamePath::ROOT.join(b"nest".to_vec());
        let [egg, feather] = [&b"egg"[..], b"feather"].map(|name| dir.join(name.to_vec()));
        drop(dir);
        assert_eq!(egg.names(), [&b"nest"[..], b"egg"]);
        assert_eq!(feather.names(), [&b"nest"[..], b"feather"]);
        assert!(NamePath::ROOT.names().is_empty() && NamePath::ROOT.last().is_empty());
    }
}
