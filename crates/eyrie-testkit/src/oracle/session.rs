//! One run of the oracle: the engine, the model, and the objects that are open in both.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;

use eyrie_engine::quota::QuotaReport;
use eyrie_engine::{
    Applied, Condition, Engine, Error, FileView, Kind, Model, ObjectId, Op, Owner, Time, Version,
};
use eyrie_medium::epoch;

use super::{OracleOptions, limits};
use crate::ops::{Action, Ids, ObjectHandle, OpStep};
use eyrie_sim::compare::{comparable, difference, try_tree, xattr_differences, xattrs};

/// The result of a comparison. `Err` has the difference.
type Verdict = Result<(), String>;

/// Number of bytes that are compared before and after the bytes that an Op wrote.
const MARGIN: u64 = 64;
/// Maximum number of bytes of a file in one comparison.
const MAX_WINDOW: u64 = 4 << 20;

/// The engine under test beside the model.
pub(super) struct OracleSession<'a> {
    engine: &'a dyn Engine,
    model: Model,
    ids: Ids,
    /// The number of times that each object is open.
    opens: BTreeMap<ObjectHandle, u32>,
    /// The versions of each file at its last comparison: the version in the engine, and the version in the
    /// model.
    versions: RefCell<BTreeMap<ObjectId, (Version, Version)>>,
    count: u32,
    options: OracleOptions,
}

impl<'a> OracleSession<'a> {
    pub(super) fn new(engine: &'a dyn Engine, options: OracleOptions) -> Result<OracleSession<'a>, String> {
        let root = engine.root();
        let attributes =
            engine.attributes(root).map_err(|error| format!("attributes of the root: {error}"))?;
        let owner = Owner { mode: attributes.mode, uid: attributes.uid, gid: attributes.gid };
        let birth = engine.birth(root).map_err(|error| format!("birth of the root: {error}"))?;
        let model = Model::new(root, owner, birth.created);
        let session = OracleSession {
            engine,
            model,
            ids: Ids::new(root),
            opens: BTreeMap::new(),
            versions: RefCell::default(),
            count: 0,
            options,
        };
        session.compare_trees()?;
        Ok(session)
    }

    pub(super) fn ids(&self) -> &Ids {
        &self.ids
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the number of steps so far.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn step(&mut self, step: &OpStep) -> Verdict {
        self.count += 1;
        match step.action {
            Action::Open { object } => self.open(object)?,
            Action::Close { object } => self.close(object)?,
            _ => self.apply(step)?,
        }
        self.ids.forget_stale(&self.model);
        if self.count.is_multiple_of(self.options.tree_every.max(1)) { self.compare_trees() } else { Ok(()) }
    }

    /// Closes all open objects, and compares the whole volume before and after that.
    pub(super) fn finish(mut self) -> Verdict {
        self.compare_trees()?;
        for (handle, count) in std::mem::take(&mut self.opens) {
            if let Some(id) = self.ids.get(handle) {
                self.compare_object(id, 0..0)?;
                for _ in 0..count {
                    self.engine.close(id);
                    self.model.close(id);
                }
            }
        }
        self.compare_trees()
    }

    fn open(&mut self, object: ObjectHandle) -> Verdict {
        let Some(id) = self.ids.get(object) else { return Ok(()) };
        self.engine.open(id).map_err(|error| format!("open of {object:?}: {error}"))?;
        self.model.open(id).map_err(|error| format!("open of {object:?} in the model: {error}"))?;
        *self.opens.entry(object).or_default() += 1;
        Ok(())
    }

    fn close(&mut self, object: ObjectHandle) -> Verdict {
        let Some(id) = self.ids.get(object) else { return Ok(()) };
        match self.opens.get_mut(&object) {
            Some(count) if *count > 0 => *count -= 1,
            _ => return Ok(()),
        }
        self.engine.close(id);
        self.model.close(id);
        self.compare_object(id, 0..0)
    }

    fn apply(&mut self, step: &OpStep) -> Verdict {
        let _pin = epoch::pin();
        let concrete = match self.ids.instantiate(step, self.engine) {
            Ok(Some(concrete)) => concrete,
            Ok(None) | Err(Error::NoSpace) => return Ok(()),
            Err(error) => return Err(format!("reserve: {error}")),
        };
        let decoded = concrete.record.decode();
        let op = decoded.op();
        let succeeded = self.apply_both(&op)?;
        self.ids.settle(&concrete, succeeded, &self.model, self.engine);
        if let (Action::CreateUnnamed { .. }, true) = (&step.action, succeeded) {
            self.open(ObjectHandle { step: step.number, part: 0 })?;
        }
        self.compare_named(&op)
    }

    /// Applies an Op to the engine and to the model. If the engine has no space for the Op, the model does
    /// not apply it. Returns true if the Op succeeded.
    fn apply_both(&self, op: &Op<'_>) -> Result<bool, String> {
        let before = self.quotas()?;
        let actual = self.engine.apply(op);
        // The model does not know the storage of an Op. If the storage is the only possible reason for a
        // refusal, the Op is applied without limits, so that the accounts show this storage.
        let is_refused = matches!(actual, Err(Error::QuotaExceeded)) && self.model.fork().apply(op).is_ok();
        let actual = if is_refused {
            self.compare_named(op)?;
            self.engine.apply_above_limits(op)
        } else {
            actual
        };
        if matches!(actual, Err(Error::NoSpace)) {
            return Ok(false);
        }
        let succeeded = actual.is_ok();
        let expected = if is_refused { self.model.apply_above_limits(op) } else { self.model.apply(op) };
        let [actual, expected] = [actual, expected].map(|result| result.map(|done| outcome(op, done)));
        same("result", actual, expected)?;
        // If an Op also removes objects, their storage hides a part of the storage that the Op takes.
        let may_remove = matches!(op, Op::Batch { .. } | Op::Rename { .. });
        match (is_refused, limits::exceeded(&before, &self.quotas()?, op.time())) {
            (true, false) if !may_remove => Err("no limit stops the Op, but the engine refuses it".into()),
            (false, true) => Err("a limit stops the Op, but the engine applies it".into()),
            _ => Ok(succeeded),
        }
    }

    /// Returns the accounts of the engine, after a comparison with those of the model.
    fn quotas(&self) -> Result<Vec<QuotaReport>, String> {
        let accounts = |engine: &dyn Engine| engine.quotas().map_err(|error| format!("quotas: {error}"));
        let (actual, expected) = (accounts(self.engine)?, accounts(&self.model)?);
        let known = |reports: &[QuotaReport]| reports.iter().map(limits::without_bytes).collect::<Vec<_>>();
        same("quotas", Ok(actual.as_deref().map(known)), Ok(expected.as_deref().map(known)))?;
        Ok(actual.unwrap_or_default())
    }

    /// Compares all names and objects that `op` names.
    fn compare_named(&self, op: &Op<'_>) -> Verdict {
        match *op {
            Op::Create { dir, name, .. }
            | Op::Unlink { dir, name, .. }
            | Op::RemoveDirectory { dir, name, .. }
            | Op::Put { dir, name, .. }
            | Op::Erase { dir, name, .. }
            | Op::Expect { dir, name, .. } => self.compare_entry(dir, name),
            Op::CreateUnnamed { dir, id, .. } => {
                self.compare_object(dir, 0..0)?;
                self.compare_object(id, 0..0)
            }
            Op::Link { dir, name, id, .. } => {
                self.compare_entry(dir, name)?;
                self.compare_object(id, 0..0)
            }
            Op::Rename { from_dir, from_name, to_dir, to_name, .. } => {
                self.compare_entry(from_dir, from_name)?;
                self.compare_entry(to_dir, to_name)
            }
            Op::Write { id, offset, data, .. } => {
                self.compare_object(id, offset..offset.saturating_add(data.len() as u64))
            }
            Op::Append { id, data, .. } => {
                let size = self.model.attributes(id).map_or(0, |attributes| attributes.size);
                self.compare_object(id, size.saturating_sub(data.len() as u64)..size)
            }
            Op::SetSize { id, size, .. } => self.compare_object(id, size..size),
            Op::Fallocate { id, offset, length, .. } => {
                self.compare_object(id, offset..offset.saturating_add(length))
            }
            Op::CloneRange { source, id, offset, length, .. } => {
                self.compare_object(source, 0..0)?;
                self.compare_object(id, offset..offset.saturating_add(length))
            }
            Op::SetAttributes { id, .. }
            | Op::MarkAccess { id, .. }
            | Op::SetXattr { id, .. }
            | Op::RemoveXattr { id, .. }
            | Op::SetAcl { id, .. } => self.compare_object(id, 0..0),
            Op::Batch { dir, ops, .. } => {
                self.compare_object(dir, 0..0)?;
                ops.iter().try_for_each(|op| self.compare_named(op))
            }
        }
    }

    fn compare_entry(&self, dir: ObjectId, name: &[u8]) -> Verdict {
        let expected = self.model.lookup(dir, name);
        let found = expected.as_ref().ok().copied().flatten();
        same("look-up", self.engine.lookup(dir, name), expected)?;
        self.compare_object(dir, 0..0)?;
        let Some(id) = found else { return Ok(()) };
        self.compare_object(id, 0..0)?;
        if id.kind() == Kind::File { self.compare_conditions(dir, name, id) } else { Ok(()) }
    }

    /// Checks that a condition with the version of the file holds, and that a condition with another version
    /// does not.
    fn compare_conditions(&self, dir: ObjectId, name: &[u8], id: ObjectId) -> Verdict {
        let version = self.engine.version(id).map_err(|error| format!("version of {id:?}: {error}"))?;
        let [session, generation, changes] = version.raw();
        let before = Version::from_raw([session, generation, changes.wrapping_sub(1)]);
        for (version, expected) in [(version, Ok(())), (before, Err(Error::ConditionFailed))] {
            let condition = Condition::Version(version);
            let ops = [Op::Expect { dir, name, condition }];
            let applied = self.engine.apply(&Op::Batch { dir, ops: &ops, time: Time::default() });
            same("a condition", applied.map(drop), expected).map_err(|what| format!("{id:?}: {what}"))?;
        }
        Ok(())
    }

    /// Checks that the engine gave the file a new version if its bytes have changed since the last call for
    /// this file. The version in the model tells if they have changed.
    fn compare_version(&self, id: ObjectId) -> Verdict {
        let of =
            |engine: &dyn Engine| engine.version(id).map_err(|error| format!("version of {id:?}: {error}"));
        let (actual, expected) = (of(self.engine)?, of(&self.model)?);
        match self.versions.borrow_mut().insert(id, (actual, expected)) {
            Some((before, old)) if before == actual && old != expected => {
                Err(format!("{id:?}: its bytes changed, but its version is still {actual:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Compares the attributes and the extended attributes of an existing object. For an object with data,
    /// also compares its first bytes, the bytes in and around `range`, and its view.
    fn compare_object(&self, id: ObjectId, range: std::ops::Range<u64>) -> Verdict {
        let Ok(expected) = self.model.attributes(id) else { return Ok(()) };
        let actual = self.engine.attributes(id);
        same("attributes", actual.map(comparable), Ok(comparable(expected)))
            .map_err(|what| format!("{id:?}: {what}"))?;
        let (found, wanted) = (xattrs(self.engine, id)?, xattrs(&self.model, id)?);
        let differences = xattr_differences(&found, &wanted);
        if !differences.is_empty() {
            let lines = differences.join("; ");
            return Err(format!("{id:?} (first) is not as it should be (second): {lines}"));
        }
        if !id.kind().has_data() {
            return Ok(());
        }
        self.compare_version(id)?;
        self.compare_bytes(id, 0, 256)?;
        let start = range.start.saturating_sub(MARGIN);
        let length = (range.end - start).saturating_add(MARGIN).min(MAX_WINDOW);
        self.compare_bytes(id, start, length as usize)?;
        let storage = |engine: &dyn Engine| engine.has_storage(id);
        same("storage", storage(self.engine), storage(&self.model))
            .map_err(|what| format!("{id:?}: {what}"))?;
        self.compare_view(id, expected.size)
    }

    fn compare_bytes(&self, id: ObjectId, offset: u64, length: usize) -> Verdict {
        let read = |engine: &dyn Engine| {
            let mut bytes = vec![0xee; length];
            engine.read(id, offset, &mut bytes).map(|count| {
                bytes.truncate(count);
                bytes
            })
        };
        let (actual, expected) = (read(self.engine), read(&self.model));
        if let (Ok(actual), Ok(expected)) = (&actual, &expected) {
            if actual.len() != expected.len() {
                let (actual, expected) = (actual.len(), expected.len());
                return Err(format!("{id:?}: read at {offset} gave {actual} bytes, should be {expected}"));
            }
            let Some(at) = actual.iter().zip(expected).position(|(a, b)| a != b) else { return Ok(()) };
            let (actual, expected) = (actual[at], expected[at]);
            let at = offset + at as u64;
            return Err(format!("{id:?}: byte {at} is {actual:#04x}, should be {expected:#04x}"));
        }
        same("read", actual.map(|_| ()), expected.map(|_| ()))
    }

    /// Compares the bytes that the engine shows in place with the bytes in the model. Skips files of more
    /// than [`MAX_WINDOW`] bytes.
    fn compare_view(&self, id: ObjectId, size: u64) -> Verdict {
        if size > MAX_WINDOW {
            return Ok(());
        }
        let guard = epoch::pin();
        let view = self
            .engine
            .view(id, (0, u64::MAX), &guard)
            .map_err(|error| format!("view of {id:?}: {error}"))?;
        let Some(view) = view.and_then(FileView::whole) else { return Ok(()) };
        let mut bytes = vec![0; size as usize];
        self.model.read(id, 0, &mut bytes).map_err(|error| format!("read of {id:?}: {error}"))?;
        if view == bytes { Ok(()) } else { Err(format!("view of {id:?} differs from its bytes")) }
    }

    fn compare_trees(&self) -> Verdict {
        let _pin = epoch::pin();
        let read =
            |engine: &dyn Engine| try_tree(engine, self.options.include).map_err(|error| error.to_string());
        let actual = read(self.engine)?;
        let expected = read(&self.model).map_err(|what| format!("the model is unsound: {what}"))?;
        match difference(&actual, &expected) {
            None => Ok(()),
            Some(what) => Err(format!("the engine (first) is not as it should be (second):\n{what}")),
        }
    }
}

/// Returns `applied` without the fields that have no meaning for `op`.
pub(crate) fn outcome(op: &Op<'_>, applied: Applied) -> Applied {
    Applied {
        offset: if matches!(op, Op::Append { .. }) { applied.offset } else { 0 },
        created: matches!(op, Op::Put { .. } | Op::Rename { .. }) && applied.created,
        generation: 0,
    }
}

/// Compares two results: their values, or their errnos.
fn same<T: PartialEq + Debug>(
    call: &str,
    actual: eyrie_engine::Result<T>,
    expected: eyrie_engine::Result<T>,
) -> Verdict {
    let is_same = match (&actual, &expected) {
        (Ok(actual), Ok(expected)) => actual == expected,
        (Err(actual), Err(expected)) => actual.errno() == expected.errno(),
        _ => false,
    };
    if is_same { Ok(()) } else { Err(format!("{call} is {actual:?}, should be {expected:?}")) }
}
