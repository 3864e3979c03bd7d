//! Watches: the changes of a directory, or of a tree, as events.
//!
//! A watch has a queue of [`Notice`]s of all changes of the volume. The thread that asks for events takes
//! notices from the queue, drops those of other directories, and finds the paths of the rest ([`KnownTree`]).
//! So a change pays only for its notice, and only while a watch exists. A watch is not stored, so a crash
//! loses nothing but the watch.

mod event;
mod known;
mod learn;

pub use event::{WatchEvent, WatchEventKind, WatchOptions};

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use eyrie_engine::{Engine, ObjectId, Watcher};

use self::known::KnownTree;
use super::open::MadeFile;
use super::{Handle, Pxfs};
#[cfg(doc)]
use crate::posix::Posix;
use crate::posix::{OpenFlags, PathAt};
use crate::{Errno, Error, Notice, Result};

/// A stream of the changes in a directory or a tree: see [`Pxfs::watch`].
///
/// A watch is an iterator that waits for each event. [`next_within`](Watch::next_within) waits with a limit,
/// and [`poll`](Watch::poll) does not wait. The events of one entry come in the order of its changes. The
/// watch also sees the changes of its own process, of other clients of a served volume, and of mounts.
///
/// If changes come faster than the watch takes them, its queue overflows. The next event is then
/// [`Overflow`](WatchEventKind::Overflow), and the watch goes on.
///
/// ```
/// # use eyrie::*;
/// fn show(watch: Watch<VolumeEngine>) {
///     for event in watch {
///         println!("{:?} {}", event.kind, event.path.display());
///     }
/// }
/// ```
///
/// The watched directory stays open, and with it the volume. The watch ends with the drop of this value, with
/// the removal of the watched directory, or by a [`WatchStopper`].
pub struct Watch<E: Engine> {
    files: Pxfs<E>,
    /// `None` only during the drop.
    handle: Option<Handle>,
    source: Arc<WatchSource<E>>,
    options: WatchOptions,
    known: KnownTree,
    /// Events that were not returned yet.
    events: VecDeque<WatchEvent>,
    last_cookie: u64,
    has_ended: bool,
}

/// The source of the notices of a watch.
struct WatchSource<E: Engine> {
    engine: Arc<E>,
    watcher: Watcher,
}

impl<E: Engine> WatchSource<E> {
    fn stop(&self) {
        if !self.watcher.is_stopped() {
            self.engine.stop_watch(&self.watcher);
        }
    }
}

impl<E: Engine> Drop for WatchSource<E> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ends a [`Watch`], usually from another thread than the one that waits for its events.
///
/// ```
/// # use std::time::Duration;
/// # use eyrie::{Credentials, PosixExt, Volume, WatchOptions};
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = Volume::create(place.path().join("nest"), 2 << 20)?;
/// # let files = volume.files(Credentials::root());
/// let watch = files.watch("/".into(), WatchOptions::new())?;
/// let stopper = watch.stopper();
/// let events = std::thread::spawn(move || watch.count());
/// files.write("/egg", "blue")?;
/// stopper.stop();
/// assert!(events.join().unwrap() <= 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WatchStopper<E: Engine> {
    // The reference is weak, so that a stopper keeps neither the volume open nor the watch alive.
    source: Weak<WatchSource<E>>,
}

impl<E: Engine> WatchStopper<E> {
    /// Ends the watch: a thread that waits for an event returns. Has no effect on a watch that has ended.
    ///
    /// ```
    /// # use eyrie::*; fn f(stopper: &WatchStopper<VolumeEngine>) {
    /// stopper.stop();
    /// # }
    /// ```
    pub fn stop(&self) {
        if let Some(source) = self.source.upgrade() {
            source.stop();
        }
    }
}

impl<E: Engine> Clone for WatchStopper<E> {
    fn clone(&self) -> Self {
        WatchStopper { source: Weak::clone(&self.source) }
    }
}

impl<E: Engine> std::fmt::Debug for WatchStopper<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchStopper").finish_non_exhaustive()
    }
}

impl<E: Engine> Pxfs<E> {
    /// Begins to watch a directory, or with [`WatchOptions::tree`] the tree below it. Each change that begins
    /// after the call gives an event. A symbolic link at the end of the path is followed.
    ///
    /// The user needs permission to read the directory. A directory in the tree is watched if the user may
    /// read it and may search its parent at the moment when the watch meets it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use eyrie::{Credentials, PosixExt, Volume};
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = Volume::create(place.path().join("nest"), 2 << 20)?;
    /// # let files = volume.files(Credentials::root());
    /// use eyrie::{WatchEventKind, WatchOptions};
    ///
    /// let mut watch = files.watch("/".into(), WatchOptions::new().tree(true))?;
    /// files.create_dir("/nest")?;
    /// files.write("/nest/egg", "blue")?;
    /// let made = watch.next_within(Duration::from_secs(1)).expect("an event");
    /// assert_eq!((made.kind, made.path.as_path()), (WatchEventKind::Created, "nest".as_ref()));
    /// let made = watch.next_within(Duration::from_secs(1)).expect("an event");
    /// assert_eq!((made.kind, made.path.as_path()), (WatchEventKind::Created, "nest/egg".as_ref()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Posix::open`]. `ENOTDIR` if the path names no directory, `EACCES` without permission to
    /// read it, `EOPNOTSUPP` if the engine gives no notices of changes.
    pub fn watch(&self, path: PathAt<'_, Handle>, options: WatchOptions) -> Result<Watch<E>> {
        let unsupported = || Error::new(Errno::OPNOTSUPP, "watch");
        // A change after this line gives a notice. So the listings below miss no change.
        let watcher = self.engine().watch(options.capacity).ok_or_else(unsupported)?;
        let source = Arc::new(WatchSource { engine: Arc::clone(self.engine()), watcher });
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let handle =
            self.as_user().call("watch", |user| user.open_path(path, flags, 0, &mut MadeFile::default()))?;
        let known = KnownTree::new(handle.id());
        let mut watch = Watch {
            files: self.clone(),
            handle: Some(handle),
            source,
            options,
            known,
            events: VecDeque::new(),
            last_cookie: 0,
            has_ended: false,
        };
        watch.list_all().map_err(|error| error.into_error("watch"))?;
        Ok(watch)
    }
}

impl<E: Engine> Watch<E> {
    /// Returns the watched directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(watch: &Watch<VolumeEngine>) {
    /// assert!(watch.directory().is_directory());
    /// # }
    /// ```
    pub fn directory(&self) -> ObjectId {
        self.known.root()
    }

    /// Returns a value that ends this watch from another thread.
    ///
    /// ```
    /// # use eyrie::*; fn f(watch: &Watch<VolumeEngine>) {
    /// let stopper = watch.stopper();
    /// # }
    /// ```
    pub fn stopper(&self) -> WatchStopper<E> {
        WatchStopper { source: Arc::downgrade(&self.source) }
    }

    /// Returns the next event, if it is there already. A client whose service has ended may wait for the next
    /// service, for some seconds at most.
    ///
    /// ```
    /// # use eyrie::*; fn f(watch: &mut Watch<VolumeEngine>) {
    /// while let Some(event) = watch.poll() {
    ///     println!("{:?} {}", event.kind, event.path.display());
    /// }
    /// # }
    /// ```
    pub fn poll(&mut self) -> Option<WatchEvent> {
        self.next_within(Duration::ZERO)
    }

    /// Waits for the next event, up to `timeout`. A client whose service has ended may wait longer, as in
    /// [`poll`](Watch::poll). Returns `None` if no event came, or if the watch has [ended](Watch::has_ended).
    ///
    /// ```
    /// # use eyrie::*; fn f(watch: &mut Watch<VolumeEngine>) {
    /// let event = watch.next_within(std::time::Duration::from_millis(100));
    /// # }
    /// ```
    pub fn next_within(&mut self, timeout: Duration) -> Option<WatchEvent> {
        let end = Instant::now().checked_add(timeout);
        // Other threads may add notices of other directories for ever. So after the timeout, this call takes
        // at most as many notices as the queue has room for.
        let mut late_notices = 0;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.has_ended() || late_notices == self.source.watcher.capacity() {
                return None;
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            late_notices += usize::from(left.is_zero());
            match self.source.engine.next_notice(&self.source.watcher, left) {
                Some(notice) => self.take(notice),
                None if left.is_zero() => return None,
                None => {}
            }
        }
    }

    /// True if no further event comes: the watched directory was removed, or a [`WatchStopper`] has ended the
    /// watch.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use eyrie::*; fn f(mut watch: Watch<VolumeEngine>) {
    /// while !watch.has_ended() {
    ///     println!("{:?}", watch.next_within(Duration::from_secs(1)));
    /// }
    /// # }
    /// ```
    pub fn has_ended(&self) -> bool {
        self.events.is_empty() && (self.has_ended || self.source.watcher.is_stopped())
    }

    /// Turns a notice into events.
    fn take(&mut self, notice: Notice) {
        let taken = match notice {
            Notice::Object(id) => self.change(id, WatchEventKind::Modified),
            Notice::Attributes(id) => {
                // A new mode may let the user read a directory of the tree.
                self.enter_known(id);
                self.change(id, WatchEventKind::AttributesChanged)
            }
            // As with inotify(7), an access time that a read sets is no event.
            Notice::Access(_) => Some(()),
            Notice::Entry { dir, name, before, after, .. } => self.change_entry((dir, &name), before, after),
            Notice::Rename { from_dir, from_name, to_dir, to_name, moved, replaced, left, .. } => {
                self.rename((from_dir, &from_name), (to_dir, &to_name), moved, (replaced, left))
            }
            // All other notices mean that notices were lost.
            _ => None,
        };
        if taken.is_none() {
            self.look_again();
        }
    }

    fn push(&mut self, kind: WatchEventKind, dir: ObjectId, object: Option<ObjectId>, path: PathBuf) {
        self.events.push_back(WatchEvent { kind, dir, object, path });
    }

    /// Adds an event of the watched directory itself.
    fn push_of_root(&mut self, kind: WatchEventKind) {
        let root = self.known.root();
        self.push(kind, root, Some(root).filter(|_| kind != WatchEventKind::Overflow), PathBuf::new());
    }

    /// Adds the last event: the watched directory was removed.
    fn end(&mut self) {
        self.push_of_root(WatchEventKind::Removed);
        self.has_ended = true;
        self.source.stop();
    }

    /// Turns the change of an object into events. Returns `None` if the known entries do not give a path that
    /// an event needs. [`Watch::change_entry`] and [`Watch::rename`] also return `None` then.
    fn change(&mut self, id: ObjectId, kind: WatchEventKind) -> Option<()> {
        if self.options.entries_only {
            return Some(());
        }
        if id == self.known.root() {
            self.push_of_root(kind);
        }
        for (dir, name) in self.known.places(id) {
            let path = self.known.path(dir, &name)?;
            self.push(kind, dir, Some(id), path);
        }
        Some(())
    }

    /// Turns the change of an entry, by another call than a rename, into events.
    fn change_entry(
        &mut self,
        (dir, name): (ObjectId, &[u8]),
        before: Option<ObjectId>,
        after: Option<ObjectId>,
    ) -> Option<()> {
        if before == Some(self.known.root()) {
            self.end();
        }
        if !self.known.watches(dir) {
            return Some(());
        }
        let path = self.known.path(dir, name)?;
        if before.is_some() {
            self.push(WatchEventKind::Removed, dir, before, path.clone());
        }
        if let Some(known) = self.known.unplace(dir, name).filter(|known| Some(*known) != after) {
            self.known.forget_unnamed(known);
        }
        if let Some(id) = after {
            self.push(WatchEventKind::Created, dir, after, path);
            self.place(dir, name, id);
            // A new directory is empty. Its later entries have notices of their own.
            if self.options.tree && id.is_directory() && self.may_enter(dir, id) {
                self.known.add_directory(id);
            }
        }
        Some(())
    }

    /// Turns a rename into events. `replaced` and `left` are the fields of [`Notice::Rename`].
    fn rename(
        &mut self,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        moved: ObjectId,
        (replaced, left): (Option<ObjectId>, Option<ObjectId>),
    ) -> Option<()> {
        let root = self.known.root();
        let exchanged = left.filter(|_| left == replaced);
        if moved == root || exchanged == Some(root) {
            let cookie = self.new_cookie();
            self.push_of_root(WatchEventKind::RenamedFrom { cookie });
        } else if replaced == Some(root) {
            self.end();
        }
        let ends = [from, to].map(|place| Some(place).filter(|place| self.known.watches(place.0)));
        if ends == [None, None] {
            return Some(());
        }
        self.push_rename(ends, moved)?;
        if let Some(other) = exchanged {
            self.push_rename([ends[1], ends[0]], other)?;
        } else if let (Some(new), Some((dir, name))) = (left, ends[0]) {
            self.push(WatchEventKind::Created, dir, Some(new), self.known.path(dir, name)?);
        }
        // A known entry may be newer than the notice, and may name a third object. This object is looked at,
        // too.
        let known = ends.map(|end| end.and_then(|(dir, name)| self.known.unplace(dir, name)));
        for (end, id) in ends.into_iter().zip([left, Some(moved)]) {
            if let (Some((dir, name)), Some(id)) = (end, id) {
                self.place(dir, name, id);
            }
        }
        for id in known.into_iter().chain([Some(moved), replaced]).flatten().filter(|id| id.is_directory()) {
            self.known.forget_unnamed(id);
            self.enter_known(id);
        }
        Some(())
    }

    fn new_cookie(&mut self) -> u64 {
        self.last_cookie += 1;
        self.last_cookie
    }

    /// Adds the events of a move between two places. An unwatched place is `None`.
    fn push_rename(&mut self, ends: [Option<(ObjectId, &[u8])>; 2], moved: ObjectId) -> Option<()> {
        let cookie = self.new_cookie();
        let kinds = [WatchEventKind::RenamedFrom { cookie }, WatchEventKind::RenamedTo { cookie }];
        for (end, kind) in ends.into_iter().zip(kinds) {
            if let Some((dir, name)) = end {
                self.push(kind, dir, Some(moved), self.known.path(dir, name)?);
            }
        }
        Some(())
    }
}

/// Waits for each event, without a limit. Ends when the watch has ended.
impl<E: Engine> Iterator for Watch<E> {
    type Item = WatchEvent;

    fn next(&mut self) -> Option<WatchEvent> {
        self.next_within(Duration::MAX)
    }
}

impl<E: Engine> Drop for Watch<E> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // A close of the handle as a file would also end the locks of the process on the directory.
            self.source.engine.close(handle.id());
        }
    }
}

impl<E: Engine> std::fmt::Debug for Watch<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (directory, options) = (self.directory(), &self.options);
        f.debug_struct("Watch")
            .field("directory", &directory)
            .field("options", options)
            .finish_non_exhaustive()
    }
}
