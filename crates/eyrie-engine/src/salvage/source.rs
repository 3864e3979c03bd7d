//! Reading objects of a damaged volume.

use eyrie_medium::{Addr, Medium};

use crate::object::collection::{self, Collection};
use crate::object::header::{HEADER_BYTES, Header};
use crate::object::mfile::MAX_SIZE;
use crate::object::pointer::{Extent, Pointer};
use crate::object::{mfile, xattr};
use crate::volume::{Marks, Overlap, Volume};
use crate::{AttributeChange, Error, ObjectId, Owner, Result, Time};

/// An object whose header can be believed.
#[derive(Clone, Copy)]
pub(super) struct Object {
    pub id: ObjectId,
    pub root: Pointer,
    pub xattrs: Pointer,
    pub size: u64,
    pub links: u32,
    pub device: u64,
    pub parent: Option<ObjectId>,
    pub is_sealed: bool,
    pub is_unlinked: bool,
    /// Whether the first line of its header says that it is one.
    pub is_marked: bool,
    pub created: Time,
    pub changed: Time,
    time_epoch: u32,
    attributes: (u16, u32, u32),
    accessed: Time,
    modified: Time,
}

impl Object {
    pub fn owner(&self) -> Owner {
        let (mode, uid, gid) = self.attributes;
        Owner { mode: mode & 0o7777, uid, gid }
    }

    /// What is left to be set when everything else is there.
    pub fn change(&self) -> AttributeChange {
        let Owner { mode, uid, gid } = self.owner();
        AttributeChange {
            mode: Some(mode),
            uid: Some(uid),
            gid: Some(gid),
            accessed: Some(self.accessed),
            modified: Some(self.modified),
            ..AttributeChange::default()
        }
    }
}

/// The time, with as many nanoseconds as a second may have.
pub(super) fn time(time: Time) -> Time {
    Time { nanoseconds: time.nanoseconds % Time::NANOSECONDS, ..time }
}

/// A damaged volume.
pub(super) struct Source<'v> {
    pub volume: &'v Volume,
    marks: Marks,
}

impl<'v> Source<'v> {
    pub fn new(volume: &'v Volume) -> Source<'v> {
        Source { volume, marks: volume.marks() }
    }

    pub fn medium(&self) -> &'v Medium {
        self.volume.medium()
    }

    /// The object that an id names. An entry and the hot line, if they agree what it is, make up for a damaged identity.
    pub fn object(&self, id: ObjectId) -> Result<Object> {
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
        debug_assert!(hot.size <= MAX_SIZE);
        let changed = if hot.selector.follows() { hot.modified } else { cold.changed() };
        Ok(Object {
            id,
            root: hot.root,
            xattrs: cold.xattrs(),
            size: hot.size,
            links: cold.links,
            device: cold.parent_or_device,
            parent: ObjectId::from_raw(cold.parent_or_device).filter(|_| id.is_directory()),
            is_sealed: hot.selector.sealed(),
            is_unlinked: hot.selector.unlinked() || cold.links == 0,
            is_marked: identity.is_some(),
            created: time(identity.map_or(changed, |identity| {
                Time::new(identity.created_seconds, identity.created_nanoseconds)
            })),
            changed: time(changed),
            time_epoch: cold.time_epoch,
            attributes: (cold.mode, cold.uid, cold.gid),
            accessed: time(cold.accessed()),
            modified: time(hot.modified),
        })
    }

    /// A directory with the times that its entries say, as far as all of them can be read.
    pub fn with_times(&self, directory: Object) -> Object {
        let Object { root, time_epoch, .. } = directory;
        match collection::summary(self.volume, || Ok(root), time_epoch) {
            Ok(summary) => Object {
                modified: summary.modified.map_or(directory.modified, time),
                changed: directory.changed.max(summary.changed.map_or(directory.changed, time)),
                ..directory
            },
            Err(_) => directory,
        }
    }

    /// Claims the storage of an object for it; whether some of it was claimed before. Damaged parts are passed over: they
    /// are met again when they are read.
    pub fn claim(&self, object: &Object) -> bool {
        let mut contested = false;
        let mut claim = |extent: Extent| {
            contested |= matches!(self.marks.mark_extent(extent), Err(Overlap::Taken | Overlap::HeaderChunk));
        };
        if let Ok(Some(extent)) = xattr::extent(object.xattrs) {
            claim(extent);
        }
        if object.id.is_directory() {
            let collection = Collection::new(self.volume, object.root);
            // What follows the first damage may go unclaimed.
            let _ = collection.visit_storage(&mut |extent| {
                claim(extent);
                Ok(())
            });
        } else if object.id.kind().has_data() {
            let visited = mfile::salvage(self.medium(), object.root, object.size, &mut |part| {
                if let mfile::Part::Node(extent) | mfile::Part::Data(_, _, extent) = part {
                    claim(extent);
                }
                Ok(())
            });
            debug_assert!(visited.is_ok());
        }
        contested
    }
}
