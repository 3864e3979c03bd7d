//! The state of the model: objects by id, and directories as maps of names.

use std::collections::BTreeMap;

use super::data::FileData;
use crate::op::NAME_MAX;
use crate::quota::QuotaTable;
use crate::{Attributes, Birth, Error, InodeFlags, Kind, ObjectId, Owner, Result, Time, Version};

/// The whole state of the model.
#[derive(Clone, Debug)]
pub(super) struct ModelState {
    pub(super) root: ObjectId,
    pub(super) objects: BTreeMap<ObjectId, ModelObject>,
    /// Place of the id that was reserved last.
    pub(super) reserved: u64,
    /// Number of objects ever created.
    pub(super) created: u64,
    /// The count of [`Engine::directory_changes`](crate::Engine::directory_changes).
    pub(super) directory_changes: u64,
    /// The limits of quotas, if the root has them as an extended attribute.
    pub(super) limits: Option<QuotaTable>,
}

/// Names and values of extended attributes.
pub(super) type ModelXattrs = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
pub(super) struct ModelObject {
    pub(super) owner: Owner,
    /// Number of entries that name the object. 1 for the root.
    pub(super) names: u32,
    /// True if the object has never had a name and may get one.
    pub(super) is_linkable: bool,
    /// Number of opens that are not yet closed.
    pub(super) opens: u64,
    pub(super) accessed: Time,
    pub(super) modified: Time,
    pub(super) changed: Time,
    pub(super) born: Time,
    pub(super) generation: u64,
    /// Number of changes of the bytes or entries.
    pub(super) changes: u64,
    pub(super) xattrs: ModelXattrs,
    pub(super) flags: InodeFlags,
    /// Project id of the tree to which the object belongs, or 0.
    pub(super) project: u32,
    pub(super) body: ModelBody,
}

#[derive(Clone, Debug)]
pub(super) enum ModelBody {
    /// A file, or the target of a symbolic link.
    Data(FileData),
    Directory(ModelDirectory),
    Device(u64),
    /// A pipe or a socket.
    Nothing,
}

/// The names of a directory, and the objects that they name. An entry keeps its cookie as long as its name
/// exists.
#[derive(Clone, Debug)]
pub(super) struct ModelDirectory {
    /// The directory that contains this one. `None` if this directory was removed.
    pub(super) parent: Option<ObjectId>,
    cookies: BTreeMap<Vec<u8>, u64>,
    slots: BTreeMap<u64, (Vec<u8>, ObjectId)>,
    last_cookie: u64,
}

impl ModelDirectory {
    pub(super) fn new(parent: ObjectId) -> ModelDirectory {
        ModelDirectory {
            parent: Some(parent),
            cookies: BTreeMap::new(),
            slots: BTreeMap::new(),
            last_cookie: 0,
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<ObjectId> {
        let cookie = self.cookies.get(name)?;
        self.slots.get(cookie).map(|(_, id)| *id)
    }

    /// Makes `name` refer to `id`. Adds the name if it does not exist.
    pub(super) fn set(&mut self, name: &[u8], id: ObjectId) {
        let cookie = *self.cookies.entry(name.to_vec()).or_insert_with(|| {
            self.last_cookie += 1;
            self.last_cookie
        });
        self.slots.insert(cookie, (name.to_vec(), id));
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(cookie) = self.cookies.remove(name) {
            self.slots.remove(&cookie);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the entries from `cookie` on, each with its own cookie.
    pub(super) fn entries_from(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], ObjectId)> {
        self.slots.range(cookie..).map(|(&cookie, (name, id))| (cookie, name.as_slice(), *id))
    }
}

impl ModelState {
    pub(super) fn object(&self, id: ObjectId) -> Result<&ModelObject> {
        self.objects.get(&id).ok_or(Error::Stale)
    }

    pub(super) fn object_mut(&mut self, id: ObjectId) -> Result<&mut ModelObject> {
        self.objects.get_mut(&id).ok_or(Error::Stale)
    }

    pub(super) fn directory(&self, id: ObjectId) -> Result<&ModelDirectory> {
        if !id.is_directory() {
            return Err(Error::NotDirectory);
        }
        match &self.object(id)?.body {
            ModelBody::Directory(directory) => Ok(directory),
            _ => unreachable!("the kind in an id is the kind of its object"),
        }
    }

    pub(super) fn directory_mut(&mut self, id: ObjectId) -> Result<&mut ModelDirectory> {
        if !id.is_directory() {
            return Err(Error::NotDirectory);
        }
        match &mut self.object_mut(id)?.body {
            ModelBody::Directory(directory) => Ok(directory),
            _ => unreachable!("the kind in an id is the kind of its object"),
        }
    }

    /// Returns the bytes of a file, or the target of a symbolic link.
    pub(super) fn data(&self, id: ObjectId) -> Result<&FileData> {
        match &self.object(id)?.body {
            ModelBody::Data(data) => Ok(data),
            ModelBody::Directory(_) => Err(Error::IsDirectory),
            ModelBody::Device(_) | ModelBody::Nothing => Err(Error::Invalid("the object has no bytes")),
        }
    }

    /// Returns the object that `name` refers to. Also checks `dir` and `name`.
    pub(super) fn entry(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        if !dir.is_directory() {
            return Err(Error::NotDirectory);
        }
        check_name(name)?;
        Ok(self.directory(dir)?.get(name))
    }

    pub(super) fn birth(&self, id: ObjectId) -> Result<Birth> {
        let object = self.object(id)?;
        Ok(Birth { created: object.born, generation: object.generation })
    }

    /// Returns the version of the bytes of a file. The model has one session.
    pub(super) fn version(&self, id: ObjectId) -> Result<Version> {
        self.data(id)?;
        let object = self.object(id)?;
        Ok(Version::new(0, object.generation, object.changes))
    }

    pub(super) fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        let object = self.object(id)?;
        let (links, size, allocated, parent, device) = match &object.body {
            ModelBody::Data(data) => (object.names, data.size(), data.allocated(), None, 0),
            ModelBody::Directory(directory) => {
                let entries = || directory.entries_from(0);
                let subdirectories = entries().filter(|(_, _, id)| id.is_directory()).count() as u32;
                let links = if object.names == 0 { 0 } else { 2 + subdirectories };
                (links, entries().count() as u64, 0, directory.parent, 0)
            }
            ModelBody::Device(device) => (object.names, 0, 0, None, *device),
            ModelBody::Nothing => (object.names, 0, 0, None, 0),
        };
        Ok(Attributes {
            kind: id.kind(),
            mode: object.owner.mode,
            uid: object.owner.uid,
            gid: object.owner.gid,
            links,
            size,
            allocated,
            accessed: object.accessed,
            modified: object.modified,
            changed: object.changed,
            device,
            parent,
        })
    }

    /// Adds an object, and counts its first name. The caller adds the entry with this name.
    pub(super) fn insert(&mut self, id: ObjectId, owner: Owner, body: ModelBody, time: Time) {
        self.created += 1;
        let object = ModelObject {
            owner,
            names: 1,
            is_linkable: false,
            opens: 0,
            accessed: time,
            modified: time,
            changed: time,
            born: time,
            generation: self.created,
            changes: 0,
            xattrs: BTreeMap::new(),
            flags: InodeFlags::empty(),
            project: 0,
            body,
        };
        self.objects.insert(id, object);
    }

    /// Removes one name from an object. If the object then has neither a name nor an open handle, the object
    /// is removed.
    pub(super) fn drop_name(&mut self, id: ObjectId, time: Time) -> Result<()> {
        let object = self.object_mut(id)?;
        object.names -= 1;
        object.changed = time;
        if let ModelBody::Directory(directory) = &mut object.body {
            directory.parent = None;
        }
        self.drop_if_unreachable(id);
        Ok(())
    }

    pub(super) fn drop_if_unreachable(&mut self, id: ObjectId) {
        if self.objects.get(&id).is_some_and(|object| object.names == 0 && object.opens == 0) {
            self.objects.remove(&id);
        }
    }

    pub(super) fn is_removed(&self, id: ObjectId) -> Result<bool> {
        Ok(self.object(id)?.names == 0)
    }

    /// True if `dir` is `ancestor` or is below it.
    pub(super) fn is_within(&self, mut dir: ObjectId, ancestor: ObjectId) -> Result<bool> {
        loop {
            if dir == ancestor {
                return Ok(true);
            }
            match self.directory(dir)?.parent {
                Some(parent) if parent != dir => dir = parent,
                _ => return Ok(false),
            }
        }
    }

    /// Counts a change of bytes or entries, and sets the modification and change time.
    pub(super) fn touch(&mut self, id: ObjectId, time: Time) -> Result<()> {
        let object = self.object_mut(id)?;
        object.modified = time;
        object.changed = time;
        object.changes += 1;
        Ok(())
    }

    pub(super) fn reserve(&mut self, kind: Kind) -> ObjectId {
        loop {
            self.reserved += 64;
            let id = ObjectId::new(self.reserved, kind);
            let same_place =
                ObjectId::new(id.place(), Kind::File)..=ObjectId::new(id.place(), Kind::BlockDevice);
            if self.objects.range(same_place).next().is_none() {
                return id;
            }
        }
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Error::Invalid("a name must have at least one byte")),
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}
