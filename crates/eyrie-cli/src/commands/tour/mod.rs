//! `eyrie tour`: makes a volume, fills it from a directory, verifies every byte, checks the volume, and
//! compares its speed with that of the host's file system.

mod report;
mod speed;
mod survey;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use eyrie::{Credentials, Files, Host, PosixExt, Volume};
use eyrie_bench::method::Row;
use eyrie_bench::place::{self, file_system_name};
use serde_json::{Value, json};

use self::speed::Sizes;
use self::survey::Survey;
use crate::copy::{Job, Reflink, Reporter, copy_tree};
use crate::failure::{Doing, Failure, Result, print_error, with_close};
use crate::output::Output;
use crate::{interrupt, text, volumes};

/// Estimated bytes for the metadata of an entry and of its value.
const ENTRY_BYTES: u64 = 2048;
/// Operations are also measured among many files ([`Sizes::full`]) if the measurements have at least this
/// many seconds, and enough room.
const FULL_SECONDS: u64 = 10;
/// The copy of the directory in the volume. The measurements use other names beside it.
const COPY: &str = "/copy";
/// The preferred directory for the volume.
const SHARED_MEMORY: &str = "/dev/shm";

/// Fill a new volume, verify it, and compare its speed with the host
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie tour
  eyrie tour ~/src
  eyrie tour --json /usr/include > tour.json
  eyrie tour --remove --volume /mnt/pmem/tour /usr/share

The volume is made in /dev/shm if that has room, else in the temporary directory.")]
pub struct TourArgs {
    /// Directory from which the volume is filled
    #[arg(value_name = "DIR", default_value = "/usr/share")]
    directory: PathBuf,
    /// Volume to make [default: a new one in /dev/shm or the temporary directory]
    #[arg(long, value_name = "VOLUME")]
    volume: Option<PathBuf>,
    /// Remove the volume at the end [default: keep it]
    #[arg(long)]
    remove: bool,
    /// Time for the measurements in seconds; below 10, large directories are left out
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing if the tour succeeds
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

impl TourArgs {
    /// Returns true if the results are printed as text, step by step.
    fn prints_text(&self) -> bool {
        !self.json && !self.quiet
    }
}

pub fn run(arguments: &TourArgs, output: &mut Output) -> Result<()> {
    interrupt::install();
    let shown = text::path(&arguments.directory);
    let root = arguments.directory.canonicalize().doing("tour", &shown)?;
    if !root.is_dir() {
        return Err(Failure::new("cannot tour", shown, "not a directory: name one to fill the volume with"));
    }
    let host = Host::new("/").doing("open", "/")?;
    let survey = Survey::of(&host, &root)?;
    let copies = copies_bytes(&survey);
    let place = match &arguments.volume {
        Some(place) => place.clone(),
        None => choose_place(copies + 2 * Sizes::small().bytes())?,
    };
    let sizes = sizes(arguments.seconds, copies, &place);
    let size = (copies + sizes.bytes()).next_multiple_of(64 << 20);
    if is_inside(&place, &root) {
        let why = "the volume would be inside: name another directory, or use --volume";
        return Err(Failure::new("cannot tour", shown, why));
    }
    let mut tour = Tour { arguments, output, host, root, survey, sizes, steps: json!({}) };
    tour.show(&place, size)
}

/// Returns true if a file that is made at `place` would be inside `root`, which is a real path. `place` may
/// lead through symbolic links, and its last components need not exist.
fn is_inside(place: &Path, root: &Path) -> bool {
    let Ok(place) = std::path::absolute(place) else { return false };
    let real = place.ancestors().find_map(|above| above.canonicalize().ok());
    real.is_some_and(|real| real.starts_with(root))
}

/// Estimates the number of bytes that the volume needs for the copied files, for the values with the same
/// bytes, and for the metadata.
fn copies_bytes(survey: &Survey) -> u64 {
    let data = 2 * survey.block_bytes;
    data + data / 8 + survey.len() * ENTRY_BYTES
}

/// Returns the number of bytes that this user may still use on the host's file system at `path`, which need
/// not exist.
fn free_bytes(path: &Path) -> u64 {
    let made = path.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
    let made = made.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    place::free_bytes(made)
}

/// Chooses the sizes of the measurements. [`Sizes::full`] needs time, and space for the volume and for the
/// files of the host.
fn sizes(seconds: u64, copies: u64, place: &Path) -> Sizes {
    let full = Sizes::full();
    let room = free_bytes(place) >= copies + 2 * full.bytes();
    if room && seconds >= FULL_SECONDS { full } else { Sizes::small() }
}

/// Chooses a new path in shared memory, or in the temporary directory if shared memory has fewer than `need`
/// bytes free. Fails if neither has `need` bytes free.
fn choose_place(need: u64) -> Result<PathBuf> {
    let name = format!("eyrie-tour-{}", std::process::id());
    let candidates = [PathBuf::from(SHARED_MEMORY), std::env::temp_dir()];
    for candidate in &candidates {
        if free_bytes(candidate) >= need {
            return Ok(candidate.join(name));
        }
    }
    let tried = candidates.map(|candidate| text::path(&candidate)).join(" and ");
    let why = format!("{} needed: name a smaller directory, or use --volume", text::size(need));
    Err(Failure::new("not enough room", tried, why))
}

/// Runs the steps of the tour.
struct Tour<'a> {
    arguments: &'a TourArgs,
    output: &'a mut Output,
    host: Host,
    root: PathBuf,
    survey: Survey,
    sizes: Sizes,
    /// The results of the steps, for `--json`.
    steps: Value,
}

impl Tour<'_> {
    fn show(&mut self, place: &Path, size: u64) -> Result<()> {
        let shown = text::path(place);
        volumes::refuse_existing(place, "name another --volume")?;
        let volume = Arc::new(volumes::create(place, Volume::options().size(size), "")?);
        let host = file_system_name(place);
        let result = self.steps(&volume, place, size);
        // The measurements have dropped their clones, so this is the only owner.
        let closed = Arc::into_inner(volume).map_or(Ok(()), Volume::close);
        let closed = closed.doing("close the volume", &shown);
        // The tour made this volume, so its removal destroys no data of the user.
        let removed = match self.arguments.remove {
            true => std::fs::remove_dir_all(place).doing("remove the volume", &shown),
            false => Ok(()),
        };
        let printed =
            with_close(result, closed.and(removed)).and_then(|rows| self.print(&rows, host, &shown));
        if self.arguments.remove {
            return printed;
        }
        if printed.as_ref().is_err_and(|failure| failure.status() == 0) {
            // The reader that closed the pipe has perhaps not read where the volume is.
            print_error(&format!("the tour has no reader: {shown}: the volume stays: `rm -r` removes it"));
        }
        printed.map_err(|failure| failure.with_note(&format!("; the volume is {shown}")))
    }

    /// Prints the measurements, and flushes the output, so that an error of the output is noticed here.
    fn print(&mut self, rows: &[Row], host: &str, shown: &str) -> Result<()> {
        if self.arguments.json {
            self.steps["measurements"] = report::json(rows);
            self.steps["host"] = json!(host);
            self.output.json(&self.steps)?;
        } else if !self.arguments.quiet {
            report::print(rows, host, self.output)?;
            self.try_next(shown)?;
        }
        Ok(self.output.flush()?)
    }

    fn steps(&mut self, volume: &Arc<Volume>, place: &Path, size: u64) -> Result<Vec<Row>> {
        let copy = Path::new(COPY);
        // The copies get the modes of their sources, so the umask does not apply.
        let files = volume.files(Credentials::of_process().with_umask(0));
        if self.arguments.prints_text() {
            self.output.heading(&format!("A tour of Eyrie with {}", text::path(&self.root)))?;
        }
        let made =
            format!("{}, up to {} on {}", text::path(place), text::size(size), file_system_name(place));
        self.step("volume", &made, json!({ "path": place.to_string_lossy(), "size_bytes": size }))?;
        self.import(&files, copy)?;
        self.verify(volume, &files, copy)?;
        let report = volume.check().doing("check", text::path(place))?;
        if let Some(finding) = report.findings.first() {
            return Err(Failure::new("the volume is damaged", text::path(place), finding));
        }
        let objects = volumes::object_count(&report);
        let sound = format!("{}: sound", text::counted(objects, "object", "objects"));
        self.step("checked", &sound, json!({ "objects": objects, "findings": 0 }))?;
        self.measure(volume, &files, place)
    }

    /// Keeps the result of one step. Prints the result unless `--json` or `--quiet` is given.
    fn step(&mut self, step: &str, what: &str, value: Value) -> Result<()> {
        self.steps[step] = value;
        if self.arguments.prints_text() {
            self.output.wrapped(&format!("  {step:<9} {what}"), 12)?;
            self.output.flush()?;
        }
        Ok(())
    }

    fn import(&mut self, files: &Files, copy: &Path) -> Result<()> {
        let started = Instant::now();
        let reporter = Reporter::with_total(&self.root, String::new(), "import", self.survey.len());
        let tally = copy_tree(&Job {
            source: &self.host,
            from: &self.root,
            target: files,
            to: copy,
            except: None,
            reflink: Reflink::Never,
            reporter: &reporter,
        })?;
        if tally.failed() > 0 {
            let failed = text::counted(tally.failed(), "entry", "entries");
            let why = format!("{failed} could not be imported: name a directory that can be read");
            return Err(Failure::new("cannot tour", text::path(&self.root), why));
        }
        let seconds = started.elapsed().as_secs_f64();
        let what = format!(
            "{}, {} in {seconds:.1} s",
            text::counted(tally.entries(), "entry", "entries"),
            text::size(tally.bytes())
        );
        let mut value = tally.json();
        value["seconds"] = json!(seconds);
        self.step("imported", &what, value)
    }

    fn verify(&mut self, volume: &Volume, files: &Files, copy: &Path) -> Result<()> {
        let started = Instant::now();
        let verified = verify::files(&self.survey, (&self.host, &self.root), (files, copy))?;
        verified.require_equal()?;
        let count = text::counted(verified.count, "entry", "entries");
        let size = text::size(verified.bytes);
        let seconds = started.elapsed().as_secs_f64();
        let what = format!("{count}, {size}: every byte and attribute equal, in {seconds:.1} s");
        self.step("verified", &what, json!({ "entries": verified.count, "bytes": verified.bytes }))?;

        let started = Instant::now();
        files.create_dir("/store").doing("make the store", "/store")?;
        let store = volume.store("/store", Credentials::of_process()).doing("open the store", "/store")?;
        let verified = verify::keys(&self.survey, (&self.host, &self.root), &store)?;
        verified.require_equal()?;
        let count = text::counted(verified.count, "value", "values");
        let size = text::size(verified.bytes);
        let seconds = started.elapsed().as_secs_f64();
        let what = format!("{count}, {size} put and got: every byte equal, in {seconds:.1} s");
        self.step("keys", &what, json!({ "values": verified.count, "bytes": verified.bytes }))
    }

    /// Measures the volume and the host, and removes the files that the measurements have made in the volume.
    fn measure(&mut self, volume: &Arc<Volume>, files: &Files, place: &Path) -> Result<Vec<Row>> {
        let names = || -> Result<Vec<PathBuf>> {
            let entries = files.read_dir("/").doing("list", "/")?;
            entries.map(|entry| Ok(Path::new("/").join(entry.doing("list", "/")?.name()))).collect()
        };
        let before = names()?;
        let budget = Duration::from_secs(self.arguments.seconds);
        let rows = speed::measure(volume, place, &self.sizes, budget);
        let remove = || -> Result<()> {
            for made in names()?.iter().filter(|name| !before.contains(name)) {
                files.remove_dir_all(made).doing("remove the measured files", text::path(made))?;
            }
            Ok(())
        };
        let removed = remove();
        rows.and_then(|rows| removed.map(|()| rows))
    }

    fn try_next(&mut self, shown: &str) -> Result<()> {
        if self.arguments.remove {
            return Ok(());
        }
        let mut file = String::from("FILE");
        let small =
            |entry: &&survey::SurveyEntry| entry.stat.is_file() && (1..=4096).contains(&entry.stat.size);
        // A short path fits into a line of the terminal.
        let shortest = |entry: &&survey::SurveyEntry| entry.relative.as_os_str().len();
        if let Some(entry) = self.survey.entries.iter().filter(small).min_by_key(shortest) {
            file = text::path(&entry.relative);
        }
        writeln!(self.output)?;
        self.output.heading("The volume stays; try")?;
        for command in [
            format!("eyrie ls -l {shown}:{COPY}"),
            format!("eyrie cat '{shown}:{COPY}/{file}'"),
            format!("eyrie kv get {shown}:/store '{file}'"),
            format!("eyrie fsck {shown}"),
            format!("rm -r {shown}"),
        ] {
            writeln!(self.output, "  {command}")?;
        }
        Ok(())
    }
}
