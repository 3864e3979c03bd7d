//! The reference model: an engine of in-memory maps under one lock, obviously correct; the oracle of all tests.
//!
//! It accepts ids that another engine reserved, so the same [`Op`] can be applied to that engine and to the model, and
//! the results compared. Not to be compared: [`Attributes::allocated`], the generation of a [`Birth`],
//! [`Engine::directory_changes`], [`Engine::space`], and the cookies and order of [`Engine::list`]. Of
//! [`Engine::seek`] only its meaning: what an engine calls a hole must read as zeros. To the model, data is every 4 KiB
//! page that was written since the file was last shorter.
//!
//! Where more than one error applies, the model gives the first in this order: a directory that is none; a bad name; a
//! stale directory; a stale object; a name that is taken or missing; a removed directory (`NotFound`); loops; kinds;
//! emptiness; values out of range. It is Linux's, but that Linux misses a removed directory before it looks at names.
//! What POSIX leaves open:
//!
//! - A file cannot replace a directory above it: `IsDirectory` (Linux says `ENOTEMPTY` there).
//! - `SetSize` sets the times even if the size stays; an empty `Write` or `Append` sets nothing.
//! - An object whose last name is gone gets no new one: `Link` answers `NotFound`.
//! - A `Batch` happens at its own time, whatever its parts say, in the order of its parts.
//! - A removed directory that is still open is empty, has 0 links and no parent. A `Batch` there is refused, even if it
//!   would do nothing, unless it has no parts.

mod apply;
mod data;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::state::{Body, Directory, State};
use crate::{Applied, Attributes, Birth, Engine, Entry, Kind, ObjectId, Op, Owner, Result, SpaceUsage, Time};

/// Space that the model claims to have, in bytes.
const TOTAL_SPACE: u64 = 1 << 63;

/// The reference engine.
#[derive(Debug)]
pub struct Model {
    state: Mutex<State>,
}

impl Model {
    /// An empty volume. `root` is the id of its root directory, usually that of the engine to compare with.
    ///
    /// # Panics
    /// If `root` is not the id of a directory.
    pub fn new(root: ObjectId, owner: Owner, time: Time) -> Model {
        assert!(root.is_directory(), "the root is a directory");
        let mut state =
            State { root, objects: BTreeMap::new(), reserved: 0, created: 0, directory_changes: 0 };
        state.insert(root, owner, Body::Directory(Directory::new(root)), time);
        Model { state: Mutex::new(state) }
    }

    /// A second model in the same state, opens included, that goes its own way from here.
    #[must_use]
    pub fn fork(&self) -> Model {
        Model { state: Mutex::new(self.lock().clone()) }
    }

    /// All objects that are not gone, in the order of their ids.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.lock().objects.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Model {
    fn root(&self) -> ObjectId {
        self.lock().root
    }

    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        self.lock().entry(dir, name)
    }

    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        self.lock().attributes(id)
    }

    fn birth(&self, id: ObjectId) -> Result<Birth> {
        self.lock().birth(id)
    }

    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        Ok(self.lock().data(id)?.read(offset, out))
    }

    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        let state = self.lock();
        let data = state.data(id)?;
        Ok(if hole { data.next_hole(offset) } else { data.next_data(offset) })
    }

    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let state = self.lock();
        let Some(value) = state.object(id)?.xattrs.get(name) else { return Ok(None) };
        if let Some(out) = out.get_mut(..value.len()) {
            out.copy_from_slice(value);
        }
        Ok(Some(value.len()))
    }

    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.lock().object(id)?.xattrs.keys().for_each(|name| visit(name));
        Ok(())
    }

    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<()> {
        // A copy, so that `visit` may call the model.
        let directory = self.lock().directory(dir)?.clone();
        for (cookie, name, id) in directory.entries_from(cookie) {
            if !visit(Entry { name, id, next: cookie + 1 }) {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, id: ObjectId) -> Result<()> {
        self.lock().object_mut(id)?.opens += 1;
        Ok(())
    }

    fn close(&self, id: ObjectId) {
        let mut state = self.lock();
        match state.objects.get_mut(&id) {
            Some(object) if object.opens > 0 => object.opens -= 1,
            _ => debug_assert!(false, "close without open of {id:?}"),
        }
        state.drop_if_unreachable(id);
    }

    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        Ok(self.lock().reserve(kind))
    }

    fn unreserve(&self, _id: ObjectId) {}

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        self.lock().apply(op)
    }

    fn directory_changes(&self) -> u64 {
        self.lock().directory_changes
    }

    fn wait_for(&self, _id: ObjectId) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn space(&self) -> SpaceUsage {
        let state = self.lock();
        let used: u64 = state
            .objects
            .values()
            .map(|object| if let Body::Data(data) = &object.body { data.allocated() } else { 0 })
            .sum();
        SpaceUsage { total: TOTAL_SPACE, free: TOTAL_SPACE - used, objects: state.objects.len() as u64 }
    }
}
