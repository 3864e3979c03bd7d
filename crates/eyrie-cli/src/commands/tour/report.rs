//! The results of the measurements, as text and as JSON.

use std::io::Write;

use comfy_table::Table;
use serde_json::{Value, json};

use super::measure::Measurement;
use super::operation::Scale;
use crate::failure::Result;
use crate::output::{Output, table};
use crate::text;

/// Returns the name of the operation, and at [`Scale::Many`] the number of names.
fn name(measured: &Measurement) -> String {
    let operation = measured.row.operation.name();
    match measured.row.scale {
        Scale::Few => operation.to_owned(),
        Scale::Many => format!("{operation}, of {}", text::count(u64::from(measured.among))),
    }
}

/// Returns the table of speeds.
fn speeds(measurements: &[Measurement], host: &str) -> Table {
    let on_host = format!("{host} µs");
    let mut rows = table(&["Operation", "Eyrie µs", &on_host, "ratio", "touched"], &[1, 2, 3, 4]);
    for measured in measurements {
        rows.add_row([
            name(measured),
            format!("{:.3}", measured.eyrie_us),
            measured.host_us.map_or_else(|| "—".to_owned(), |host| format!("{host:.3}")),
            measured.ratio().map_or_else(|| "—".to_owned(), |ratio| format!("{ratio:.1}×")),
            text::count(u64::from(measured.touched)),
        ]);
    }
    rows
}

/// Prints the table, and a sentence with the range and the median of the ratios.
pub fn print(measurements: &[Measurement], host: &str, output: &mut Output) -> Result<()> {
    writeln!(output)?;
    output.heading("Speed: median time of one operation, one thread, Eyrie and host in alternation")?;
    writeln!(output, "(touched: different blocks of 4 KiB, files or keys)")?;
    output.table(&speeds(measurements, host))?;
    // With an even number of ratios, the upper of the two middle ratios is taken as the median.
    let mut ratios: Vec<f64> = measurements.iter().filter_map(Measurement::ratio).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
        let middle = ratios[ratios.len() / 2];
        writeln!(
            output,
            "\nIn this run Eyrie was {least:.1} to {most:.1} times as fast as {host}; \
             the median is {middle:.1}."
        )?;
    }
    Ok(())
}

/// Returns the measurements as JSON.
pub fn json(measurements: &[Measurement]) -> Value {
    measurements
        .iter()
        .map(|measured| {
            json!({
                "operation": measured.row.operation.name(),
                "many": measured.row.scale == Scale::Many,
                "among": measured.among,
                "touched": measured.touched,
                "eyrie_us": measured.eyrie_us,
                "host_us": measured.host_us,
                "ratio": measured.ratio(),
                "rounds": measured.rounds,
            })
        })
        .collect()
}
