//! Which images of a crash are opened: all of them, depth first, or, where there are too many, some of each kind.

use eyrie_medium::{Choice, CrashImage};

use super::run::Limits;
use crate::script::bytes;

/// The images of one crash, one after the other.
pub(super) struct Picks {
    limits: Limits,
    opened: u64,
    /// Picks of the next image.
    next: Option<Vec<usize>>,
    /// What samples follow from, and how many random words they have taken.
    seed: u64,
    taken: u64,
}

/// Lines (or sectors) that a sample decides; any further keep nothing of what is pending.
const SAMPLED_LINES: usize = 4096;

impl Picks {
    /// `seed` is the same for the same crash.
    pub(super) fn new(limits: Limits, seed: usize) -> Picks {
        Picks { limits, opened: 0, next: Some(Vec::new()), seed: seed as u64, taken: 0 }
    }

    /// Images so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// Whether there are more images than are opened one by one.
    pub(super) fn is_cut(&self) -> bool {
        self.next.is_some() && self.opened >= self.limits.images
    }

    /// What the next image picks.
    pub(super) fn next(&mut self) -> Option<Vec<usize>> {
        let picks = if self.opened < self.limits.images {
            self.next.clone()?
        } else if self.is_cut() && self.opened < self.limits.images + self.limits.sampled {
            self.sample()
        } else {
            return None;
        };
        self.opened += 1;
        Some(picks)
    }

    /// Tells which choices the last image had.
    pub(super) fn had(&mut self, choices: &[Choice]) {
        if self.opened <= self.limits.images {
            self.next = CrashImage::next_script(choices);
        }
    }

    fn any(&mut self) -> u64 {
        self.taken += 1;
        bytes::word(self.seed, self.taken)
    }

    /// Lines of which few, half or nearly all keep something, whatever there is to keep.
    fn sample(&mut self) -> Vec<usize> {
        let odds = [0, 8, 64, 128, 192, 248, 256][(self.any() % 7) as usize];
        let mut pick = || {
            let any = self.any();
            match (any % 256 < odds, any >> 8 & 1) {
                (false, _) => 0,
                // Everything that there is to keep, or something of it.
                (true, 0) => usize::MAX,
                (true, _) => 1 + (any >> 9) as usize % 8,
            }
        };
        (0..SAMPLED_LINES).map(|_| pick()).collect()
    }
}

#[cfg(test)]
mod tests {
    use eyrie_medium::Addr;

    use super::*;

    fn choices(options: [usize; 3], picks: &[usize]) -> Vec<Choice> {
        let taken = |at: usize| picks.get(at).copied().unwrap_or(0).min(options[at] - 1);
        let choice = |at: usize| Choice {
            line: Addr::from_raw(64 * at as u64),
            taken: taken(at),
            options: options[at],
        };
        (0..3).map(choice).collect()
    }

    #[test]
    fn all_images_come_up_once_and_of_too_many_a_sample() {
        let limits = |images, sampled| Limits { images, sampled, ..Limits::ALL };
        let opened = |limits| {
            let mut picks = Picks::new(limits, 1);
            let mut seen = Vec::new();
            while let Some(next) = picks.next() {
                let choices = choices([2, 3, 4], &next);
                seen.push(choices.iter().map(|choice| choice.taken).collect::<Vec<_>>());
                picks.had(&choices);
            }
            (seen, picks.is_cut())
        };
        let (all, is_cut) = opened(limits(100, 100));
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!((all.len(), distinct.len(), is_cut), (24, 24, false));
        let (some, is_cut) = opened(limits(10, 50));
        assert_eq!((some.len(), is_cut), (60, true));
        assert!(some[..10] == all[..10]);
        // Samples are not more of the same: the first line takes both of its contents.
        assert!(some[10..].iter().any(|picks| picks[0] == 1) && some[10..].iter().any(|picks| picks[0] == 0));
        let (few, is_cut) = opened(limits(24, 50));
        assert_eq!((few.len(), is_cut), (24, false));
    }
}
