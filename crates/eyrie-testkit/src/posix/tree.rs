//! What a whole file system looks like, for comparing two of them.

use std::collections::BTreeMap;

use eyrie::posix::{OpenFlags, Posix, Stat};
use eyrie::{Errno, Kind, PosixExt, Time};

use super::calls::{Shown, path};
use super::xattr;
use eyrie_sim::compare::Xattrs;

/// Bytes of each file that are compared.
const COMPARED: usize = 32 << 10;
/// Times that calls set explicitly are before this, in seconds since 1970.
const SET_BEFORE: i64 = 10_000_000;

/// All objects by their paths.
pub(super) type Tree = BTreeMap<Vec<u8>, Node>;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub stat: Stat,
    /// Contents of a file, target of a symbolic link.
    pub bytes: Vec<u8>,
    pub xattrs: Xattrs,
}

/// Which times can be compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The access time that the call set.
    pub accessed: Option<Time>,
    /// Whether it can be seen that modification and change times changed.
    pub changed: bool,
}

/// Everything under the root, extended attributes only with `xattrs`. `fs` must be root's.
pub(super) fn read<P: Posix>(fs: &P, xattrs: bool) -> Result<Tree, Errno> {
    let mut tree = Tree::new();
    let mut pending = vec![b"/".to_vec()];
    while let Some(name) = pending.pop() {
        let stat = fs.lstat(path(&name)).map_err(|error| error.errno())?;
        if stat.is_dir() {
            for entry in fs.read_dir(path(&name)).map_err(|error| error.errno())? {
                let entry = entry.map_err(|error| error.errno())?;
                let slash: &[u8] = if name == b"/" { b"" } else { b"/" };
                pending.push([&name, slash, entry.name_bytes()].concat());
            }
        }
        let xattrs = if xattrs { xattr::all(fs, &name)? } else { Xattrs::new() };
        tree.insert(name, Node { stat, bytes: Vec::new(), xattrs });
    }
    // Only now: reading changes the access times of the host.
    for (name, node) in &mut tree {
        node.bytes = match node.stat.kind {
            Kind::File => contents(fs, name)?,
            Kind::Symlink => fs.readlink(path(name)).map_err(|error| error.errno())?,
            _ => Vec::new(),
        };
    }
    Ok(tree)
}

fn contents<P: Posix>(fs: &P, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let read = || -> eyrie::Result<Vec<u8>> {
        let file = fs.open(path(name), OpenFlags::READ, 0)?;
        let mut bytes = vec![0; COMPARED];
        let count = fs.read_at(&file, &mut bytes, 0);
        fs.close(file)?;
        bytes.truncate(count?);
        Ok(bytes)
    };
    read().map_err(|error| error.errno())
}

/// The first way in which a tree and its expectation differ. Times are compared by whether they changed since the trees
/// before, and exactly where a call set them.
pub(super) fn difference(before: (&Tree, &Tree), now: (&Tree, &Tree), times: Times) -> Option<String> {
    let (host, subject) = now;
    let names = |tree: &Tree| tree.keys().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>();
    if !host.keys().eq(subject.keys()) {
        return Some(format!("entries {:?}, but expected {:?}", names(subject), names(host)));
    }
    let mut inodes = BTreeMap::new();
    for ((name, theirs), ours) in host.iter().zip(subject.values()) {
        let name_shown = name.escape_ascii();
        let (expected, found) = (Shown::from(&theirs.stat), Shown::from(&ours.stat));
        if expected != found {
            return Some(format!("{name_shown}: {found:?}, but expected {expected:?}"));
        }
        if theirs.bytes != ours.bytes {
            return Some(format!("{name_shown}: the bytes differ"));
        }
        if theirs.xattrs != ours.xattrs {
            let sizes = |node: &Node| {
                let size =
                    |(name, value): (&Vec<u8>, &Vec<u8>)| (name.escape_ascii().to_string(), value.len());
                node.xattrs.iter().map(size).collect::<Vec<_>>()
            };
            let (found, expected) = (sizes(ours), sizes(theirs));
            return Some(format!("{name_shown}: extended attributes {found:?}, but expected {expected:?}"));
        }
        if *inodes.entry(theirs.stat.inode).or_insert(ours.stat.inode) != ours.stat.inode {
            return Some(format!("{name_shown}: names of one object differ"));
        }
        let (host_before, subject_before) = (stat_of(before.0, theirs), stat_of(before.1, ours));
        let host_times = Moved::between(host_before, &theirs.stat, times);
        let subject_times = Moved::between(subject_before, &ours.stat, times);
        if host_times != subject_times {
            return Some(format!("{name_shown}: times {subject_times:?}, but expected {host_times:?}"));
        }
    }
    None
}

/// What an object was before, under whatever name.
fn stat_of<'a>(before: &'a Tree, node: &Node) -> Option<&'a Stat> {
    before.values().map(|old| &old.stat).find(|stat| stat.inode == node.stat.inode)
}

/// What is to be said of an object's times.
#[derive(PartialEq, Eq, Debug)]
struct Moved {
    modified: bool,
    changed: bool,
    modified_set: Option<Time>,
    accessed_set: bool,
}

impl Moved {
    fn between(before: Option<&Stat>, now: &Stat, times: Times) -> Moved {
        let set = |time: Time| (time.seconds < SET_BEFORE).then_some(time);
        let moved = |of: fn(&Stat) -> Time| times.changed && before.is_some_and(|old| of(old) != of(now));
        Moved {
            modified: moved(|stat| stat.modified),
            changed: moved(|stat| stat.changed),
            modified_set: set(now.modified),
            accessed_set: times.accessed == Some(now.accessed),
        }
    }
}
