//! Finds and copies objects to which no readable entry leads.

use std::collections::HashSet;

use eyrie_medium::epoch::pin;

use super::LOST_AND_FOUND;
use super::source::DamagedObject;
use super::tree::Salvage;
use crate::{Content, Kind, ObjectId, Op, Owner, Result};

/// Numbers of the kinds of objects.
const KINDS: std::ops::RangeInclusive<u8> = 1..=7;

/// Returns the path of an object's copy in `lost+found`.
fn found_path(object: &DamagedObject) -> Vec<Vec<u8>> {
    vec![LOST_AND_FOUND.to_vec(), format!("#{}", object.id.raw()).into_bytes()]
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
    /// and the number of the object's id.
    pub(super) fn keep(&mut self, object: DamagedObject) -> Result<()> {
        let path = found_path(&object);
        if let Err(error) = self.check_content(&object) {
            return self.lose_unless_fault(&path, Err(error));
        }
        let dir = match self.directory() {
            Ok(dir) => dir,
            Err(error) => return self.lose_unless_fault(&path, Err(error)),
        };
        self.lose(&path, "its name is lost");
        self.enter(dir, path, object)?;
        self.done.found += u64::from(self.is_copied(object.id));
        Ok(())
    }

    /// Returns the directory `lost+found`. Creates the directory if the new volume has none.
    fn directory(&mut self) -> Result<ObjectId> {
        let dir = self.to.root();
        if let Some(id) = self.to.lookup(dir, LOST_AND_FOUND)?.filter(|id| id.is_directory()) {
            return Ok(id);
        }
        let Owner { uid, gid, .. } = self.to.owner(dir)?;
        let (owner, time) = (Owner { mode: 0o700, uid, gid }, self.now);
        let id = self.make(Kind::Directory, |id| Op::Create {
            dir,
            name: LOST_AND_FOUND,
            id,
            owner,
            content: Content::Empty,
            time,
        })?;
        self.done.directories += 1;
        Ok(id)
    }
}
