//! The space of a volume, and of a tree with a quota.

use eyrie_engine::quota::{QuotaId, QuotaKind, QuotaLimit};
use eyrie_engine::{Engine, Error, ObjectId, SpaceUsage};
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

/// Returns the total and free space of the volume.
///
/// # Errors
/// `ServiceEnded` if the engine is a client that reaches no service, and so has no numbers.
pub(super) fn space_usage(engine: &impl Engine) -> eyrie_engine::Result<SpaceUsage> {
    let space = engine.space();
    if space.total == 0 { Err(Error::ServiceEnded) } else { Ok(space) }
}

/// Returns the space of a whole volume.
fn space_of_volume(engine: &impl Engine) -> eyrie_engine::Result<StatVfs> {
    let space = space_usage(engine)?;
    let files_free = space.free / OBJECT_SIZE;
    Ok(StatVfs {
        block_size: BLOCK_SIZE,
        blocks: space.total / BLOCK_SIZE,
        blocks_free: space.free / BLOCK_SIZE,
        files: space.objects + files_free,
        files_free,
        name_max: NAME_MAX as u64,
    })
}

impl<E: Engine> AsUser<'_, E> {
    /// Returns the space of the tree of an object, or of the volume.
    pub(super) fn space_at(&self, id: ObjectId) -> CallResult<StatVfs> {
        let mut space = space_of_volume(self.engine())?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eyrie_engine::model::Model;
    use eyrie_engine::quota::{QuotaLimits, QuotaReport, QuotaUsage};
    use eyrie_engine::{Kind, Owner, Result, Time, forward_calls};

    use super::*;
    use crate::posix::{OpenFlags, Posix, PosixExt};
    use crate::{Credentials, Errno, FallocateMode, Pxfs};

    /// An engine whose objects are in one tree.
    struct OneTree(Model);

    impl OneTree {
        fn inner(&self) -> &Model {
            &self.0
        }
    }

    impl Engine for OneTree {
        forward_calls! {
            inner:
            root lookup attributes birth inode_flags read version seek has_storage xattr xattr_names list
            open close reserve unreserve apply directory_changes wait_for sync space
        }

        fn project(&self, _: ObjectId) -> Result<u32> {
            Ok(9)
        }

        fn quotas(&self) -> Result<Option<Vec<QuotaReport>>> {
            panic!("the space of a tree needs one account")
        }

        fn quota(&self, id: QuotaId) -> Result<Option<QuotaReport>> {
            assert_eq!((id.kind, id.number), (QuotaKind::Tree, 9));
            let bytes = QuotaLimit { hard: 3 * BLOCK_SIZE, ..QuotaLimit::default() };
            let limits = QuotaLimits { bytes, ..QuotaLimits::default() };
            Ok(Some(QuotaReport::new(id, QuotaUsage::new(BLOCK_SIZE, 1), limits)))
        }
    }

    /// A client whose service was killed: it still reads the volume, but cannot ask for its space.
    struct WithoutService(Model);

    impl WithoutService {
        fn inner(&self) -> &Model {
            &self.0
        }
    }

    impl Engine for WithoutService {
        forward_calls! {
            inner:
            root lookup attributes birth inode_flags project read version seek has_storage xattr xattr_names
            list open close reserve unreserve apply directory_changes wait_for sync
        }

        fn space(&self) -> SpaceUsage {
            SpaceUsage::default()
        }
    }

    #[test]
    fn space_of_a_tree_needs_one_account() {
        let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
        let model = Model::new(ObjectId::new(64, Kind::Directory), owner, Time::default());
        let files = Pxfs::new(Arc::new(OneTree(model)), Credentials::root());
        let space = files.statvfs("/".into()).expect("there");
        assert_eq!((space.blocks, space.blocks_free), (3, 2));
    }

    #[test]
    fn unknown_space_is_the_end_of_the_service() {
        let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
        let model = Model::new(ObjectId::new(64, Kind::Directory), owner, Time::default());
        let files = Pxfs::new(Arc::new(WithoutService(model)), Credentials::root());
        files.write("/egg", "blue").expect("room");
        assert_eq!(files.statvfs("/egg".into()).map_err(|error| error.errno()), Err(Errno::NOTCONN));
        let egg = files.open("/egg".into(), OpenFlags::WRITE, 0).expect("there");
        let allocated = files.fallocate(&egg, FallocateMode::Allocate, 0, 1 << 30);
        assert_eq!(allocated.map_err(|error| error.errno()), Err(Errno::NOTCONN));
        files.close(egg).expect("open");
    }
}
