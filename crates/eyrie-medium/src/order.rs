//! The ordering half of the medium: epochs, barriers and publishes.

use std::panic::Location;
use std::sync::atomic::Ordering;

use crate::addr::{Addr, LINE_SIZE};
use crate::fault::Fault;
use crate::medium::Medium;
use crate::rules::{SafetyRule, broken};
use crate::sync::interleave;
use crate::token::{Dirty, Ordered, Published, Settled, assert_nothing_dirty};

impl Medium {
    #[inline]
    #[track_caller]
    pub(crate) fn store_word(&self, addr: Addr, value: u64) -> Result<(), Fault> {
        let word = self.resolve_word(addr)?;
        self.before_store(addr, 8)?;
        word.store(value, Ordering::Release);
        self.after_store(addr, word.as_ptr().cast(), 8);
        Ok(())
    }

    #[inline]
    #[track_caller]
    fn publish_word(&self, addr: Addr, value: u64) -> Result<(), Fault> {
        let word = self.resolve_word(addr)?;
        if self.before_publish(addr, 8)? {
            word.store(value, Ordering::Release);
            self.after_store(addr, word.as_ptr().cast(), 8);
        }
        Ok(())
    }

    /// A new epoch, with nothing written in it yet.
    pub fn epoch(&self) -> Dirty {
        Dirty::new()
    }

    /// Ends an epoch: all earlier writes persist before any later one.
    #[inline]
    #[track_caller]
    pub fn barrier(&self, dirty: Dirty) -> Ordered {
        drop(dirty);
        self.fence(Location::caller());
        Ordered { _private: () }
    }

    /// Commits one aligned word atomically, with release ordering.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]; nothing was stored.
    #[inline]
    #[track_caller]
    pub fn publish(&self, addr: Addr, value: u64, ordered: impl Into<Ordered>) -> Result<Published, Fault> {
        let _ordered: Ordered = ordered.into();
        assert_nothing_dirty();
        self.publish_word(addr, value)?;
        Ok(Published { _private: () })
    }

    /// As [`Medium::publish`], for a commit apart from what the thread is preparing: it may have other writes that are
    /// not ordered yet, about which this commit says nothing. (An allocator marks a chunk as its own so.)
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

    /// Commits several words of one cache line with no barrier between: a crash keeps a prefix of them, in this order,
    /// so the last is the commit. Words are numbered from the start of the line.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]; nothing was stored.
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
        if !self.before_publish(line, LINE_SIZE)? {
            return Ok(Published { _private: () });
        }
        let mut backwards = Vec::new();
        let words = if broken(SafetyRule::LineEndsWithItsCommit) {
            backwards.extend(words.iter().rev().copied());
            &backwards[..]
        } else {
            words
        };
        for &(index, value) in words {
            interleave();
            stored[index].store(value, Ordering::Release);
        }
        self.after_line(line, stored.as_ptr().cast(), words);
        Ok(Published { _private: () })
    }

    /// A commit of nothing: for what is reachable through later publishes, or not at all.
    pub fn publish_nothing(&self, ordered: impl Into<Ordered>) -> Published {
        let _ordered: Ordered = ordered.into();
        Published { _private: () }
    }

    /// Stores several words whose order among themselves does not matter, because a redo record says them all.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Misaligned`]; the words before the bad one were stored.
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

    /// A barrier on a publish: from here on no crash undoes it.
    #[inline]
    #[track_caller]
    pub fn settle(&self, published: Published) -> Settled {
        let _ = published;
        self.fence(Location::caller());
        Settled { _private: () }
    }
}
