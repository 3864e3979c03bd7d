//! Measures Eyrie beside LMDB, redb and SQLite (keys and values), and beside the file systems of the host.
//!
//! Each comparison has one class of durability. In memory nothing need be durable: all stores are on a tmpfs.
//! On a disk each transaction is durable before its call returns. Rounds of all sides alternate, and the
//! figures are medians of rounds. A run fails if any get, read or scan returns other bytes than the last put
//! or write of the key or block.
//!
//! `cargo run --release --manifest-path peers/Cargo.toml`

mod files;
mod keys;
mod stores;
mod table;
#[cfg(test)]
mod tests;
mod values;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use eyrie::{Credentials, Host, MediumChoice, Volume};

use self::stores::{Durability, STORES};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The number of measured rounds. A round before them does not count.
#[derive(Clone, Copy)]
pub struct Rounds(usize);

impl Rounds {
    fn all(self) -> RangeInclusive<usize> {
        0..=self.0
    }

    /// The rounds in which a store is made and loaded, which takes long.
    fn loads(self) -> RangeInclusive<usize> {
        0..=self.0.min(3)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Keys and values in memory
    Keys,
    /// Keys and values on a disk
    DiskKeys,
    /// Files in memory
    Files,
    /// Files on a disk
    DiskFiles,
}

/// Measures Eyrie beside LMDB, redb, SQLite and the file systems of the host
#[derive(Parser)]
struct Arguments {
    /// Measure only these parts
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Directory on a tmpfs
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// Directory on a disk, preferably with ext4
    #[arg(long, default_value = ".")]
    disk: PathBuf,
    /// Keys of each store
    #[arg(long, default_value_t = 100_000)]
    keys: usize,
    /// Rounds of each operation
    #[arg(long, default_value_t = 9)]
    rounds: usize,
}

/// Bytes of memory that the parts in memory use at most.
const MEMORY_BYTES: usize = 6 << 30;

/// Makes the hypervisor of a virtual machine provide memory. It may have taken free memory from the machine,
/// and return this memory slowly, in up to 10 µs a page. The measurements must not include that time.
fn provide_memory() {
    drop(std::hint::black_box(vec![1_u8; MEMORY_BYTES]));
}

/// Measures the stores in the directory `parent`, and prints the tables.
fn compare_stores(parent: &Path, durability: Durability, keys: usize, rounds: Rounds) -> Result<()> {
    for value_bytes in [100, 4096] {
        let dir = tempfile::Builder::new().prefix("eyrie-peers-").tempdir_in(parent)?;
        // A disk that others use is slow from time to time. So there are many rounds of changes on a disk,
        // and each is short.
        let (changes, batches, change_rounds) = match durability {
            Durability::None => (keys / 10, keys / 1000, rounds),
            Durability::EachCall => (keys / 1500, keys / 10_000, Rounds(rounds.0 * 3)),
        };
        let gets = keys / 5;
        let amounts = keys::Amounts { keys, value_bytes, gets, changes, batches, rounds, change_rounds };
        let (rows, proven) = keys::measure(&STORES, dir.path(), durability, amounts)?;
        let class = match durability {
            Durability::None => "in memory, no transaction durable",
            Durability::EachCall => "on a disk, every transaction durable",
        };
        let sides = STORES.map(|(name, _)| name);
        table::print(&format!("{keys} values of {value_bytes} bytes, {class}:"), &sides, &rows);
        println!("\n{} values were compared, and {} changes made.", proven.values, proven.changes);
    }
    Ok(())
}

/// Measures files in the directory `parent`, and prints the table.
fn compare_files(parent: &Path, (medium, name): (MediumChoice, &str), amounts: files::Amounts) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("eyrie-peers-").tempdir_in(parent)?;
    let volume = Volume::options().size(8 << 30).medium(medium).create(dir.path().join("volume"))?;
    std::fs::create_dir(dir.path().join("host"))?;
    let host = Host::new(dir.path().join("host"))?;
    let files = volume.files(Credentials::of_process());
    let (rows, proven) = files::measure(&files, &host, amounts)?;
    let title = format!("Files of a volume on the medium {name}, and of the file system below it:");
    table::print(&title, &["Eyrie", "host"], &rows);
    println!("\n{proven} blocks were compared.");
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    let wants = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let (keys, rounds) = (arguments.keys, Rounds(arguments.rounds));
    let (memory, disk) = (&arguments.memory, &arguments.disk);
    let calls = keys / 20;
    let in_memory = files::Amounts {
        blocks: keys,
        calls,
        durable_calls: calls,
        unsynced: true,
        rounds,
        durable_rounds: rounds,
    };
    let durable_rounds = Rounds(rounds.0 * 3);
    let on_disk = files::Amounts { durable_calls: keys / 1500, unsynced: false, durable_rounds, ..in_memory };
    if wants(Part::Keys) {
        provide_memory();
        compare_stores(memory, Durability::None, keys, rounds)?;
    }
    if wants(Part::DiskKeys) {
        compare_stores(disk, Durability::EachCall, keys, rounds)?;
    }
    if wants(Part::Files) {
        provide_memory();
        compare_files(memory, (MediumChoice::Dram, "dram"), in_memory)?;
    }
    if wants(Part::DiskFiles) {
        compare_files(disk, (MediumChoice::Paged, "paged"), on_disk)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    run(&Arguments::parse())
}
