//! Copies the tree below the root.

use std::collections::{HashMap, HashSet};

use eyrie_medium::epoch::pin;

use super::clones::CopiedPages;
use super::path::NamePath;
use super::source::{DamagedObject, DamagedVolume};
use super::{SalvageLoss, Salvaged, words};
use crate::object::collection::Collection;
use crate::volume::Volume;
use crate::{Content, Engine, Error, Kind, ObjectId, Op, Result, Time};

/// A copied object.
struct Copied {
    id: ObjectId,
    /// Link count in the old volume.
    links: u32,
    /// Number of names of the copy so far.
    names: u32,
    /// The first path, if the link count is not 1. It is kept for the report about missing names.
    path: Option<NamePath>,
}

/// An entry whose object is copied later.
struct FoundChild {
    dir: ObjectId,
    path: NamePath,
    object: DamagedObject,
}

/// A new object that is not finished: a directory without its entries, or an object without its final times.
pub(super) struct Waiting {
    pub object: DamagedObject,
    pub id: ObjectId,
    pub path: NamePath,
}

/// The name of a new object.
pub(super) struct NewName<'a> {
    pub dir: ObjectId,
    pub name: &'a [u8],
    /// The path, which ends with this name.
    pub path: &'a NamePath,
}

/// A salvage in progress.
pub(super) struct Salvage<'a> {
    pub from: DamagedVolume<'a>,
    pub to: &'a dyn Engine,
    pub now: Time,
    pub done: Salvaged,
    copied: HashMap<ObjectId, Copied>,
    pub(super) cloned: CopiedPages,
    pub(super) waiting: Vec<Waiting>,
    /// Directories whose entries were walked. Their times are set last.
    filled: Vec<Waiting>,
    /// Objects whose storage is marked. The value is the result of [`DamagedVolume::mark_storage`].
    storage_was_taken: HashMap<ObjectId, bool>,
    /// Objects that got a second name. The link changed their change time, which is restored at the end.
    linked: Vec<Waiting>,
    /// Objects other than directories for which [`Salvage::mark_storage`] returned true.
    contested: Vec<FoundChild>,
    /// Objects with a readable name, but with contents that cannot be copied. Their loss is recorded.
    refused: HashSet<ObjectId>,
    /// Directories whose header names another parent than the directory with the entry.
    doubtful: Vec<FoundChild>,
    /// The directory `lost+found` and its name. `None` until an object needs the directory.
    pub(super) lost_and_found: Option<(ObjectId, Vec<u8>)>,
}

impl<'a> Salvage<'a> {
    pub fn new(from: &'a Volume, to: &'a dyn Engine, now: Time) -> Salvage<'a> {
        Salvage {
            from: DamagedVolume::new(from),
            to,
            now,
            done: Salvaged { directories: 1, ..Salvaged::default() },
            copied: HashMap::new(),
            cloned: CopiedPages::default(),
            waiting: Vec::new(),
            filled: Vec::new(),
            linked: Vec::new(),
            storage_was_taken: HashMap::new(),
            contested: Vec::new(),
            refused: HashSet::new(),
            doubtful: Vec::new(),
            lost_and_found: None,
        }
    }

    /// Records a loss.
    pub fn lose(&mut self, path: &NamePath, what: &str) {
        self.done.losses.push(SalvageLoss { names: path.names(), what: what.to_string() });
    }

    /// True if an object is copied already.
    pub fn is_copied(&self, id: ObjectId) -> bool {
        self.copied.contains_key(&id)
    }

    /// Returns the objects that need no new name in `lost+found`: those that are copied already, contested
    /// ones, which are copied last, and those with a readable name that cannot be copied.
    pub fn named(&self) -> HashSet<ObjectId> {
        let contested = self.contested.iter().map(|child| child.object.id);
        self.copied.keys().chain(&self.refused).copied().chain(contested).collect()
    }

    /// Copies all readable objects.
    pub fn everything(&mut self) -> Result<()> {
        self.root();
        self.fill()?;
        self.unnamed()?;
        let contested = std::mem::take(&mut self.contested);
        // Contested objects come last, and a lack of room for them is reported in a field of its own.
        let was_full = std::mem::take(&mut self.done.is_full);
        let mut last = Vec::with_capacity(contested.len());
        for FoundChild { dir, path, object } in contested {
            self.lose(&path, "some of its bytes belong to another object, too");
            self.enter(dir, path, object)?;
            last.push(object);
        }
        // By now another object may have the name of a contested object.
        for object in last {
            if !self.is_copied(object.id) && !self.refused.contains(&object.id) {
                self.keep(object)?;
            }
        }
        self.done.is_full_of_copies = std::mem::replace(&mut self.done.is_full, was_full);
        self.links();
        self.times()
    }

    /// Restores the times that new names and entries have changed. Also copies the extended attributes of
    /// directories, and sets their mode and owner.
    fn times(&mut self) -> Result<()> {
        for Waiting { object, id, path } in std::mem::take(&mut self.linked) {
            let set = self.set_attributes(&object, id);
            self.lose_unless_fault(&path, set)?;
        }
        for Waiting { object, id, path } in std::mem::take(&mut self.filled) {
            let object = {
                let _pin = pin();
                self.from.with_times(object)
            };
            let finished = self.finish(&object, id, &path);
            self.lose_unless_fault(&path, finished)?;
        }
        Ok(())
    }

    fn root(&mut self) {
        let found = {
            let _pin = pin();
            let root = self.from.volume.root();
            root.ok_or(Error::Invalid("the superblock names no root")).and_then(|root| self.from.object(root))
        };
        match found {
            Ok(object) => {
                self.mark_storage(&object);
                let id = self.to.root();
                self.copied.insert(object.id, Copied { id, links: 1, names: 1, path: None });
                self.waiting.push(Waiting { object, id, path: NamePath::ROOT });
            }
            Err(error) => {
                self.lose(&NamePath::ROOT, &format!("the root directory is lost: {}", words(&error)))
            }
        }
    }

    /// Copies the entries of the waiting directories, and of the directories in them.
    pub fn fill(&mut self) -> Result<()> {
        self.fill_certain()?;
        // A doubtful directory waits until no other directory is left, because the parent that its header
        // names may still be found.
        while let Some(FoundChild { dir, path, object }) = self.doubtful.pop() {
            self.enter(dir, path, object)?;
            self.fill_certain()?;
        }
        Ok(())
    }

    fn fill_certain(&mut self) -> Result<()> {
        while let Some(dir) = self.waiting.pop() {
            let (mut entries, mut errors) = (Vec::new(), Vec::new());
            {
                let _pin = pin();
                let collection = Collection::new(self.from.volume, dir.object.file.root);
                collection.salvage(&self.from.hash_seeds, &mut |shown| match shown {
                    Ok((name, id)) => entries.push((name.to_vec(), id)),
                    Err(error) => errors.push(error),
                });
            }
            if let Some(first) = errors.first() {
                let what =
                    format!("entries may be lost or misnamed ({} places): {}", errors.len(), words(first));
                self.lose(&dir.path, &what);
            }
            for (name, id) in entries {
                self.entry((dir.id, Some(dir.object.id)), dir.path.join(name), id)?;
            }
            self.filled.push(dir);
        }
        Ok(())
    }

    /// Copies the object that an entry names into the new directory `dir`. If the object is copied already,
    /// its copy gets another name, unless it is a directory. Doubtful directories and contested objects are
    /// copied later. `parent` is the old directory with the entry. If the object is a directory, its header
    /// should name `parent`.
    fn entry(
        &mut self,
        (dir, parent): (ObjectId, Option<ObjectId>),
        path: NamePath,
        id: ObjectId,
    ) -> Result<()> {
        if let Some(copied) = self.copied.get_mut(&id) {
            if id.is_directory() {
                self.lose(&path, "the directory was copied under another of its names");
                return Ok(());
            }
            copied.names += 1;
            let (new, name) = (copied.id, path.last());
            let object = {
                let _pin = pin();
                self.from.object(id)?
            };
            if copied.names == 2 {
                self.linked.push(Waiting { object, id: new, path: path.clone() });
            }
            // The latest stamp in the new directory becomes the change time of the directory. Therefore the
            // Op uses the creation time of the object, which is no later than the last change of the old
            // directory.
            let time = object.created;
            let linked = self.to.apply_above_limits(&Op::Link { dir, name, id: new, time }).map(|_| ());
            return self.lose_unless_fault(&path, linked);
        }
        let found = {
            let _pin = pin();
            self.from.object(id)
        };
        match found {
            Ok(object) if id.is_directory() && object.parent != parent => {
                self.doubtful.push(FoundChild { dir, path, object });
            }
            Ok(object) if self.mark_storage(&object) => self.contested.push(FoundChild { dir, path, object }),
            Ok(object) => self.enter(dir, path, object)?,
            Err(error) => self.lose(&path, &words(&error)),
        }
        Ok(())
    }

    /// Marks the storage of an object. Returns true if an earlier object has some of this storage, or if some
    /// of it is in a header chunk. Always returns false for a directory, because each of its entries is
    /// checked on its own.
    pub fn mark_storage(&mut self, object: &DamagedObject) -> bool {
        let _pin = pin();
        let from = &self.from;
        let contested = self.storage_was_taken.entry(object.id).or_insert_with(|| from.mark_storage(object));
        *contested && !object.id.is_directory()
    }

    /// Copies `object` into the new directory `dir`, under the last name of `path`. If the object is a
    /// directory, `fill` copies its entries later. If the object is copied already, its copy gets another
    /// name, unless it is a directory.
    pub fn enter(&mut self, dir: ObjectId, path: NamePath, object: DamagedObject) -> Result<()> {
        if self.is_copied(object.id) {
            return self.entry((dir, None), path, object.id);
        }
        let place = NewName { dir, name: path.last(), path: &path };
        let made = if object.id.is_directory() {
            self.make(Kind::Directory, |id| {
                let (owner, content, time) = (object.owner(), Content::Empty, object.created);
                Op::Create { dir, name: place.name, id, owner, content, time }
            })
        } else {
            self.copy_object(&object, &place)
        };
        let id = match made {
            Ok(id) => id,
            Err(error) => {
                // If another object has this name, this object is not refused, so `unnamed` or `everything`
                // later copies it into `lost+found`.
                if !matches!(error, Error::Exists) {
                    self.refused.insert(object.id);
                }
                return self.lose_unless_fault(&path, Err(error));
            }
        };
        match object.id.kind() {
            Kind::Directory => self.done.directories += 1,
            Kind::File => self.done.files += 1,
            _ => self.done.others += 1,
        }
        if !object.has_magic {
            self.lose(&path, "its creation time is lost: object header with a wrong magic number or kind");
        }
        let links = if object.id.is_directory() { 1 } else { object.links };
        let kept = (links != 1).then(|| path.clone());
        self.copied.insert(object.id, Copied { id, links, names: 1, path: kept });
        if object.id.is_directory() {
            self.waiting.push(Waiting { object, id, path });
        }
        Ok(())
    }

    /// Creates an object of this kind by an Op.
    pub fn make<'o>(&self, kind: Kind, op: impl FnOnce(ObjectId) -> Op<'o>) -> Result<ObjectId> {
        let id = self.to.reserve(kind)?;
        match self.to.apply_above_limits(&op(id)) {
            Ok(_) => Ok(id),
            Err(error) => {
                self.to.unreserve(id);
                Err(error)
            }
        }
    }

    /// Records a failed copy as a loss. A fault of the new volume's medium, which includes a full host, is
    /// returned and ends the salvage.
    pub fn lose_unless_fault(&mut self, path: &NamePath, result: Result<()>) -> Result<()> {
        match result {
            Err(error @ Error::Fault(_)) => Err(error),
            Err(error) => {
                self.done.is_full |= error.is_full();
                self.lose(path, &words(&error));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Records a loss for each object that has fewer names in the new volume than its link count says.
    fn links(&mut self) {
        let copied = std::mem::take(&mut self.copied);
        let mut missing: Vec<_> = copied
            .into_values()
            .filter(|copied| copied.names < copied.links)
            .filter_map(|copied| Some((copied.path?, copied.links - copied.names)))
            .map(|(path, count)| (path.names(), path, count))
            .collect();
        missing.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        for (_, path, count) in missing {
            self.lose(
                &path,
                &format!("other names of the object are lost ({count}), or its link count was wrong"),
            );
        }
    }
}
