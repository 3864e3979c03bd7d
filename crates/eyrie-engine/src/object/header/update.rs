//! Writing new headers and changing live ones.

use eyrie_medium::Medium;
use eyrie_medium::rules::{SafetyRule, broken};
use zerocopy::IntoBytes;

use super::layout::{Cold, HotCopy, HotLine, Identity};
use super::read::{Header, Hot, Selector};
use crate::object::pointer::Pointer;
use crate::tables::layout::HEADER_BYTES;
use crate::transaction::{LineChange, Transaction};
use crate::{Kind, Owner, Result, Time};

/// The contents of a new object's header.
pub(crate) struct NewObject {
    /// Kind of the object.
    pub kind: Kind,
    /// True if the object's bytes are never changed in place.
    pub sealed: bool,
    /// Number that distinguishes this use of the header from all other uses.
    pub generation: u64,
    /// Owner and permissions.
    pub owner: Owner,
    /// Root pointer.
    pub root: Pointer,
    /// Size, in bytes.
    pub size: u64,
    /// Parent of a directory, or device number of a device.
    pub parent_or_device: u64,
    /// Initial value of all four times.
    pub time: Time,
}

/// The new contents of a hot line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotChange {
    /// Root pointer.
    pub root: Pointer,
    /// Size, in bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Time,
    /// True if the change time becomes equal to the modification time. If false, the change time is in the
    /// cold copy.
    pub follows: bool,
    /// True if the other cold copy becomes the current one.
    pub cold: bool,
}

impl HotChange {
    /// Returns a change of the data at `time`. If `root` and `size` are the present ones, only the times
    /// change.
    pub fn data(root: Pointer, size: u64, time: Time) -> HotChange {
        HotChange { root, size, modified: time, follows: true, cold: false }
    }

    /// Returns a change of only the root, for a directory whose table is replaced. The entries stay the same.
    pub fn root(now: &Hot, root: Pointer) -> HotChange {
        let follows = now.selector.follows();
        HotChange { root, size: now.size, modified: now.modified, follows, cold: false }
    }

    /// Returns a change of only the cold attributes, including the change time.
    pub fn cold(now: &Hot) -> HotChange {
        HotChange { root: now.root, size: now.size, modified: now.modified, follows: false, cold: true }
    }

    /// Returns a change of only the access time, which is a cold attribute. The change time stays the same:
    /// it still equals the modification time, or is still in the cold attributes.
    pub fn accessed(now: &Hot) -> HotChange {
        HotChange { follows: now.selector.follows(), ..HotChange::cold(now) }
    }
}

impl Header {
    /// Writes the header of an object that has no name yet.
    ///
    /// # Errors
    /// `Fault`.
    pub(crate) fn write_new(self, transaction: &mut Transaction<'_>, new: &NewObject) -> Result<()> {
        let identity = Identity {
            magic: Identity::MAGIC,
            kind: new.kind as u8,
            reserved_flags: [0; 3],
            generation: new.generation,
            realm: 0,
            created_nanoseconds: new.time.nanoseconds,
            created_seconds: new.time.seconds,
            reserved: [0; 4],
        };
        let copy = HotCopy { root: new.root.raw(), size: new.size, modified_seconds: new.time.seconds };
        let hot = HotLine {
            selector: Selector::first(new.kind, new.sealed).0,
            copies: [copy; 2],
            modified_nanoseconds: [new.time.nanoseconds; 2],
        };
        let cold = Cold {
            mode: new.owner.mode,
            flags: 0,
            uid: new.owner.uid,
            gid: new.owner.gid,
            links: 1,
            accessed_seconds: new.time.seconds,
            changed_seconds: new.time.seconds,
            accessed_nanoseconds: new.time.nanoseconds,
            changed_nanoseconds: new.time.nanoseconds,
            parent_or_device: new.parent_or_device,
            xattr_root: 0,
            times_version: 0,
            project: 0,
        };
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..64].copy_from_slice(identity.as_bytes());
        bytes[64..128].copy_from_slice(hot.as_bytes());
        bytes[128..192].copy_from_slice(cold.as_bytes());
        transaction.precedes(SafetyRule::HeaderBeforeItsEntry, self.addr(), bytes.len())?;
        transaction.write(self.addr(), &bytes)
    }

    /// Returns the words that make `change` current. `now` is the state before the change.
    #[inline(always)]
    fn line(self, now: &Hot, change: &HotChange) -> LineChange {
        let in_place = broken(SafetyRule::DeadHotCopyIsWritten);
        let dead = if in_place { now.selector.hot_copy() } else { 1 - now.selector.hot_copy() };
        // Word 0 of the line is the selector. Words 1 to 3 and words 4 to 6 are the two copies.
        let first = 1 + dead * 3;
        // Word 7 has the nanoseconds of both copies. The nanoseconds of the current copy must not change.
        let (kept, new) = (u64::from(now.modified.nanoseconds), u64::from(change.modified.nanoseconds));
        let packed = if dead == 0 { kept << 32 | new } else { new << 32 | kept };
        let mut selector = now.selector.next(change.cold, change.follows);
        selector.0 ^= u64::from(in_place);
        LineChange {
            addr: self.hot_line(),
            words: [
                (first, change.root.raw()),
                (first + 1, change.size),
                (first + 2, change.modified.seconds as u64),
                (7, packed),
                (0, selector.0),
            ],
        }
    }

    /// Adds `change` to the commit of the transaction.
    #[inline]
    pub(crate) fn change(self, transaction: &mut Transaction<'_>, now: &Hot, change: &HotChange) {
        transaction.line(self.line(now, change));
    }

    /// Adds a prelude with a new time: a hot line that is published before the commit of the data. Therefore
    /// no crash leaves new data with an old time.
    pub(crate) fn touch_first(self, transaction: &mut Transaction<'_>, now: &Hot, time: Time) {
        transaction.prelude(self.line(now, &HotChange::data(now.root, now.size, time)));
    }

    /// Adds changed cold attributes to the commit of the transaction, together with `change`.
    ///
    /// # Errors
    /// `Fault`.
    pub(crate) fn change_cold(
        self,
        transaction: &mut Transaction<'_>,
        now: &Hot,
        cold: &Cold,
        change: HotChange,
    ) -> Result<()> {
        let in_place = broken(SafetyRule::DeadColdCopyIsWritten);
        let line = self.cold_line((1 - now.selector.cold_copy()) ^ u64::from(in_place));
        // The cold copy is not in the selector's cache line. Therefore the barrier of the transaction must
        // order the store of the cold copy before the publish of the selector.
        transaction.precedes(SafetyRule::ColdCopyBeforeItsSelector, line, size_of::<Cold>())?;
        transaction.write(line, cold.as_bytes())?;
        self.change(transaction, now, &HotChange { cold: !in_place, ..change });
        Ok(())
    }

    /// Adds the sealed bit to the commit of the transaction. `now` is the selector, which changes in no other
    /// way: the version of the bytes stays the same.
    pub(crate) fn seal(self, transaction: &mut Transaction<'_>, now: Selector) {
        transaction.word(self.hot_line(), now.as_sealed().0);
    }

    /// Sets the unlinked bit of an object. Later opens of the object then fail, unless a handle keeps it
    /// alive. The caller has committed the removal of the last name, and still holds the lock of the object.
    /// Therefore no other change of the selector comes between the load and the store.
    ///
    /// After a crash no entry leads to the object, so recovery never reads this bit. Therefore the store
    /// needs no order.
    ///
    /// # Errors
    /// `Stale`, `Fault`.
    pub(crate) fn mark_unlinked(self, medium: &Medium) -> Result<()> {
        let selector = self.selector(medium)?.as_unlinked();
        drop(medium.write_word(self.hot_line(), selector.0)?);
        Ok(())
    }

    /// Marks a new object, which has just been written, as an object without a name. Its link count becomes 0
    /// if the object may get a name. Otherwise the count stays 1. An object that has lost its last name also
    /// has the count 1.
    ///
    /// # Errors
    /// `Fault`.
    pub(crate) fn remove_first_name(self, transaction: &mut Transaction<'_>, linkable: bool) -> Result<()> {
        let medium = transaction.medium();
        let mut cold: Cold = medium.read_value(self.cold_line(0))?;
        cold.links = u32::from(!linkable);
        let selector = self.selector(medium)?.as_unlinked();
        transaction.write(self.cold_line(0), cold.as_bytes())?;
        transaction.write(self.hot_line(), &selector.0.to_le_bytes())
    }

    /// Clears the unlinked bit by a separate store after the commit. Only the mutant of the rule
    /// `first-name-ends-the-mark` does this.
    ///
    /// # Errors
    /// `Stale`, `Fault`.
    #[cold]
    pub(crate) fn end_mark_late(self, medium: &Medium) -> Result<()> {
        let selector = self.selector(medium)?.as_named();
        drop(medium.write_word(self.hot_line(), selector.0)?);
        Ok(())
    }

    /// Reserves the stores of [`Header::mark_unlinked`] and [`Header::forget`]. These stores follow a commit,
    /// so they must not fail for lack of room in the journal of a disk.
    ///
    /// # Errors
    /// `Fault`.
    #[inline]
    pub(crate) fn reserve_unlinked_store(self, medium: &Medium) -> Result<()> {
        Ok(medium.reserve_store(self.hot_line())?)
    }

    /// Ends the life of an object that has neither a name nor an open handle. From now on, uses of its id
    /// fail with `Stale`, until a new object of the same kind uses the header.
    ///
    /// # Errors
    /// `Fault`.
    pub fn forget(self, medium: &Medium) -> Result<()> {
        // No order is needed. After a crash no entry leads to this header, and recovery frees its slot.
        drop(medium.write_word(self.hot_line(), 0)?);
        Ok(())
    }
}
