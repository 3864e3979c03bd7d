//! Setting attributes and extended attributes.

use super::Scm;
use super::arguments::{check_mode, require_file};
use super::write::makes_hole;
use crate::object::header::{Cold, HotChange};
use crate::object::pointer::Pointer;
use crate::object::xattr::XattrRoot;
use crate::transaction::Transaction;
use crate::volume::VolumeView;
use crate::{Applied, AttributeChange, Error, ObjectId, Result, Time, access};

impl Scm {
    pub(super) fn set_attributes(
        &self,
        id: ObjectId,
        change: &AttributeChange,
        time: Time,
    ) -> Result<Applied> {
        let _held = self.locks.hold(&[id]);
        let set = || self.set_attributes_held(id, change, time);
        match change.flags {
            Some(_) if !id.kind().has_inode_flags() => {
                Err(Error::Invalid("only files and directories have inode flags"))
            }
            Some(flags) if !flags.is_empty() => self.with_feature(VolumeView::set_flags, set),
            _ => set(),
        }
    }

    /// Sets attributes of an object. The caller holds the lock of the object.
    pub(super) fn set_attributes_held(
        &self,
        id: ObjectId,
        change: &AttributeChange,
        time: Time,
    ) -> Result<Applied> {
        let header = self.header(id)?;
        let (hot, mut cold) = header.hot_and_cold(self.medium())?;
        check_mode(change.mode.unwrap_or(0))?;
        if let Some(flags) = change.flags {
            cold.flags = cold.flags & !Cold::INODE_FLAGS | u16::from(flags.bits());
        }
        cold.mode = access::mode_after(change.mode.unwrap_or(cold.mode), change.set_ids);
        cold.uid = change.uid.unwrap_or(cold.uid);
        cold.gid = change.gid.unwrap_or(cold.gid);
        if let Some(accessed) = change.accessed {
            cold.set_accessed(accessed);
        }
        if change.modified.is_some() {
            // From here on, the stamps of the directory's bucket pages have an older version than the header.
            // Therefore the explicit modification time counts, and not the times of these stamps.
            cold.times_version = cold.times_version.wrapping_add(1);
        }
        cold.set_changed(time);
        let mut next = HotChange::cold(&hot);
        let mut transaction = Transaction::begin(&self.volume);
        if let Some(size) = change.size {
            require_file(id)?;
            next.root = self.resize_data(&mut transaction, header, &hot, size)?;
            (next.size, next.modified) = (size, time);
            cold.flags |= if makes_hole(&hot, size) { Cold::SPARSE } else { 0 };
        }
        next.modified = change.modified.unwrap_or(next.modified);
        header.change_cold(&mut transaction, &hot, &cold, next)?;
        let owner = change.uid.is_some() || change.gid.is_some();
        let rights = change.mode.is_some() || owner || change.flags.is_some();
        // Front-ends cache paths whose directories they were allowed to search. New rights of a directory
        // make these paths invalid.
        if id.is_directory() && rights {
            self.volume.board().changing_directories(|| transaction.commit())?;
        } else {
            transaction.commit()?;
        }
        Ok(Applied::default())
    }

    /// Sets the access time of an object that was read.
    pub(super) fn mark_access(&self, id: ObjectId, time: Time) -> Result<Applied> {
        let header = self.header(id)?;
        let _held = self.locks.hold(&[id]);
        let (hot, mut cold) = header.hot_and_cold(self.medium())?;
        cold.set_accessed(time);
        let mut transaction = Transaction::begin(&self.volume);
        header.change_cold(&mut transaction, &hot, &cold, HotChange::accessed(&hot))?;
        transaction.commit()?;
        Ok(Applied::default())
    }

    /// Runs `change` on an object's extended attributes, and commits the result.
    pub(super) fn change_xattrs(
        &self,
        id: ObjectId,
        time: Time,
        change: impl FnOnce(&mut Transaction<'_>, XattrRoot) -> Result<Pointer>,
    ) -> Result<Applied> {
        let header = self.header(id)?;
        let _held = self.locks.hold(&[id]);
        let (hot, mut cold) = header.hot_and_cold(self.medium())?;
        let mut transaction = Transaction::begin(&self.volume);
        cold.xattr_root = change(&mut transaction, XattrRoot::of(header, &cold))?.raw();
        cold.set_changed(time);
        header.change_cold(&mut transaction, &hot, &cold, HotChange::cold(&hot))?;
        transaction.commit()?;
        Ok(Applied::default())
    }
}
