//! `micro`: single calls on files, with the sizes of Table 3 of the paper about Aerie (EuroSys 2014), and
//! further calls.
//!
//! With [`Amounts::aerie`] the large file has 1 GiB. The counted rounds of a row together make random reads
//! or writes of 100 MiB in blocks of 4 KiB, or go through the large file once. Most calls on names are
//! measured in a directory with 1,024 files and in one with 100,000.

mod blocks;
mod names;

use std::sync::Arc;

use eyrie::{File, Posix};

use super::files::{BLOCK_BYTES, MIB, make_dir};
use crate::error::Result;
use crate::method::{FileWork, Plan, RowPlan, Stopwatch, Targets, ThreadPart, Worker};
use crate::run::{Workload, file_workers};
use crate::side::Side;
use crate::values::Chooser;

/// A measured call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileOperation {
    /// Write a new large file, 1 MiB in each call.
    Fill,
    /// Make the files of the directory, each with one block.
    Make,
    /// Open an existing file by its path, and close it.
    Open,
    /// Read the attributes of an existing file by its path.
    Stat,
    /// Create a file, write one block, close it.
    Create,
    /// Remove a file that `Create` made.
    Unlink,
    /// Rename a file within its directory, or give it its old name again.
    Rename,
    /// Make a directory.
    MakeDirectory,
    /// Remove an empty directory.
    RemoveDirectory,
    /// Make a symbolic link.
    Symlink,
    /// Read the target of a symbolic link.
    ReadLink,
    /// Truncate a file of one block to no bytes, by its path.
    Truncate,
    /// List the directory. Each name counts as one operation.
    List,
    /// Read a random block of the large file.
    Read,
    /// Read the next block of the large file.
    ReadSequential,
    /// Overwrite a random block of the large file.
    Overwrite,
    /// Overwrite the next block of the large file.
    OverwriteSequential,
    /// Read the next block of a file whose blocks were overwritten in random order.
    ReadScattered,
    /// Overwrite a random block, and `fsync` the file.
    WriteSync,
    /// Append one block to an open file, which is empty at the start of each round.
    Append,
    /// Read 1 MiB at a random place of the large file.
    ReadMib,
    /// Overwrite 1 MiB at a random place of the large file.
    OverwriteMib,
}

/// The directory in which a call works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// The directory with [`Amounts::few`] files.
    Few,
    /// The directory with [`Amounts::many`] files.
    Many,
}

/// The sizes of a run, for all threads together.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Bytes of the large file.
    pub large_bytes: u64,
    /// Bytes of the file whose blocks are overwritten in random order.
    pub scattered_bytes: u64,
    /// Files of the small directory.
    pub few: u64,
    /// Files of the large directory. If it is 0, the rows of this directory are left out.
    pub many: u64,
    /// Blocks in a round of random calls, of appends, or of reads of the scattered file.
    pub round_blocks: u64,
    /// Blocks in a round of sequential calls on the large file.
    pub sequential: u64,
    /// Names in a round of calls on names.
    pub names: u64,
    /// Calls with 1 MiB in a round.
    pub large_calls: u64,
}

impl Amounts {
    /// Returns the amounts of `eyrie bench micro`. `rounds` counted rounds together make the calls on blocks
    /// of Table 3 of the paper about Aerie. Each single round has 1,024 names.
    pub fn aerie(rounds: u32) -> Amounts {
        let (large_bytes, rounds) = (1_u64 << 30, u64::from(rounds));
        Amounts {
            large_bytes,
            scattered_bytes: 100 << 20,
            few: 1024,
            many: 100_000,
            round_blocks: ((100_u64 << 20) / BLOCK_BYTES as u64).div_ceil(rounds),
            sequential: (large_bytes / BLOCK_BYTES as u64).div_ceil(rounds),
            names: 1024,
            large_calls: 1024_u64.div_ceil(rounds),
        }
    }

    /// Returns amounts with which a test of the workload takes less than a second. The figures mean little.
    pub fn quick() -> Amounts {
        let mib = 1 << 20;
        Amounts {
            large_bytes: 4 * mib,
            scattered_bytes: mib,
            few: 128,
            many: 1000,
            round_blocks: 64,
            sequential: 512,
            names: 64,
            large_calls: 4,
        }
    }

    /// Returns the bytes that one side needs at most.
    pub fn bytes(&self) -> u64 {
        // An overwrite takes new pages before the old ones are free, so the large files count twice. A small
        // file has one block, and its header, its name and storage that is not free yet count as a second
        // one. Each of the two directories gets more files in a round, and removed files of the round before
        // may still have their storage. The 64 MiB leave room for journals and tables.
        let block = BLOCK_BYTES as u64;
        let files = self.few + self.many + 4 * self.names;
        2 * self.large_bytes
            + 2 * self.scattered_bytes
            + files * 2 * block
            + self.round_blocks * block
            + (64 << 20)
    }

    fn files(&self, scale: Scale) -> u64 {
        if scale == Scale::Few { self.few } else { self.many }
    }
}

use FileOperation::{
    Append, Create, Fill, List, Make, MakeDirectory, Open, Overwrite, OverwriteMib, OverwriteSequential,
    Read, ReadLink, ReadMib, ReadScattered, ReadSequential, RemoveDirectory, Rename, Stat, Symlink, Truncate,
    Unlink, WriteSync,
};

/// The calls that are measured in both directories, because their time may depend on the number of names. The
/// calls of one group alternate.
const NAMED: [&[FileOperation]; 7] =
    [&[Make], &[Open], &[Stat], &[Create, Unlink], &[Rename], &[MakeDirectory, RemoveDirectory], &[List]];
/// The calls that are measured in the small directory only.
const SMALL: [&[FileOperation]; 2] = [&[Symlink, ReadLink], &[Truncate]];
/// The calls on the blocks of the large files.
const BLOCKS: [&[FileOperation]; 10] = [
    &[Fill],
    &[Read],
    &[ReadSequential],
    &[Overwrite],
    &[OverwriteSequential],
    &[ReadScattered],
    &[WriteSync],
    &[Append],
    &[ReadMib],
    &[OverwriteMib],
];

/// The workload.
#[derive(Clone, Debug)]
pub struct Micro {
    amounts: Amounts,
    groups: Vec<Vec<(FileOperation, Scale)>>,
}

impl Micro {
    /// Makes the workload with all calls.
    pub fn new(amounts: Amounts) -> Micro {
        Micro::of(amounts, |_| true)
    }

    /// Makes the workload with each group of calls (such as create and unlink) whose first call is `wanted`.
    /// `Make` and `Fill` are always part of the workload, because they make the files.
    pub fn of(amounts: Amounts, wanted: impl Fn(FileOperation) -> bool) -> Micro {
        let many = NAMED.iter().filter(|_| amounts.many > 0).map(|group| (group, Scale::Many));
        let few = BLOCKS.iter().chain(&NAMED).chain(&SMALL).map(|group| (group, Scale::Few));
        let is_wanted = |operation: FileOperation| matches!(operation, Make | Fill) || wanted(operation);
        let groups = few
            .chain(many)
            .filter(|(group, _)| is_wanted(group[0]))
            .map(|(group, scale)| group.iter().map(|&operation| (operation, scale)).collect())
            .collect();
        Micro { amounts, groups }
    }

    /// Returns the rows of a run with this number of threads.
    pub fn plan(&self, threads: u64) -> Plan {
        let part = ThreadPart { threads, ..ThreadPart::WHOLE };
        let row = |&(operation, scale): &(FileOperation, Scale)| self.row(operation, scale, part);
        Plan { groups: self.groups.iter().map(|group| group.iter().map(row).collect()).collect() }
    }

    /// Returns the operations and scales of the rows, in the order of the plan.
    pub fn rows(&self) -> Vec<(FileOperation, Scale)> {
        self.groups.iter().flatten().copied().collect()
    }

    fn row(&self, operation: FileOperation, scale: Scale, part: ThreadPart) -> RowPlan {
        let amounts = &self.amounts;
        let files = part.share(amounts.files(scale));
        let of = |bytes: u64, unit: usize| part.share(bytes / unit as u64);
        let blocks = of(amounts.large_bytes, BLOCK_BYTES);
        let targets = match operation {
            Fill | ReadMib | OverwriteMib => Targets::random("MiB", of(amounts.large_bytes, MIB)),
            Read | Overwrite | WriteSync => Targets::random("blocks", blocks),
            ReadSequential | OverwriteSequential => Targets::each("blocks", blocks),
            ReadScattered => Targets::each("blocks", of(amounts.scattered_bytes, BLOCK_BYTES)),
            Append => Targets::each("blocks", part.share(amounts.round_blocks)),
            Open | Stat => Targets::random("files", files),
            Make | Rename | List => Targets::each("files", files),
            Create | Unlink | Truncate => Targets::each("files", part.share(amounts.names)),
            MakeDirectory | RemoveDirectory => Targets::each("directories", part.share(amounts.names)),
            Symlink | ReadLink => Targets::each("links", part.share(amounts.names)),
        };
        let name = match scale {
            Scale::Few => operation.name().to_owned(),
            Scale::Many => format!("{}, of {}", operation.name(), thousands(amounts.many)),
        };
        match operation {
            Make => RowPlan::once(name, targets),
            Fill => RowPlan::once(name, Targets::each("MiB", of(amounts.large_bytes, MIB))),
            _ => RowPlan::new(name, targets),
        }
    }
}

/// Returns a number with a comma before each group of three digits.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl FileOperation {
    /// Returns the name that tables show.
    pub fn name(self) -> &'static str {
        match self {
            Fill => "first write of a file, 1 MiB",
            Make => "first create + write 4 KiB",
            Open => "open + close",
            Stat => "stat",
            Create => "create + write 4 KiB",
            Unlink => "unlink",
            Rename => "rename",
            MakeDirectory => "mkdir",
            RemoveDirectory => "rmdir",
            Symlink => "symlink",
            ReadLink => "readlink",
            Truncate => "truncate",
            List => "listing, each name",
            Read => "read 4 KiB",
            ReadSequential => "read 4 KiB, sequential",
            Overwrite => "overwrite 4 KiB",
            OverwriteSequential => "overwrite 4 KiB, sequential",
            ReadScattered => "read 4 KiB, sequential, after random overwrites",
            WriteSync => "write 4 KiB + fsync",
            Append => "append 4 KiB",
            ReadMib => "read 1 MiB",
            OverwriteMib => "overwrite 1 MiB",
        }
    }
}

/// The amounts of one thread.
#[derive(Clone, Copy, Debug)]
struct Share {
    blocks: u64,
    scattered: u64,
    round_blocks: u64,
    sequential: u64,
    names: u64,
    large_calls: u64,
}

/// The work of one thread.
struct MicroWorker<P: Posix + Clone> {
    fs: P,
    rows: Arc<Vec<(FileOperation, Scale)>>,
    amounts: Amounts,
    share: Share,
    part: ThreadPart,
    directory: String,
    large: File<P>,
    scattered: File<P>,
    growing: File<P>,
    /// Number of changes of each block of the large file.
    versions: Vec<u32>,
    /// The block at which the next sequential read, the next sequential write, and the next read of the
    /// scattered file begin.
    next: [u64; 3],
    /// Number of files that earlier rounds have created and removed, for each scale. New files get later
    /// numbers.
    made: [u64; 2],
    /// Number of the file that the next rename takes, for each scale.
    renamed: [u64; 2],
    chooser: Chooser,
    /// Memory for the blocks of the calls that are timed together.
    buffers: Vec<Vec<u8>>,
}

impl FileWork for Micro {
    fn worker<P>(&self, fs: P, directory: String, part: ThreadPart) -> Result<Box<dyn Worker>>
    where
        P: Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync,
    {
        let amounts = self.amounts;
        for below in ["", "/few", "/many"] {
            make_dir(&fs, &format!("{directory}{below}"))?;
        }
        let open = |name: &str| super::files::open(&fs, &format!("{directory}/{name}"));
        let blocks = |bytes: u64| part.share(bytes / BLOCK_BYTES as u64);
        let share = Share {
            blocks: blocks(amounts.large_bytes),
            scattered: blocks(amounts.scattered_bytes),
            round_blocks: part.share(amounts.round_blocks),
            sequential: part.share(amounts.sequential),
            names: part.share(amounts.names),
            large_calls: part.share(amounts.large_calls),
        };
        Ok(Box::new(MicroWorker {
            rows: Arc::new(self.rows()),
            amounts,
            share,
            part,
            large: open("large")?,
            scattered: open(&format!("scattered-{}", part.thread))?,
            growing: open(&format!("growing-{}", part.thread))?,
            versions: vec![0; share.blocks as usize],
            next: [0; 3],
            made: [0; 2],
            renamed: [0; 2],
            chooser: Chooser::new(part.thread),
            buffers: vec![vec![0; BLOCK_BYTES]; blocks::TIMED_CALLS],
            fs,
            directory,
        }))
    }
}

impl<P: Posix + Clone + Send + Sync> Worker for MicroWorker<P>
where
    P::Handle: Send + Sync,
{
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        let (operation, scale) = self.rows[row];
        match operation {
            Fill => self.fill(watch)?,
            Read => self.read_random(watch)?,
            ReadSequential => self.read_sequential(watch)?,
            Overwrite | WriteSync => self.overwrite_random(operation == WriteSync, watch)?,
            OverwriteSequential => self.overwrite_sequential(watch)?,
            ReadScattered => self.read_scattered(watch)?,
            Append => self.append(watch)?,
            ReadMib => self.read_mib(watch)?,
            OverwriteMib => self.overwrite_mib(watch)?,
            Make => self.make(scale, watch)?,
            Open => self.open(scale, watch)?,
            Stat => self.stat(scale, watch)?,
            Create => self.create(scale, watch)?,
            Unlink => self.unlink(scale, watch)?,
            Rename => self.rename(scale, watch)?,
            MakeDirectory => self.make_directories(scale, watch)?,
            RemoveDirectory => self.remove_directories(scale, watch)?,
            Symlink => self.symlink(scale, watch)?,
            ReadLink => self.read_link(scale, watch)?,
            Truncate => self.truncate(scale, watch)?,
            List => self.list(scale, watch)?,
        }
        Ok(true)
    }

    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        self.prove_blocks(watch)?;
        self.prove_names(watch)
    }
}

impl Workload for Micro {
    fn title(&self) -> String {
        "bench micro".to_owned()
    }

    fn notes(&self) -> Vec<String> {
        let Amounts { large_bytes, scattered_bytes, few, many, .. } = self.amounts;
        vec![format!(
            "large file of {} MiB, scattered file of {} MiB, directories of {} and {} files of 4 KiB; paths \
             of three components in a volume; the kernel gets whole paths, which begin with the path of the \
             side's directory",
            large_bytes >> 20,
            scattered_bytes >> 20,
            thousands(few),
            thousands(many)
        )]
    }

    fn bytes(&self, _threads: u64) -> u64 {
        self.amounts.bytes()
    }

    fn most_threads(&self) -> u64 {
        names::MOST_THREADS
    }

    fn plan(&self, threads: u64) -> Plan {
        Micro::plan(self, threads)
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        file_workers(self, side, parts)
    }
}
