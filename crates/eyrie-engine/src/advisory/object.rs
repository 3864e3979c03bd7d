//! The locks on one object.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::lock::{HeldLock, LockKind, LockOwner, LockRange, LockRequest, LockTarget};
use super::ranges::{LockedRange, OwnerRanges};

#[cfg(test)]
thread_local! {
    /// Number of owners with range locks at which this thread has looked.
    pub static OWNERS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The locks on one object. Very many owners may have locks on it.
#[derive(Debug)]
pub struct ObjectLocks {
    /// The generation of the object. Locks of a removed object do not count for the next object with its id.
    pub generation: u64,
    /// Locks on the object as a whole: one exclusive lock, or any number of shared ones.
    whole: HashMap<LockOwner, LockKind>,
    /// The range locks of each owner.
    ranges: HashMap<LockOwner, NumberedRanges>,
    /// Number of owners that have got a first range lock.
    first_locks: u64,
    /// Number of exclusive range locks of all owners.
    exclusive: usize,
}

/// The range locks of an owner. Numbers ascend in the order of the owners' first locks.
#[derive(Debug)]
struct NumberedRanges {
    number: u64,
    ranges: OwnerRanges,
}

impl ObjectLocks {
    pub fn new(generation: u64) -> ObjectLocks {
        let (whole, ranges) = (HashMap::new(), HashMap::new());
        ObjectLocks { generation, whole, ranges, first_locks: 0, exclusive: 0 }
    }

    /// True if the object has no lock.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.ranges.is_empty()
    }

    /// Returns the owner's lock on the object as a whole.
    pub fn whole_of(&self, owner: LockOwner) -> Option<LockKind> {
        self.whole.get(&owner).copied()
    }

    /// Returns the range locks of an owner.
    fn ranges_of(&self, owner: LockOwner) -> Option<&OwnerRanges> {
        self.ranges.get(&owner).map(|owner| &owner.ranges)
    }

    /// True if no lock of another owner can conflict with the request, because all of them are shared.
    fn allows(&self, request: &LockRequest) -> bool {
        let is_shared = request.kind != Some(LockKind::Exclusive);
        is_shared
            && match request.target {
                // Several owners can have locks on the whole object only if all of them are shared.
                LockTarget::Object => self.whole.len() > 1,
                LockTarget::Bytes(_) => {
                    self.exclusive == self.ranges_of(request.owner).map_or(0, OwnerRanges::exclusive)
                }
            }
    }

    /// Returns one lock for each other owner whose locks conflict with the request: the first lock of this
    /// owner that conflicts.
    pub fn conflicts(&self, request: &LockRequest) -> impl Iterator<Item = HeldLock> + '_ {
        self.numbered_conflicts(request).map(|(_, held)| held)
    }

    /// Returns the conflict with the owner that got its first lock first.
    pub fn first_conflict(&self, request: &LockRequest) -> Option<HeldLock> {
        self.numbered_conflicts(request).min_by_key(|(number, _)| *number).map(|(_, held)| held)
    }

    /// Works as [`ObjectLocks::conflicts`], and also returns the number of each owner with range locks.
    fn numbered_conflicts(&self, request: &LockRequest) -> impl Iterator<Item = (u64, HeldLock)> + '_ {
        let LockRequest { owner, target, kind } = *request;
        let range = match target {
            LockTarget::Object => None,
            LockTarget::Bytes(range) => Some(range),
        };
        let may_conflict = !self.allows(request);
        let whole = self.whole.iter().filter(move |_| may_conflict && range.is_none());
        let whole = whole.map(|(&owner, &kind)| (0, HeldLock { owner, kind, range: LockRange::ALL }));
        let ranges = self.ranges.iter().take_while(move |_| may_conflict && range.is_some());
        let ranges = ranges.filter_map(move |(&owner, NumberedRanges { number, ranges })| {
            #[cfg(test)]
            OWNERS.set(OWNERS.get() + 1);
            let LockedRange { range, kind } = ranges.conflict(range?, kind?)?;
            Some((*number, HeldLock { owner, range, kind }))
        });
        let conflicts =
            move |held: &HeldLock| held.owner != owner && kind.is_some_and(|kind| kind.conflicts(held.kind));
        whole.chain(ranges).filter(move |(_, held)| conflicts(held))
    }

    /// True if an unlock would leave more locks than there are now.
    pub fn splits(&self, request: &LockRequest) -> bool {
        let LockTarget::Bytes(range) = request.target else { return false };
        self.ranges_of(request.owner).is_some_and(|ranges| ranges.splits(range))
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
        let had = match kind {
            Some(kind) => self.whole.insert(owner, kind),
            None => self.whole.remove(&owner),
        };
        (had.is_some().into(), kind.is_some().into())
    }

    fn set_range(&mut self, owner: LockOwner, range: LockRange, kind: Option<LockKind>) -> (usize, usize) {
        let number = self.first_locks;
        let ranges = match (self.ranges.entry(owner), kind) {
            (Entry::Occupied(known), _) => known.into_mut(),
            (Entry::Vacant(_), None) => return (0, 0),
            (Entry::Vacant(new), Some(_)) => {
                self.first_locks += 1;
                new.insert(NumberedRanges { number, ranges: OwnerRanges::default() })
            }
        };
        let ranges = &mut ranges.ranges;
        let (had, had_exclusive) = (ranges.len(), ranges.exclusive());
        ranges.set(range, kind);
        let (has, has_exclusive) = (ranges.len(), ranges.exclusive());
        self.exclusive = self.exclusive + has_exclusive - had_exclusive;
        if has == 0 {
            self.ranges.remove(&owner);
        }
        (had, has)
    }

    /// Removes all locks of an owner. Returns the number of removed locks.
    pub fn remove(&mut self, owner: LockOwner) -> usize {
        let whole = usize::from(self.whole.remove(&owner).is_some());
        let Some(NumberedRanges { ranges, .. }) = self.ranges.remove(&owner) else { return whole };
        self.exclusive -= ranges.exclusive();
        whole + ranges.len()
    }

    /// Returns the owners with locks. An owner may occur twice.
    pub fn owners(&self) -> impl Iterator<Item = LockOwner> {
        self.whole.keys().chain(self.ranges.keys()).copied()
    }
}
