//! Changes of attributes: modes, owners and times.

use eyrie_engine::access::{self, AclKind, Protection, Rights};
use eyrie_engine::op::CAPABILITY_XATTR;
use eyrie_engine::{AttributeChange, Engine, InodeFlags, ObjectId, Op, Owner, SetIds, Time};

use super::{AsUser, CallResult};
use crate::Errno;
use crate::posix::SetTime;

impl<E: Engine> AsUser<'_, E> {
    pub(super) fn set_mode(&self, id: ObjectId, mode: u16) -> CallResult<()> {
        let mode = access::chmod(self.credentials(), &self.protection(id)?, mode)?;
        self.set_attributes(id, AttributeChange { mode: Some(mode), ..AttributeChange::default() })
    }

    pub(super) fn set_owner(&self, id: ObjectId, uid: Option<u32>, gid: Option<u32>) -> CallResult<()> {
        let (uid, gid) = chosen_owner(uid, gid);
        let set_ids = access::chown(self.credentials(), &self.protection(id)?, uid, gid)?;
        let drops_capability = !id.is_directory();
        let change = AttributeChange { set_ids, drops_capability, uid, gid, ..AttributeChange::default() };
        self.set_attributes(id, change)
    }

    pub(super) fn set_times(&self, id: ObjectId, accessed: SetTime, modified: SetTime) -> CallResult<()> {
        let now = self.now_beside(id, (accessed, modified));
        let (accessed, modified) = self.times(&self.protection(id)?, (accessed, modified), now)?;
        let change = AttributeChange { accessed, modified, ..AttributeChange::default() };
        self.apply(&Op::SetAttributes { id, change, time: now })?;
        Ok(())
    }

    /// Sets the inode flags of an object, if the volume is not read-only and the user may change these flags.
    pub(super) fn set_flags(&self, id: ObjectId, flags: InodeFlags) -> CallResult<()> {
        self.check_writable(id, Rights::WRITE)?;
        access::check_set_flags(self.credentials(), &self.protection(id)?, flags)?;
        self.set_attributes(id, AttributeChange { flags: Some(flags), ..AttributeChange::default() })
    }

    /// Returns the stamp of a change that also sets these times. If a change of a client sets a time to its
    /// own stamp, the service sets this time to its present. So a client takes another stamp if the caller
    /// has named this very time. The service replaces a stamp that is near the present anyway.
    pub(super) fn now_beside(&self, id: ObjectId, (accessed, modified): (SetTime, SetTime)) -> Time {
        let now = self.now([id]);
        let is_named = [accessed, modified].contains(&SetTime::To(now));
        if is_named && self.engine().session() != 0 {
            Time::new(now.seconds.saturating_sub(1), now.nanoseconds)
        } else {
            now
        }
    }

    /// Checks that the user may set these times of an object, and returns the access time and the
    /// modification time to set.
    pub(super) fn times(
        &self,
        object: &Protection,
        (accessed, modified): (SetTime, SetTime),
        now: Time,
    ) -> CallResult<(Option<Time>, Option<Time>)> {
        let valid = |set: SetTime| !matches!(set, SetTime::To(time) if time.nanoseconds >= 1_000_000_000);
        if !valid(accessed) || !valid(modified) {
            return Err(Errno::INVAL.into());
        }
        let both_now = accessed == SetTime::Now && modified == SetTime::Now;
        access::check_set_times(self.credentials(), object, both_now)?;
        Ok((chosen(accessed, now), chosen(modified, now)))
    }

    /// Returns the set-id bits that a file loses when these credentials write it.
    #[inline]
    pub(super) fn dropped_set_ids(&self, id: ObjectId) -> CallResult<SetIds> {
        if access::keeps_set_ids(self.credentials()) {
            return Ok(SetIds::Keep);
        }
        Ok(access::set_ids_after_write(self.credentials(), &self.protection(id)?))
    }

    /// Removes the set-id bits and the capability that a write with these credentials would remove. Keeps the
    /// change time of the object, which the caller passes as `changed`, unless the object has a capability or
    /// an access ACL. As in Linux, the removal of a capability sets the change time, and so does a new mode
    /// that must also be written into an ACL.
    pub(super) fn drop_rights(&self, id: ObjectId, changed: Time) -> CallResult<()> {
        let (set_ids, Owner { mode, .. }) = (self.dropped_set_ids(id)?, self.engine().owner(id)?);
        let has = |name| -> CallResult<bool> { Ok(self.engine().xattr(id, name, &mut [])?.is_some()) };
        let drops_capability = has(CAPABILITY_XATTR)?;
        let sets_mode = access::mode_after(mode, set_ids) != mode;
        if !drops_capability && !sets_mode {
            return Ok(());
        }
        let sets_time = drops_capability || has(AclKind::Access.name())?;
        let change = AttributeChange { set_ids, drops_capability, ..AttributeChange::default() };
        let time = if sets_time { self.now([id]) } else { changed };
        self.apply(&Op::SetAttributes { id, change, time })?;
        Ok(())
    }

    /// Checks that the credentials may remove the entry of `dir` that names `victim`. If neither the sticky
    /// bit nor inode flags can forbid the removal, it needs the same rights as an addition. The protection of
    /// `victim` is then not read.
    #[inline]
    pub(super) fn check_remove(&self, dir: &Protection, victim: ObjectId) -> CallResult<()> {
        if access::is_sticky(self.credentials(), dir) || self.engine().may_have_flags() {
            Ok(access::check_remove(self.credentials(), dir, &self.protection(victim)?)?)
        } else {
            Ok(access::check_add(self.credentials(), dir)?)
        }
    }

    fn set_attributes(&self, id: ObjectId, change: AttributeChange) -> CallResult<()> {
        self.apply(&Op::SetAttributes { id, change, time: self.now([id]) })?;
        Ok(())
    }
}

/// Returns the user and the group to set. The highest number means "no change", as for the kernel.
pub(super) fn chosen_owner(uid: Option<u32>, gid: Option<u32>) -> (Option<u32>, Option<u32>) {
    (uid.filter(|&uid| uid != u32::MAX), gid.filter(|&gid| gid != u32::MAX))
}

fn chosen(set: SetTime, now: Time) -> Option<Time> {
    match set {
        SetTime::Now => Some(now),
        SetTime::Omit => None,
        // Linux drops the nanoseconds of the first and of the last second that a file system can store.
        SetTime::To(Time { seconds: seconds @ (i64::MIN | i64::MAX), .. }) => Some(Time::new(seconds, 0)),
        SetTime::To(time) => Some(time),
    }
}
