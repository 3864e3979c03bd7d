//! Walks through trees by the calls of [`Posix`]. The commands use this walk to list, search, copy and remove
//! trees.
//!
//! The walk visits the entries of a directory in the order of their names, so equal trees give equal walks.
//!
//! Invariants:
//! - A walk ends even in a damaged volume. It notes every directory that it enters. If it meets another name
//!   of such a directory, it reports an error and does not enter. A directory of a sound volume has one name.
//!   A directory of a host may have several names, because of mounts, so on a host the walk drops its note
//!   when it leaves the directory.
//! - Below the root of the walk, each call names one component ([`Ladder`]).
//! - Besides these notes, a walk keeps in memory only the directories from its root to its current one, and
//!   the names of the entries in these directories.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::vec::IntoIter;

use eyrie_engine::Kind;

use super::ladder::{Identity, Ladder, identity_of};
use super::{Dir, Posix, Stat, Target};
use crate::{Errno, Error, Result};

/// An entry of a tree.
///
/// ```
/// # use eyrie::{Host, PosixExt, WalkStep};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// fs.create_dir_all("/nest")?;
/// fs.write("/nest/egg", "blue")?;
/// for step in fs.walk("/nest")? {
///     let WalkStep::Entry(entry) = step else { continue };
///     println!("{:1$}{2}", "", entry.depth, entry.name().display());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct WalkEntry<P: Posix> {
    /// The path under the root of the walk. The root has the empty path.
    pub relative: PathBuf,
    /// The number of levels under the root of the walk, which has depth 0.
    pub depth: usize,
    /// The kind, as the directory entry states it.
    pub kind: Kind,
    /// The inode number, as the directory entry states it.
    pub inode: u64,
    /// True for the last entry of its directory.
    pub last: bool,
    dir: Dir<P>,
    name: PathBuf,
}

impl<P: Posix> WalkEntry<P> {
    /// Returns the directory of the entry, as a file system in which [`WalkEntry::name`] names the entry.
    ///
    /// ```
    /// # use eyrie::*; fn f(entry: WalkEntry<Host>) -> Result<()> {
    /// entry.dir().chmod(entry.name().into(), 0o600)
    /// # }
    /// ```
    pub fn dir(&self) -> &Dir<P> {
        &self.dir
    }

    /// Returns the name in [`WalkEntry::dir`]. For the root of a walk it is the path that the caller gave.
    ///
    /// ```
    /// # use eyrie::*; fn f(entry: WalkEntry<Host>) {
    /// println!("{}", entry.name().display());
    /// # }
    /// ```
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the attributes of the entry itself. A symbolic link is not followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(entry: WalkEntry<Host>) -> Result<()> {
    /// let size = entry.stat()?.len();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`].
    pub fn stat(&self) -> Result<Stat> {
        self.dir.stat(Target::NoFollow((&self.name).into()))
    }
}

/// One step of a walk.
///
/// ```
/// # use eyrie::{Host, PosixExt, WalkStep};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// fs.create_dir_all("/nest/north")?;
/// let (mut entered, mut left) = (0, 0);
/// for step in fs.walk("/nest")? {
///     match step {
///         WalkStep::Entry(_) => entered += 1,
///         WalkStep::Left(_) => left += 1,
///         WalkStep::Failed(path, error) => eprintln!("{}: {error}", path.display()),
///     }
/// }
/// assert_eq!((entered, left), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum WalkStep<P: Posix> {
    /// An entry. If it is a directory, the entries in it follow next, unless [`Walk::prune`] skips them.
    Entry(WalkEntry<P>),
    /// A directory that the walk leaves after the last of its entries.
    Left(WalkEntry<P>),
    /// An entry that cannot be read: its path under the root of the walk, and the error.
    Failed(PathBuf, Error),
}

/// An entry of a directory that the walk has listed.
struct Child {
    /// The place of the name among the names of its directory.
    name: Range<usize>,
    /// Eight bytes of the name, for the sort: see [`Children::sort`].
    sort_key: u64,
    kind: Kind,
    inode: u64,
}

/// The entries of a directory that the walk has not visited yet.
///
/// All names share one allocation. A directory of a million entries would otherwise need a million small
/// allocations, which the sort would visit, and the walk would free, in random order.
#[derive(Default)]
struct Children {
    names: Vec<u8>,
    entries: IntoIter<Child>,
}

/// A directory between the root of the walk and the current entry.
struct Level {
    /// The name of this directory in the directory above.
    name: PathBuf,
    inode: u64,
    last: bool,
    identity: Option<Identity>,
    /// True if the ladder has entered this directory.
    entered: bool,
    children: Children,
}

impl Children {
    /// Sorts these entries by their names. The name of each entry is a range of `names`.
    fn sort(names: Vec<u8>, mut entries: Vec<Child>) -> Children {
        // The names of a large directory often begin with the same bytes. The key of an entry is the eight
        // bytes after these, so most comparisons look at two entries of the array, and at no name.
        let first = entries.first().map_or(0..0, |child| child.name.clone());
        let mut shared = first.len();
        for child in &entries {
            let pairs = names[first.clone()].iter().zip(&names[child.name.clone()]);
            shared = pairs.take(shared).take_while(|(one, other)| one == other).count();
        }
        for child in &mut entries {
            let rest = &names[child.name.clone()][shared..];
            let mut key = [0; 8];
            let len = rest.len().min(key.len());
            key[..len].copy_from_slice(&rest[..len]);
            child.sort_key = u64::from_be_bytes(key);
        }
        entries.sort_unstable_by(|one, other| {
            let by_key = one.sort_key.cmp(&other.sort_key);
            by_key.then_with(|| names[one.name.clone()].cmp(&names[other.name.clone()]))
        });
        // The walk later reads the names one after another, and would wait at each name for a cache miss.
        // This loop copies the names in their new order, so that the walk reads them in sequence. The cache
        // misses of the loop itself overlap.
        let mut sorted = Vec::with_capacity(names.len());
        for child in &mut entries {
            let start = sorted.len();
            sorted.extend_from_slice(&names[child.name.clone()]);
            child.name = start..sorted.len();
        }
        Children { names: sorted, entries: entries.into_iter() }
    }

    fn next(&mut self) -> Option<(&OsStr, Kind, u64)> {
        let Child { name, kind, inode, .. } = self.entries.next()?;
        Some((OsStr::from_bytes(&self.names[name]), kind, inode))
    }
}

/// An iterator over the steps of a walk. The first step is the root.
///
/// ```
/// # use eyrie::{Host, PosixExt, WalkStep};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// fs.create_dir_all("/nest/.git/objects")?;
/// let mut walk = fs.walk("/nest")?;
/// while let Some(step) = walk.next() {
///     if matches!(&step, WalkStep::Entry(entry) if entry.name().ends_with(".git")) {
///         walk.prune(); // nothing inside is visited
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Walk<P: Posix> {
    has_mounts: bool,
    ladder: Ladder<P>,
    /// The root of the walk. `None` after the first step.
    first: Option<(PathBuf, Kind, u64)>,
    /// The directory that the latest step has returned, if the walk enters it next.
    entering: Option<Level>,
    levels: Vec<Level>,
    /// The path of the innermost level.
    path: PathBuf,
    visited: HashSet<Identity>,
    wanted: fn(&OsStr) -> bool,
}

impl<P: Posix> std::fmt::Debug for Walk<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<P: Posix + Clone> Walk<P> {
    /// Starts a walk through the tree `root`.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: Host) -> Result<()> {
    /// let walk = Walk::new(fs, "/nest".as_ref())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::stat`].
    pub fn new(fs: P, root: &Path) -> Result<Walk<P>> {
        let stat = fs.stat(Target::NoFollow(root.into())).map_err(|error| error.at(root))?;
        let first = (root.into(), stat.kind, stat.inode);
        Ok(Walk {
            has_mounts: fs.has_mounts(),
            ladder: Ladder::new(fs),
            first: Some(first),
            entering: None,
            levels: Vec::new(),
            path: PathBuf::new(),
            visited: HashSet::new(),
            wanted: |_| true,
        })
    }

    /// Limits the walk to the root and the entries whose names `wanted` accepts.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let walk = fs.walk("/nest")?.only(|name| name != ".git");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn only(mut self, wanted: fn(&OsStr) -> bool) -> Walk<P> {
        self.wanted = wanted;
        self
    }

    /// Skips the entries of the directory that the latest step has returned. No [`WalkStep::Left`] follows
    /// for this directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(mut walk: Walk<Host>) {
    /// let root = walk.next();
    /// walk.prune();
    /// assert!(walk.next().is_none());
    /// # }
    /// ```
    pub fn prune(&mut self) {
        self.forget_entering();
    }

    fn forget_entering(&mut self) {
        if let Some(Level { identity: Some(identity), .. }) = self.entering.take()
            && self.has_mounts
        {
            self.visited.remove(&identity);
        }
    }

    fn step_to(
        &mut self,
        dir: Dir<P>,
        (name, kind, inode): (PathBuf, Kind, u64),
        relative: PathBuf,
        last: bool,
    ) -> WalkStep<P> {
        match identity_of(&dir, &name, kind, inode) {
            Ok(None) => {}
            Ok(Some(identity)) if self.visited.insert(identity) => {
                let (name, children) = (name.clone(), Children::default());
                let identity = Some(identity);
                self.entering = Some(Level { name, inode, last, identity, entered: false, children });
            }
            Ok(identity) => return WalkStep::Failed(relative, self.two_names(identity)),
            Err(error) => return WalkStep::Failed(relative, error),
        }
        WalkStep::Entry(WalkEntry { relative, depth: self.levels.len(), kind, inode, last, dir, name })
    }

    /// Returns the error for a directory that the walk has entered before.
    #[cold]
    fn two_names(&self, identity: Option<Identity>) -> Error {
        let inside = self.levels.iter().any(|level| level.identity == identity);
        if self.has_mounts {
            let reason = "the walk is already inside this directory, perhaps because of a bind mount";
            return Error::with_reason(Errno::LOOP, "walk", reason);
        }
        let reason = if inside {
            "damaged: this directory contains itself; repair the volume with `eyrie fsck --repair`"
        } else {
            "damaged: this directory has two names, unless it was moved meanwhile; repair the volume \
             with `eyrie fsck --repair`"
        };
        Error::with_reason(Errno::IO, "walk", reason)
    }

    /// Enters a directory, and reads the entries that can be read.
    fn enter(&mut self, mut level: Level) -> Option<WalkStep<P>> {
        let (mut names, mut entries) = (Vec::new(), Vec::new());
        let mut listed = Ok(());
        let wanted = self.wanted;
        let opened = self.ladder.down_to(&level.name, |fs, handle| {
            listed = fs.list(handle, 0, &mut |entry| {
                if wanted(OsStr::from_bytes(entry.name)) {
                    let start = names.len();
                    names.extend_from_slice(entry.name);
                    let (name, sort_key) = (start..names.len(), 0);
                    entries.push(Child { name, sort_key, kind: entry.kind, inode: entry.inode });
                }
                true
            });
        });
        level.entered = opened.is_ok();
        level.children = Children::sort(names, entries);
        if !self.levels.is_empty() {
            self.path.push(&level.name);
        }
        self.levels.push(level);
        let failed = opened.and(listed).err()?;
        Some(WalkStep::Failed(self.path.clone(), failed))
    }

    /// Leaves the innermost directory.
    fn leave(&mut self) -> Option<WalkStep<P>> {
        let level = self.levels.pop()?;
        if let (true, Some(identity)) = (self.has_mounts, level.identity) {
            self.visited.remove(&identity);
        }
        let relative = self.path.clone();
        self.path.pop();
        let climbed = if level.entered { self.ladder.up() } else { Ok(()) };
        let dir = match climbed.and_then(|()| self.ladder.here()) {
            Ok(dir) => dir,
            Err(error) => {
                // The walk can no longer reach the directories above.
                self.levels.clear();
                return Some(WalkStep::Failed(std::mem::take(&mut self.path), error));
            }
        };
        let Level { name, inode, last, .. } = level;
        let (depth, kind) = (self.levels.len(), Kind::Directory);
        Some(WalkStep::Left(WalkEntry { relative, depth, kind, inode, last, dir, name }))
    }
}

impl<P: Posix + Clone> Iterator for Walk<P> {
    type Item = WalkStep<P>;

    fn next(&mut self) -> Option<WalkStep<P>> {
        if let Some(root) = self.first.take() {
            return Some(match self.ladder.here() {
                Ok(dir) => self.step_to(dir, root, PathBuf::new(), true),
                Err(error) => WalkStep::Failed(PathBuf::new(), error),
            });
        }
        if let Some(level) = self.entering.take()
            && let Some(failed) = self.enter(level)
        {
            return Some(failed);
        }
        let children = &mut self.levels.last_mut()?.children;
        let Some((name, kind, inode)) = children.next() else { return self.leave() };
        // The path gets its memory in one step. A join would allocate a second time for the name.
        let mut relative = PathBuf::with_capacity(self.path.as_os_str().len() + 1 + name.len());
        relative.push(&self.path);
        relative.push(name);
        let entry = (name.into(), kind, inode);
        let last = children.entries.len() == 0;
        match self.ladder.here() {
            Ok(dir) => Some(self.step_to(dir, entry, relative, last)),
            Err(error) => Some(WalkStep::Failed(relative, error)),
        }
    }
}

/// Removes everything below `path`, and `path` itself unless it is the root of the file system. If part of
/// the tree is damaged or was moved meanwhile, removes everything that the walk can still reach, and then
/// returns the first error about damage or a move. Any other error ends the removal at once.
pub(super) fn remove_all<P: Posix + Clone>(fs: P, path: &Path) -> Result<()> {
    // The root of the walk has an empty relative path, with which `join` would append a slash.
    let place = |relative: &Path| match relative.as_os_str().is_empty() {
        true => path.to_owned(),
        false => path.join(relative),
    };
    let mut damage = None;
    for step in Walk::new(fs, path)? {
        let (relative, result) = match step {
            WalkStep::Entry(entry) if entry.kind == Kind::Directory => continue,
            WalkStep::Entry(entry) => {
                let result = entry.dir().unlink(entry.name().into());
                (entry.relative, result)
            }
            WalkStep::Left(entry) if entry.depth == 0 && is_root(path) => continue,
            WalkStep::Left(entry) => {
                let result = entry.dir().rmdir(entry.name().into());
                (entry.relative, result)
            }
            WalkStep::Failed(relative, error) => (relative, Err(error)),
        };
        match result {
            Ok(()) => {}
            Err(error) if matches!(error.errno(), Errno::IO | Errno::STALE) => {
                damage.get_or_insert_with(|| error.at(place(&relative)));
            }
            // A directory with an entry that cannot be removed stays.
            Err(error) if error.errno() == Errno::NOTEMPTY && damage.is_some() => {}
            Err(error) => return Err(error.at(place(&relative))),
        }
    }
    damage.map_or(Ok(()), Err)
}

/// True for a path without a name, such as `/` and `.`, which leads to the root of the file system.
fn is_root(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::RootDir | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::ladder::identity;
    use crate::{Credentials, Host, PosixExt, Volume};

    #[test]
    fn children_are_in_the_order_of_their_names() {
        let sorted = |list: &[&[u8]]| {
            let (mut names, mut entries) = (Vec::new(), Vec::new());
            for (inode, name) in (0..).zip(list) {
                let start = names.len();
                names.extend_from_slice(name);
                let (name, kind) = (start..names.len(), Kind::File);
                entries.push(Child { name, sort_key: 0, kind, inode });
            }
            let mut children = Children::sort(names, entries);
            let mut found = Vec::new();
            while let Some((name, _, inode)) = children.next() {
                assert_eq!(name.as_bytes(), list[inode as usize]);
                found.push(name.as_bytes().to_vec());
            }
            found
        };
        let lists: [&[&[u8]]; 5] = [
            &[],
            &[b"one"],
            // Names that begin with all bytes of a shorter name, and bytes above 127.
            &[b"file", b"file-10", b"file-1", b"file-\xff", b"file-\x01", b"fil"],
            // Names that differ only after the bytes of the sort key.
            &[b"x-123456789b", b"x-123456789a", b"x-12345678", b"x-1234567", b"x-1234567890"],
            &[b"b", b"a", b"c\x01", b"c", b"ab"],
        ];
        for list in lists {
            let mut expected: Vec<_> = list.iter().map(|name| name.to_vec()).collect();
            expected.sort();
            assert_eq!(sorted(list), expected);
        }
    }

    #[test]
    fn directory_seen_twice_on_the_host_is_a_loop() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("again")).expect("a directory");
        let host = Host::new(dir.path()).expect("a directory");
        let mut walk = Walk::new(&host, Path::new(".")).expect("a directory");
        // A bind mount would give the directory `again` the identity of a directory that the walk is inside.
        walk.visited.insert(identity(&host.stat(Target::NoFollow("again".into())).expect("a directory")));
        let failed = walk.find_map(|step| match step {
            WalkStep::Failed(path, error) => Some((path, error)),
            _ => None,
        });
        let (path, error) = failed.expect("the directory is reported");
        assert_eq!((path.as_path(), error.errno()), (Path::new("again"), Errno::LOOP));
        assert!(!error.to_string().contains("repair"), "{error}");
    }

    /// Another program replaces the root of a walk with a link before the walk enters it. A removal would
    /// otherwise empty the directory to which the link leads.
    #[test]
    fn walk_enters_no_link_that_has_replaced_its_root() {
        fn enters_no_link<P: PosixExt>(fs: &P) {
            fs.create_dir_all("/tree/in").expect("room");
            fs.create_dir_all("/other/kept").expect("room");
            let mut walk = fs.walk("/tree").expect("there");
            assert!(matches!(walk.next(), Some(WalkStep::Entry(_))));
            fs.remove_dir_all("/tree").expect("there");
            fs.symlink("other".as_ref(), "/tree".into()).expect("room");
            let Some(WalkStep::Failed(_, error)) = walk.next() else { panic!("the walk enters the link") };
            assert_eq!(error.errno(), Errno::NOTDIR);
            // A path with a slash at its end leads through a link.
            assert_eq!(fs.walk("/tree/").expect("there").count(), 4);
        }
        enters_no_link(&crate::pxfs::tests::empty());
        let place = tempfile::tempdir().expect("a directory");
        enters_no_link(&Host::new(place.path()).expect("a directory"));
    }

    #[test]
    fn new_directory_with_an_old_inode_number_is_entered() {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let volume = Volume::create(place.path().join("nest"), 256 << 20).expect("a volume");
        let files = volume.files(Credentials::root());
        let inode = |path: &str| files.stat(path.into()).expect("there").inode;
        files.create_dir_all("/t/a").expect("room");
        files.create_dir("/t/b").expect("room");
        let old = inode("/t/a");
        let mut walk = files.walk("/t").expect("there");
        let left = |step| matches!(step, WalkStep::Left(entry) if entry.relative == Path::new("a"));
        assert!(walk.by_ref().any(left));
        files.remove_dir("/t/a").expect("empty");
        volume.trim().expect("sound");
        let made = (0..10_000).any(|number| {
            let path = format!("/t/b/{number}");
            files.create_dir(&path).expect("room");
            inode(&path) == old
        });
        assert!(made, "the volume uses the header again");
        let failed = walk.find(|step| matches!(step, WalkStep::Failed(..)));
        assert!(failed.is_none(), "{failed:?}");
    }
}
