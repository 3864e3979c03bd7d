//! The locks on one object.

use super::lock::{HeldLock, LockKind, LockOwner, LockRange, LockRequest, LockTarget};
use super::ranges::OwnerRanges;

/// The locks on one object.
#[derive(Debug)]
pub struct ObjectLocks {
    /// The generation of the object. Locks of a removed object do not count for the next object with its id.
    pub generation: u64,
    /// Locks on the object as a whole.
    whole: Vec<(LockOwner, LockKind)>,
    /// The range locks of each owner, in the order of the owners' first locks.
    ranges: Vec<(LockOwner, OwnerRanges)>,
}

impl ObjectLocks {
    pub fn new(generation: u64) -> ObjectLocks {
        ObjectLocks { generation, whole: Vec::new(), ranges: Vec::new() }
    }

    /// True if the object has no lock.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.ranges.is_empty()
    }

    /// Returns the owner's lock on the object as a whole.
    pub fn whole_of(&self, owner: LockOwner) -> Option<LockKind> {
        self.whole.iter().find(|(other, _)| *other == owner).map(|&(_, kind)| kind)
    }

    /// Returns one lock for each other owner whose locks conflict with the request: the first lock of this
    /// owner that conflicts.
    pub fn conflicts(&self, request: &LockRequest) -> impl Iterator<Item = HeldLock> + '_ {
        let LockRequest { owner, target, kind } = *request;
        let range = match target {
            LockTarget::Object => None,
            LockTarget::Bytes(range) => Some(range),
        };
        let whole = self.whole.iter().filter(move |_| range.is_none());
        let whole = whole.map(|&(owner, kind)| (owner, kind, LockRange::ALL));
        let ranges = self.ranges.iter().filter_map(move |(owner, ranges)| {
            let found = ranges.conflict(range?, kind?)?;
            Some((*owner, found.kind, found.range))
        });
        whole.chain(ranges).filter_map(move |(other, held, range)| {
            let conflicts = other != owner && kind.is_some_and(|kind| kind.conflicts(held));
            conflicts.then_some(HeldLock { owner: other, range, kind: held })
        })
    }

    /// True if an unlock would leave more locks than there are now.
    pub fn splits(&self, request: &LockRequest) -> bool {
        let LockTarget::Bytes(range) = request.target else { return false };
        self.ranges.iter().any(|(owner, ranges)| *owner == request.owner && ranges.splits(range))
    }

    /// Sets or removes the lock of a request that conflicts with no other lock. Returns the number of locks
    /// that the owner had before, and the number that it has afterwards. A request for the whole object
    /// counts only locks on the whole object, and a request for a range counts the locks on all ranges.
    pub fn set(&mut self, request: &LockRequest) -> (usize, usize) {
        match request.target {
            LockTarget::Object => self.set_whole(request.owner, request.kind),
            LockTarget::Bytes(range) => self.set_range(request.owner, range, request.kind),
        }
    }

    fn set_whole(&mut self, owner: LockOwner, kind: Option<LockKind>) -> (usize, usize) {
        let before = self.whole.len();
        self.whole.retain(|(other, _)| *other != owner);
        let had = before - self.whole.len();
        self.whole.extend(kind.map(|kind| (owner, kind)));
        (had, kind.is_some().into())
    }

    fn set_range(&mut self, owner: LockOwner, range: LockRange, kind: Option<LockKind>) -> (usize, usize) {
        let known = self.ranges.iter().position(|(other, _)| *other == owner);
        let index = match (known, kind) {
            (Some(index), _) => index,
            (None, None) => return (0, 0),
            (None, Some(_)) => {
                self.ranges.push((owner, OwnerRanges::default()));
                self.ranges.len() - 1
            }
        };
        let ranges = &mut self.ranges[index].1;
        let had = ranges.len();
        ranges.set(range, kind);
        let has = ranges.len();
        if has == 0 {
            self.ranges.remove(index);
        }
        (had, has)
    }

    /// Removes all locks of the owners for which `is_gone` is true. Returns pairs of a session and a number
    /// of removed locks. A session may occur in several pairs.
    pub fn remove(&mut self, is_gone: impl Fn(LockOwner) -> bool) -> Vec<(u64, usize)> {
        let mut removed = Vec::new();
        let mut keep = |owner: LockOwner, locks: usize| {
            let gone = is_gone(owner);
            removed.extend(gone.then_some((owner.session, locks)));
            !gone
        };
        self.whole.retain(|(owner, _)| keep(*owner, 1));
        self.ranges.retain(|(owner, ranges)| keep(*owner, ranges.len()));
        removed
    }
}
