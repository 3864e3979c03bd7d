//! The images of a crash, one after the other. The images are enumerated depth first, up to a limit. If there
//! are more, further images are drawn at random, and may repeat earlier ones.
//!
//! Every exploration of crashes enumerates its images with this module, so that limits and replay numbers
//! mean the same everywhere.

use std::ops::AddAssign;

use eyrie_faults::{Choice, CrashImage, CrashPoint, CrashPoints};

use crate::script::bytes;

/// Limits of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of images of one crash point that are enumerated in order.
    pub images: u64,
    /// Number of images that are drawn at random if a crash point has more than `images` images.
    pub sampled: u64,
    /// True if a crash point with more images than the limit is a failure.
    pub is_complete: bool,
    /// Number of images of each crash point for which a second crash, inside the recovery of the image, is
    /// explored.
    pub recoveries: u64,
}

impl Limits {
    /// Every image. A crash point with more than 200,000 images is a failure, because so many images suggest
    /// that contents of lines are chosen before recovery reads the lines.
    pub const ALL: Limits = Limits { images: 200_000, sampled: 0, is_complete: true, recoveries: 0 };
}

/// Results of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Number of crash points.
    pub points: u64,
    /// Number of images that were opened.
    pub images: u64,
    /// Number of opened images that a crash inside a recovery left. `images` does not include them.
    pub of_recovery: u64,
    /// Number of crash points with more than [`Limits::images`] images.
    pub limited: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.points += other.points;
        self.images += other.images;
        self.of_recovery += other.of_recovery;
        self.limited += other.limited;
    }
}

/// The images of one crash. The *picks* of an image select its bytes. They are numbers, one for each line (or
/// sector of a disk) that has pending stores and that recovery reads, in the order of the reads. A pick is
/// the index, from 0, of one of the contents that the crash may leave in its line. Pick 0 loses all pending
/// stores of the line. Missing picks count as 0.
pub struct Images {
    limits: Limits,
    opened: u64,
    /// Picks of the next image.
    next: Option<Vec<usize>>,
    /// Seed of the samples.
    seed: u64,
    /// Number of random words drawn so far.
    taken: u64,
}

/// Number of lines (or sectors) whose contents a sample chooses. Any further line loses all its pending
/// stores.
const SAMPLED_LINES: usize = 4096;

impl Images {
    /// Starts with the first image, which loses all pending stores. Equal seeds give equal samples.
    pub fn new(limits: Limits, seed: usize) -> Images {
        Images { limits, opened: 0, next: Some(Vec::new()), seed: seed as u64, taken: 0 }
    }

    /// Returns the number of images so far.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns true if the enumeration has reached its limit and further images exist.
    pub fn is_limited(&self) -> bool {
        self.next.is_some() && self.opened >= self.limits.images
    }

    /// Returns the picks of the next image, or `None` after the last one.
    pub fn next_picks(&mut self) -> Option<Vec<usize>> {
        let picks = if self.opened < self.limits.images {
            self.next.clone()?
        } else if self.is_limited() && self.opened < self.limits.images + self.limits.sampled {
            self.sample()
        } else {
            return None;
        };
        self.opened += 1;
        Some(picks)
    }

    /// Takes the choices of the last image, from which the next picks follow.
    pub fn add_choices(&mut self, choices: &[Choice]) {
        if self.opened <= self.limits.images {
            self.next = CrashImage::next_script(choices);
        }
    }

    fn random_word(&mut self) -> u64 {
        self.taken += 1;
        bytes::word(self.seed, self.taken)
    }

    /// Draws an image in which a random share of the lines, from none to all, keeps some or all pending
    /// stores.
    fn sample(&mut self) -> Vec<usize> {
        // At odds of 255 in 256, a long record is often whole while a sector of another write is lost.
        let odds = [0, 8, 64, 128, 192, 248, 255, 256][(self.random_word() % 8) as usize];
        let mut pick = || {
            let word = self.random_word();
            match (word % 256 < odds, word >> 8 & 1) {
                (false, _) => 0,
                // All pending stores of the line, or a few of them.
                (true, 0) => usize::MAX,
                (true, _) => 1 + (word >> 9) as usize % 8,
            }
        };
        (0..SAMPLED_LINES).map(|_| pick()).collect()
    }
}

/// The reason why the numbers of a replay match no image of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoImage {
    /// The run has no crash point after this number of events.
    #[error("there is no crash after {after} events")]
    Point {
        /// Number of events before the crash.
        after: usize,
    },
    /// The line of this pick has no content with this number, or recovery does not read so many lines.
    #[error("pick {index} (counted from 0) matches no line, or no contents of its line")]
    Pick {
        /// Index of the pick.
        index: usize,
    },
}

/// Returns the crash point after `after` events.
pub(super) fn point_after(points: &mut CrashPoints<'_>, after: usize) -> Result<CrashPoint, NoImage> {
    points.find(|point| point.after == after).ok_or(NoImage::Point { after })
}

/// Checks that the choices of an image are the picks of the replay.
pub(super) fn check_picks(picks: &[usize], choices: &[Choice]) -> Result<(), NoImage> {
    let made = |index: usize| choices.get(index).map(|choice| choice.taken);
    let wrong = picks.iter().enumerate().find(|&(index, &pick)| made(index) != Some(pick));
    wrong.map_or(Ok(()), |(index, _)| Err(NoImage::Pick { index }))
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
    fn every_image_comes_up_once_or_is_sampled() {
        let limits = |images, sampled| Limits { images, sampled, ..Limits::ALL };
        let opened = |limits| {
            let mut picks = Images::new(limits, 1);
            let mut seen = Vec::new();
            while let Some(next) = picks.next_picks() {
                let choices = choices([2, 3, 4], &next);
                seen.push(choices.iter().map(|choice| choice.taken).collect::<Vec<_>>());
                picks.add_choices(&choices);
            }
            (seen, picks.is_limited())
        };
        let (all, is_limited) = opened(limits(100, 100));
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!((all.len(), distinct.len(), is_limited), (24, 24, false));
        let (some, is_limited) = opened(limits(10, 50));
        assert_eq!((some.len(), is_limited), (60, true));
        assert!(some[..10] == all[..10]);
        // The samples differ: the first line takes each of its two contents.
        assert!(some[10..].iter().any(|picks| picks[0] == 1) && some[10..].iter().any(|picks| picks[0] == 0));
        let (few, is_limited) = opened(limits(24, 50));
        assert_eq!((few.len(), is_limited), (24, false));
    }
}
