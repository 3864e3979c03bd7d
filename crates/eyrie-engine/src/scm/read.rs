//! Look-ups and reads: no lock, no allocation, no system call.
//!
//! The medium is asked whether it is sound when a read is done: what a failed mapping, or another process's, showed is
//! then thrown away.

use eyrie_medium::epoch::{Guard, pin};

use super::create::Parent;
use super::{Scm, check_entry};
use crate::object::collection::{self, Found};
use crate::object::header::{Cold, Hot};
use crate::object::pointer::{Extent, Pointer};
use crate::object::{mfile, xattr};
use crate::{Attributes, Birth, Entry, Error, Kind, ObjectId, Owner, Result, Time};

impl Scm {
    #[inline(always)]
    pub(super) fn read_lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        check_entry(dir, name)?;
        let _pin = pin();
        Ok(self.read_entry(dir, name)?.map(|found| found.id))
    }

    /// The entry of a name, without a lock. The caller holds a pin and has checked the name.
    #[inline(always)]
    fn read_entry(&self, dir: ObjectId, name: &[u8]) -> Result<Option<Found>> {
        let medium = self.medium();
        let found = self.volume.redo().stable(|| {
            loop {
                let (header, hot) = self.directory(dir)?;
                let found = self.find(&hot, name)?;
                // A larger table may have taken the place of the one that was searched.
                if found.is_some() || header.hot(medium)?.root == hot.root {
                    return Ok(found);
                }
            }
        })?;
        match found {
            Some(found) if self.volume.is_header(super::Addr::from_raw(found.id.place())) => Ok(Some(found)),
            Some(found) => {
                Err(Error::corrupt(super::Addr::from_raw(found.id.place()), "entry that names no object"))
            }
            None => Ok(None),
        }
    }

    #[inline(always)]
    pub(super) fn read_attributes(&self, id: ObjectId) -> Result<Attributes> {
        let _pin = pin();
        if id.is_directory() {
            return self.read_directory(id);
        }
        let medium = self.medium();
        let header = self.header(id)?;
        let (hot, cold) = self.volume.redo().stable(|| header.hot_and_cold(medium))?;
        let is_device = matches!(id.kind(), Kind::CharDevice | Kind::BlockDevice);
        Ok(Attributes {
            kind: id.kind(),
            mode: cold.mode,
            uid: cold.uid,
            gid: cold.gid,
            links: if hot.selector.unlinked() { 0 } else { cold.links },
            size: hot.size,
            allocated: self.allocated(&hot, &cold)? + xattr::extent(cold.xattrs())?.map_or(0, Extent::bytes),
            accessed: cold.accessed(),
            modified: hot.modified,
            changed: if hot.selector.follows() { hot.modified } else { cold.changed() },
            device: if is_device { cold.parent_or_device } else { 0 },
            parent: None,
        })
    }

    /// Bytes that the data of an object takes. Changes below the root that are made meanwhile may count or not.
    #[inline(always)]
    fn allocated(&self, hot: &Hot, cold: &Cold) -> Result<u64> {
        mfile::allocated(self.medium(), hot.root, hot.size, cold.flags & Cold::SPARSE != 0)
    }

    pub(super) fn read_birth(&self, id: ObjectId) -> Result<Birth> {
        let _pin = pin();
        let header = self.header(id)?;
        header.selector(self.medium())?;
        let identity = header.identity(self.medium())?;
        let created = Time::new(identity.created_seconds, identity.created_nanoseconds);
        Ok(Birth { created, generation: identity.generation })
    }

    pub(super) fn read_parent(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        let _pin = pin();
        let medium = self.medium();
        let (header, _) = self.directory(dir)?;
        let (hot, cold) = self.volume.redo().stable(|| header.hot_and_cold(medium))?;
        Ok(ObjectId::from_raw(cold.parent_or_device).filter(|_| !hot.selector.unlinked()))
    }

    pub(super) fn read_owner(&self, id: ObjectId) -> Result<Owner> {
        let _pin = pin();
        let medium = self.medium();
        let (_, cold) = self.header(id)?.hot_and_cold(medium)?;
        Ok(Owner { mode: cold.mode, uid: cold.uid, gid: cold.gid })
    }

    /// Where the extended attributes of an object are. The caller's pin keeps them there.
    fn xattrs(&self, id: ObjectId) -> Result<Pointer> {
        let (_, cold) = self.header(id)?.hot_and_cold(self.medium())?;
        Ok(cold.xattrs())
    }

    pub(super) fn read_xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let _pin = pin();
        xattr::get(self.medium(), self.xattrs(id)?, name, out)
    }

    pub(super) fn read_xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let _pin = pin();
        xattr::visit(self.medium(), self.xattrs(id)?, &mut |name, _| {
            visit(name);
            Ok(())
        })
    }

    /// Runs `read` on one state of a file.
    #[inline(always)]
    fn on_file<T>(&self, id: ObjectId, mut read: impl FnMut(&Hot) -> Result<T>) -> Result<T> {
        let _pin = pin();
        let medium = self.medium();
        match id.kind() {
            Kind::File | Kind::Symlink => {}
            Kind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid("pipes, sockets and devices hold no bytes")),
        }
        let header = self.header(id)?;
        loop {
            let hot = header.hot(medium)?;
            let result = read(&hot);
            // A change that was published meanwhile may be half in what was read.
            if header.selector(medium)? == hot.selector {
                return result;
            }
        }
    }

    #[inline]
    pub(super) fn read_data(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.on_file(id, |hot| mfile::read(self.medium(), hot.root, hot.size, offset, out))
    }

    pub(super) fn read_seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        self.on_file(id, |hot| mfile::seek(self.medium(), hot.root, hot.size, offset, hole))
    }

    #[inline]
    pub(super) fn read_view<'a>(&'a self, id: ObjectId, guard: &'a Guard) -> Result<Option<&'a [u8]>> {
        self.on_file(id, |hot| {
            if !hot.selector.sealed() {
                return Ok(None);
            }
            let Some((addr, len)) = mfile::single(hot.root, hot.size)? else { return Ok(None) };
            // Only an extent of its own can be shown: bytes of headers and tables do change.
            if len > 0 && !hot.root.extent().is_some_and(|extent| self.volume.contains(extent)) {
                return Err(Error::corrupt(addr, "extent outside the space for extents"));
            }
            Ok(Some(self.medium().bytes(addr, len, guard)?))
        })
    }

    pub(super) fn read_list(
        &self,
        dir: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let _pin = pin();
        let (header, _) = self.directory(dir)?;
        collection::list(&self.volume, || Ok(header.hot(self.medium())?.root), cookie, visit)?;
        Ok(())
    }

    /// Ends one open; the last one of an object without names gives it back.
    pub(super) fn close_object(&self, id: ObjectId) {
        // A forked child has a copy of the counts, but the objects are its parent's.
        if self.opens.remove(id) && self.medium().check().is_ok() {
            // Where nothing can be changed any more, the next recovery gives them back.
            if let Ok(_gate) = self.medium().enter() {
                self.give_back_orphans();
            }
        }
    }

    /// What `name` names, for an Op that then locks both and [looks again](Scm::confirm).
    pub(super) fn peek(&self, dir: ObjectId, name: &[u8]) -> Result<Peeked> {
        let ended = self.locks.ended(dir);
        Ok(Peeked { ended, found: self.read_entry(dir, name)? })
    }

    /// The entry that was peeked at, now that the directory's lock is held; `None` if it has changed.
    #[inline]
    pub(super) fn confirm(
        &self,
        parent: &Parent,
        name: &[u8],
        peeked: &Peeked,
    ) -> Result<Option<Option<Found>>> {
        // No Op on the directory has ended since, and none is under way: it is as it was.
        if self.locks.ended(parent.id) == peeked.ended {
            return Ok(Some(peeked.found));
        }
        let found = self.find(&parent.hot, name)?;
        Ok((found.map(|found| found.id) == peeked.id()).then_some(found))
    }
}

/// An entry that was looked up without a lock.
pub(super) struct Peeked {
    /// How many Ops on the directory had ended before.
    ended: u64,
    found: Option<Found>,
}

impl Peeked {
    /// The object, if there is one.
    pub(super) fn id(&self) -> Option<ObjectId> {
        self.found.map(|found| found.id)
    }
}
