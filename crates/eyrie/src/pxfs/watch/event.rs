//! The events and the options of a watch.

use std::ffi::OsStr;
use std::path::PathBuf;

use eyrie_engine::ObjectId;

/// Options of a watch.
///
/// ```
/// use eyrie::WatchOptions;
///
/// let options = WatchOptions::new().tree(true).capacity(1000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "options begin no watch"]
pub struct WatchOptions {
    pub(super) tree: bool,
    pub(super) entries_only: bool,
    pub(super) capacity: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions { tree: false, entries_only: false, capacity: 1 << 16 }
    }
}

impl WatchOptions {
    /// Returns the default options: one directory, all events, room for 65,536 changes.
    ///
    /// ```
    /// assert_eq!(eyrie::WatchOptions::new(), eyrie::WatchOptions::default());
    /// ```
    pub fn new() -> WatchOptions {
        WatchOptions::default()
    }

    /// Watches the whole tree below the directory, including directories that are made there or moved there
    /// later. The watch begins with a listing of the tree.
    ///
    /// ```
    /// let options = eyrie::WatchOptions::new().tree(true);
    /// ```
    pub fn tree(mut self, tree: bool) -> WatchOptions {
        self.tree = tree;
        self
    }

    /// Reports only changes of entries: no [`Modified`](WatchEventKind::Modified) and no
    /// [`AttributesChanged`](WatchEventKind::AttributesChanged). The watch then keeps no list of files.
    ///
    /// ```
    /// let options = eyrie::WatchOptions::new().tree(true).entries_only(true);
    /// ```
    pub fn entries_only(mut self, entries_only: bool) -> WatchOptions {
        self.entries_only = entries_only;
        self
    }

    /// Sets the number of changes for which the watch has room, at least 1. Each change in the volume
    /// occupies one place in the queue of the watch until the watch takes the change from the queue. A client
    /// of a service has room for at most 2,048 changes in the service, besides those in its own process.
    ///
    /// ```
    /// let options = eyrie::WatchOptions::new().capacity(1 << 20);
    /// ```
    pub fn capacity(mut self, changes: usize) -> WatchOptions {
        self.capacity = changes.max(1);
        self
    }
}

/// The kind of a change.
///
/// ```
/// use eyrie::WatchEventKind;
///
/// /// True if a cache of the contents of the path is out of date.
/// fn is_stale(kind: WatchEventKind) -> bool {
///     !matches!(kind, WatchEventKind::Created | WatchEventKind::AttributesChanged)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WatchEventKind {
    /// The name was made: by an open that creates a file, by a call such as `link`, `symlink` or `mkdir`, or
    /// by a put of a new key. The object may already have bytes.
    Created,
    /// The name was removed. If the [path](WatchEvent::path) is empty, the watched directory itself was
    /// removed, and the watch has ended.
    Removed,
    /// The object has lost this name by a rename. Unless the new name is outside of the watched directories,
    /// the event [`RenamedTo`](WatchEventKind::RenamedTo) with the same cookie follows at once. If the path
    /// is empty, the watched directory itself has moved.
    RenamedFrom {
        /// A number that no other rename in this watch has.
        cookie: u64,
    },
    /// The object has got this name by a rename. If another object had this name, it has lost the name,
    /// without an event [`Removed`](WatchEventKind::Removed). If no event
    /// [`RenamedFrom`](WatchEventKind::RenamedFrom) with the same cookie came before, the old name is outside
    /// of the watched directories.
    RenamedTo {
        /// The number of the rename.
        cookie: u64,
    },
    /// The bytes or the size of a file have changed. Several changes that follow one another may be one
    /// event. A file with several known names gives an event for each of them.
    Modified,
    /// Attributes of the object have changed (mode, owner, times, inode flags, extended attributes, ACL), but
    /// not its bytes. A change of the number of links alone gives no event.
    AttributesChanged,
    /// Events were lost. Anything may have changed, so the receiver looks at everything again.
    Overflow,
}

/// A change in a watched directory.
///
/// ```
/// # use eyrie::*;
/// fn show(event: &WatchEvent) {
///     println!("{:?} {}", event.kind, event.path.display());
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WatchEvent {
    /// The kind of the change.
    pub kind: WatchEventKind,
    /// The directory of the changed entry or object. The watched directory if the path is empty.
    pub dir: ObjectId,
    /// The object that has or had the name. Its `kind()` tells a directory from a file. `None` for
    /// [`Overflow`](WatchEventKind::Overflow). The id of a removed object may name another object later.
    pub object: Option<ObjectId>,
    /// Path relative to the watched directory, in the form that calls on files take. A caller joins it with
    /// the path of the watched directory. Empty for the watched directory itself, and for
    /// [`Overflow`](WatchEventKind::Overflow).
    pub path: PathBuf,
}

impl WatchEvent {
    /// Returns the last part of the path, which is the name of the entry. `None` if the path is empty.
    ///
    /// ```
    /// # use eyrie::*;
    /// fn is_of_rust(event: &WatchEvent) -> bool {
    ///     event.name().is_some_and(|name| name.as_encoded_bytes().ends_with(b".rs"))
    /// }
    /// ```
    pub fn name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }
}
