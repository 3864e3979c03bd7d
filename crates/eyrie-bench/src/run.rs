//! A whole run: the sides, the workload, the report.

use std::time::Instant;

use crate::error::{Error, Result};
use crate::machine::{self, Machine};
use crate::method::{Control, FileWork, Plan, Rounds, Row, SideWithWorkers, ThreadPart, measure};
use crate::report::BenchReport;
use crate::side::{RunSides, Side, SideRequest};

/// A workload with its name and its rows.
pub trait Workload {
    /// Returns the title of the report.
    fn title(&self) -> String;

    /// Returns notes for readers of the report, such as the parameters.
    fn notes(&self) -> Vec<String>;

    /// Returns the bytes that one side needs at most in a run with this number of threads.
    fn bytes(&self, threads: u64) -> u64;

    /// Returns the largest number of threads that the work allows. Each thread needs a part of the work, and
    /// its files need names of their own.
    fn most_threads(&self) -> u64 {
        u64::MAX
    }

    /// Returns true if the workload uses keys, and false if it uses files.
    fn uses_keys(&self) -> bool {
        false
    }

    /// Returns the rows of a run with this number of threads.
    fn plan(&self, threads: u64) -> Plan;

    /// Makes the workers of one side.
    ///
    /// # Errors
    /// Fails if a call that prepares the side fails.
    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn crate::method::Worker>>>;
}

/// Makes the workers of one side for a workload on files.
pub(crate) fn file_workers(
    work: &impl FileWork,
    side: &Side,
    parts: &[ThreadPart],
) -> Result<Vec<Box<dyn crate::method::Worker>>> {
    parts.iter().map(|&part| side.file_worker(work, part)).collect()
}

/// The parts of a run that do not depend on its workload.
pub struct Setting<'a> {
    /// The sides. The run fills in the fields that depend on the workload.
    pub request: SideRequest,
    /// The numbers of threads. Each of them gets a run with new sides.
    pub threads: Vec<usize>,
    /// True if all threads use one directory, file or store.
    pub shared: bool,
    /// The rounds of each row.
    pub rounds: Rounds,
    /// The command line, for the report.
    pub command: String,
    /// Returns true after an interrupt.
    pub stop: fn() -> bool,
    /// Gets the number of finished groups of rows, the number of all groups, and the name of the next work,
    /// such as the first row of a group.
    pub progress: &'a mut dyn FnMut(usize, usize, &str),
}

/// Runs a workload on all sides.
///
/// # Errors
/// Fails if a call fails, if a number of threads is below 1 or above [`Workload::most_threads`], after an
/// interrupt, if a result is wrong, or if a row touches too few different blocks, files or keys. Even then,
/// nothing of the run stays on the host.
pub fn run(workload: &dyn Workload, mut setting: Setting<'_>) -> Result<BenchReport> {
    let started = Instant::now();
    if setting.threads.is_empty() || setting.threads.contains(&0) {
        return Err(Error::Request("the number of threads must be 1 or more".to_owned()));
    }
    let threads = setting.threads.iter().copied().max().unwrap_or(1) as u64;
    let most = workload.most_threads();
    if threads > most {
        let text = format!("{threads} threads are too many for this work: use at most {most}");
        return Err(Error::Request(text));
    }
    setting.request.bytes = workload.bytes(threads);
    setting.request.keys = workload.uses_keys();
    (setting.progress)(0, 0, "provide memory");
    let needed = setting.request.bytes.saturating_mul(setting.request.side_count());
    let machine = Machine::prepare(needed);
    let groups: usize =
        setting.threads.iter().map(|&threads| workload.plan(threads as u64).groups.len()).sum();
    let (mut rows, mut sides, mut skipped, mut done) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for &threads in &setting.threads {
        let mut run_sides = RunSides::new(&setting.request, setting.stop)?;
        let progress = &mut setting.progress;
        let mut next = |name: &str| {
            progress(done, groups, name);
            done += 1;
        };
        let control = Control { rounds: setting.rounds, stop: setting.stop, progress: &mut next };
        let measured = measure_on(workload, &run_sides.sides, (threads, setting.shared), control);
        // `measure_on` has also reported the final comparison, which is not a group of rows.
        done = done.saturating_sub(1);
        rows.extend(measured?);
        run_sides.note_used_bytes();
        sides = run_sides.sides.iter().map(|side| side.information.clone()).collect();
        skipped = std::mem::take(&mut run_sides.skipped);
    }
    Ok(BenchReport {
        title: workload.title(),
        command: setting.command,
        version: env!("CARGO_PKG_VERSION"),
        machine,
        notes: workload.notes(),
        sides,
        skipped,
        rows,
        peak_memory_bytes: machine::peak_memory_bytes(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Measures a workload on sides that exist. The sides keep its files.
///
/// # Errors
/// As [`run`].
pub fn measure_on(
    workload: &dyn Workload,
    sides: &[Side],
    (threads, shared): (usize, bool),
    control: Control<'_>,
) -> Result<Vec<Row>> {
    let threads = threads as u64;
    let parts: Vec<ThreadPart> = (0..threads).map(|thread| ThreadPart { thread, threads, shared }).collect();
    let with_workers = |side: &Side| -> Result<SideWithWorkers> {
        let workers = workload.workers(side, &parts);
        Ok(side.with_workers(workers.map_err(|error| error.at(&side.information.name[..]))?))
    };
    let sides = sides.iter().map(with_workers).collect::<Result<Vec<_>>>()?;
    measure(&workload.plan(threads), sides, control)
}
