//! What `cargo xtask dax-guest` runs in its guest: verifies a volume on persistent memory and goes on changing it until the
//! machine is killed.
//!
//! ```text
//! dax_guest VOLUME ACKNOWLEDGED [STEPS]
//! ```
//!
//! All steps follow from their numbers. Each is one Op, and its number is printed when it has returned. The next boot
//! is told the last number that was seen outside (`ACKNOWLEDGED`): the volume must then be what that many steps make of
//! it, or some more, and nothing else. It stops after `STEPS` more steps; without them it goes on for ever.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use eyrie::{Credentials, Files, MediumChoice, Posix, PosixExt, RenameMode, Volume};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const VOLUME_BYTES: u64 = 32 << 20;
const GROUP_BYTES: u64 = 1 << 20;
/// Names in use at one time, at most.
const MOST_FILES: usize = 40;
const MOST_FILE_BYTES: usize = 64 << 10;
/// Steps whose numbers may have been on their way out when the machine was killed.
const UNSEEN_STEPS: u64 = 5000;

/// One Op.
#[derive(Clone, Debug)]
enum Step {
    Create { name: String },
    Write { name: String, at: usize, len: usize },
    Truncate { name: String, len: usize },
    Rename { from: String, to: String },
    Unlink { name: String },
}

/// The steps in their order, and what they make of an empty directory.
struct Script {
    random: SmallRng,
    number: u64,
    files: BTreeMap<String, Vec<u8>>,
}

impl Script {
    fn new() -> Script {
        Script { random: SmallRng::seed_from_u64(0x5eed), number: 0, files: BTreeMap::new() }
    }

    fn any_name(&mut self) -> String {
        let index = self.random.random_range(0..self.files.len());
        self.files.keys().nth(index).cloned().unwrap_or_default()
    }

    fn draw(&mut self) -> Step {
        let new = format!("file-{}", self.number);
        if self.files.is_empty() {
            return Step::Create { name: new };
        }
        let name = self.any_name();
        match self.random.random_range(0..10) {
            0..3 if self.files.len() < MOST_FILES => Step::Create { name: new },
            0..3 => Step::Unlink { name },
            3..7 => {
                let len = self.random.random_range(1..MOST_FILE_BYTES / 4);
                // Mostly at the end, as programs do.
                let end = self.files[&name].len().min(MOST_FILE_BYTES - len);
                let at = if self.random.random_bool(0.6) { end } else { self.random.random_range(0..=end) };
                Step::Write { name, at, len }
            }
            7 => Step::Truncate { name, len: self.random.random_range(0..MOST_FILE_BYTES) },
            8 => Step::Rename { from: name, to: new },
            _ => Step::Rename { from: name, to: self.any_name() },
        }
    }

    /// The next step, which is taken as done.
    fn next(&mut self) -> Step {
        self.number += 1;
        let step = self.draw();
        match step.clone() {
            Step::Create { name } => drop(self.files.insert(name, Vec::new())),
            Step::Write { name, at, len } => {
                let data = self.data(len);
                let file = self.files.entry(name).or_default();
                file.resize(file.len().max(at + len), 0);
                file[at..at + len].copy_from_slice(&data);
            }
            Step::Truncate { name, len } => self.files.entry(name).or_default().resize(len, 0),
            Step::Rename { from, to } => {
                if let Some(file) = self.files.remove(&from) {
                    self.files.insert(to, file);
                }
            }
            Step::Unlink { name } => drop(self.files.remove(&name)),
        }
        step
    }

    /// What the current step writes.
    fn data(&self, len: usize) -> Vec<u8> {
        (0..len).map(|index| (self.number as usize * 31 + index * 7) as u8).collect()
    }

    fn perform(&self, files: &Files, step: &Step) -> Result<()> {
        let path = |name: &str| format!("/{name}");
        match step {
            Step::Create { name } => {
                files.options().write(true).create_new(true).open(path(name))?.close()?
            }
            Step::Write { name, at, len } => {
                let file = files.options().write(true).open(path(name))?;
                if file.write_at(&self.data(*len), *at as u64)? != *len {
                    return Err("a short write".into());
                }
            }
            Step::Truncate { name, len } => files.truncate(path(name), *len as u64)?,
            Step::Rename { from, to } => files.rename(path(from), path(to), RenameMode::Replace)?,
            Step::Unlink { name } => files.unlink(path(name))?,
        }
        Ok(())
    }
}

fn contents(files: &Files) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in files.read_dir("/")? {
        let entry = entry?;
        found.insert(entry.name().to_string_lossy().into_owned(), files.read(entry.path())?);
    }
    Ok(found)
}

/// The script, at the step that the volume shows: `acknowledged`, or one of those that nobody heard of any more.
fn script_of(volume: &Volume, files: &Files, acknowledged: u64) -> Result<Script> {
    let report = volume.check()?;
    if !report.is_clean() {
        return Err(format!("the volume is not sound: {:?}", report.findings).into());
    }
    let found = contents(files)?;
    let mut script = Script::new();
    while script.number < acknowledged || script.files != found {
        if script.number >= acknowledged + UNSEEN_STEPS {
            let names: Vec<_> = found.iter().map(|(name, data)| (name, data.len())).collect();
            return Err(format!("no state from step {acknowledged} on has these files: {names:?}").into());
        }
        script.next();
    }
    Ok(script)
}

/// The volume, on persistent memory because that is what there is.
fn volume_at(path: &Path) -> Result<Volume> {
    println!("opening {}", path.display());
    let volume = if path.exists() {
        Volume::open(path)?
    } else {
        let options = Volume::options().size(VOLUME_BYTES).group_size(GROUP_BYTES);
        options.medium(MediumChoice::Auto).create(path)?
    };
    let information = volume.information();
    println!("medium: {}, {}", information.medium, information.promise);
    if information.medium != "pmem" || !information.promise.contains("failure of power") {
        return Err("auto did not choose persistent memory".into());
    }
    Ok(volume)
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, acknowledged, rest @ ..] = &arguments[..] else {
        return Err("usage: dax_guest VOLUME ACKNOWLEDGED [STEPS]".into());
    };
    let acknowledged = acknowledged.parse()?;
    let steps = rest.first().map_or(Ok(u64::MAX), |steps| steps.parse())?;
    let volume = volume_at(Path::new(path))?;
    let files = volume.files(Credentials::root());
    let mut script = script_of(&volume, &files, acknowledged)?;
    println!("found: {};", script.number);
    for _ in 0..steps {
        let step = script.next();
        script
            .perform(&files, &step)
            .map_err(|error| format!("step {}, {step:?}: {error}", script.number))?;
        println!("done: {};", script.number);
    }
    if contents(&files)? != script.files {
        return Err("the files are not what the steps made".into());
    }
    drop(files);
    Ok(volume.close()?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}
