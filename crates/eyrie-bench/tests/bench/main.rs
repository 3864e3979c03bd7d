//! Small runs of all workloads, sides that cannot be made, and requests that must be refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie::MediumChoice;
use eyrie_bench::method::{Control, Rounds};
use eyrie_bench::side::SideInformation;
use eyrie_bench::workload::bpfs::Bpfs;
use eyrie_bench::workload::catd::Catd;
use eyrie_bench::workload::jobs::Jobs;
use eyrie_bench::workload::kv::{Keys, StoreScale};
use eyrie_bench::workload::micro::{Amounts, Micro};
use eyrie_bench::workload::profile::{Filebench, Parameters, Profile};
use eyrie_bench::workload::shared::{Shared, SharedAmounts, SharedPart};
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
        // Each of five threads has less than 1 MiB of the large file.
        let settings = SmallRun { threads: vec![1, 2, 5], shared, ..SmallRun::default() };
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
fn sides_say_their_place_and_durability() {
    let of = |durability, medium, workload: &dyn Workload| {
        let report = SmallRun { durability, medium, ..SmallRun::default() }.run(workload).unwrap();
        let text = |side: &SideInformation| (side.place.clone(), side.durability.clone());
        (text(&report.sides[0]), text(&report.sides[1]), report)
    };
    let keys = |durability| Keys::new(Keys::quick(), durability);
    let (ours, theirs, _) = of(Durability::Later, MediumChoice::Dram, &keys(Durability::Later));
    assert!(ours.0.starts_with("volume on dram, in /"), "{ours:?}");
    assert!(ours.1.ends_with("; no sync") && theirs.1.starts_with("no sync"), "{ours:?} {theirs:?}");
    let (ours, theirs, report) = of(Durability::EachCall, MediumChoice::Paged, &keys(Durability::EachCall));
    assert!(
        ours.0.starts_with("volume on paged, in /") && theirs.0.contains(", in /"),
        "{ours:?} {theirs:?}"
    );
    assert!(ours.1.ends_with("; a sync after each change of a key"), "{ours:?}");
    assert!(theirs.1.starts_with("a syncfs after each change of a key"), "{theirs:?}");
    let drains = |name: &str| {
        let row = report.rows.iter().find(|row| row.name.starts_with(name)).unwrap();
        row.sides[0].as_ref().unwrap().drains.unwrap()
    };
    // After a round the run makes a sync, and then counts the drains. So the drain of this sync counts, too.
    let of_rows = ["put", "erase", "get"].map(drains);
    assert!(of_rows[0] >= 1.0 && of_rows[1] >= 1.0 && of_rows[2] < 0.1, "{of_rows:?}");
    let catd = Catd::new(20);
    let (ours, theirs, _) = of(Durability::Later, MediumChoice::Paged, &catd);
    assert!(ours.1.ends_with("; fsync only where a row has it"), "{ours:?}");
    assert!(theirs.1.starts_with("fsync "), "{theirs:?}");
    let (ours, _, report) = of(Durability::Later, MediumChoice::Dram, &catd);
    assert!(ours.1.ends_with("; fsync has nothing to do"), "{ours:?}");
    assert!(report.sides[0].used_bytes.unwrap() > 0 && report.peak_memory_bytes > 0);
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
fn shared_runs_without_a_service() {
    let report = SmallRun::default().run(&Shared::new(SharedAmounts::quick(), &[])).unwrap();
    assert_eq!(report.sides.len(), 2);
    for row in &report.rows {
        let has_times = row.sides.iter().all(|side| side.as_ref().is_some_and(|side| side.us > 0.0));
        // Only a service takes grants.
        assert_eq!(has_times, !row.name.starts_with("stat of a file that"), "{}", row.name);
    }
    let row = |name: &str| report.rows.iter().find(|row| row.name == name).unwrap();
    // Sustained calls change all keys and blocks, and a burst changes a part of them.
    let touched = |change: &str| ["burst", "sustained"].map(|how| row(&format!("{change}, {how}")).touched);
    assert_eq!(touched("append 4 KiB"), [40, 1000]);
    assert_eq!(touched("overwrite 4 KiB")[1], 256);
    assert_eq!(touched("replace a value, 4 KiB")[1], 64);
    let sustained = row("rename, sustained").sides[0].as_ref().unwrap();
    assert_eq!((sustained.rounds, sustained.operations), (2, 2000), "the end of the wait is no operation");
    let clients = row("change names, two clients apart").sides[0].as_ref().unwrap();
    assert!(clients.latency.is_none() && clients.barriers > Some(1.0), "{clients:?}");
    let grants = Shared::new(SharedAmounts::quick(), &[SharedPart::Reads, SharedPart::Grants]);
    assert_eq!(Workload::plan(&grants, 1).rows(), 10);
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
            let settings: Vec<&str> = report.sides[1..].iter().map(|side| &side.durability[..]).collect();
            let expected = match durability {
                Durability::Later => ["MDB_NOSYNC", "Durability::None", "syncs nothing", "synchronous=OFF"],
                Durability::EachCall => {
                    ["syncs each", "Durability::Immediate", "PersistMode::SyncAll", "synchronous=FULL"]
                }
            };
            assert!(settings.iter().zip(expected).all(|(text, part)| text.contains(part)), "{settings:?}");
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

/// Returns the names of the mounts that this user can make here.
fn possible_mounts() -> Vec<&'static str> {
    let device = |path: &str| std::fs::File::options().read(true).write(true).open(path).is_ok();
    if !rustix::process::geteuid().is_root() || !device("/dev/fuse") {
        eprintln!("NOT TESTED: only root mounts sides, with /dev/fuse");
        return Vec::new();
    }
    let has = |name: &str| ["/usr/sbin", "/sbin"].iter().any(|at| Path::new(at).join(name).exists());
    let loops = device("/dev/loop-control");
    let mut names = vec!["ramfs", "mount"];
    names.extend((loops && has("mkfs.ext4")).then_some("ext4"));
    names.extend((loops && has("mkfs.xfs")).then_some("xfs"));
    names
}

#[test]
fn mounts_of_the_run_disappear() {
    let mounts = || std::fs::read_to_string("/proc/mounts").unwrap();
    let against = vec![Rival::Ramfs, Rival::Ext4, Rival::Xfs, Rival::Mount];
    let report = SmallRun { against, ..SmallRun::default() }.run(&Micro::new(Amounts::quick())).unwrap();
    assert_eq!(report.sides.len() + report.skipped.len(), 5);
    let names: Vec<&str> = report.sides.iter().map(|side| &side.name[..]).collect();
    for name in possible_mounts() {
        assert!(names.contains(&name), "{name}: {:?}", report.skipped);
    }
    let place = format!("eyrie-bench-{}", std::process::id());
    assert!(!mounts().contains(&place), "{}", mounts());
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
    let client = eyrie_bench::client::run(&["juggle", "", "/", "0", "1"].map(Into::into)).unwrap_err();
    assert!(matches!(&client, Error::Request(why) if why.contains("juggle")), "{client}");
    assert!(matches!(eyrie_bench::client::run(&[]).unwrap_err(), Error::Request(_)));
    // The names of the files of all threads must differ in their eight digits.
    let micro = Micro::new(Amounts::quick());
    let workloads: [(&dyn Workload, usize); 2] = [(&micro, 257), (&Catd::new(60_000_000), 2)];
    for (workload, threads) in workloads {
        let error = SmallRun { threads: vec![threads], ..SmallRun::default() }.run(workload).unwrap_err();
        let most = format!("use at most {}", threads - 1);
        assert!(matches!(&error, Error::Request(why) if why.ends_with(&most)), "{error}");
    }
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
