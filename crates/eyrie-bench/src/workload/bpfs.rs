//! `bpfs`: the workloads of section 5 of the paper about BPFS (SOSP 2009): appends and random writes of
//! several sizes, creation of files, small files like those of a mail server, and a tree of sources that is
//! unpacked and patched.

use eyrie::{File, OpenFlags, Posix};

use super::files::{MIB, NEW, count_names, make_dir, make_file, open, read_file, read_whole, write_all};
use super::micro::thousands;
use super::tree::{FILE_BYTES, Tree};
use crate::error::Result;
use crate::method::{FileWork, Plan, RowPlan, Stopwatch, Targets, ThreadPart, Worker};
use crate::run::{Workload, file_workers};
use crate::side::Side;
use crate::values::{Chooser, NumberedName, Pattern};

/// Sizes of appends and of random writes, in bytes.
const SIZES: [usize; 4] = [8, 64, 512, 4096];
/// Numbers of files that are created in an empty directory.
const CREATED: [u64; 3] = [100, 1000, 10_000];
/// Number of calls that are timed together.
const TIMED_CALLS: u64 = 64;
/// Number of mails. PostMark has 500 by default. Here the transactions choose from fewer mails, so that each
/// mail is read and grows many times.
const MAILS: u64 = 100;
/// Limits of the sizes of mails at the start, in bytes: the defaults of PostMark.
const LEAST_BYTES: u64 = 500;
const MOST_BYTES: u64 = 10_000;

/// A row of the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BpfsRow {
    /// Append this many bytes to a file.
    Append(usize),
    /// Write this many bytes at a random multiple of this size.
    Write(usize),
    /// Create this number of files in an empty directory.
    Create(u64),
    /// Read a mail or append to it. A round also makes and deletes the mails.
    Mail,
    Unpack,
    Patch,
    Remove,
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Bpfs {
    groups: Vec<Vec<BpfsRow>>,
    /// Appends of each size in a round.
    appends: u64,
    /// Random writes of each size in a round, and the size of their file.
    writes: u64,
    file_bytes: usize,
    /// Transactions on mails in a round.
    transactions: u64,
    /// Files of the tree.
    files: u64,
    rounds: u64,
}

impl Bpfs {
    /// Makes the workload. `rounds` rounds together make the paper's number of appends and of random writes,
    /// of each size. The other amounts do not depend on the number of rounds.
    pub fn new(rounds: u32) -> Bpfs {
        let rounds = u64::from(rounds);
        Bpfs {
            groups: groups(&CREATED),
            appends: 130_000_u64.div_ceil(rounds),
            writes: 1_000_000_u64.div_ceil(rounds),
            file_bytes: 128 << 20,
            transactions: 5000,
            files: 2000,
            rounds,
        }
    }

    /// Makes the workload with tiny amounts. The figures mean little.
    pub fn quick() -> Bpfs {
        let groups = groups(&CREATED[..1]);
        let (appends, writes, file_bytes, transactions, files, rounds) = (200, 200, MIB, 200, 40, 10);
        Bpfs { groups, appends, writes, file_bytes, transactions, files, rounds }
    }
}

fn groups(created: &[u64]) -> Vec<Vec<BpfsRow>> {
    let appends = SIZES.map(|size| vec![BpfsRow::Append(size)]);
    let writes = SIZES.map(|size| vec![BpfsRow::Write(size)]);
    let creates = created.iter().map(|&files| vec![BpfsRow::Create(files)]);
    let tree = vec![BpfsRow::Unpack, BpfsRow::Patch, BpfsRow::Remove];
    appends.into_iter().chain(writes).chain(creates).chain([vec![BpfsRow::Mail], tree]).collect()
}

impl Workload for Bpfs {
    fn title(&self) -> String {
        "bench bpfs".to_owned()
    }

    fn notes(&self) -> Vec<String> {
        vec![format!(
            "{} appends and {} random writes of each size in a round, the writes in a file of {} MiB; \
             {MAILS} mails and {} transactions; a tree of {} files with a mean of {} KiB",
            thousands(self.appends),
            thousands(self.writes),
            self.file_bytes >> 20,
            thousands(self.transactions),
            thousands(self.files),
            FILE_BYTES >> 10
        )]
    }

    fn bytes(&self, _threads: u64) -> u64 {
        let appended: usize = SIZES.iter().sum();
        // An overwrite takes new pages before the old ones are free. So the large file and the files of the
        // tree, which `patch` writes again, count twice. The 128 MiB leave room for mails, empty files and
        // tables.
        let tree = self.files * 2 * FILE_BYTES;
        // One round does not count, and one measures the latency.
        let rounds = self.rounds + 2;
        self.appends * rounds * appended as u64 + 2 * self.file_bytes as u64 + tree + (128 << 20)
    }

    fn plan(&self, threads: u64) -> Plan {
        let part = ThreadPart { threads, ..ThreadPart::WHOLE };
        let row = |row: &BpfsRow| match *row {
            BpfsRow::Append(size) => {
                let calls = part.share(self.appends) * (self.rounds + 2);
                RowPlan::new(format!("append {size} B"), Targets::each("places", calls))
            }
            BpfsRow::Write(size) => {
                let places = part.share(self.file_bytes as u64) / size as u64;
                RowPlan::new(format!("random write {size} B"), Targets::random("places", places))
            }
            BpfsRow::Create(files) => {
                let name = format!("create {} files, each", thousands(files));
                RowPlan::new(name, Targets::each("files", part.share(files)))
            }
            BpfsRow::Mail => RowPlan::new("transaction on mails", Targets::random("files", MAILS)),
            BpfsRow::Unpack => RowPlan::new("unpack a tree, each entry", self.tree(part)),
            BpfsRow::Patch => RowPlan::new("patch the tree, each file", self.tree(part)),
            BpfsRow::Remove => RowPlan::new("remove the tree, each entry", self.tree(part)),
        };
        Plan { groups: self.groups.iter().map(|group| group.iter().map(row).collect()).collect() }
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        file_workers(self, side, parts)
    }
}

impl Bpfs {
    fn tree(&self, part: ThreadPart) -> Targets {
        Targets::each("files", part.share(self.files))
    }
}

/// The work of one thread.
struct BpfsWorker<P: Posix + Clone> {
    work: Bpfs,
    rows: Vec<BpfsRow>,
    fs: P,
    part: ThreadPart,
    directory: String,
    /// The files of the appends, and the number of appends to each.
    growing: Vec<(File<P>, u64)>,
    /// The file of the random writes, and the bytes that it should have.
    file: File<P>,
    expected: Vec<u8>,
    tree: Tree,
    chooser: Chooser,
    /// Number of rounds of mails.
    mailed: u32,
}

impl FileWork for Bpfs {
    fn worker<P>(&self, fs: P, directory: String, part: ThreadPart) -> Result<Box<dyn Worker>>
    where
        P: Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync,
    {
        make_dir(&fs, &directory)?;
        make_dir(&fs, &format!("{directory}/new-{}", part.thread))?;
        let path = |name: &str| format!("{directory}/{name}-{}", part.thread);
        let growing = |size: usize| Ok((open(&fs, &path(&format!("append-{size}")))?, 0));
        let growing = SIZES.into_iter().map(growing).collect::<Result<_>>()?;
        let file = open(&fs, &path("random"))?;
        let mut expected = vec![0; part.share(self.file_bytes as u64) as usize];
        Pattern::new(part.thread, 0).fill(&mut expected, 0);
        for (part, at) in expected.chunks(MIB).zip(0..) {
            write_all(&fs, file.handle(), part, at * MIB as u64)?;
        }
        Ok(Box::new(BpfsWorker {
            rows: self.groups.iter().flatten().copied().collect(),
            work: self.clone(),
            tree: Tree::new(&directory, self.files, part),
            chooser: Chooser::new(part.thread),
            fs,
            part,
            directory,
            growing,
            file,
            expected,
            mailed: 0,
        }))
    }
}

impl<P: Posix + Clone> BpfsWorker<P> {
    fn append_pattern(&self, size: usize) -> Pattern {
        Pattern::new((self.part.thread << 32) + size as u64, 1)
    }

    fn append(&mut self, size: usize, watch: &mut Stopwatch) -> Result<()> {
        let (pattern, calls) = (self.append_pattern(size), self.part.share(self.work.appends));
        let Some(at) = SIZES.iter().position(|other| *other == size) else { return Ok(()) };
        let mut data = vec![0; size * TIMED_CALLS as usize];
        for first in (0..calls).step_by(TIMED_CALLS as usize) {
            let count = TIMED_CALLS.min(calls - first);
            let (file, done) = &mut self.growing[at];
            pattern.fill(&mut data, *done * size as u64);
            watch.time(count as usize, |at| {
                self.fs.append(file.handle(), &data[at * size..][..size])?;
                Ok(())
            })?;
            (*done..*done + count).for_each(|place| watch.touch(place));
            *done += count;
        }
        Ok(())
    }

    fn write(&mut self, size: usize, watch: &mut Stopwatch) -> Result<()> {
        let (calls, places) = (self.part.share(self.work.writes), self.expected.len() / size);
        for first in (0..calls).step_by(TIMED_CALLS as usize) {
            let count = TIMED_CALLS.min(calls - first) as usize;
            let chosen: Vec<usize> = (0..count).map(|_| self.chooser.below(places as u64) as usize).collect();
            for &place in &chosen {
                let pattern = Pattern::new(self.chooser.number(), 0);
                pattern.fill(&mut self.expected[place * size..][..size], 0);
                watch.touch(place as u64);
            }
            // A place that is chosen twice gets its last bytes twice.
            watch.time(count, |at| {
                let offset = chosen[at] * size;
                write_all(&self.fs, self.file.handle(), &self.expected[offset..][..size], offset as u64)
            })?;
        }
        Ok(())
    }

    fn create(&mut self, files: u64, watch: &mut Stopwatch) -> Result<()> {
        let directory = format!("{}/new-{}", self.directory, self.part.thread);
        let mut names = NumberedName::new(&format!("{directory}/file-"));
        let files = self.part.share(files);
        for first in (0..files).step_by(TIMED_CALLS as usize) {
            let count = TIMED_CALLS.min(files - first);
            watch.time(count as usize, |at| {
                let handle = self.fs.open(names.path(first + at as u64).into(), NEW, 0o644)?;
                Ok(self.fs.close(handle)?)
            })?;
            (first..first + count).for_each(|file| watch.touch(file));
        }
        let found = count_names(&self.fs, &directory)?;
        watch.require(found == files, || format!("{found} names instead of {files}"))?;
        (0..files).try_for_each(|file| Ok(self.fs.unlink(names.path(file).into())?))
    }

    /// Makes the mails, makes the transactions, compares the mails, and deletes them. All of these calls but
    /// the comparison are timed, and only a transaction counts as an operation.
    fn mail(&mut self, watch: &mut Stopwatch) -> Result<()> {
        self.mailed += 1;
        let mut names = NumberedName::new(&format!("{}/mail-{}-", self.directory, self.part.thread));
        let mut sizes: Vec<usize> = (0..MAILS)
            .map(|_| (LEAST_BYTES + self.chooser.below(MOST_BYTES - LEAST_BYTES)) as usize)
            .collect();
        let pattern = |file: u64| Pattern::new((7 << 40) + (self.part.thread << 32) + file, self.mailed);
        let (mut buffer, fs) = (Vec::new(), &self.fs);
        for (file, &size) in (0..).zip(&sizes) {
            watch.time_whole(0, || make_file(fs, names.path(file), pattern(file), size, &mut buffer))?;
        }
        let transactions = self.part.share(self.work.transactions);
        for _ in 0..transactions {
            let file = self.chooser.below(MAILS);
            let size = sizes[file as usize];
            watch.touch(file);
            let path = names.path(file);
            if self.chooser.below(2) == 0 {
                buffer.resize(size + 1, 0);
                let mut count = 0;
                watch.time(1, |_| {
                    count = read_file(fs, path, &mut buffer)?;
                    Ok(())
                })?;
                let right = count == size && pattern(file).matches(&buffer[..count], 0);
                watch.require(right, || format!("mail {file} is wrong"))?;
            } else {
                let bytes = 1 + self.chooser.below(512) as usize;
                buffer.resize(bytes, 0);
                pattern(file).fill(&mut buffer, size as u64);
                watch.time(1, |_| {
                    let handle = fs.open(path.into(), OpenFlags::WRITE | OpenFlags::APPEND, 0)?;
                    write_all(fs, &handle, &buffer, size as u64)?;
                    Ok(fs.close(handle)?)
                })?;
                sizes[file as usize] += bytes;
            }
        }
        for (file, &size) in (0..).zip(&sizes) {
            watch.check()?;
            buffer.resize(size + 1, 0);
            let count = read_file(fs, names.path(file), &mut buffer)?;
            let right = count == size && pattern(file).matches(&buffer[..count], 0);
            watch.require(right, || format!("mail {file} is wrong before its removal"))?;
        }
        for file in 0..MAILS {
            watch.time_whole(0, || Ok(fs.unlink(names.path(file).into())?))?;
        }
        Ok(())
    }
}

impl<P: Posix + Clone + Send + Sync> Worker for BpfsWorker<P>
where
    P::Handle: Send + Sync,
{
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        match self.rows[row] {
            BpfsRow::Append(size) => self.append(size, watch)?,
            BpfsRow::Write(size) => self.write(size, watch)?,
            BpfsRow::Create(files) => self.create(files, watch)?,
            BpfsRow::Mail => self.mail(watch)?,
            BpfsRow::Unpack => self.tree.unpack(&self.fs, false, watch)?,
            BpfsRow::Patch => self.tree.patch(&self.fs, watch)?,
            BpfsRow::Remove => self.tree.remove(&self.fs, watch)?,
        }
        Ok(true)
    }

    /// Compares the files of the appends and of the random writes.
    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        for (size, (file, done)) in SIZES.into_iter().zip(&self.growing) {
            watch.check()?;
            let bytes = *done as usize * size;
            let mut found = vec![0; bytes + 1];
            let count = read_whole(&self.fs, file.handle(), &mut found)?;
            let right = count == bytes && self.append_pattern(size).matches(&found[..count], 0);
            watch.require(right, || format!("the file of the appends of {size} bytes is wrong"))?;
        }
        let mut found = vec![0; self.expected.len() + 1];
        let count = read_whole(&self.fs, self.file.handle(), &mut found)?;
        watch.require(found[..count] == self.expected, || "the file of the random writes is wrong".to_owned())
    }
}
