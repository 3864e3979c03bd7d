use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use eyrie_engine::model::Model;
use eyrie_engine::{Applied, Attributes, Birth, Content, InodeFlags, Kind, Op, Owner, Result, forward_calls};
use eyrie_medium::Fault;

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
    /// The session with the service ends, so the ids of the call are stale.
    SessionEnded,
}

/// A model with an [`Event`].
struct Raced {
    model: Model,
    event: Event,
    has_raced: AtomicBool,
}

impl Raced {
    fn inner(&self) -> &Model {
        &self.model
    }

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
    forward_calls! {
        inner:
        root lookup attributes birth inode_flags read version seek has_storage xattr xattr_names list open
        close reserve unreserve apply directory_changes wait_for sync space
    }

    fn hold(&self, id: ObjectId) -> Result<()> {
        if !self.has_raced.swap(true, Ordering::Relaxed) {
            self.race()?;
        }
        self.model.hold(id)
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

/// A client of a service. The session ends when the client opens an object for the first time. In the next
/// session the files are still there, or, if `replaces` is true, other files have their ids and names.
struct Reconnected {
    model: Model,
    replaces: bool,
    has_ended: AtomicBool,
}

impl Reconnected {
    fn inner(&self) -> &Model {
        &self.model
    }

    fn generation(&self) -> u64 {
        1 + u64::from(self.replaces && self.has_ended.load(Ordering::Relaxed))
    }
}

impl Engine for Reconnected {
    forward_calls! {
        inner:
        root lookup attributes inode_flags read version seek has_storage xattr xattr_names list close
        reserve unreserve directory_changes wait_for sync space
    }

    fn session(&self) -> u64 {
        1 + u64::from(self.has_ended.load(Ordering::Relaxed))
    }

    fn birth(&self, id: ObjectId) -> Result<Birth> {
        Ok(Birth { generation: self.generation(), ..self.model.birth(id)? })
    }

    fn open(&self, id: ObjectId) -> Result<()> {
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return self.model.open(id);
        }
        Err(eyrie_engine::Error::Stale)
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        Ok(Applied { generation: self.generation(), ..self.model.apply(op)? })
    }
}

#[test]
fn exclusive_create_takes_only_its_own_file_in_the_next_session() {
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    for replaces in [false, true] {
        let model = Model::new(ObjectId::new(64, Kind::Directory), OWNER, Time::default());
        let engine = Reconnected { model, replaces, has_ended: AtomicBool::new(false) };
        let files = Pxfs::new(Arc::new(engine), Credentials::root());
        // The mode permits no access. So the call must know that the file is its own.
        let made = files.open("/egg".into(), flags, 0o000).map_err(|error| error.errno());
        match made {
            Ok(handle) => {
                assert!(!replaces, "the file is another one");
                files.close(handle).unwrap();
            }
            Err(errno) => assert_eq!((errno, replaces), (Errno::EXIST, true)),
        }
        let again = files.open("/egg".into(), flags, 0o000).map_err(|error| error.errno());
        assert_eq!(again.err(), Some(Errno::EXIST), "the file of an earlier call");
    }
}

#[test]
fn regression_listing_keeps_an_entry_whose_hold_ended_a_session() {
    let model = Model::new(ObjectId::new(64, Kind::Directory), OWNER, Time::default());
    let engine = Reconnected { model, replaces: false, has_ended: AtomicBool::new(false) };
    for name in [&b"egg"[..], b"nest"] {
        let (dir, time) = (engine.root(), Time::default());
        let id = engine.reserve(Kind::File).unwrap();
        engine.apply(&Op::Create { dir, name, id, owner: OWNER, content: Content::Empty, time }).unwrap();
    }
    let nodes = Pxfs::new(Arc::new(engine), Credentials::root()).nodes();
    let mut seen = Vec::new();
    let listed = nodes.list(nodes.root(), 0, true, &mut |entry| {
        seen.push((entry.name.to_vec(), entry.node.is_some()));
        true
    });
    assert!(listed.is_ok());
    seen.sort();
    assert_eq!(seen, [(b"egg".to_vec(), true), (b"nest".to_vec(), true)]);
}

#[test]
fn highest_number_is_no_new_owner() {
    let (nodes, root) = (empty().nodes(), Credentials::root());
    let egg = nodes.make(&root, nodes.root(), NAME, Kind::File, 0o644, 0).unwrap();
    let change = SetAttributes { uid: Some(u32::MAX), gid: Some(7), ..SetAttributes::default() };
    let stat = nodes.set(&root, egg.id, None, &change).unwrap().stat;
    assert_eq!((stat.uid, stat.gid), (0, 7));
}

/// An engine whose Ops write at most one page, as those of a client of a service do.
struct Narrow(Model);

impl Narrow {
    fn inner(&self) -> &Model {
        &self.0
    }
}

impl Engine for Narrow {
    forward_calls! {
        inner:
        root lookup attributes birth inode_flags read version seek has_storage xattr xattr_names list open
        close reserve unreserve directory_changes wait_for sync space
    }

    fn write_max(&self) -> usize {
        4096
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        match op {
            Op::Write { data, .. } | Op::Append { data, .. } if data.len() > 4096 => {
                Err(eyrie_engine::Error::TooLarge)
            }
            Op::CloneRange { length: 4097.., .. } => Err(eyrie_engine::Error::TooLarge),
            op => self.0.apply(op),
        }
    }
}

#[test]
fn too_large_writes_are_short() {
    let model = Model::new(ObjectId::new(64, Kind::Directory), OWNER, Time::default());
    let nodes = Pxfs::new(Arc::new(Narrow(model)), Credentials::root()).nodes();
    let who = Credentials::root();
    let egg = nodes.make(&who, nodes.root(), NAME, Kind::File, 0o644, 0).unwrap();
    assert_eq!(nodes.write(&who, egg.id, 0, &[1; 5000]).unwrap(), 4096);
    assert_eq!(nodes.append(&who, egg.id, &[1; 5000]).unwrap(), 4096..8192);
    nodes.set_inode_flags(&who, egg.id, InodeFlags::APPEND_ONLY).unwrap();
    assert_eq!(nodes.write(&who, egg.id, 8192, &[1; 5000]).unwrap(), 4096);
}

#[test]
fn copy_changes_no_bytes_of_an_append_only_file() {
    let (nodes, root) = (empty().nodes(), Credentials::root());
    let make = |name: &[u8], bytes: &[u8]| {
        let file = nodes.make(&root, nodes.root(), name, Kind::File, 0o644, 0).unwrap().id;
        nodes.write(&root, file, 0, bytes).unwrap();
        file
    };
    let (egg, log) = (make(NAME, b"blue"), make(b"log", b"sky"));
    nodes.set_inode_flags(&root, log, InodeFlags::APPEND_ONLY).unwrap();
    for (offset, copied) in [(0, Err(Errno::PERM)), (3, Ok(4)), (3, Err(Errno::PERM)), (7, Ok(4))] {
        let result = nodes.copy(&root, (egg, 0), (log, offset), 4).map_err(|error| error.errno());
        assert_eq!(result, copied, "{offset}");
    }
    let mut bytes = [0; 16];
    let count = nodes.read(log, 0, &mut bytes).unwrap();
    assert_eq!(&bytes[..count], b"skyblueblue");
    nodes.set_inode_flags(&root, log, InodeFlags::IMMUTABLE).unwrap();
    let refused = nodes.copy(&root, (egg, 0), (log, 11), 4).map_err(|error| error.errno());
    assert_eq!(refused, Err(Errno::PERM));
}

#[test]
fn regression_copy_that_fails_later_returns_what_it_has_copied() {
    let model = Model::new(ObjectId::new(64, Kind::Directory), OWNER, Time::default());
    let nodes = Pxfs::new(Arc::new(Narrow(model)), Credentials::root()).nodes();
    let who = Credentials::root();
    let egg = nodes.make(&who, nodes.root(), NAME, Kind::File, 0o644, 0).unwrap().id;
    let copy = nodes.make(&who, nodes.root(), b"copy", Kind::File, 0o644, 0).unwrap().id;
    for page in 0..4 {
        assert_eq!(nodes.write(&who, egg, page * 4096, &[1; 4096]).unwrap(), 4096);
    }
    // The first step ends at the end of a page. The second step clones more bytes than the engine takes.
    assert_eq!(nodes.copy(&who, (egg, 1), (copy, 1), 3 * 4096).unwrap(), 4095);
    assert_eq!(nodes.node(copy).unwrap().stat.size, 4096);
    let failed = nodes.copy(&who, (egg, 0), (copy, 1), 3 * 4096).map_err(|error| error.errno());
    assert!(failed.is_err(), "the first step failed");
}

#[test]
fn copy_of_no_bytes_makes_all_checks() {
    let nodes = empty().nodes();
    let who = Credentials::root();
    let make = |name: &[u8], kind| nodes.make(&who, nodes.root(), name, kind, 0o755, 0).unwrap().id;
    let (dir, egg, copy) =
        (make(b"dir", Kind::Directory), make(b"egg", Kind::File), make(b"copy", Kind::File));
    let copied = |from, to, offset| {
        let copied = nodes.copy(&who, (from, 0), (to, offset), 10);
        copied.map_err(|error| error.errno())
    };
    assert_eq!(copied(egg, copy, 0), Ok(0));
    assert_eq!(copied(dir, copy, 0), Err(Errno::ISDIR));
    assert_eq!(copied(egg, copy, u64::MAX), Err(Errno::OVERFLOW));
    nodes.set_inode_flags(&who, copy, InodeFlags::IMMUTABLE).unwrap();
    assert_eq!(copied(egg, copy, 0), Err(Errno::PERM));
}

/// An engine whose medium fails after the change of each creation.
struct Failing(Model);

impl Failing {
    fn inner(&self) -> &Model {
        &self.0
    }
}

impl Engine for Failing {
    forward_calls! {
        inner:
        root lookup attributes birth inode_flags read version seek has_storage xattr xattr_names list open
        close reserve unreserve directory_changes wait_for sync space
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        let applied = self.0.apply(op)?;
        if matches!(op, Op::Create { .. }) { Err(Fault::ReadOnly.into()) } else { Ok(applied) }
    }
}

#[test]
fn file_of_a_failed_create_is_no_other_file() {
    let model = Model::new(ObjectId::new(64, Kind::Directory), OWNER, Time::default());
    let files = Pxfs::new(Arc::new(Failing(model)), Credentials::root());
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let failed = files.open("/egg".into(), flags, 0o644).map_err(|error| error.errno());
    assert_eq!(failed.err(), Some(Errno::ROFS));
    let again = files.open("/egg".into(), flags, 0o644).map_err(|error| error.errno());
    assert_eq!(again.err(), Some(Errno::EXIST), "the engine refuses the name without a fault");
}

/// A client of a service. After the first change of attributes, the session ends before the next read.
struct Interrupted {
    model: Model,
    changes: AtomicU32,
    has_ended: AtomicBool,
}

impl Interrupted {
    fn inner(&self) -> &Model {
        &self.model
    }
}

impl Engine for Interrupted {
    forward_calls! {
        inner:
        root lookup birth inode_flags read version seek has_storage xattr xattr_names list open close reserve
        unreserve directory_changes wait_for sync space
    }

    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        if self.changes.load(Ordering::Relaxed) == 1 && !self.has_ended.swap(true, Ordering::Relaxed) {
            return Err(eyrie_engine::Error::Stale);
        }
        self.model.attributes(id)
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        if matches!(op, Op::SetAttributes { .. }) {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        self.model.apply(op)
    }
}

#[test]
fn attributes_are_set_once() {
    let model = Model::new(ObjectId::new(64, Kind::Directory), OWNER, Time::default());
    let engine = Interrupted { model, changes: AtomicU32::new(0), has_ended: AtomicBool::new(false) };
    let engine = Arc::new(engine);
    let nodes = Pxfs::new(Arc::clone(&engine), Credentials::root()).nodes();
    let who = Credentials::root();
    let egg = nodes.make(&who, nodes.root(), NAME, Kind::File, 0o644, 0).unwrap();
    let change = SetAttributes { size: Some(5), ..SetAttributes::default() };
    assert_eq!(nodes.set(&who, egg.id, None, &change).unwrap().stat.size, 5);
    assert!(engine.has_ended.load(Ordering::Relaxed));
    assert_eq!(engine.changes.load(Ordering::Relaxed), 1);
}
