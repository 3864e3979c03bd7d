//! Chooses the target of each operation (a block, file or key), and counts the different targets of a row.
//!
//! Both sides of a round get the same targets. A row reports the number of its different targets.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::operation::{BATCH, Operation};

/// Number of different new names, which have six digits.
const NAMES: u64 = 1_000_000;
/// A prime that does not divide the number of files at any scale. So steps of this length visit every file
/// once before any file twice.
const STRIDE: u64 = 7919;

/// The way in which an operation chooses its targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TargetOrder {
    /// At random.
    Random,
    /// In sequence. Each round continues where the previous round ended.
    Next,
    /// In steps that visit every target once before any target twice.
    Spread,
    /// Names that the row itself makes or removes. After [`NAMES`] names the numbers begin at 0 again.
    New,
    /// The same blocks in every batch, because the file is truncated before each batch.
    Again,
}

fn order_of(operation: Operation) -> TargetOrder {
    match operation {
        Operation::ReadOn => TargetOrder::Next,
        Operation::Rename => TargetOrder::Spread,
        Operation::Create | Operation::Unlink | Operation::Erase => TargetOrder::New,
        Operation::Append => TargetOrder::Again,
        Operation::Open
        | Operation::Stat
        | Operation::Read
        | Operation::Overwrite
        | Operation::Sync
        | Operation::Get
        | Operation::GetInPlace
        | Operation::Put => TargetOrder::Random,
    }
}

/// Returns the targets of one batch. With `Random`, `Next` and `Spread` each target is below `among`.
pub fn targets(operation: Operation, round: u32, among: u32) -> Vec<u32> {
    let first = u64::from(round) * u64::from(BATCH);
    // The generator mixes its seed, so each round has other choices although the seeds are consecutive.
    let mut choices = SmallRng::seed_from_u64(round.into());
    let target = |number: u64| match order_of(operation) {
        TargetOrder::Random => choices.random_range(0..among),
        TargetOrder::Next => ((first + number) % u64::from(among)) as u32,
        TargetOrder::Spread => ((first + number) * STRIDE % u64::from(among)) as u32,
        TargetOrder::New => ((first + number) % NAMES) as u32,
        TargetOrder::Again => number as u32,
    };
    (0..u64::from(BATCH)).map(target).collect()
}

/// Returns true if `distinct` is at least 90 % of the number of different targets that `rounds` rounds should
/// have.
pub fn is_covering(operation: Operation, rounds: u32, among: u32, distinct: u32) -> bool {
    let (done, among) = (f64::from(rounds) * f64::from(BATCH), f64::from(among));
    let expected = match order_of(operation) {
        // The expected number of distinct targets after `done` random choices.
        TargetOrder::Random => among * (1.0 - (-done / among).exp()),
        TargetOrder::Next | TargetOrder::Spread => done.min(among),
        TargetOrder::New => done.min(NAMES as f64),
        TargetOrder::Again => f64::from(BATCH),
    };
    f64::from(distinct) >= 0.9 * expected
}

/// The targets that a row has touched.
#[derive(Default)]
pub struct Coverage {
    seen: Vec<u64>,
    distinct: u32,
}

impl Coverage {
    /// Adds the targets of a batch.
    pub fn add(&mut self, targets: &[u32]) {
        for &target in targets {
            let (word, bit) = (target as usize / 64, 1 << (target % 64));
            if word >= self.seen.len() {
                self.seen.resize(word + 1, 0);
            }
            self.distinct += u32::from(self.seen[word] & bit == 0);
            self.seen[word] |= bit;
        }
    }

    /// Returns the number of different targets.
    pub fn distinct(&self) -> u32 {
        self.distinct
    }
}

#[cfg(test)]
mod tests {
    use super::super::operation::{Amounts, rows};
    use super::*;

    /// Returns the number of different targets of an operation after `rounds` rounds.
    fn distinct(operation: Operation, rounds: u32, among: u32) -> u32 {
        let mut coverage = Coverage::default();
        (0..rounds).for_each(|round| coverage.add(&targets(operation, round, among)));
        coverage.distinct()
    }

    #[test]
    fn every_row_covers_its_targets() {
        for amounts in [Amounts::SMALL, Amounts::FULL] {
            for row in rows(amounts) {
                let among = amounts.among(row);
                for rounds in [1, 40, 2000] {
                    let distinct = distinct(row.operation, rounds, among);
                    assert!(
                        is_covering(row.operation, rounds, among, distinct),
                        "{row:?} {rounds}: {distinct}"
                    );
                }
            }
        }
    }

    #[test]
    fn sequential_reads_cover_the_whole_file() {
        let blocks = (Amounts::FULL.large_bytes / 4096) as u32;
        assert_eq!(distinct(Operation::ReadOn, blocks.div_ceil(BATCH), blocks), blocks);
        let (one, next) = (targets(Operation::ReadOn, 6, blocks), targets(Operation::ReadOn, 7, blocks));
        assert!(one.iter().chain(&next).is_sorted());
        assert_eq!(next[0], one[BATCH as usize - 1] + 1);
    }

    #[test]
    fn renames_of_a_batch_hit_different_files() {
        for among in [2000, 100_000] {
            assert_eq!(distinct(Operation::Rename, 1, among), BATCH);
            assert_eq!(distinct(Operation::Rename, among / BATCH, among), among);
        }
    }

    #[test]
    fn rounds_start_with_different_targets() {
        let firsts: std::collections::BTreeSet<u32> =
            (0..1000).map(|round| targets(Operation::Read, round, 1 << 18)[0] >> 8).collect();
        assert!(firsts.len() > 500, "{}", firsts.len());
    }

    #[test]
    fn too_few_targets_are_noticed() {
        assert!(!is_covering(Operation::Read, 2000, 1 << 18, 1000));
        assert!(!is_covering(Operation::ReadOn, 2000, 1 << 18, 800));
        assert!(!is_covering(Operation::Create, 40, 2000, BATCH));
    }
}
