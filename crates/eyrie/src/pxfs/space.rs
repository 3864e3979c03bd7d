//! The space of a volume, and of a tree with a quota.

use eyrie_engine::quota::{QuotaId, QuotaKind, QuotaLimit};
use eyrie_engine::{Engine, ObjectId};
use eyrie_medium::PAGE_SIZE;

use super::{AsUser, CallResult};
use crate::NAME_MAX;
use crate::posix::StatVfs;

const BLOCK_SIZE: u64 = PAGE_SIZE;
/// The storage that the count of free objects assumes for one object, in bytes: the size of a header.
const OBJECT_SIZE: u64 = 256;
/// Maximum number of pages of data of one file for each page of the volume. The pages of a file may share
/// storage, but each of them needs a pointer, and a page has room for this number of pointers.
const DATA_PAGES_PER_PAGE: u64 = 512;

/// Returns the maximum number of bytes of data of one file.
pub(super) fn data_bytes_max(engine: &impl Engine) -> u64 {
    let pages_per_page = if engine.may_share_extents() { DATA_PAGES_PER_PAGE } else { 1 };
    engine.space().total.saturating_mul(pages_per_page)
}

/// Returns the space of a whole volume.
fn space_of_volume(engine: &impl Engine) -> StatVfs {
    let space = engine.space();
    let files_free = space.free / OBJECT_SIZE;
    StatVfs {
        block_size: BLOCK_SIZE,
        blocks: space.total / BLOCK_SIZE,
        blocks_free: space.free / BLOCK_SIZE,
        files: space.objects + files_free,
        files_free,
        name_max: NAME_MAX as u64,
    }
}

impl<E: Engine> AsUser<'_, E> {
    /// Returns the space of the tree of an object, or of the volume.
    pub(super) fn space_at(&self, id: ObjectId) -> CallResult<StatVfs> {
        let mut space = space_of_volume(self.engine());
        let project = self.engine().project(id)?;
        if project == 0 {
            return Ok(space);
        }
        let tree = QuotaId { kind: QuotaKind::Tree, number: project };
        if let Some(report) = self.engine().quota(tree)? {
            let (usage, limits) = (report.usage, report.limits);
            narrow(limits.bytes, usage.bytes, BLOCK_SIZE, (&mut space.blocks, &mut space.blocks_free));
            narrow(limits.files, usage.files, 1, (&mut space.files, &mut space.files_free));
        }
        Ok(space)
    }
}

/// Lowers a total to a limit, and the free part of the total to the unused part of the limit. The total and
/// its free part are in units of `unit`.
fn narrow(limit: QuotaLimit, usage: u64, unit: u64, (total, free): (&mut u64, &mut u64)) {
    let most = if limit.soft != 0 { limit.soft } else { limit.hard };
    if most != 0 {
        *total = (*total).min(most / unit);
        *free = (*free).min(most.saturating_sub(usage) / unit);
    }
}
