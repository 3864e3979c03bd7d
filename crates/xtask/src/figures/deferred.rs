//! Figures from `eyrie bench shared`: changes that a client of a service logs, compared with an embedded
//! volume.

use std::path::Path;

use super::bench::Report;
use super::figure::Figure;
use crate::run::Result;

/// The changes of `eyrie bench shared`, and the wanted ratio of sustained changes to an embedded volume.
const CHANGES: [(&str, f64); 9] = [
    ("create + close", 1.5),
    ("rename", 1.5),
    ("unlink", 1.5),
    ("put a new key, 100 B", 1.5),
    ("erase", 1.5),
    ("append 4 KiB", 2.0),
    ("overwrite 4 KiB", 2.0),
    ("replace a value, 4 KiB", 2.0),
    ("replace a value, 100 B", 1.5),
];
/// The wanted ratios of bursts, and of sustained changes on one processor with the service.
const BURST: f64 = 1.0;
const CONFINED: f64 = 2.5;

/// Measures volumes below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    let report = Report::of_shared(memory, "changes", "served,confined")?;
    let mut figures = Vec::new();
    for (change, wanted) in CHANGES {
        let (burst, sustained) = (format!("{change}, burst"), format!("{change}, sustained"));
        figures.push(report.at_most(&burst, "served", BURST)?);
        figures.push(report.at_most(&sustained, "served", wanted)?);
        let confined = report.at_most(&sustained, "confined", CONFINED)?;
        figures.push(Figure { name: format!("{sustained}, one processor"), ..confined });
    }
    Ok(figures)
}
