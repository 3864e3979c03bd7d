//! Setting attributes and extended attributes.

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};

use super::Scm;
use super::arguments::{check_mode, require_file};
use super::features::Feature;
use super::quotas::{Owners, QuotaChange, without_limits};
use super::write::makes_hole;
use crate::object::header::{Cold, HotChange};
use crate::object::pointer::Pointer;
use crate::object::xattr::{self, XattrRoot};
use crate::op::CAPABILITY_XATTR;
use crate::quota::{QUOTA_XATTR, QuotaTable};
use crate::transaction::Transaction;
use crate::{Applied, AttributeChange, Error, ObjectId, Result, Time, XattrMode, access};

impl Scm {
    pub(super) fn set_attributes(
        &self,
        id: ObjectId,
        change: &AttributeChange,
        time: Time,
    ) -> Result<Applied> {
        let _held = self.locks.hold(&[id]);
        let set = || self.set_attributes_held(id, change, time);
        let set_with_flags = || match change.flags {
            Some(_) if !id.kind().has_inode_flags() => {
                Err(Error::Invalid("only files and directories have inode flags"))
            }
            Some(flags) if !flags.is_empty() => self.with_feature(Feature::FLAGS, set),
            _ => set(),
        };
        match change.project {
            Some(_) => self.with_feature(Feature::QUOTAS, set_with_flags),
            None => set_with_flags(),
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
        let owners_before = Owners::of(&cold);
        check_mode(change.mode.unwrap_or(0))?;
        if let Some(flags) = change.flags {
            cold.flags = cold.flags & !Cold::INODE_FLAGS | u16::from(flags.bits());
        }
        cold.mode = access::mode_after(change.mode.unwrap_or(cold.mode), change.set_ids);
        let mut transaction = Transaction::begin(&self.volume);
        if change.drops_capability || change.size.is_some() {
            xattr::drop_capability(&mut transaction, header, &mut cold)?;
        }
        cold.uid = change.uid.unwrap_or(cold.uid);
        cold.gid = change.gid.unwrap_or(cold.gid);
        cold.project = change.project.unwrap_or(cold.project);
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
        if let Some(size) = change.size {
            require_file(id)?;
            next.root = self.resize_data(&mut transaction, header, &hot, size)?;
            (next.size, next.modified) = (size, time);
            cold.flags |= if makes_hole(&hot, size) { Cold::SPARSE } else { 0 };
        }
        next.modified = change.modified.unwrap_or(next.modified);
        let mut quota = None;
        if self.has_quotas() {
            let (owners, bytes) = (Owners::of(&cold), transaction.storage_change());
            let mut charged = QuotaChange::default();
            // `add_move` visits all extents of the object, so it is called only if an owner changes.
            if owners == owners_before {
                charged.add(owners, bytes, 0);
            } else {
                self.add_move(&mut charged, id, owners, bytes)?;
            }
            quota = Some(charged);
        }
        header.change_cold(&mut transaction, &hot, &cold, next)?;
        let commit = || match quota {
            Some(change) => self.charging(change, time, || transaction.commit()),
            None => transaction.commit(),
        };
        let owner = change.uid.is_some() || change.gid.is_some();
        let rights = change.mode.is_some() || owner || change.flags.is_some();
        // Front-ends cache paths whose directories they were allowed to search. New rights of a directory
        // make these paths invalid.
        if id.is_directory() && rights {
            self.volume.board().changing_directories(commit)?;
        } else {
            commit()?;
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
        if !broken(SafetyRule::NotedAccessIsCommitted) {
            transaction.commit()?;
        }
        Ok(Applied::default())
    }

    /// Sets an extended attribute that is not an ACL.
    pub(super) fn set_xattr(
        &self,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        time: Time,
    ) -> Result<Applied> {
        if id == self.root && name == QUOTA_XATTR {
            return self.set_quota_xattr(Some(value), mode, time);
        }
        let is_capability = name == CAPABILITY_XATTR;
        let set = || {
            let flags = |flags| if is_capability { flags | Cold::CAPABILITY } else { flags };
            self.change_xattrs(id, time, flags, |transaction, root| {
                xattr::check_no_acl(name)?;
                if is_capability {
                    access::check_stored_capability(value)?;
                }
                xattr::set(transaction, root, name, value, mode)
            })
        };
        if is_capability { self.with_feature(Feature::CAPABILITIES, set) } else { set() }
    }

    /// Removes an extended attribute that is not an ACL.
    pub(super) fn remove_xattr(&self, id: ObjectId, name: &[u8], time: Time) -> Result<Applied> {
        if id == self.root && name == QUOTA_XATTR {
            return self.set_quota_xattr(None, XattrMode::Replace, time);
        }
        let flags = |flags| if name == CAPABILITY_XATTR { flags & !Cold::CAPABILITY } else { flags };
        self.change_xattrs(id, time, flags, |transaction, root| {
            xattr::check_no_acl(name)?;
            xattr::remove(transaction, root, name)
        })
    }

    /// Runs `change` on an object's extended attributes, and commits the result together with the flags that
    /// `flags` returns.
    fn change_xattrs(
        &self,
        id: ObjectId,
        time: Time,
        flags: impl FnOnce(u16) -> u16,
        change: impl FnOnce(&mut Transaction<'_>, XattrRoot) -> Result<Pointer>,
    ) -> Result<Applied> {
        let _held = self.locks.hold(&[id]);
        self.change_xattrs_held(id, time, flags, change)
    }

    /// Changes extended attributes. The caller holds the lock of the object.
    fn change_xattrs_held(
        &self,
        id: ObjectId,
        time: Time,
        flags: impl FnOnce(u16) -> u16,
        change: impl FnOnce(&mut Transaction<'_>, XattrRoot) -> Result<Pointer>,
    ) -> Result<Applied> {
        let header = self.header(id)?;
        let (hot, mut cold) = header.hot_and_cold(self.medium())?;
        let mut transaction = Transaction::begin(&self.volume);
        cold.xattr_root = change(&mut transaction, XattrRoot::of(header, &cold))?.raw();
        cold.flags = flags(cold.flags);
        cold.set_changed(time);
        header.change_cold(&mut transaction, &hot, &cold, HotChange::cold(&hot))?;
        self.commit_charged(&mut transaction, header, &[], time)?;
        Ok(Applied::default())
    }

    /// Sets or removes the limits of the volume. No Op runs meanwhile.
    #[cold]
    fn set_quota_xattr(&self, value: Option<&[u8]>, mode: XattrMode, time: Time) -> Result<Applied> {
        let table = value.map(QuotaTable::decode).transpose()?;
        let change = || {
            let _held = self.locks.hold_everything();
            let begins = table.is_some() && !self.has_quotas();
            if begins {
                self.start_counting(QuotaTable::default())?;
            }
            let result = self.change_xattrs_held(
                self.root,
                time,
                |flags| flags,
                |transaction, root| match value {
                    Some(value) => xattr::set(transaction, root, QUOTA_XATTR, value, mode),
                    None => xattr::remove(transaction, root, QUOTA_XATTR),
                },
            );
            match table {
                Some(table) if result.is_ok() => self.set_limits(table, time),
                None if result.is_ok() => self.stop_counting(),
                _ if begins => self.stop_counting(),
                _ => {}
            }
            result
        };
        if value.is_some() { self.with_feature(Feature::QUOTAS, change) } else { change() }
    }

    /// Stores the grace times that have begun or ended, so that they go on at the next open. The volume has
    /// no users any more.
    pub(super) fn store_deadlines(&self) {
        let Some(table) = self.changed_quotas() else { return };
        let store = || {
            let _gate = self.medium().enter()?;
            let _pin = pin();
            let set = |transaction: &mut Transaction<'_>, root: XattrRoot| {
                xattr::set(transaction, root, QUOTA_XATTR, &table, XattrMode::Set)
            };
            let (_, cold) = self.header(self.root)?.hot_and_cold(self.medium())?;
            without_limits(|| self.change_xattrs(self.root, cold.changed(), |flags| flags, set))
        };
        // If the change cannot be stored, these grace times are not known at the next open. Each begins again
        // when its account is next charged.
        let _ = store();
    }
}
