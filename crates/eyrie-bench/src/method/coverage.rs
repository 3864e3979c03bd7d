//! The different blocks, files and keys that a row touches.

use crate::error::{Error, Result};

/// The way in which a row chooses its targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetOrder {
    /// At random, so that some targets are chosen several times.
    Random,
    /// Every target once, before any target twice.
    Each,
}

/// Chance does not explain a number of touched targets if the probability of so small a number is below this
/// value.
const UNEXPLAINED: f64 = 1e-9;

/// The targets of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Targets {
    /// The kind of the targets, such as blocks.
    pub unit: &'static str,
    /// Number of targets from which each thread chooses.
    pub among: u64,
    /// The way in which the row chooses.
    pub order: TargetOrder,
}

impl Targets {
    /// Makes targets that are chosen at random.
    pub fn random(unit: &'static str, among: u64) -> Targets {
        Targets { unit, among, order: TargetOrder::Random }
    }

    /// Makes targets, each of which is touched once before any is touched twice.
    pub fn each(unit: &'static str, among: u64) -> Targets {
        Targets { unit, among, order: TargetOrder::Each }
    }

    /// Returns the number of different targets that `done` choices must touch: 90 % of the expected number.
    /// Among few targets, random choices often touch fewer by chance. The result is then the smallest number
    /// that chance explains, so that a run with many threads does not fail by chance.
    pub fn least(&self, done: u64) -> u64 {
        let (done, among) = (done as f64, self.among as f64);
        let least = match self.order {
            TargetOrder::Random => {
                let expected = among * (1.0 - (-done / among).exp());
                (0.9 * expected).min(explained(done, among))
            }
            TargetOrder::Each => 0.9 * done.min(among),
        };
        least.ceil() as u64
    }
}

/// Returns the smallest number of different targets that chance explains for `done` random choices. With many
/// targets, this number is six standard deviations and four targets below the expected number. A normal
/// variable lies more than six deviations below its mean with a probability of 1e-9, which is
/// [`UNEXPLAINED`]. The four targets allow for the error of the normal distribution if few targets stay
/// untouched. For up to 64 untouched targets, the bound in the loop below replaces the normal distribution.
/// Above that number the normal distribution is close.
fn explained(done: f64, among: f64) -> f64 {
    let load = done / among;
    let untouched = (-load).exp();
    let deviation = (among * untouched * (1.0 - (1.0 + load) * untouched)).sqrt();
    let of_many = among * (1.0 - untouched) - 6.0 * deviation - 4.0;
    // The probability that any `left` targets stay untouched is at most the number of sets of `left` targets,
    // multiplied by the probability for one set. `sets` is the natural logarithm of the number of sets.
    let mut sets = 0.0;
    for left in (1..=among.min(64.0) as u32).map(f64::from) {
        sets += ((among - left + 1.0) / left).ln();
        if sets + done * (1.0 - left / among).ln() < UNEXPLAINED.ln() {
            return of_many.max(among - left + 1.0);
        }
    }
    of_many
}

/// The targets that one thread has touched.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    seen: Vec<u64>,
    distinct: u64,
    done: u64,
}

impl Coverage {
    /// Adds a target.
    pub fn add(&mut self, target: u64) {
        let (word, bit) = ((target / 64) as usize, 1 << (target % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        self.distinct += u64::from(self.seen[word] & bit == 0);
        self.seen[word] |= bit;
        self.done += 1;
    }

    /// Returns the number of different targets.
    ///
    /// # Errors
    /// Fails if the number is too small for the way in which the row chooses, or if it is 0.
    pub fn require(&self, targets: &Targets) -> Result<u64> {
        let least = targets.least(self.done).max(1);
        if self.distinct < least {
            return Err(Error::Uncovered { touched: self.distinct, least, unit: targets.unit });
        }
        Ok(self.distinct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Chooser;

    fn covered(numbers: impl Iterator<Item = u64>) -> Coverage {
        let mut coverage = Coverage::default();
        numbers.for_each(|number| coverage.add(number));
        coverage
    }

    #[test]
    fn good_choices_are_covering() {
        let mut chooser = Chooser::new(3);
        for count in [100, 1000, 100_000] {
            let random = covered((0..count).map(|_| chooser.below(10_000)));
            assert!(random.require(&Targets::random("keys", 10_000)).is_ok());
            let each = covered((0..count).map(|number| number % 10_000));
            assert_eq!(each.require(&Targets::each("keys", 10_000)).unwrap(), count.min(10_000));
        }
    }

    #[test]
    fn random_choices_among_few_targets_are_covering() {
        let mut chooser = Chooser::new(5);
        for among in 1..40 {
            for count in [1, 4, 16, 32, 50, 200] {
                for _ in 0..300 {
                    let random = covered((0..count).map(|_| chooser.below(among)));
                    let touched = random.require(&Targets::random("MiB", among));
                    assert!(touched.is_ok(), "{count} choices among {among}: {touched:?}");
                }
            }
        }
    }

    #[test]
    fn too_few_targets_are_noticed() {
        let again = covered((0..10_000).map(|number| number % 200));
        for targets in [Targets::random("blocks", 1 << 18), Targets::each("blocks", 1 << 18)] {
            assert!(matches!(again.require(&targets), Err(Error::Uncovered { touched: 200, .. })));
        }
        assert!(Coverage::default().require(&Targets::each("files", 10)).is_err());
        let first = covered((0..10_000).map(|_| 0));
        let touched = first.require(&Targets::random("MiB", 4));
        assert!(matches!(touched, Err(Error::Uncovered { touched: 1, least: 4, .. })), "{touched:?}");
        let half = covered((0..100).map(|number| number % 20));
        assert!(half.require(&Targets::random("MiB", 40)).is_err());
    }
}
