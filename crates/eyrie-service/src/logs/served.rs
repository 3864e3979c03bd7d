//! The log of one session.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use eyrie_client::protocol::{LOG_BUDGET, LOG_GENERATION, LOG_TAIL, LogWord};
use eyrie_engine::access::Credentials;
use eyrie_engine::board::SessionKey;
use eyrie_engine::change_log::GENERATIONS;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::LogTable;
use eyrie_engine::{ObjectId, Result};
use eyrie_medium::shared::SharedMemory;
use eyrie_medium::sync::{Mutex, lock};

use super::contention::LogUse;
use super::waiting::EntryWait;

/// Ids that a client has reserved, and that no applied change has used.
pub type ReservedIds = Arc<Mutex<HashSet<ObjectId>>>;

/// The log of a session.
pub struct ServedLog {
    pub key: SessionKey,
    pub who: Credentials,
    pub lanes: Arc<SharedMemory>,
    pub file: File,
    pub reserved: ReservedIds,
    /// Generations for new objects that no entry has used.
    pub generations: Range<u64>,
    /// Position up to which the log is applied.
    pub applied: u64,
    /// Upper bound of the storage that the applied entries have needed, in bytes.
    pub storage: u64,
    /// Value of `storage` from which on the service renews the budget.
    pub renew_budget_at: u64,
    /// Largest value of `storage` that the client may reach.
    pub limit: u64,
    /// Storage that is promised to the entries, in bytes. 0 while the log is not open.
    pub budget: u64,
    /// Number of changes that the session has made by requests.
    pub changes: u32,
    /// Time of the latest request of the session.
    pub latest_request: Option<Instant>,
    /// Time at which the log was opened, or at which an entry was last applied.
    pub last_entry: Instant,
    /// The wait of the first entry that is not applied.
    pub wait: EntryWait,
    /// True if the session holds the grant of the volume, or may hold grants of parts. Otherwise the log is
    /// sealed and applied.
    pub is_open: bool,
    /// True if the board may name the session as the holder of a part.
    pub has_parts: bool,
    /// True once the host has provided all memory of the file.
    pub is_provisioned: bool,
    /// True if an entry could not be read or applied, or if the host has no memory for the log. The session
    /// then gets no further grant.
    pub is_useless: bool,
}

impl ServedLog {
    /// Returns the empty and sealed log of a session.
    pub fn new(
        key: SessionKey,
        who: &Credentials,
        file: File,
        (lanes, reserved): (&Arc<SharedMemory>, &ReservedIds),
    ) -> ServedLog {
        let log = ServedLog {
            key,
            who: who.clone(),
            lanes: Arc::clone(lanes),
            file,
            reserved: Arc::clone(reserved),
            generations: 0..0,
            applied: 0,
            storage: 0,
            renew_budget_at: 0,
            limit: 0,
            budget: 0,
            changes: 0,
            latest_request: None,
            last_entry: Instant::now(),
            wait: EntryWait::default(),
            is_open: false,
            has_parts: false,
            is_provisioned: false,
            is_useless: false,
        };
        log.seal();
        log
    }

    /// Returns the ids that the client has reserved, and that no applied change has used.
    pub fn reserved(&self) -> Vec<ObjectId> {
        lock(&self.reserved).iter().copied().collect()
    }

    /// Returns the use that the client makes of the log.
    pub fn usage(&self) -> LogUse {
        let has_entries = self.word().position() != self.applied;
        LogUse { applied: self.applied, has_entries, last_entry: self.last_entry }
    }

    /// Returns the word of the log.
    pub fn word(&self) -> LogWord {
        LogWord::from_raw(self.lanes.word(LOG_TAIL).load(Ordering::Acquire))
    }

    /// Seals the log. The client appends nothing until [`ServedLog::unseal`]. An append that the client has
    /// begun before the seal fails also after the unseal, because the unseal changes the number in the word.
    /// Returns the position after the last entry.
    pub fn seal(&self) -> u64 {
        let sealed = self.lanes.word_to_store(LOG_TAIL).fetch_or(LogWord::SEALED, Ordering::SeqCst);
        LogWord::from_raw(sealed).position()
    }

    /// Gives the log generations for new objects, if it has used half of the latest ones. The caller has
    /// sealed and applied the log.
    pub fn renew_generations(&mut self, engine: &Scm, table: &LogTable) -> Result<()> {
        let Range { start, end } = self.generations;
        if end - start >= GENERATIONS / 2 {
            return Ok(());
        }
        self.generations = engine.generations_for_log()?;
        table.set_generations(self.key, &self.generations);
        self.lanes.word_to_store(LOG_GENERATION).store(self.generations.start, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the storage that all entries from now on may need together, in bytes.
    /// A budget that is smaller than the rest of the present one needs an applied log.
    pub fn set_budget(&mut self, table: &LogTable, budget: u64) {
        self.budget = budget;
        table.set_budget(self.key, budget);
        (self.renew_budget_at, self.limit) = (self.storage + budget / 2, self.storage + budget);
        self.lanes.word_to_store(LOG_BUDGET).store(self.limit, Ordering::Relaxed);
    }

    /// Seals a log, and sets its end to the end of the applied entries, whatever position the client has
    /// stored.
    pub fn reset(&self) {
        let word = self.word().renewed(self.applied).raw() | LogWord::SEALED;
        self.lanes.word_to_store(LOG_TAIL).store(word, Ordering::SeqCst);
    }

    /// True if the log is sealed and applied.
    pub fn is_at_rest(&self) -> bool {
        let word = self.word();
        word.is_sealed() && word.position() == self.applied
    }

    /// Lets the client append to its log, which is applied.
    pub fn unseal(&self) {
        let word = self.word().renewed(self.applied).raw();
        self.lanes.word_to_store(LOG_TAIL).store(word, Ordering::SeqCst);
    }
}
