//! Reads objects of a damaged volume.

use eyrie_medium::{Addr, Medium};

use crate::extent::Extent;
use crate::object::collection::{self, Collection};
use crate::object::header::Header;
use crate::object::mfile::{self, FileTree, SalvagedPart};
use crate::object::xattr::XattrRoot;
use crate::op::FILE_MAX;
use crate::tables::layout::HEADER_BYTES;
use crate::tables::superblock;
use crate::volume::{Marks, Overlap, Volume};
use crate::{AttributeChange, Error, InodeFlags, ObjectId, Owner, Result, Time};

/// An object whose header is readable.
#[derive(Clone, Copy)]
pub(super) struct DamagedObject {
    pub id: ObjectId,
    pub file: FileTree,
    pub xattrs: XattrRoot,
    pub links: u32,
    pub device: u64,
    pub parent: Option<ObjectId>,
    pub is_sealed: bool,
    pub is_unlinked: bool,
    /// True if the first line of the header has the magic number of an object, and the kind that the id
    /// names.
    pub has_magic: bool,
    pub created: Time,
    pub changed: Time,
    times_version: u32,
    attributes: (u16, u32, u32),
    flags: InodeFlags,
    project: u32,
    accessed: Time,
    modified: Time,
}

impl DamagedObject {
    pub fn owner(&self) -> Owner {
        let (mode, uid, gid) = self.attributes;
        Owner { mode: mode & 0o7777, uid, gid }
    }

    /// Returns the attributes that are set after all entries and bytes are copied.
    pub fn change(&self) -> AttributeChange {
        let Owner { mode, uid, gid } = self.owner();
        let has_flags = self.id.kind().has_inode_flags();
        AttributeChange {
            mode: Some(mode),
            uid: Some(uid),
            gid: Some(gid),
            accessed: Some(self.accessed),
            modified: Some(self.modified),
            flags: (has_flags && !self.flags.is_empty()).then_some(self.flags),
            project: (self.project != 0).then_some(self.project),
            ..AttributeChange::default()
        }
    }
}

/// Returns the time, with its nanoseconds reduced below one second.
pub(super) fn time(time: Time) -> Time {
    Time { nanoseconds: time.nanoseconds % Time::NANOSECONDS, ..time }
}

/// A damaged volume.
pub(super) struct DamagedVolume<'v> {
    pub volume: &'v Volume,
    /// The key of the hash in each readable copy of the superblock. The copies differ if one is damaged.
    pub hash_seeds: Vec<u64>,
    marks: Marks,
}

impl<'v> DamagedVolume<'v> {
    pub fn new(volume: &'v Volume) -> DamagedVolume<'v> {
        let hash_seeds = superblock::hash_seeds(volume.medium());
        DamagedVolume { volume, hash_seeds, marks: volume.marks() }
    }

    pub fn medium(&self) -> &'v Medium {
        self.volume.medium()
    }

    /// Returns the object that an id names. A damaged identity line is tolerated if the hot line has the kind
    /// that the id names.
    pub fn object(&self, id: ObjectId) -> Result<DamagedObject> {
        let addr = Addr::from_raw(id.place());
        if !addr.is_aligned(HEADER_BYTES) || !self.volume.is_header(addr) {
            return Err(Error::corrupt(addr, "entry that names no object"));
        }
        let header = Header::of(id);
        let identity = header.identity(self.medium()).ok();
        let (hot, cold) = header.hot_and_cold(self.medium()).map_err(|error| match error {
            Error::Stale => Error::corrupt(addr, "entry that names a dead object"),
            other => other,
        })?;
        debug_assert!(hot.size <= FILE_MAX);
        let changed = if hot.selector.follows() { hot.modified } else { cold.changed() };
        Ok(DamagedObject {
            id,
            file: FileTree::of(header, &hot),
            xattrs: XattrRoot::of(header, &cold),
            links: cold.links,
            device: cold.parent_or_device,
            parent: ObjectId::from_raw(cold.parent_or_device).filter(|_| id.is_directory()),
            is_sealed: hot.selector.sealed(),
            is_unlinked: hot.selector.unlinked() || cold.links == 0,
            has_magic: identity.is_some(),
            created: time(identity.map_or(changed, |identity| {
                Time::new(identity.created_seconds, identity.created_nanoseconds)
            })),
            changed: time(changed),
            times_version: cold.times_version,
            attributes: (cold.mode, cold.uid, cold.gid),
            flags: cold.inode_flags(),
            project: cold.project,
            accessed: time(cold.accessed()),
            modified: time(hot.modified),
        })
    }

    /// Returns `directory` with the times of the stamps in its bucket pages. If a page is unreadable, the
    /// times stay unchanged.
    pub fn with_times(&self, directory: DamagedObject) -> DamagedObject {
        let DamagedObject { file: FileTree { root, .. }, times_version, .. } = directory;
        match collection::summary(self.volume, || Ok(root), times_version) {
            Ok((summary, _)) => DamagedObject {
                modified: summary.modified.map_or(directory.modified, time),
                changed: directory.changed.max(summary.changed.map_or(directory.changed, time)),
                ..directory
            },
            Err(_) => directory,
        }
    }

    /// Marks the storage of an object. Returns true if another object has marked some of this storage before,
    /// or if some of it is in a header chunk. Damaged parts are skipped, because the copy of the object
    /// reports them.
    pub fn mark_storage(&self, object: &DamagedObject) -> bool {
        let mut contested = false;
        let mut mark = |extent: Extent, is_shared: bool| {
            let marked = self.marks.mark(extent, is_shared);
            contested |= matches!(marked, Err(Overlap::TwoOwners | Overlap::HeaderChunk));
        };
        if let Ok(Some(extent)) = object.xattrs.extent() {
            mark(extent, false);
        }
        if object.id.is_directory() {
            let collection = Collection::new(self.volume, object.file.root);
            // Storage behind the first damage may stay unmarked.
            let _ = collection.visit_storage(&mut |extent| {
                mark(extent, false);
                Ok(())
            });
        } else if object.id.kind().has_data() {
            let visited = mfile::salvage(self.medium(), object.file, &mut |part| {
                match part {
                    SalvagedPart::Node(extent) => mark(extent, false),
                    SalvagedPart::Data(data) => mark(data.extent, data.is_shared),
                    SalvagedPart::Lost(..) => {}
                }
                Ok(())
            });
            debug_assert!(visited.is_ok());
        }
        contested
    }
}
