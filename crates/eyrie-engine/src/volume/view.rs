//! The part of a volume that readers use: the mapped bytes, the sizes, and the counts that readers compare.

use std::fs::File;
use std::sync::Arc;

use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Medium, MediumKind};

use crate::board::Board;
use crate::extent::Extent;
use crate::space::SpaceContext;
use crate::tables::Geometry;
use crate::tables::layout::{
    ACLS, CAPABILITIES, INODE_FLAGS, MEDIUM_PAGED, MEDIUM_PMEM, PREALLOCATION, QUOTAS, SHARED_EXTENTS,
};
use crate::tables::superblock::{self, VerifiedSuperblock};
use crate::{Error, ObjectId, Result, Time};

/// A volume as its readers see it. All look-ups and reads need only this view. The process that changes the
/// volume has a [`Volume`](super::Volume), which contains a view. Other processes that read the same mapped
/// bytes have a view alone.
pub struct VolumeView {
    pub(super) context: SpaceContext,
    pub(super) superblock: VerifiedSuperblock,
    pub(super) board: Board,
}

impl VolumeView {
    /// Returns the volume with a board that only this process reads.
    pub(super) fn of_process(context: SpaceContext, superblock: VerifiedSuperblock) -> Result<VolumeView> {
        let view = VolumeView { context, superblock, board: Board::private()? };
        view.copy_features_to_board();
        Ok(view)
    }

    /// Returns the medium.
    #[inline]
    pub fn medium(&self) -> &Medium {
        &self.context.medium
    }

    /// Replaces the board by one that other processes can map. No other thread uses the volume yet.
    pub(super) fn share_board(&mut self) -> Result<()> {
        self.board = Board::shared()?;
        self.copy_features_to_board();
        Ok(())
    }

    /// Returns the view of a volume whose bytes are on `medium` and whose board is in the file `board`.
    /// Another process changes the volume. A reader that waits for that process calls `owner_is_alive` from
    /// time to time.
    ///
    /// # Errors
    /// `Volume` if `medium` has no volume of this format. `Corrupt` if the tables contradict each other.
    /// `Fault` if the tables cannot be read, or if the board cannot be mapped.
    pub fn of_owner(
        medium: Medium,
        board: File,
        owner_is_alive: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<VolumeView> {
        let medium = Arc::new(medium);
        let _pin = pin();
        let superblock = superblock::read(&medium, "shared volume")?;
        let context = SpaceContext::of_owner(medium, superblock.geometry)?;
        Ok(VolumeView { context, superblock, board: Board::of_owner(board, Box::new(owner_is_alive))? })
    }

    /// Maps the page cache of the next owner of a volume on a disk in place of the page cache of the previous
    /// owner. `pages` and `flags` are the files of the new cache. A disk may have lost changes of the
    /// previous owner, so this view forgets which groups and header chunks are in use, and reads the tables
    /// again. The session of each read that runs during this call has ended, so the caller of the read
    /// discards the result.
    ///
    /// # Errors
    /// `Fault`.
    pub fn replace_cache(&self, pages: &File, flags: File) -> Result<()> {
        self.context.restart(|| Ok(self.medium().replace_cache(pages, flags)?))
    }

    /// Returns the medium, for a value that must keep it mapped.
    pub(super) fn shared_medium(&self) -> &Arc<Medium> {
        &self.context.medium
    }

    /// Records the root directory. The caller is inside the gate of the medium.
    pub(super) fn set_root(&mut self, root: ObjectId) -> Result<()> {
        self.superblock.set_root(&self.context.medium, root.raw())
    }

    /// Records another size. The caller is inside the gate of the medium.
    pub(super) fn set_size(&mut self, geometry: Geometry) -> Result<()> {
        self.superblock.set_size(&self.context.medium, geometry)
    }

    /// True if the volume may have objects with ACLs.
    pub(crate) fn has_acls(&self) -> bool {
        self.superblock.has_feature(ACLS)
    }

    /// Records that the volume may have objects with ACLs. Callers are inside the gate of the medium. They
    /// make this call before the first object gets an ACL.
    pub(crate) fn set_acls(&self) -> Result<()> {
        self.superblock.add_feature(&self.context.medium, ACLS)
    }

    /// True if the volume may have objects with inode flags.
    pub(crate) fn has_flags(&self) -> bool {
        self.superblock.has_feature(INODE_FLAGS)
    }

    /// Records that the volume may have objects with inode flags, before the first object gets a flag. The
    /// caller is inside the gate of the medium.
    pub(crate) fn set_flags(&self) -> Result<()> {
        self.superblock.add_feature(&self.context.medium, INODE_FLAGS)?;
        self.board.set_has_flags();
        Ok(())
    }

    /// True if the volume may have files with storage past their end.
    pub(crate) fn has_preallocation(&self) -> bool {
        self.superblock.has_feature(PREALLOCATION)
    }

    /// Records that the volume may have files with storage past their end, before the first file gets such
    /// storage. The caller is inside the gate of the medium.
    pub(crate) fn set_preallocation(&self) -> Result<()> {
        self.superblock.add_feature(&self.context.medium, PREALLOCATION)
    }

    /// True if several pointers may lead to an extent of the volume. The board has this fact, so a reader in
    /// another process notices even a first clone that is made after its open.
    pub fn has_shared_extents(&self) -> bool {
        self.board.has_shared_extents()
    }

    /// Records that several pointers may lead to an extent, before the first clone. The caller is inside the
    /// gate of the medium.
    pub(crate) fn set_shared_extents(&self) -> Result<()> {
        self.superblock.add_feature(&self.context.medium, SHARED_EXTENTS)?;
        self.board.set_has_shared_extents();
        Ok(())
    }

    /// True if the volume may have objects with `security.capability`.
    pub(crate) fn has_capabilities(&self) -> bool {
        self.superblock.has_feature(CAPABILITIES)
    }

    /// Records that the volume may have objects with `security.capability`, before the first object gets it.
    /// The caller is inside the gate of the medium.
    pub(crate) fn set_capabilities(&self) -> Result<()> {
        self.superblock.add_feature(&self.context.medium, CAPABILITIES)?;
        self.board.set_has_capabilities();
        Ok(())
    }

    /// True if the volume may have quotas.
    pub(crate) fn has_quota_feature(&self) -> bool {
        self.superblock.has_feature(QUOTAS)
    }

    /// Records that the volume may have quotas, before the first limits are stored. The caller is inside the
    /// gate of the medium.
    pub(crate) fn set_quota_feature(&self) -> Result<()> {
        self.superblock.add_feature(&self.context.medium, QUOTAS)
    }

    /// Tells the users of a new board about the features that they read there.
    fn copy_features_to_board(&self) {
        if self.has_flags() {
            self.board.set_has_flags();
        }
        if self.has_capabilities() {
            self.board.set_has_capabilities();
        }
        if self.superblock.has_feature(SHARED_EXTENTS) {
            self.board.set_has_shared_extents();
        }
    }

    /// Returns the counts that readers compare.
    #[inline]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Returns the kind of the medium on which the volume is. A copy of a volume may itself be on another
    /// medium.
    pub fn kind(&self) -> MediumKind {
        match self.superblock.block.medium {
            MEDIUM_PMEM => MediumKind::Pmem,
            MEDIUM_PAGED => MediumKind::Paged,
            _ => self.medium().kind(),
        }
    }

    /// Returns the sizes and places of the volume.
    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// Returns the random bytes that name the volume.
    pub fn volume_id(&self) -> [u8; 16] {
        self.superblock.block.volume_id
    }

    /// Returns the key of the hash of names.
    #[inline]
    pub fn hash_seed(&self) -> u64 {
        self.superblock.block.hash_seed.get()
    }

    /// Returns the time of creation.
    pub fn created(&self) -> Time {
        Time::new(
            self.superblock.block.created_seconds.get(),
            self.superblock.block.created_nanoseconds.get(),
        )
    }

    /// Returns the root directory; `None` until [`Volume::set_root`](super::Volume::set_root).
    pub fn root(&self) -> Option<ObjectId> {
        match self.superblock.block.root.get() {
            0 => None,
            raw => ObjectId::from_raw(raw),
        }
    }

    /// True if `addr` is the address of a header slot, free or not. Takes no lock.
    #[inline]
    pub(crate) fn is_header(&self, addr: Addr) -> bool {
        self.context.is_header(addr)
    }

    /// True if an extent could be live: it is well formed, lies in the groups in use, and lies in no header
    /// chunk. Takes no lock.
    #[inline]
    pub fn contains(&self, extent: Extent) -> bool {
        self.context.contains(extent)
    }

    /// Returns an error for bytes outside the space for extents and headers.
    pub(crate) fn require_data(&self, addr: Addr, len: u64) -> Result<()> {
        let (start, end) = (self.geometry().data_start(), self.geometry().volume_bytes());
        let offset = addr.offset();
        if addr.segment_index() == 0 && offset >= start && offset <= end && len <= end - offset {
            Ok(())
        } else {
            Err(Error::corrupt(addr, "bytes outside the space for extents"))
        }
    }

    /// Returns an error if `extent` cannot be an extent of an object. Callers that change the bytes of an
    /// extent check it first, so that a damaged pointer causes no more damage.
    ///
    /// # Errors
    /// `Corrupt`.
    #[inline]
    pub(crate) fn require_possible_extent(&self, extent: Extent) -> Result<()> {
        if self.contains(extent) {
            Ok(())
        } else {
            Err(Error::corrupt(extent.addr, "extent outside the space for extents"))
        }
    }
}
