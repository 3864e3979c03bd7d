//! Steps on one directory that follow from a seed and their numbers: for programs that are killed while they take them.
//!
//! A step is one Op. Who knows how many steps were acknowledged knows what the directory must be: what that many make of
//! it, or some more.

use std::collections::BTreeMap;
use std::error::Error;

use eyrie::{Credentials, Files, Posix, PosixExt, RenameMode, Store, Volume};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Names in use at one time, at most.
const MOST_FILES: usize = 40;
const MOST_FILE_BYTES: usize = 64 << 10;
/// Steps that may have been on their way when the program was killed.
const UNSEEN_STEPS: u64 = 20_000;

/// The directory that a script works in.
pub struct Place {
    root: String,
    files: Files,
    store: Store,
}

impl Place {
    /// The directory `root`, which begins with a slash but for the root directory, which is empty. It is made if need be.
    ///
    /// # Errors
    /// The volume's.
    pub fn new(volume: &Volume, root: &str) -> Result<Place> {
        let files = volume.files(Credentials::root());
        files.create_dir_all(format!("{root}/"))?;
        let store = volume.store(format!("{root}/"), Credentials::root())?;
        Ok(Place { root: root.to_string(), files, store })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// Makes durable what was done, wherever the medium needs to be told.
    ///
    /// # Errors
    /// The volume's.
    pub fn sync(&self) -> Result<()> {
        let handle =
            self.files.open(self.path(""), eyrie::OpenFlags::READ | eyrie::OpenFlags::DIRECTORY, 0)?;
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
enum Step {
    Create { name: String },
    Write { name: String, at: usize, len: usize },
    Append { name: String, len: usize },
    Put { name: String, len: usize },
    Truncate { name: String, len: usize },
    Rename { from: String, to: String },
    Unlink { name: String },
    Erase { name: String },
}

/// The steps in their order, and what they make of an empty directory.
pub struct Script {
    random: SmallRng,
    number: u64,
    files: BTreeMap<String, Vec<u8>>,
}

impl Script {
    /// The steps of `seed`, none taken.
    pub fn new(seed: u64) -> Script {
        Script { random: SmallRng::seed_from_u64(seed), number: 0, files: BTreeMap::new() }
    }

    /// The script of `seed`, at the step that `place` shows: `acknowledged`, or one of those that nobody heard of any
    /// more.
    ///
    /// # Errors
    /// When no such step made this.
    pub fn found(seed: u64, place: &Place, acknowledged: u64) -> Result<Script> {
        let found = place.contents()?;
        let mut script = Script::new(seed);
        while script.number < acknowledged || script.files != found {
            if script.number >= acknowledged + UNSEEN_STEPS {
                let names: Vec<_> = found.iter().map(|(name, data)| (name, data.len())).collect();
                return Err(format!("no state from step {acknowledged} on has these files: {names:?}").into());
            }
            script.draw_next();
        }
        Ok(script)
    }

    /// Steps taken so far.
    pub fn number(&self) -> u64 {
        self.number
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
        let len = self.random.random_range(1..MOST_FILE_BYTES / 4);
        let size = self.files[&name].len();
        match self.random.random_range(0..12) {
            0..2 if self.files.len() < MOST_FILES => Step::Create { name: new },
            2 if self.files.len() < MOST_FILES => Step::Put { name: new, len },
            0..2 => Step::Unlink { name },
            2 => Step::Erase { name },
            3..5 if size + len <= MOST_FILE_BYTES => Step::Append { name, len },
            3..7 => {
                let at = self.random.random_range(0..=size.min(MOST_FILE_BYTES - len));
                Step::Write { name, at, len: if self.random.random_bool(0.3) { 8 } else { len } }
            }
            7 => Step::Truncate { name, len: self.random.random_range(0..MOST_FILE_BYTES) },
            8 => Step::Put { name, len },
            9 | 10 => Step::Rename { from: name, to: new },
            _ => Step::Rename { from: name, to: self.any_name() },
        }
    }

    /// The next step, which is taken as done.
    fn draw_next(&mut self) -> Step {
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
            Step::Append { name, len } => {
                let data = self.data(len);
                self.files.entry(name).or_default().extend_from_slice(&data);
            }
            Step::Put { name, len } => drop(self.files.insert(name, self.data(len))),
            Step::Truncate { name, len } => self.files.entry(name).or_default().resize(len, 0),
            Step::Rename { from, to } => {
                if let Some(file) = self.files.remove(&from) {
                    self.files.insert(to, file);
                }
            }
            Step::Unlink { name } | Step::Erase { name } => drop(self.files.remove(&name)),
        }
        step
    }

    /// What the current step writes.
    fn data(&self, len: usize) -> Vec<u8> {
        (0..len).map(|index| (self.number as usize * 31 + index * 7) as u8).collect()
    }

    /// Takes the next step in `place`.
    ///
    /// # Errors
    /// The volume's, with the step.
    pub fn step(&mut self, place: &Place) -> Result<()> {
        let step = self.draw_next();
        self.perform(place, &step).map_err(|error| format!("step {}, {step:?}: {error}", self.number).into())
    }

    fn perform(&self, place: &Place, step: &Step) -> Result<()> {
        let files = &place.files;
        match step {
            Step::Create { name } => {
                files.options().write(true).create_new(true).open(place.path(name))?.close()?
            }
            Step::Write { name, at, len } => {
                let file = files.options().write(true).open(place.path(name))?;
                if file.write_at(&self.data(*len), *at as u64)? != *len {
                    return Err("a short write".into());
                }
            }
            Step::Append { name, len } => {
                let file = files.options().write(true).open(place.path(name))?;
                if file.append(&self.data(*len))? != *len {
                    return Err("a short append".into());
                }
            }
            Step::Put { name, len } => drop(place.store.put(name, self.data(*len))?),
            Step::Truncate { name, len } => files.truncate(place.path(name), *len as u64)?,
            Step::Rename { from, to } => {
                files.rename(place.path(from), place.path(to), RenameMode::Replace)?
            }
            Step::Unlink { name } => files.unlink(place.path(name))?,
            Step::Erase { name } => drop(place.store.erase(name)?),
        }
        Ok(())
    }

    /// Whether `place` is what the steps so far make of it.
    ///
    /// # Errors
    /// The volume's.
    pub fn is_shown(&self, place: &Place) -> Result<bool> {
        Ok(place.contents()? == self.files)
    }
}
