//! The results of the measurements, as text and as JSON.

use std::io::Write;

use comfy_table::Table;
use eyrie_bench::method::{Row, digits, median};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::output::{Output, table};
use crate::text;

/// Columns of a terminal that has room for all columns of the table.
const WIDE: usize = 100;

/// Returns the times of a row on the volume and on the host, in µs, and their ratio. The host cannot read
/// values in place, so a row of such reads has only the time on the volume.
fn figures(row: &Row) -> (Option<f64>, Option<f64>, Option<f64>) {
    let of = |side: usize| row.sides.get(side).and_then(Option::as_ref);
    (of(0).map(|side| side.us), of(1).map(|side| side.us), of(1).and_then(|side| side.ratio))
}

/// Returns the table of speeds. With `touched` it has the numbers of touched targets.
fn speeds(rows: &[Row], host: &str, touched: bool) -> Table {
    let on_host = format!("{host} µs");
    let columns = if touched { 5 } else { 4 };
    let header = ["Operation", "Eyrie µs", &on_host, "ratio", "touched"];
    let mut speeds = table(&header[..columns], &[1, 2, 3, 4]);
    let number = |value: Option<f64>| value.map_or_else(|| "—".to_owned(), digits);
    for row in rows {
        let (eyrie, host, ratio) = figures(row);
        let cells = [
            row.name.replace("load, 1,000 in a transaction, each", "load, 1,000 in a batch"),
            number(eyrie),
            number(host),
            ratio.map_or_else(|| "—".to_owned(), |ratio| format!("{ratio:.1}×")),
            format!("{} {}", text::count(row.touched), row.unit),
        ];
        speeds.add_row(cells.into_iter().take(columns));
    }
    speeds
}

/// Prints the table, and a sentence with the range and the median of the ratios of rows with several rounds.
/// In a narrow terminal the table lacks the touched targets.
pub fn print(rows: &[Row], host: &str, output: &mut Output) -> Result<()> {
    writeln!(output)?;
    output.heading("Speed: median time of one operation, one thread, Eyrie and host in alternation")?;
    let touched = output.columns().is_none_or(|columns| columns >= WIDE);
    if touched {
        writeln!(output, "(touched: different blocks of 4 KiB, MiB, files or keys)")?;
    }
    output.table(&speeds(rows, host, touched))?;
    // The ratio of a single round is too uncertain to be the least or the greatest one.
    let has_rounds = |row: &&Row| row.sides.iter().flatten().all(|side| side.rounds > 1);
    let ratios: Vec<f64> = rows.iter().filter(has_rounds).filter_map(|row| figures(row).2).collect();
    if ratios.is_empty() {
        return Ok(());
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let range =
        format!("{least:.1} to {most:.1} times as fast as {host}; the median is {:.1}", median(&ratios));
    writeln!(output)?;
    output.wrapped(&format!("In the rows with several rounds, Eyrie was {range}."), 0)?;
    Ok(())
}

/// Returns the measurements as JSON.
pub fn json(rows: &[Row]) -> Value {
    let value = |row: &Row| {
        let (eyrie, host, ratio) = figures(row);
        json!({
            "operation": row.name,
            "unit": row.unit,
            "among": row.among,
            "touched": row.touched,
            "eyrie_us": eyrie,
            "host_us": host,
            "ratio": ratio,
            "rounds": row.sides.first().and_then(Option::as_ref).map(|side| side.rounds),
        })
    };
    rows.iter().map(value).collect()
}
