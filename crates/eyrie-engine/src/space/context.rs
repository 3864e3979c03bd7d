//! The state that every part of the allocator reads without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::sync::ProcessLock;
use eyrie_medium::{Addr, Fault, Medium};

use super::headers::ChunkMap;
use crate::extent::Extent;
use crate::tables::Geometry;
use crate::tables::geometry::page_of;
use crate::tables::layout::{CHUNK_BYTES, GROUPS_IN_USE, HEADER_BYTES};
use crate::{Error, Result};

/// The state that is read without a lock. Each field is constant or only grows, except when a reader goes on
/// with the next owner of the volume ([`SpaceContext::restart`]). Clones share this state.
#[derive(Clone)]
pub(crate) struct SpaceContext {
    pub(crate) medium: Arc<Medium>,
    pub(crate) geometry: Geometry,
    pub(crate) chunks: ChunkMap,
    /// Offset of the end of the groups in use. A thread stores this offset with release ordering, after the
    /// count of groups on media has settled.
    pub(crate) end_of_used_groups: Arc<AtomicU64>,
    /// `Some` if another process changes the volume. The state then follows the tables on media, from which
    /// that process removes nothing while the volume is open. A thread holds the lock while it reads the
    /// tables again.
    follows_owner: Option<Arc<ProcessLock>>,
}

impl SpaceContext {
    /// Returns the context of a volume whose first `groups` groups are in use.
    pub(crate) fn new(medium: Arc<Medium>, geometry: Geometry, groups: u64) -> Result<SpaceContext> {
        let end = geometry.end_of_groups(groups);
        let chunks = ChunkMap::read(&medium, &geometry, end)?;
        Ok(SpaceContext::with_chunks(medium, geometry, chunks, end))
    }

    /// Returns the context of a volume whose tables may be damaged. This context treats all groups as in use.
    pub(crate) fn of_damaged(medium: Arc<Medium>, geometry: Geometry) -> Result<SpaceContext> {
        let end = geometry.end_of_groups(geometry.groups());
        let chunks = ChunkMap::read_possible(&medium, &geometry, end)?;
        Ok(SpaceContext::with_chunks(medium, geometry, chunks, end))
    }

    /// Returns the context of a volume that another process changes.
    pub(crate) fn of_owner(medium: Arc<Medium>, geometry: Geometry) -> Result<SpaceContext> {
        let groups = medium.load(GROUPS_IN_USE)?;
        if groups > geometry.groups() {
            return Err(Error::corrupt(GROUPS_IN_USE, "more groups in use than the volume has"));
        }
        let end = geometry.end_of_groups(groups);
        let chunks = ChunkMap::read_possible(&medium, &geometry, end)?;
        let follows_owner = Some(Arc::default());
        Ok(SpaceContext { follows_owner, ..SpaceContext::with_chunks(medium, geometry, chunks, end) })
    }

    fn with_chunks(medium: Arc<Medium>, geometry: Geometry, chunks: ChunkMap, end: u64) -> SpaceContext {
        let end_of_used_groups = Arc::new(AtomicU64::new(end));
        SpaceContext { medium, geometry, chunks, end_of_used_groups, follows_owner: None }
    }

    /// Reads the number of groups in use and the header chunks again. If this number is unreadable or
    /// impossible, the old number stays valid, and the caller then finds its address invalid.
    #[cold]
    fn follow(&self) {
        let Some(following) = &self.follows_owner else { return };
        let _following = following.lock();
        if let Ok(groups) = self.medium.load(GROUPS_IN_USE)
            && groups <= self.geometry.groups()
        {
            self.end_of_used_groups.fetch_max(self.geometry.end_of_groups(groups), Ordering::Release);
        }
        self.chunks.follow(&self.medium, &self.geometry, self.end_of_used_groups());
    }

    /// Runs `replace`, which maps the bytes of the next owner, and forgets the groups and the header chunks
    /// of the previous owner. The next use of a group or a header reads the tables of the next owner.
    pub(crate) fn restart(&self, replace: impl FnOnce() -> Result<()>) -> Result<()> {
        // The lock waits for a thread that is reading the tables of the previous owner. Without the lock,
        // that thread could add the groups and chunks of these tables after the code below has forgotten
        // them.
        let _following = self.follows_owner.as_ref().map(|following| following.lock());
        replace()?;
        self.end_of_used_groups.store(0, Ordering::Release);
        self.chunks.clear();
        Ok(())
    }

    /// Returns the offset of the end of the groups in use.
    #[inline]
    pub(crate) fn end_of_used_groups(&self) -> u64 {
        self.end_of_used_groups.load(Ordering::Acquire)
    }

    /// True if an extent could be live: it is well formed, lies in the groups in use, and lies in no header
    /// chunk.
    #[inline]
    pub(crate) fn contains(&self, extent: Extent) -> bool {
        let is_held =
            self.geometry.holds(extent, self.end_of_used_groups()) || self.is_held_after_growth(extent);
        is_held && !self.chunks.overlaps(extent.addr.offset(), extent.class.bytes())
    }

    /// True if an extent lies in groups that another process has taken into use since the tables were last
    /// read.
    #[cold]
    fn is_held_after_growth(&self, extent: Extent) -> bool {
        self.follows_owner.is_some() && {
            self.follow();
            self.geometry.holds(extent, self.end_of_used_groups())
        }
    }

    /// True if a header slot begins at `addr`.
    #[inline]
    pub(crate) fn is_header(&self, addr: Addr) -> bool {
        addr.is_aligned(HEADER_BYTES) && addr.segment_index() == 0 && {
            let chunk = (addr.offset() / CHUNK_BYTES) as u32;
            self.chunks.contains(chunk) || self.is_new_chunk(chunk)
        }
    }

    /// True if another process has made `chunk` a header chunk since the tables were last read.
    #[cold]
    fn is_new_chunk(&self, chunk: u32) -> bool {
        self.follows_owner.is_some() && {
            self.follow();
            self.chunks.contains(chunk)
        }
    }
}

/// Returns the offsets at which the allocatable bytes of a group in use begin and end.
pub(super) fn bytes_of(context: &SpaceContext, group: u64) -> (u64, u64) {
    let geometry = &context.geometry;
    let end = geometry.end_of_groups(group + 1).min(context.end_of_used_groups());
    (geometry.end_of_groups(group).max(geometry.data_start()), end)
}

/// Returns the pages at which the allocatable bytes of a group in use begin and end.
pub(super) fn pages_of(context: &SpaceContext, group: u64) -> (u32, u32) {
    let (start, end) = bytes_of(context, group);
    (page_of(start), page_of(end))
}

/// Turns the fault of a full host into the error of a full volume.
#[cold]
pub(super) fn allocation_error(fault: Fault) -> Error {
    match fault {
        Fault::HostFull => Error::NoSpace,
        fault => fault.into(),
    }
}
