//! A crash, and the state after it: kills a process that writes to a volume, opens the volume, and compares
//! the records with the promise.
//!
//! The child adds records to a store. Each commit has a record and the new count, in one step. The child
//! syncs once, goes on, and is killed without a chance to save anything. The parent then opens the volume,
//! which recovers it. On shared memory every completed call is still there. On a disk, the calls before the
//! last sync are certainly there, and later calls may be there. On both media each commit is whole or not
//! done.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use eyrie::{Batch, Credentials, KeyRange, MediumChoice, Order, PosixExt, Store, Volume};

/// Numbers of records: before the sync, and in all.
const SYNCED: u64 = 100;
const WRITTEN: u64 = 250;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, medium, path] = &arguments[..]
        && word == "child"
    {
        let medium = if medium == "dram" { MediumChoice::Dram } else { MediumChoice::Paged };
        return write_until_killed(medium, Path::new(path));
    }
    let scratch = tempfile::tempdir()?;
    for medium in ["dram", "paged"] {
        let path = scratch.path().join(medium);
        kill_a_writer(medium, &path)?;
        let kept = recover(&path)?;
        match medium {
            "dram" => assert_eq!(kept, WRITTEN, "the death of a process loses no completed call"),
            _ => assert!((SYNCED..=WRITTEN).contains(&kept), "{kept} records"),
        }
    }
    Ok(())
}

fn records(volume: &Volume) -> eyrie::Result<Store> {
    volume.files(Credentials::of_process()).create_dir_all("/records")?;
    volume.store("/records", Credentials::of_process())
}

/// Adds the records from `first` to `last`, each with the new count.
fn add(store: &Store, first: u64, last: u64) -> eyrie::Result<()> {
    for number in first..=last {
        let mut batch = Batch::new();
        batch.put(format!("record:{number:06}"), format!("the {number}th record"));
        batch.put("count", number.to_string());
        store.commit(&batch)?;
    }
    Ok(())
}

/// The child: writes, syncs, writes more, and waits.
fn write_until_killed(medium: MediumChoice, path: &Path) -> Result<(), Box<dyn Error>> {
    let volume = Volume::options().size(64 << 20).medium(medium).create(path)?;
    let store = records(&volume)?;
    add(&store, 1, SYNCED)?;
    volume.sync()?;
    add(&store, SYNCED + 1, WRITTEN)?;
    println!("{WRITTEN} records written, {SYNCED} of them before a sync");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Starts the child, and kills it with `SIGKILL` after its last record.
fn kill_a_writer(medium: &str, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(["child", medium]).arg(path).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().expect("the output is a pipe");
    let mut said = String::new();
    BufReader::new(output).read_line(&mut said)?;
    child.kill()?;
    child.wait()?;
    println!("{medium}: {}, then killed", said.trim());
    Ok(())
}

/// Opens the volume of the killed child. Returns the number of records that it holds.
fn recover(path: &Path) -> Result<u64, Box<dyn Error>> {
    let volume = Volume::open(path)?; // the open recovers the volume; nothing else is needed
    let information = volume.information();
    assert!(information.recovered, "the child did not close the volume");
    println!("  promise: {}", information.promise);

    let store = records(&volume)?;
    let count: u64 = String::from_utf8(store.get("count")?.unwrap_or_default())?.parse()?;
    let mut kept = 0;
    for key in store.scan(KeyRange::prefix("record:"), Order::ByKey) {
        kept += 1;
        assert_eq!(key?, format!("record:{kept:06}").into_bytes(), "no record is missing in between");
    }
    assert_eq!(kept, count, "each commit is whole or not done");

    let report = volume.check()?;
    assert!(report.is_clean(), "{:?}", report.findings);
    println!("  recovered: {kept} records, and a count of {count}; the volume is sound");
    drop(store);
    volume.close()?;
    let again = Volume::open(path)?;
    assert!(!again.information().recovered, "after a close there is nothing to recover");
    Ok(kept)
}
