//! Small runs, and a store whose results are wrong.

use std::collections::BTreeMap;
use std::path::Path;

use eyrie::{Credentials, Host, MediumChoice, Volume};
use tempfile::TempDir;

use crate::keys::{self, Amounts};
use crate::stores::{Durability, Open, Peer, STORES};
use crate::{Result, Rounds, files};

const KEYS: usize = 2000;
const AMOUNTS: Amounts = Amounts {
    keys: KEYS,
    value_bytes: 100,
    gets: 32,
    changes: 16,
    batches: 1,
    rounds: Rounds(1),
    change_rounds: Rounds(1),
};

fn memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in memory")
}

#[test]
fn every_result_of_every_store_is_compared() {
    for (durability, dir) in
        [(Durability::None, memory()), (Durability::EachCall, tempfile::tempdir().expect("a directory"))]
    {
        let (rows, proven) = keys::measure(&STORES, dir.path(), durability, AMOUNTS).expect("a run");
        assert!(rows.iter().flat_map(|row| row.times.iter().flatten()).all(|us| *us > 0.0));
        let stores = STORES.len() as u64;
        // Two rounds of gets, and the comparison at the end.
        assert_eq!(proven.values, stores * (2 * 32 + KEYS as u64));
        // The last load, and two rounds of puts, of erases with the puts that follow them, and of a batch.
        assert_eq!(proven.changes, stores * (KEYS as u64 + 2 * (16 + 32 + 100)));
    }
}

// The ways in which a store can be wrong.
const LOSES_A_PUT: u8 = 0;
const RETURNS_ANOTHER_VALUE: u8 = 1;
const KEEPS_AN_ERASED_KEY: u8 = 2;
const SCANS_TOO_LITTLE: u8 = 3;

/// A map that is wrong in one way.
struct Wrong<const DEFECT: u8>(BTreeMap<Vec<u8>, Vec<u8>>);

fn wrong<const DEFECT: u8>(_: &Path, _: Durability, _: usize) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Wrong::<DEFECT>(BTreeMap::new())))
}

impl<const DEFECT: u8> Peer for Wrong<DEFECT> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = if DEFECT == RETURNS_ANOTHER_VALUE { self.0.values().next() } else { self.0.get(key) };
        out.clear();
        out.extend_from_slice(found.map_or(&[], |value| value));
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if DEFECT != LOSES_A_PUT {
            self.0.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        Ok(DEFECT == KEEPS_AN_ERASED_KEY || self.0.remove(key).is_some())
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.0.extend(pairs.iter().cloned());
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let skipped = usize::from(DEFECT == SCANS_TOO_LITTLE);
        self.0.iter().skip(skipped).for_each(|(key, value)| visit(key, value));
        Ok(())
    }
}

#[test]
fn store_with_wrong_results_fails_the_run() {
    let defects: [(Open, &str); 4] = [
        (wrong::<LOSES_A_PUT>, "values are wrong at the end"),
        (wrong::<RETURNS_ANOTHER_VALUE>, "has wrong bytes"),
        (wrong::<KEEPS_AN_ERASED_KEY>, "an erased key has a value"),
        (wrong::<SCANS_TOO_LITTLE>, "a scan found 1999 keys"),
    ];
    for (open, message) in defects {
        let dir = tempfile::tempdir().expect("a directory");
        let run = keys::measure(&[("defective", open)], dir.path(), Durability::None, AMOUNTS);
        let error = run.err().expect("the defect is noticed").to_string();
        assert!(error.contains(message), "{error}");
    }
}

fn compare_files(dir: &Path, medium: MediumChoice, unsynced: bool) -> u64 {
    let volume =
        Volume::options().size(64 << 20).medium(medium).create(dir.join("volume")).expect("a volume");
    std::fs::create_dir(dir.join("host")).expect("a directory");
    let host = Host::new(dir.join("host")).expect("the host");
    let amounts = files::Amounts {
        blocks: 100,
        calls: 32,
        durable_calls: 16,
        unsynced,
        rounds: Rounds(1),
        durable_rounds: Rounds(1),
    };
    let (rows, proven) =
        files::measure(&volume.files(Credentials::of_process()), &host, amounts).expect("a run");
    assert!(rows.iter().flat_map(|row| row.times.iter().flatten()).all(|us| *us > 0.0));
    proven
}

#[test]
fn every_block_of_every_file_is_compared() {
    // On two sides: two rounds of reads, and at the end the large file and the synced blocks and files.
    let wanted = 2 * (2 * 32 + 100 + 2 * (16 + 16));
    let disk = tempfile::tempdir().expect("a directory");
    assert_eq!(compare_files(disk.path(), MediumChoice::Paged, false), wanted);
    // Also the files that are unlinked, and the other appended blocks.
    let wanted = wanted + 2 * (2 * 32 + 2 * 32);
    assert_eq!(compare_files(memory().path(), MediumChoice::Dram, true), wanted);
}
