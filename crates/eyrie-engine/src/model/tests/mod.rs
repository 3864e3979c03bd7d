//! Tests of the model. Most tests of `Fallocate` are in the crate `eyrie-testkit`.

mod data;
mod directories;
mod keys;
mod names;
mod rename;
mod xattrs;

use super::Model;
use crate::{
    Applied, Attributes, Content, Engine, Error, Kind, ObjectId, Op, Owner, RenameMode, Result, SetIds, Time,
};

const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };
/// The time of the root and of the objects that a test starts with. The Ops under test have later times.
const START: Time = at(1);

const fn at(seconds: i64) -> Time {
    Time::new(seconds, 5)
}

/// A model, with methods that apply single Ops to it. [`Fixture::create`] creates objects at [`START`].
struct Fixture {
    model: Model,
    root: ObjectId,
}

impl Fixture {
    fn new() -> Fixture {
        let root = ObjectId::new(1 << 40, Kind::Directory);
        Fixture { model: Model::new(root, OWNER, START), root }
    }

    fn create(&self, dir: ObjectId, name: &str, kind: Kind) -> ObjectId {
        let content = match kind {
            Kind::Symlink => Content::Bytes(b"target"),
            Kind::CharDevice | Kind::BlockDevice => Content::Device(0x103),
            _ => Content::Empty,
        };
        self.try_create(dir, name.as_bytes(), kind, content, START).unwrap()
    }

    fn try_create(
        &self,
        dir: ObjectId,
        name: &[u8],
        kind: Kind,
        content: Content<'_>,
        time: Time,
    ) -> Result<ObjectId> {
        let id = self.model.reserve(kind)?;
        self.model.apply(&Op::Create { dir, name, id, owner: OWNER, content, time })?;
        Ok(id)
    }

    fn file(&self, dir: ObjectId, name: &str) -> ObjectId {
        self.create(dir, name, Kind::File)
    }

    fn dir(&self, dir: ObjectId, name: &str) -> ObjectId {
        self.create(dir, name, Kind::Directory)
    }

    fn rename(
        &self,
        from: (ObjectId, &str),
        to: (ObjectId, &str),
        mode: RenameMode,
        time: Time,
    ) -> Result<Applied> {
        self.model.apply(&Op::Rename {
            from_dir: from.0,
            from_name: from.1.as_bytes(),
            to_dir: to.0,
            to_name: to.1.as_bytes(),
            mode,
            whiteout: None,
            time,
        })
    }

    fn link(&self, dir: ObjectId, name: &str, id: ObjectId, time: Time) -> Result<Applied> {
        self.model.apply(&Op::Link { dir, name: name.as_bytes(), id, time })
    }

    fn unlink(&self, dir: ObjectId, name: &str, time: Time) -> Result<Applied> {
        self.model.apply(&Op::Unlink { dir, name: name.as_bytes(), time })
    }

    fn remove_directory(&self, dir: ObjectId, name: &str, time: Time) -> Result<Applied> {
        self.model.apply(&Op::RemoveDirectory { dir, name: name.as_bytes(), time })
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8], time: Time) -> Result<Applied> {
        self.model.apply(&Op::Write { id, offset, data, set_ids: SetIds::Keep, time })
    }

    fn get(&self, dir: ObjectId, name: &str) -> Option<ObjectId> {
        self.model.lookup(dir, name.as_bytes()).unwrap()
    }

    fn attributes(&self, id: ObjectId) -> Attributes {
        self.model.attributes(id).unwrap()
    }

    fn bytes(&self, id: ObjectId) -> Vec<u8> {
        let mut out = vec![0xee; self.attributes(id).size as usize + 1];
        let length = self.model.read(id, 0, &mut out).unwrap();
        out.truncate(length);
        out
    }

    fn names(&self, dir: ObjectId) -> Vec<String> {
        let mut names = Vec::new();
        self.model
            .list(dir, 0, &mut |entry| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                true
            })
            .unwrap();
        names.sort();
        names
    }

    /// Returns the modification time and the change time, in seconds.
    fn times(&self, id: ObjectId) -> (i64, i64) {
        let attributes = self.attributes(id);
        (attributes.modified.seconds, attributes.changed.seconds)
    }
}

/// Asserts that a call fails with the given error.
macro_rules! assert_refused {
    ($result:expr, $error:pat) => {
        match $result {
            Err($error) => {}
            other => panic!("{:?} is not {}", other, stringify!($error)),
        }
    };
}
use assert_refused;
