//! Makes steps on one directory, for programs that are killed at any moment. A seed and the number of a step
//! determine the step.
//!
//! Each step is one Op. After a kill, the directory must show the state after the last acknowledged step or
//! after a later step.

use std::collections::BTreeMap;
use std::error::Error;

use eyrie::{Credentials, Files, Posix, PosixExt, RenameMode, Store, Volume};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Maximum number of files at one time.
const MAX_FILES: usize = 40;
const MAX_FILE_BYTES: usize = 64 << 10;
/// Maximum number of steps that a killed program may have made after its last acknowledged step.
const UNSEEN_STEPS: u64 = 20_000;

/// The directory in which a script makes its steps.
pub struct StepDirectory {
    root: String,
    files: Files,
    store: Store,
}

impl StepDirectory {
    /// Returns the directory `root` of a volume. Creates the directory if it does not exist. The path begins
    /// with a slash, or is empty for the root directory.
    ///
    /// # Errors
    /// The volume's error.
    pub fn new(volume: &Volume, root: &str) -> Result<StepDirectory> {
        let files = volume.files(Credentials::root());
        files.create_dir_all(format!("{root}/"))?;
        let store = volume.store(format!("{root}/"), Credentials::root())?;
        Ok(StepDirectory { root: root.to_string(), files, store })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// Makes all steps so far durable. On some media, a step is durable only after a sync.
    ///
    /// # Errors
    /// The volume's error.
    pub fn sync(&self) -> Result<()> {
        let handle = self.files.open(
            (&self.path("")).into(),
            eyrie::OpenFlags::READ | eyrie::OpenFlags::DIRECTORY,
            0,
        )?;
        self.files.fsync(&handle)?;
        Ok(self.files.close(handle)?)
    }

    fn contents(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut found = BTreeMap::new();
        for entry in self.files.read_dir(self.path(""))? {
            let entry = entry?;
            found.insert(entry.name().to_string_lossy().into_owned(), self.files.read(entry.path())?);
        }
        Ok(found)
    }
}

/// One Op.
#[derive(Clone, Debug)]
enum FileStep {
    Create { name: String },
    Write { name: String, at: usize, len: usize },
    Append { name: String, len: usize },
    Put { name: String, len: usize },
    Truncate { name: String, len: usize },
    Rename { from: String, to: String },
    Unlink { name: String },
    Erase { name: String },
}

/// A script: the steps of a seed, and the files after the last step that was drawn.
pub struct StepScript {
    random: SmallRng,
    number: u64,
    files: BTreeMap<String, Vec<u8>>,
}

impl StepScript {
    /// Returns the script of `seed` before its first step.
    pub fn new(seed: u64) -> StepScript {
        StepScript { random: SmallRng::seed_from_u64(seed), number: 0, files: BTreeMap::new() }
    }

    /// Returns the script of `seed` at the step whose result `place` shows: the step `acknowledged`, or a
    /// later one.
    ///
    /// # Errors
    /// The volume's error. Fails if none of these steps leaves the files that `place` has.
    pub fn found(seed: u64, place: &StepDirectory, acknowledged: u64) -> Result<StepScript> {
        let found = place.contents()?;
        let mut script = StepScript::new(seed);
        while script.number < acknowledged || script.files != found {
            if script.number >= acknowledged + UNSEEN_STEPS {
                let names: Vec<_> = found.iter().map(|(name, data)| (name, data.len())).collect();
                return Err(format!("no state from step {acknowledged} on has these files: {names:?}").into());
            }
            script.draw_next();
        }
        Ok(script)
    }

    /// Returns the number of steps so far.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn any_name(&mut self) -> String {
        let index = self.random.random_range(0..self.files.len());
        self.files.keys().nth(index).cloned().unwrap_or_default()
    }

    fn draw(&mut self) -> FileStep {
        let new = format!("file-{}", self.number);
        if self.files.is_empty() {
            return FileStep::Create { name: new };
        }
        let name = self.any_name();
        let len = self.random.random_range(1..MAX_FILE_BYTES / 4);
        let size = self.files[&name].len();
        match self.random.random_range(0..12) {
            0..2 if self.files.len() < MAX_FILES => FileStep::Create { name: new },
            2 if self.files.len() < MAX_FILES => FileStep::Put { name: new, len },
            0..2 => FileStep::Unlink { name },
            2 => FileStep::Erase { name },
            3..5 if size + len <= MAX_FILE_BYTES => FileStep::Append { name, len },
            3..7 => {
                let at = self.random.random_range(0..=size.min(MAX_FILE_BYTES - len));
                FileStep::Write { name, at, len: if self.random.random_bool(0.3) { 8 } else { len } }
            }
            7 => FileStep::Truncate { name, len: self.random.random_range(0..MAX_FILE_BYTES) },
            8 => FileStep::Put { name, len },
            9 | 10 => FileStep::Rename { from: name, to: new },
            _ => FileStep::Rename { from: name, to: self.any_name() },
        }
    }

    /// Draws the next step, counts it, and applies it to the expected files.
    fn draw_next(&mut self) -> FileStep {
        self.number += 1;
        let step = self.draw();
        match step.clone() {
            FileStep::Create { name } => drop(self.files.insert(name, Vec::new())),
            FileStep::Write { name, at, len } => {
                let data = self.data(len);
                let file = self.files.entry(name).or_default();
                file.resize(file.len().max(at + len), 0);
                file[at..at + len].copy_from_slice(&data);
            }
            FileStep::Append { name, len } => {
                let data = self.data(len);
                self.files.entry(name).or_default().extend_from_slice(&data);
            }
            FileStep::Put { name, len } => drop(self.files.insert(name, self.data(len))),
            FileStep::Truncate { name, len } => self.files.entry(name).or_default().resize(len, 0),
            FileStep::Rename { from, to } => {
                if let Some(file) = self.files.remove(&from) {
                    self.files.insert(to, file);
                }
            }
            FileStep::Unlink { name } | FileStep::Erase { name } => drop(self.files.remove(&name)),
        }
        step
    }

    /// Returns the bytes that the current step writes.
    fn data(&self, len: usize) -> Vec<u8> {
        (0..len).map(|index| (self.number as usize * 31 + index * 7) as u8).collect()
    }

    /// Makes the next step in `place`.
    ///
    /// # Errors
    /// The volume's error or a short write, with the step.
    pub fn step(&mut self, place: &StepDirectory) -> Result<()> {
        let step = self.draw_next();
        self.perform(place, &step).map_err(|error| format!("step {}, {step:?}: {error}", self.number).into())
    }

    fn perform(&self, place: &StepDirectory, step: &FileStep) -> Result<()> {
        let files = &place.files;
        match step {
            FileStep::Create { name } => {
                files.options().write(true).create_new(true).open(place.path(name))?.close()?
            }
            FileStep::Write { name, at, len } => {
                let file = files.options().write(true).open(place.path(name))?;
                if file.write_at(&self.data(*len), *at as u64)? != *len {
                    return Err("a short write".into());
                }
            }
            FileStep::Append { name, len } => {
                let file = files.options().write(true).open(place.path(name))?;
                if file.append(&self.data(*len))? != *len {
                    return Err("a short append".into());
                }
            }
            FileStep::Put { name, len } => drop(place.store.put(name, self.data(*len))?),
            FileStep::Truncate { name, len } => files.truncate((&place.path(name)).into(), *len as u64)?,
            FileStep::Rename { from, to } => files.rename_with(
                (&place.path(from)).into(),
                (&place.path(to)).into(),
                RenameMode::Replace,
            )?,
            FileStep::Unlink { name } => files.unlink((&place.path(name)).into())?,
            FileStep::Erase { name } => drop(place.store.erase(name)?),
        }
        Ok(())
    }

    /// True if `place` has exactly the files that the steps so far leave.
    ///
    /// # Errors
    /// The volume's error.
    pub fn is_shown(&self, place: &StepDirectory) -> Result<bool> {
        Ok(place.contents()? == self.files)
    }
}
