//! Changes that the kill of a service may undo.
//!
//! If the service of a volume on a disk is killed, the changes after its last drain are lost, although the
//! service had answered them. The next service does not know these changes. If a sync then succeeded, a
//! program would take these changes for durable. So a client that had changes which it had not synchronised
//! gets an error from each later sync. One error would not be enough, because each thread and each open file
//! may have lost changes. The client cannot tell which threads and files have lost some.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use eyrie_engine::{Errno, Error, Result};
use eyrie_medium::Fault;

/// Counts the changes of a client, and the durable ones among them.
#[derive(Default)]
pub struct UnsyncedChanges {
    /// Number of changes that services have answered.
    made: AtomicU64,
    /// The first changes, up to this number, are durable.
    durable: AtomicU64,
    /// Number of killed services.
    kills: AtomicU64,
    /// True if the kill of a service may have undone an answered change.
    are_lost: AtomicBool,
}

impl UnsyncedChanges {
    /// Returns the number of killed services. A thread reads this number after it has chosen the session of a
    /// change, and before it sends the change.
    pub fn kills(&self) -> u64 {
        self.kills.load(Ordering::SeqCst)
    }

    /// Counts a change that a service has answered. `kills` is the number of kills before the change. If
    /// there was another kill since, the thread that noted this kill may not have seen the change.
    pub fn count(&self, kills: u64) {
        self.made.fetch_add(1, Ordering::SeqCst);
        if self.kills() != kills {
            self.are_lost.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that the service was killed. The client does not have the session of the next service yet.
    pub fn lose(&self) {
        // Either this thread sees the count of a change, or the thread that counts it sees this kill.
        self.kills.fetch_add(1, Ordering::SeqCst);
        if self.made.load(Ordering::SeqCst) != self.durable.load(Ordering::SeqCst) {
            self.are_lost.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that the service has saved the volume before its end, so all changes so far are durable. The
    /// client does not have the session of the next service yet.
    pub fn save(&self) {
        self.durable.fetch_max(self.made(), Ordering::SeqCst);
    }

    /// True if a change may be lost, or if a change is not known to be durable.
    pub fn has_some(&self) -> bool {
        self.are_lost.load(Ordering::SeqCst) || self.made() != self.durable.load(Ordering::SeqCst)
    }

    /// Returns the number of changes so far. A sync that begins now makes them durable.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Notes that a sync has succeeded, which made the first `made` changes durable.
    ///
    /// # Errors
    /// `Fault` if changes may be lost.
    pub fn synced(&self, made: u64) -> Result<()> {
        if self.are_lost.load(Ordering::SeqCst) {
            let what = "the service was killed before it had made all changes of this program durable (open \
                        the volume again)"
                .to_owned();
            let source = io::Error::from_raw_os_error(Errno::IO.into());
            return Err(Error::Fault(Fault::Io { what, source }));
        }
        self.durable.fetch_max(made, Ordering::SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_of_unsynced_changes_is_an_error_of_each_later_sync() {
        let changes = UnsyncedChanges::default();
        changes.lose();
        changes.count(changes.kills());
        let made = changes.made();
        changes.synced(made).expect("nothing is lost");
        changes.lose();
        changes.synced(made).expect("the change was durable");
        changes.count(changes.kills());
        // This sync began before the last change.
        changes.synced(made).expect("nothing is lost");
        changes.lose();
        for _ in 0..2 {
            assert_eq!(changes.synced(changes.made()).expect_err("a change is lost").errno(), Errno::IO);
        }
    }

    #[test]
    fn kill_of_the_next_service_loses_no_saved_change() {
        let changes = UnsyncedChanges::default();
        changes.count(changes.kills());
        changes.save();
        changes.lose();
        changes.synced(changes.made()).expect("the first service has saved the change");
    }

    #[test]
    fn change_that_is_counted_after_the_loss_is_lost() {
        let changes = UnsyncedChanges::default();
        let kills = changes.kills();
        changes.lose();
        changes.count(kills);
        assert!(changes.synced(changes.made()).is_err());
    }
}
