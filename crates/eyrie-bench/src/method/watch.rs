//! The clock of one thread in one round.

use std::time::{Duration, Instant};

use eyrie::OrderCounts;
use hdrhistogram::Histogram;

use super::coverage::Coverage;
use crate::error::{Error, Result};

/// Maximum of the recorded latencies, in ns. A longer latency is recorded as this maximum.
const MOST_NS: u64 = 60_000_000_000;

/// The work of one thread in one row, over all its counted rounds and the round for the latency.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub coverage: Coverage,
    /// Number of results that were compared with the expected results.
    pub compared: u64,
    /// The latencies in ns.
    pub latency: Option<Histogram<u64>>,
}

/// Times the calls of one thread in one round.
#[derive(Debug)]
pub struct Stopwatch {
    stop: fn() -> bool,
    tally: Tally,
    /// True in the round in which each call is timed by itself.
    single: bool,
    spent: Duration,
    operations: u64,
    /// Barriers and publishes of the timed calls.
    orders: OrderCounts,
}

/// The work of a client that has timed itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientWork {
    /// Number of its operations.
    pub operations: u64,
    /// Time of these operations.
    pub spent: Duration,
    /// Barriers and publishes of a client that is a thread of this process.
    pub orders: OrderCounts,
}

/// The work of one thread in one round.
pub(super) struct Lap {
    pub spent: Duration,
    pub operations: u64,
    pub orders: OrderCounts,
}

impl Stopwatch {
    pub(super) fn new(stop: fn() -> bool, tally: Tally, single: bool) -> Stopwatch {
        let mut watch = Stopwatch {
            stop,
            tally,
            single,
            spent: Duration::ZERO,
            operations: 0,
            orders: OrderCounts::default(),
        };
        if single && watch.tally.latency.is_none() {
            watch.tally.latency = Histogram::new_with_bounds(1, MOST_NS, 3).ok();
        }
        watch
    }

    pub(super) fn finish(self) -> (Tally, Lap) {
        let Stopwatch { tally, spent, operations, orders, .. } = self;
        (tally, Lap { spent, operations, orders })
    }

    /// Makes `count` calls, and adds their time. Calls must not prepare bytes or compare results, because
    /// this work would count as time of the calls.
    ///
    /// # Errors
    /// Fails if a call fails, and after an interrupt.
    #[inline]
    pub fn time(&mut self, count: usize, mut call: impl FnMut(usize) -> Result<()>) -> Result<()> {
        self.check()?;
        let before = OrderCounts::of_this_thread();
        let started = Instant::now();
        if self.single {
            for number in 0..count {
                let started = Instant::now();
                call(number)?;
                self.record(started.elapsed());
            }
        } else {
            for number in 0..count {
                call(number)?;
            }
        }
        self.spent += started.elapsed();
        self.count(before, count as u64);
        Ok(())
    }

    /// Makes one call that counts as `operations` operations, such as a listing of that number of names. If
    /// single calls are timed, records the mean time of one operation as one latency. A call that counts as
    /// no operation has no latency.
    ///
    /// # Errors
    /// Fails if the call fails, and after an interrupt.
    pub fn time_whole(&mut self, operations: u64, call: impl FnOnce() -> Result<()>) -> Result<()> {
        self.check()?;
        let before = OrderCounts::of_this_thread();
        let started = Instant::now();
        call()?;
        let spent = started.elapsed();
        if self.single && operations > 0 {
            self.record(spent / u32::try_from(operations).unwrap_or(u32::MAX));
        }
        self.spent += spent;
        self.count(before, operations);
        Ok(())
    }

    /// Adds the work of several clients that have timed themselves. As with several threads of a run, the
    /// time of one operation becomes the inverse of the sum of the rates. Such operations have no latencies.
    pub fn add_clients(&mut self, clients: &[ClientWork]) {
        let operations: u64 = clients.iter().map(|client| client.operations).sum();
        let rate = |client: &ClientWork| client.operations as f64 / client.spent.as_secs_f64();
        let seconds = operations as f64 / clients.iter().map(rate).sum::<f64>();
        self.spent += Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.operations += operations;
        clients.iter().for_each(|client| self.orders += client.orders);
    }

    fn count(&mut self, before: OrderCounts, operations: u64) {
        self.orders += OrderCounts::of_this_thread().since(before);
        self.operations += operations;
    }

    fn record(&mut self, latency: Duration) {
        if let Some(histogram) = &mut self.tally.latency {
            histogram.saturating_record(latency.as_nanos().clamp(1, u128::from(MOST_NS)) as u64);
        }
    }

    /// Notes that the row touched a target: a block, file or key.
    pub fn touch(&mut self, target: u64) {
        self.tally.coverage.add(target);
    }

    /// Counts a compared result. `right` is true if the result is the expected one.
    ///
    /// # Errors
    /// Fails unless `right` is true. The error has the text that `what` returns.
    pub fn require(&mut self, right: bool, what: impl FnOnce() -> String) -> Result<()> {
        self.tally.compared += 1;
        if right { Ok(()) } else { Err(Error::wrong(what())) }
    }

    /// Fails after an interrupt. [`Stopwatch::time`] and [`Stopwatch::time_whole`] begin with this check,
    /// before they start the clock. Long work that times no calls, such as a preparation, calls this method
    /// at intervals.
    ///
    /// # Errors
    /// Only [`Error::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if (self.stop)() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_operations_have_latencies() {
        let mut watch = Stopwatch::new(|| false, Tally::default(), true);
        for operations in [0, 3, 0] {
            watch.time_whole(operations, || Ok(())).unwrap();
        }
        let (tally, lap) = watch.finish();
        assert_eq!((tally.latency.unwrap().len(), lap.operations), (1, 3));
    }

    #[test]
    fn rates_of_clients_add_up() {
        let mut watch = Stopwatch::new(|| false, Tally::default(), false);
        // 30 and 10 operations in a second are 40 in a second, however long each client ran.
        let client = |operations, seconds| ClientWork {
            operations,
            spent: Duration::from_secs(seconds),
            ..ClientWork::default()
        };
        watch.add_clients(&[client(60, 2), client(10, 1)]);
        let (_, lap) = watch.finish();
        assert_eq!((lap.operations, lap.spent), (70, Duration::from_millis(1750)));
        let mut nothing = Stopwatch::new(|| false, Tally::default(), false);
        nothing.add_clients(&[]);
        assert_eq!(nothing.finish().1.spent, Duration::ZERO);
    }
}
