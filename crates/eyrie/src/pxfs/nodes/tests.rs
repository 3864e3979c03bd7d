use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eyrie_engine::model::Model;
use eyrie_engine::{
    Applied, Attributes, Birth, Content, InodeFlags, Kind, ListedEntry, Op, Owner, Result, SpaceUsage,
    Version,
};

use super::*;
use crate::posix::{OpenFlags, Posix};
use crate::pxfs::tests::empty;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const NAME: &[u8] = b"egg";

/// An event before the first hold of an object.
#[derive(Clone, Copy)]
enum Event {
    /// Another thread removes the object of [`NAME`]. If a kind is given, that thread then makes an object of
    /// this kind and of that name.
    Removed(Option<Kind>),
    /// The session with the service ends, so that the ids of the call are stale.
    SessionEnded,
}

/// A model with an [`Event`].
struct Raced {
    model: Model,
    event: Event,
    has_raced: AtomicBool,
}

impl Raced {
    fn race(&self) -> Result<()> {
        let Event::Removed(replacement) = self.event else { return Err(eyrie_engine::Error::Stale) };
        let (dir, name, time) = (self.root(), NAME, Time::default());
        let removed = match self.lookup(dir, name)?.expect("made").kind() {
            Kind::Directory => Op::RemoveDirectory { dir, name, time },
            _ => Op::Unlink { dir, name, time },
        };
        self.apply(&removed)?;
        let Some(kind) = replacement else { return Ok(()) };
        let id = self.reserve(kind)?;
        let content = if kind == Kind::Symlink { Content::Bytes(b"theirs") } else { Content::Empty };
        self.apply(&Op::Create { dir, name, id, owner: OWNER, content, time }).map(drop)
    }
}

impl Engine for Raced {
    fn root(&self) -> ObjectId {
        self.model.root()
    }
    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        self.model.lookup(dir, name)
    }
    fn birth(&self, id: ObjectId) -> Result<Birth> {
        self.model.birth(id)
    }
    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        self.model.attributes(id)
    }
    fn inode_flags(&self, id: ObjectId) -> Result<InodeFlags> {
        self.model.inode_flags(id)
    }
    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.model.read(id, offset, out)
    }
    fn version(&self, id: ObjectId) -> Result<Version> {
        self.model.version(id)
    }
    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        self.model.seek(id, offset, hole)
    }
    fn has_storage(&self, id: ObjectId) -> Result<bool> {
        self.model.has_storage(id)
    }
    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.model.xattr(id, name, out)
    }
    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.model.xattr_names(id, visit)
    }
    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()> {
        self.model.list(dir, cookie, visit)
    }
    fn open(&self, id: ObjectId) -> Result<()> {
        self.model.open(id)
    }
    fn close(&self, id: ObjectId) {
        self.model.close(id);
    }
    fn hold(&self, id: ObjectId) -> Result<()> {
        if !self.has_raced.swap(true, Ordering::Relaxed) {
            self.race()?;
        }
        self.model.hold(id)
    }
    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        self.model.reserve(kind)
    }
    fn unreserve(&self, id: ObjectId) {
        self.model.unreserve(id);
    }
    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        self.model.apply(op)
    }
    fn directory_changes(&self) -> u64 {
        self.model.directory_changes()
    }
    fn wait_for(&self, id: ObjectId) -> Result<()> {
        self.model.wait_for(id)
    }
    fn sync(&self) -> Result<()> {
        self.model.sync()
    }
    fn space(&self) -> SpaceUsage {
        self.model.space()
    }
}

fn raced(event: Event) -> Nodes<Raced> {
    let root = ObjectId::new(64, Kind::Directory);
    let model = Model::new(root, OWNER, Time::default());
    let engine = Raced { model, event, has_raced: AtomicBool::new(false) };
    Pxfs::new(Arc::new(engine), Credentials::root()).nodes()
}

#[test]
fn regression_made_object_is_not_in_the_way_of_its_own_call() {
    let who = Credentials::root();
    for kind in [Kind::File, Kind::Directory, Kind::Symlink] {
        for replacement in [None, Some(kind), Some(Kind::Fifo)] {
            let nodes = raced(Event::Removed(replacement));
            let made = match kind {
                Kind::Symlink => nodes.symlink(&who, nodes.root(), NAME, b"mine"),
                kind => nodes.make(&who, nodes.root(), NAME, kind, 0o755, 0),
            };
            let there = nodes.engine().lookup(nodes.root(), NAME).unwrap();
            match made {
                Ok(node) => assert_eq!((replacement, there), (Some(kind), Some(node.id))),
                Err(error) => {
                    assert_eq!(error.errno(), Errno::NOENT, "{kind:?} {replacement:?}");
                    assert_ne!(replacement, Some(kind));
                    assert_eq!(there.map(ObjectId::kind), replacement, "the call made a second object");
                }
            }
        }
    }
}

#[test]
fn regression_made_link_is_not_in_the_way_of_its_own_call() {
    let (who, nodes) = (Credentials::root(), raced(Event::SessionEnded));
    let (dir, time) = (nodes.root(), Time::default());
    let id = nodes.engine().reserve(Kind::File).unwrap();
    let create = Op::Create { dir, name: NAME, id, owner: OWNER, content: Content::Empty, time };
    nodes.engine().apply(&create).unwrap();
    let linked = nodes.link(&who, id, dir, b"second").unwrap();
    assert_eq!((linked.id, linked.stat.links), (id, 2));
    let again = nodes.link(&who, id, dir, b"second").map_err(|error| error.errno());
    assert_eq!(again, Err(Errno::EXIST), "the name of an earlier call");
}

#[test]
fn handle_sets_the_size_in_a_volume_with_flags() {
    let files = empty();
    let (nodes, root, who) = (files.nodes(), Credentials::root(), Credentials::new(1, 1, &[]));
    files.chmod("/".into(), 0o777).unwrap();
    let other = nodes.make(&root, nodes.root(), b"other", Kind::File, 0o644, 0).unwrap();
    nodes.set_inode_flags(&root, other.id, InodeFlags::IMMUTABLE).unwrap();
    let (egg, handle) = nodes.create(&who, nodes.root(), NAME, OpenFlags::WRITE, 0o000).unwrap();
    nodes.write(&who, egg.id, 0, b"blue").unwrap();
    let shorter = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let set = |handle| nodes.set(&who, egg.id, handle, &shorter).map_err(|error| error.errno());
    assert_eq!(set(None), Err(Errno::ACCESS), "the mode forbids writing");
    assert_eq!(set(Some(&handle)).unwrap().stat.size, 1);
    nodes.set_inode_flags(&root, egg.id, InodeFlags::APPEND_ONLY).unwrap();
    assert_eq!(set(Some(&handle)), Err(Errno::PERM), "the flag binds handles, too");
    nodes.close(handle).unwrap();
}
