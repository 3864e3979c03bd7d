//! Figures from `eyrie bench shared`: processes that change a served volume at the same time, and the time in
//! which a process takes the grant of an object from another process.

use std::path::Path;

use super::bench::Report;
use super::figure::Figure;
use crate::run::Result;

/// Look-ups of a file that another process has logged, and the wanted times in µs.
const LOOK_UPS: [(&str, f64); 3] = [
    ("stat of a file that a client has logged", 100.0),
    ("stat of a file that a stopped client has logged", 10_000.0),
    ("stat of a file that a killed client has logged", 10_000.0),
];

/// Measures volumes below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    let report = Report::of_shared(memory, "clients,grants", "served,confined,tmpfs")?;
    let one = report.us("change names, one client", "confined")?;
    let apart = report.us("change names, two clients apart", "served")?;
    let together = "change names, two clients in a directory";
    let (ours, host) = (report.us(together, "served")?, report.us(together, "tmpfs")?);
    let name =
        "two processes in separate directories, relative to one that has one processor with its service";
    let mut figures = vec![
        Figure::at_least(name, 1.8, one / apart, " ×"),
        Figure::at_least("two processes in one directory", 1.0, host / ours, " × tmpfs"),
    ];
    for (row, wanted) in LOOK_UPS {
        figures.push(Figure::at_most(row, wanted, report.times(row, "served")?, " µs"));
    }
    Ok(figures)
}
