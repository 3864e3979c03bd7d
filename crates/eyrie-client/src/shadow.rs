//! The shadow: the state after the entries of a log that the service has not applied yet, as far as this
//! client needs it to answer its own calls.
//!
//! The shadow knows the names that entries change, and the sizes, owners and generations of files. Everything
//! else about an object with such an entry is read from the volume, after the service has applied the entry.

use std::collections::{HashMap, VecDeque};

use eyrie_engine::{ObjectId, Owner};
use smallvec::SmallVec;

/// A name in a directory. Most names have no more bytes than fit in place.
type NameKey = (ObjectId, SmallVec<[u8; 32]>);

/// An object that an entry has made.
#[derive(Clone, Copy)]
pub struct MadeObject {
    pub owner: Owner,
    pub generation: u64,
    /// True if a later entry has removed a name of the object.
    pub is_removed: bool,
}

/// An object that an entry changes. For a directory, the entry changes a name in it.
#[derive(Clone, Copy)]
struct PendingObject {
    /// Position after the last such entry.
    end: u64,
    /// Size of a file after that entry, in bytes. `None` if no entry changes its bytes.
    size: Option<u64>,
    /// `Some` if an entry has made the object.
    made: Option<MadeObject>,
}

/// A name that an entry changes.
#[derive(Clone, Copy)]
struct PendingName {
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

/// See the [module](self).
#[derive(Default)]
pub struct Shadow {
    objects: HashMap<ObjectId, PendingObject>,
    names: HashMap<NameKey, PendingName>,
    /// The keys of both maps, in the order of the entries.
    order: VecDeque<(u64, ShadowKey)>,
}

enum ShadowKey {
    Object(ObjectId),
    Name(NameKey),
}

impl Shadow {
    /// Forgets everything that the service has applied.
    pub fn forget(&mut self, applied: u64) {
        while self.order.front().is_some_and(|&(end, _)| end <= applied) {
            let Some((end, key)) = self.order.pop_front() else { return };
            // A later entry may have changed the same object or name.
            match key {
                ShadowKey::Object(id) => {
                    if self.objects.get(&id).is_some_and(|pending| pending.end == end) {
                        self.objects.remove(&id);
                    }
                }
                ShadowKey::Name(key) => {
                    if self.names.get(&key).is_some_and(|pending| pending.end == end) {
                        self.names.remove(&key);
                    }
                }
            }
        }
    }

    /// Adds the effect of the entry that ends at this position.
    pub fn add(&mut self, end: u64, effect: &Effect<'_>) {
        match *effect {
            Effect::File { id, size } => self.set_object(end, id, |pending| {
                pending.size = size.or(pending.size);
            }),
            Effect::Made { dir, name, id, size, made } => {
                self.set_object(end, id, |pending| (pending.size, pending.made) = (Some(size), Some(made)));
                self.set_name(end, (dir, name), Some(id));
            }
            Effect::Removed { dir, name, id } => {
                self.remove_name_of(end, id);
                self.set_name(end, (dir, name), None);
            }
            Effect::Moved { from, to, id, replaced } => {
                self.set_object(end, id, |_| {});
                if let Some(replaced) = replaced {
                    self.remove_name_of(end, replaced);
                }
                self.set_name(end, from, None);
                self.set_name(end, to, Some(id));
            }
        }
    }

    fn set_object(&mut self, end: u64, id: ObjectId, change: impl FnOnce(&mut PendingObject)) {
        let pending = self.objects.entry(id).or_insert(PendingObject { end, size: None, made: None });
        pending.end = end;
        change(pending);
        self.order.push_back((end, ShadowKey::Object(id)));
    }

    fn remove_name_of(&mut self, end: u64, id: ObjectId) {
        self.set_object(end, id, |pending| {
            if let Some(made) = &mut pending.made {
                made.is_removed = true;
            }
        });
    }

    fn set_name(&mut self, end: u64, (dir, name): (ObjectId, &[u8]), id: Option<ObjectId>) {
        self.set_object(end, dir, |_| {});
        let key: NameKey = (dir, name.into());
        self.names.insert(key.clone(), PendingName { end, id });
        self.order.push_back((end, ShadowKey::Name(key)));
    }

    /// Returns the position after the last entry that changes the object. `None` if there is none.
    pub fn end_of(&self, id: ObjectId) -> Option<u64> {
        self.objects.get(&id).map(|pending| pending.end)
    }

    /// Returns the size of a file after all entries. `None` if all entries that change it are applied.
    pub fn size_of(&self, id: ObjectId, applied: u64) -> Option<u64> {
        self.objects.get(&id).filter(|pending| pending.end > applied)?.size
    }

    /// Returns an object that an entry has made which is not applied yet, or that such an entry changes.
    pub fn made(&self, id: ObjectId, applied: u64) -> Option<MadeObject> {
        self.objects.get(&id).filter(|pending| pending.end > applied)?.made
    }

    /// Returns the object that a name has after all entries. The outer `None` means that all entries that
    /// change the name are applied.
    pub fn name(&self, dir: ObjectId, name: &[u8], applied: u64) -> Option<Option<ObjectId>> {
        let pending = self.names.get(&(dir, name.into()))?;
        (pending.end > applied).then_some(pending.id)
    }
}
