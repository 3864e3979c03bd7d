//! The report of a run: its data, its tables, and a page for a browser.

mod chart;
mod html;
mod tables;

use serde::Serialize;

use crate::machine::Machine;
use crate::method::Row;
use crate::side::SideInformation;

pub use tables::ReportTable;

/// The result of a run. Its JSON has the fields with these names.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// The name of the workload.
    pub title: String,
    /// The command that made the report.
    pub command: String,
    /// The version of Eyrie.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Notes about the workload, such as its parameters.
    pub notes: Vec<String>,
    /// The sides. The first one is Eyrie.
    pub sides: Vec<SideInformation>,
    /// A line for each side that was left out, with the reason.
    pub skipped: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Largest memory of this process during its life, in bytes. Mapped volumes count.
    pub peak_memory_bytes: u64,
    /// Time of the whole run, in seconds.
    pub seconds: f64,
}

impl BenchReport {
    /// Returns the report as a page for a browser, which needs no other file.
    pub fn html(&self) -> String {
        html::page(self)
    }
}
