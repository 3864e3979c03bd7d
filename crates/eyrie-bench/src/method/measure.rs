//! The rounds of a workload on all sides.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use eyrie::OrderCounts;
use hdrhistogram::Histogram;

use super::crew::Crew;
use super::figures::{Figures, Latency, Row, median, quartiles};
use super::plan::{Plan, Rounds, RowPlan, Worker};
use super::watch::{Lap, Stopwatch, Tally};
use crate::error::Result;

/// Totals of the work of a side's medium. Only the difference of two totals has a meaning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Bytes that were written to the medium.
    pub written_bytes: u64,
    /// Drains of a volume on a disk. `None` on other sides.
    pub drains: Option<u64>,
}

/// Makes the changes of a side durable, and returns the totals of the work of its medium. If the side has no
/// such totals, does nothing and returns `None`.
pub type Count = Arc<dyn Fn() -> Result<Option<Counters>> + Send + Sync>;

/// One side of a run, with a worker for each thread.
pub struct SideWithWorkers {
    /// The name of the side.
    pub name: String,
    /// The workers.
    pub workers: Vec<Box<dyn Worker>>,
    /// Makes the changes of the side durable, and returns the work of its medium.
    pub count: Count,
    /// True if the workers' own threads store to a medium of Eyrie, so that these threads count its barriers
    /// and publishes.
    pub orders: bool,
}

/// The number of rounds of a run, and the functions by which its caller stops and follows it.
pub struct Control<'a> {
    /// The rounds of each row.
    pub rounds: Rounds,
    /// Returns true after an interrupt.
    pub stop: fn() -> bool,
    /// Gets the name of the first row of each group before the rounds of the group, and at the end the name
    /// of the final comparison.
    pub progress: &'a mut dyn FnMut(&str),
}

/// A worker, and a tally for each row. Both move to a thread for each round.
struct TalliedWorker {
    worker: Box<dyn Worker>,
    tallies: Vec<Tally>,
}

/// A side during a run.
struct SideRun {
    name: String,
    workers: Vec<TalliedWorker>,
    count: Count,
    orders: bool,
}

/// The samples of one side in one row.
#[derive(Default)]
struct Samples {
    /// µs for one operation: an element for each counted round.
    us: Vec<f64>,
    operations: u64,
    orders: OrderCounts,
    written_bytes: Option<f64>,
    drains: Option<f64>,
}

/// One round of all threads of a side.
struct SideRound {
    /// µs for one operation.
    us: f64,
    operations: u64,
    orders: OrderCounts,
}

/// Makes one round of a row on one side. Returns `None` if the side lacks the operation. If `counts` is
/// false, the round only warms up, and its tallies are dropped. If `single` is true, each call is timed by
/// itself.
fn round(
    crew: &Crew,
    run: &mut SideRun,
    row: usize,
    stop: fn() -> bool,
    (counts, single): (bool, bool),
) -> Result<Option<SideRound>> {
    let workers = std::mem::take(&mut run.workers);
    let start = Arc::new(Barrier::new(workers.len()));
    let tasks: Vec<_> = workers
        .into_iter()
        .map(|mut tallied| {
            let start = Arc::clone(&start);
            move || {
                let tally = if counts { std::mem::take(&mut tallied.tallies[row]) } else { Tally::default() };
                let mut watch = Stopwatch::new(stop, tally, single);
                start.wait();
                let result = tallied.worker.round(row, &mut watch);
                let (tally, lap) = watch.finish();
                if counts {
                    tallied.tallies[row] = tally;
                }
                (tallied, result.map(|able| able.then_some(lap)))
            }
        })
        .collect();
    let mut all = SideRound { us: 0.0, operations: 0, orders: OrderCounts::default() };
    let (mut rate, mut able, mut failed) = (0.0, true, None);
    for (tallied, lap) in crew.run(tasks) {
        run.workers.push(tallied);
        match lap {
            Ok(Some(Lap { spent, operations, orders })) => {
                rate += operations as f64 / spent.as_secs_f64();
                all.operations += operations;
                all.orders += orders;
            }
            Ok(None) => able = false,
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(able.then_some(SideRound { us: 1e6 / rate, ..all })),
    }
}

/// Makes the changes of a side durable, and returns the work of its medium. After a sync, a volume on a disk
/// limits the changes of all threads except the thread that made the sync. So the first thread of the crew
/// makes the sync. In a run with one thread, no change is then limited, as in a program with one thread.
fn count(crew: &Crew, run: &SideRun) -> Result<Option<Counters>> {
    let count = Arc::clone(&run.count);
    crew.run(vec![move || count()]).remove(0)
}

/// Makes all rounds of the rows of one group. Row `first` of the plan is the first row of the group, and
/// `share` is the group's part of the time for all rounds. Returns the samples by row and side, or `None` in
/// place of the samples of a side that lacks the operation.
fn group(
    crew: &Crew,
    runs: &mut [SideRun],
    first: usize,
    rows: &[RowPlan],
    (control, share): (&mut Control<'_>, Duration),
) -> Result<Vec<Vec<Option<Samples>>>> {
    let started = Instant::now();
    let empty = || runs.iter().map(|_| Some(Samples::default())).collect();
    let mut found: Vec<Vec<Option<Samples>>> = rows.iter().map(|_| empty()).collect();
    let Rounds { least, most, latency, .. } = control.rounds;
    let once = rows.iter().all(|row| row.once);
    let limit = rows.iter().map(|row| row.most).min().unwrap_or(u32::MAX);
    let (least, most) = (least.min(limit), most.min(limit));
    // Round 0 does not count, and a group of rows with a single round begins with round 1.
    let mut number = if once { 1 } else { 0 };
    loop {
        let is_over = number > least && (number > most || started.elapsed() > share);
        let single = if once { number > 1 } else { is_over };
        if single && (once || !latency) {
            return Ok(found);
        }
        for (offset, row) in rows.iter().enumerate() {
            for (side, run) in runs.iter_mut().enumerate() {
                let place = |run: &SideRun| format!("{}: {}", run.name, row.name);
                let before = if single { count(crew, run)? } else { None };
                let lap = round(crew, run, first + offset, control.stop, (number > 0, single))
                    .map_err(|error| error.at(place(run)))?;
                let Some(lap) = lap else {
                    found[offset][side] = None;
                    continue;
                };
                let Some(samples) = &mut found[offset][side] else { continue };
                if let Some((before, after)) = before.zip(if single { count(crew, run)? } else { None }) {
                    let each =
                        |after: u64, before: u64| (after - before) as f64 / lap.operations.max(1) as f64;
                    samples.written_bytes = Some(each(after.written_bytes, before.written_bytes));
                    samples.drains =
                        after.drains.zip(before.drains).map(|(after, before)| each(after, before));
                }
                if number > 0 && !single {
                    samples.us.push(lap.us);
                    samples.operations += lap.operations;
                    samples.orders += lap.orders;
                }
            }
        }
        if single {
            return Ok(found);
        }
        number += 1;
    }
}

/// Measures all rows of a plan on all sides, and compares the contents of the sides at the end.
///
/// # Errors
/// As the calls. Fails after an interrupt, if a result is wrong, and if a row covers too little.
pub fn measure(plan: &Plan, sides: Vec<SideWithWorkers>, mut control: Control<'_>) -> Result<Vec<Row>> {
    let threads = sides.first().map_or(1, |side| side.workers.len());
    let crew = Crew::new(threads);
    let tallied = |worker| TalliedWorker { worker, tallies: vec![Tally::default(); plan.rows()] };
    let run = |side: SideWithWorkers| SideRun {
        name: side.name,
        workers: side.workers.into_iter().map(tallied).collect(),
        count: side.count,
        orders: side.orders,
    };
    let mut runs: Vec<SideRun> = sides.into_iter().map(run).collect();
    let share = control.rounds.budget / u32::try_from(plan.groups.len().max(1)).unwrap_or(u32::MAX);
    let (mut results, mut first) = (Vec::new(), 0);
    for rows in &plan.groups {
        (control.progress)(&rows[0].name);
        let samples = group(&crew, &mut runs, first, rows, (&mut control, share))?;
        for (offset, (row, samples)) in rows.iter().zip(&samples).enumerate() {
            results.push(result(row, samples, &runs, first + offset)?);
        }
        first += rows.len();
    }
    (control.progress)("comparison of all contents");
    for run in &mut runs {
        for tallied in &mut run.workers {
            let mut watch = Stopwatch::new(control.stop, Tally::default(), false);
            tallied
                .worker
                .prove(&mut watch)
                .map_err(|error| error.at(format!("{}: at the end", run.name)))?;
        }
    }
    Ok(results)
}

/// Computes the figures of one row.
fn result(row: &RowPlan, samples: &[Option<Samples>], runs: &[SideRun], number: usize) -> Result<Row> {
    let first = samples.first().and_then(Option::as_ref);
    let (mut touched, mut sides) = (0, Vec::new());
    for (side, (samples, run)) in samples.iter().zip(runs).enumerate() {
        let Some(samples) = samples else {
            sides.push(None);
            continue;
        };
        let tallies = run.workers.iter().map(|tallied| &tallied.tallies[number]);
        let (mut distinct, mut compared) = (0, 0);
        let mut all: Option<Histogram<u64>> = None;
        for tally in tallies {
            let place = || format!("{}: {}", run.name, row.name);
            distinct += tally.coverage.require(&row.targets).map_err(|error| error.at(place()))?;
            compared += tally.compared;
            match (&mut all, &tally.latency) {
                (Some(all), Some(latency)) => drop(all.add(latency)),
                (None, Some(latency)) => all = Some(latency.clone()),
                (_, None) => {}
            }
        }
        touched = if side == 0 { distinct } else { touched.max(distinct) };
        let each = |count: u64| run.orders.then(|| count as f64 / samples.operations.max(1) as f64);
        let ratios: Option<Vec<f64>> = first
            .filter(|_| side > 0)
            .map(|first| samples.us.iter().zip(&first.us).map(|(other, first)| other / first).collect());
        sides.push(Some(Figures {
            us: median(&samples.us),
            quartiles_us: quartiles(&samples.us),
            ratio: ratios.as_deref().map(median),
            ratio_quartiles: ratios.as_deref().map(quartiles),
            latency: all.as_ref().filter(|all| !all.is_empty()).map(Latency::of),
            rounds: samples.us.len(),
            operations: samples.operations,
            compared,
            written_bytes: samples.written_bytes,
            drains: samples.drains,
            barriers: each(samples.orders.barriers),
            publishes: each(samples.orders.publishes),
        }));
    }
    let threads = runs.first().map_or(1, |run| run.workers.len());
    let among = row.targets.among * threads as u64;
    Ok(Row { name: row.name.clone(), threads, unit: row.targets.unit, among, touched, sides })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::coverage::Targets;
    use super::*;

    /// The names of the sides and the rows, in the order of the rounds.
    type Order = Arc<Mutex<Vec<(&'static str, usize)>>>;

    /// A side whose calls take at least `ms`.
    struct Sleeper {
        name: &'static str,
        ms: u64,
        order: Order,
    }

    impl Worker for Sleeper {
        fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
            self.order.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((self.name, row));
            let ms = self.ms;
            watch.time(2, |_| {
                std::thread::sleep(Duration::from_millis(ms));
                Ok(())
            })?;
            watch.touch(0);
            Ok(true)
        }

        fn prove(&mut self, _watch: &mut Stopwatch) -> Result<()> {
            Ok(())
        }
    }

    fn side(name: &'static str, ms: u64, order: &Order) -> SideWithWorkers {
        let worker = Sleeper { name, ms, order: Arc::clone(order) };
        let workers: Vec<Box<dyn Worker>> = vec![Box::new(worker)];
        SideWithWorkers { name: name.to_owned(), workers, count: Arc::new(|| Ok(None)), orders: false }
    }

    #[test]
    fn rounds_of_the_sides_alternate() {
        let order = Order::default();
        let row = |name: &str| RowPlan::new(name, Targets::each("calls", 1));
        let plan = Plan { groups: vec![vec![row("one"), row("two")], vec![row("three")]] };
        let sides = vec![side("first", 0, &order), side("second", 2, &order)];
        let control = Control { rounds: Rounds::exactly(2), stop: || false, progress: &mut |_| {} };
        let rows = measure(&plan, sides, control).expect("the sides do not fail");
        // A round that warms up, two counted rounds, and the round for the latency.
        let group = |rows: std::ops::Range<usize>| {
            let both = |row| [("first", row), ("second", row)];
            (0..4).flat_map(move |_| rows.clone().flat_map(both))
        };
        let expected: Vec<_> = group(0..2).chain(group(2..3)).collect();
        assert_eq!(*order.lock().expect("no thread panicked"), expected);
        for row in rows {
            let [first, second] = [0, 1].map(|side| row.sides[side].clone().expect("the row was measured"));
            assert_eq!((second.rounds, second.operations), (2, 4));
            assert!(second.us >= 2000.0 && second.ratio > Some(1.0), "{second:?}");
            assert_eq!(first.ratio, None);
        }
    }

    #[test]
    fn ratio_is_the_median_over_pairs_of_rounds() {
        let samples = |us: [f64; 3]| Some(Samples { us: us.to_vec(), operations: 3, ..Samples::default() });
        let run = |name: &str| SideRun {
            name: name.to_owned(),
            workers: Vec::new(),
            count: Arc::new(|| Ok(None)),
            orders: false,
        };
        let row = RowPlan::new("row", Targets::each("calls", 1));
        let all = [samples([1.0, 2.0, 4.0]), samples([4.0, 8.0, 2.0])];
        let row = result(&row, &all, &[run("first"), run("second")], 0).expect("the row is right");
        let second = row.sides[1].as_ref().expect("the row was measured");
        // The ratio of the medians is 2.
        assert_eq!((second.us, second.ratio), (4.0, Some(4.0)));
        assert_eq!(second.ratio_quartiles, Some([2.25, 4.0]));
    }
}
