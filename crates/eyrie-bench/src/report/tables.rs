//! The tables of a report.

use super::BenchReport;
use crate::method::{Figures, Row, digits};

/// A table of text.
#[derive(Clone, Debug)]
pub struct ReportTable {
    /// The title of the table.
    pub title: String,
    /// The headings of the columns.
    pub header: Vec<String>,
    /// The rows, each with a cell for every column. The first cell is the name of a row of the report.
    pub rows: Vec<Vec<String>>,
}

/// Returns a number of bytes as text, in the unit that fits.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", digits(bytes as f64 / 1024.0)),
        0x10_0000..0x4000_0000 => format!("{} MiB", digits(bytes as f64 / 1024.0 / 1024.0)),
        _ => format!("{} GiB", digits(bytes as f64 / 1024.0 / 1024.0 / 1024.0)),
    }
}

/// Returns the name of a row, with the number of threads if there are several.
pub(super) fn name(row: &Row) -> String {
    if row.threads == 1 { row.name.clone() } else { format!("{}, {} threads", row.name, row.threads) }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "—".to_owned(), digits)
}

impl BenchReport {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.sides.iter().map(|side| &side.name[..])
    }

    /// Returns the table of times and ratios. For each side, the column `±` has half of the distance between
    /// the quartiles, in percent of the median. The column `×` has the ratio to the time of the first side.
    pub fn times(&self) -> ReportTable {
        let mut header = vec!["operation".to_owned()];
        for (at, side) in self.names().enumerate() {
            header.extend([format!("{side} µs"), "±".to_owned()]);
            if at > 0 {
                header.push("×".to_owned());
            }
        }
        header.push("touched".to_owned());
        let row = |row: &Row| {
            let mut cells = vec![name(row)];
            for (at, side) in row.sides.iter().enumerate() {
                cells.push(number(side.as_ref().map(|side| side.us)));
                let spread = side.as_ref().filter(|side| side.rounds > 1).map(|side| side.spread() * 100.0);
                cells.push(spread.map_or_else(|| "—".to_owned(), |spread| format!("{spread:.0} %")));
                if at > 0 {
                    cells.push(number(side.as_ref().and_then(|side| side.ratio)));
                }
            }
            cells.push(format!("{} {}", row.touched, row.unit));
            cells
        };
        ReportTable {
            title: "Time of one operation (median of the rounds)".to_owned(),
            header,
            rows: self.rows.iter().map(row).collect(),
        }
    }

    /// Returns the table of latencies.
    pub fn latencies(&self) -> ReportTable {
        let header = ["operation", "side", "50 %", "90 %", "99 %", "99.9 %", "slowest"];
        let mut rows = Vec::new();
        for row in &self.rows {
            for (side, figures) in self.names().zip(&row.sides) {
                let Some(latency) = figures.as_ref().and_then(|figures| figures.latency) else { continue };
                let mut cells = vec![name(row), side.to_owned()];
                let values = [latency.p50, latency.p90, latency.p99, latency.p999, latency.most];
                cells.extend(values.map(digits));
                rows.push(cells);
            }
        }
        ReportTable {
            title: "Latency in µs, with one reading of the clock in each call".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows,
        }
    }

    /// Returns the table of barriers, publishes, written bytes and drains, or `None` if no side counts them.
    pub fn media(&self) -> Option<ReportTable> {
        let header = ["operation", "side", "barriers", "publishes", "bytes written", "drains"];
        let mut rows = Vec::new();
        for row in &self.rows {
            for (side, figures) in self.names().zip(&row.sides) {
                let counts = |figures: &&Figures| figures.written_bytes.or(figures.barriers).is_some();
                let Some(figures) = figures.as_ref().filter(counts) else { continue };
                rows.push(vec![
                    name(row),
                    side.to_owned(),
                    number(figures.barriers),
                    number(figures.publishes),
                    number(figures.written_bytes),
                    number(figures.drains),
                ]);
            }
        }
        let title =
            "Work of the medium for each operation (bytes and drains: in one round and the sync after it)"
                .to_owned();
        let header = header.map(str::to_owned).to_vec();
        (!rows.is_empty()).then_some(ReportTable { title, header, rows })
    }

    /// Returns the lines about machine, sides and method.
    pub fn lines(&self) -> Vec<String> {
        let machine = &self.machine;
        let mut lines = vec![
            format!(
                "{}, {} processors, {} of memory, {}, load {:.1}",
                machine.processor,
                machine.processors,
                size(machine.memory_bytes),
                machine.kernel,
                machine.load
            ),
            format!(
                "memory: first touch {} ms/MiB ({} touched before the run), touch of memory that was just \
                 freed {} ms/MiB, copy of cold blocks of 4 KiB {} MiB/s; one reading of the clock \
                 {:.0} ns; largest memory of the process {}",
                digits(machine.first_touch_ms),
                size(machine.touched_bytes),
                digits(machine.second_touch_ms),
                digits(machine.copy_mib_s),
                machine.clock_ns,
                size(self.peak_memory_bytes)
            ),
        ];
        for side in &self.sides {
            let used = side.used_bytes.map(|bytes| format!("; {} used", size(bytes))).unwrap_or_default();
            lines.push(format!("{}: {}; {}{used}", side.name, side.place, side.durability));
        }
        lines.extend(self.skipped.iter().cloned());
        lines.extend(self.notes.iter().cloned());
        let compared: u64 =
            self.rows.iter().flat_map(|row| row.sides.iter().flatten()).map(|side| side.compared).sum();
        lines.push(format!(
            "{compared} results were compared while measuring, and all contents at the end; {:.0} s in all",
            self.seconds
        ));
        lines
    }
}
