//! Ops that name their objects by path, so that one Op runs on any volume with these paths.

use eyrie_engine::access::AclKind;
use eyrie_engine::quota::{QUOTA_XATTR, QuotaId, QuotaLimits, QuotaTable};
use eyrie_engine::scm::Scm;
use eyrie_engine::{
    Applied, AttributeChange, Content, Engine, FallocateMode, Kind, Model, ObjectId, Op, Owner, RenameMode,
    Result, SetIds, Time, Whiteout, XattrMode,
};

use crate::ops::{Bytes, InitialContent, OpRecord, xattr_value};

const OWNER: Owner = Owner { mode: 0o640, uid: 3, gid: 4 };

/// An Op whose objects are named by path. Paths are relative to the root, and the empty path is the root.
#[expect(missing_docs, reason = "as in Op")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathOp {
    Create {
        path: String,
        kind: Kind,
        start: InitialContent,
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
    CloneRange {
        from: (String, u64),
        to: (String, u64),
        length: u64,
    },
    SetAttributes {
        path: String,
        change: AttributeChange,
    },
    MarkAccess {
        path: String,
    },
    SetXattr {
        path: String,
        name: String,
        bytes: Bytes,
        mode: XattrMode,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    SetAcl {
        path: String,
        kind: AclKind,
        acl: Vec<u8>,
    },
    Put {
        path: String,
        bytes: Bytes,
    },
    Erase {
        path: String,
    },
    /// A change of a file's bytes by a user whose writes clear set-id bits.
    ByUser {
        change: Box<PathOp>,
        set_ids: SetIds,
    },
    /// Replaces all limits of quotas by the limits of one account.
    SetLimits {
        account: QuotaId,
        limits: QuotaLimits,
    },
    /// A put for each name with bytes, and an erase for each name without.
    Batch {
        dir: String,
        parts: Vec<(String, Option<Bytes>)>,
    },
}

/// An id that is reserved for an Op, and the entry that names the new object if the Op uses the id.
pub(super) struct Reserved {
    dir: ObjectId,
    name: Vec<u8>,
    id: ObjectId,
}

impl Reserved {
    /// Releases the id unless the Op used it. Callers have applied the Op.
    pub(super) fn release_unused(&self, engine: &dyn Engine) {
        if !matches!(engine.lookup(self.dir, &self.name), Ok(Some(id)) if id == self.id) {
            engine.unreserve(self.id);
        }
    }
}

/// An Op with the ids of one volume.
pub(super) struct Resolved {
    pub(super) record: OpRecord,
    pub(super) reserved: Vec<Reserved>,
    /// The file of a [`PathOp::Write`]. A crash may leave the new times of the file without its new bytes.
    /// `None` for other Ops, also for a [`PathOp::ByUser`].
    pub(super) written: Option<ObjectId>,
}

/// Returns the object at a path.
pub(super) fn find(engine: &dyn Engine, path: &str) -> Option<ObjectId> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    names.try_fold(engine.root(), |at, name| engine.lookup(at, name.as_bytes()).ok()?)
}

/// Returns the directory and the name of a path, or `None` if the directory does not exist.
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

    fn create(&mut self, path: &str, kind: Kind, start: InitialContent) -> Result<Option<OpRecord>> {
        let Some((dir, name)) = place(self.engine, path) else { return Ok(None) };
        let id = self.reserve(dir, name, kind)?;
        let bytes = if let InitialContent::Bytes(bytes) = start { bytes.make() } else { Vec::new() };
        let content = match start {
            InitialContent::Empty => Content::Empty,
            InitialContent::Bytes(_) => Content::Bytes(&bytes),
            InitialContent::Device(number) => Content::Device(number),
        };
        let op = Op::Create { dir, name, id, owner: OWNER, content, time: self.time };
        Ok(Some(OpRecord::new(&op)))
    }

    fn put(&mut self, path: &str, bytes: Bytes) -> Result<Option<OpRecord>> {
        let Some((dir, name)) = place(self.engine, path) else { return Ok(None) };
        let id = self.reserve(dir, name, Kind::File)?;
        let data = &bytes.make();
        Ok(Some(OpRecord::new(&Op::Put { dir, name, id, owner: OWNER, data, time: self.time })))
    }

    fn rename(&mut self, from: &str, to: &str, mode: RenameMode) -> Result<Option<OpRecord>> {
        let Some((from_dir, from_name)) = place(self.engine, from) else { return Ok(None) };
        let Some((to_dir, to_name)) = place(self.engine, to) else { return Ok(None) };
        let whiteout = if mode.leaves_whiteout() {
            let id = self.reserve(from_dir, from_name, Kind::CharDevice)?;
            Some(Whiteout { id, owner: OWNER })
        } else {
            None
        };
        let time = self.time;
        let op = Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time };
        Ok(Some(OpRecord::new(&op)))
    }

    fn batch(&mut self, dir: &str, parts: &[(String, Option<Bytes>)]) -> Result<Option<OpRecord>> {
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
        Ok(Some(OpRecord::new(&Op::Batch { dir, ops: &ops, time })))
    }
}

/// Returns `op` with this value of `set_ids`. Ops without this field stay unchanged.
fn by_user(op: Op<'_>, set_ids: SetIds) -> Op<'_> {
    match op {
        Op::Write { id, offset, data, time, .. } => Op::Write { id, offset, data, set_ids, time },
        Op::Append { id, data, time, .. } => Op::Append { id, data, set_ids, time },
        Op::SetSize { id, size, time, .. } => Op::SetSize { id, size, set_ids, time },
        Op::Fallocate { id, mode, offset, length, time, .. } => {
            Op::Fallocate { id, mode, offset, length, set_ids, time }
        }
        Op::CloneRange { source, source_offset, id, offset, length, time, .. } => {
            Op::CloneRange { source, source_offset, id, offset, length, set_ids, time }
        }
        other => other,
    }
}

impl PathOp {
    /// Returns the path on which the Op acts: for a link the new name, for a rename the old name, and for a
    /// batch the directory.
    pub(super) fn path(&self) -> &str {
        match self {
            PathOp::Create { path, .. }
            | PathOp::Link { path, .. }
            | PathOp::Unlink { path }
            | PathOp::RemoveDirectory { path }
            | PathOp::Rename { from: path, .. }
            | PathOp::Write { path, .. }
            | PathOp::Append { path, .. }
            | PathOp::SetSize { path, .. }
            | PathOp::Fallocate { path, .. }
            | PathOp::CloneRange { to: (path, _), .. }
            | PathOp::SetAttributes { path, .. }
            | PathOp::MarkAccess { path }
            | PathOp::SetXattr { path, .. }
            | PathOp::RemoveXattr { path, .. }
            | PathOp::SetAcl { path, .. }
            | PathOp::Put { path, .. }
            | PathOp::Erase { path }
            | PathOp::Batch { dir: path, .. } => path,
            PathOp::SetLimits { .. } => "",
            PathOp::ByUser { change, .. } => change.path(),
        }
    }

    /// Returns the Op for `engine`, with ids that `engine` reserved. `None` if the volume lacks an object
    /// whose id the Op needs.
    pub(super) fn resolve(&self, engine: &dyn Engine, time: Time) -> Result<Option<Resolved>> {
        let mut resolver = Resolver { engine, time, reserved: Vec::new() };
        let mut written = None;
        let record = match self {
            PathOp::Create { path, kind, start } => resolver.create(path, *kind, *start)?,
            PathOp::Put { path, bytes } => resolver.put(path, *bytes)?,
            PathOp::Rename { from, to, mode } => resolver.rename(from, to, *mode)?,
            PathOp::Batch { dir, parts } => resolver.batch(dir, parts)?,
            PathOp::Write { path, offset, bytes } => {
                written = find(engine, path);
                let data = &bytes.make();
                written.map(|id| {
                    OpRecord::new(&Op::Write { id, offset: *offset, data, set_ids: SetIds::Keep, time })
                })
            }
            PathOp::SetXattr { path, name, bytes, mode } => find(engine, path).map(|id| {
                let (name, value, mode) = (name.as_bytes(), &xattr_value(name.as_bytes(), *bytes)[..], *mode);
                OpRecord::new(&Op::SetXattr { id, name, value, mode, time })
            }),
            &PathOp::SetLimits { account, limits } => {
                let mut table = QuotaTable::default();
                table.set(account, limits)?;
                let (id, name, value) = (engine.root(), QUOTA_XATTR, &table.encode()[..]);
                Some(OpRecord::new(&Op::SetXattr { id, name, value, mode: XattrMode::Set, time }))
            }
            PathOp::ByUser { change, set_ids } => {
                let Some(resolved) = change.resolve(engine, time)? else { return Ok(None) };
                Some(OpRecord::new(&by_user(resolved.record.decode().op(), *set_ids)))
            }
            other => other.plain(engine, time),
        };
        Ok(record.map(|record| Resolved { record, reserved: resolver.reserved, written }))
    }

    /// Resolves the Ops for which [`PathOp::resolve`] has no arm of its own.
    fn plain(&self, engine: &dyn Engine, time: Time) -> Option<OpRecord> {
        let appended = if let PathOp::Append { bytes, .. } = self { bytes.make() } else { Vec::new() };
        let op = match self {
            PathOp::Link { path, of } => {
                let (dir, name) = place(engine, path)?;
                Op::Link { dir, name, id: find(engine, of)?, time }
            }
            PathOp::Unlink { path } => {
                let (dir, name) = place(engine, path)?;
                Op::Unlink { dir, name, time }
            }
            PathOp::Erase { path } => {
                let (dir, name) = place(engine, path)?;
                Op::Erase { dir, name, time }
            }
            PathOp::RemoveDirectory { path } => {
                let (dir, name) = place(engine, path)?;
                Op::RemoveDirectory { dir, name, time }
            }
            PathOp::Append { path, .. } => {
                Op::Append { id: find(engine, path)?, data: &appended, set_ids: SetIds::Keep, time }
            }
            PathOp::SetSize { path, size } => {
                Op::SetSize { id: find(engine, path)?, size: *size, set_ids: SetIds::Keep, time }
            }
            &PathOp::Fallocate { ref path, mode, offset, length } => {
                Op::Fallocate { id: find(engine, path)?, mode, offset, length, set_ids: SetIds::Keep, time }
            }
            &PathOp::CloneRange { from: (ref from, source_offset), to: (ref to, offset), length } => {
                let (source, id) = (find(engine, from)?, find(engine, to)?);
                Op::CloneRange { source, source_offset, id, offset, length, set_ids: SetIds::Keep, time }
            }
            PathOp::SetAttributes { path, change } => {
                Op::SetAttributes { id: find(engine, path)?, change: *change, time }
            }
            PathOp::MarkAccess { path } => Op::MarkAccess { id: find(engine, path)?, time },
            PathOp::SetAcl { path, kind, acl } => {
                Op::SetAcl { id: find(engine, path)?, kind: *kind, acl, drops_set_gid: false, time }
            }
            PathOp::RemoveXattr { path, name } => {
                Op::RemoveXattr { id: find(engine, path)?, name: name.as_bytes(), time }
            }
            PathOp::Create { .. }
            | PathOp::Put { .. }
            | PathOp::Rename { .. }
            | PathOp::Batch { .. }
            | PathOp::Write { .. }
            | PathOp::ByUser { .. }
            | PathOp::SetLimits { .. }
            | PathOp::SetXattr { .. } => unreachable!("resolved before"),
        };
        Some(OpRecord::new(&op))
    }
}

/// Applies an Op to the engine and to the model, and releases the ids that the Op did not use.
pub(super) fn apply(engine: &Scm, model: &Model, resolved: &Resolved) -> (Result<Applied>, Result<Applied>) {
    let decoded = resolved.record.decode();
    let actual = engine.apply(&decoded.op());
    let expected = model.apply(&decoded.op());
    // The engine itself releases the unused ids of a batch that succeeded.
    if actual.is_err() || !matches!(decoded.op(), Op::Batch { .. }) {
        resolved.reserved.iter().for_each(|reserved| reserved.release_unused(engine));
    }
    (actual, expected)
}

pub(super) fn bytes(length: usize, pattern: u32) -> Bytes {
    Bytes { length, pattern }
}

pub(super) fn create(path: &str, kind: Kind, start: InitialContent) -> PathOp {
    PathOp::Create { path: path.into(), kind, start }
}

pub(super) fn file(path: &str, length: usize) -> PathOp {
    create(path, Kind::File, InitialContent::Bytes(bytes(length, 100 + length as u32)))
}

pub(super) fn directory(path: &str) -> PathOp {
    create(path, Kind::Directory, InitialContent::Empty)
}

pub(super) fn link(path: &str, of: &str) -> PathOp {
    PathOp::Link { path: path.into(), of: of.into() }
}

pub(super) fn unlink(path: &str) -> PathOp {
    PathOp::Unlink { path: path.into() }
}

pub(super) fn rename(from: &str, to: &str, mode: RenameMode) -> PathOp {
    PathOp::Rename { from: from.into(), to: to.into(), mode }
}

pub(super) fn write(path: &str, offset: u64, length: usize) -> PathOp {
    PathOp::Write { path: path.into(), offset, bytes: bytes(length, 7) }
}

pub(super) fn append(path: &str, length: usize) -> PathOp {
    PathOp::Append { path: path.into(), bytes: bytes(length, 8) }
}

pub(super) fn set_size(path: &str, size: u64) -> PathOp {
    PathOp::SetSize { path: path.into(), size }
}

pub(super) fn put(path: &str, length: usize) -> PathOp {
    PathOp::Put { path: path.into(), bytes: bytes(length, 9) }
}

pub(super) fn xattr(path: &str, name: &str, length: usize, mode: XattrMode) -> PathOp {
    PathOp::SetXattr { path: path.into(), name: name.into(), bytes: bytes(length, 11), mode }
}

pub(super) fn batch(dir: &str, parts: &[(&str, Option<usize>)]) -> PathOp {
    let part =
        |&(name, length): &(&str, Option<usize>)| (name.to_string(), length.map(|length| bytes(length, 10)));
    PathOp::Batch { dir: dir.into(), parts: parts.iter().map(part).collect() }
}

pub(super) fn clone_range(from: (&str, u64), to: (&str, u64), length: u64) -> PathOp {
    PathOp::CloneRange { from: (from.0.into(), from.1), to: (to.0.into(), to.1), length }
}

pub(super) fn fallocate(path: &str, mode: FallocateMode, offset: u64, length: u64) -> PathOp {
    PathOp::Fallocate { path: path.into(), mode, offset, length }
}
