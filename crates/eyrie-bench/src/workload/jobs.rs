//! `jobs`: work that users do: importing a tree of sources, asking for its status, reading many small files
//! in random order, and changing pages as SQLite does.

use eyrie::{File, Posix, Target};

use super::files::{BLOCK_BYTES, make_dir, open, write_all};
use super::micro::thousands;
use super::tree::{FILE_BYTES, Tree};
use crate::error::Result;
use crate::method::{FileWork, Plan, RowPlan, Stopwatch, Targets, ThreadPart, Worker};
use crate::run::{Workload, file_workers};
use crate::side::Side;
use crate::values::{Chooser, Pattern};

/// Pages that one transaction changes.
const CHANGED: usize = 4;

/// The rows, in their groups.
const ROWS: [&[&str]; 2] = [
    &[
        "import a tree, each entry",
        "status, each file",
        "read in random order, each file",
        "remove, each entry",
    ],
    &["transaction of 4 pages"],
];

/// The workload.
#[derive(Clone, Copy, Debug)]
pub struct Jobs {
    files: u64,
    pages: u64,
    transactions: u64,
}

impl Jobs {
    /// Makes the workload.
    pub fn new() -> Jobs {
        Jobs { files: 5000, pages: 4096, transactions: 500 }
    }

    /// Makes the workload with tiny amounts. The figures mean little.
    pub fn quick() -> Jobs {
        Jobs { files: 60, pages: 64, transactions: 20 }
    }
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs::new()
    }
}

impl Workload for Jobs {
    fn title(&self) -> String {
        "bench jobs".to_owned()
    }

    fn notes(&self) -> Vec<String> {
        vec![format!(
            "a tree of {} files with a mean of {} KiB; a transaction reads {CHANGED} of {} pages of 4 KiB, \
             writes them to a journal, syncs it, writes their new bytes, syncs the file and empties the \
             journal",
            thousands(self.files),
            FILE_BYTES >> 10,
            thousands(self.pages)
        )]
    }

    fn bytes(&self, _threads: u64) -> u64 {
        // An overwrite takes new pages before the old ones are free, and Eyrie stores a file in whole pages.
        // So files and pages count twice. The 64 MiB leave room for the journals, directories and tables.
        self.files * 2 * FILE_BYTES + self.pages * 2 * BLOCK_BYTES as u64 + (64 << 20)
    }

    fn most_threads(&self) -> u64 {
        // Each thread must have at least one page in each quarter of its file.
        self.pages / CHANGED as u64
    }

    fn plan(&self, threads: u64) -> Plan {
        let part = ThreadPart { threads, ..ThreadPart::WHOLE };
        let files = Targets::each("files", part.share(self.files));
        let pages = Targets::random("pages", part.share(self.pages));
        let groups = ROWS.iter().zip([files, pages]);
        let group = |(names, targets): (&&[&str], Targets)| {
            names.iter().map(|name| RowPlan::new(*name, targets)).collect()
        };
        Plan { groups: groups.map(group).collect() }
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        file_workers(self, side, parts)
    }
}

/// The work of one thread.
struct JobsWorker<P: Posix + Clone> {
    fs: P,
    transactions: u64,
    tree: Tree,
    database: File<P>,
    journal: File<P>,
    /// The number of the [`Pattern`] of the first page. The numbers of later pages follow it.
    first: u64,
    /// For each page the number of its changes: the version of its [`Pattern`].
    versions: Vec<u32>,
    chooser: Chooser,
}

impl FileWork for Jobs {
    fn worker<P>(&self, fs: P, directory: String, part: ThreadPart) -> Result<Box<dyn Worker>>
    where
        P: Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync,
    {
        make_dir(&fs, &directory)?;
        let path = |name: &str| format!("{directory}/{name}-{}", part.thread);
        let (database, journal) = (open(&fs, &path("database"))?, open(&fs, &path("journal"))?);
        let (pages, first) = (part.share(self.pages), part.thread << 32);
        let mut page = vec![0; BLOCK_BYTES];
        for number in 0..pages {
            Pattern::new(first + number, 0).fill(&mut page, 0);
            write_all(&fs, database.handle(), &page, number * BLOCK_BYTES as u64)?;
        }
        Ok(Box::new(JobsWorker {
            transactions: part.share(self.transactions),
            tree: Tree::new(&directory, self.files, part),
            fs,
            database,
            journal,
            first,
            versions: vec![0; pages as usize],
            chooser: Chooser::new(part.thread),
        }))
    }
}

impl<P: Posix + Clone> JobsWorker<P> {
    fn pattern(&self, page: u64) -> Pattern {
        Pattern::new(self.first + page, self.versions[page as usize])
    }

    fn transactions(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let pages = self.versions.len() as u64;
        let offset = |page: u64| page * BLOCK_BYTES as u64;
        let mut old = vec![0; CHANGED * BLOCK_BYTES];
        let mut new = vec![0; CHANGED * BLOCK_BYTES];
        for _ in 0..self.transactions {
            // The pages differ, because each comes from another quarter of the file. `most_threads` leaves
            // each thread at least four pages.
            let quarter = pages / CHANGED as u64;
            let chosen: [u64; CHANGED] =
                std::array::from_fn(|at| at as u64 * quarter + self.chooser.below(quarter));
            let before = chosen.map(|page| self.pattern(page));
            for (page, new) in chosen.into_iter().zip(new.chunks_mut(BLOCK_BYTES)) {
                self.versions[page as usize] += 1;
                self.pattern(page).fill(new, 0);
                watch.touch(page);
            }
            let (fs, database, journal) = (&self.fs, self.database.handle(), self.journal.handle());
            watch.time(1, |_| {
                for (page, old) in chosen.into_iter().zip(old.chunks_mut(BLOCK_BYTES)) {
                    fs.read_at(database, old, offset(page))?;
                }
                write_all(fs, journal, &old, 0)?;
                fs.fsync(journal)?;
                for (page, new) in chosen.into_iter().zip(new.chunks(BLOCK_BYTES)) {
                    write_all(fs, database, new, offset(page))?;
                }
                fs.fsync(database)?;
                Ok(fs.truncate(Target::Open(journal), 0)?)
            })?;
            let mut found = old.chunks(BLOCK_BYTES).zip(before);
            let right = found.all(|(found, pattern)| pattern.matches(found, 0));
            watch.require(right, || format!("one of the pages {chosen:?} is wrong"))?;
        }
        Ok(())
    }
}

impl<P: Posix + Clone + Send + Sync> Worker for JobsWorker<P>
where
    P::Handle: Send + Sync,
{
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        match row {
            0 => self.tree.unpack(&self.fs, true, watch)?,
            1 => self.tree.status(&self.fs, watch)?,
            2 => self.tree.load(&self.fs, watch)?,
            3 => self.tree.remove(&self.fs, watch)?,
            _ => self.transactions(watch)?,
        }
        Ok(true)
    }

    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let mut found = vec![0; BLOCK_BYTES];
        for page in 0..self.versions.len() as u64 {
            self.database.read_exact_at(&mut found, page * BLOCK_BYTES as u64)?;
            watch.require(self.pattern(page).matches(&found, 0), || format!("page {page} is wrong"))?;
        }
        let size = self.journal.metadata()?.size;
        watch.require(size == 0, || format!("the journal has {size} bytes"))
    }
}
