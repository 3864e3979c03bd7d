//! From steps to Ops.

use std::collections::BTreeMap;

use eyrie_engine::op::encode::{self, Decoded};
use eyrie_engine::{AttributeChange, Content, Engine, Kind, ObjectId, Op, Result, SetIds};

use super::{Action, Handle, Part, Start, Step};

/// An Op that owns its parts, as a log would: encoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record(Vec<u8>);

impl Record {
    /// Records `op`.
    pub fn new(op: &Op<'_>) -> Record {
        let mut bytes = Vec::new();
        encode::encode(op, &mut bytes);
        Record(bytes)
    }

    /// The Op, within what owns a batch's list.
    ///
    /// # Panics
    /// If the Op was one that has no encoding (a batch within a batch, a time of a second or more of nanoseconds).
    pub fn decode(&self) -> Decoded<'_> {
        encode::decode(&self.0).expect("what was encoded can be decoded").0
    }
}

/// The Op of a step, and the ids reserved for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Concrete {
    /// The Op.
    pub record: Record,
    /// Ids for the objects that it may make.
    pub reserved: Vec<(Handle, ObjectId)>,
}

/// The objects of a run that are not gone.
#[derive(Clone, Debug)]
pub struct Ids(BTreeMap<Handle, ObjectId>);

impl Ids {
    /// Only the root.
    pub fn new(root: ObjectId) -> Ids {
        Ids(BTreeMap::from([(Handle::ROOT, root)]))
    }

    /// The id of an object; `None` if the object was never made or is gone.
    pub fn get(&self, handle: Handle) -> Option<ObjectId> {
        self.0.get(&handle).copied()
    }

    /// Adds an object.
    pub fn insert(&mut self, handle: Handle, id: ObjectId) {
        self.0.insert(handle, id);
    }

    /// Forgets what `engine` no longer has.
    pub fn forget_stale(&mut self, engine: &dyn Engine) {
        self.0.retain(|_, id| engine.attributes(*id).is_ok());
    }

    /// All objects, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, ObjectId)> {
        self.0.iter().map(|(&handle, &id)| (handle, id))
    }

    /// The Op of `step` for `engine`, which reserves ids for new objects. `None` if the step is none (an open, a close)
    /// or names an object that there is not.
    ///
    /// # Errors
    /// What `engine` answers when an id is to be reserved.
    pub fn instantiate(&self, step: &Step, engine: &dyn Engine) -> Result<Option<Concrete>> {
        if matches!(step.action, Action::Open { .. } | Action::Close { .. })
            || step.handles().into_iter().any(|handle| self.get(handle).is_none())
        {
            return Ok(None);
        }
        let new = |part| Handle { step: step.number, part };
        let mut reserved = Vec::new();
        match &step.action {
            Action::Create { kind, .. } => reserved.push((new(0), engine.reserve(*kind)?)),
            Action::Put { .. } => reserved.push((new(0), engine.reserve(Kind::File)?)),
            Action::Batch { parts, .. } => {
                for (index, part) in parts.iter().enumerate() {
                    if matches!(part, Part::Put { .. }) {
                        reserved.push((new(index as u32), engine.reserve(Kind::File)?));
                    }
                }
            }
            _ => {}
        }
        Ok(Some(Concrete { record: self.record(step, &reserved), reserved }))
    }

    /// The Op of `step`, all of whose objects there are.
    fn record(&self, step: &Step, reserved: &[(Handle, ObjectId)]) -> Record {
        let time = step.time;
        // Follows from the number, so that it changes nothing of what a seed draws.
        let set_ids = SetIds::ALL[step.number as usize % SetIds::ALL.len()];
        let id = |handle: Handle| self.0[&handle];
        let new = |part| {
            let made = reserved.iter().find(|(handle, _)| handle.part == part);
            made.expect("an id is reserved for each new object").1
        };
        match step.action {
            Action::Create { dir, name, kind, start, owner } => {
                let bytes = content_bytes(kind, &start);
                let content = match start {
                    Start::Empty => Content::Empty,
                    Start::Bytes(_) => Content::Bytes(&bytes),
                    Start::Device(device) => Content::Device(device),
                };
                let (dir, name, id) = (id(dir), name.bytes(), new(0));
                Record::new(&Op::Create { dir, name, id, owner, content, time })
            }
            Action::Link { dir, name, object } => {
                Record::new(&Op::Link { dir: id(dir), name: name.bytes(), id: id(object), time })
            }
            Action::Unlink { dir, name } => {
                Record::new(&Op::Unlink { dir: id(dir), name: name.bytes(), time })
            }
            Action::RemoveDirectory { dir, name } => {
                Record::new(&Op::RemoveDirectory { dir: id(dir), name: name.bytes(), time })
            }
            Action::Rename { from, to, mode } => Record::new(&Op::Rename {
                from_dir: id(from.0),
                from_name: from.1.bytes(),
                to_dir: id(to.0),
                to_name: to.1.bytes(),
                mode,
                time,
            }),
            Action::Write { object, offset, bytes } => {
                Record::new(&Op::Write { id: id(object), offset, data: &bytes.make(), set_ids, time })
            }
            Action::Append { object, bytes } => {
                Record::new(&Op::Append { id: id(object), data: &bytes.make(), set_ids, time })
            }
            Action::SetSize { object, size } => {
                Record::new(&Op::SetSize { id: id(object), size, set_ids, time })
            }
            Action::Fallocate { object, mode, offset, length } => {
                Record::new(&Op::Fallocate { id: id(object), mode, offset, length, set_ids, time })
            }
            Action::SetAttributes { object, change } => {
                let change = AttributeChange { set_ids, ..change };
                Record::new(&Op::SetAttributes { id: id(object), change, time })
            }
            Action::SetXattr { object, name, bytes, mode } => Record::new(&Op::SetXattr {
                id: id(object),
                name: name.bytes(),
                value: &bytes.make(),
                mode,
                time,
            }),
            Action::RemoveXattr { object, name } => {
                Record::new(&Op::RemoveXattr { id: id(object), name: name.bytes(), time })
            }
            Action::Put { dir, name, bytes, owner } => Record::new(&Op::Put {
                dir: id(dir),
                name: name.bytes(),
                id: new(0),
                owner,
                data: &bytes.make(),
                time,
            }),
            Action::Erase { dir, name } => Record::new(&Op::Erase { dir: id(dir), name: name.bytes(), time }),
            Action::Batch { dir, ref parts } => batch(id(dir), parts, new, step),
            Action::Open { .. } | Action::Close { .. } => unreachable!("no Op"),
        }
    }
}

/// The bytes that a new object has. No call makes the target of a symbolic link with a zero byte.
fn content_bytes(kind: Kind, start: &Start) -> Vec<u8> {
    let mut bytes = if let Start::Bytes(bytes) = start { bytes.make() } else { Vec::new() };
    if kind == Kind::Symlink {
        bytes.iter_mut().for_each(|byte| *byte |= u8::from(*byte == 0));
    }
    bytes
}

fn batch(dir: ObjectId, parts: &[Part], new: impl Fn(u32) -> ObjectId, step: &Step) -> Record {
    let time = step.time;
    let values: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| if let Part::Put { bytes, .. } = part { bytes.make() } else { Vec::new() })
        .collect();
    let ops: Vec<Op<'_>> = parts
        .iter()
        .zip(&values)
        .enumerate()
        .map(|(index, (part, data))| match *part {
            Part::Put { name, owner, .. } => {
                Op::Put { dir, name: name.bytes(), id: new(index as u32), owner, data, time }
            }
            Part::Erase { name } => Op::Erase { dir, name: name.bytes(), time },
        })
        .collect();
    Record::new(&Op::Batch { dir, ops: &ops, time })
}
