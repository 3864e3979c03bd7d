//! Nodes: calls for front-ends that know objects and not paths, such as a mount. Holds are not stored: after
//! a crash, recovery frees each object that no name leads to.

mod calls;
mod generations;
mod locks;
mod set;
mod write;

use std::time::Duration;

use eyrie_engine::access::Credentials;
use eyrie_engine::holds::HoldTable;
use eyrie_engine::{Content, Engine, Kind, ObjectId, Time, Watcher};
use eyrie_medium::epoch;

use self::generations::Generations;
use super::path::PathWalk;
use super::{AccessTimes, AsUser, CallResult, Pxfs};
#[cfg(doc)]
use crate::posix::Posix;
use crate::posix::{SetTime, Stat};
use crate::{Errno, Notice, Result};

/// An object of a volume: its identity and its attributes.
///
/// ```
/// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId) -> Result<()> {
/// let node = nodes.node(egg)?;
/// println!("inode {}, generation {}, {} bytes", node.id.raw(), node.generation, node.stat.size);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Node {
    /// The id of the object. No other object has this id as long as the node is held.
    pub id: ObjectId,
    /// A number that distinguishes this use of the id from later uses of the same id.
    pub generation: u64,
    /// Time of the creation.
    pub created: Time,
    /// The attributes.
    pub stat: Stat,
}

/// One entry of a listing of nodes.
///
/// ```
/// # use eyrie::*; fn f(nodes: &VolumeNodes, nest: ObjectId) -> Result<()> {
/// let mut directories = 0;
/// nodes.list(nest, 0, false, &mut |entry| {
///     directories += u32::from(entry.id.is_directory());
///     true
/// })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeEntry<'a> {
    /// Name of the entry, as in listings of files.
    pub name: &'a [u8],
    /// The object that the entry names.
    pub id: ObjectId,
    /// The object and its attributes, if the caller asked for them. `None` also if the object cannot be read,
    /// because it is damaged or because another thread has removed it meanwhile.
    pub node: Option<Node>,
    /// Cookie at which a listing continues after this entry. At most 2^63 - 3, so that a front-end can add
    /// the entries `.` and `..`, and keep its offsets below 2^63.
    pub next: u64,
}

/// Attributes to set: see [`Nodes::set`]. The default sets none.
///
/// ```
/// use eyrie::{SetAttributes, SetTime};
///
/// let mut change = SetAttributes::default();
/// assert!(change.is_empty());
/// change.mode = Some(0o600);
/// change.modified = SetTime::Now;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SetAttributes {
    /// Permission bits, up to 0o7777.
    pub mode: Option<u16>,
    /// User id. `u32::MAX` means "no change".
    pub uid: Option<u32>,
    /// Group id. `u32::MAX` means "no change".
    pub gid: Option<u32>,
    /// Size of a file, in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub accessed: SetTime,
    /// Modification time.
    pub modified: SetTime,
}

impl Default for SetAttributes {
    fn default() -> SetAttributes {
        let (accessed, modified) = (SetTime::Omit, SetTime::Omit);
        SetAttributes { mode: None, uid: None, gid: None, size: None, accessed, modified }
    }
}

impl SetAttributes {
    /// True if nothing is to be set.
    ///
    /// ```
    /// # use eyrie::SetAttributes;
    /// assert!(SetAttributes::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        *self == SetAttributes::default()
    }

    fn sets_times(&self) -> bool {
        (self.accessed, self.modified) != (SetTime::Omit, SetTime::Omit)
    }
}

/// The objects of a volume, for front-ends that know objects and not paths: a mount, a server of NFS, or a
/// binding of another language. [`Pxfs::nodes`] makes a `Nodes`.
///
/// A call that looks an object up or makes one returns a [`Node`] and *holds* it: the object lives, and its
/// id names it, until [`forget`](Nodes::forget) has ended each of its holds. If another thread removes the
/// object before the hold, a look-up begins again. A call that had already made the object returns the object
/// of the same kind that now has the name, or fails with `ENOENT` if there is none. A million held nodes take
/// some 80 MB. The drop of this value forgets all nodes.
///
/// A call whose result depends on its user takes the credentials of this user. A name is that of one entry: a
/// name with a slash fails with `EINVAL`. `.` and `..` can be looked up.
///
/// The calls return the errors of [`Posix`]. They also return `ESTALE` for an id that names no object, and
/// for the id of a removed object that is not held.
///
/// # Examples
/// ```
/// # use eyrie::{Credentials, Kind, Volume};
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = Volume::create(place.path().join("nest"), 2 << 20)?;
/// let (nodes, root) = (volume.nodes(), Credentials::root());
/// let nest = nodes.make(&root, nodes.root(), b"nest", Kind::Directory, 0o755, 0)?;
/// let egg = nodes.make(&root, nest.id, b"egg", Kind::File, 0o644, 0)?;
/// nodes.write(&root, egg.id, 0, b"blue")?;
/// assert_eq!(nodes.lookup(&root, nest.id, b"egg")?.stat.size, 4);
/// nodes.forget(egg.id, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Calls that often come in pairs, such as `open` and `close`:
/// ```
/// # use eyrie::{Credentials, Kind, OpenFlags, Volume, XattrMode};
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = Volume::create(place.path().join("nest"), 2 << 20)?;
/// # let (nodes, root) = (volume.nodes(), Credentials::root());
/// let nest = nodes.make(&root, nodes.root(), b"nest", Kind::Directory, 0o755, 0)?.id;
/// let (egg, handle) = nodes.create(&root, nest, b"egg", OpenFlags::WRITE, 0o644)?;
/// nodes.write(&root, egg.id, 0, b"light ")?;
/// assert_eq!(nodes.append(&root, egg.id, b"blue")?, 6..10);
/// nodes.close(handle)?;
///
/// nodes.setxattr(&root, egg.id, b"user.colour", b"blue", XattrMode::Set)?;
/// let mut names = vec![0; nodes.listxattr(&root, egg.id, &mut [])?];
/// nodes.listxattr(&root, egg.id, &mut names)?;
/// assert_eq!(names, b"user.colour\0");
/// nodes.removexattr(&root, egg.id, b"user.colour")?;
///
/// let link = nodes.symlink(&root, nest, b"latest", b"egg")?;
/// assert_eq!(nodes.readlink(link.id)?, b"egg");
/// for name in ["latest", "egg"] {
///     nodes.unlink(&root, nest, name.as_bytes())?;
/// }
/// nodes.rmdir(&root, nodes.root(), b"nest")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Nodes<E: Engine> {
    files: Pxfs<E>,
    held: HoldTable,
    generations: Generations,
    watcher: Option<Watcher>,
}

impl<E: Engine> Pxfs<E> {
    /// Returns the objects of the volume, for front-ends that know objects and not paths. Calls on them obey
    /// the [rules](Pxfs::rules) of this file system. Its credentials have no effect on these calls.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// let nodes = files.nodes();
    /// let root = nodes.root();
    /// # }
    /// ```
    pub fn nodes(&self) -> Nodes<E> {
        Nodes {
            files: self.clone(),
            held: HoldTable::default(),
            generations: Generations::default(),
            watcher: None,
        }
    }
}

impl<E: Engine> Nodes<E> {
    /// Begins to watch the changes that other users of the volume make: see [`Nodes::next_notice`]. The
    /// watcher has room for `capacity` notices. If more notices wait for [`Nodes::next_notice`], all waiting
    /// notices are dropped, and the next notice is [`Notice::Everything`].
    ///
    /// ```
    /// # use eyrie::*; fn f(volume: &Volume) {
    /// let nodes = volume.nodes().watching(1024);
    /// # }
    /// ```
    #[must_use]
    pub fn watching(mut self, capacity: usize) -> Nodes<E> {
        self.watcher = self.engine().watch(capacity);
        self
    }

    /// Chooses the reads that set access times: see [`Nodes::mark_access`].
    ///
    /// ```
    /// # use eyrie::*; fn f(volume: &Volume) {
    /// let nodes = volume.nodes().with_access_times(AccessTimes::Relative);
    /// # }
    /// ```
    #[must_use]
    pub fn with_access_times(mut self, access_times: AccessTimes) -> Nodes<E> {
        self.files = self.files.with_access_times(access_times);
        self
    }

    /// Waits for a notice of a change that did not come from these nodes, up to `timeout`. A front-end that
    /// caches attributes or entries then forgets them. Returns `None` if no notice came, if
    /// [`Nodes::watching`] was not called, and after [`Nodes::stop_notices`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use eyrie::{Credentials, PosixExt};
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// let nodes = volume.nodes().watching(1024);
    /// volume.files(Credentials::root()).write("/egg", "blue")?;
    /// assert!(nodes.next_notice(Duration::from_secs(1)).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_notice(&self, timeout: Duration) -> Option<Notice> {
        self.engine().next_notice(self.watcher.as_ref()?, timeout)
    }

    /// Ends the notices: a thread that waits in [`Nodes::next_notice`] returns.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 2 << 20)?;
    /// let nodes = volume.nodes().watching(1024);
    /// nodes.stop_notices(); // usually from another thread
    /// assert!(nodes.next_notice(Duration::from_secs(1)).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop_notices(&self) {
        if let Some(watcher) = &self.watcher {
            self.engine().stop_watch(watcher);
        }
    }

    /// True after [`Nodes::stop_notices`], and without [`Nodes::watching`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn f(nodes: &eyrie::VolumeNodes) {
    /// while !nodes.has_stopped_notices() {
    ///     println!("{:?}", nodes.next_notice(Duration::from_secs(1)));
    /// }
    /// # }
    /// ```
    pub fn has_stopped_notices(&self) -> bool {
        self.watcher.as_ref().is_none_or(Watcher::is_stopped)
    }

    /// Returns the objects that are held.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes) {
    /// println!("{} objects are held", nodes.held().len());
    /// # }
    /// ```
    pub fn held(&self) -> Vec<ObjectId> {
        self.held.objects()
    }

    /// Returns the root directory, which needs no hold.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes) {
    /// assert!(nodes.root().is_directory());
    /// # }
    /// ```
    pub fn root(&self) -> ObjectId {
        self.engine().root()
    }

    /// True if the volume was opened read-only.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes) {
    /// assert!(!nodes.is_read_only());
    /// # }
    /// ```
    pub fn is_read_only(&self) -> bool {
        self.engine().is_read_only()
    }

    fn engine(&self) -> &E {
        &self.files.shared.engine
    }

    /// Makes a call of a user, after a check that the ids `nodes` still name their objects. The watcher of
    /// this value gets no notice of the changes that the call makes.
    fn call<T, const N: usize>(
        &self,
        who: &Credentials,
        operation: &'static str,
        nodes: [ObjectId; N],
        mut attempt: impl FnMut(AsUser<'_, E>) -> CallResult<T>,
    ) -> Result<T> {
        let user = AsUser { shared: &self.files.shared, credentials: who };
        let attempt = |user: AsUser<'_, E>| {
            self.generations.confirm(user.engine(), &nodes)?;
            attempt(user)
        };
        match &self.watcher {
            Some(watcher) => watcher.quietly(|| user.call(operation, attempt)),
            None => user.call(operation, attempt),
        }
    }

    /// Holds an object and returns it.
    fn hold(&self, user: AsUser<'_, E>, id: ObjectId) -> CallResult<Node> {
        user.engine().hold(id)?;
        self.held.add(id);
        let node = user.node(id).inspect_err(|_| self.forget(id, 1))?;
        self.generations.add(user.engine(), id, node.generation);
        Ok(node)
    }

    /// Makes an object and holds it. `made` becomes true as soon as the object is made. If the attempt then
    /// fails because the object is gone, the next attempt makes no second object: it holds the object of this
    /// kind that has the name by now.
    fn make_held(
        &self,
        user: AsUser<'_, E>,
        (dir, name): (ObjectId, &[u8]),
        (kind, mode, content): (Kind, u16, Content<'_>),
        made: &mut bool,
    ) -> CallResult<Node> {
        let mut walk = PathWalk::of_name(user, dir, name)?;
        let id = if *made {
            let parent = walk.parent()?;
            walk.lookup(&parent)?.filter(|id| id.kind() == kind).ok_or(Errno::NOENT)?
        } else {
            user.make(walk, kind, mode, content)?
        };
        *made = true;
        self.hold(user, id)
    }

    /// Gives an object another name, and holds the object. `made` becomes true as soon as the name is made.
    /// If the session with a service then ends before the hold, the next attempt does not make the name
    /// again.
    fn link_held(
        &self,
        user: AsUser<'_, E>,
        id: ObjectId,
        (dir, name): (ObjectId, &[u8]),
        made: &mut bool,
    ) -> CallResult<Node> {
        if !*made {
            user.make_link(id, PathWalk::of_name(user, dir, name)?)?;
        }
        *made = true;
        self.hold(user, id)
    }

    /// Looks a name up in a directory, and holds the object.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, nest: ObjectId) -> Result<()> {
    /// let egg = nodes.lookup(who, nest, b"egg")?;
    /// nodes.forget(egg.id, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES` without permission to search the directory, `ENAMETOOLONG`, `EIO`.
    pub fn lookup(&self, who: &Credentials, dir: ObjectId, name: &[u8]) -> Result<Node> {
        self.call(who, "lookup", [dir], |user| {
            let mut walk = PathWalk::of_name(user, dir, name)?;
            let parent = walk.parent()?;
            self.hold(user, walk.object(&parent)?)
        })
    }

    /// Finds an object by its inode number, and holds it. If a generation is given, the object must have this
    /// generation.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: Node) -> Result<()> {
    /// let found = nodes.find(egg.id.raw(), Some(egg.generation))?;
    /// assert_eq!(found.id, egg.id);
    /// # nodes.forget(egg.id, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ESTALE` if no object has this number and generation.
    pub fn find(&self, inode: u64, generation: Option<u64>) -> Result<Node> {
        self.call(self.files.credentials(), "find", [], |user| {
            let id = ObjectId::from_raw(inode).ok_or(Errno::STALE)?;
            let node = self.hold(user, id)?;
            if generation.is_none_or(|wanted| wanted == node.generation) {
                return Ok(node);
            }
            self.forget(id, 1);
            Err(Errno::STALE.into())
        })
    }

    /// Ends this number of holds of an object (`lookups`), or all of them if there are fewer. [`Nodes`]
    /// describes the calls that hold an object.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId) {
    /// nodes.forget(egg, 1); // one look-up
    /// nodes.forget(egg, u64::MAX); // all look-ups
    /// # }
    /// ```
    pub fn forget(&self, id: ObjectId, lookups: u64) {
        let ended = self.held.remove(id, lookups);
        if ended != 0 {
            self.generations.remove(self.engine(), id, &self.held);
            let _pin = epoch::pin();
            self.engine().release(id, ended);
        }
    }

    /// Returns the attributes of an object, without a hold of it.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes) -> Result<()> {
    /// assert!(nodes.node(nodes.root())?.stat.is_dir());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ESTALE`, `EIO`.
    pub fn node(&self, id: ObjectId) -> Result<Node> {
        self.call(self.files.credentials(), "stat", [id], |user| user.node(id))
    }
}

impl<E: Engine> Drop for Nodes<E> {
    fn drop(&mut self) {
        self.stop_notices();
        for (id, count) in self.held.remove_all() {
            self.engine().release(id, count);
        }
    }
}

impl<E: Engine> std::fmt::Debug for Nodes<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
