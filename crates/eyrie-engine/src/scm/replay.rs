//! Applies the change logs that a dead service has left, at the next open.

use std::cell::Cell;
use std::time::SystemTime;

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Fault};

use super::Scm;
use super::logged::{BEYOND_BUDGET, LoggedEntry};
use crate::change_log::{LogError, LogReader, RING_BYTES, storage_of_entry};
use crate::host::{HostPlace, LeftLog, LeftLogs, left_logs, remove_left};
use crate::{Engine, Error, Result};

/// Size of the largest piece of storage that an entry needs: a small file, which a write copies as a whole.
const LARGEST_PIECE: u64 = 16 << 10;

impl Scm {
    /// Applies the change logs that a dead service has left in the directory of the volume, and removes them.
    /// An owner that is killed meanwhile leaves the rest to the next owner. If `to_change` is false, applies
    /// the logs to the copy of the volume, and leaves the files of the logs as they are.
    ///
    /// # Errors
    /// `NoSpace` if the host is full, and `Fault`. The next open then goes on with the logs.
    pub(super) fn replay_logs(&self, place: HostPlace<'_>, to_change: bool) -> Result<()> {
        let mut reader = LogReader::default();
        let LeftLogs { logs, parts } = left_logs(place, to_change, self.volume.owner_number()?)?;
        // The sessions of several users may have left logs. The board has the grants of these sessions until
        // their entries are applied, so no user's entries change the objects of another user's entries.
        let board = self.volume.board();
        parts.iter().for_each(|&(part, key)| board.give_part(part, Some(key)));
        if !logs.is_empty() {
            // A log may have changes of an object that had lost its last name. The header of this object is
            // free now. This call clears the header, so that no entry changes the object.
            self.reset_free_headers()?;
        }
        // When a directory grows, it must leave the storage that the entries of all logs need.
        let mut left = Vec::new();
        for log in logs {
            let tail = log.tail(to_change)?;
            let needed = storage_of_entries(&mut reader, &log, tail).min(log.budget);
            left.push((log, tail, needed));
        }
        let mut promised: u64 = left.iter().map(|(_, _, needed)| needed).sum();
        for (log, tail, needed) in left {
            self.promise_storage(promised);
            self.replay_log(&mut reader, &log, tail, to_change)?;
            promised -= needed;
        }
        self.promise_storage(0);
        parts.iter().for_each(|&(part, _)| board.give_part(part, None));
        if to_change {
            remove_left(place);
        }
        Ok(())
    }

    fn replay_log(&self, reader: &mut LogReader, log: &LeftLog, tail: u64, to_change: bool) -> Result<()> {
        let (mut applied, mut noted, mut failed) = (log.applied, Ok(()), false);
        let mut budget = log.budget;
        let generations = Cell::new(log.generations.start);
        let read = reader.read(&log.file, log.applied, tail, RING_BYTES, |position, head, op| {
            let now = SystemTime::now().into();
            let holder = log.holder.filter(|_| !broken(SafetyRule::ReplayComparesHeldParts));
            let entry = LoggedEntry { who: &log.who, head, op, now, holder, is_of_dead_service: true };
            let left = budget.checked_sub(storage_of_entry(head.bytes.into()));
            let made = if left.is_some() || broken(SafetyRule::ReplayKeepsToTheBudget) {
                self.apply_left(log, &entry, &generations)
            } else {
                Err(BEYOND_BUDGET)
            };
            match made {
                // The log stays for the next open, because the change counts as made.
                Err(error)
                    if to_change && self.may_pass(&error) && !broken(SafetyRule::ReplayKeepsItsLogs) =>
                {
                    noted = Err(error);
                    return false;
                }
                Err(error) if !std::mem::replace(&mut failed, true) => {
                    tracing::error!(%error, "a logged change of a client could not be made");
                    // The failure is noted before the position, because the next owner does not look at
                    // entries before the noted position.
                    if to_change && let Err(fault) = log.note_failure() {
                        noted = Err(fault);
                        return false;
                    }
                }
                _ => {}
            }
            (applied, budget) = (position, left.unwrap_or(0));
            if to_change {
                noted = log.set_applied(position, budget);
            }
            // If the position could not be stored, no further entry is applied. The next owner may repeat one
            // entry, but not several, because an entry that changes a name depends on the entries before it.
            noted.is_ok()
        });
        noted?;
        match read {
            Ok(_) => {}
            Err(LogError::Damaged) => {
                tracing::error!("a change log of a client is damaged; the later entries are dropped");
                if to_change {
                    log.note_failure()?;
                }
            }
            // The log stays for the next open.
            Err(LogError::Host(source)) => {
                return Err(Fault::Io { what: "reading a change log".to_owned(), source }.into());
            }
        }
        if to_change {
            log.finish(applied)?;
        }
        Ok(())
    }

    /// True if an entry with this error may succeed at a later open: after a fault of the host, or if the
    /// host is full. The promised storage of the volume itself is free.
    fn may_pass(&self, error: &Error) -> bool {
        let space = self.volume.space();
        match error {
            Error::Fault(_) => true,
            // If an extent of this size is free, the entries of a client that keeps the protocol find
            // storage.
            Error::NoSpace => space.allocate(LARGEST_PIECE).map(|extent| space.release(extent)).is_err(),
            _ => false,
        }
    }

    /// Applies an entry of a log that a dead service has left. The generation of a new object must be `next`
    /// or a later one of the generations of the log.
    fn apply_left(&self, log: &LeftLog, entry: &LoggedEntry<'_>, next: &Cell<u64>) -> Result<()> {
        let space = self.volume.space();
        let taken = Cell::new(None);
        let made = self.apply_logged(entry, |id, generation| {
            // The reservations have ended with the service, so the id of a new object is free.
            let is_free = broken(SafetyRule::ReplayTakesHeaders)
                || matches!(space.allocate_header_at(Addr::from_raw(id.place())), Ok(true));
            taken.set(is_free.then_some(id));
            is_free && (next.get()..log.generations.end).contains(&generation)
        });
        match (&made, taken.get()) {
            (Ok(Some(_)), _) => next.set(entry.head.detail + 1),
            // After a fault the id may be in use.
            (Err(Error::Fault(_)), _) => {}
            (Err(_), Some(id)) => self.unreserve(id),
            _ => {}
        }
        made.map(drop)
    }
}

/// Returns the storage that the entries of a log may need, in bytes.
fn storage_of_entries(reader: &mut LogReader, log: &LeftLog, tail: u64) -> u64 {
    let mut needed = 0;
    // Errors are ignored here, because `replay_log` reads the same entries and reports them.
    let _ = reader.read(&log.file, log.applied, tail, RING_BYTES, |_, head, _| {
        needed += storage_of_entry(head.bytes.into());
        true
    });
    needed
}

#[cfg(test)]
mod tests;
