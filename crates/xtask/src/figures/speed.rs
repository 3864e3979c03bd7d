//! Measures single calls: compares the rows of `eyrie tour` with the promised values.

use std::process::Command;

use serde_json::Value;

use super::figure::Figure;
use crate::run::{Result, output};

/// Duration of the tour, in seconds.
const SECONDS: &str = "25";

/// Each operation of the tour on files. The first number is the promised ratio of the time on tmpfs to the
/// time on Eyrie, with few files. The second number is the promised ratio with many files, if there is a
/// promise.
const RATIOS: [(&str, f64, Option<f64>); 10] = [
    ("open + close", 5.0, Some(5.0)),
    ("stat", 4.5, None),
    ("read 4 KiB", 1.1, None),
    ("read 4 KiB, sequential", 2.25, None),
    ("overwrite 4 KiB", 1.25, None),
    ("write 4 KiB + fsync", 1.75, None),
    ("append 4 KiB", 2.5, None),
    ("create + write 4 KiB", 4.0, Some(4.0)),
    ("unlink", 6.0, Some(6.0)),
    ("rename", 5.0, Some(5.0)),
];

/// Each operation of the tour on keys. The numbers are the promised rates in millions a second, first with
/// few keys and then with many.
const RATES: [(&str, f64, Option<f64>); 4] = [
    ("get 4 KiB", 2.0, Some(0.6)),
    ("get in place", 5.0, Some(1.5)),
    ("put 4 KiB", 0.6, Some(0.5)),
    ("erase", 1.25, None),
];

/// Runs `eyrie tour`, and compares its rows with the promises.
pub fn measure() -> Result<Vec<Figure>> {
    let mut tour = Command::new(env!("CARGO"));
    tour.args(["run", "--release", "--quiet", "--package", "eyriefs-cli", "--"]);
    let printed = output(tour.args(["tour", "--json", "--remove", "--seconds", SECONDS]))?;
    let tour: Value = serde_json::from_str(&printed)?;
    let rows = tour["measurements"].as_array().ok_or("the tour measured nothing")?;
    let find = |operation: &str, many: bool| {
        let of = |row: &&Value| row["operation"] == operation && row["many"] == many;
        rows.iter().find(of).ok_or_else(|| format!("the tour has no row {operation}, many: {many}"))
    };
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap_or(f64::NAN);
    let mut figures = Vec::new();
    for (operation, few, many) in RATIOS {
        for (many, wanted) in [(false, Some(few)), (true, many)] {
            let Some(wanted) = wanted else { continue };
            let ratio = number(find(operation, many)?, "ratio");
            figures.push(Figure::at_least(name(operation, many), wanted, ratio, " × tmpfs"));
        }
    }
    for (operation, few, many) in RATES {
        for (many, wanted) in [(false, Some(few)), (true, many)] {
            let Some(wanted) = wanted else { continue };
            let rate = 1.0 / number(find(operation, many)?, "eyrie_us");
            figures.push(Figure::at_least(name(operation, many), wanted, rate, " M/s"));
        }
    }
    Ok(figures)
}

fn name(operation: &str, many: bool) -> String {
    if many { format!("{operation}, of 100,000") } else { operation.to_string() }
}
