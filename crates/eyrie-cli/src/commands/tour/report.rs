//! The results of the measurements, as text and as JSON.

use std::io::Write;

use comfy_table::Table;
use eyrie_bench::method::{Row, digits, median};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::output::{Output, table};
use crate::text;

/// Returns the times of a row on the volume and on the host, in µs, and their ratio. The host lacks reads of
/// values in place.
fn figures(row: &Row) -> (Option<f64>, Option<f64>, Option<f64>) {
    let of = |side: usize| row.sides.get(side).and_then(Option::as_ref);
    (of(0).map(|side| side.us), of(1).map(|side| side.us), of(1).and_then(|side| side.ratio))
}

/// Returns the table of speeds.
fn speeds(rows: &[Row], host: &str) -> Table {
    let on_host = format!("{host} µs");
    let mut speeds = table(&["Operation", "Eyrie µs", &on_host, "ratio", "touched"], &[1, 2, 3, 4]);
    let number = |value: Option<f64>| value.map_or_else(|| "—".to_owned(), digits);
    for row in rows {
        let (eyrie, host, ratio) = figures(row);
        speeds.add_row([
            row.name.clone(),
            number(eyrie),
            number(host),
            ratio.map_or_else(|| "—".to_owned(), |ratio| format!("{ratio:.1}×")),
            format!("{} {}", text::count(row.touched), row.unit),
        ]);
    }
    speeds
}

/// Prints the table, and a sentence with the range and the median of the ratios of rows with several rounds.
pub fn print(rows: &[Row], host: &str, output: &mut Output) -> Result<()> {
    writeln!(output)?;
    output.heading("Speed: median time of one operation, one thread, Eyrie and host in alternation")?;
    writeln!(output, "(touched: different blocks of 4 KiB, MiB, files or keys)")?;
    output.table(&speeds(rows, host))?;
    // A single round is too uncertain to be the least or the greatest ratio.
    let has_rounds = |row: &&Row| row.sides.iter().flatten().all(|side| side.rounds > 1);
    let ratios: Vec<f64> = rows.iter().filter(has_rounds).filter_map(|row| figures(row).2).collect();
    if ratios.is_empty() {
        return Ok(());
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    writeln!(
        output,
        "\nIn the rows with several rounds, Eyrie was {least:.1} to {most:.1} times as fast as {host}; the \
         median is {:.1}.",
        median(&ratios)
    )?;
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
