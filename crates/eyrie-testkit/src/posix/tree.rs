//! Whole file systems as values, and their comparison.

use std::collections::BTreeMap;

use eyrie::posix::{ListEntry, OpenFlags, Posix, Stat};
use eyrie::{Errno, Kind, Target, Time};

use super::generate::CORNER_SECONDS;
use super::values::{ComparedStat, path};
use super::xattr;
use eyrie_sim::compare::Xattrs;

/// Maximum number of bytes of each file that are compared.
const COMPARED: usize = 32 << 10;
/// Bound on the times that calls set, in seconds since 1970, besides [`CORNER_SECONDS`]. The clocks show only
/// later times.
const SET_BEFORE: i64 = 10_000_000;

/// All objects by path.
pub(super) type PosixTree = BTreeMap<Vec<u8>, PosixNode>;

#[derive(Clone, Debug)]
pub(super) struct PosixNode {
    pub stat: Stat,
    /// The first [`COMPARED`] bytes of a file, or the target of a symbolic link.
    pub bytes: Vec<u8>,
    pub xattrs: Xattrs,
}

/// The times that can be compared after a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The access time that the call set, if it set one.
    pub accessed: Option<Time>,
    /// True if the clock advanced before the call, so that changes of modification and change times are
    /// visible.
    pub changed: bool,
    /// True if also the access times that reads set are compared.
    pub reads: bool,
}

/// The parts of a tree that are read, besides the attributes and the bytes of files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// The extended attributes.
    pub xattrs: bool,
    /// The targets of symbolic links. Reading them sets access times. All other reads of a tree leave the
    /// access times alone.
    pub targets: bool,
}

/// Reads all objects under the root. The user of `fs` must be root.
pub(super) fn read<P: Posix>(fs: &P, parts: Parts) -> Result<PosixTree, Errno> {
    let mut tree = PosixTree::new();
    let mut pending = vec![b"/".to_vec()];
    while let Some(name) = pending.pop() {
        let stat = fs.stat(Target::NoFollow(path(&name).into())).map_err(|error| error.errno())?;
        if stat.is_dir() {
            let slash: &[u8] = if name == b"/" { b"" } else { b"/" };
            let mut add = |entry: ListEntry<'_>| {
                pending.push([&name, slash, entry.name].concat());
                true
            };
            unnoticed(fs, &name, |dir| fs.list(dir, 0, &mut add))?;
        }
        let xattrs = if parts.xattrs { xattr::all(fs, &name)? } else { Xattrs::new() };
        tree.insert(name, PosixNode { stat, bytes: Vec::new(), xattrs });
    }
    for (name, node) in &mut tree {
        node.bytes = match node.stat.kind {
            Kind::File => unnoticed(fs, name, |file| {
                let mut bytes = vec![0; COMPARED];
                let count = fs.read_at(file, &mut bytes, 0)?;
                bytes.truncate(count);
                Ok(bytes)
            })?,
            Kind::Symlink if parts.targets => {
                fs.readlink(path(name).into()).map_err(|error| error.errno())?
            }
            _ => Vec::new(),
        };
    }
    Ok(tree)
}

/// Opens a file or a directory so that reads set no access time, calls `read`, and closes it.
fn unnoticed<P: Posix, T>(
    fs: &P,
    name: &[u8],
    read: impl FnOnce(&P::Handle) -> eyrie::Result<T>,
) -> Result<T, Errno> {
    let read = || -> eyrie::Result<T> {
        let handle = fs.open(path(name).into(), OpenFlags::READ | OpenFlags::NOATIME, 0)?;
        let result = read(&handle);
        fs.close(handle)?;
        result
    };
    read().map_err(|error| error.errno())
}

/// Returns the first difference between the trees of the host (first in each pair) and of the file system
/// under test. A modification time that a call set is compared by its value. For other modification times and
/// for change times, the comparison only checks if they have changed since `before`. For an access time, it
/// checks if the time equals the one that the last call set. If `times.reads` is true, it also checks if a
/// read has set the time.
pub(super) fn difference(
    before: (&PosixTree, &PosixTree),
    now: (&PosixTree, &PosixTree),
    times: Times,
) -> Option<String> {
    let (host, subject) = now;
    let names =
        |tree: &PosixTree| tree.keys().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>();
    if !host.keys().eq(subject.keys()) {
        return Some(format!("entries {:?}, but expected {:?}", names(subject), names(host)));
    }
    let mut inodes = BTreeMap::new();
    for ((name, theirs), ours) in host.iter().zip(subject.values()) {
        let name_shown = name.escape_ascii();
        let (expected, found) = (ComparedStat::from(&theirs.stat), ComparedStat::from(&ours.stat));
        if expected != found {
            return Some(format!("{name_shown}: {found:?}, but expected {expected:?}"));
        }
        if theirs.bytes != ours.bytes {
            return Some(format!("{name_shown}: the bytes differ"));
        }
        if theirs.xattrs != ours.xattrs {
            let sizes = |node: &PosixNode| {
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

/// Returns the attributes of the object before the call. Finds the object by its inode number, because the
/// call may have renamed it.
fn stat_of<'a>(before: &'a PosixTree, node: &PosixNode) -> Option<&'a Stat> {
    before.values().map(|old| &old.stat).find(|stat| stat.inode == node.stat.inode)
}

/// Returns a line for each object, with everything that [`difference`] compares.
pub(super) fn describe(before: &PosixTree, now: &PosixTree, times: Times) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut lines = BTreeMap::new();
    for (name, node) in now {
        let shown = name.escape_ascii().to_string();
        let first = names.entry(node.stat.inode).or_insert_with(|| shown.clone());
        let bytes = xxhash_rust::xxh3::xxh3_64(&node.bytes);
        let moved = Moved::between(stat_of(before, node), &node.stat, times);
        let (stat, xattrs) = (ComparedStat::from(&node.stat), &node.xattrs);
        let line = format!("object {first} {stat:?} bytes {bytes:x} attributes {xattrs:?} {moved:?}");
        lines.insert(shown, line);
    }
    lines
}

/// The facts about an object's times that are compared.
#[derive(PartialEq, Eq, Debug)]
struct Moved {
    modified: bool,
    changed: bool,
    modified_set: Option<Time>,
    accessed_set: bool,
    accessed: bool,
}

impl Moved {
    fn between(before: Option<&Stat>, now: &Stat, times: Times) -> Moved {
        let is_set = |seconds: i64| seconds < SET_BEFORE || CORNER_SECONDS.contains(&seconds);
        let set = |time: Time| is_set(time.seconds).then_some(time);
        let moved = |of: fn(&Stat) -> Time| times.changed && before.is_some_and(|old| of(old) != of(now));
        let accessed = times.reads && moved(|stat| stat.accessed);
        Moved {
            modified: moved(|stat| stat.modified),
            changed: moved(|stat| stat.changed),
            modified_set: set(now.modified),
            accessed_set: times.accessed == Some(now.accessed),
            accessed,
        }
    }
}
