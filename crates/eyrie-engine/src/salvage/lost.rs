//! Finds and copies objects to which no readable entry leads.

use std::collections::HashSet;

use eyrie_medium::epoch::pin;

use super::LOST_AND_FOUND;
use super::path::NamePath;
use super::source::DamagedObject;
use super::tree::Salvage;
use crate::{Content, Kind, ObjectId, Op, Owner, Result};

/// Numbers of the kinds of objects.
const KINDS: std::ops::RangeInclusive<u8> = 1..=7;

/// Returns the name of an object's copy in `lost+found`, if no other object has this name.
fn found_name(object: &DamagedObject) -> Vec<u8> {
    format!("#{}", object.id.raw()).into_bytes()
}

/// Returns the path of an object's copy in `lost+found`, if no other object has this path.
fn found_path(object: &DamagedObject) -> NamePath {
    NamePath::ROOT.join(LOST_AND_FOUND.to_vec()).join(found_name(object))
}

impl Salvage<'_> {
    /// Copies the objects for which the walk from the root has found no name. A search of the header chunks
    /// finds these objects. Directories are copied first, an outer directory before the directories in it.
    pub fn unnamed(&mut self) -> Result<()> {
        let objects = self.nameless();
        let ids: HashSet<ObjectId> = objects.iter().map(|object| object.id).collect();
        let mut top = Vec::new();
        for object in objects.iter().filter(|object| object.id.is_directory()) {
            // A directory inside another unnamed directory is copied with the outer directory, if the entry
            // of the inner one is readable.
            if !object.parent.is_some_and(|parent| parent != object.id && ids.contains(&parent)) {
                top.push(*object);
            }
        }
        for directory in top {
            self.found(directory)?;
            self.fill()?;
        }
        // The outer directory of a remaining directory has no readable entry for it, or the remaining
        // directories contain each other.
        for object in objects.into_iter().filter(|object| object.id.is_directory()) {
            self.found(object)?;
            self.fill()?;
        }
        // The list is made again, because some of the other objects have got names from the copied
        // directories.
        for object in self.nameless() {
            self.found(object)?;
        }
        Ok(())
    }

    /// Returns the objects that look live and have no readable name.
    fn nameless(&self) -> Vec<DamagedObject> {
        let _pin = pin();
        let slots = self.from.volume.marks();
        let (named, mut found) = (self.named(), Vec::new());
        let is_nameless =
            |object: &DamagedObject| object.has_magic && !object.is_unlinked && !named.contains(&object.id);
        for slot in slots.unmarked_headers() {
            let mut ids = KINDS.filter_map(|kind| ObjectId::from_raw(slot.raw() | u64::from(kind)));
            found.extend(ids.find_map(|id| self.from.object(id).ok().filter(is_nameless)));
        }
        found
    }

    /// Copies a nameless object into `lost+found`, unless it is copied already, its content cannot be copied,
    /// or [`Salvage::mark_storage`] returns true for it.
    fn found(&mut self, object: DamagedObject) -> Result<()> {
        if self.is_copied(object.id) {
            return Ok(());
        }
        if self.mark_storage(&object) {
            self.lose(
                &found_path(&object),
                "left out: it has no name, and some of its bytes belong to other objects",
            );
            return Ok(());
        }
        self.keep(object)
    }

    /// Copies an object into `lost+found`, unless its content cannot be copied. The name of the copy is `#`
    /// and the number of the object's id, with another number if that name is taken.
    pub(super) fn keep(&mut self, object: DamagedObject) -> Result<()> {
        let place = self.check_content(&object).and_then(|()| self.free_place(&object));
        let (dir, path) = match place {
            Ok(place) => place,
            Err(error) => return self.lose_unless_fault(&found_path(&object), Err(error)),
        };
        self.lose(&path, "its name is lost");
        self.enter(dir, path, object)?;
        self.done.found += u64::from(self.is_copied(object.id));
        Ok(())
    }

    /// Returns the directory `lost+found`, and a path in it that no object has yet. An earlier repair may
    /// have left objects in this directory whose names have the same numbers.
    fn free_place(&mut self, object: &DamagedObject) -> Result<(ObjectId, NamePath)> {
        let (dir, dir_name) = self.directory()?;
        let (name, _) = self.numbered(dir, &found_name(object), |_| false)?;
        Ok((dir, NamePath::ROOT.join(dir_name).join(name)))
    }

    /// Returns the directory `lost+found` and its name. Creates the directory if the new volume has none. If
    /// another kind of object has this name, the name gets a number.
    fn directory(&mut self) -> Result<(ObjectId, Vec<u8>)> {
        // The search below runs only once, because it tries all numbered names that other objects have.
        if let Some(found) = &self.lost_and_found {
            return Ok(found.clone());
        }
        let dir = self.to.root();
        let (name, found) = self.numbered(dir, LOST_AND_FOUND, ObjectId::is_directory)?;
        let id = match found {
            Some(id) => id,
            None => self.make_directory(dir, &name)?,
        };
        Ok(self.lost_and_found.insert((id, name)).clone())
    }

    /// Creates the directory `lost+found` in `dir`.
    fn make_directory(&mut self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let Owner { uid, gid, .. } = self.to.owner(dir)?;
        let (owner, time) = (Owner { mode: 0o700, uid, gid }, self.now);
        let id = self.make(Kind::Directory, |id| Op::Create {
            dir,
            name,
            id,
            owner,
            content: Content::Empty,
            time,
        })?;
        self.done.directories += 1;
        Ok(id)
    }

    /// Looks up `name`, `name-2`, `name-3` and so on in `dir`. Returns the first of them that is free or
    /// leads to an object that `is_right` accepts, and this object.
    fn numbered(
        &self,
        dir: ObjectId,
        name: &[u8],
        is_right: fn(ObjectId) -> bool,
    ) -> Result<(Vec<u8>, Option<ObjectId>)> {
        let (mut tried, mut number) = (name.to_vec(), 1);
        loop {
            let found = self.to.lookup(dir, &tried)?;
            if found.is_none_or(is_right) {
                return Ok((tried, found));
            }
            number += 1;
            tried = [name, format!("-{number}").as_bytes()].concat();
        }
    }
}
