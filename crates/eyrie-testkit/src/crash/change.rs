//! Ops whose objects are told by their paths, so that the same change runs on any volume that has them.

use eyrie_engine::{
    AttributeChange, Content, Engine, FallocateMode, Kind, ObjectId, Op, Owner, RenameMode, Result, SetIds,
    Time, XattrMode,
};

use crate::ops::{Bytes, Record, Start};

const OWNER: Owner = Owner { mode: 0o640, uid: 3, gid: 4 };

/// An Op to be. Paths are relative to the root; an empty one is the root.
#[expect(missing_docs, reason = "as in Op")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Create {
        path: String,
        kind: Kind,
        start: Start,
    },
    Link {
        path: String,
        of: String,
    },
    Unlink {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        mode: RenameMode,
    },
    Write {
        path: String,
        offset: u64,
        bytes: Bytes,
    },
    Append {
        path: String,
        bytes: Bytes,
    },
    SetSize {
        path: String,
        size: u64,
    },
    Fallocate {
        path: String,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    },
    SetAttributes {
        path: String,
        change: AttributeChange,
    },
    SetXattr {
        path: String,
        name: &'static str,
        bytes: Bytes,
        mode: XattrMode,
    },
    RemoveXattr {
        path: String,
        name: &'static str,
    },
    Put {
        path: String,
        bytes: Bytes,
    },
    Erase {
        path: String,
    },
    /// A change of a file's bytes by a user who takes set-id bits with it.
    ByUser {
        change: Box<Change>,
        set_ids: SetIds,
    },
    /// Puts where there are bytes, erases otherwise.
    Batch {
        dir: String,
        parts: Vec<(String, Option<Bytes>)>,
    },
}

/// An id reserved for an Op, and the entry that will name it if the Op uses it.
pub(super) struct Reserved {
    dir: ObjectId,
    name: Vec<u8>,
    id: ObjectId,
}

impl Reserved {
    /// Gives the id back if the Op, which has run, did not use it.
    pub(super) fn settle(&self, engine: &dyn Engine) {
        if !matches!(engine.lookup(self.dir, &self.name), Ok(Some(id)) if id == self.id) {
            engine.unreserve(self.id);
        }
    }
}

/// The Op of a change on one volume.
pub(super) struct Resolved {
    pub(super) record: Record,
    pub(super) reserved: Vec<Reserved>,
    /// The file whose times may be seen before its bytes.
    pub(super) written: Option<ObjectId>,
}

/// The object at a path; `None` if there is none.
pub(super) fn find(engine: &dyn Engine, path: &str) -> Option<ObjectId> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    names.try_fold(engine.root(), |at, name| engine.lookup(at, name.as_bytes()).ok()?)
}

/// The directory and name of a path; `None` if there is no such directory.
fn place<'p>(engine: &dyn Engine, path: &'p str) -> Option<(ObjectId, &'p [u8])> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    Some((find(engine, dir)?, name.as_bytes()))
}

struct Resolver<'a> {
    engine: &'a dyn Engine,
    time: Time,
    reserved: Vec<Reserved>,
}

impl Resolver<'_> {
    fn reserve(&mut self, dir: ObjectId, name: &[u8], kind: Kind) -> Result<ObjectId> {
        let id = self.engine.reserve(kind)?;
        self.reserved.push(Reserved { dir, name: name.to_vec(), id });
        Ok(id)
    }

    fn create(&mut self, path: &str, kind: Kind, start: Start) -> Result<Option<Record>> {
        let Some((dir, name)) = place(self.engine, path) else { return Ok(None) };
        let id = self.reserve(dir, name, kind)?;
        let bytes = if let Start::Bytes(bytes) = start { bytes.make() } else { Vec::new() };
        let content = match start {
            Start::Empty => Content::Empty,
            Start::Bytes(_) => Content::Bytes(&bytes),
            Start::Device(number) => Content::Device(number),
        };
        let op = Op::Create { dir, name, id, owner: OWNER, content, time: self.time };
        Ok(Some(Record::new(&op)))
    }

    fn put(&mut self, path: &str, bytes: Bytes) -> Result<Option<Record>> {
        let Some((dir, name)) = place(self.engine, path) else { return Ok(None) };
        let id = self.reserve(dir, name, Kind::File)?;
        let data = &bytes.make();
        Ok(Some(Record::new(&Op::Put { dir, name, id, owner: OWNER, data, time: self.time })))
    }

    fn batch(&mut self, dir: &str, parts: &[(String, Option<Bytes>)]) -> Result<Option<Record>> {
        let time = self.time;
        let Some(dir) = find(self.engine, dir) else { return Ok(None) };
        let values: Vec<Vec<u8>> =
            parts.iter().map(|(_, bytes)| bytes.map(Bytes::make).unwrap_or_default()).collect();
        let mut ops = Vec::new();
        for ((name, bytes), data) in parts.iter().zip(&values) {
            let name = name.as_bytes();
            ops.push(if bytes.is_some() {
                let id = self.reserve(dir, name, Kind::File)?;
                Op::Put { dir, name, id, owner: OWNER, data, time }
            } else {
                Op::Erase { dir, name, time }
            });
        }
        Ok(Some(Record::new(&Op::Batch { dir, ops: &ops, time })))
    }
}

/// The same change of a file's bytes, by a user who takes `set_ids` with it.
fn by_user(op: Op<'_>, set_ids: SetIds) -> Op<'_> {
    match op {
        Op::Write { id, offset, data, time, .. } => Op::Write { id, offset, data, set_ids, time },
        Op::Append { id, data, time, .. } => Op::Append { id, data, set_ids, time },
        Op::SetSize { id, size, time, .. } => Op::SetSize { id, size, set_ids, time },
        Op::Fallocate { id, mode, offset, length, time, .. } => {
            Op::Fallocate { id, mode, offset, length, set_ids, time }
        }
        other => other,
    }
}

impl Change {
    /// The Op for `engine`, with ids reserved there; `None` if the volume has not the objects it needs.
    pub(super) fn resolve(&self, engine: &dyn Engine, time: Time) -> Result<Option<Resolved>> {
        let mut resolver = Resolver { engine, time, reserved: Vec::new() };
        let mut written = None;
        let record = match self {
            Change::Create { path, kind, start } => resolver.create(path, *kind, *start)?,
            Change::Put { path, bytes } => resolver.put(path, *bytes)?,
            Change::Batch { dir, parts } => resolver.batch(dir, parts)?,
            Change::Write { path, offset, bytes } => {
                written = find(engine, path);
                let data = &bytes.make();
                written.map(|id| {
                    Record::new(&Op::Write { id, offset: *offset, data, set_ids: SetIds::Keep, time })
                })
            }
            Change::SetXattr { path, name, bytes, mode } => find(engine, path).map(|id| {
                let (name, value, mode) = (name.as_bytes(), &bytes.make()[..], *mode);
                Record::new(&Op::SetXattr { id, name, value, mode, time })
            }),
            Change::ByUser { change, set_ids } => {
                let Some(resolved) = change.resolve(engine, time)? else { return Ok(None) };
                Some(Record::new(&by_user(resolved.record.decode().op(), *set_ids)))
            }
            other => other.plain(engine, time),
        };
        Ok(record.map(|record| Resolved { record, reserved: resolver.reserved, written }))
    }

    /// The Ops that make no object and have no data but an appended one.
    fn plain(&self, engine: &dyn Engine, time: Time) -> Option<Record> {
        let appended = if let Change::Append { bytes, .. } = self { bytes.make() } else { Vec::new() };
        let op = match self {
            Change::Link { path, of } => {
                let (dir, name) = place(engine, path)?;
                Op::Link { dir, name, id: find(engine, of)?, time }
            }
            Change::Unlink { path } => {
                let (dir, name) = place(engine, path)?;
                Op::Unlink { dir, name, time }
            }
            Change::Erase { path } => {
                let (dir, name) = place(engine, path)?;
                Op::Erase { dir, name, time }
            }
            Change::RemoveDirectory { path } => {
                let (dir, name) = place(engine, path)?;
                Op::RemoveDirectory { dir, name, time }
            }
            Change::Rename { from, to, mode } => {
                let ((from_dir, from_name), (to_dir, to_name)) = (place(engine, from)?, place(engine, to)?);
                Op::Rename { from_dir, from_name, to_dir, to_name, mode: *mode, time }
            }
            Change::Append { path, .. } => {
                Op::Append { id: find(engine, path)?, data: &appended, set_ids: SetIds::Keep, time }
            }
            Change::SetSize { path, size } => {
                Op::SetSize { id: find(engine, path)?, size: *size, set_ids: SetIds::Keep, time }
            }
            &Change::Fallocate { ref path, mode, offset, length } => {
                Op::Fallocate { id: find(engine, path)?, mode, offset, length, set_ids: SetIds::Keep, time }
            }
            Change::SetAttributes { path, change } => {
                Op::SetAttributes { id: find(engine, path)?, change: *change, time }
            }
            Change::RemoveXattr { path, name } => {
                Op::RemoveXattr { id: find(engine, path)?, name: name.as_bytes(), time }
            }
            Change::Create { .. }
            | Change::Put { .. }
            | Change::Batch { .. }
            | Change::Write { .. }
            | Change::ByUser { .. }
            | Change::SetXattr { .. } => unreachable!("resolved before"),
        };
        Some(Record::new(&op))
    }
}
