//! Tests that a run fails if a file changes during the run.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie::{Posix, PosixExt};
use eyrie_bench::method::{Control, FileWork, Plan, Rounds, Stopwatch, ThreadPart, Worker};
use eyrie_bench::workload::bpfs::Bpfs;
use eyrie_bench::workload::jobs::Jobs;
use eyrie_bench::workload::micro::{Amounts, Micro};
use eyrie_bench::workload::profile::{Filebench, Parameters, Profile};
use eyrie_bench::workload::shared::{Shared, SharedAmounts, SharedPart};
use eyrie_bench::{Result, Side, Workload, measure_on};

use super::{SmallRun, place};

/// A workload with other workers.
struct WithWorkers<'a, F> {
    work: &'a dyn Workload,
    workers: F,
}

impl<F> Workload for WithWorkers<'_, F>
where
    F: Fn(&Side, &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>>,
{
    fn title(&self) -> String {
        self.work.title()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn bytes(&self, threads: u64) -> u64 {
        self.work.bytes(threads)
    }

    fn plan(&self, threads: u64) -> Plan {
        self.work.plan(threads)
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        (self.workers)(side, parts)
    }
}

/// Work that changes or adds a file.
struct Damaging<W> {
    work: W,
    /// The path of the file, relative to the directory of the thread.
    path: &'static str,
    /// The row before whose rounds the file changes. `None` for a change before the final comparison.
    before: Option<usize>,
}

impl<W: Workload + FileWork> Damaging<W> {
    fn at_the_end(work: W, path: &'static str) -> Damaging<W> {
        Damaging { work, path, before: None }
    }

    /// Runs the workload, and returns its error.
    fn error_of_run(&self) -> String {
        let workers = |side: &Side, parts: &[ThreadPart]| {
            parts.iter().map(|&part| side.file_worker(self, part)).collect()
        };
        let work = WithWorkers { work: &self.work, workers };
        SmallRun::default().run(&work).unwrap_err().to_string()
    }
}

/// The work of one thread of [`Damaging`].
struct DamagingWorker<P> {
    work: Box<dyn Worker>,
    fs: P,
    path: String,
    before: Option<usize>,
}

impl<P: Posix + Clone> DamagingWorker<P> {
    fn damage(&self) -> Result<()> {
        let open = || self.fs.options().write(true).open(&self.path);
        match &self.path[..] {
            more if more.ends_with("more") => self.fs.write(more, "")?,
            log if log.contains("log") => open()?.set_len(100)?,
            source if source.ends_with(".c") => open()?.write_all_at(b"other", 0)?,
            _ => open()?.write_all_at(b"other", 5000)?,
        }
        Ok(())
    }
}

impl<W: FileWork> FileWork for Damaging<W> {
    fn worker<P>(&self, fs: P, directory: String, part: ThreadPart) -> Result<Box<dyn Worker>>
    where
        P: Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync,
    {
        let path = format!("{directory}/{}", self.path);
        let work = self.work.worker(fs.clone(), directory, part)?;
        Ok(Box::new(DamagingWorker { work, fs, path, before: self.before }))
    }
}

impl<P: Posix + Clone + Send> Worker for DamagingWorker<P> {
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        if self.before == Some(row) {
            self.damage()?;
        }
        self.work.round(row, watch)
    }

    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        if self.before.is_none() {
            self.damage()?;
        }
        self.work.prove(watch)
    }
}

#[test]
fn wrong_bytes_and_wrong_names_fail_the_run() {
    for (path, message) in [
        ("large", "block 1 is wrong"),
        ("scattered-0", "the scattered file is wrong"),
        ("few/file-00000003", "file 3 is wrong"),
        ("many/more", "1001 names instead of 1000"),
    ] {
        let error = Damaging::at_the_end(Micro::new(Amounts::quick()), path).error_of_run();
        assert!(error.starts_with("eyrie: at the end: ") && error.contains(message), "{error}");
    }
}

#[test]
fn short_log_fails_the_run() {
    let webserver = Filebench::new(Profile::Webserver, Parameters::Stock, false).unwrap().quick();
    let error = Damaging::at_the_end(webserver, "log-0").error_of_run();
    assert!(error.starts_with("eyrie: at the end: ") && error.contains("the log has wrong bytes"), "{error}");
}

/// Damages a file of a tree before the removal of the tree. Returns the error of the run.
fn damage_before_removal(work: impl Workload + FileWork) -> String {
    let rows = work.plan(1).groups.into_iter().flatten();
    let remove = rows.map(|row| row.name).position(|name| name.starts_with("remove"));
    let path = "tree-0/part-0000/module-000000/source-00000003.c";
    assert!(remove.is_some());
    Damaging { work, path, before: remove }.error_of_run()
}

#[test]
fn wrong_bytes_of_a_tree_fail_the_run() {
    for error in [damage_before_removal(Bpfs::quick()), damage_before_removal(Jobs::quick())] {
        assert!(
            error.starts_with("eyrie: remove") && error.contains("file 3 of the tree is wrong"),
            "{error}"
        );
    }
}

#[test]
fn wrong_bytes_of_a_mail_fail_the_run() {
    /// The first mail, and the number of checks for an interrupt since it exists.
    static MAIL: OnceLock<PathBuf> = OnceLock::new();
    static CHECKS: AtomicU64 = AtomicU64::new(0);
    /// After the first mail, the run makes 99 mails and 200 transactions. The next check is the one before
    /// the comparison.
    const BEFORE: u64 = 99 + 200;
    fn damage() -> bool {
        let mail = MAIL.get().expect("the path is set before the run");
        if mail.exists() && CHECKS.fetch_add(1, Ordering::Relaxed) == BEFORE {
            std::fs::write(mail, "other").expect("the mail can be written");
        }
        false
    }
    let place = place();
    MAIL.set(place.path().join("bench-0/mail-0-00000000")).expect("the path is set once");
    let sides = [Side::of_directory(place.path()).unwrap()];
    let control = Control { rounds: Rounds::exactly(1), stop: damage, progress: &mut |_| {} };
    let error = measure_on(&Bpfs::quick(), &sides, (1, false), control).unwrap_err().to_string();
    assert!(error.contains("mail 0 is wrong before its removal"), "{error}");
}

/// The work of one thread on a directory of the host. Before the final comparison, one file of this directory
/// changes.
struct DamagedHostWorker {
    work: Box<dyn Worker>,
    path: PathBuf,
}

impl Worker for DamagedHostWorker {
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        self.work.round(row, watch)
    }

    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let mut bytes = std::fs::read(&self.path).unwrap_or_default();
        bytes.iter_mut().take(10).for_each(|byte| *byte ^= 1);
        std::fs::write(&self.path, bytes)?;
        self.work.prove(watch)
    }
}

#[test]
fn damage_before_the_last_comparison_fails_the_run() {
    for (path, message) in [
        ("bench-0/read-file", "block 0 is wrong"),
        ("bench-0/read/file-00000003", "file 3 is wrong"),
        ("read-keys/key-00000004", "key 4 has a wrong value"),
        ("bench-0/file", "block 0 is wrong"),
        ("changed-keys/key-00000005", "key 5 has a wrong value"),
        ("bench-0/names/more", "1 names instead of 0"),
    ] {
        let place = place();
        let shared = Shared::new(SharedAmounts::quick(), &[SharedPart::Changes]);
        let damaged =
            |work| Box::new(DamagedHostWorker { work, path: place.path().join(path) }) as Box<dyn Worker>;
        let workers = |side: &Side, parts: &[ThreadPart]| {
            Ok(shared.workers(side, parts)?.into_iter().map(damaged).collect())
        };
        let work = WithWorkers { work: &shared, workers };
        let sides = [Side::of_directory(place.path()).unwrap()];
        let control = Control { rounds: Rounds::exactly(1), stop: || false, progress: &mut |_| {} };
        let error = measure_on(&work, &sides, (1, false), control).unwrap_err().to_string();
        assert!(error.contains("at the end: ") && error.contains(message), "{path}: {error}");
    }
}
