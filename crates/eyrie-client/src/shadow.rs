//! The shadow: the state after the entries of a log that the service has not applied yet, as far as this
//! client needs it to answer its own calls.
//!
//! The shadow knows the names that entries change, and the sizes, owners and generations of files. Everything
//! else about an object with such an entry is read from the volume, after the service has applied the entry.
//!
//! The map of objects and the map of names have a few items for each entry that was not applied at the latest
//! append. A list has the hash of each item and the position of its entry, in the order of the entries. Once
//! an entry is applied, the client finds the items of the entry by these two numbers, and forgets them.

use std::collections::VecDeque;

use eyrie_engine::{ObjectId, Owner};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An object that an entry has made.
#[derive(Clone, Copy)]
pub struct MadeObject {
    pub owner: Owner,
    pub generation: u64,
}

/// An object that an entry changes. For a directory, the entry changes a name in it.
struct PendingObject {
    id: ObjectId,
    /// Position after the last such entry.
    end: u64,
    /// Size of a file after that entry, in bytes. `None` if no entry changes its bytes.
    size: Option<u64>,
    /// `Some` if an entry has made the object.
    made: Option<MadeObject>,
    /// True if an entry has removed a name of the object.
    is_removed: bool,
}

/// A name that an entry changes.
struct PendingName {
    dir: ObjectId,
    /// Most names fit in this value and need no allocation.
    name: SmallVec<[u8; 32]>,
    /// Position after the last such entry.
    end: u64,
    /// The object that has the name after that entry.
    id: Option<ObjectId>,
}

/// The effect of an entry.
#[derive(Clone, Copy)]
pub enum Effect<'a> {
    /// The entry changes the bytes, the size or the times of a file.
    File { id: ObjectId, size: Option<u64> },
    /// The entry makes an object.
    Made { dir: ObjectId, name: &'a [u8], id: ObjectId, size: u64, made: MadeObject },
    /// The entry removes a name.
    Removed { dir: ObjectId, name: &'a [u8], id: ObjectId },
    /// The entry moves a name, which may have belonged to the object `replaced`.
    Moved { from: (ObjectId, &'a [u8]), to: (ObjectId, &'a [u8]), id: ObjectId, replaced: Option<ObjectId> },
}

impl Effect<'_> {
    /// True if the entry changes a name.
    pub fn is_of_names(&self) -> bool {
        !matches!(self, Effect::File { .. })
    }
}

/// The place of an item in a map, and the position of the entry that has added or changed the item.
struct Item {
    /// Position after the entry.
    end: u64,
    hash: u64,
    is_name: bool,
}

/// See the [module](self).
#[derive(Default)]
pub struct Shadow {
    objects: HashTable<PendingObject>,
    names: HashTable<PendingName>,
    /// The items of both maps, in the order of the entries.
    order: VecDeque<Item>,
}

fn hash_of_object(id: ObjectId) -> u64 {
    // The product spreads the bits, and the table takes its bits from both ends of the hash.
    let product = id.raw().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

fn hash_of_name(dir: ObjectId, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, dir.raw())
}

impl Shadow {
    /// Forgets everything that the service has applied.
    pub fn forget(&mut self, applied: u64) {
        while let Some(&Item { end, hash, is_name }) = self.order.front().filter(|item| item.end <= applied) {
            self.order.pop_front();
            // A later entry may have changed the same object or name. The item of that entry comes later.
            if is_name {
                let is_same = |it: &PendingName| it.end == end && hash_of_name(it.dir, &it.name) == hash;
                if let Ok(found) = self.names.find_entry(hash, is_same) {
                    found.remove();
                }
            } else {
                let is_same = |it: &PendingObject| it.end == end && hash_of_object(it.id) == hash;
                if let Ok(found) = self.objects.find_entry(hash, is_same) {
                    found.remove();
                }
            }
        }
    }

    /// Adds the effect of the entry that ends at this position.
    pub fn add(&mut self, end: u64, effect: &Effect<'_>) {
        match *effect {
            Effect::File { id, size } => {
                let pending = self.set_object(end, id);
                pending.size = size.or(pending.size);
            }
            Effect::Made { dir, name, id, size, made } => {
                let pending = self.set_object(end, id);
                (pending.size, pending.made, pending.is_removed) = (Some(size), Some(made), false);
                self.set_name(end, dir, name, Some(id));
            }
            Effect::Removed { dir, name, id } => {
                self.set_object(end, id).is_removed = true;
                self.set_name(end, dir, name, None);
            }
            Effect::Moved { from, to, id, replaced } => {
                self.set_object(end, id);
                if let Some(replaced) = replaced {
                    self.set_object(end, replaced).is_removed = true;
                }
                self.set_name(end, from.0, from.1, None);
                self.set_name(end, to.0, to.1, Some(id));
            }
        }
    }

    fn set_object(&mut self, end: u64, id: ObjectId) -> &mut PendingObject {
        let hash = hash_of_object(id);
        self.order.push_back(Item { end, hash, is_name: false });
        let rehash = |pending: &PendingObject| hash_of_object(pending.id);
        let entry = self.objects.entry(hash, |pending| pending.id == id, rehash);
        let pending =
            entry.or_insert(PendingObject { id, end, size: None, made: None, is_removed: false }).into_mut();
        pending.end = end;
        pending
    }

    fn set_name(&mut self, end: u64, dir: ObjectId, name: &[u8], id: Option<ObjectId>) {
        self.set_object(end, dir);
        let hash = hash_of_name(dir, name);
        self.order.push_back(Item { end, hash, is_name: true });
        let is_same = |pending: &PendingName| pending.dir == dir && *pending.name == *name;
        match self.names.entry(hash, is_same, |pending| hash_of_name(pending.dir, &pending.name)) {
            Entry::Occupied(mut found) => (found.get_mut().end, found.get_mut().id) = (end, id),
            Entry::Vacant(place) => _ = place.insert(PendingName { dir, name: name.into(), end, id }),
        }
    }

    fn object(&self, id: ObjectId) -> Option<&PendingObject> {
        self.objects.find(hash_of_object(id), |pending| pending.id == id)
    }

    /// Returns the position after the last entry that changes the object. `None` if there is none.
    pub fn end_of(&self, id: ObjectId) -> Option<u64> {
        self.object(id).map(|pending| pending.end)
    }

    /// Returns the size of a file after all entries. `None` if no entry that is not applied changes it.
    pub fn size_of(&self, id: ObjectId, applied: u64) -> Option<u64> {
        self.object(id).filter(|pending| pending.end > applied)?.size
    }

    /// Returns an object that an entry has made, if an entry that changes it is not applied yet.
    pub fn made(&self, id: ObjectId, applied: u64) -> Option<MadeObject> {
        self.object(id).filter(|pending| pending.end > applied)?.made
    }

    /// True if an entry that is not applied yet may have removed the last name of an object.
    pub fn is_removed(&self, id: ObjectId, applied: u64) -> bool {
        self.object(id).is_some_and(|pending| pending.end > applied && pending.is_removed)
    }

    /// Returns the object that a name has after all entries. The outer `None` means that all entries that
    /// change the name are applied.
    pub fn name(&self, dir: ObjectId, name: &[u8], applied: u64) -> Option<Option<ObjectId>> {
        let is_same = |pending: &PendingName| pending.dir == dir && *pending.name == *name;
        let pending = self.names.find(hash_of_name(dir, name), is_same)?;
        (pending.end > applied).then_some(pending.id)
    }
}
