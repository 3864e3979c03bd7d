//! Measures every figure that is promised, and says which are missed.

mod disk;
mod entries;
mod scale;
mod speed;
mod stalls;

use std::fmt::Display;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::run::{Result, directory};

/// A group of figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// Single calls against tmpfs, with `eyrie tour`
    Speed,
    /// A million files
    Scale,
    /// Calls in directories of 10 to 1,000,000 entries against tmpfs
    Entries,
    /// The longest calls while a volume grows against tmpfs
    Stalls,
    /// A volume on a disk against the disk's own file system
    Disk,
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Directory on a disk, for what is measured there
    #[arg(long, default_value = "target/figures")]
    disk: PathBuf,
    /// Directory in memory, for what is measured there
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
}

/// One step of the scale figures, in a process of its own.
#[derive(Debug, clap::Args)]
pub struct Child {
    /// What to do.
    #[arg(value_enum)]
    step: scale::Step,
    /// The volume.
    volume: PathBuf,
}

/// What was measured, beside what is wanted.
#[derive(Debug)]
pub struct Figure {
    name: String,
    wanted: String,
    measured: String,
    met: bool,
}

impl Figure {
    /// A figure that should be at least `wanted`.
    pub fn at_least(name: impl Display, wanted: f64, measured: f64, unit: &str) -> Figure {
        Figure {
            name: name.to_string(),
            wanted: format!("≥ {wanted}"),
            measured: format!("{measured:.2}{unit}"),
            met: measured >= wanted,
        }
    }

    /// A figure that should be at most `wanted`.
    pub fn at_most(name: impl Display, wanted: f64, measured: f64, unit: &str) -> Figure {
        Figure {
            name: name.to_string(),
            wanted: format!("≤ {wanted}"),
            measured: format!("{measured:.2}{unit}"),
            met: measured <= wanted,
        }
    }
}

/// The median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Measures, prints, and fails if a figure is missed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let wants = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut figures = Vec::new();
    if wants(Part::Speed) {
        figures.extend(speed::measure()?);
    }
    if wants(Part::Scale) {
        figures.extend(scale::measure(&directory(&arguments.memory)?)?);
    }
    if wants(Part::Entries) {
        figures.extend(entries::measure(&directory(&arguments.memory)?)?);
    }
    if wants(Part::Stalls) {
        figures.extend(stalls::measure(&directory(&arguments.memory)?)?);
    }
    if wants(Part::Disk) {
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

/// Does one step of a measurement, for the process that started this one.
pub fn child(child: &Child) -> Result<()> {
    scale::step(child.step, &child.volume)
}
