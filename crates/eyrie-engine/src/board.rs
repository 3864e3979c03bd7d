//! The board of a volume: counts that readers compare before and after a read.
//!
//! The process that changes the volume stores the counts. If other processes read the volume, they map the
//! board for reading. Otherwise the board is memory of the changing process alone. The board also has the
//! keys of the sessions, a mark for each stripe of objects with orphans, marks of features that the volume
//! may use (inode flags, `security.capability`, quotas and shared extents), the sessions that hold the grants
//! of the volume or of its parts, and a mark that the owner has saved the volume.
//!
//! Each pair of counts works as a sequence lock: a change increments the first count when it begins, and the
//! second one when it ends. A reader loads the second count, and then the first one. If the two counts are
//! equal, no change was in progress when the reader loaded the first count.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use eyrie_medium::shared::{SharedAccess, SharedMemory, announce_store};
use eyrie_medium::sync::{interleave, wait};

use crate::claims::{STRIPES, stripe_of};
use crate::spread::spread;
use crate::{Error, ObjectId, Result};

/// Size of a board, in bytes.
const BOARD_BYTES: usize = (PART_GRANTS + PARTS) * 8;
/// Words of a cache line. Words that change often have a line apart from other groups. `FEATURES`, which
/// rarely changes, shares the line of the changes of directories.
const LINE: usize = 8;
const REDO_BEGUN: usize = 0;
const REDO_ENDED: usize = 1;
const CHANGES_BEGUN: usize = LINE;
const CHANGES_ENDED: usize = LINE + 1;
const FEATURES: usize = LINE + 2;
const SAVED: usize = 3 * LINE;
const OPS_BEGUN: usize = 4 * LINE;
const OPS_DURABLE: usize = 4 * LINE + 1;
const GRANT: usize = 5 * LINE;
/// Bits of the word `FEATURES`.
const HAS_FLAGS: u64 = 1;
const HAS_CAPABILITIES: u64 = 2;
const HAS_QUOTAS: u64 = 4;
const HAS_SHARED_EXTENTS: u64 = 8;
/// First of the words with the keys of the sessions.
const SESSIONS: usize = 256;
/// Maximum number of sessions of a service.
pub const MOST_SESSIONS: usize = 256;
/// First of the words with one bit for each stripe of objects.
const ORPHANS: usize = SESSIONS + MOST_SESSIONS;
/// First of the words with the sessions that hold the grants of the parts.
const PART_GRANTS: usize = ORPHANS + STRIPES / 64;
/// Number of parts of a volume.
pub(crate) const PARTS: usize = if cfg!(feature = "shuttle") { 1 << 10 } else { 1 << 16 };
/// Number of neighbouring objects whose parts a session gets together.
const NEIGHBOURS: usize = if cfg!(feature = "shuttle") { 1 } else { 64 };
/// The result of [`Board::granted_to`] while sessions hold grants of parts.
pub const GRANTED_IN_PARTS: u64 = u64::MAX;

/// Number of attempts to read that a reader makes while a redo record is being applied, before it asks if the
/// applying process still lives. These attempts take some milliseconds.
const ATTEMPTS: u32 = 4096;

/// A function that tells if the process that changes the volume still lives.
type OwnerIsAlive = Box<dyn Fn() -> bool + Send + Sync>;

/// The key of a session of a service: the number of the owner of the volume (32 bits), a serial number (24
/// bits), and a place on the board (8 bits). A key is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionKey(u64);

impl SessionKey {
    /// Returns the key of a session at `place` (below [`MOST_SESSIONS`]) of the board of this owner.
    pub const fn new(owner: u64, serial: u64, place: usize) -> SessionKey {
        SessionKey(owner << 32 | (serial & 0xff_ffff) << 8 | place as u64)
    }

    /// Returns the key that is this number.
    pub const fn from_raw(raw: u64) -> SessionKey {
        SessionKey(raw)
    }

    /// Returns the key as a number.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Returns the place of the session on the board.
    #[inline(always)]
    pub fn place(self) -> usize {
        self.0 as usize % MOST_SESSIONS
    }

    /// True if both sessions are of one owner.
    pub fn has_owner_of(self, other: SessionKey) -> bool {
        self.is_of_owner(other.0 >> 32)
    }

    /// True if the session belongs to a later owner than the one with this number.
    pub fn is_after_owner(self, owner: u64) -> bool {
        self.0 >> 32 > owner & 0xffff_ffff
    }

    /// True if the session belongs to the owner with this number.
    #[inline(always)]
    pub fn is_of_owner(self, owner: u64) -> bool {
        self.0 >> 32 == owner & 0xffff_ffff
    }
}

/// Returns the number of the *part* of a volume that an object belongs to. A part is a set of objects with
/// one grant: a few objects, which need not be neighbours.
#[inline]
pub fn part_of(id: ObjectId) -> usize {
    spread(id, PARTS)
}

/// Returns the part of an object, and the parts of the objects that were probably made together with it.
pub fn parts_beside(id: ObjectId) -> Range<usize> {
    let part = part_of(id);
    if id.is_directory() {
        return part..part + 1;
    }
    // The objects of a header chunk have successive parts.
    let first = part & !(NEIGHBOURS - 1);
    first..first + NEIGHBOURS
}

/// The counts of a volume that readers compare.
pub struct Board {
    memory: SharedMemory,
    /// Number of results of [`Board::directory_changes`] that were returned during a change.
    answers_during_changes: AtomicU64,
    /// `None` in the process that changes the volume.
    owner_is_alive: Option<OwnerIsAlive>,
}

impl Board {
    fn over(memory: SharedMemory, owner_is_alive: Option<OwnerIsAlive>) -> Board {
        Board { memory, answers_during_changes: AtomicU64::new(0), owner_is_alive }
    }

    /// Makes the board of a volume that only this process reads.
    pub(crate) fn private() -> Result<Board> {
        Ok(Board::over(SharedMemory::private(BOARD_BYTES)?, None))
    }

    /// Makes the board of a volume that other processes read.
    pub(crate) fn shared() -> Result<Board> {
        Ok(Board::over(SharedMemory::create_for_readers(BOARD_BYTES)?, None))
    }

    /// Maps the board of a volume that another process changes. A reader that waits for that process calls
    /// `owner_is_alive` from time to time.
    ///
    /// # Errors
    /// `Fault` if `file` is no board, or the host refuses to map it.
    pub(crate) fn of_owner(file: File, owner_is_alive: OwnerIsAlive) -> Result<Board> {
        let memory = SharedMemory::map(file.into(), BOARD_BYTES, SharedAccess::Read)?;
        Ok(Board::over(memory, Some(owner_is_alive)))
    }

    /// Returns the file of a board that other processes can map for reading. `None` for a private board.
    pub fn file(&self) -> Option<&File> {
        self.memory.file()
    }

    /// Maps the board of the next owner in place of the board that is mapped now.
    ///
    /// # Errors
    /// As [`VolumeView::of_owner`](crate::volume::VolumeView::of_owner).
    pub fn replace(&self, file: File) -> Result<()> {
        Ok(self.memory.replace(file.into())?)
    }

    /// True if the session with this key has not ended.
    #[inline(always)]
    pub fn has_session(&self, key: SessionKey) -> bool {
        self.word(SESSIONS + key.place()).load(Ordering::Acquire) == key.0
    }

    /// Returns a place without a session. `None` if all are taken.
    pub fn free_place(&self) -> Option<usize> {
        (0..MOST_SESSIONS).find(|place| self.word(SESSIONS + place).load(Ordering::Relaxed) == 0)
    }

    /// Begins a session. Its client may read after this call.
    pub fn begin_session(&self, key: SessionKey) {
        interleave();
        self.word_to_store(SESSIONS + key.place()).store(key.0, Ordering::SeqCst);
    }

    /// Ends a session. The owner then reuses storage without waiting for the pins of its client. The client
    /// sees the end before it sees reused storage, and drops the bytes that it has read.
    pub fn end_session(&self, key: SessionKey) {
        interleave();
        self.word_to_store(SESSIONS + key.place()).store(0, Ordering::SeqCst);
    }

    /// Returns the key of the session that holds the *grant* of the volume, as a number. The changes of that
    /// session may be in its [log](crate::change_log), and not in the volume yet. Returns 0 if all logs are
    /// applied, and [`GRANTED_IN_PARTS`] if sessions may hold grants of parts ([`Board::part_holder`]).
    #[inline(always)]
    pub fn granted_to(&self) -> u64 {
        interleave();
        self.word(GRANT).load(Ordering::SeqCst)
    }

    /// Gives the grant to the session with this key, or takes it back (`None`). Before this call, the caller
    /// has applied the log of the session that held the grant.
    pub fn grant_to(&self, key: Option<SessionKey>) {
        interleave();
        self.word_to_store(GRANT).store(key.map_or(0, SessionKey::raw), Ordering::SeqCst);
    }

    /// Tells the clients to look at the grants of parts.
    pub fn grant_in_parts(&self) {
        interleave();
        self.word_to_store(GRANT).store(GRANTED_IN_PARTS, Ordering::SeqCst);
    }

    /// Returns the key of the session that holds the grant of a part, as a number, or 0.
    #[inline]
    pub fn part_holder(&self, part: usize) -> u64 {
        interleave();
        self.word(PART_GRANTS + part).load(Ordering::SeqCst)
    }

    /// Gives the grant of a part to a session, or takes it back. Before this call, the caller has applied the
    /// log of the session that held the grant.
    pub fn give_part(&self, part: usize, key: Option<SessionKey>) {
        interleave();
        self.word_to_store(PART_GRANTS + part).store(key.map_or(0, SessionKey::raw), Ordering::SeqCst);
    }

    /// Returns the parts whose grants a session holds.
    pub fn parts_of(&self, key: SessionKey) -> impl Iterator<Item = usize> + '_ {
        let words = &self.memory.words()[PART_GRANTS..][..PARTS];
        let held = words.iter().enumerate().filter(move |(_, word)| word.load(Ordering::Relaxed) == key.0);
        held.map(|(part, _)| part)
    }

    /// True if a session holds the grant of the part with this object.
    #[inline]
    pub fn is_held_by(&self, id: ObjectId, key: SessionKey) -> bool {
        self.part_holder(part_of(id)) == key.0
    }

    /// Tells the clients that the owner has saved the volume and will not change it again.
    pub fn set_saved(&self) {
        self.word_to_store(SAVED).store(1, Ordering::Release);
    }

    /// True after [`Board::set_saved`]. Otherwise, if the owner has ended, a disk may have lost the changes
    /// since the last sync.
    pub fn is_saved(&self) -> bool {
        self.word(SAVED).load(Ordering::Acquire) != 0
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.memory.words()[index]
    }

    /// Returns a word for a store that follows at once.
    #[inline(always)]
    #[track_caller]
    fn word_to_store(&self, index: usize) -> &AtomicU64 {
        announce_store();
        self.word(index)
    }

    /// Runs `read`, and repeats it until a run overlapped with no application of a redo record. Returns the
    /// result of that run. That run saw each Op whole or not at all. Returns `ServiceEnded` if the process
    /// that applies a record has died.
    #[inline(always)]
    pub(crate) fn stable<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let mut attempt = 0_u32;
        loop {
            if let Some(begun) = self.redo_records() {
                let result = read();
                // If the number is still the same, no application of a record began during the read. Loads
                // from a medium have acquire order, so they come before this load.
                if self.word(REDO_BEGUN).load(Ordering::Acquire) == begun {
                    return result;
                }
            }
            self.wait(attempt)?;
            attempt = attempt.saturating_add(1);
        }
    }

    /// Returns the number of redo records whose application has begun, or `None` while a record is being
    /// applied. If two calls return the same number, no record was applied between them.
    #[inline(always)]
    pub(crate) fn redo_records(&self) -> Option<u64> {
        let ended = self.word(REDO_ENDED).load(Ordering::Acquire);
        let begun = self.word(REDO_BEGUN).load(Ordering::Acquire);
        (begun == ended).then_some(begun)
    }

    /// Waits a moment for the process that applies a redo record. After every [`ATTEMPTS`] attempts, asks if
    /// that process still lives.
    #[cold]
    fn wait(&self, attempt: u32) -> Result<()> {
        wait(attempt);
        let asks = attempt >= ATTEMPTS && attempt.is_multiple_of(ATTEMPTS);
        match &self.owner_is_alive {
            Some(is_alive) if asks && !is_alive() => Err(Error::ServiceEnded),
            _ => Ok(()),
        }
    }

    /// Runs `apply`, which applies a redo record. Readers of several words wait until `apply` has returned or
    /// panicked.
    pub(crate) fn applying<T>(&self, apply: impl FnOnce() -> T) -> T {
        // The two increments have acquire and release order, so every store of the record comes between them.
        self.word_to_store(REDO_BEGUN).fetch_add(1, Ordering::AcqRel);
        let _finish = CountOnDrop(self, REDO_ENDED);
        apply()
    }

    /// Runs `apply`, which applies an Op of a client. Until `apply` returns, a client may see a part of the
    /// Op that is not durable. After a fault this part may never become durable, so the Op never counts as
    /// done.
    pub fn applying_op<T>(&self, apply: impl FnOnce() -> Result<T>) -> Result<T> {
        self.word_to_store(OPS_BEGUN).fetch_add(1, Ordering::AcqRel);
        let applied = apply();
        if !matches!(applied, Err(Error::Fault(_))) {
            self.word_to_store(OPS_DURABLE).fetch_add(1, Ordering::AcqRel);
        }
        applied
    }

    /// True only if every Op of which this thread has seen a part is durable. The result is false while any
    /// Op is in progress, even one that the thread has not seen. The owner counts Ops only if a fence of its
    /// medium makes stores durable. On other media the result is always true.
    #[inline]
    pub fn seen_ops_are_durable(&self) -> bool {
        // The fence orders the reads of the caller before the loads below.
        fence(Ordering::Acquire);
        let durable = self.word(OPS_DURABLE).load(Ordering::Acquire);
        self.word(OPS_BEGUN).load(Ordering::Acquire) == durable
    }

    /// Returns a number that is the same at two moments only if no change of a directory happened between
    /// them, and no such change was in progress. Callers that cache paths compare this number.
    #[inline]
    pub fn directory_changes(&self) -> u64 {
        let ended = self.word(CHANGES_ENDED).load(Ordering::Acquire);
        if ended == self.word(CHANGES_BEGUN).load(Ordering::Acquire) {
            return ended;
        }
        // A change is running. Return a number that never repeats, so that no cached path matches it.
        1 << 63 | self.answers_during_changes.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `change`, which may make cached paths wrong.
    pub(crate) fn changing_directories<T>(&self, change: impl FnOnce() -> T) -> T {
        self.word_to_store(CHANGES_BEGUN).fetch_add(1, Ordering::AcqRel);
        let _end = CountOnDrop(self, CHANGES_ENDED);
        change()
    }

    /// True if an object of the volume may have inode flags.
    #[inline]
    pub fn has_flags(&self) -> bool {
        self.word(FEATURES).load(Ordering::Acquire) & HAS_FLAGS != 0
    }

    /// Tells readers that an object may have inode flags, before the first object gets a flag.
    pub(crate) fn set_has_flags(&self) {
        self.word_to_store(FEATURES).fetch_or(HAS_FLAGS, Ordering::Release);
    }

    /// True if an object of the volume may have `security.capability`.
    #[inline]
    pub(crate) fn has_capabilities(&self) -> bool {
        self.word(FEATURES).load(Ordering::Acquire) & HAS_CAPABILITIES != 0
    }

    /// Tells writers that an object may have `security.capability`, before the first object gets it.
    pub(crate) fn set_has_capabilities(&self) {
        self.word_to_store(FEATURES).fetch_or(HAS_CAPABILITIES, Ordering::Release);
    }

    /// True if several pointers may lead to an extent of the volume.
    pub(crate) fn has_shared_extents(&self) -> bool {
        self.word(FEATURES).load(Ordering::Acquire) & HAS_SHARED_EXTENTS != 0
    }

    /// Tells readers that several pointers may lead to an extent, before the first clone.
    pub(crate) fn set_has_shared_extents(&self) {
        self.word_to_store(FEATURES).fetch_or(HAS_SHARED_EXTENTS, Ordering::Release);
    }

    /// True if the volume counts usage for quotas.
    #[inline(always)]
    pub(crate) fn has_quotas(&self) -> bool {
        self.word(FEATURES).load(Ordering::Acquire) & HAS_QUOTAS != 0
    }

    /// Tells writers that the volume counts usage, or that it no longer does. The caller holds the locks of
    /// all objects, or the volume has no users yet.
    pub(crate) fn set_has_quotas(&self, counts: bool) {
        let features = self.word_to_store(FEATURES);
        if counts {
            features.fetch_or(HAS_QUOTAS, Ordering::Release);
        } else {
            features.fetch_and(!HAS_QUOTAS, Ordering::Release);
        }
    }

    /// True if the stripe of an object has an orphan: an object without a name that handles keep alive.
    ///
    /// A close first lowers its count of opens, and then reads this mark. An unlink of an open object first
    /// sets this mark, and then reads the count. All four accesses are sequentially consistent. Therefore the
    /// close sees the orphan, or the unlink sees that the object is closed.
    #[inline]
    pub fn has_orphans(&self, id: ObjectId) -> bool {
        let stripe = stripe_of(id);
        self.word(ORPHANS + stripe / 64).load(Ordering::SeqCst) >> (stripe % 64) & 1 != 0
    }

    /// Notes if a stripe of objects has orphans.
    pub(crate) fn set_has_orphans(&self, stripe: usize, has_orphans: bool) {
        let (word, bit) = (self.word_to_store(ORPHANS + stripe / 64), 1 << (stripe % 64));
        if has_orphans {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }
}

/// Counts the end of a change, even if the change panics.
struct CountOnDrop<'a>(&'a Board, usize);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.word_to_store(self.1).fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use eyrie_medium::Fault;

    use super::*;

    #[test]
    fn change_that_panics_ends() {
        let board = Board::private().expect("memory");
        let before = board.directory_changes();
        let change = || board.changing_directories(|| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
        let after = board.directory_changes();
        assert!(after != before && board.directory_changes() == after, "{before} {after}");
    }

    #[test]
    fn op_with_a_fault_is_never_durable() {
        let board = Board::private().expect("memory");
        assert!(board.seen_ops_are_durable());
        let refused = board.applying_op(|| {
            assert!(!board.seen_ops_are_durable());
            Err::<(), _>(Error::NoSpace)
        });
        assert!(refused.is_err() && board.seen_ops_are_durable());
        assert!(board.applying_op(|| Err::<(), _>(Error::Fault(Fault::Failed))).is_err());
        board.applying_op(|| Ok(())).expect("it succeeds");
        assert!(!board.seen_ops_are_durable());
    }
}
