//! Look-ups and reads. They take no lock. Two reads that may take a lock are in other modules: that of the
//! attributes of a directory (`counts`), and that of a version (`version`). Readers of names and attributes
//! wait while a redo record is applied. The code of this module makes no system call, but a medium on a disk
//! may read pages. Reads allocate memory only for listings, for the summaries of large directories, and for
//! access ACLs.
//!
//! The calls of the trait [`Engine`](crate::Engine) check the medium after each of these reads
//! (`Scm::sound`). They discard the result if the mapping has failed or belongs to another process.

use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, LINE_SIZE};

use super::arguments::{check_entry, require_bytes};
use crate::access::{self, AclKind};
use crate::extent::Extent;
use crate::object::collection::{self, Collection, FoundEntry};
use crate::object::header::{Cold, Header, Hot};
use crate::object::mfile::{self, FileTree};
use crate::object::xattr::{self, XattrRoot};
use crate::volume::VolumeView;
use crate::{Attributes, Birth, Error, InodeFlags, Kind, ListedEntry, ObjectId, Owner, Result, Time};

/// Number of lines of a file that are prefetched. The processor itself prefetches the lines that follow.
const PREFETCHED_LINES: u64 = 4;

impl VolumeView {
    /// Returns the header of an id that came from a caller. The id is untrusted. Therefore its address is
    /// checked to be that of a header slot.
    ///
    /// # Errors
    /// `Stale`.
    #[inline(always)]
    pub(crate) fn header(&self, id: ObjectId) -> Result<Header> {
        if self.is_header(Addr::from_raw(id.place())) { Ok(Header::of(id)) } else { Err(Error::Stale) }
    }

    /// Returns the header of a directory, and its hot fields.
    #[inline(always)]
    pub(crate) fn directory(&self, id: ObjectId) -> Result<(Header, Hot)> {
        if !id.is_directory() {
            return Err(Error::NotDirectory);
        }
        let header = self.header(id)?;
        let hot = header.hot(self.medium())?;
        Ok((header, hot))
    }

    /// Looks `name` up in a directory. The caller holds the lock of the name's shard, or checks the root of
    /// the directory afterwards.
    #[inline(always)]
    pub(super) fn find(&self, hot: &Hot, name: &[u8]) -> Result<Option<FoundEntry>> {
        Collection::new(self, hot.root).lookup(name)
    }

    /// Works as [`Engine::lookup`](crate::Engine::lookup).
    ///
    /// # Errors
    /// Those of that call.
    #[inline(always)]
    pub fn read_lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        check_entry(dir, name)?;
        let _pin = pin();
        Ok(self.read_entry(dir, name)?.map(|found| found.id))
    }

    /// Returns the entry of a name, without a lock. The caller holds a pin and has checked the name.
    #[inline(always)]
    pub(super) fn read_entry(&self, dir: ObjectId, name: &[u8]) -> Result<Option<FoundEntry>> {
        self.search_entry(dir, |collection| collection.lookup(name))
    }

    /// Works as [`VolumeView::read_entry`], and calls `begin` with the shard of the name before each search.
    #[inline(always)]
    pub(super) fn read_entry_in_shard(
        &self,
        dir: ObjectId,
        name: &[u8],
        mut begin: impl FnMut(usize),
    ) -> Result<Option<FoundEntry>> {
        self.search_entry(dir, |collection| collection.lookup_in_shard(name, &mut begin))
    }

    /// Returns the entry that `search` finds in a directory, without a lock.
    #[inline(always)]
    fn search_entry(
        &self,
        dir: ObjectId,
        mut search: impl FnMut(Collection<'_>) -> Result<Option<FoundEntry>>,
    ) -> Result<Option<FoundEntry>> {
        let medium = self.medium();
        let found = self.board().stable(|| {
            loop {
                let (header, hot) = self.directory(dir)?;
                let found = search(Collection::new(self, hot.root))?;
                // A larger table may have replaced the searched one. Therefore a missing name counts only if
                // the root is unchanged.
                if found.is_some() || header.hot(medium)?.root == hot.root {
                    return Ok(found);
                }
            }
        })?;
        match found {
            Some(found) if self.is_header(Addr::from_raw(found.id.place())) => Ok(Some(found)),
            Some(found) => {
                Err(Error::corrupt(Addr::from_raw(found.id.place()), "entry that names no object"))
            }
            None => Ok(None),
        }
    }

    /// Returns the attributes of an object that is not a directory.
    ///
    /// # Errors
    /// As [`Engine::attributes`](crate::Engine::attributes).
    #[inline(always)]
    pub fn read_object(&self, id: ObjectId) -> Result<Attributes> {
        let _pin = pin();
        let medium = self.medium();
        let header = self.header(id)?;
        let (hot, cold) = self.board().stable(|| header.hot_and_cold(medium))?;
        let is_device = matches!(id.kind(), Kind::CharDevice | Kind::BlockDevice);
        Ok(Attributes {
            kind: id.kind(),
            mode: cold.mode,
            uid: cold.uid,
            gid: cold.gid,
            links: if hot.selector.unlinked() { 0 } else { cold.links },
            size: hot.size,
            allocated: self.allocated(header, &hot, &cold)?
                + XattrRoot::of(header, &cold).extent()?.map_or(0, Extent::bytes),
            accessed: cold.accessed(),
            modified: hot.modified,
            changed: if hot.selector.follows() { hot.modified } else { cold.changed() },
            device: if is_device { cold.parent_or_device } else { 0 },
            parent: None,
        })
    }

    /// Returns the size of the storage for the data of an object, in bytes. The result may or may not include
    /// concurrent changes below the root.
    #[inline(always)]
    fn allocated(&self, header: Header, hot: &Hot, cold: &Cold) -> Result<u64> {
        mfile::allocated(self.medium(), FileTree::of(header, hot), cold.flags & Cold::SPARSE != 0)
    }

    /// Works as [`Engine::birth`](crate::Engine::birth).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_birth(&self, id: ObjectId) -> Result<Birth> {
        let _pin = pin();
        let header = self.header(id)?;
        header.selector(self.medium())?;
        let identity = header.identity(self.medium())?;
        let created = Time::new(identity.created_seconds, identity.created_nanoseconds);
        Ok(Birth { created, generation: identity.generation })
    }

    /// Works as [`Engine::parent_of`](crate::Engine::parent_of).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_parent(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        let _pin = pin();
        let medium = self.medium();
        let (header, _) = self.directory(dir)?;
        let (hot, cold) = self.board().stable(|| header.hot_and_cold(medium))?;
        Ok(ObjectId::from_raw(cold.parent_or_device).filter(|_| !hot.selector.unlinked()))
    }

    /// Works as [`Engine::is_removed`](crate::Engine::is_removed).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_is_removed(&self, id: ObjectId) -> Result<bool> {
        let _pin = pin();
        Ok(self.header(id)?.selector(self.medium())?.unlinked())
    }

    /// Works as [`Engine::owner`](crate::Engine::owner).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_owner(&self, id: ObjectId) -> Result<Owner> {
        let _pin = pin();
        let medium = self.medium();
        let (_, cold) = self.header(id)?.hot_and_cold(medium)?;
        Ok(Owner { mode: cold.mode, uid: cold.uid, gid: cold.gid })
    }

    /// Works as [`Engine::inode_flags`](crate::Engine::inode_flags).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_inode_flags(&self, id: ObjectId) -> Result<InodeFlags> {
        let _pin = pin();
        let (_, cold) = self.header(id)?.hot_and_cold(self.medium())?;
        Ok(cold.inode_flags())
    }

    /// Works as [`Engine::project`](crate::Engine::project).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_project(&self, id: ObjectId) -> Result<u32> {
        let _pin = pin();
        let (_, cold) = self.header(id)?.hot_and_cold(self.medium())?;
        Ok(cold.project)
    }

    /// Returns the root of the extended attributes of an object. The caller's pin keeps the storage of the
    /// attributes from reuse.
    fn xattrs(&self, id: ObjectId) -> Result<XattrRoot> {
        let header = self.header(id)?;
        let (_, cold) = header.hot_and_cold(self.medium())?;
        Ok(XattrRoot::of(header, &cold))
    }

    /// Works as [`Engine::xattr`](crate::Engine::xattr).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let _pin = pin();
        let header = self.header(id)?;
        let (_, cold) = header.hot_and_cold(self.medium())?;
        let size = xattr::get(self.medium(), XattrRoot::of(header, &cold), name, out)?;
        if let Some(size) = size
            && AclKind::of_name(name) == Some(AclKind::Access)
            && let Some(acl) = out.get_mut(..size)
        {
            access::restore_mode(acl, cold.mode);
        }
        Ok(size)
    }

    /// Works as [`Engine::xattr_names`](crate::Engine::xattr_names).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let _pin = pin();
        xattr::visit(self.medium(), self.xattrs(id)?, &mut |name, _| {
            visit(name);
            Ok(())
        })
    }

    /// Runs `read` on a file. Runs it again if the selector of the file changed meanwhile.
    #[inline(always)]
    pub(super) fn on_file<T>(
        &self,
        id: ObjectId,
        mut read: impl FnMut(&Hot, FileTree) -> Result<T>,
    ) -> Result<T> {
        let _pin = pin();
        let medium = self.medium();
        require_bytes(id)?;
        let header = self.header(id)?;
        loop {
            let hot = header.hot(medium)?;
            let result = read(&hot, FileTree::of(header, &hot));
            // The result may contain a part of a change that was published meanwhile.
            if header.selector(medium)? == hot.selector {
                return result;
            }
        }
    }

    /// Works as [`Engine::read`](crate::Engine::read).
    ///
    /// # Errors
    /// Those of that call.
    #[inline]
    pub fn read_data(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.on_file(id, |_, file| mfile::read(self.medium(), file, offset, out))
    }

    /// Prefetches the first lines of a file whose bytes are one extent.
    #[inline]
    pub fn prefetch_data(&self, id: ObjectId) {
        let _pin = pin();
        let medium = self.medium();
        let Ok(hot) = self.header(id).and_then(|header| header.hot(medium)) else { return };
        if hot.root.height() == 0
            && let Some(extent) = hot.root.extent()
        {
            let lines = hot.size.min(extent.bytes()).div_ceil(LINE_SIZE).min(PREFETCHED_LINES);
            (0..lines).for_each(|line| medium.prefetch(extent.addr.add(line * LINE_SIZE)));
        }
    }

    /// Works as [`Engine::seek`](crate::Engine::seek).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        let shares = self.has_shared_extents();
        self.on_file(id, |_, file| mfile::seek(self.medium(), file, offset, hole, shares))
    }

    /// Works as [`Engine::has_storage`](crate::Engine::has_storage).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_has_storage(&self, id: ObjectId) -> Result<bool> {
        self.on_file(id, |_, file| mfile::has_storage(self.medium(), file))
    }

    /// Works as [`Engine::list`](crate::Engine::list).
    ///
    /// # Errors
    /// Those of that call.
    pub fn read_list(
        &self,
        dir: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(ListedEntry<'_>) -> bool,
    ) -> Result<()> {
        let _pin = pin();
        let (header, _) = self.directory(dir)?;
        collection::list(self, || Ok(header.hot(self.medium())?.root), cookie, visit)?;
        Ok(())
    }
}
