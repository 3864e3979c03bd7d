//! Copies the tree that the root leads to.

use std::collections::HashMap;

use eyrie_medium::epoch::pin;

use super::copy::Place;
use super::source::{Object, Source};
use super::{Loss, Salvaged, words};
use crate::object::collection::Collection;
use crate::volume::Volume;
use crate::{Content, Engine, Error, Kind, ObjectId, Op, Result, Time};

/// The names from the root on.
type Path = Vec<Vec<u8>>;

/// An object that was copied.
struct Copied {
    id: ObjectId,
    /// Names that it had, and that it got.
    links: u32,
    names: u32,
    /// The first of them, where there should be others.
    path: Option<Path>,
}

/// An entry that was found.
struct Entry {
    dir: ObjectId,
    path: Path,
    object: Object,
}

/// An object that was made, but for what comes later: the entries of a directory, the times.
pub(super) struct Waiting {
    pub object: Object,
    pub id: ObjectId,
    pub path: Path,
}

/// A salvage that is under way.
pub(super) struct Salvage<'a> {
    pub from: Source<'a>,
    pub to: &'a dyn Engine,
    pub now: Time,
    pub done: Salvaged,
    copied: HashMap<ObjectId, Copied>,
    pub(super) waiting: Vec<Waiting>,
    /// Directories that are full, whose times come last.
    filled: Vec<Waiting>,
    /// Objects that have claimed their storage, and whether others had some of it before.
    claimed: HashMap<ObjectId, bool>,
    /// Objects that got a further name.
    linked: Vec<Waiting>,
    /// Files whose bytes others had before.
    contested: Vec<Entry>,
    /// Directories that say that they are in another than the one that names them.
    doubtful: Vec<Entry>,
}

impl<'a> Salvage<'a> {
    pub fn new(from: &'a Volume, to: &'a dyn Engine, now: Time) -> Salvage<'a> {
        Salvage {
            from: Source::new(from),
            to,
            now,
            done: Salvaged { directories: 1, ..Salvaged::default() },
            copied: HashMap::new(),
            waiting: Vec::new(),
            filled: Vec::new(),
            linked: Vec::new(),
            claimed: HashMap::new(),
            contested: Vec::new(),
            doubtful: Vec::new(),
        }
    }

    /// Notes a loss.
    pub fn lose(&mut self, path: &[Vec<u8>], what: &str) {
        self.done.losses.push(Loss { names: path.to_vec(), what: what.to_string() });
    }

    /// Whether an object has its place already.
    pub fn is_copied(&self, id: ObjectId) -> bool {
        self.copied.contains_key(&id)
    }

    /// Copies everything.
    pub fn everything(&mut self) -> Result<()> {
        self.root();
        self.fill()?;
        self.unnamed()?;
        let contested = std::mem::take(&mut self.contested);
        let was_full = std::mem::take(&mut self.done.is_full);
        for Entry { dir, path, object } in contested {
            self.lose(&path, "some of its bytes belong to another object, too");
            self.enter(dir, path, object)?;
        }
        self.done.is_full_of_copies = std::mem::replace(&mut self.done.is_full, was_full);
        self.links();
        self.times()
    }

    /// Sets what further names and entries have changed.
    fn times(&mut self) -> Result<()> {
        for Waiting { object, id, path } in std::mem::take(&mut self.linked) {
            let set = self.set_attributes(&object, id);
            self.unless_full(&path, set)?;
        }
        for Waiting { object, id, path } in std::mem::take(&mut self.filled) {
            let object = {
                let _pin = pin();
                self.from.with_times(object)
            };
            let finished = self.finish(&object, id, &path);
            self.unless_full(&path, finished)?;
        }
        Ok(())
    }

    fn root(&mut self) {
        let found = {
            let _pin = pin();
            let root = self.from.volume.root();
            root.ok_or(Error::Invalid("there is none")).and_then(|root| self.from.object(root))
        };
        match found {
            Ok(object) => {
                self.claim(&object);
                let id = self.to.root();
                self.copied.insert(object.id, Copied { id, links: 1, names: 1, path: None });
                self.waiting.push(Waiting { object, id, path: Vec::new() });
            }
            Err(error) => self.lose(&[], &format!("the root directory is lost: {}", words(&error))),
        }
    }

    /// Fills the directories that wait for it, and those that this finds.
    pub fn fill(&mut self) -> Result<()> {
        self.fill_certain()?;
        while let Some(Entry { dir, path, object }) = self.doubtful.pop() {
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
                let collection = Collection::new(self.from.volume, dir.object.root);
                collection.salvage(&mut |shown| match shown {
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
                let mut path = dir.path.clone();
                path.push(name);
                self.entry((dir.id, Some(dir.object.id)), path, id)?;
            }
            self.filled.push(dir);
        }
        Ok(())
    }

    /// Copies what an entry of the new directory `dir` names, or gives it another name. `parent` is the old directory, if a
    /// directory in it should say so.
    fn entry(&mut self, (dir, parent): (ObjectId, Option<ObjectId>), path: Path, id: ObjectId) -> Result<()> {
        if let Some(copied) = self.copied.get_mut(&id) {
            if id.is_directory() {
                self.lose(&path, "second name of a directory");
                return Ok(());
            }
            copied.names += 1;
            let (new, name) = (copied.id, path.last().map(Vec::as_slice).unwrap_or_default());
            let object = {
                let _pin = pin();
                self.from.object(id)?
            };
            if copied.names == 2 {
                self.linked.push(Waiting { object, id: new, path: path.clone() });
            }
            // No later than it was, so that the directory is not newer, either.
            let time = object.created;
            let linked = self.to.apply(&Op::Link { dir, name, id: new, time }).map(|_| ());
            return self.unless_full(&path, linked);
        }
        let found = {
            let _pin = pin();
            self.from.object(id)
        };
        match found {
            Ok(object) if id.is_directory() && object.parent != parent => {
                self.doubtful.push(Entry { dir, path, object });
            }
            Ok(object) if self.claim(&object) => self.contested.push(Entry { dir, path, object }),
            Ok(object) => self.enter(dir, path, object)?,
            Err(error) => self.lose(&path, &words(&error)),
        }
        Ok(())
    }

    /// Claims an object's storage for it; whether others had some of it before. Directories are copied all the same:
    /// their entries prove themselves.
    pub fn claim(&mut self, object: &Object) -> bool {
        let _pin = pin();
        let from = &self.from;
        let contested = self.claimed.entry(object.id).or_insert_with(|| from.claim(object));
        *contested && !object.id.is_directory()
    }

    /// Makes the object that an entry names.
    pub fn enter(&mut self, dir: ObjectId, path: Path, object: Object) -> Result<()> {
        if self.is_copied(object.id) {
            return self.entry((dir, None), path, object.id);
        }
        let place = Place { dir, name: path.last().map(Vec::as_slice).unwrap_or_default(), path: &path };
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
            Err(error) => return self.unless_full(&path, Err(error)),
        };
        match object.id.kind() {
            Kind::Directory => self.done.directories += 1,
            Kind::File => self.done.files += 1,
            _ => self.done.others += 1,
        }
        if !object.is_marked {
            self.lose(&path, "its creation time is lost: object header without its mark");
        }
        let links = if object.id.is_directory() { 1 } else { object.links };
        let kept = (links != 1).then(|| path.clone());
        self.copied.insert(object.id, Copied { id, links, names: 1, path: kept });
        if object.id.is_directory() {
            self.waiting.push(Waiting { object, id, path });
        }
        Ok(())
    }

    /// Makes an object of this kind by an Op.
    pub fn make<'o>(&self, kind: Kind, op: impl FnOnce(ObjectId) -> Op<'o>) -> Result<ObjectId> {
        let id = self.to.reserve(kind)?;
        match self.to.apply(&op(id)) {
            Ok(_) => Ok(id),
            Err(error) => {
                self.to.unreserve(id);
                Err(error)
            }
        }
    }

    /// Notes what could not be made; only a target that fails, or whose host is full, ends the salvage.
    pub fn unless_full(&mut self, path: &[Vec<u8>], result: Result<()>) -> Result<()> {
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

    /// Tells of names that are not there any more.
    fn links(&mut self) {
        let copied = std::mem::take(&mut self.copied);
        let mut missing: Vec<_> = copied
            .into_values()
            .filter(|copied| copied.names < copied.links)
            .filter_map(|copied| Some((copied.path?, copied.links - copied.names)))
            .collect();
        missing.sort();
        for (path, count) in missing {
            self.lose(
                &path,
                &format!("other names of it are lost, or its count of them was wrong ({count})"),
            );
        }
    }
}
