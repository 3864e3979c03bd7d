//! Makes steps on one directory, for programs that are killed at any moment. A seed and the number of a step
//! determine the step.
//!
//! Each step is one visible change. After a kill, the directory must show the state after the last
//! acknowledged step or after a later step. A script makes each step on the [model](Model), too. The state of
//! the model is the expected one.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use eyrie::{
    Credentials, Errno, Kvfs, OpenFlags, Posix, PosixExt, PosixProjects, Pxfs, QuotaId, QuotaKind,
    QuotaLimit, QuotaLimits, QuotaTable, RenameMode, Stat, Target, Volume, VolumeEngine, XattrMode,
};
use eyrie_engine::access::AclKind;
use eyrie_engine::op::CAPABILITY_XATTR;
use eyrie_engine::{Engine, Kind, Model, ObjectId, Owner, Time};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::acls::{GOOD_ACL_COUNT, acl};
use crate::ops::{Bytes, xattr_value};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Maximum number of names at one time.
const MAX_NAMES: usize = 40;
const MAX_FILE_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;
/// Maximum number of steps that a killed program may have made after its last acknowledged step.
const UNSEEN_STEPS: u64 = 20_000;
/// A limit of storage that no tree reaches, in bytes.
const LIMIT_BYTES: u64 = 1 << 40;

/// The directory in which a script makes its steps, in a volume or in the model.
pub struct StepDirectory<E: Engine = VolumeEngine> {
    root: String,
    files: Pxfs<E>,
    store: Kvfs<E>,
    kinds: StepKinds,
}

/// The kinds of steps that a script makes in its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKinds {
    /// All steps. They also set the limits of quotas, which belong to the whole volume, and make the
    /// directory a tree with a quota.
    All,
    /// All steps that concern only the directory.
    OfDirectory,
    /// All steps that concern only the directory, except steps that set a capability. In a volume that has
    /// had a capability, no client logs changes.
    WithDeferral,
}

impl StepDirectory {
    /// Returns the directory `root` of a volume. Creates the directory if it does not exist. The path begins
    /// with a slash, or is empty for the root directory. Only one directory of a volume may have
    /// [`StepKinds::All`].
    ///
    /// # Errors
    /// The volume's error.
    pub fn new(volume: &Volume, root: &str, kinds: StepKinds) -> Result<StepDirectory> {
        let files = volume.files(Credentials::root());
        files.create_dir_all(format!("{root}/"))?;
        StepDirectory::over(files, root, kinds)
    }

    /// Makes all steps so far durable. On some media, a step is durable only after a sync.
    ///
    /// # Errors
    /// The volume's error.
    pub fn sync(&self) -> Result<()> {
        let handle = self.files.open((&self.path("")).into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0)?;
        self.files.fsync(&handle)?;
        Ok(self.files.close(handle)?)
    }
}

impl StepDirectory<Model> {
    fn in_model(kinds: StepKinds) -> Result<StepDirectory<Model>> {
        let root = ObjectId::new(64, Kind::Directory);
        let model = Model::new(root, Owner { mode: 0o755, uid: 0, gid: 0 }, Time::default());
        StepDirectory::over(Pxfs::new(Arc::new(model), Credentials::root()), "", kinds)
    }
}

/// The contents of a [`StepDirectory`], without times.
#[derive(PartialEq, Eq)]
struct Contents {
    /// The limits of quotas of the volume, and the project id of the directory.
    limits: Option<(Option<QuotaTable>, u32)>,
    entries: BTreeMap<String, EntryState>,
}

/// The state of a file or of a whiteout.
#[derive(PartialEq, Eq)]
struct EntryState {
    kind: Kind,
    mode: u16,
    links: u32,
    device: u64,
    project: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    data: Vec<u8>,
}

impl<E: Engine> StepDirectory<E> {
    fn over(files: Pxfs<E>, root: &str, kinds: StepKinds) -> Result<StepDirectory<E>> {
        let store = Kvfs::open(&files, format!("{root}/"))?;
        Ok(StepDirectory { root: root.to_string(), files, store, kinds })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    fn names(&self) -> eyrie::Result<BTreeSet<String>> {
        let names = self.files.read_dir(self.path(""))?;
        names.map(|entry| Ok(entry?.name().to_string_lossy().into_owned())).collect()
    }

    fn limits(&self) -> eyrie::Result<Option<(Option<QuotaTable>, u32)>> {
        if self.kinds != StepKinds::All {
            return Ok(None);
        }
        Ok(Some((self.files.quota_table()?, self.files.project((&self.path("")).into())?)))
    }

    fn entry(&self, name: &str) -> eyrie::Result<EntryState> {
        let (files, path) = (&self.files, self.path(name));
        let Stat { kind, mode, links, device, .. } = files.metadata(&path)?;
        let data = if kind == Kind::File { files.read(&path)? } else { Vec::new() };
        let names = files.xattr_names(&path)?.into_iter();
        let xattrs = names.map(|name| files.xattr(&path, &name).map(|value| (name, value)));
        let xattrs = xattrs.collect::<eyrie::Result<_>>()?;
        let project = files.project((&path).into())?;
        Ok(EntryState { kind, mode, links, device, project, xattrs, data })
    }

    fn contents(&self) -> eyrie::Result<Contents> {
        let names = self.names()?.into_iter();
        let entries = names.map(|name| self.entry(&name).map(|entry| (name, entry)));
        Ok(Contents { limits: self.limits()?, entries: entries.collect::<eyrie::Result<_>>()? })
    }

    /// True if the directory has exactly these contents. Compares one entry after the other, because most
    /// states that a script compares differ in the first entries.
    fn has(&self, contents: &Contents) -> eyrie::Result<bool> {
        if self.limits()? != contents.limits || !self.names()?.iter().eq(contents.entries.keys()) {
            return Ok(false);
        }
        for (name, expected) in &contents.entries {
            if self.entry(name)? != *expected {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// One visible change.
#[derive(Clone, Debug)]
enum FileStep {
    Create {
        name: String,
    },
    /// Makes a file without a name, writes to it, and gives it a name.
    Unnamed {
        name: String,
        len: usize,
    },
    Write {
        name: String,
        at: usize,
        len: usize,
    },
    Append {
        name: String,
        len: usize,
    },
    Clone {
        from: String,
        to: String,
        at: usize,
        len: usize,
    },
    Put {
        name: String,
        len: usize,
    },
    Truncate {
        name: String,
        len: usize,
    },
    Rename {
        from: String,
        to: String,
        mode: RenameMode,
    },
    SetXattr {
        name: String,
        xattr: &'static [u8],
        value: Vec<u8>,
    },
    /// Sets the project id of a file, or of the directory if the name is empty.
    SetProject {
        name: String,
        project: u32,
    },
    SetLimits {
        limits: Option<QuotaTable>,
    },
    Unlink {
        name: String,
    },
    Erase {
        name: String,
    },
}

/// A script: the steps of a seed, and the files after the last step that was drawn.
pub struct StepScript {
    random: SmallRng,
    number: u64,
    /// Sizes of the files, in bytes.
    files: BTreeMap<String, usize>,
    whiteouts: BTreeSet<String>,
    expected: StepDirectory<Model>,
}

impl StepScript {
    /// Returns the script of `seed` at the step whose result `place` shows: the step `acknowledged`, or a
    /// later one.
    ///
    /// # Errors
    /// The volume's error. Fails if none of these steps leaves the files that `place` has.
    pub fn found(seed: u64, place: &StepDirectory, acknowledged: u64) -> Result<StepScript> {
        let found = place.contents()?;
        let mut script = StepScript {
            random: SmallRng::seed_from_u64(seed),
            number: 0,
            files: BTreeMap::new(),
            whiteouts: BTreeSet::new(),
            expected: StepDirectory::in_model(place.kinds)?,
        };
        while script.number < acknowledged || !script.expected.has(&found)? {
            if script.number >= acknowledged + UNSEEN_STEPS {
                let names: Vec<_> =
                    found.entries.iter().map(|(name, file)| (name, file.data.len())).collect();
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
        let size = self.files[&name];
        let has_room = self.files.len() + self.whiteouts.len() < MAX_NAMES;
        match self.random.random_range(0..22) {
            0..2 if has_room => FileStep::Create { name: new },
            2..4 if has_room => FileStep::Unnamed { name: new, len },
            4 if has_room => FileStep::Put { name: new, len },
            0..4 => FileStep::Unlink { name: self.whiteouts.first().cloned().unwrap_or(name) },
            4 => FileStep::Erase { name },
            5..7 if size + len <= MAX_FILE_BYTES => FileStep::Append { name, len },
            5..9 => {
                let at = self.random.random_range(0..=size.min(MAX_FILE_BYTES - len));
                FileStep::Write { name, at, len: if self.random.random_bool(0.3) { 8 } else { len } }
            }
            9 => FileStep::Truncate { name, len: self.random.random_range(0..MAX_FILE_BYTES) },
            10 => FileStep::Put { name, len },
            11 | 12 => FileStep::Rename { from: name, to: new, mode: RenameMode::Replace },
            13 => FileStep::Rename { from: name, to: self.any_name(), mode: RenameMode::Replace },
            14 if has_room => FileStep::Rename { from: name, to: new, mode: RenameMode::Whiteout },
            14 => match self.whiteouts.last().cloned() {
                Some(to) => FileStep::Rename { from: name, to, mode: RenameMode::Replace },
                None => FileStep::Unlink { name },
            },
            15..18 => self.draw_clone(name),
            _ => self.draw_attribute(name),
        }
    }

    /// Draws a clone to `to`. The source range begins at the start of its file. The target range begins at
    /// the start of `to`, or at the end of its last page.
    fn draw_clone(&mut self, to: String) -> FileStep {
        let from = self.any_name();
        let (size, room) = (self.files[&from], self.files[&to].next_multiple_of(PAGE_BYTES));
        let at = if room + size <= MAX_FILE_BYTES && self.random.random() { room } else { 0 };
        // A part of a page can be cloned only to the end of a file.
        let len = if at + size >= self.files[&to] { size } else { size / PAGE_BYTES * PAGE_BYTES };
        FileStep::Clone { from, to, at, len }
    }

    fn draw_attribute(&mut self, name: String) -> FileStep {
        let project = self.random.random_range(0..3);
        let of_volume = self.expected.kinds == StepKinds::All;
        match self.random.random_range(0..8) {
            0..3 => {
                let value = acl(self.random.random_range(0..=GOOD_ACL_COUNT), self.random.random());
                FileStep::SetXattr { name, xattr: AclKind::Access.name(), value }
            }
            3..5 if self.expected.kinds != StepKinds::WithDeferral => {
                let length = self.random.random_range(1..=64);
                let value = xattr_value(CAPABILITY_XATTR, Bytes { length, pattern: 1 });
                FileStep::SetXattr { name, xattr: CAPABILITY_XATTR, value }
            }
            5 if of_volume => FileStep::SetProject { name: String::new(), project },
            6 if of_volume => FileStep::SetLimits { limits: self.draw_limits() },
            _ => FileStep::SetProject { name, project },
        }
    }

    fn draw_limits(&mut self) -> Option<QuotaTable> {
        let mut table = QuotaTable::default();
        let bytes = QuotaLimit { soft: 0, hard: LIMIT_BYTES + self.number, deadline: 0 };
        let tree = QuotaId { kind: QuotaKind::Tree, number: self.random.random_range(1..3) };
        let is_set = table.set(tree, QuotaLimits { bytes, ..QuotaLimits::default() }).is_ok();
        (is_set && self.random.random_ratio(3, 4)).then_some(table)
    }

    /// Draws the next step, counts it, and makes it in the model. Returns the step, and its error in the
    /// model.
    fn draw_next(&mut self) -> (FileStep, Option<Errno>) {
        self.number += 1;
        let step = self.draw();
        let refused = step.perform(&self.expected, self.number).err().map(|error| error.errno());
        if refused.is_none() {
            self.count(&step);
        }
        (step, refused)
    }

    /// Updates the sizes of the files after a step.
    fn count(&mut self, step: &FileStep) {
        let (files, whiteouts) = (&mut self.files, &mut self.whiteouts);
        match step.clone() {
            FileStep::Create { name } => drop(files.insert(name, 0)),
            FileStep::Write { name, at, len } | FileStep::Clone { to: name, at, len, .. } => {
                let size = files.entry(name).or_default();
                // An empty clone changes nothing.
                *size = if len == 0 { *size } else { (*size).max(at + len) };
            }
            FileStep::Append { name, len } => *files.entry(name).or_default() += len,
            FileStep::Unnamed { name, len }
            | FileStep::Put { name, len }
            | FileStep::Truncate { name, len } => {
                files.insert(name, len);
            }
            FileStep::Rename { from, to, mode } => {
                if let Some(size) = files.remove(&from) {
                    whiteouts.remove(&to);
                    files.insert(to, size);
                }
                if mode.leaves_whiteout() {
                    whiteouts.insert(from);
                }
            }
            FileStep::SetXattr { .. } | FileStep::SetProject { .. } | FileStep::SetLimits { .. } => {}
            FileStep::Unlink { name } | FileStep::Erase { name } => {
                files.remove(&name);
                whiteouts.remove(&name);
            }
        }
    }

    /// Makes the next step in `place`.
    ///
    /// # Errors
    /// Fails if the volume and the model give different results: two errnos, or an error of only one of them.
    pub fn step(&mut self, place: &StepDirectory) -> Result<()> {
        let (step, expected) = self.draw_next();
        match step.perform(place, self.number) {
            Ok(()) if expected.is_none() => Ok(()),
            Err(error) if expected == Some(error.errno()) => Ok(()),
            made => Err(format!("step {}, {step:?}: {made:?}, should be {expected:?}", self.number).into()),
        }
    }

    /// True if `place` has exactly the files that the steps so far leave.
    ///
    /// # Errors
    /// The volume's error.
    pub fn is_shown(&self, place: &StepDirectory) -> Result<bool> {
        Ok(self.expected.has(&place.contents()?)?)
    }
}

impl FileStep {
    /// Makes the step. Its number determines the bytes that it writes.
    fn perform<E: Engine>(&self, place: &StepDirectory<E>, number: u64) -> eyrie::Result<()> {
        let files = &place.files;
        let data =
            |len: usize| (0..len).map(|index| (number as usize * 31 + index * 7) as u8).collect::<Vec<_>>();
        let writer = |name: &str| files.options().write(true).open(place.path(name));
        match self {
            FileStep::Create { name } => {
                files.options().write(true).create_new(true).open(place.path(name))?.close()
            }
            FileStep::Unnamed { name, len } => loop {
                match make_unnamed(place, name, &data(*len)) {
                    // A file without a name does not outlive the service that had it open.
                    Err(error) if error.errno() == Errno::STALE => {}
                    made => return made,
                }
            },
            FileStep::Write { name, at, len } => {
                whole(writer(name)?.write_at(&data(*len), *at as u64)?, *len)
            }
            FileStep::Append { name, len } => whole(writer(name)?.append(&data(*len))?, *len),
            FileStep::Clone { from, to, at, len } => {
                let source = files.open_file(place.path(from))?;
                writer(to)?.clone_range((&source, 0), *at as u64, *len as u64)
            }
            FileStep::Put { name, len } => place.store.put(name, data(*len)).map(drop),
            FileStep::Truncate { name, len } => files.truncate((&place.path(name)).into(), *len as u64),
            FileStep::Rename { from, to, mode } => {
                files.rename_with((&place.path(from)).into(), (&place.path(to)).into(), *mode)
            }
            FileStep::SetXattr { name, xattr, value } => {
                files.setxattr((&place.path(name)).into(), xattr, value, XattrMode::Set)
            }
            FileStep::SetProject { name, project } => {
                files.set_project(Target::Follow((&place.path(name)).into()), *project)
            }
            FileStep::SetLimits { limits } => files.set_quota_table(limits.as_ref()),
            FileStep::Unlink { name } => files.unlink((&place.path(name)).into()),
            FileStep::Erase { name } => place.store.erase(name).map(drop),
        }
    }
}

/// Makes a file without a name, writes to it, and gives it a name.
fn make_unnamed<E: Engine>(place: &StepDirectory<E>, name: &str, data: &[u8]) -> eyrie::Result<()> {
    let file = place.files.options().write(true).temporary(true).open(Path::new(&place.path("")))?;
    file.write_all_at(data, 0)?;
    file.link_at(place.path(name))?;
    file.close()
}

/// Returns an error unless all bytes of a write were written.
fn whole(written: usize, len: usize) -> eyrie::Result<()> {
    if written == len { Ok(()) } else { Err(eyrie::Error::with_reason(Errno::IO, "write", "a short write")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> (tempfile::TempDir, Volume) {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let volume = Volume::create(place.path().join("volume"), 32 << 20).expect("room");
        (place, volume)
    }

    #[test]
    fn script_makes_every_kind_of_step() {
        make_every_kind_of_step("");
        make_every_kind_of_step("/dir");
    }

    /// Makes steps in the directory `root` of a new volume.
    fn make_every_kind_of_step(root: &str) {
        let (_host, volume) = volume();
        let place = StepDirectory::new(&volume, root, StepKinds::All).expect("room");
        let mut script = StepScript::found(1, &place, 0).expect("empty");
        let (mut made, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..2000 {
            let (step, expected) = script.draw_next();
            let actual = step.perform(&place, script.number).err().map(|error| error.errno());
            assert_eq!(actual, expected, "{step:?}");
            let mut kind = format!("{step:?}").split(' ').next().unwrap_or_default().to_owned();
            if let FileStep::Rename { mode, .. } = step {
                kind = format!("{mode:?}");
            }
            if expected.is_some() { &mut refused } else { &mut made }.insert(kind);
        }
        let all = "Append Clone Create Erase Put Replace SetLimits SetProject SetXattr Truncate Unlink \
                   Unnamed Whiteout Write";
        assert_eq!(made.into_iter().collect::<Vec<_>>().join(" "), all);
        assert!(refused.contains("SetXattr"), "a bad ACL: {refused:?}");
        assert!(script.is_shown(&place).expect("sound"));
        let found = StepScript::found(1, &place, 1990).expect("the last state");
        assert!(found.number() <= script.number());
    }

    #[test]
    fn every_difference_from_the_steps_is_noticed() {
        let plants: [fn(String, String) -> FileStep; 8] = [
            |name, _| FileStep::Write { name, at: 0, len: 8 },
            |_, _| FileStep::Unnamed { name: "planted".to_owned(), len: 1 },
            |name, _| FileStep::SetXattr { name, xattr: AclKind::Access.name(), value: acl(6, 0o1234_5671) },
            |name, _| {
                let value = [&[1, 0, 0, 3][..], &[9; 20]].concat();
                FileStep::SetXattr { name, xattr: CAPABILITY_XATTR, value }
            },
            |name, _| FileStep::SetProject { name, project: 7 },
            |_, _| FileStep::SetProject { name: String::new(), project: 7 },
            |_, _| {
                let (mut table, user) = (QuotaTable::default(), QuotaId { kind: QuotaKind::User, number: 1 });
                let files = QuotaLimit { soft: 0, hard: 1 << 30, deadline: 0 };
                table.set(user, QuotaLimits { files, ..QuotaLimits::default() }).expect("room");
                FileStep::SetLimits { limits: Some(table) }
            },
            |_, whiteout| FileStep::Unlink { name: whiteout },
        ];
        for plant in plants {
            let (_host, volume) = volume();
            let place = StepDirectory::new(&volume, "/dir", StepKinds::All).expect("room");
            let mut script = StepScript::found(2, &place, 0).expect("empty");
            while script.number < 100 || script.whiteouts.is_empty() {
                script.step(&place).expect("as in the model");
            }
            assert!(script.is_shown(&place).expect("sound"));
            let step = plant(script.any_name(), script.whiteouts.first().expect("one").clone());
            step.perform(&place, 1).expect("sound");
            assert!(!script.is_shown(&place).expect("sound"), "{step:?}");
        }
    }
}
