//! The client's side of its change log ([`eyrie_engine::change_log`]).
//!
//! A word in the memory of the lanes has the position after the last entry, a bit that seals the log, and a
//! number that changes whenever the service opens the sealed log again. A client appends an entry in four
//! steps:
//!
//! 1. It loads this word. If the log is not sealed, this session may hold grants.
//! 2. It decides that the Op succeeds, checks that the session holds the grants of all objects of the Op, and
//!    writes the entry after the last entry of the log.
//! 3. It moves the position by a compare-and-exchange. The service seals the log before it gives grants or
//!    takes grants back, and while it handles such a request of another thread of this client. If the log was
//!    sealed at any time since step 1, the exchange fails, and the entry does not exist. So only entries of
//!    this log have changed these objects since step 1, and a lock lets one thread append at a time.
//! 4. It stores the position in the file of the log, and then checks if the next owner has closed the file.
//!    If not, the next owner will see the entry.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::access::Credentials;
use eyrie_engine::change_log::{
    CLOSED_WORD, ENTRY_BYTES_MAX, ENTRY_HEAD_BYTES, EntryHead, FAILED_WORD, FINAL_WORD, GENERATIONS,
    HEAD_BYTES, LOG_FILE_BYTES, RING_BYTES, TAIL_WORD, storage_of_entry,
};
use eyrie_engine::op::encode::encode_unsummed;
use eyrie_engine::{ObjectId, Op, Result};
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::shared::{SharedAccess, SharedMemory};
use eyrie_medium::sync::{Mutex, lock};
use zerocopy::IntoBytes;

use crate::protocol::{LOG_APPLIED, LOG_BUDGET, LOG_FAILED, LOG_GENERATION, LOG_TAIL, LogWord};
use crate::shadow::{Effect, MadeObject, Shadow};

/// Number of looks at the applied position before the client makes a request. They take a few microseconds.
const SPINS: u32 = 500;

/// The change log of a session.
pub struct ChangeLog {
    lanes: Arc<SharedMemory>,
    file: SharedMemory,
    /// The credentials that the service has for this session.
    pub who: Credentials,
    pub appender: Mutex<Appender>,
    /// Position after the last entry that changes a name.
    last_name: AtomicU64,
}

/// The state of the log that only the appending thread uses. Its lock lets one thread append at a time.
#[derive(Default)]
pub struct Appender {
    pub shadow: Shadow,
    /// The next number for a new object.
    generation: u64,
    /// Upper bound of the storage that all entries of the log have needed, in bytes.
    storage: u64,
    /// Position after the entry at which this client last woke the service.
    woken_at: u64,
    op: Vec<u8>,
}

/// The result of [`ChangeLog::append`].
pub enum Appended {
    /// The change is made. `true` if the log fills up, so the service should not sleep much longer.
    Yes(bool),
    /// The change is not made: the log is full or sealed, storage may run short, or the entry would be too
    /// large.
    No,
    /// The next owner may have seen the entry that ends at this position.
    InDoubt(u64),
}

impl Appender {
    /// Gives back the generation that was taken last, because no entry has it.
    pub fn return_generation(&mut self, generation: u64) {
        self.generation = generation;
    }
}

impl ChangeLog {
    /// Maps the file of a log.
    pub fn map(file: File, lanes: Arc<SharedMemory>, who: Credentials) -> Result<ChangeLog> {
        let file = SharedMemory::map_own(file.into(), LOG_FILE_BYTES, SharedAccess::ReadWrite)?;
        Ok(ChangeLog { lanes, file, who, appender: Mutex::default(), last_name: AtomicU64::new(0) })
    }

    /// Returns the word with the position after the last entry. `None` if the log is sealed.
    pub fn word(&self) -> Option<LogWord> {
        let word = LogWord::from_raw(self.lanes.word(LOG_TAIL).load(Ordering::Acquire));
        (!word.is_sealed()).then_some(word)
    }

    /// Returns the position up to which the service has applied the log.
    pub fn applied(&self) -> u64 {
        self.lanes.word(LOG_APPLIED).load(Ordering::Acquire)
    }

    /// True if the service, or the next owner, could not make a change that this client has logged.
    pub fn has_failed(&self) -> bool {
        let is_set = |word: &AtomicU64| word.load(Ordering::Acquire) != 0;
        is_set(self.lanes.word(LOG_FAILED)) || is_set(self.file.word(FAILED_WORD))
    }

    /// Returns the object that has a name after all entries. The outer `None` means that all entries that
    /// change the name are applied.
    pub fn name(&self, dir: ObjectId, name: &[u8]) -> Option<Option<ObjectId>> {
        // The usual case needs no lock.
        let applied = self.applied();
        if self.last_name.load(Ordering::Acquire) <= applied {
            return None;
        }
        lock(&self.appender).shadow.name(dir, name, applied)
    }

    /// Returns an object that an entry has made, and true if an entry has removed a name of the object.
    /// `None` and false if no such entry waits for the service.
    pub fn object(&self, id: ObjectId) -> (Option<MadeObject>, bool) {
        let applied = self.applied();
        if self.last_name.load(Ordering::Acquire) <= applied {
            return (None, false);
        }
        let appender = lock(&self.appender);
        (appender.shadow.made(id, applied), appender.shadow.is_removed(id, applied))
    }

    /// Returns a generation for a new object. `None` if the service has to give further ones.
    pub fn next_generation(&self, appender: &mut Appender) -> Option<u64> {
        let first = self.lanes.word(LOG_GENERATION).load(Ordering::Relaxed);
        let next = appender.generation.max(first);
        if first == 0 || next - first >= GENERATIONS {
            return None;
        }
        appender.generation = next + 1;
        Some(next)
    }

    /// Appends an entry with this effect. The caller has got `word` from [`ChangeLog::word`] before it
    /// decided that the Op succeeds.
    pub fn append(
        &self,
        appender: &mut Appender,
        word: LogWord,
        op: &Op<'_>,
        detail: u64,
        effect: &Effect<'_>,
    ) -> Appended {
        let Appender { shadow, storage, woken_at, op: record, .. } = appender;
        record.clear();
        encode_unsummed(op, record);
        let bytes = (ENTRY_HEAD_BYTES + record.len()).next_multiple_of(16) as u64;
        let (tail, applied) = (word.position(), self.applied());
        shadow.forget(applied);
        let rest = RING_BYTES - tail % RING_BYTES;
        let at = if bytes > rest { tail + rest } else { tail };
        let end = at + bytes;
        let added = storage_of_entry(bytes);
        let has_room = end.checked_sub(applied).is_some_and(|used| used <= RING_BYTES)
            && *storage + added <= self.lanes.word(LOG_BUDGET).load(Ordering::Relaxed);
        if !has_room || bytes > ENTRY_BYTES_MAX as u64 || end > LogWord::POSITION_MAX {
            return Appended::No;
        }
        if at > tail {
            let filler = EntryHead { bytes: rest as u32, op_bytes: 0, detail: 0 };
            self.write(tail, filler.as_bytes());
        }
        let head = EntryHead { bytes: bytes as u32, op_bytes: record.len() as u32, detail };
        self.write(at, head.as_bytes());
        self.write(at + ENTRY_HEAD_BYTES as u64, record);
        if !self.advance(word, end) {
            return Appended::No;
        }
        shadow.add(end, effect);
        if effect.is_of_names() {
            self.last_name.store(end, Ordering::Release);
        }
        *storage += added;
        // The exchange is a full fence. The next owner first closes the file and then reads the position. So
        // either the next owner sees the position, or this client sees that the file is closed.
        self.file.word_to_store(TAIL_WORD).swap(end, Ordering::SeqCst);
        if self.file.word(CLOSED_WORD).load(Ordering::SeqCst) != 0 && !broken(SafetyRule::ClosedLogIsInDoubt)
        {
            return Appended::InDoubt(end);
        }
        let fills_up = end - applied > RING_BYTES / 2 && end - *woken_at > RING_BYTES / 8;
        if fills_up {
            *woken_at = end;
        }
        Appended::Yes(fills_up)
    }

    /// Moves the position after the last entry. Returns false if the service has sealed the log since `word`
    /// was loaded.
    fn advance(&self, word: LogWord, end: u64) -> bool {
        let (tail, next) = (self.lanes.word_to_store(LOG_TAIL), word.with_position(end).raw());
        if broken(SafetyRule::SealStopsAppends) {
            tail.store(next, Ordering::SeqCst);
            return true;
        }
        tail.compare_exchange(word.raw(), next, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        self.file.write(HEAD_BYTES + (position % RING_BYTES) as usize, bytes);
    }

    /// Returns true if all entries that change the object `id` are applied. Otherwise first waits a few
    /// microseconds for the service.
    pub fn is_applied(&self, id: ObjectId) -> bool {
        let tail = LogWord::from_raw(self.lanes.word(LOG_TAIL).load(Ordering::Acquire)).position();
        if self.applied() == tail {
            return true;
        }
        let Some(end) = lock(&self.appender).shadow.end_of(id) else { return true };
        for _ in 0..SPINS {
            if self.applied() >= end {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Returns true if the next owner has applied the entry that ends at this position, and false if it has
    /// not. `None` if no owner has applied the log, for example because none has found it.
    pub fn outcome(&self, end: u64) -> Option<bool> {
        let last = self.file.word(FINAL_WORD).load(Ordering::Acquire).checked_sub(1)?;
        Some(last >= end)
    }
}
