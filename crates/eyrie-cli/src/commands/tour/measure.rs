//! Measures the same operations on Eyrie and on the host, in alternation.
//!
//! A *batch* is [`BATCH`] operations, timed as a whole on one thread. A *round* is one batch on Eyrie and
//! then the same batch on the host, with the same names, offsets and bytes. The result of an operation is the
//! median time of its batches in all counted rounds, divided by [`BATCH`]. The first [`WARM_UP`] rounds are
//! not counted, because in them memory pages are faulted in. The keys that a batch erases are put before the
//! timed part, and renamed files get their old names back after the timed part. After each batch that creates
//! files, a batch of the operation `Unlink` removes these files and measures the removal. Each row of the
//! result has the number of different blocks, files or keys that its operations touched. Measuring fails if
//! that number is too small for the way in which the operation chooses its targets ([`is_covering`]).
//!
//! Operations on bytes read or write [`BLOCK_BYTES`](super::operation::BLOCK_BYTES) each, except a get in
//! place, which reads one byte. Paths have three components. Every operation on a name first writes the
//! digits of its file or key into the name. Both sides use the same calls of [`Posix`] and the same methods
//! of [`KeyValueStore`].

use std::time::{Duration, Instant};

use eyrie::{Errno, Error, KeyValueStore, Posix, Result};

use super::operation::{Amounts, BATCH, Row, groups};
use super::subject::Subject;
use super::targets::{Coverage, is_covering, targets};
use crate::interrupt;

/// Minimum number of counted rounds, so that a few disturbed rounds hardly change the median.
const FEWEST_ROUNDS: usize = 40;
/// Maximum number of counted rounds.
const MAX_ROUNDS: usize = 2000;
/// Number of rounds at the start that are not counted.
const WARM_UP: u32 = 3;

/// The result of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// The operation and its scale.
    pub row: Row,
    /// Number of blocks, files or keys from which the operation chose.
    pub among: u32,
    /// Number of different blocks, files or keys that the operation touched.
    pub touched: u32,
    /// Median time on Eyrie, in µs.
    pub eyrie_us: f64,
    /// Median time on the host, in µs. `None` if the host lacks the operation.
    pub host_us: Option<f64>,
    /// Number of counted rounds.
    pub rounds: usize,
}

impl Measurement {
    /// Returns the time on the host divided by the time on Eyrie.
    pub fn ratio(&self) -> Option<f64> {
        self.host_us.map(|host| host / self.eyrie_us)
    }
}

/// The samples of one row so far.
struct Samples {
    row: Row,
    /// Times of the batches on Eyrie.
    eyrie: Vec<Duration>,
    /// Times of the batches on the host.
    host: Vec<Duration>,
    coverage: Coverage,
}

impl Samples {
    fn new(row: Row) -> Samples {
        Samples { row, eyrie: Vec::new(), host: Vec::new(), coverage: Coverage::default() }
    }

    /// Measures one round: a batch on Eyrie, then the same batch on the host.
    fn round<E: Posix + Clone, H: Posix + Clone>(
        &mut self,
        round: u32,
        eyrie: &mut Subject<'_, E, impl KeyValueStore>,
        host: &mut Subject<'_, H, impl KeyValueStore>,
        amounts: Amounts,
    ) -> Result<()> {
        let targets = targets(self.row.operation, round, amounts.among(self.row));
        // The sides alternate, so that a change in the speed of the machine affects both.
        let (on_eyrie, on_host) = (eyrie.batch(self.row, &targets)?, host.batch(self.row, &targets)?);
        if round >= WARM_UP {
            self.coverage.add(&targets);
            self.eyrie.extend(on_eyrie);
            self.host.extend(on_host);
        }
        Ok(())
    }

    /// Returns the result. Fails if the row touched too few blocks, files or keys.
    fn finish(mut self, amounts: Amounts) -> Result<Measurement> {
        let Samples { row, coverage, .. } = &self;
        let (row, rounds, among) = (*row, self.eyrie.len(), amounts.among(*row));
        let touched = coverage.distinct();
        if !is_covering(row.operation, rounds as u32, among, touched) {
            let reason = format!("only {touched} of {among} were touched in {rounds} rounds");
            return Err(Error::with_reason(Errno::IO, row.operation.name(), reason));
        }
        let eyrie_us = median_us(&mut self.eyrie).unwrap_or(f64::NAN);
        Ok(Measurement { row, among, touched, eyrie_us, host_us: median_us(&mut self.host), rounds })
    }
}

/// Measures all rows, in about the time `budget`. Returns `None` after an interrupt.
///
/// # Errors
/// As the calls that are measured. `EIO` if a row touches too few blocks, files or keys.
pub fn measure<E: Posix + Clone, H: Posix + Clone>(
    eyrie: &mut Subject<'_, E, impl KeyValueStore>,
    host: &mut Subject<'_, H, impl KeyValueStore>,
    amounts: Amounts,
    budget: Duration,
    mut progress: impl FnMut(),
) -> Result<Option<Vec<Measurement>>> {
    let mut results = Vec::new();
    let share = budget / u32::try_from(group_count(amounts)).unwrap_or(u32::MAX);
    for group in groups(amounts) {
        let Some(samples) = measure_group(&group, eyrie, host, amounts, share)? else { return Ok(None) };
        for samples in samples {
            results.push(samples.finish(amounts)?);
        }
        progress();
    }
    Ok(Some(results))
}

/// Measures the rows of one group in alternation, because one row makes the files that the next row needs.
/// Returns `None` after an interrupt.
fn measure_group<E: Posix + Clone, H: Posix + Clone>(
    group: &[Row],
    eyrie: &mut Subject<'_, E, impl KeyValueStore>,
    host: &mut Subject<'_, H, impl KeyValueStore>,
    amounts: Amounts,
    share: Duration,
) -> Result<Option<Vec<Samples>>> {
    let started = Instant::now();
    let mut all: Vec<Samples> = group.iter().copied().map(Samples::new).collect();
    for round in 0.. {
        let rounds = all[0].eyrie.len();
        if rounds >= MAX_ROUNDS || rounds >= FEWEST_ROUNDS && started.elapsed() > share {
            break;
        }
        if interrupt::requested() {
            return Ok(None);
        }
        for samples in &mut all {
            samples.round(round, eyrie, host, amounts)?;
        }
    }
    Ok(Some(all))
}

/// Returns the number of groups of rows. `measure` reports progress after each group.
pub fn group_count(amounts: Amounts) -> u64 {
    groups(amounts).count() as u64
}

/// Returns the median time of a batch, divided by [`BATCH`], in µs. `None` without batches.
fn median_us(batches: &mut [Duration]) -> Option<f64> {
    batches.sort_unstable();
    let middle = batches.get(batches.len() / 2)?;
    Some(middle.as_secs_f64() * 1e6 / f64::from(BATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_per_operation() {
        let mut batches =
            [Duration::from_micros(600), Duration::from_micros(200), Duration::from_micros(400)];
        assert_eq!(median_us(&mut batches), Some(2.0));
        assert_eq!(median_us(&mut []), None);
    }
}
