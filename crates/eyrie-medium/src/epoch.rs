//! Grace periods: memory that a reader may still see is not reused.
//!
//! The process has one clock. A thread that reads holds a pin. The thread has a slot with a count: the start
//! of the pin makes this count odd, and the end of the pin makes it even again. At the start of each epoch
//! the clock notes the count of every slot. The clock advances only when no slot still has the odd count that
//! it had at the start of the epoch. Therefore, when the clock is at *e + 2*, every pin that began in epoch
//! *e* or earlier has ended, and memory retired in epoch *e* is out of every reader's sight.
//!
//! The slots are in memory that other processes can map. If other processes read a volume, the owner of the
//! volume [watches](watch_pins) their slots. So the clock of the owner also waits for their pins. The counts
//! of several processes need no common clock. A process that stores wrong counts can only delay the reuse of
//! memory, or spoil its own reads.
//!
//! A thread pins with one atomic addition, on a cache line that only this thread writes. A guard that is held
//! for a long time only delays the reuse of memory.
//!
//! Threads without a slot (the *crowd*) share two counts of pins. The crowd has turns, and all pins of a turn
//! have ended two turns later. At the start of each epoch the clock notes the turn. The clock advances only
//! when the crowd has no pin, or when two further turns have begun.

mod crowd;
mod watch;

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use self::crowd::Crowd;
pub use self::watch::{PinWatch, pins_file, watch_pins};
use crate::rules::{SafetyRule, broken};
use crate::shared::SharedMemory;
use crate::sync::{interleave, thread_local, unpoisoned};

/// Maximum number of threads with a slot. Further threads are the crowd.
pub const SLOTS: usize = 256;
/// Words of a slot. A slot has two cache lines, because processors prefetch lines in pairs. So a pin of one
/// thread does not slow another thread's pin.
const SLOT_WORDS: usize = 16;
/// Size of a table of pins, in bytes. The head has a few words and takes the room of one slot. The slots
/// follow.
const TABLE_BYTES: usize = (SLOTS + 1) * SLOT_WORDS * 8;
/// Word of the head: number of slots, counted from the first, that threads have ever claimed. The clock skips
/// all later slots, because they are idle.
const USED: usize = 0;
/// First of the words of the crowd in the head.
const CROWD: usize = 1;

/// The pins of one process, in memory that other processes can map. The first word of a slot is its count.
/// The second word is 1 while a thread has the slot.
struct PinTable(SharedMemory);

impl PinTable {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    /// Returns the count of a slot: odd while the thread of the slot holds a pin.
    fn count(&self, slot: usize) -> &AtomicU64 {
        &self.words()[(slot + 1) * SLOT_WORDS]
    }

    fn used(&self) -> usize {
        (self.words()[USED].load(Ordering::SeqCst) as usize).min(SLOTS)
    }

    fn crowd(&self) -> Crowd<'_> {
        Crowd::over(&self.words()[CROWD..][..crowd::WORDS])
    }
}

/// A table of pins, and the counts at the start of the current epoch.
struct WatchedPins {
    table: PinTable,
    at_start: Box<[AtomicU64]>,
    /// The turn of the crowd at the start of the current epoch.
    turn_at_start: AtomicU64,
}

impl WatchedPins {
    fn new(memory: SharedMemory) -> WatchedPins {
        let at_start = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        WatchedPins { table: PinTable(memory), at_start, turn_at_start: AtomicU64::new(0) }
    }

    /// True if a pin of an earlier epoch may not have ended.
    fn are_behind(&self) -> bool {
        let is_behind = |slot: usize| {
            let count = self.table.count(slot).load(Ordering::Relaxed);
            count % 2 == 1 && count == self.at_start[slot].load(Ordering::Relaxed)
        };
        self.table.crowd().is_behind(self.turn_at_start.load(Ordering::Relaxed))
            || (0..self.table.used()).any(is_behind)
    }

    /// Notes the counts at the start of an epoch.
    fn start_epoch(&self) {
        self.turn_at_start.store(self.table.crowd().turn(), Ordering::Relaxed);
        for slot in 0..self.table.used() {
            let count = self.table.count(slot).load(Ordering::Relaxed);
            self.at_start[slot].store(count, Ordering::Relaxed);
        }
    }
}

static CLOCK: AtomicU64 = AtomicU64::new(2);
/// True while a thread tries to advance the clock, or adds a watched table. Only a thread that advances the
/// clock changes the noted counts (`at_start`).
static ADVANCING: AtomicBool = AtomicBool::new(false);
/// The pins of this process. `None` if the host had no memory for them. All threads are then in the crowd.
static OWN: OnceLock<Option<WatchedPins>> = OnceLock::new();
/// The crowd of a process without a table, and its turn at the start of the current epoch.
static CROWD_ALONE: ([AtomicU64; crowd::WORDS], AtomicU64) =
    ([const { AtomicU64::new(0) }; crowd::WORDS], AtomicU64::new(0));
/// Number of watched tables of other processes.
static OTHERS: AtomicUsize = AtomicUsize::new(0);
/// The watched tables of other processes.
static WATCHED: Mutex<Vec<Arc<WatchedPins>>> = Mutex::new(Vec::new());

fn own() -> Option<&'static WatchedPins> {
    let make = || {
        // A forked child must not change the table of its parent, so it gets a new table before it runs.
        register_fork_handler();
        let shared = SharedMemory::create_for_readers(TABLE_BYTES);
        // Without a memory file, this process cannot be a client, but its threads have slots.
        Some(WatchedPins::new(shared.or_else(|_| SharedMemory::private(TABLE_BYTES)).ok()?))
    };
    OWN.get_or_init(make).as_ref()
}

/// Returns the crowd of this process.
fn own_crowd() -> Crowd<'static> {
    own().map_or(Crowd::over(&CROWD_ALONE.0), |own| own.table.crowd())
}

/// A time on the process's clock of grace periods.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(u64);

impl Epoch {
    /// Returns true if memory retired in this epoch is out of every reader's sight at time `now`.
    #[inline]
    pub fn is_over(self, now: Epoch) -> bool {
        now.0 >= self.0 + if broken(SafetyRule::RetiredStorageWaitsForReaders) { 1 } else { 2 }
    }
}

/// The slot of one thread, and the number of its nested pins. A thread without a slot pins in the crowd.
struct ThreadPins {
    /// Number of the slot; `usize::MAX` before the first claim, [`SLOTS`] for a thread without a slot.
    slot: Cell<usize>,
    /// The count of the slot. `None` before the first claim, and for a thread without a slot.
    count: Cell<Option<&'static AtomicU64>>,
    /// Twice the number of outermost pins that the thread has made in the crowd, plus the index of the count
    /// of the last one.
    crowd: Cell<usize>,
    depth: Cell<u32>,
}

thread_local! {
    static LOCAL: ThreadPins = const {
        ThreadPins {
            slot: Cell::new(usize::MAX),
            count: Cell::new(None),
            crowd: Cell::new(0),
            depth: Cell::new(0),
        }
    };
}

std::thread_local! {
    /// Numbers of live guards that this thread has made since its thread-locals were destroyed, by their
    /// index in the crowd. This variable has no destructor, so the thread can use it until its end.
    static ENDING: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

impl ThreadPins {
    /// Returns the number of this thread's slot, or [`SLOTS`] if it has none. The first call claims a slot.
    #[inline]
    fn slot(&self) -> usize {
        if self.slot.get() == usize::MAX {
            self.claim();
        }
        self.slot.get()
    }

    /// Claims a slot for the thread.
    #[cold]
    fn claim(&self) {
        let claimed = own().and_then(|own| own.table.claim());
        self.slot.set(claimed.map_or(SLOTS, |(slot, _)| slot));
        self.count.set(claimed.map(|(_, count)| count));
    }

    fn has_slot(&self) -> bool {
        self.slot.get() < SLOTS
    }
}

impl PinTable {
    /// Claims a slot for a thread. Returns its number and its count, or `None` if all slots are claimed.
    fn claim(&self) -> Option<(usize, &AtomicU64)> {
        let is_free = |&slot: &usize| {
            let claimed = &self.words()[(slot + 1) * SLOT_WORDS + 1];
            claimed.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let slot = (0..SLOTS).find(is_free)?;
        // `SeqCst`, like the addition in `pin`: a scan that misses this slot comes before every pin in the
        // slot. The fence in `advance` then gives the pinned reader all stores before the scan.
        self.words()[USED].fetch_max(slot as u64 + 1, Ordering::SeqCst);
        Some((slot, self.count(slot)))
    }

    fn release(&self, slot: usize) {
        // `Release` pairs with the exchange in `claim`, so the next thread of the slot changes the count
        // after this thread.
        self.words()[(slot + 1) * SLOT_WORDS + 1].store(0, Ordering::Release);
    }
}

impl Drop for ThreadPins {
    fn drop(&mut self) {
        if self.depth.get() > 0 {
            self.end_pin();
        }
        if self.has_slot()
            && let Some(own) = own()
        {
            own.table.release(self.slot.get());
        }
    }
}

/// A pin. While the guard lives, no memory is reused that was reachable at any time since the guard was made.
#[must_use = "a guard protects nothing once it is dropped"]
#[derive(Debug)]
pub struct Guard {
    /// The index in the crowd, if the guard was made while its thread ended. Such a guard has a pin of its
    /// own.
    ending: Option<u8>,
    /// Keeps a guard on its thread, because the guard belongs to the pins of that thread.
    _not_send: PhantomData<*const ()>,
}

/// Pins the current epoch for this thread. Pins nest.
///
/// ```
/// let pin = eyrie_medium::epoch::pin();
/// // Memory that this thread can reach here is not reused.
/// drop(pin);
/// ```
#[inline]
pub fn pin() -> Guard {
    let ending = LOCAL.try_with(ThreadPins::pin).err().map(|_| pin_at_end());
    Guard { ending, _not_send: PhantomData }
}

/// Pins the current epoch for a thread that is ending. The thread has given its slot back, so it pins in the
/// crowd.
#[cold]
fn pin_at_end() -> u8 {
    let (index, mut pins) = (own_crowd().join(), ENDING.get());
    pins[index] += 1;
    ENDING.set(pins);
    index as u8
}

impl ThreadPins {
    /// Pins the current epoch for the thread.
    #[inline(always)]
    fn pin(&self) {
        let depth = self.depth.get();
        if depth == 0 {
            match self.count.get() {
                // The pin must be visible before this thread reads any protected byte. Otherwise `advance`
                // could miss the pin, and this thread could follow a pointer to reused memory. A locked
                // addition does the work of a store and a full fence in less time.
                Some(count) => _ = count.fetch_add(1, Ordering::SeqCst),
                None => self.pin_without_count(),
            }
            interleave();
        }
        self.depth.set(depth + 1);
    }

    /// Makes the first pin of the thread, or a pin of a thread without a slot.
    #[cold]
    fn pin_without_count(&self) {
        self.slot();
        match self.count.get() {
            Some(count) => _ = count.fetch_add(1, Ordering::SeqCst),
            None => self.crowd.set(2 * (self.crowd.get() / 2 + 1) + own_crowd().join()),
        }
    }

    /// Ends one pin of the thread.
    #[inline(always)]
    fn unpin(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            self.end_pin();
        }
    }

    /// Ends the pin of the thread, after its last guard.
    #[inline(always)]
    fn end_pin(&self) {
        match self.count.get() {
            // Only this thread stores to the count, so a plain addition is enough.
            Some(count) => count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release),
            None => own_crowd().leave(self.crowd.get() % 2),
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let Some(index) = self.ending.map(usize::from) else {
            // A thread that is ending has given its slot back, and the pin with the slot.
            let _ = LOCAL.try_with(ThreadPins::unpin);
            return;
        };
        own_crowd().leave(index);
        let mut pins = ENDING.get();
        pins[index] -= 1;
        ENDING.set(pins);
    }
}

/// Returns true if the calling thread holds a pin, or is ending.
pub(crate) fn is_pinned() -> bool {
    // A thread that is ending pins in the crowd, which does not record the thread. So the answer is true.
    LOCAL.try_with(|local| local.depth.get() > 0).unwrap_or(true)
}

/// Returns a number that differs for each outermost pin of this thread. Returns 0 if the thread holds no pin
/// or is ending.
#[inline]
pub fn pin_number() -> u64 {
    let of_pin = |local: &ThreadPins| match local.count.get() {
        Some(count) => count.load(Ordering::Relaxed),
        None => local.crowd.get() as u64,
    };
    LOCAL.try_with(|local| if local.depth.get() > 0 { of_pin(local) } else { 0 }).unwrap_or(0)
}

/// Returns the current epoch.
pub fn now() -> Epoch {
    Epoch(CLOCK.load(Ordering::Acquire))
}

/// Advances the clock by one if every pin of an earlier epoch has ended and no other thread is in this call.
/// Returns the epoch that is current then.
pub fn advance() -> Epoch {
    // This fence pairs with the addition in `pin`: either the scan below sees the pin, or the pinned reader
    // sees every store made before this fence. In the second case the reader finds no pointer to memory that
    // those stores unlinked.
    fence(Ordering::SeqCst);
    // One thread at a time compares and notes the counts. If another thread does so now, its attempt to
    // advance the clock serves this thread as well.
    if ADVANCING.swap(true, Ordering::Acquire) {
        return now();
    }
    let epoch = advance_alone();
    ADVANCING.store(false, Ordering::Release);
    epoch
}

fn advance_alone() -> Epoch {
    let own = own();
    let others =
        if OTHERS.load(Ordering::SeqCst) == 0 { Vec::new() } else { unpoisoned(WATCHED.lock()).clone() };
    // Only the holder of `ADVANCING` stores the clock.
    let epoch = CLOCK.load(Ordering::Relaxed) + 1;
    let (alone, turn_at_start) = (Crowd::over(&CROWD_ALONE.0), &CROWD_ALONE.1);
    let is_behind = alone.is_behind(turn_at_start.load(Ordering::Relaxed))
        || own.is_some_and(WatchedPins::are_behind)
        || others.iter().any(|other| other.are_behind()) && !broken(SafetyRule::EvictionWaitsForClients);
    if is_behind {
        return now();
    }
    // The scan loads the counts with relaxed ordering. This fence orders the reads of threads that have
    // unpinned before the reuse of memory that the new epoch permits.
    fence(Ordering::Acquire);
    let note_counts = || {
        turn_at_start.store(alone.turn(), Ordering::Relaxed);
        own.into_iter().for_each(WatchedPins::start_epoch);
        others.iter().for_each(|other| other.start_epoch());
    };
    let notes_first = broken(SafetyRule::EpochBeginsBeforeItsCounts);
    if notes_first {
        note_counts();
        interleave();
    }
    CLOCK.store(epoch, Ordering::Release);
    interleave();
    // The epoch begins before its counts are noted. So a pin that is not among the noted ones began after the
    // new epoch was visible. Memory that was retired in the previous epoch is out of the sight of such a pin.
    fence(Ordering::SeqCst);
    if !notes_first {
        note_counts();
    }
    Epoch(epoch)
}

/// Returns the number of the calling thread's slot, by which callers choose one of several shards. Threads
/// without a slot share number 256.
#[inline]
pub fn thread_index() -> usize {
    LOCAL.try_with(ThreadPins::slot).unwrap_or(SLOTS)
}

/// Returns a number above all numbers that [`thread_index`] has returned to threads with a slot, among them
/// all threads for whose work the caller has waited. In a forked child, the threads of its parent do not
/// count.
pub fn used_slots() -> usize {
    own().map_or(0, |own| own.table.used())
}

/// The watched tables, locked by the thread that forks, until the fork is over.
struct LockedForFork(UnsafeCell<Option<MutexGuard<'static, Vec<Arc<WatchedPins>>>>>);

// SAFETY: only the thread that has locked [`WATCHED`] accesses the value. This thread stores the guard after
// it has taken the lock, and takes the guard out before it releases the lock.
unsafe impl Sync for LockedForFork {}

static LOCKED_FOR_FORK: LockedForFork = LockedForFork(UnsafeCell::new(None));

/// Registers handlers that give a forked child a table of its own, and no watched table. The child has none
/// of the other threads, so the pins of these threads would stop the clock of the child for ever. The pins of
/// the child must not change the table of its parent. The child owns no volume that other processes read, so
/// it needs no watched table.
fn register_fork_handler() {
    extern "C" fn before() {
        let watched = unpoisoned(WATCHED.lock());
        // SAFETY: this thread has the lock.
        unsafe { *LOCKED_FOR_FORK.0.get() = Some(watched) };
    }
    extern "C" fn parent() {
        // SAFETY: this thread has held the lock since `before`.
        drop(unsafe { (*LOCKED_FOR_FORK.0.get()).take() });
    }
    extern "C" fn child() {
        ADVANCING.store(false, Ordering::Relaxed);
        // SAFETY: this thread has held the lock since `before`.
        if let Some(mut watched) = unsafe { (*LOCKED_FOR_FORK.0.get()).take() } {
            watched.clear();
        }
        OTHERS.store(0, Ordering::Relaxed);
        // A thread that is ending has no slot.
        let pins = |local: &ThreadPins| (local.slot.get(), local.depth.get() > 0, local.crowd.get() % 2);
        let (slot, is_pinned, index) = LOCAL.try_with(pins).unwrap_or((SLOTS, false, 0));
        let has_slot = slot < SLOTS;
        // Of the pins in the crowd, the child has only those of this thread.
        let mut crowds = ENDING.get();
        crowds[index] += u64::from(is_pinned && !has_slot);
        let Some(own) = OWN.get().and_then(Option::as_ref) else {
            Crowd::over(&CROWD_ALONE.0).set_pins(crowds);
            return;
        };
        if !own.table.0.replace_in_child(true) {
            // Without memory of its own, the child would change the pins of its parent.
            std::process::abort();
        }
        let words = own.table.words();
        // The turn of the new table is 0. A pin of an odd turn then counts as one of an earlier turn.
        own.table.crowd().set_pins(crowds);
        own.turn_at_start.store(0, Ordering::Relaxed);
        if has_slot {
            words[USED].store(slot as u64 + 1, Ordering::Relaxed);
            words[(slot + 1) * SLOT_WORDS + 1].store(1, Ordering::Relaxed);
            own.table.count(slot).store(is_pinned.into(), Ordering::Relaxed);
            // The pin may be of an earlier epoch, so the present epoch must not end before the pin.
            own.at_start[slot].store(is_pinned.into(), Ordering::Relaxed);
        }
    }
    // SAFETY: no handler panics. `before` takes a lock, and no thread forks while it holds this lock. The
    // child frees the memory of the watched tables, which a C library allows after a fork. Apart from that,
    // the child only stores to atomics, reads cells of thread-locals, and makes system calls.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
