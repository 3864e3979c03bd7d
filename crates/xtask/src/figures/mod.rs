//! The task `figures` measures the promised figures, and reports which of them are missed.

mod bench;
mod checksums;
mod commands;
mod deferred;
mod disk;
mod entries;
mod figure;
mod files;
mod fsync;
mod mount;
mod nodes;
mod scale;
mod scans;
mod shared;
mod stalls;
mod threads;
mod together;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use self::figure::Figure;
use crate::run::{Result, directory};

/// A group of figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FigureGroup {
    /// Single calls on files, compared with tmpfs by `eyrie bench micro`
    Speed,
    /// Calls on keys, compared with LMDB by `eyrie bench kv`
    Keys,
    /// Application profiles, compared with tmpfs by `eyrie bench profile`
    Profiles,
    /// Volumes of a million files
    Scale,
    /// Calls in directories of 10 to 1,000,000 entries, compared with tmpfs
    Entries,
    /// `eyrie ls`, `find`, `du` and `rm -r` of 100,000 files, compared with the GNU commands
    Commands,
    /// Changes by 1, 2 and 4 threads in one directory, compared with a volume for each thread and with tmpfs
    Threads,
    /// Reads and writes by two threads on separate files, compared with copies of memory
    Files,
    /// Scans of stores of 10 to 1,000,000 keys, compared with tmpfs
    Scans,
    /// Reads, and changes without deferral, of a client of a service, compared with an embedded volume by
    /// `eyrie bench shared`; also the start of a client, and a service that sleeps
    Shared,
    /// Changes that a client of a service logs, compared with an embedded volume by `eyrie bench shared`
    Deferred,
    /// Several processes that change a served volume at the same time, by `eyrie bench shared`
    Together,
    /// The longest calls while a volume grows, compared with tmpfs
    Stalls,
    /// A volume on a disk, compared with the file system on that disk; also durable puts, compared with lmdb,
    /// redb, fjall and sqlite
    Disk,
    /// A volume on a disk with checksums of its pages, compared with one without
    Checksums,
    /// `fsync` of one file beside a writer of other files, on a disk
    Fsync,
    /// Memory of a million held nodes, as a mount holds them
    Nodes,
    /// Programs on a mounted volume, compared with libfuse's `passthrough_ll` and with tmpfs; needs root
    Mount,
}

#[derive(Debug, clap::Args)]
pub struct FiguresArgs {
    /// Measure only these groups
    #[arg(long, value_enum)]
    only: Vec<FigureGroup>,
    /// Directory on a disk, for the figures of disks
    #[arg(long, default_value = "target/figures")]
    disk: PathBuf,
    /// Directory on a tmpfs, for the groups that need no disk; speed, keys and profiles use /dev/shm
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// Also measure commands on 1,000,000 files
    #[arg(long)]
    long: bool,
}

/// A step of a measurement that runs in a process of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChildStep {
    /// Makes a volume with the files in many directories, and closes it.
    FillMany,
    /// Makes a volume with the files in one directory, and closes it.
    FillOne,
    /// Opens the volume, and ends the process without closing the volume.
    Open,
    /// Reads a file of a served volume.
    ReadServed,
    /// Reads private memory.
    CopyMemory,
}

/// One step of a measurement, in a separate process.
#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    /// The step.
    #[arg(value_enum)]
    step: ChildStep,
    /// The volume.
    volume: PathBuf,
}

/// Runs `measure` with the path of a directory below `memory` that does not exist yet, and removes that
/// directory afterwards.
fn in_scratch<T>(memory: &Path, name: &str, measure: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let path = memory.join(format!("eyrie-{name}-{}", std::process::id()));
    let done = measure(&path);
    // If the removal fails, the directory stays. Its name has the process id, so it disturbs no other run.
    let _ = std::fs::remove_dir_all(&path);
    done
}

impl FigureGroup {
    fn measure(self, arguments: &FiguresArgs) -> Result<Vec<Figure>> {
        let memory = || directory(&arguments.memory);
        let disk = || directory(&arguments.disk);
        match self {
            FigureGroup::Speed => bench::calls(),
            FigureGroup::Keys => bench::keys(),
            FigureGroup::Profiles => bench::profiles(),
            FigureGroup::Scale => scale::measure(&memory()?),
            FigureGroup::Entries => entries::measure(&memory()?),
            FigureGroup::Commands => commands::measure(&memory()?, arguments.long),
            FigureGroup::Threads => threads::measure(&memory()?),
            FigureGroup::Files => files::measure(&memory()?),
            FigureGroup::Scans => scans::measure(&memory()?),
            FigureGroup::Shared => shared::measure(&memory()?),
            FigureGroup::Deferred => deferred::measure(&memory()?),
            FigureGroup::Together => together::measure(&memory()?),
            FigureGroup::Stalls => stalls::measure(&memory()?),
            FigureGroup::Disk => {
                let disk = disk()?;
                Ok([disk::measure(&disk)?, bench::durable_puts(&disk)?].concat())
            }
            FigureGroup::Checksums => checksums::measure(&disk()?),
            FigureGroup::Fsync => fsync::measure(&disk()?),
            FigureGroup::Nodes => nodes::measure(&memory()?),
            FigureGroup::Mount => mount::measure(&memory()?),
        }
    }
}

/// Measures the figures and prints them. Returns an error if a figure is missed.
pub fn run(arguments: &FiguresArgs) -> Result<()> {
    let wants = |group: &&FigureGroup| arguments.only.is_empty() || arguments.only.contains(group);
    let groups: Vec<_> = FigureGroup::value_variants().iter().filter(wants).collect();
    if groups.contains(&&FigureGroup::Mount) {
        mount::check_programs()?;
    }
    let mut figures = Vec::new();
    for group in groups {
        figures.extend(group.measure(arguments)?);
    }
    let widest = |cell: fn(&Figure) -> &str| figures.iter().map(|figure| cell(figure).chars().count()).max();
    let (name, wanted) = (widest(|figure| &figure.name), widest(|figure| &figure.wanted));
    let (name, wanted) = (name.unwrap_or(0), wanted.unwrap_or(0));
    println!("the figure, its limit, and its median (with the quartiles of the rounds)");
    for figure in &figures {
        let verdict = if figure.met { "" } else { "  MISSED" };
        println!("{:name$}  {:>wanted$}  {}{verdict}", figure.name, figure.wanted, figure.measured);
    }
    match figures.iter().filter(|figure| !figure.met).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} of {} figures missed", figures.len()).into()),
    }
}

/// Does one step, in a process that a measurement has started for this step.
pub fn child(child: &ChildArgs) -> Result<()> {
    match child.step {
        ChildStep::FillMany => scale::fill_many(&child.volume),
        ChildStep::FillOne => scale::fill_one(&child.volume),
        ChildStep::Open => scale::open(&child.volume),
        step @ (ChildStep::ReadServed | ChildStep::CopyMemory) => shared::read(step, &child.volume),
    }
}
