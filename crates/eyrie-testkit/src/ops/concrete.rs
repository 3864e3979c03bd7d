//! Turns steps into Ops.

use std::collections::BTreeMap;

use crate::acls::acl;
use eyrie_engine::op::CAPABILITY_XATTR;
use eyrie_engine::op::encode::{self, Decoded};
use eyrie_engine::quota::{QUOTA_XATTR, QuotaTable};
use eyrie_engine::{
    AttributeChange, Condition, Content, Engine, Kind, ObjectId, Op, Owner, Result, SetIds, Time, Whiteout,
    XattrMode,
};

use super::{Action, BatchPart, Bytes, InitialContent, ObjectHandle, OpStep};

/// An Op in its encoded form. Unlike an [`Op`], it owns its names and data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpRecord(Vec<u8>);

impl OpRecord {
    /// Encodes `op`.
    pub fn new(op: &Op<'_>) -> OpRecord {
        let mut bytes = Vec::new();
        encode::encode(op, &mut bytes);
        OpRecord(bytes)
    }

    /// Returns the decoded Op. The result owns the list of a batch's Ops.
    ///
    /// # Panics
    /// Panics if [`OpRecord::new`] got an Op without an encoding: a batch within a batch, or an Op whose time
    /// has 1,000,000,000 nanoseconds or more.
    pub fn decode(&self) -> Decoded<'_> {
        encode::decode(&self.0).expect("an encoded Op can be decoded").0
    }
}

/// The Op of a step, and the ids reserved for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Concrete {
    /// The Op.
    pub record: OpRecord,
    /// Reserved ids for the objects that the Op may create.
    pub reserved: Vec<(ObjectHandle, ObjectId)>,
}

/// The existing objects of a run.
#[derive(Clone, Debug)]
pub struct Ids(BTreeMap<ObjectHandle, ObjectId>);

impl Ids {
    /// Returns a set of objects with only the root.
    pub fn new(root: ObjectId) -> Ids {
        Ids(BTreeMap::from([(ObjectHandle::ROOT, root)]))
    }

    /// Returns the id of an object, or `None` if the object was never created or no longer exists.
    pub fn get(&self, handle: ObjectHandle) -> Option<ObjectId> {
        self.0.get(&handle).copied()
    }

    /// Adds an object.
    pub fn insert(&mut self, handle: ObjectHandle, id: ObjectId) {
        self.0.insert(handle, id);
    }

    /// Adds the objects that the Op of `concrete` created in `model`, and gives the other reserved ids back
    /// to `engine`. The engine itself releases the unused ids of a batch that succeeded.
    pub fn settle(&mut self, concrete: &Concrete, succeeded: bool, model: &dyn Engine, engine: &dyn Engine) {
        let is_batch = matches!(concrete.record.decode().op(), Op::Batch { .. });
        for &(handle, id) in &concrete.reserved {
            match model.attributes(id) {
                Ok(_) => self.insert(handle, id),
                Err(_) if is_batch && succeeded => {}
                Err(_) => engine.unreserve(id),
            }
        }
    }

    /// Removes the objects that `engine` no longer has.
    pub fn forget_stale(&mut self, engine: &dyn Engine) {
        self.0.retain(|_, id| engine.attributes(*id).is_ok());
    }

    /// Returns all objects in the order of their creation.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectHandle, ObjectId)> {
        self.0.iter().map(|(&handle, &id)| (handle, id))
    }

    /// Returns the Op of `step` for `engine`, which reserves ids for new objects. `None` if the step is an
    /// open or a close, or names an object that does not exist.
    ///
    /// # Errors
    /// The engine's error if it cannot reserve an id.
    pub fn instantiate(&self, step: &OpStep, engine: &dyn Engine) -> Result<Option<Concrete>> {
        if matches!(step.action, Action::Open { .. } | Action::Close { .. })
            || step.handles().into_iter().any(|handle| self.get(handle).is_none())
        {
            return Ok(None);
        }
        let new = |part| ObjectHandle { step: step.number, part };
        let mut reserved = Vec::new();
        match &step.action {
            Action::Create { kind, .. } => reserved.push((new(0), engine.reserve(*kind)?)),
            Action::Rename { mode, .. } if mode.leaves_whiteout() => {
                reserved.push((new(0), engine.reserve(Kind::CharDevice)?));
            }
            Action::CreateUnnamed { .. } | Action::Put { .. } => {
                reserved.push((new(0), engine.reserve(Kind::File)?))
            }
            Action::Batch { parts, .. } => {
                for (index, part) in parts.iter().enumerate() {
                    if matches!(part, BatchPart::Put { .. }) {
                        reserved.push((new(index as u32), engine.reserve(Kind::File)?));
                    }
                }
            }
            _ => {}
        }
        Ok(Some(Concrete { record: self.record(step, &reserved), reserved }))
    }

    /// Returns the Op of `step`. Callers have checked that all objects of the step exist.
    fn record(&self, step: &OpStep, reserved: &[(ObjectHandle, ObjectId)]) -> OpRecord {
        let time = step.time;
        // The treatment of set-id bits follows from the number of the step. A draw for it would change all
        // later draws of the seed.
        let set_ids = SetIds::ALL[step.number as usize % SetIds::ALL.len()];
        let id = |handle: ObjectHandle| self.0[&handle];
        let new = |part| {
            let made = reserved.iter().find(|(handle, _)| handle.part == part);
            made.expect("an id is reserved for each new object").1
        };
        match step.action {
            Action::Create { dir, name, kind, start, owner } => {
                let bytes = content_bytes(kind, &start);
                let content = match start {
                    InitialContent::Empty => Content::Empty,
                    InitialContent::Bytes(_) => Content::Bytes(&bytes),
                    InitialContent::Device(device) => Content::Device(device),
                };
                let (dir, name, id) = (id(dir), name.bytes(), new(0));
                OpRecord::new(&Op::Create { dir, name, id, owner, content, time })
            }
            Action::CreateUnnamed { dir, owner, linkable } => {
                OpRecord::new(&Op::CreateUnnamed { dir: id(dir), id: new(0), owner, linkable, time })
            }
            Action::Link { dir, name, object } => {
                OpRecord::new(&Op::Link { dir: id(dir), name: name.bytes(), id: id(object), time })
            }
            Action::Unlink { dir, name } => {
                OpRecord::new(&Op::Unlink { dir: id(dir), name: name.bytes(), time })
            }
            Action::RemoveDirectory { dir, name } => {
                OpRecord::new(&Op::RemoveDirectory { dir: id(dir), name: name.bytes(), time })
            }
            Action::Rename { from, to, mode } => OpRecord::new(&Op::Rename {
                from_dir: id(from.0),
                from_name: from.1.bytes(),
                to_dir: id(to.0),
                to_name: to.1.bytes(),
                mode,
                whiteout: mode.leaves_whiteout().then(|| whiteout(new(0), step)),
                time,
            }),
            Action::Write { object, offset, bytes } => {
                OpRecord::new(&Op::Write { id: id(object), offset, data: &bytes.make(), set_ids, time })
            }
            Action::Append { object, bytes } => {
                OpRecord::new(&Op::Append { id: id(object), data: &bytes.make(), set_ids, time })
            }
            Action::SetSize { object, size } => {
                OpRecord::new(&Op::SetSize { id: id(object), size, set_ids, time })
            }
            Action::Fallocate { object, mode, offset, length } => {
                OpRecord::new(&Op::Fallocate { id: id(object), mode, offset, length, set_ids, time })
            }
            Action::CloneRange { source, target, length } => {
                clone_range((id(source.0), source.1), (id(target.0), target.1), length, set_ids, time)
            }
            Action::SetAttributes { object, change } => set_attributes(id(object), change, set_ids, step),
            Action::MarkAccess { object } => OpRecord::new(&Op::MarkAccess { id: id(object), time }),
            Action::SetXattr { object, name, bytes, mode } => {
                let (name, value) = (name.xattr(), &xattr_value(name.xattr(), bytes)[..]);
                OpRecord::new(&Op::SetXattr { id: id(object), name, value, mode, time })
            }
            Action::RemoveXattr { object, name } => {
                OpRecord::new(&Op::RemoveXattr { id: id(object), name: name.xattr(), time })
            }
            Action::SetAcl { object, kind, index, rights } => {
                let (acl, drops_set_gid) = (acl(index, rights), step.number.is_multiple_of(2));
                OpRecord::new(&Op::SetAcl { id: id(object), kind, acl: &acl, drops_set_gid, time })
            }
            Action::Put { dir, name, bytes, owner } => {
                let (dir, name, id, data) = (id(dir), name.bytes(), new(0), &bytes.make()[..]);
                OpRecord::new(&Op::Put { dir, name, id, owner, data, time })
            }
            Action::Erase { dir, name } => {
                OpRecord::new(&Op::Erase { dir: id(dir), name: name.bytes(), time })
            }
            Action::SetLimits { ref limits } => set_limits(id(ObjectHandle::ROOT), limits.as_ref(), time),
            Action::Batch { dir, ref parts } => batch(id(dir), parts, new, step),
            Action::Open { .. } | Action::Close { .. } => unreachable!("no Op"),
        }
    }
}

fn clone_range(
    (source, source_offset): (ObjectId, u64),
    (id, offset): (ObjectId, u64),
    length: u64,
    set_ids: SetIds,
    time: Time,
) -> OpRecord {
    OpRecord::new(&Op::CloneRange { source, source_offset, id, offset, length, set_ids, time })
}

/// Returns the bytes of a new object. The target of a symbolic link never has a zero byte.
fn content_bytes(kind: Kind, start: &InitialContent) -> Vec<u8> {
    let mut bytes = if let InitialContent::Bytes(bytes) = start { bytes.make() } else { Vec::new() };
    if kind == Kind::Symlink {
        bytes.iter_mut().for_each(|byte| *byte |= u8::from(*byte == 0));
    }
    bytes
}

/// Returns the whiteout of a rename. Its owner follows from the number of the step.
fn whiteout(id: ObjectId, step: &OpStep) -> Whiteout {
    Whiteout { id, owner: Owner { mode: 0, uid: step.number % 3, gid: step.number % 5 } }
}

fn set_attributes(id: ObjectId, change: AttributeChange, set_ids: SetIds, step: &OpStep) -> OpRecord {
    let drops_capability = step.number.is_multiple_of(2);
    let change = AttributeChange { set_ids, drops_capability, ..change };
    OpRecord::new(&Op::SetAttributes { id, change, time: step.time })
}

/// Returns the value of an extended attribute. Most values of capabilities are valid.
pub(crate) fn xattr_value(name: &[u8], bytes: Bytes) -> Vec<u8> {
    let value = bytes.make();
    match (name == CAPABILITY_XATTR, bytes.length) {
        (false, _) | (true, 100..) => value,
        (true, 64..) => [&[1, 0, 0, 3][..], &[7; 20]].concat(),
        (true, _) => [&[0, 0, 0, 2][..], &[7; 16]].concat(),
    }
}

fn set_limits(root: ObjectId, limits: Option<&QuotaTable>, time: Time) -> OpRecord {
    let (id, name, mode) = (root, QUOTA_XATTR, XattrMode::Set);
    match limits.map(QuotaTable::encode) {
        Some(value) => OpRecord::new(&Op::SetXattr { id, name, value: &value, mode, time }),
        None => OpRecord::new(&Op::RemoveXattr { id, name, time }),
    }
}

fn batch(dir: ObjectId, parts: &[BatchPart], new: impl Fn(u32) -> ObjectId, step: &OpStep) -> OpRecord {
    let time = step.time;
    let values: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| if let BatchPart::Put { bytes, .. } = part { bytes.make() } else { Vec::new() })
        .collect();
    let ops: Vec<Op<'_>> = parts
        .iter()
        .zip(&values)
        .enumerate()
        .map(|(index, (part, data))| match *part {
            BatchPart::Put { name, owner, .. } => {
                Op::Put { dir, name: name.bytes(), id: new(index as u32), owner, data, time }
            }
            BatchPart::Erase { name } => Op::Erase { dir, name: name.bytes(), time },
            BatchPart::Expect { name, present } => {
                let condition = if present { Condition::Present } else { Condition::Absent };
                Op::Expect { dir, name: name.bytes(), condition }
            }
        })
        .collect();
    OpRecord::new(&Op::Batch { dir, ops: &ops, time })
}
