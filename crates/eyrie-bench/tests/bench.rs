//! Small runs of all workloads, and sides that are wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie::{MediumChoice, PosixExt};
use eyrie_bench::method::{Control, FileWork, Plan, Rounds, ThreadPart, Worker};
use eyrie_bench::workload::bpfs::Bpfs;
use eyrie_bench::workload::catd::Catd;
use eyrie_bench::workload::jobs::Jobs;
use eyrie_bench::workload::kv::{Keys, StoreScale};
use eyrie_bench::workload::micro::{Amounts, Micro};
use eyrie_bench::workload::profile::{Filebench, Parameters, Profile};
use eyrie_bench::{
    BenchReport, Durability, Error, Result, Rival, Setting, Side, SideRequest, Workload, measure_on, run,
};

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The settings of a small run.
struct SmallRun {
    medium: MediumChoice,
    durability: Durability,
    against: Vec<Rival>,
    threads: Vec<usize>,
    shared: bool,
    stop: fn() -> bool,
}

impl Default for SmallRun {
    fn default() -> SmallRun {
        SmallRun {
            medium: MediumChoice::Auto,
            durability: Durability::Later,
            against: vec![Rival::Host],
            threads: vec![1],
            shared: false,
            stop: || false,
        }
    }
}

impl SmallRun {
    /// Runs a workload in a new directory, which must be empty afterwards.
    fn run(self, workload: &dyn Workload) -> Result<BenchReport> {
        let place = place();
        let setting = Setting {
            request: SideRequest::new(place.path(), self.medium, self.durability, self.against),
            threads: self.threads,
            shared: self.shared,
            rounds: Rounds::exactly(2),
            command: "test".to_owned(),
            stop: self.stop,
            progress: &mut |_, _, _| {},
        };
        let report = run(workload, setting);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "the run left files");
        report
    }
}

/// Checks that every row of a report has figures of Eyrie, and that the figures of each side make sense.
/// Other sides may lack an operation.
fn require_figures(report: &BenchReport, sides: usize) {
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    assert_eq!(report.sides.len(), sides);
    assert!(!report.rows.is_empty());
    for row in &report.rows {
        assert!(row.touched > 0 && row.sides.len() == sides, "{}", row.name);
        for side in row.sides.iter().flatten() {
            assert!(side.us > 0.0 && side.us.is_finite() && side.operations > 0, "{}", row.name);
        }
        assert!(row.sides[0].is_some(), "{} lacks Eyrie", row.name);
    }
}

#[test]
fn micro_runs_on_volume_and_host() {
    let report = SmallRun::default().run(&Micro::new(Amounts::quick())).unwrap();
    require_figures(&report, 2);
    let random = report.rows.iter().find(|row| row.name == "read 4 KiB").unwrap();
    let figures = random.sides[1].as_ref().unwrap();
    assert_eq!((figures.rounds, figures.operations), (2, 128));
    assert!(figures.ratio.unwrap() > 0.0 && figures.latency.unwrap().p50 > 0.0);
    // Each block of the counted rounds and of the round for the latency was compared.
    assert_eq!(figures.compared, 3 * 64);
}

#[test]
fn micro_runs_with_threads_apart_and_together() {
    for shared in [false, true] {
        let settings = SmallRun { threads: vec![1, 2], shared, ..SmallRun::default() };
        let report = settings.run(&Micro::new(Amounts::quick())).unwrap();
        require_figures(&report, 2);
        assert!(report.rows.iter().any(|row| row.threads == 2));
    }
}

#[test]
fn disks_count_their_bytes() {
    let settings = SmallRun { medium: MediumChoice::Paged, ..SmallRun::default() };
    let report = settings.run(&Micro::new(Amounts::quick())).unwrap();
    let row = report.rows.iter().find(|row| row.name == "write 4 KiB + fsync").unwrap();
    let figures = row.sides[0].as_ref().unwrap();
    assert!(figures.written_bytes.unwrap() >= 4096.0 && figures.drains.unwrap() >= 1.0, "{figures:?}");
    assert!(report.media().is_some() && report.html().contains("drains"));
}

#[test]
fn rows_count_barriers_and_publishes() {
    let report = SmallRun::default().run(&Micro::new(Amounts::quick())).unwrap();
    let row = |name: &str| report.rows.iter().find(|row| row.name == name).unwrap();
    let counts = |name: &str| {
        let figures = row(name).sides[0].as_ref().unwrap();
        (figures.barriers.unwrap(), figures.publishes.unwrap())
    };
    // A call that changes nothing stores nothing.
    assert_eq!([counts("stat"), counts("read 4 KiB")], [(0.0, 0.0); 2]);
    // A new page must be ordered before the pointer to it, and the pointer is one word.
    for name in ["overwrite 4 KiB", "create + write 4 KiB", "unlink", "rename"] {
        let (barriers, publishes) = counts(name);
        assert!(barriers >= 1.0 && publishes >= 1.0 && barriers < 100.0, "{name}: {barriers} {publishes}");
    }
    let host = row("unlink").sides[1].as_ref().unwrap();
    assert_eq!((host.barriers, host.publishes), (None, None));
    assert!(report.media().unwrap().rows.iter().all(|cells| cells[1] == "eyrie"));
}

#[test]
fn keys_run_on_volume_and_host() {
    for (durability, threads, shared) in
        [(Durability::Later, 1, false), (Durability::EachCall, 1, false), (Durability::Later, 2, true)]
    {
        let settings = SmallRun { durability, threads: vec![threads], shared, ..SmallRun::default() };
        let report = settings.run(&Keys::new(Keys::quick(), durability)).unwrap();
        require_figures(&report, 2);
        let row = report.rows.iter().find(|row| row.name.starts_with("get in place")).unwrap();
        assert!(row.sides[1].is_none(), "a file cannot be lent");
    }
}

#[test]
fn profiles_run_with_every_source_of_parameters() {
    let mut runs = 0;
    for profile in [Profile::Fileserver, Profile::Webserver, Profile::Webproxy, Profile::Varmail] {
        for parameters in [Parameters::Stock, Parameters::Aerie, Parameters::Spanfs] {
            for keys in [false, true] {
                let Ok(workload) = Filebench::new(profile, parameters, keys) else { continue };
                let settings = SmallRun { threads: vec![1 + runs % 2], ..SmallRun::default() };
                require_figures(&settings.run(&workload.quick()).unwrap(), 2);
                runs += 1;
            }
        }
    }
    assert_eq!(runs, 11);
}

#[test]
fn papers_and_jobs_run_with_one_and_two_threads() {
    let workloads: [&dyn Workload; 3] = [&Catd::new(100), &Bpfs::quick(), &Jobs::quick()];
    for workload in workloads {
        for shared in [false, true] {
            let settings = SmallRun { threads: vec![1, 2], shared, ..SmallRun::default() };
            require_figures(&settings.run(workload).unwrap(), 2);
        }
    }
}

#[test]
fn every_thread_has_room_for_its_files() {
    let of_threads = |threads| Catd::new(10_000).bytes(threads);
    assert!(of_threads(64) >= 64 * 10_000 * 4096);
    assert_eq!(of_threads(1), of_threads(16));
    let webserver = Filebench::new(Profile::Webserver, Parameters::Stock, false).unwrap();
    assert!(webserver.bytes(64) >= 64 * (16 << 20), "each thread has a log of up to 16 MiB");
}

#[test]
fn store_without_feature_or_files_is_left_out_with_a_reason() {
    let lmdb: Rival = "lmdb".parse().unwrap();
    let settings = SmallRun { against: vec![lmdb, Rival::Host], ..SmallRun::default() };
    let report = settings.run(&Micro::new(Amounts::quick())).unwrap();
    assert!(report.skipped[0].starts_with("lmdb is left out: it has no files"), "{:?}", report.skipped);
    assert_eq!(report.sides.len(), 2);
    let settings = SmallRun { against: vec![lmdb], ..SmallRun::default() };
    let report = settings.run(&Keys::new(Keys::quick(), Durability::Later)).unwrap();
    if cfg!(feature = "peers") {
        assert!(report.skipped.is_empty());
    } else {
        assert!(report.skipped[0].contains("--features peers"), "{:?}", report.skipped);
    }
    assert!("ntfs".parse::<Rival>().unwrap_err().contains("tmpfs, ramfs"));
}

#[test]
fn stores_of_too_many_files_are_left_out_with_any_number_of_threads() {
    let scale = StoreScale { keys: 200_001, value_bytes: 8 };
    for (threads, shared) in [(1, false), (2, false), (2, true)] {
        let settings = SmallRun { threads: vec![threads], shared, ..SmallRun::default() };
        let report = settings.run(&Keys::of(vec![scale], &[], 1)).unwrap();
        let sides: Vec<bool> = report.rows[0].sides.iter().map(Option::is_some).collect();
        assert_eq!(sides, [true, false], "{threads} threads");
        let left_out = "not on sides whose values are files of the kernel";
        assert!(report.notes.iter().any(|note| note.contains(left_out)));
    }
}

#[cfg(feature = "peers")]
#[test]
fn every_store_returns_right_results() {
    let against: Vec<Rival> =
        ["lmdb", "redb", "fjall", "sqlite"].into_iter().map(|name| name.parse().unwrap()).collect();
    for (durability, threads) in [(Durability::Later, 1), (Durability::Later, 2), (Durability::EachCall, 1)] {
        for shared in [false, true] {
            let against = against.clone();
            let settings =
                SmallRun { durability, against, threads: vec![threads], shared, ..SmallRun::default() };
            let report = settings.run(&Keys::new(Keys::quick(), durability)).unwrap();
            require_figures(&report, 5);
        }
    }
    let workload = Filebench::new(Profile::Webproxy, Parameters::Aerie, true).unwrap();
    require_figures(&SmallRun { against, ..SmallRun::default() }.run(&workload.quick()).unwrap(), 5);
}

#[test]
fn interrupt_ends_the_run_and_leaves_nothing() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    for _ in 0..5 {
        CALLS.store(0, Ordering::Relaxed);
        let settings =
            SmallRun { stop: || CALLS.fetch_add(1, Ordering::Relaxed) > 300, ..SmallRun::default() };
        let error = settings.run(&Micro::new(Amounts::quick())).unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{error}");
    }
}

#[test]
fn mounts_of_the_run_disappear() {
    let mounts = || std::fs::read_to_string("/proc/mounts").unwrap();
    let against = vec![Rival::Ramfs, Rival::Ext4, Rival::Xfs, Rival::Mount];
    let report = SmallRun { against, ..SmallRun::default() }.run(&Micro::new(Amounts::quick())).unwrap();
    assert_eq!(report.sides.len() + report.skipped.len(), 5);
    let place = format!("eyrie-bench-{}", std::process::id());
    assert!(!mounts().contains(&place), "{}", mounts());
}

/// A workload that changes or adds a file.
struct Damaging<W> {
    work: W,
    /// The path of the file, relative to the directory of the thread.
    path: &'static str,
    /// The row before whose rounds the file changes. `None` for a change before the final comparison.
    before: Option<usize>,
}

impl<W> Damaging<W> {
    fn at_the_end(work: W, path: &'static str) -> Damaging<W> {
        Damaging { work, path, before: None }
    }
}

impl<W: Workload + FileWork> Workload for Damaging<W> {
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
        Workload::plan(&self.work, threads)
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        parts.iter().map(|&part| side.file_worker(self, part)).collect()
    }
}

/// The work of one thread of [`Damaging`].
struct DamagingWorker<P> {
    work: Box<dyn Worker>,
    fs: P,
    path: String,
    before: Option<usize>,
}

impl<P: eyrie::Posix + Clone> DamagingWorker<P> {
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
        P: eyrie::Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync,
    {
        let path = format!("{directory}/{}", self.path);
        let work = self.work.worker(fs.clone(), directory, part)?;
        Ok(Box::new(DamagingWorker { work, fs, path, before: self.before }))
    }
}

impl<P: eyrie::Posix + Clone + Send> Worker for DamagingWorker<P> {
    fn round(&mut self, row: usize, watch: &mut eyrie_bench::method::Stopwatch) -> Result<bool> {
        if self.before == Some(row) {
            self.damage()?;
        }
        self.work.round(row, watch)
    }

    fn prove(&mut self, watch: &mut eyrie_bench::method::Stopwatch) -> Result<()> {
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
        let work = Damaging::at_the_end(Micro::new(Amounts::quick()), path);
        let error = SmallRun::default().run(&work).unwrap_err().to_string();
        assert!(error.starts_with("eyrie: at the end: ") && error.contains(message), "{error}");
    }
}

#[test]
fn short_log_fails_the_run() {
    let webserver = Filebench::new(Profile::Webserver, Parameters::Stock, false).unwrap().quick();
    let error = SmallRun::default().run(&Damaging::at_the_end(webserver, "log-0")).unwrap_err().to_string();
    assert!(error.starts_with("eyrie: at the end: ") && error.contains("the log has wrong bytes"), "{error}");
}

/// Damages a file of a tree after its patch or its last read.
fn damage_before_removal(work: impl Workload + FileWork) -> String {
    let rows = work.plan(1).groups.into_iter().flatten();
    let remove = rows.map(|row| row.name).position(|name| name.starts_with("remove"));
    let path = "tree-0/part-0000/module-000000/source-00000003.c";
    assert!(remove.is_some());
    SmallRun::default().run(&Damaging { work, path, before: remove }).unwrap_err().to_string()
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

#[test]
fn sides_that_exist_can_be_measured() {
    let place = place();
    let control = Control { rounds: Rounds::exactly(1), stop: || false, progress: &mut |_| {} };
    let sides = [Side::of_directory(place.path()).unwrap()];
    let rows = measure_on(&Micro::new(Amounts::quick()), &sides, (1, false), control).unwrap();
    assert!(rows.iter().all(|row| row.sides.len() == 1 && row.sides[0].as_ref().unwrap().ratio.is_none()));
    assert!(Side::of_directory(Path::new("/nowhere")).is_err());
}

#[test]
fn page_has_everything_in_itself() {
    let report = SmallRun::default().run(&Micro::new(Amounts::quick())).unwrap();
    let page = report.html();
    assert!(page.matches("<svg").count() == 2 && page.contains("prefers-color-scheme: dark"));
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("NaN"));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), report.rows.len());
}

#[test]
fn impossible_requests_have_reasons() {
    let without_threads =
        SmallRun { threads: vec![0], ..SmallRun::default() }.run(&Micro::new(Amounts::quick()));
    assert!(matches!(without_threads.unwrap_err(), Error::Request(_)));
    let few = Keys::new(vec![StoreScale { keys: 2, value_bytes: 8 }], Durability::Later);
    let error = SmallRun { threads: vec![1, 3], ..SmallRun::default() }.run(&few).unwrap_err();
    assert!(matches!(&error, Error::Request(why) if why.contains("use at most 2")), "{error}");
    let exact = SmallRun { threads: vec![1, 2], ..SmallRun::default() }.run(&few).unwrap();
    require_figures(&exact, 2);
    for (profile, parameters, keys) in [
        (Profile::Varmail, Parameters::Aerie, false),
        (Profile::Webproxy, Parameters::Spanfs, false),
        (Profile::Varmail, Parameters::Stock, true),
    ] {
        assert!(matches!(Filebench::new(profile, parameters, keys), Err(Error::Request(_))));
    }
}
