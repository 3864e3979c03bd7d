//! Measures the same operations on Eyrie and on the host, in alternation.
//!
//! A *batch* is [`BATCH`] operations, timed as a whole on one thread; a *round* is one batch on Eyrie and then the same
//! batch on the host, with the same names, offsets and bytes. The result of an operation is the median over the rounds
//! of the time per operation. The first [`WARM_UP`] rounds, which fault memory in, do not count. What a batch needs or
//! leaves behind is made and cleaned up between batches. A row tells how many different blocks, files or keys it touched, and
//! measuring fails where those are fewer than its choices should touch (`targets`).
//!
//! Every operation moves [`BLOCK_BYTES`], paths have three components, and names are built anew for every operation.
//! Both sides go through the same calls of [`Posix`] and the same methods of [`Keys`].

use std::time::{Duration, Instant};

use eyrie::{Errno, Error, Posix, Result};

use super::subject::{Keys, Subject};
use super::targets::{Coverage, is_covering, targets};
use crate::interrupt;

/// Operations timed at once.
pub const BATCH: u32 = 200;
/// Rounds that are measured at least.
const FEWEST_ROUNDS: usize = 40;
/// Rounds that are measured at most.
const MOST_ROUNDS: usize = 2000;
/// Rounds before those that count.
const WARM_UP: u32 = 3;
/// Bytes that an operation moves.
pub const BLOCK_BYTES: usize = 4096;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Open an existing file by its path, and close it.
    Open,
    /// The attributes of an existing file by its path.
    Stat,
    /// Read one aligned block at random from an open large file.
    Read,
    /// Read the next block of that file, which the rounds go through from its start to its end.
    ReadOn,
    /// Overwrite one aligned block at random in that file.
    Overwrite,
    /// Overwrite a block so, and `fsync` the file.
    Sync,
    /// Append one block to an open file, which begins each batch empty.
    Append,
    /// Create a file, write one block, close it.
    Create,
    /// Remove a file that `Create` made.
    Unlink,
    /// Rename an existing file within its directory.
    Rename,
    /// Copy out the value of an existing key. On the host: open, read, close.
    Get,
    /// Use the value of an existing key where it lies.
    GetInPlace,
    /// Replace the value of an existing key. On the host: create, write, close, rename.
    Put,
    /// Remove a key. On the host: unlink.
    Erase,
}

/// In what surroundings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// A directory, or store, of a thousand or two.
    Few,
    /// One of [`Amounts::many`].
    Many,
}

/// How much there is to choose from.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Size of the file that is read and overwritten, in bytes.
    pub large_bytes: u64,
    /// Files, and keys, at [`Scale::Many`]; 0 leaves those rows out.
    pub many: u32,
}

impl Amounts {
    /// For a quick look.
    pub const SMALL: Amounts = Amounts { large_bytes: 128 << 20, many: 0 };
    /// For figures.
    pub const FULL: Amounts = Amounts { large_bytes: 1 << 30, many: 100_000 };

    /// Files to choose from.
    pub fn files(self, scale: Scale) -> u32 {
        if scale == Scale::Few { 2000 } else { self.many }
    }

    /// Keys to choose from.
    pub fn keys(self, scale: Scale) -> u32 {
        if scale == Scale::Few { 1000 } else { self.many }
    }

    /// Blocks, files or keys to choose from.
    pub fn among(self, row: Row) -> u32 {
        match row.operation {
            operation if operation.is_of_blocks() => (self.large_bytes / BLOCK_BYTES as u64) as u32,
            operation if operation.is_of_keys() => self.keys(row.scale),
            _ => self.files(row.scale),
        }
    }

    /// Room that the files and keys of one side need at most, in bytes.
    pub fn bytes(self) -> u64 {
        self.large_bytes + (256 << 20) + u64::from(self.many) * (2 * 4096)
    }
}

/// A row of the table: an operation at a scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// What is done.
    pub operation: Operation,
    /// Among how many.
    pub scale: Scale,
}

/// Operations that are measured together, because one makes what the next needs.
const GROUPS: [&[Operation]; 13] = [
    &[Operation::Open],
    &[Operation::Stat],
    &[Operation::Read],
    &[Operation::ReadOn],
    &[Operation::Overwrite],
    &[Operation::Sync],
    &[Operation::Append],
    &[Operation::Create, Operation::Unlink],
    &[Operation::Rename],
    &[Operation::Get],
    &[Operation::GetInPlace],
    &[Operation::Put],
    &[Operation::Erase],
];

/// The groups with each operation at its scale: first everything among few, then what depends on how many there are.
fn groups(amounts: Amounts) -> impl Iterator<Item = Vec<Row>> {
    let at = |scale| {
        move |group: &&[Operation]| -> Vec<Row> {
            group.iter().map(|&operation| Row { operation, scale }).collect()
        }
    };
    let scaled = move |group: &&&[Operation]| amounts.many > 0 && group[0].depends_on_scale();
    GROUPS.iter().map(at(Scale::Few)).chain(GROUPS.iter().filter(scaled).map(at(Scale::Many)))
}

/// The rows.
#[cfg(test)]
pub fn rows(amounts: Amounts) -> impl Iterator<Item = Row> {
    groups(amounts).flatten()
}

impl Operation {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Open => "open + close",
            Operation::Stat => "stat",
            Operation::Read => "read 4 KiB",
            Operation::ReadOn => "read 4 KiB, sequential",
            Operation::Overwrite => "overwrite 4 KiB",
            Operation::Sync => "write 4 KiB + fsync",
            Operation::Append => "append 4 KiB",
            Operation::Create => "create + write 4 KiB",
            Operation::Unlink => "unlink",
            Operation::Rename => "rename",
            Operation::Get => "get 4 KiB",
            Operation::GetInPlace => "get in place",
            Operation::Put => "put 4 KiB",
            Operation::Erase => "erase",
        }
    }

    /// Whether it looks a name up.
    fn depends_on_scale(self) -> bool {
        use Operation::{Append, Overwrite, Read, ReadOn, Sync};
        !matches!(self, Read | ReadOn | Overwrite | Sync | Append)
    }

    /// True if it is of blocks of the large file.
    fn is_of_blocks(self) -> bool {
        use Operation::{Overwrite, Read, ReadOn, Sync};
        matches!(self, Read | ReadOn | Overwrite | Sync)
    }

    /// Whether it is one of a store's.
    fn is_of_keys(self) -> bool {
        use Operation::{Erase, Get, GetInPlace, Put};
        matches!(self, Get | GetInPlace | Put | Erase)
    }
}

/// The result of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Which.
    pub row: Row,
    /// Among how many blocks, files or keys.
    pub among: u32,
    /// Different ones that it touched (a count).
    pub touched: u32,
    /// Median time on Eyrie, in µs.
    pub eyrie_us: f64,
    /// Median time on the host, in µs, where the host has the operation.
    pub host_us: Option<f64>,
    /// Rounds that counted.
    pub rounds: usize,
}

impl Measurement {
    /// How many times as fast Eyrie is.
    pub fn ratio(&self) -> Option<f64> {
        self.host_us.map(|host| host / self.eyrie_us)
    }
}

/// Measures everything for about `budget`. `None` when interrupted.
///
/// # Errors
/// As the calls that are measured; `EIO` when a row touches fewer blocks, files or keys than it should.
pub fn measure<E: Posix, H: Posix>(
    eyrie: &mut Subject<'_, E, impl Keys>,
    host: &mut Subject<'_, H, impl Keys>,
    amounts: Amounts,
    budget: Duration,
    mut progress: impl FnMut(),
) -> Result<Option<Vec<Measurement>>> {
    let mut results = Vec::new();
    let share = budget / u32::try_from(steps(amounts)).unwrap_or(u32::MAX);
    for group in groups(amounts) {
        let started = Instant::now();
        let mut samples = vec![(Vec::new(), Vec::new()); group.len()];
        let mut covered: Vec<Coverage> = group.iter().map(|_| Coverage::default()).collect();
        for round in 0.. {
            let rounds = samples[0].0.len();
            if rounds >= MOST_ROUNDS || rounds >= FEWEST_ROUNDS && started.elapsed() > share {
                break;
            }
            if interrupt::requested() {
                return Ok(None);
            }
            for ((&row, (ours, theirs)), coverage) in group.iter().zip(&mut samples).zip(&mut covered) {
                let targets = targets(row.operation, round, amounts.among(row));
                let (eyrie, host) = (eyrie.batch(row, &targets)?, host.batch(row, &targets)?);
                if round >= WARM_UP {
                    coverage.add(&targets);
                    ours.extend(eyrie);
                    theirs.extend(host);
                }
            }
        }
        for ((&row, (ours, theirs)), coverage) in group.iter().zip(&mut samples).zip(&covered) {
            let (rounds, among, touched) = (ours.len(), amounts.among(row), coverage.distinct());
            if !is_covering(row.operation, rounds as u32, among, touched) {
                let reason = format!("only {touched} of {among} were touched in {rounds} rounds");
                return Err(Error::with_reason(Errno::IO, row.operation.name(), reason));
            }
            let eyrie_us = median_us(ours).unwrap_or(f64::NAN);
            results.push(Measurement { row, among, touched, eyrie_us, host_us: median_us(theirs), rounds });
        }
        progress();
    }
    Ok(Some(results))
}

/// How often `measure` tells its progress.
pub fn steps(amounts: Amounts) -> u64 {
    groups(amounts).count() as u64
}

/// The median of the time per operation, in µs.
fn median_us(batches: &mut [Duration]) -> Option<f64> {
    batches.sort_unstable();
    let middle = batches.get(batches.len() / 2)?;
    Some(middle.as_secs_f64() * 1e6 / f64::from(BATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_looks_names_up_is_measured_among_many() {
        let rows: Vec<Row> = groups(Amounts::FULL).flatten().collect();
        let many = |operation| rows.contains(&Row { operation, scale: Scale::Many });
        assert!(many(Operation::Rename) && many(Operation::Erase) && !many(Operation::Append));
        assert!(groups(Amounts::SMALL).flatten().all(|row| row.scale == Scale::Few));
        assert_eq!(groups(Amounts::SMALL).flatten().count(), 14);
    }

    #[test]
    fn a_median_is_per_operation() {
        let mut batches =
            [Duration::from_micros(600), Duration::from_micros(200), Duration::from_micros(400)];
        assert_eq!(median_us(&mut batches), Some(2.0));
        assert_eq!(median_us(&mut []), None);
    }
}
