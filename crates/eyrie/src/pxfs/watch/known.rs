//! The directories that a watch reports, and the names of the objects in them.
//!
//! Notices name an object, or a directory and a name. A watch has to know the rest of the path. It learns
//! entries from a listing, and from each notice of an entry. A listing may be newer than a notice that the
//! watch takes later. Such a notice replaces the known entry with an older one. But each later change of the
//! entry has a notice of its own. After the last notice of an entry, the known entry is the entry of the
//! volume. So a listing needs no lock that stops changes or notices.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use eyrie_engine::ObjectId;
use smallvec::SmallVec;

use crate::names;

/// An entry: its directory, and the name that the directory stores.
type EntryPlace = (ObjectId, Arc<[u8]>);

/// Maximum number of entries in a list of [`EntryPlaces`].
const MOST_LISTED: usize = 16;

/// The known entries that name one object. Most objects have one name. But a file may have a million names,
/// and the removal of one name must not search all the others.
#[derive(Debug)]
enum EntryPlaces {
    /// At most [`MOST_LISTED`] entries.
    Listed(SmallVec<[EntryPlace; 1]>),
    Sorted(BTreeSet<EntryPlace>),
}

impl EntryPlaces {
    fn new() -> EntryPlaces {
        EntryPlaces::Listed(SmallVec::new())
    }

    /// Adds an entry, which is not among these yet.
    fn add(&mut self, place: EntryPlace) {
        match self {
            EntryPlaces::Listed(list) if list.len() < MOST_LISTED => list.push(place),
            EntryPlaces::Listed(list) => {
                *self = EntryPlaces::Sorted(std::mem::take(list).into_iter().chain([place]).collect());
            }
            EntryPlaces::Sorted(set) => _ = set.insert(place),
        }
    }

    fn remove(&mut self, place: &EntryPlace) {
        match self {
            EntryPlaces::Listed(list) => list.retain(|other| other != place),
            EntryPlaces::Sorted(set) => _ = set.remove(place),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &EntryPlace> {
        let (list, set) = match self {
            EntryPlaces::Listed(list) => (&list[..], None),
            EntryPlaces::Sorted(set) => (&[][..], Some(set)),
        };
        list.iter().chain(set.into_iter().flatten())
    }
}

/// The watched directories, and the entries of them that the watch needs.
#[derive(Debug)]
pub(super) struct KnownTree {
    root: ObjectId,
    dirs: HashMap<ObjectId, HashMap<Arc<[u8]>, ObjectId>>,
    /// The known entries that name each object. The map has only objects with at least one such entry.
    places: HashMap<ObjectId, EntryPlaces>,
}

impl KnownTree {
    /// Makes a tree that has only its root, with no known entry.
    pub(super) fn new(root: ObjectId) -> KnownTree {
        KnownTree { root, dirs: HashMap::from([(root, HashMap::new())]), places: HashMap::new() }
    }

    pub(super) fn root(&self) -> ObjectId {
        self.root
    }

    /// True if the watch reports the entries of this directory.
    pub(super) fn watches(&self, dir: ObjectId) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// Watches another directory. Returns false if it is watched already.
    pub(super) fn add_directory(&mut self, dir: ObjectId) -> bool {
        let is_new = !self.watches(dir);
        if is_new {
            self.dirs.insert(dir, HashMap::new());
        }
        is_new
    }

    /// Notes that an entry of a watched directory names this object.
    pub(super) fn place(&mut self, dir: ObjectId, name: &[u8], id: ObjectId) {
        if self.dirs.get(&dir).is_some_and(|entries| entries.get(name) == Some(&id)) {
            return;
        }
        self.unplace(dir, name);
        if let Some(entries) = self.dirs.get_mut(&dir) {
            let name: Arc<[u8]> = name.into();
            entries.insert(Arc::clone(&name), id);
            self.places.entry(id).or_insert_with(EntryPlaces::new).add((dir, name));
        }
    }

    /// Notes that an entry does not exist any more. Returns the object that it named, if the entry was known.
    pub(super) fn unplace(&mut self, dir: ObjectId, name: &[u8]) -> Option<ObjectId> {
        let (name, id) = self.dirs.get_mut(&dir)?.remove_entry(name)?;
        self.remove_place(id, &(dir, name));
        Some(id)
    }

    fn remove_place(&mut self, id: ObjectId, place: &EntryPlace) {
        if let Some(places) = self.places.get_mut(&id) {
            places.remove(place);
            if places.iter().next().is_none() {
                self.places.remove(&id);
            }
        }
    }

    /// True if a known entry names this object.
    pub(super) fn has(&self, id: ObjectId) -> bool {
        self.places.contains_key(&id)
    }

    /// Forgets a directory and everything below it, unless a known entry names the directory. The root stays.
    pub(super) fn forget_unnamed(&mut self, dir: ObjectId) {
        let mut unnamed = vec![dir];
        while let Some(dir) = unnamed.pop() {
            if dir == self.root || self.has(dir) {
                continue;
            }
            for (name, id) in self.dirs.remove(&dir).unwrap_or_default() {
                self.remove_place(id, &(dir, name));
                unnamed.push(id);
            }
        }
    }

    /// Returns the known entries that name an object.
    pub(super) fn places(&self, id: ObjectId) -> SmallVec<[EntryPlace; 1]> {
        self.places.get(&id).map(|places| places.iter().cloned().collect()).unwrap_or_default()
    }

    /// Returns the path of an entry of a watched directory, relative to the root. `None` if the known entries
    /// do not lead from the root to the directory, which is possible while notices are older than a listing.
    pub(super) fn path(&self, dir: ObjectId, name: &[u8]) -> Option<PathBuf> {
        let mut parts = vec![names::encode(name).into_owned()];
        let mut at = dir;
        while at != self.root {
            // Entries of several moments may form a cycle.
            if parts.len() > self.dirs.len() {
                return None;
            }
            let (parent, name) = self.places.get(&at)?.iter().next()?;
            parts.push(names::encode(name).into_owned());
            at = *parent;
        }
        Some(parts.into_iter().rev().map(OsString::from_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use eyrie_engine::Kind;

    use super::*;

    fn dir(number: u64) -> ObjectId {
        ObjectId::new(number * 256, Kind::Directory)
    }

    fn file(number: u64) -> ObjectId {
        ObjectId::new(number * 256, Kind::File)
    }

    #[test]
    fn a_moved_directory_keeps_what_is_below_it() {
        let mut known = KnownTree::new(dir(1));
        known.place(dir(1), b"a", dir(2));
        assert!(known.add_directory(dir(2)) && !known.add_directory(dir(2)));
        known.place(dir(2), b"b", file(3));
        assert_eq!(known.path(dir(2), b"b").as_deref(), Some(Path::new("a/b")));

        assert_eq!(known.unplace(dir(1), b"a"), Some(dir(2)));
        assert_eq!(known.path(dir(2), b"b"), None);
        known.place(dir(1), b"c", dir(2));
        known.forget_unnamed(dir(2));
        assert_eq!(known.path(dir(2), b"b").as_deref(), Some(Path::new("c/b")));

        known.unplace(dir(1), b"c");
        known.forget_unnamed(dir(2));
        known.forget_unnamed(dir(1));
        assert!(!known.watches(dir(2)) && known.watches(dir(1)));
        assert!(known.places.is_empty() && known.dirs[&dir(1)].is_empty());
    }

    #[test]
    fn an_object_has_each_of_its_names_once() {
        let mut known = KnownTree::new(dir(1));
        known.place(dir(1), b"a", file(2));
        known.place(dir(1), b"b", file(2));
        known.place(dir(1), b"b", file(2));
        assert_eq!(known.places(file(2)).len(), 2);
        known.place(dir(1), b"a", file(3));
        assert_eq!(known.places(file(2)).len(), 1);
        assert!(known.unplace(dir(1), b"missing").is_none());
        known.place(dir(9), b"unwatched", file(4));
        assert!(!known.has(file(4)));
    }

    #[test]
    fn many_names_of_one_file_are_forgotten_quickly() {
        const NAMES: u32 = 200_000;
        for forget_directory in [false, true] {
            let mut known = KnownTree::new(dir(1));
            known.place(dir(1), b"a", dir(2));
            known.add_directory(dir(2));
            (0..NAMES).for_each(|number| known.place(dir(2), &number.to_le_bytes(), file(3)));
            assert_eq!(known.places(file(3)).len(), NAMES as usize);
            // With a list, each name would take a look at all others.
            assert!(matches!(known.places[&file(3)], EntryPlaces::Sorted(_)));
            if forget_directory {
                known.unplace(dir(1), b"a");
                known.forget_unnamed(dir(2));
            } else {
                for number in 0..NAMES {
                    assert_eq!(known.unplace(dir(2), &number.to_le_bytes()), Some(file(3)));
                }
            }
            assert!(!known.has(file(3)) && known.watches(dir(2)) != forget_directory);
        }
    }

    #[test]
    fn a_cycle_of_old_and_new_entries_has_no_path() {
        let mut known = KnownTree::new(dir(1));
        for number in [2, 3] {
            known.add_directory(dir(number));
        }
        known.place(dir(2), b"b", dir(3));
        known.place(dir(3), b"a", dir(2));
        assert_eq!(known.path(dir(2), b"x"), None);
        known.unplace(dir(3), b"a");
        known.forget_unnamed(dir(2));
        assert!(!known.watches(dir(3)));
    }
}
