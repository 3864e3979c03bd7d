//! `eyrie bench`: measures a workload on a new volume and on other file systems and stores, in alternation.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use eyrie::MediumChoice;
use eyrie_bench::client;
use eyrie_bench::method::Rounds;
use eyrie_bench::report::{BenchReport, ReportTable};
use eyrie_bench::workload::bpfs::Bpfs;
use eyrie_bench::workload::catd::Catd;
use eyrie_bench::workload::jobs::Jobs;
use eyrie_bench::workload::kv::{Keys, StoreScale};
use eyrie_bench::workload::micro::{Amounts, Micro};
use eyrie_bench::workload::profile::{Filebench, Parameters, Profile};
use eyrie_bench::workload::shared::{Shared, SharedAmounts, SharedPart};
use eyrie_bench::{Durability, Error, Rival, Setting, SideRequest, Workload};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use crate::{interrupt, text};

mod page;

use page::ReportPage;

/// Rounds of each row, unless the user asks for another number.
const ROUNDS: u32 = 10;

/// Measure a workload on Eyrie and on other file systems and stores
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie bench micro
  eyrie bench micro --against tmpfs,ramfs,ext4 --html report.html
  eyrie bench kv --against lmdb,redb,fjall,sqlite
  eyrie bench profile varmail --against tmpfs,ext4 --threads 1,2

Every side gets new files, and the run removes all of them. Rounds of the sides alternate. A result is the \
median of the rounds. A ratio (×) is the time of the other side divided by the time of Eyrie: the median of \
the ratios of single rounds. Above 1, Eyrie is faster. The run fails if a side returns a wrong byte.")]
pub struct BenchArgs {
    #[command(subcommand)]
    workload: BenchWorkload,
}

/// The workloads.
#[derive(Debug, Subcommand)]
enum BenchWorkload {
    /// Single calls on files: those of Table 3 of the paper about Aerie, with the sizes of this table, and
    /// others
    #[command(after_help = "\
Examples:
  eyrie bench micro
  eyrie bench micro --against tmpfs,ramfs,ext4 --html report.html")]
    Micro(BenchOptions),
    /// Keys and values: get, put, erase, batches, scans and loads
    #[command(after_help = "\
Examples:
  eyrie bench kv --keys 10000 --value 100
  eyrie bench kv --medium paged --sync each --against lmdb,redb,fjall,sqlite")]
    Kv(KvOptions),
    /// Application profiles of filebench
    #[command(after_help = "\
Examples:
  eyrie bench profile varmail --against tmpfs,ext4 --threads 1,2
  eyrie bench profile webproxy --parameters aerie --keys")]
    Profile(ProfileOptions),
    /// Create, append with fsync, truncate and delete many files: the benchmark of the paper about SpanFS
    #[command(after_help = "\
Examples:
  eyrie bench catd --threads 1,2
  eyrie bench catd --files 1000 --medium paged --against ext4")]
    Catd(CatdOptions),
    /// Appends and random writes of several sizes, new files, mails, a tree: as in the paper about BPFS
    #[command(after_help = "\
Examples:
  eyrie bench bpfs --against tmpfs,ext4")]
    Bpfs(BenchOptions),
    /// Work of users: import a tree, ask for its status, read it in random order, change pages of a database
    #[command(after_help = "\
Examples:
  eyrie bench jobs --against tmpfs,mount --json")]
    Jobs(BenchOptions),
    /// One volume served to programs: a burst of changes, sustained changes, reads, several programs, and
    /// grants that move between programs
    #[command(after_help = "\
Examples:
  eyrie bench shared
  eyrie bench shared --only changes --against served,confined,tmpfs
  eyrie bench shared --only reads,clients --against served,synchronous,tmpfs --html report.html

The first side is the same volume in this process. Without --against, the other sides are `served` and \
`confined`. A ratio above 1 means that a call takes longer than in this process. In a burst, the log of the \
program has room for all changes. The time of sustained changes ends when the service has applied them. \
Two clients are two processes; in this process they are two threads.")]
    Shared(SharedOptions),
}

/// The options of `shared`.
#[derive(Debug, Args)]
struct SharedOptions {
    #[command(flatten)]
    options: BenchOptions,
    /// Measure only these parts: reads, changes (of one program), clients (one and two programs), grants
    /// (files that another program has changed)
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    only: Vec<BenchPart>,
    /// Do the work of a program of another run
    #[arg(long, hide = true, num_args = client::ARGUMENTS, allow_hyphen_values = true)]
    client: Option<Vec<OsString>>,
}

/// A value of `--only`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchPart {
    /// Calls that change nothing
    Reads,
    /// Changes of one program
    Changes,
    /// Changes of names by one and by two programs
    Clients,
    /// Look-ups of files that another program has logged
    Grants,
}

impl SharedOptions {
    fn workload(&self) -> Shared {
        let part = |part: &BenchPart| match part {
            BenchPart::Reads => SharedPart::Reads,
            BenchPart::Changes => SharedPart::Changes,
            BenchPart::Clients => SharedPart::Clients,
            BenchPart::Grants => SharedPart::Grants,
        };
        let parts: Vec<SharedPart> = self.only.iter().map(part).collect();
        let amounts = if self.options.quick { SharedAmounts::quick() } else { SharedAmounts::standard() };
        Shared::new(amounts, &parts)
    }
}

/// The options of `catd`.
#[derive(Debug, Args)]
struct CatdOptions {
    #[command(flatten)]
    options: BenchOptions,
    /// Files of each thread [default: 10,000, the number of the paper]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    files: Option<u64>,
}

/// The options of `profile`.
#[derive(Debug, Args)]
struct ProfileOptions {
    /// Profile to measure
    #[arg(value_enum, value_name = "NAME")]
    profile: BenchProfile,
    #[command(flatten)]
    options: BenchOptions,
    /// Source of the numbers and sizes of files
    #[arg(long, value_enum, default_value_t)]
    parameters: BenchParameters,
    /// Use put, get and erase in place of files; only for webproxy
    #[arg(long)]
    keys: bool,
}

/// A profile, as the command line names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchProfile {
    /// Create, append, read, delete and stat large files in many directories
    Fileserver,
    /// Read ten files and append to a log
    Webserver,
    /// Replace a file of one directory and read five
    Webproxy,
    /// Replace, append to and read the mails of one directory, with syncs
    Varmail,
}

/// The value of `--parameters`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
enum BenchParameters {
    /// The parameters of filebench
    #[default]
    Stock,
    /// The parameters of the paper about Aerie
    Aerie,
    /// The parameters of the paper about SpanFS
    Spanfs,
}

impl ProfileOptions {
    fn workload(&self) -> eyrie_bench::Result<Filebench> {
        let profile = match self.profile {
            BenchProfile::Fileserver => Profile::Fileserver,
            BenchProfile::Webserver => Profile::Webserver,
            BenchProfile::Webproxy => Profile::Webproxy,
            BenchProfile::Varmail => Profile::Varmail,
        };
        let parameters = match self.parameters {
            BenchParameters::Stock => Parameters::Stock,
            BenchParameters::Aerie => Parameters::Aerie,
            BenchParameters::Spanfs => Parameters::Spanfs,
        };
        let workload = Filebench::new(profile, parameters, self.keys)?;
        Ok(if self.options.quick { workload.quick() } else { workload })
    }
}

/// The options of `kv`.
#[derive(Debug, Args)]
struct KvOptions {
    #[command(flatten)]
    options: BenchOptions,
    /// Number of keys [default: one store of 1,000 keys, one of 100,000 and one of 1,000,000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: Option<u64>,
    /// Size of each value, such as 100 or 16K [default: 4K; without --keys, 100 bytes in the largest store]
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    value: Option<u64>,
    /// The moment at which each change is durable, on all sides [default: later on dram, else each]
    #[arg(long, value_enum, value_name = "WHEN")]
    sync: Option<BenchSync>,
}

/// The value of `--sync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchSync {
    /// Some time after the call, or never
    Later,
    /// Before the call returns
    Each,
}

impl KvOptions {
    fn durability(&self) -> Durability {
        match self.sync {
            Some(BenchSync::Later) => Durability::Later,
            Some(BenchSync::Each) => Durability::EachCall,
            None if self.options.medium == BenchMedium::Dram => Durability::Later,
            None => Durability::EachCall,
        }
    }

    fn scales(&self) -> Vec<StoreScale> {
        let value_bytes = self.value.map(|bytes| bytes as usize);
        match (self.keys, self.options.quick) {
            (Some(keys), _) => vec![StoreScale { keys, value_bytes: value_bytes.unwrap_or(4096) }],
            (None, quick) => {
                let scales = if quick { Keys::quick() } else { Keys::standard() };
                let sized = |scale: StoreScale| StoreScale {
                    value_bytes: value_bytes.unwrap_or(scale.value_bytes),
                    ..scale
                };
                scales.into_iter().map(sized).collect()
            }
        }
    }
}

/// The options of all workloads.
#[derive(Clone, Debug, Args)]
struct BenchOptions {
    /// Sides to compare with: tmpfs, ramfs, ext4, xfs, host (a directory beside the volume), mount (a volume
    /// mounted with FUSE), served (a volume of a service), confined (the same, with the service on the
    /// processor of the first thread), synchronous (the same, with a service that defers no change), and for
    /// keys lmdb, redb, fjall, sqlite [default: tmpfs; of `shared`: served,confined]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    against: Option<Vec<Rival>>,
    /// Numbers of threads; each number gets a run of its own
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Vec<u16>,
    /// Let all threads use one directory, one file and one store
    #[arg(long)]
    shared: bool,
    /// Medium of the volume
    #[arg(long, value_enum, default_value_t)]
    medium: BenchMedium,
    /// Directory for all files of the run [default: /dev/shm for dram, else the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Counted rounds of each row
    #[arg(long, value_name = "NUMBER", default_value_t = ROUNDS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Use tiny amounts, to check in seconds that the workload runs; the figures mean little
    #[arg(long)]
    quick: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Also write the report as a page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The value of `--medium`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
enum BenchMedium {
    /// Memory
    #[default]
    Dram,
    /// Disk
    Paged,
    /// Persistent memory mounted with DAX
    Pmem,
}

impl BenchOptions {
    fn directory(&self) -> PathBuf {
        let default = if self.medium == BenchMedium::Dram { "/dev/shm" } else { "." };
        self.dir.clone().unwrap_or_else(|| default.into())
    }

    fn request(&self, durability: Durability) -> SideRequest {
        let medium = match self.medium {
            BenchMedium::Dram => MediumChoice::Dram,
            BenchMedium::Paged => MediumChoice::Paged,
            BenchMedium::Pmem => MediumChoice::Pmem,
        };
        let mut request = SideRequest::new(self.directory(), medium, durability, self.against());
        request.command = std::env::current_exe().ok();
        request
    }

    fn against(&self) -> Vec<Rival> {
        self.against.clone().unwrap_or_else(|| vec![Rival::Tmpfs])
    }
}

pub fn run(arguments: &BenchArgs, output: &mut Output) -> Result<()> {
    interrupt::install();
    match &arguments.workload {
        BenchWorkload::Micro(options) => {
            let amounts = if options.quick { Amounts::quick() } else { Amounts::aerie(options.rounds) };
            measure(&Micro::new(amounts), options, Durability::Later, output)
        }
        BenchWorkload::Catd(arguments) => {
            let files = arguments.files.unwrap_or(if arguments.options.quick { 100 } else { 10_000 });
            measure(&Catd::new(files), &arguments.options, Durability::Later, output)
        }
        BenchWorkload::Bpfs(options) => {
            let workload = if options.quick { Bpfs::quick() } else { Bpfs::new(options.rounds) };
            measure(&workload, options, Durability::Later, output)
        }
        BenchWorkload::Shared(SharedOptions { client: Some(arguments), .. }) => {
            client::run(arguments).map_err(|error| failure("bench shared", &error))
        }
        BenchWorkload::Shared(arguments) => {
            let against = arguments.options.against.clone();
            let against = against.unwrap_or_else(|| vec![Rival::Served, Rival::Confined]);
            let options = BenchOptions { against: Some(against), ..arguments.options.clone() };
            measure(&arguments.workload(), &options, Durability::Later, output)
        }
        BenchWorkload::Jobs(options) => {
            let workload = if options.quick { Jobs::quick() } else { Jobs::new() };
            measure(&workload, options, Durability::Later, output)
        }
        BenchWorkload::Profile(arguments) => {
            let workload = arguments.workload().map_err(|error| failure("bench profile", &error))?;
            measure(&workload, &arguments.options, Durability::Later, output)
        }
        BenchWorkload::Kv(arguments) => {
            let durability = arguments.durability();
            measure(&Keys::new(arguments.scales(), durability), &arguments.options, durability, output)
        }
    }
}

/// Measures a workload, and prints and writes the report.
fn measure(
    workload: &dyn Workload,
    options: &BenchOptions,
    durability: Durability,
    output: &mut Output,
) -> Result<()> {
    let title = workload.title();
    let against = options.against();
    for (number, rival) in against.iter().enumerate() {
        if against[..number].contains(rival) {
            return Err(Failure::usage("cannot compare", rival, "it is named twice in --against"));
        }
    }
    // A page that cannot be written is noticed before the run.
    let page = options.html.as_deref().map(ReportPage::open).transpose()?;
    let bar = progress();
    let mut progress = |done: usize, all: usize, name: &str| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(name.to_owned());
    };
    let setting = Setting {
        request: options.request(durability),
        threads: options.threads.iter().map(|&threads| threads.into()).collect(),
        shared: options.shared,
        rounds: Rounds::exactly(options.rounds),
        command: command_line(),
        stop: interrupt::requested,
        progress: &mut progress,
    };
    let report = eyrie_bench::run(workload, setting);
    bar.finish_and_clear();
    let report = report.map_err(|error| failure(&title, &error))?;
    if let Some(page) = page {
        page.finish(&report.html())?;
    }
    if options.json {
        let json = serde_json::to_value(&report);
        return output.json(&json.map_err(|error| Failure::new("cannot print", title, error))?);
    }
    print(&report, output)
}

fn failure(title: &str, error: &Error) -> Failure {
    match error {
        Error::Interrupted => {
            let failure = Failure::new("interrupted", title, "everything that the run made is removed");
            failure.with_status(interrupt::STATUS)
        }
        Error::Request(reason) => Failure::usage("cannot measure", title, reason),
        error => Failure::new("cannot measure", title, error),
    }
}

/// Returns the command line as the user wrote it. U+FFFD stands for bytes that are not UTF-8.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    let quoted = shlex::try_join(words.iter().map(String::as_str));
    format!("eyrie {}", quoted.unwrap_or_else(|_| words.join(" ")))
}

/// Makes a progress bar, which is shown only if standard error is a terminal.
fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} groups: {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar
}

fn print(report: &BenchReport, output: &mut Output) -> Result<()> {
    for line in report.lines() {
        writeln!(output, "{line}")?;
    }
    print_table(&report.times(), output)?;
    print_table(&report.latencies(), output)?;
    if let Some(media) = report.media() {
        print_table(&media, output)?;
    }
    Ok(())
}

fn print_table(found: &ReportTable, output: &mut Output) -> Result<()> {
    writeln!(output)?;
    output.heading(&found.title)?;
    let header: Vec<&str> = found.header.iter().map(String::as_str).collect();
    let numbers: Vec<usize> = (1..header.len()).collect();
    let mut rows = table(&header, &numbers);
    for row in &found.rows {
        rows.add_row(row);
    }
    Ok(output.table(&rows)?)
}
