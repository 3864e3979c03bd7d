//! The task `figures` measures the promised figures, and reports which of them are missed.

mod checksums;
mod commands;
mod deferred;
mod disk;
mod entries;
mod figure;
mod fsync;
mod mount;
mod nodes;
mod scale;
mod scans;
mod shared;
mod speed;
mod stalls;
mod threads;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use self::figure::Figure;
use crate::run::{Result, directory};

/// A group of figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FigureGroup {
    /// Single calls, measured by `eyrie tour`
    Speed,
    /// Volumes of a million files
    Scale,
    /// Calls in directories of 10 to 1,000,000 entries, compared with tmpfs
    Entries,
    /// `eyrie ls`, `find`, `du` and `rm -r` of 100,000 files, compared with the GNU commands
    Commands,
    /// Creates by 1, 2 and 4 threads in one directory, compared with a volume for each thread and with tmpfs
    Threads,
    /// Scans of stores of 10 to 1,000,000 keys, compared with tmpfs
    Scans,
    /// Calls on a volume that a service shares, compared with an embedded volume
    Shared,
    /// Changes that a client of a service logs, compared with an embedded volume
    Deferred,
    /// The longest calls while a volume grows, compared with tmpfs
    Stalls,
    /// A volume on a disk, compared with the file system on that disk
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
    /// Directory on a tmpfs, for the groups that need no disk
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

/// Measures the figures and prints them. Returns an error if a figure is missed.
pub fn run(arguments: &FiguresArgs) -> Result<()> {
    let wants = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut figures = Vec::new();
    if wants(FigureGroup::Mount) {
        mount::check_programs()?;
    }
    if wants(FigureGroup::Speed) {
        figures.extend(speed::measure()?);
    }
    if wants(FigureGroup::Scale) {
        figures.extend(scale::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Entries) {
        figures.extend(entries::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Commands) {
        figures.extend(commands::measure(&directory(&arguments.memory)?, arguments.long)?);
    }
    if wants(FigureGroup::Threads) {
        figures.extend(threads::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Scans) {
        figures.extend(scans::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Shared) {
        figures.extend(shared::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Deferred) {
        figures.extend(deferred::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Stalls) {
        figures.extend(stalls::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Disk) {
        figures.extend(disk::measure(&directory(&arguments.disk)?)?);
    }
    if wants(FigureGroup::Checksums) {
        figures.extend(checksums::measure(&directory(&arguments.disk)?)?);
    }
    if wants(FigureGroup::Fsync) {
        figures.extend(fsync::measure(&directory(&arguments.disk)?)?);
    }
    if wants(FigureGroup::Nodes) {
        figures.extend(nodes::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Mount) {
        figures.extend(mount::measure(&directory(&arguments.memory)?)?);
    }
    let widest = |cell: fn(&Figure) -> &str| figures.iter().map(|figure| cell(figure).chars().count()).max();
    let (name, wanted) = (widest(|figure| &figure.name), widest(|figure| &figure.wanted));
    let (name, wanted) = (name.unwrap_or(0), wanted.unwrap_or(0));
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
