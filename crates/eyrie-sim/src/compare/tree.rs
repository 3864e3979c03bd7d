//! Reads a whole volume through the calls of an engine.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use eyrie_engine::{Attributes, Engine, Error, InodeFlags, Kind, ObjectId, Time};
use eyrie_medium::PAGE_SIZE;

/// Maximum number of bytes of one read.
const READ_BYTES: u64 = 1 << 20;
/// Maximum number of data bytes of one object. No test writes more. An engine that reports a larger number
/// has probably counted holes as data.
const MAX_DATA: u64 = 1 << 30;

/// The names from the root to an object. The path of the root is empty.
pub type TreePath = Vec<Vec<u8>>;

/// The optional parts of a [`Tree`] that are read. A part that is not read is 0 or empty in every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeParts {
    /// Modes, users and groups.
    pub owners: bool,
    /// Access times.
    pub accessed: bool,
    /// Modification times.
    pub modified: bool,
    /// Change times.
    pub changed: bool,
    /// Creation times.
    pub created: bool,
    /// Bytes of files and targets of symbolic links.
    pub contents: bool,
}

impl TreeParts {
    /// All optional parts.
    pub const ALL: TreeParts = TreeParts {
        owners: true,
        accessed: true,
        modified: true,
        changed: true,
        created: true,
        contents: true,
    };

    /// All optional parts except the times.
    pub const NO_TIMES: TreeParts =
        TreeParts { accessed: false, modified: false, changed: false, created: false, ..TreeParts::ALL };
}

/// Names and values of extended attributes.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// One object under one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// Kind of object.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Number of names. For a directory: 2, and one more for each subdirectory.
    pub links: u32,
    /// Bytes of a file or of the target of a symbolic link, or entries of a directory.
    pub size: u64,
    /// Time of the last access.
    pub accessed: Time,
    /// Time of the last change of the bytes or entries.
    pub modified: Time,
    /// Time of the last change of bytes, entries or attributes.
    pub changed: Time,
    /// Time of creation.
    pub created: Time,
    /// Device number.
    pub device: u64,
    /// Inode flags.
    pub flags: InodeFlags,
    /// Project id of the tree to which the object belongs, or 0.
    pub project: u32,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// The first path of this object, if the object has several paths and this node is at another one. Only
    /// the node at the first path has the contents.
    pub same_as: Option<TreePath>,
    /// Contents by offset, in pages of 4 KiB. Pages of zeros are left out, so a hole equals zeros.
    pub pages: BTreeMap<u64, Vec<u8>>,
}

/// All reachable objects of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// The objects by path.
    pub nodes: BTreeMap<TreePath, TreeNode>,
}

/// A volume that is not sound, or that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {what}", show(path))]
pub struct TreeError {
    /// Path of the object.
    pub path: TreePath,
    /// A description of the error.
    pub what: String,
}

/// Returns a path as a message shows it: long names are shortened.
pub(super) fn show(path: &TreePath) -> String {
    let mut out = String::new();
    for name in path {
        let shown = &name[..name.len().min(24)];
        let dots = if shown.len() < name.len() { "..." } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(out, "/{}{dots}", shown.escape_ascii());
    }
    if out.is_empty() { "/".into() } else { out }
}

/// Reads all objects that the root of `engine` reaches.
///
/// # Panics
/// Panics if the volume is not sound: see [`try_tree`].
pub fn tree(engine: &dyn Engine) -> Tree {
    match try_tree(engine, TreeParts::ALL) {
        Ok(tree) => tree,
        Err(error) => panic!("unsound volume: {error}"),
    }
}

/// Reads the parts in `include` of all objects that the root of `engine` reaches.
///
/// # Errors
/// Fails if a call fails, if two results contradict each other, or if an object has more than 1 GiB of data.
/// Listings must agree with look-ups. Counts of links and entries must agree with the names, and parents with
/// the paths. The bytes at both ends of a hole must be zeros.
pub fn try_tree(engine: &dyn Engine, include: TreeParts) -> Result<Tree, TreeError> {
    let mut walk = TreeReader { engine, include, tree: Tree::default(), first: BTreeMap::new() };
    let root = engine.root();
    walk.visit(Vec::new(), root, root)?;
    walk.check_links()?;
    Ok(walk.tree)
}

struct TreeReader<'a> {
    engine: &'a dyn Engine,
    include: TreeParts,
    tree: Tree,
    /// First path and number of names of each object.
    first: BTreeMap<ObjectId, (TreePath, u32)>,
}

impl TreeReader<'_> {
    fn visit(&mut self, path: TreePath, id: ObjectId, parent: ObjectId) -> Result<(), TreeError> {
        let at = |what: String| TreeError { path: path.clone(), what };
        let attributes = self.engine.attributes(id).map_err(|error| at(format!("attributes: {error}")))?;
        if attributes.kind != id.kind() {
            return Err(at(format!("{:?} has the id of a {:?}", attributes.kind, id.kind())));
        }
        let same_as = match self.first.entry(id) {
            Slot::Vacant(slot) => {
                slot.insert((path.clone(), 1));
                None
            }
            Slot::Occupied(mut slot) => {
                slot.get_mut().1 += 1;
                Some(slot.get().0.clone())
            }
        };
        if id.is_directory() && same_as.is_some() {
            return Err(at("a directory with two names".into()));
        }
        let contents = self.include.contents && same_as.is_none();
        let mut node = object(self.engine, id, TreeParts { contents, ..self.include }).map_err(at)?;
        node.same_as = same_as;
        self.tree.nodes.insert(path.clone(), node);
        if id.is_directory() {
            if attributes.parent != Some(parent) {
                return Err(at(format!("its parent is {:?}, not {parent:?}", attributes.parent)));
            }
            self.descend(&path, id, &attributes)?;
        }
        Ok(())
    }

    fn descend(&mut self, path: &TreePath, dir: ObjectId, attributes: &Attributes) -> Result<(), TreeError> {
        let at = |what: String| TreeError { path: path.clone(), what };
        let mut entries = Vec::new();
        let listing = self.engine.list(dir, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.id));
            true
        });
        listing.map_err(|error| at(format!("list: {error}")))?;
        entries.sort();
        let names: BTreeSet<_> = entries.iter().map(|(name, _)| name).collect();
        if names.len() != entries.len() {
            return Err(at("a name is listed twice".into()));
        }
        let subdirectories = entries.iter().filter(|(_, id)| id.is_directory()).count();
        let expected = (entries.len() as u64, subdirectories as u32 + 2);
        if (attributes.size, attributes.links) != expected {
            let counts = (attributes.size, attributes.links);
            return Err(at(format!("entries and links are {counts:?} instead of {expected:?}")));
        }
        for (name, id) in entries {
            match self.engine.lookup(dir, &name) {
                Ok(Some(found)) if found == id => {}
                other => return Err(at(format!("{id:?} is listed, but looking it up gives {other:?}"))),
            }
            let mut child = path.clone();
            child.push(name);
            self.visit(child, id, dir)?;
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), TreeError> {
        for (id, (path, names)) in &self.first {
            let links = self.tree.nodes[path].links;
            if !id.is_directory() && links != *names {
                let what = format!("{links} links, but {names} names");
                return Err(TreeError { path: path.clone(), what });
            }
        }
        Ok(())
    }
}

/// Reads one object, without the objects below it.
///
/// # Errors
/// As [`try_tree`].
pub fn object(engine: &dyn Engine, id: ObjectId, include: TreeParts) -> Result<TreeNode, String> {
    let attributes = engine.attributes(id).map_err(|error| format!("attributes: {error}"))?;
    let birth = engine.birth(id).map_err(|error| format!("birth: {error}"))?;
    let mut node = node(&attributes, birth.created, include);
    if include.contents && id.kind().has_data() {
        node.pages = pages(engine, id, attributes.size)?;
    }
    node.flags = engine.inode_flags(id).map_err(|error| format!("inode flags: {error}"))?;
    node.project = engine.project(id).map_err(|error| format!("project id: {error}"))?;
    node.xattrs = xattrs(engine, id)?;
    Ok(node)
}

fn node(attributes: &Attributes, created: Time, include: TreeParts) -> TreeNode {
    let time = |is_included, time| if is_included { time } else { Time::default() };
    let owners = u32::from(include.owners);
    TreeNode {
        kind: attributes.kind,
        mode: attributes.mode * owners as u16,
        uid: attributes.uid * owners,
        gid: attributes.gid * owners,
        links: attributes.links,
        size: attributes.size,
        accessed: time(include.accessed, attributes.accessed),
        modified: time(include.modified, attributes.modified),
        changed: time(include.changed, attributes.changed),
        created: time(include.created, created),
        device: attributes.device,
        flags: InodeFlags::empty(),
        project: 0,
        xattrs: Xattrs::new(),
        same_as: None,
        pages: BTreeMap::new(),
    }
}

/// Reads all extended attributes of an object.
///
/// # Errors
/// Fails if a call fails, if the names are not listed in order, or if the list of names and the values
/// contradict each other.
pub fn xattrs(engine: &dyn Engine, id: ObjectId) -> Result<Xattrs, String> {
    let mut names = Vec::new();
    let listed = engine.xattr_names(id, &mut |name| names.push(name.to_vec()));
    listed.map_err(|error| format!("extended attributes: {error}"))?;
    if !names.is_sorted_by(|before, after| before < after) {
        return Err(format!("extended attributes out of order: {names:?}"));
    }
    let mut xattrs = Xattrs::new();
    for name in names {
        let size = |out: &mut [u8]| match engine.xattr(id, &name, out) {
            Ok(Some(size)) => Ok(size),
            other => Err(format!(
                "{:?} is listed, but getting it gives {other:?}",
                name.escape_ascii().to_string()
            )),
        };
        // The buffer has bytes other than 0, so that the comparison notices a byte that the call did not set.
        let mut value = vec![0xee; size(&mut [])?];
        if size(&mut value)? != value.len() {
            return Err("two reads of an extended attribute gave different sizes".into());
        }
        xattrs.insert(name, value);
    }
    Ok(xattrs)
}

/// Reads the pages of an object of `size` bytes, without pages of zeros.
fn pages(engine: &dyn Engine, id: ObjectId, size: u64) -> Result<BTreeMap<u64, Vec<u8>>, String> {
    let fail = |call: &str, error: Error| format!("{call}: {error}");
    let mut pages = BTreeMap::new();
    let mut done = 0;
    let mut data_bytes = 0;
    while done < size {
        let data = engine.seek(id, done, false).map_err(|error| fail("seek", error))?;
        let start = data.unwrap_or(size);
        if start < done || start > size {
            return Err(format!("seek: the data after {done} begins at {start}, the size is {size}"));
        }
        check_hole(engine, id, done, start)?;
        if start == size {
            break;
        }
        let hole = engine.seek(id, start, true).map_err(|error| fail("seek", error))?;
        let end = hole.filter(|&end| end > start && end <= size);
        let end = end
            .ok_or_else(|| format!("seek: the hole after {start} begins at {hole:?}, the size is {size}"))?;
        data_bytes += end - start;
        if data_bytes > MAX_DATA {
            return Err(format!("{data_bytes} bytes of data: too many to compare"));
        }
        // Engines may report different starts of the data in a sparse page. So this loop reads whole pages,
        // and equal contents give equal pages.
        let mut at = start / PAGE_SIZE * PAGE_SIZE;
        while at < end {
            let upto = size.min(end.next_multiple_of(PAGE_SIZE)).min(at + READ_BYTES);
            let bytes = read(engine, id, at, (upto - at) as usize)?;
            for (index, page) in bytes.chunks(PAGE_SIZE as usize).enumerate() {
                if page.iter().any(|&byte| byte != 0) {
                    pages.insert(at + index as u64 * PAGE_SIZE, page.to_vec());
                }
            }
            at = upto;
        }
        done = end;
    }
    Ok(pages)
}

/// Checks that both ends of a hole read as zeros.
fn check_hole(engine: &dyn Engine, id: ObjectId, start: u64, end: u64) -> Result<(), String> {
    let length = (end - start).min(PAGE_SIZE);
    for at in [start, end - length] {
        if read(engine, id, at, length as usize)?.iter().any(|&byte| byte != 0) {
            return Err(format!("bytes near {at} are in a hole, but not zero"));
        }
    }
    Ok(())
}

fn read(engine: &dyn Engine, id: ObjectId, offset: u64, length: usize) -> Result<Vec<u8>, String> {
    // The buffer has bytes other than 0, so that a byte that the call did not set does not look like a hole.
    let mut bytes = vec![0xee; length];
    match engine.read(id, offset, &mut bytes) {
        Ok(count) if count == length => Ok(bytes),
        Ok(count) => Err(format!("read at {offset} gave {count} of {length} bytes")),
        Err(error) => Err(format!("read at {offset}: {error}")),
    }
}
