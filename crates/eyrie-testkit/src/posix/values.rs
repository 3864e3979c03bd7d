//! Paths, answers and random choices that all kinds of calls share.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie::posix::{PathAt, Stat};
use eyrie::{Kind, LockKind};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// The bytes of a path, or of the name of an extended attribute.
pub(super) type PathBytes = Vec<u8>;

/// A path of a call.
#[derive(Clone, PartialEq, Eq)]
pub struct CallPath {
    /// The slot with the open directory where a relative path begins. With `None` and with an empty slot, the
    /// path begins at the root.
    pub dir: Option<usize>,
    /// The path.
    pub bytes: Vec<u8>,
}

impl CallPath {
    /// Returns the path for a file system whose open files are in `slots`.
    pub(super) fn at<'a, H>(&'a self, slots: &'a [Option<H>]) -> PathAt<'a, H> {
        let dir = self.dir.and_then(|slot| slots[slot].as_ref());
        PathAt { dir, path: path(&self.bytes) }
    }
}

impl From<&str> for CallPath {
    fn from(path: &str) -> CallPath {
        CallPath { dir: None, bytes: path.into() }
    }
}

/// Shows a path as text, after the number of the slot where it begins.
impl fmt::Debug for CallPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(slot) = self.dir {
            write!(f, "slot {slot}: ")?;
        }
        match self.bytes.len() {
            0..=64 => write!(f, "{:?}", self.bytes.escape_ascii().to_string()),
            length => write!(f, "<{length} bytes>"),
        }
    }
}

/// The parts of a call's answer in which two file systems must agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Done,
    /// The call was skipped, because it needs an open file and its slot for an open file is empty.
    Skipped,
    Count(u64),
    Bytes(Vec<u8>),
    Stat(ComparedStat),
    Names(Vec<(Vec<u8>, Kind)>),
    Range(Range<u64>),
    /// A lock: kind, start, length, and true if a process owns the lock.
    Lock(Option<(LockKind, u64, u64, bool)>),
}

/// The attributes in which two file systems must agree. `size` is `None` unless the object is a file or a
/// symbolic link, because each file system has its own sizes of directories. `device` is 0 unless the object
/// is a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ComparedStat {
    pub kind: Kind,
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u64,
    pub size: Option<u64>,
}

impl From<&Stat> for ComparedStat {
    fn from(stat: &Stat) -> ComparedStat {
        let &Stat { kind, mode, links, uid, gid, device, size, .. } = stat;
        let has_size = matches!(kind, Kind::File | Kind::Symlink);
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let device = if is_device { device } else { 0 };
        ComparedStat { kind, mode, links, uid, gid, device, size: has_size.then_some(size) }
    }
}

pub(super) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The random generator that draws calls and their arguments.
pub(super) struct Random(pub(super) StdRng);

impl Random {
    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices.choose(&mut self.0).expect("there are choices")
    }
}
