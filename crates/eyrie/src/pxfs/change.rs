//! Attributes: modes, owners, times.

use eyrie_engine::access::{self, Protection};
use eyrie_engine::{AttributeChange, Engine, ObjectId, Op, Time};
use rustix::io::Errno;

use super::{Pxfs, Step};
use crate::posix::SetTime;

impl<E: Engine> Pxfs<E> {
    pub(super) fn set_mode(&self, id: ObjectId, mode: u16) -> Step<()> {
        let mode = access::chmod(&self.credentials, &self.protection(id)?, mode)?;
        self.set_attributes(id, AttributeChange { mode: Some(mode), ..AttributeChange::default() })
    }

    pub(super) fn set_owner(&self, id: ObjectId, uid: Option<u32>, gid: Option<u32>) -> Step<()> {
        // The kernel takes the highest number for "leave it".
        let (uid, gid) = (uid.filter(|&uid| uid != u32::MAX), gid.filter(|&gid| gid != u32::MAX));
        let before = self.protection(id)?;
        let mode = access::chown(&self.credentials, &before, uid, gid)?;
        let mode = (mode != before.mode).then_some(mode);
        self.set_attributes(id, AttributeChange { mode, uid, gid, ..AttributeChange::default() })
    }

    pub(super) fn set_times(&self, id: ObjectId, accessed: SetTime, modified: SetTime) -> Step<()> {
        let valid = |set: SetTime| !matches!(set, SetTime::To(time) if time.nanoseconds >= 1_000_000_000);
        if !valid(accessed) || !valid(modified) {
            return Err(Errno::INVAL.into());
        }
        let both_now = accessed == SetTime::Now && modified == SetTime::Now;
        access::check_set_times(&self.credentials, &self.protection(id)?, both_now)?;
        let now = self.now();
        let (accessed, modified) = (chosen(accessed, now), chosen(modified, now));
        self.set_attributes(id, AttributeChange { accessed, modified, ..AttributeChange::default() })
    }

    /// Takes the set-id bits that do not survive a write by these credentials.
    #[inline]
    pub(super) fn drop_set_ids(&self, id: ObjectId) -> Step<()> {
        if access::passes_everywhere(&self.credentials) {
            return Ok(());
        }
        let before = self.protection(id)?;
        match access::mode_after_write(&self.credentials, &before) {
            same if same == before.mode => Ok(()),
            mode => {
                self.set_attributes(id, AttributeChange { mode: Some(mode), ..AttributeChange::default() })
            }
        }
    }

    /// Whether the credentials may remove the entry of `dir` that names `victim`.
    #[inline]
    pub(super) fn check_remove(&self, dir: &Protection, victim: ObjectId) -> Step<()> {
        if access::is_sticky(&self.credentials, dir) {
            Ok(access::check_remove(&self.credentials, dir, &self.protection(victim)?)?)
        } else {
            Ok(access::check_add(&self.credentials, dir)?)
        }
    }

    fn set_attributes(&self, id: ObjectId, change: AttributeChange) -> Step<()> {
        self.engine.apply(&Op::SetAttributes { id, change, time: self.now() })?;
        Ok(())
    }
}

fn chosen(set: SetTime, now: Time) -> Option<Time> {
    match set {
        SetTime::Now => Some(now),
        SetTime::Omit => None,
        SetTime::To(time) => Some(time),
    }
}
