//! The commit words of bucket pages.

use super::layout::SLOTS;

/// A page's commit word. Bits 0 to 31 are the live [`SLOTS`], 32 to 56 the version, 57 to 62 the level. Bit
/// 63 says which stamp is current.
///
/// The level is the number of low hash bits that all live entries share. If it equals
/// [`Buckets::level`](super::buckets::Buckets::level) for the page's bucket, every live entry belongs to the
/// bucket, and no hash has to be read. If it is lower, a split may have moved some of the live entries to
/// another bucket. Then the hash of each entry decides whether the entry still belongs to this bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit(u64);

impl Commit {
    const VERSION_SHIFT: u32 = 32;
    const VERSION_MASK: u64 = (1 << 25) - 1;
    const LEVEL_SHIFT: u32 = 57;
    const LEVEL_MASK: u64 = 63;
    const SELECTOR_SHIFT: u32 = 63;

    /// Makes the commit word of a new page.
    pub const fn new(live: u32, level: u32) -> Commit {
        Commit(1 << Commit::VERSION_SHIFT).with_live(live).with_level(level)
    }

    /// Returns the commit word with this stored form.
    pub const fn from_raw(raw: u64) -> Commit {
        Commit(raw)
    }

    /// Returns the stored form.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns a bit for each slot that holds an entry.
    pub const fn live(self) -> u32 {
        self.0 as u32 & SLOTS
    }

    /// True if a live bit is set for a word that holds the tags of a line. Such a word is not a slot.
    pub(crate) const fn is_impossible(self) -> bool {
        self.0 as u32 & !SLOTS != 0
    }

    /// Returns the number of low hash bits that the live entries share.
    pub const fn level(self) -> u32 {
        (self.0 >> Commit::LEVEL_SHIFT & Commit::LEVEL_MASK) as u32
    }

    /// Returns the number of the current stamp, 0 or 1.
    pub const fn selector(self) -> usize {
        (self.0 >> Commit::SELECTOR_SHIFT) as usize
    }

    /// Returns the same word with other live slots.
    #[must_use]
    pub(crate) const fn with_live(self, live: u32) -> Commit {
        Commit(self.0 & !(u32::MAX as u64) | live as u64)
    }

    /// Returns the same word with another level.
    #[must_use]
    pub(crate) const fn with_level(self, level: u32) -> Commit {
        let others = self.0 & !(Commit::LEVEL_MASK << Commit::LEVEL_SHIFT);
        Commit(others | (level as u64 & Commit::LEVEL_MASK) << Commit::LEVEL_SHIFT)
    }

    /// Returns the version, which counts the changes of the page, modulo 2^25.
    pub(crate) const fn version(self) -> u64 {
        self.0 >> Commit::VERSION_SHIFT & Commit::VERSION_MASK
    }

    /// Returns the same word with another version, modulo 2^25.
    #[must_use]
    pub(crate) const fn with_version(self, version: u64) -> Commit {
        let others = self.0 & !(Commit::VERSION_MASK << Commit::VERSION_SHIFT);
        Commit(others | (version & Commit::VERSION_MASK) << Commit::VERSION_SHIFT)
    }

    /// Returns the same word with the next version.
    #[must_use]
    pub const fn next(self) -> Commit {
        self.with_version(self.version().wrapping_add(1))
    }

    /// Returns the same word with the next version and the other stamp as the current one.
    #[must_use]
    pub(crate) const fn next_stamped(self) -> Commit {
        Commit(self.next().0 ^ 1 << Commit::SELECTOR_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_word_keeps_its_parts_apart() {
        let mut commit = Commit::new(0b101, 9);
        for _ in 0..40 {
            commit = commit.next_stamped();
        }
        assert_eq!((commit.live(), commit.level(), commit.selector()), (0b101, 9, 0));
        let last = Commit::from_raw(commit.raw() | Commit::VERSION_MASK << Commit::VERSION_SHIFT);
        assert_eq!(last.next().with_level(63).with_live(7).level(), 63);
        assert_eq!((last.next().live(), last.next().level(), last.next().selector()), (0b101, 9, 0));
    }
}
