//! Figures from `eyrie bench`: single calls against tmpfs, keys against LMDB, and application profiles. The
//! limits are the figures that the project has as its goals. A run fails if one of them is missed. `shared`,
//! `deferred` and `together` have the figures of `eyrie bench shared`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::figure::{Figure, Measured};
use crate::run::{Result, output};

/// Rows of `eyrie bench micro`, and the wanted ratios to tmpfs.
const CALLS: [(&str, f64); 21] = [
    ("open + close", 10.0),
    ("stat", 9.0),
    ("read 4 KiB", 2.2),
    ("read 4 KiB, sequential", 4.5),
    ("read 4 KiB, sequential, after random overwrites", 3.5),
    ("overwrite 4 KiB", 2.5),
    ("write 4 KiB + fsync", 3.5),
    ("append 4 KiB", 5.0),
    ("read 1 MiB", 1.7),
    ("overwrite 1 MiB", 3.5),
    ("first write of a file, 1 MiB", 1.0),
    ("first create + write 4 KiB", 1.0),
    ("create + write 4 KiB", 8.0),
    ("unlink", 12.0),
    ("rename", 10.0),
    ("mkdir", 6.0),
    ("rmdir", 6.0),
    ("listing, each name", 2.0),
    ("symlink", 6.0),
    ("readlink", 6.0),
    ("truncate", 6.0),
];

/// Rows that `eyrie bench micro` also measures in a directory of many files. The limits are the same, because
/// the cost must not grow with the directory.
const IN_MANY: [&str; 9] = [
    "open + close",
    "stat",
    "first create + write 4 KiB",
    "create + write 4 KiB",
    "unlink",
    "rename",
    "mkdir",
    "rmdir",
    "listing, each name",
];

/// Sizes of the stores of `eyrie bench kv`. In the largest one, values have 100 bytes instead of 4 KiB.
const STORES: [&str; 3] = ["1,000", "100,000", "1,000,000"];

/// Rows of `eyrie bench kv`, and the wanted ratios to LMDB: in the largest store, and in the others.
const KEYS: [(&str, f64, f64); 7] = [
    ("get", 1.5, 2.0),
    ("get in place", 1.5, 4.0),
    ("put", 10.0, 10.0),
    ("erase", 10.0, 10.0),
    ("load, 1,000 in a transaction, each", 1.0, 1.0),
    ("scan with values, each", 1.0, 1.0),
    ("scan in order, each", 0.7, 0.7),
];
const PUT: &str = "put";
const BATCH: &str = "100 puts in a transaction, each";
/// The stores with which a durable put on a disk is compared, and the wanted ratio.
const STORES_ON_DISK: [&str; 4] = ["lmdb", "redb", "fjall", "sqlite"];
const DURABLE_PUT: f64 = 2.0;

/// The profiles, and the wanted ratios to tmpfs.
const PROFILES: [(&str, f64); 4] =
    [("fileserver", 2.0), ("webserver", 3.0), ("webproxy", 3.0), ("varmail", 3.0)];

/// A report of `eyrie bench`.
pub(super) struct Report(Value);

impl Report {
    /// Runs `eyrie bench` with these arguments.
    fn of(arguments: &[&str]) -> Result<Report> {
        let mut bench = Command::new(env!("CARGO"));
        bench.args(["run", "--release", "--quiet", "--package", "eyriefs-cli", "--features", "peers"]);
        let printed = output(bench.args(["--", "bench"]).args(arguments).arg("--json"))?;
        Ok(Report(serde_json::from_str(&printed)?))
    }

    /// Runs parts of `eyrie bench shared` on these sides, in the directory `memory`.
    pub fn of_shared(memory: &Path, parts: &str, sides: &str) -> Result<Report> {
        let memory = memory.to_str().ok_or("the path of the directory is no text")?;
        Report::of(&["shared", "--only", parts, "--against", sides, "--rounds", "15", "--dir", memory])
    }

    /// Returns the figures of a side in a row.
    fn cell(&self, row: &str, side: &str) -> Result<&Value> {
        let place =
            |list: &str, name: &str| self.0[list].as_array()?.iter().position(|one| one["name"] == name);
        match (place("rows", row), place("sides", side)) {
            (Some(row), Some(side)) => Ok(&self.0["rows"][row]["sides"][side]),
            _ => Err(format!("`eyrie bench` has no {row} of {side}: {}", self.0["skipped"]).into()),
        }
    }

    /// Returns the time of an operation on a side, in µs.
    pub fn us(&self, row: &str, side: &str) -> Result<f64> {
        Ok(self.times(row, side)?.median)
    }

    /// Returns the time of an operation on a side in µs, with the quartiles of the rounds.
    pub fn times(&self, row: &str, side: &str) -> Result<Measured> {
        let cell = self.cell(row, side)?;
        let median = cell["us"].as_f64().ok_or_else(|| format!("{row} has no time on {side}"))?;
        Ok(Measured { median, quartiles: Some(numbers(&cell["quartiles_us"])) })
    }

    /// Returns the ratio of the time of `side` to the time of Eyrie. The ratio is computed for each round,
    /// and the result has the median and the quartiles.
    fn ratio_of(&self, row: &str, side: &str) -> Result<Measured> {
        let cell = self.cell(row, side)?;
        let median = cell["ratio"].as_f64().ok_or_else(|| format!("{row} has no ratio of {side}"))?;
        Ok(Measured { median, quartiles: Some(numbers(&cell["ratio_quartiles"])) })
    }

    /// Makes a figure from the ratio of the time of `side` to the time of an embedded volume, which should be
    /// at most `wanted`.
    pub fn at_most(&self, row: &str, side: &str, wanted: f64) -> Result<Figure> {
        let us = self.us(row, "eyrie")?;
        let name = format!("{row} ({us:.2} µs embedded)");
        Ok(Figure::at_most(name, wanted, self.ratio_of(row, side)?, " × embedded"))
    }

    /// Makes a figure from the ratio of the time of `side` to the time of Eyrie, which should be at least
    /// `wanted`.
    fn ratio(&self, row: &str, side: &str, wanted: f64) -> Result<Figure> {
        Ok(Figure::at_least(row, wanted, self.ratio_of(row, side)?, &format!(" × {side}")))
    }
}

/// Returns the two numbers of a list.
fn numbers(list: &Value) -> [f64; 2] {
    [0, 1].map(|at| list[at].as_f64().unwrap_or(f64::NAN))
}

fn in_many(row: &str) -> String {
    format!("{row}, of 100,000")
}

/// Measures single calls on files.
pub fn calls() -> Result<Vec<Figure>> {
    let report = Report::of(&["micro", "--against", "tmpfs"])?;
    let few = CALLS.iter().map(|&(row, wanted)| report.ratio(row, "tmpfs", wanted));
    let is_many = |(row, _): &&(&str, f64)| IN_MANY.contains(row);
    let many = CALLS.iter().filter(is_many);
    few.chain(many.map(|&(row, wanted)| report.ratio(&in_many(row), "tmpfs", wanted))).collect()
}

/// Measures calls on keys.
pub fn keys() -> Result<Vec<Figure>> {
    let report = Report::of(&["kv", "--against", "lmdb", "--rounds", "5"])?;
    let mut figures = Vec::new();
    for store in STORES {
        let of = |row: &str| format!("{row}, of {store}");
        for (row, in_largest, wanted) in KEYS {
            let wanted = if Some(&store) == STORES.last() { in_largest } else { wanted };
            figures.push(report.ratio(&of(row), "lmdb", wanted)?);
        }
        let key = report.us(&of(BATCH), "eyrie")? / report.us(&of(PUT), "eyrie")?;
        figures.push(Figure::at_most(of(BATCH), 1.0, key, " × a single put"));
    }
    Ok(figures)
}

/// Measures puts each of which is durable, in the directory `disk`.
pub fn durable_puts(disk: &Path) -> Result<Vec<Figure>> {
    let place = disk.to_str().ok_or("the path of the directory is no text")?;
    let stores = STORES_ON_DISK.join(",");
    let options = ["kv", "--medium", "paged", "--sync", "each", "--keys", "10000", "--dir"];
    let report = Report::of(&[&options[..], &[place, "--against", &stores]].concat())?;
    let put = format!("{PUT}, of 10,000");
    let figure = |store| {
        let figure = report.ratio(&put, store, DURABLE_PUT)?;
        Ok(Figure { name: "disk: durable put".to_owned(), ..figure })
    };
    STORES_ON_DISK.into_iter().map(figure).collect()
}

/// Measures the application profiles.
pub fn profiles() -> Result<Vec<Figure>> {
    let figure = |(profile, wanted)| {
        let report = Report::of(&["profile", profile, "--against", "tmpfs"])?;
        report.ratio(&format!("pass of {profile}"), "tmpfs", wanted)
    };
    PROFILES.into_iter().map(figure).collect()
}
