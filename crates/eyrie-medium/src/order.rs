//! The calls of a medium that order its stores: barriers, publishes and settles. The module `medium` lists
//! the errors of a disk, which each of these calls may return in addition to the errors in its own
//! documentation.

use std::panic::Location;
use std::sync::atomic::Ordering;

use crate::addr::{Addr, LINE_SIZE};
use crate::counts::{count_barrier, count_publish};
use crate::fault::Fault;
use crate::medium::Medium;
use crate::rules::{SafetyRule, broken};
use crate::sync::interleave;
use crate::token::{Dirty, Ordered, Published, Settled, assert_nothing_dirty};

impl Medium {
    /// Stores an aligned word.
    #[inline]
    #[track_caller]
    pub(crate) fn store_word(&self, addr: Addr, value: u64) -> Result<(), Fault> {
        let word = self.resolve_word(addr)?;
        self.backing.before_store(self.mapped(), addr, 8)?;
        word.store(value, Ordering::Release);
        self.backing.after_store(addr, word.as_ptr().cast(), 8);
        Ok(())
    }

    /// Commits an aligned word, unless a test leaves this commit out.
    #[inline]
    #[track_caller]
    fn publish_word(&self, addr: Addr, value: u64) -> Result<(), Fault> {
        let word = self.resolve_word(addr)?;
        count_publish();
        if self.backing.before_publish(self.mapped(), addr, 8)? {
            word.store(value, Ordering::Release);
            self.backing.after_store(addr, word.as_ptr().cast(), 8);
        }
        Ok(())
    }

    /// Makes all earlier writes of the thread persist before its later writes.
    #[inline]
    #[track_caller]
    pub fn barrier(&self, dirty: Dirty) -> Ordered {
        drop(dirty);
        count_barrier();
        self.backing.fence(Location::caller());
        Ordered { _private: () }
    }

    /// Commits one aligned word atomically, with release ordering.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]. After an error nothing was stored.
    #[inline]
    #[track_caller]
    pub fn publish(&self, addr: Addr, value: u64, ordered: impl Into<Ordered>) -> Result<Published, Fault> {
        let _ordered: Ordered = ordered.into();
        assert_nothing_dirty();
        self.publish_word(addr, value)?;
        Ok(Published { _private: () })
    }

    /// As [`Medium::publish`], for a commit that is independent of the thread's other writes. The other
    /// writes may still be unordered, because this commit makes none of them reachable. (The allocator claims
    /// a header chunk this way.)
    ///
    /// # Errors
    /// As [`Medium::publish`].
    #[inline]
    #[track_caller]
    pub fn publish_apart(
        &self,
        addr: Addr,
        value: u64,
        ordered: impl Into<Ordered>,
    ) -> Result<Published, Fault> {
        let _ordered: Ordered = ordered.into();
        self.publish_word(addr, value)?;
        Ok(Published { _private: () })
    }

    /// Commits several words of one cache line with no barrier between them. A crash keeps a prefix of the
    /// words in the given order, so the last word is the commit. Words are numbered from the start of the
    /// line.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]. After an error nothing was stored.
    #[inline]
    #[track_caller]
    pub fn publish_line(
        &self,
        line: Addr,
        words: &[(usize, u64)],
        ordered: impl Into<Ordered>,
    ) -> Result<Published, Fault> {
        let _ordered: Ordered = ordered.into();
        assert_nothing_dirty();
        if !line.is_aligned(LINE_SIZE) {
            return Err(Fault::Misaligned { addr: line });
        }
        let stored = self.resolve_words(line, 8)?;
        count_publish();
        if !self.backing.before_publish(self.mapped(), line, LINE_SIZE)? {
            return Ok(Published { _private: () });
        }
        let mut backwards = Vec::new();
        let words = if broken(SafetyRule::LineEndsWithItsCommit) {
            backwards.extend(words.iter().rev().copied());
            &backwards[..]
        } else {
            words
        };
        // The words must be stored in this order. A prefix of the stores to a line persists, so after a crash
        // the last word proves that the other words are there, too.
        for &(index, value) in words {
            interleave();
            stored[index].store(value, Ordering::Release);
        }
        self.backing.after_line(line, stored.as_ptr().cast(), words);
        Ok(Published { _private: () })
    }

    /// Returns a token for changes that need no commit of their own: either a later publish makes them
    /// reachable, or they stay unreachable.
    pub fn publish_nothing(&self, ordered: impl Into<Ordered>) -> Published {
        let _ordered: Ordered = ordered.into();
        Published { _private: () }
    }

    /// Stores several words, which a crash may keep in any combination. The caller has settled a redo record
    /// that lists all of these words, so recovery stores them again after a crash.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]. The words before the one that failed were stored.
    #[track_caller]
    pub fn publish_all(
        &self,
        words: impl IntoIterator<Item = (Addr, u64)>,
        ordered: impl Into<Ordered>,
    ) -> Result<Published, Fault> {
        let _ordered: Ordered = ordered.into();
        assert_nothing_dirty();
        for (addr, value) in words {
            self.publish_word(addr, value)?;
        }
        Ok(Published { _private: () })
    }

    /// Orders a publish before all later stores of the thread. On persistent memory, no crash after this call
    /// undoes the publish. On a disk, the publish is durable only after the drain of its cut.
    #[inline]
    #[track_caller]
    pub fn settle(&self, published: Published) -> Settled {
        // The token carries no data. The call only consumes it.
        let _ = published;
        count_barrier();
        self.backing.fence(Location::caller());
        Settled { _private: () }
    }
}
