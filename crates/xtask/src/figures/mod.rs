//! The task `figures` measures the promised figures, and reports which of them are missed.

mod disk;
mod entries;
mod figure;
mod scale;
mod speed;
mod stalls;

use std::path::PathBuf;

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
    /// The longest calls while a volume grows, compared with tmpfs
    Stalls,
    /// A volume on a disk, compared with the file system on that disk
    Disk,
}

#[derive(Debug, clap::Args)]
pub struct FiguresArgs {
    /// Measure only these groups
    #[arg(long, value_enum)]
    only: Vec<FigureGroup>,
    /// Directory on a disk, for the figures of disks
    #[arg(long, default_value = "target/figures")]
    disk: PathBuf,
    /// Directory on a tmpfs, for the groups scale, entries and stalls
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
}

/// One step of the figures of scale, in a separate process.
#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    /// The step.
    #[arg(value_enum)]
    step: scale::ScaleStep,
    /// The volume.
    volume: PathBuf,
}

/// Measures the figures and prints them. Returns an error if a figure is missed.
pub fn run(arguments: &FiguresArgs) -> Result<()> {
    let wants = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut figures = Vec::new();
    if wants(FigureGroup::Speed) {
        figures.extend(speed::measure()?);
    }
    if wants(FigureGroup::Scale) {
        figures.extend(scale::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Entries) {
        figures.extend(entries::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Stalls) {
        figures.extend(stalls::measure(&directory(&arguments.memory)?)?);
    }
    if wants(FigureGroup::Disk) {
        figures.extend(disk::measure(&directory(&arguments.disk)?)?);
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

/// Does one step of the figures of scale, in a process that [`scale::measure`] has started for this step.
pub fn child(child: &ChildArgs) -> Result<()> {
    scale::step(child.step, &child.volume)
}
