//! Measures calls on the volume and on the host, with the workloads of `eyrie bench`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eyrie::Volume;
use eyrie_bench::method::{Control, Rounds, Row};
use eyrie_bench::place::Scratch;
use eyrie_bench::workload::kv::{KeyOperation, Keys, StoreScale};
use eyrie_bench::workload::micro::{Amounts, FileOperation, Micro};
use eyrie_bench::{Error, Side, Workload, measure_on};

use crate::copy::bar;
use crate::failure::{Failure, Result};
use crate::{interrupt, text};

/// Calls of one round of a row. A round is short, so that many rounds alternate in the time for the row.
const CALLS: u64 = 256;
/// Maximum number of counted rounds of a row.
const MOST_ROUNDS: u32 = 200;

/// The files and keys for the measurements.
pub struct Sizes {
    files: Amounts,
    keys: Vec<StoreScale>,
}

impl Sizes {
    /// A large file of 128 MiB, 1,024 files, and 1,000 keys.
    pub fn small() -> Sizes {
        Sizes::of(128 << 20, 0, &[1000])
    }

    /// A large file of 1 GiB, and also 100,000 files and 100,000 keys.
    pub fn full() -> Sizes {
        Sizes::of(1 << 30, 100_000, &[1000, 100_000])
    }

    fn of(large_bytes: u64, many: u64, keys: &[u64]) -> Sizes {
        let files = Amounts {
            large_bytes,
            scattered_bytes: 0,
            few: 1024,
            many,
            round_blocks: CALLS,
            sequential: CALLS,
            names: CALLS,
            large_calls: 0,
        };
        Sizes { files, keys: keys.iter().map(|&keys| StoreScale { keys, value_bytes: 4096 }).collect() }
    }

    /// Returns the workloads: calls on files, and calls on keys.
    fn workloads(&self) -> (Micro, Keys) {
        use FileOperation::{Append, Create, Open, Overwrite, Read, ReadSequential, Rename, Stat, WriteSync};
        let wanted = [Open, Stat, Read, ReadSequential, Overwrite, WriteSync, Append, Create, Rename];
        let files = Micro::of(self.files, |operation| wanted.contains(&operation));
        let wanted = [KeyOperation::Get, KeyOperation::View, KeyOperation::Put, KeyOperation::Erase];
        (files, Keys::of(self.keys.clone(), &wanted, CALLS))
    }

    /// Returns the maximum room that one side needs, in bytes.
    pub fn bytes(&self) -> u64 {
        let (files, keys) = self.workloads();
        files.bytes(1) + keys.bytes(1)
    }
}

/// Measures the volume and a new directory next to it, in about the time `budget`, and returns the rows. In
/// each row the first side is the volume. The new directory is removed at the end, but the files of the
/// measurements stay in the volume.
pub fn measure(volume: &Arc<Volume>, place: &Path, sizes: &Sizes, budget: Duration) -> Result<Vec<Row>> {
    const WHAT: &str = "measure";
    let failed = |error: Error| match error {
        Error::Interrupted => {
            Failure::new("interrupted", "tour", "while measuring").with_status(interrupt::STATUS)
        }
        error => Failure::new("cannot measure", text::path(place), error),
    };
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = Scratch::new(parent).map_err(failed)?;
    let on_host = Side::of_directory(beside.path()).map_err(failed)?;
    let sides = [Side::of_volume(Arc::clone(volume)), on_host];
    let (files, keys) = sizes.workloads();
    let workloads: [&dyn Workload; 2] = [&files, &keys];
    let groups = workloads.map(|workload| workload.plan(1).groups.len() as u64);
    let all: u64 = groups.iter().sum();
    // The comparison of all contents at the end of a workload is a step, too.
    let bar = bar(WHAT, all + groups.len() as u64);
    let mut rows = Vec::new();
    for (workload, groups) in workloads.into_iter().zip(groups) {
        let share = budget.mul_f64(groups as f64 / all.max(1) as f64);
        let rounds = Rounds { least: 1, most: MOST_ROUNDS, budget: share, latency: false };
        let mut progress = |_: &str| bar.inc(1);
        let control = Control { rounds, stop: interrupt::requested, progress: &mut progress };
        rows.extend(measure_on(workload, &sides, (1, false), control).map_err(failed)?);
    }
    bar.finish_and_clear();
    Ok(rows)
}
