//! The block, file or key of each operation of a batch, and how many of them a row touches in all.
//!
//! Both sides of a round get the same targets, and the targets are counted, so a row tells how much it covers.

use super::measure::{BATCH, Operation};

/// Numbers of new names: they have six digits.
const NAMES: u64 = 1_000_000;
/// A prime that no count of files has as a factor: its multiples visit each file once before they visit one twice.
const STRIDE: u64 = 7919;

/// The way in which an operation chooses its targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// At random.
    Random,
    /// Each after the one before, on from round to round.
    Next,
    /// In steps that visit everything once before anything twice.
    Spread,
    /// Names that no round had before.
    New,
    /// The blocks of a file that begins each batch empty.
    Again,
}

fn order(operation: Operation) -> Order {
    match operation {
        Operation::ReadOn => Order::Next,
        Operation::Rename => Order::Spread,
        Operation::Create | Operation::Unlink | Operation::Erase => Order::New,
        Operation::Append => Order::Again,
        Operation::Open
        | Operation::Stat
        | Operation::Read
        | Operation::Overwrite
        | Operation::Sync
        | Operation::Get
        | Operation::GetInPlace
        | Operation::Put => Order::Random,
    }
}

/// The numbers that one batch has to do with, below `among` where they are of something that is there.
pub fn targets(operation: Operation, round: u32, among: u32) -> Vec<u32> {
    let first = u64::from(round) * u64::from(BATCH);
    let mut choices = Choices::of_round(round);
    let target = |number: u64| match order(operation) {
        Order::Random => choices.below(among),
        Order::Next => ((first + number) % u64::from(among)) as u32,
        Order::Spread => ((first + number) * STRIDE % u64::from(among)) as u32,
        Order::New => ((first + number) % NAMES) as u32,
        Order::Again => number as u32,
    };
    (0..u64::from(BATCH)).map(target).collect()
}

/// True if a row with so many distinct targets in so many rounds visits as much of what there is as it should.
pub fn is_covering(operation: Operation, rounds: u32, among: u32, distinct: u32) -> bool {
    let (done, among) = (f64::from(rounds) * f64::from(BATCH), f64::from(among));
    let most = match order(operation) {
        // The part that so many choices out of so many leave out on the average.
        Order::Random => among * (1.0 - (-done / among).exp()),
        Order::Next | Order::Spread => done.min(among),
        Order::New => done.min(NAMES as f64),
        Order::Again => f64::from(BATCH),
    };
    f64::from(distinct) >= 0.9 * most
}

/// A small generator (xorshift).
struct Choices(u64);

impl Choices {
    /// Rounds begin far apart: seeds that differ in a few low bits would give nearly the same first choices.
    fn of_round(round: u32) -> Choices {
        // The finalizer of splitmix64.
        let mut seed = (u64::from(round) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        seed = (seed ^ seed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Choices(seed ^ seed >> 31 | 1)
    }

    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(end)) >> 32) as u32
    }
}

/// Which targets a row has touched.
#[derive(Default)]
pub struct Coverage {
    seen: Vec<u64>,
    distinct: u32,
}

impl Coverage {
    /// Counts the targets that are new.
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

    /// Number of different targets.
    pub fn distinct(&self) -> u32 {
        self.distinct
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Amounts, rows};
    use super::*;

    /// Targets that a row touches in so many rounds.
    fn distinct(operation: Operation, rounds: u32, among: u32) -> u32 {
        let mut coverage = Coverage::default();
        (0..rounds).for_each(|round| coverage.add(&targets(operation, round, among)));
        coverage.distinct()
    }

    #[test]
    fn every_row_covers_what_it_is_said_to_be_among() {
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
    fn sequential_reads_go_through_the_whole_file() {
        let blocks = (Amounts::FULL.large_bytes / 4096) as u32;
        assert_eq!(distinct(Operation::ReadOn, blocks.div_ceil(BATCH), blocks), blocks);
        let (one, next) = (targets(Operation::ReadOn, 6, blocks), targets(Operation::ReadOn, 7, blocks));
        assert!(one.iter().chain(&next).is_sorted());
        assert_eq!(next[0], one[BATCH as usize - 1] + 1);
    }

    #[test]
    fn renames_of_a_batch_are_of_different_files() {
        for among in [2000, 100_000] {
            assert_eq!(distinct(Operation::Rename, 1, among), BATCH);
            assert_eq!(distinct(Operation::Rename, among / BATCH, among), among);
        }
    }

    #[test]
    fn rounds_begin_with_different_choices() {
        let firsts: std::collections::BTreeSet<u32> =
            (0..1000).map(|round| Choices::of_round(round).below(1 << 18) >> 8).collect();
        assert!(firsts.len() > 500, "{}", firsts.len());
    }

    #[test]
    fn too_few_targets_are_noticed() {
        assert!(!is_covering(Operation::Read, 2000, 1 << 18, 1000));
        assert!(!is_covering(Operation::ReadOn, 2000, 1 << 18, 800));
        assert!(!is_covering(Operation::Create, 40, 2000, BATCH));
    }
}
