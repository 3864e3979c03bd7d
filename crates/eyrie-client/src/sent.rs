//! The form of attributes, locks, quotas and space in messages.

use eyrie_engine::advisory::{LockOwner, LockRange, LockRequest, LockTarget, OwnerClass};
use eyrie_engine::quota::{QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaReport, QuotaUsage};
use eyrie_engine::{Attributes, Error, Kind, LockKind, ObjectId, Result, SpaceUsage, Time};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The usage and the limits of an account in an answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SentQuota {
    kind: u32,
    number: u32,
    bytes: u64,
    files: u64,
    limits: [u64; 4],
    deadlines: [i64; 2],
}

impl SentQuota {
    /// Returns the form of an account in an answer.
    pub fn of(report: &QuotaReport) -> SentQuota {
        let QuotaReport { id, usage, limits: QuotaLimits { bytes, files }, .. } = *report;
        SentQuota {
            kind: id.kind as u32,
            number: id.number,
            bytes: usage.bytes,
            files: usage.files,
            limits: [bytes.soft, bytes.hard, files.soft, files.hard],
            deadlines: [bytes.deadline, files.deadline],
        }
    }

    /// Returns the account. `None` if its kind is unknown.
    pub fn report(&self) -> Option<QuotaReport> {
        let kind = QuotaKind::from_raw(self.kind)?;
        let limit = |index: usize| QuotaLimit {
            soft: self.limits[2 * index],
            hard: self.limits[2 * index + 1],
            deadline: self.deadlines[index],
        };
        let limits = QuotaLimits { bytes: limit(0), files: limit(1) };
        let usage = QuotaUsage::new(self.bytes, self.files);
        Some(QuotaReport::new(QuotaId { kind, number: self.number }, usage, limits))
    }

    /// Returns the accounts of an answer.
    ///
    /// # Errors
    /// `Invalid` if the service sent something else.
    pub fn reports(answer: &[u8]) -> Result<Vec<QuotaReport>> {
        let sent = answer.chunks(size_of::<SentQuota>());
        let report = |bytes| SentQuota::read_from_bytes(bytes).ok().and_then(|sent| sent.report());
        let reports: Option<Vec<_>> = sent.map(report).collect();
        reports.ok_or(Error::Invalid("the service sent impossible quotas"))
    }
}

/// Returns an account as the number of a request. It is not 0.
pub fn account_number(id: QuotaId) -> u64 {
    (id.kind as u64) << 32 | u64::from(id.number)
}

/// Returns the account with this number. `None` if its kind is unknown.
pub fn account_of(number: u64) -> Option<QuotaId> {
    let kind = QuotaKind::from_raw(u32::try_from(number >> 32).ok()?)?;
    Some(QuotaId { kind, number: number as u32 })
}

/// The attributes of a directory in an answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SentAttributes {
    size: u64,
    allocated: u64,
    parent: u64,
    seconds: [i64; 3],
    nanoseconds: [u32; 3],
    uid: u32,
    gid: u32,
    links: u32,
    mode: u32,
    reserved: u32,
}

impl SentAttributes {
    /// Returns the form of a directory's attributes in an answer.
    pub fn of(attributes: &Attributes) -> SentAttributes {
        let Attributes { accessed, modified, changed, .. } = *attributes;
        SentAttributes {
            size: attributes.size,
            allocated: attributes.allocated,
            parent: attributes.parent.map_or(0, ObjectId::raw),
            seconds: [accessed, modified, changed].map(|time| time.seconds),
            nanoseconds: [accessed, modified, changed].map(|time| time.nanoseconds),
            uid: attributes.uid,
            gid: attributes.gid,
            links: attributes.links,
            mode: attributes.mode.into(),
            reserved: 0,
        }
    }

    /// Returns the attributes of a directory.
    pub fn attributes(&self) -> Attributes {
        let time = |index: usize| Time::new(self.seconds[index], self.nanoseconds[index]);
        Attributes {
            kind: Kind::Directory,
            mode: self.mode as u16,
            uid: self.uid,
            gid: self.gid,
            links: self.links,
            size: self.size,
            allocated: self.allocated,
            accessed: time(0),
            modified: time(1),
            changed: time(2),
            device: 0,
            parent: ObjectId::from_raw(self.parent),
        }
    }
}

/// An advisory lock in a message. The session of its owner is not sent: in a request it is the session of the
/// client, and in an answer it is not known.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SentLock {
    owner: u64,
    start: u64,
    last: u64,
    /// Number of the waiter. 0 if the client does not wait.
    pub waiter: u64,
    /// 0 for a process, 1 for an open file.
    class: u32,
    /// 0 for the whole object, 1 for a range.
    target: u32,
    /// 0 to unlock, 1 for a shared lock, 2 for an exclusive one.
    kind: u32,
    reserved: u32,
}

impl SentLock {
    /// Returns the form of a request in a message.
    pub fn of(request: &LockRequest, waiter: u64) -> SentLock {
        let (target, range) = match request.target {
            LockTarget::Object => (0, LockRange::ALL),
            LockTarget::Bytes(range) => (1, range),
        };
        SentLock {
            owner: request.owner.number,
            start: range.start(),
            last: range.last(),
            waiter,
            class: (request.owner.class == OwnerClass::OpenFile).into(),
            target,
            kind: match request.kind {
                None => 0,
                Some(LockKind::Shared) => 1,
                Some(LockKind::Exclusive) => 2,
            },
            reserved: 0,
        }
    }

    /// Returns the request, whose owner belongs to this session. Returns `None` if the request is impossible.
    pub fn request(&self, session: u64) -> Option<LockRequest> {
        let class = match self.class {
            0 => OwnerClass::Process,
            1 => OwnerClass::OpenFile,
            _ => return None,
        };
        let target = match (self.target, class) {
            (0, OwnerClass::OpenFile) => LockTarget::Object,
            (1, _) => LockTarget::Bytes(LockRange::new(self.start, self.last)?),
            _ => return None,
        };
        let kind = match self.kind {
            0 => None,
            1 => Some(LockKind::Shared),
            2 => Some(LockKind::Exclusive),
            _ => return None,
        };
        Some(LockRequest { owner: LockOwner { session, class, number: self.owner }, target, kind })
    }
}

/// Returns the numbers of an answer about the space of the volume.
pub fn sent_space(space: &SpaceUsage) -> [u64; 3] {
    [space.total, space.free, space.objects]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_arrive_as_they_were() {
        let range = LockRange::new(3, 9).expect("a range");
        for (class, target) in [
            (OwnerClass::OpenFile, LockTarget::Object),
            (OwnerClass::OpenFile, LockTarget::Bytes(range)),
            (OwnerClass::Process, LockTarget::Bytes(LockRange::ALL)),
        ] {
            for kind in [None, Some(LockKind::Shared), Some(LockKind::Exclusive)] {
                let owner = LockOwner { session: 7, class, number: u64::MAX };
                let request = LockRequest { owner, target, kind };
                let sent = SentLock::of(&request, 4);
                assert_eq!((sent.request(7), sent.waiter), (Some(request), 4));
                let whole_of_process = SentLock { class: 0, target: 0, ..sent };
                let bad = [SentLock { last: u64::MAX, target: 1, ..sent }, SentLock { kind: 3, ..sent }];
                assert!(bad.iter().chain([&whole_of_process]).all(|sent| sent.request(7).is_none()));
            }
        }
    }
}
