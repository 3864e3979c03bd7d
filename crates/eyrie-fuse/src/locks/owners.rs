//! The owners of locks of one mount.
//!
//! The kernel names an owner by a number: one for each table of descriptors (POSIX locks), and one for each
//! open file (locks of open files, and `flock`). The volume knows each owner by another number, because
//! numbers of two mounts may be equal. The same number of the kernel may name another owner after the end of
//! an owner, so an owner is remembered only while it may have locks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyrie::{LockOwner, ObjectId, OwnerClass};

/// The owners that may have locks.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<OwnerMaps>);

#[derive(Debug, Default)]
struct OwnerMaps {
    owners: HashMap<u64, Owner>,
    uses: HashMap<ObjectId, Vec<LockUse>>,
}

/// An owner that may have locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    /// Number in the volume.
    pub number: u64,
    /// Class of the owner's locks on ranges.
    pub class: OwnerClass,
    /// Number of its uses.
    uses: usize,
}

/// The fact that an owner has asked for a lock on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LockUse {
    /// Number of the owner in the kernel.
    pub owner: u64,
    /// The open file with which it asked.
    pub handle: u64,
}

impl Owner {
    /// True if this owner and `other` have the same number in the volume.
    pub(super) fn has_number_of(self, other: Owner) -> bool {
        self.number == other.number
    }

    /// Returns the owner of the locks on ranges.
    pub(super) fn of_ranges(self) -> LockOwner {
        LockOwner::local(self.class, self.number)
    }

    /// Returns the owner of the lock of flock(2).
    pub(super) fn of_flock(self) -> LockOwner {
        LockOwner::local(OwnerClass::OpenFile, self.number)
    }

    /// Returns this owner in the volume, in each class of owners.
    pub(super) fn both(self) -> [LockOwner; 2] {
        [OwnerClass::Process, OwnerClass::OpenFile].map(|class| LockOwner::local(class, self.number))
    }
}

impl OwnerMaps {
    /// Ends those uses of an owner on a file for which `ends` returns true. Returns the owner if it had such
    /// uses and has none left on the file.
    fn end(&mut self, id: ObjectId, number: u64, ends: impl Fn(&LockUse) -> bool) -> Option<Owner> {
        let uses = self.uses.get_mut(&id)?;
        let before = uses.len();
        uses.retain(|lock_use| lock_use.owner != number || !ends(lock_use));
        let ended = before - uses.len();
        let is_left = uses.iter().any(|lock_use| lock_use.owner == number);
        if uses.is_empty() {
            self.uses.remove(&id);
        }
        let owner = self.owners.get_mut(&number)?;
        owner.uses -= ended;
        let owner = *owner;
        if owner.uses == 0 {
            self.owners.remove(&number);
        }
        (ended > 0 && !is_left).then_some(owner)
    }
}

impl Owners {
    fn state(&self) -> MutexGuard<'_, OwnerMaps> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an owner that has asked for a lock on a file.
    pub(super) fn find(&self, id: ObjectId, number: u64) -> Option<Owner> {
        let state = self.state();
        let has_asked = state.uses.get(&id)?.iter().any(|lock_use| lock_use.owner == number);
        state.owners.get(&number).filter(|_| has_asked).copied()
    }

    /// Notes that an owner asks for a lock on a file. `new` returns its number in the volume and the class of
    /// its locks on ranges, if it has no lock use yet.
    pub(super) fn note_use(
        &self,
        id: ObjectId,
        lock_use: LockUse,
        new: impl FnOnce() -> (u64, OwnerClass),
    ) -> Owner {
        let mut state = self.state();
        let OwnerMaps { owners, uses } = &mut *state;
        let owner = owners.entry(lock_use.owner).or_insert_with(|| {
            let (number, class) = new();
            Owner { number, class, uses: 0 }
        });
        let of_file = uses.entry(id).or_default();
        if !of_file.contains(&lock_use) {
            of_file.push(lock_use);
            owner.uses += 1;
        }
        *owner
    }

    /// Ends the uses of an owner on a file. Returns the owner if it had some.
    pub(super) fn end(&self, id: ObjectId, number: u64) -> Option<Owner> {
        self.state().end(id, number, |_| true)
    }

    /// Ends the uses of an open file. Returns the owners that have no other use of the file.
    pub(super) fn end_all_of(&self, id: ObjectId, handle: u64) -> Vec<Owner> {
        let mut state = self.state();
        let uses = state.uses.get(&id).into_iter().flatten();
        let numbers: Vec<u64> =
            uses.filter(|lock_use| lock_use.handle == handle).map(|lock_use| lock_use.owner).collect();
        let end = |number| state.end(id, number, |lock_use| lock_use.handle == handle);
        numbers.into_iter().filter_map(end).collect()
    }

    /// True if an owner that is an open file, other than the owner `number`, may have locks on a file.
    pub(super) fn has_other_open_file(&self, id: ObjectId, number: u64) -> bool {
        let state = self.state();
        let mut others =
            state.uses.get(&id).into_iter().flatten().filter(|lock_use| lock_use.owner != number);
        others.any(|other| state.owners[&other.owner].class == OwnerClass::OpenFile)
    }

    /// Forgets all owners, and returns them with their files.
    pub(super) fn end_all(&self) -> Vec<(ObjectId, Owner)> {
        let OwnerMaps { owners, uses } = std::mem::take(&mut *self.state());
        let uses = uses.into_iter().flat_map(|(id, of_file)| of_file.into_iter().map(move |it| (id, it)));
        uses.filter_map(|(id, lock_use)| Some((id, *owners.get(&lock_use.owner)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use eyrie::Volume;

    use super::*;

    fn note_use(owners: &Owners, id: ObjectId, owner: u64, handle: u64) -> Owner {
        let new = || (LockOwner::number_in_mount(3), OwnerClass::Process);
        owners.note_use(id, LockUse { owner, handle }, new)
    }

    /// Returns two ids, of the root and of a file.
    fn ids() -> [ObjectId; 2] {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a place");
        let volume = Volume::create(place.path().join("volume"), 4 << 20).expect("a volume");
        let (nodes, root) = (volume.nodes(), eyrie::Credentials::root());
        let egg = nodes.make(&root, nodes.root(), b"egg", eyrie::Kind::File, 0o644, 0).expect("a file");
        [nodes.root(), egg.id]
    }

    #[test]
    fn owner_keeps_its_number_until_its_last_use_ends() {
        let (owners, [nest, egg]) = (Owners::default(), ids());
        let first = note_use(&owners, nest, 1, 10);
        assert_eq!(note_use(&owners, egg, 1, 11).number, first.number);
        assert_ne!(note_use(&owners, egg, 2, 12).number, first.number);
        assert_eq!(owners.end(nest, 1).map(|owner| owner.number), Some(first.number));
        assert_eq!((owners.end(nest, 1), owners.find(nest, 1)), (None, None));
        assert_eq!(owners.find(egg, 1).map(|owner| owner.number), Some(first.number));
        assert_eq!(owners.end_all_of(egg, 11).len(), 1);
        assert_eq!(owners.find(egg, 1), None);
        assert_ne!(note_use(&owners, egg, 1, 13).number, first.number);
        assert_eq!(owners.end_all().len(), 2);
        assert!(owners.end_all().is_empty());
    }

    #[test]
    fn release_ends_each_owner_that_used_only_this_open_file() {
        let (owners, [_, egg]) = (Owners::default(), ids());
        for (owner, handle) in [(1, 10), (1, 10), (1, 11), (2, 10), (3, 11)] {
            note_use(&owners, egg, owner, handle);
        }
        let second = owners.find(egg, 2).expect("a use");
        let ended = owners.end_all_of(egg, 10);
        assert!(ended.len() == 1 && ended[0].has_number_of(second), "{ended:?}");
        // The first owner has asked with another open file, too.
        assert!(owners.find(egg, 1).is_some() && owners.find(egg, 2).is_none());
        assert!(owners.find(egg, 3).is_some());
        assert!(owners.end_all_of(egg, 10).is_empty());
        assert_eq!(owners.end_all_of(egg, 11).len(), 2);
        assert!(owners.find(egg, 1).is_none() && owners.find(egg, 3).is_none());
    }
}
