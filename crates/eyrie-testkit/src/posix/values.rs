//! Paths, answers and random choices that all kinds of calls share.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie::Kind;
use eyrie::posix::Stat;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// The bytes of a path, or of the name of an extended attribute.
pub(super) type PathBytes = Vec<u8>;

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
