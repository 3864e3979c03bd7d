//! Object ids, kinds, times and versions.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kind of an object. Its number is stored on media.
///
/// ```
/// use eyrie_engine::Kind;
///
/// assert!(Kind::File.has_data() && !Kind::Fifo.has_data());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A regular file: an mFile.
    File = 1,
    /// A directory or key/value store: a collection.
    Directory = 2,
    /// A symbolic link: an mFile that holds the target.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A socket.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl Kind {
    /// Returns the kind with this number on media; `None` for an unknown number.
    #[doc(hidden)]
    pub const fn from_raw(raw: u8) -> Option<Kind> {
        Some(match raw {
            1 => Kind::File,
            2 => Kind::Directory,
            3 => Kind::Symlink,
            4 => Kind::Fifo,
            5 => Kind::Socket,
            6 => Kind::CharDevice,
            7 => Kind::BlockDevice,
            _ => return None,
        })
    }

    /// True if objects of this kind hold bytes in an mFile.
    #[doc(hidden)]
    pub const fn has_data(self) -> bool {
        matches!(self, Kind::File | Kind::Symlink)
    }

    /// True if objects of this kind have inode flags.
    #[doc(hidden)]
    pub const fn has_inode_flags(self) -> bool {
        matches!(self, Kind::File | Kind::Directory)
    }
}

/// Names an object in its engine. The low six bits are the kind. The other bits have no meaning to callers.
///
/// ```
/// use eyrie_engine::{Kind, ObjectId};
///
/// /// A front-end shows ids as inode numbers.
/// fn of_inode(inode: u64) -> Option<ObjectId> {
///     ObjectId::from_raw(inode).filter(|id| id.kind() == Kind::File && id.raw() == inode)
/// }
/// # assert_eq!(of_inode(0), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u64);

impl ObjectId {
    const KIND_MASK: u64 = 63;

    /// Returns the id of the object at `place` with kind `kind`. `place` is a multiple of 64 and unique in
    /// the engine.
    #[doc(hidden)]
    pub const fn new(place: u64, kind: Kind) -> ObjectId {
        debug_assert!(place & ObjectId::KIND_MASK == 0);
        ObjectId(place | kind as u64)
    }

    /// Returns the id whose form on media is `raw`, or `None` if the kind in it is unknown.
    #[inline]
    pub const fn from_raw(raw: u64) -> Option<ObjectId> {
        match Kind::from_raw((raw & ObjectId::KIND_MASK) as u8) {
            Some(_) => Some(ObjectId(raw)),
            None => None,
        }
    }

    /// Returns the form of the id on media.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the place of the object: the id without the kind.
    #[doc(hidden)]
    #[inline]
    pub const fn place(self) -> u64 {
        self.0 & !ObjectId::KIND_MASK
    }

    /// Returns the kind of the object.
    #[inline]
    pub const fn kind(self) -> Kind {
        match Kind::from_raw((self.0 & ObjectId::KIND_MASK) as u8) {
            Some(kind) => kind,
            None => unreachable!(),
        }
    }

    /// True if the object is a directory.
    #[inline]
    pub const fn is_directory(self) -> bool {
        self.0 & ObjectId::KIND_MASK == Kind::Directory as u64
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{:#x}", self.kind(), self.place())
    }
}

/// A time, counted from the start of 1970-01-01 (UTC). Earlier times have negative seconds.
///
/// ```
/// use std::time::SystemTime;
///
/// use eyrie_engine::Time;
///
/// let time = Time::new(-1, Time::NANOSECONDS / 2); // half a second before 1970
/// let same: Time = time.to_system_time().expect("a sound time").into();
/// assert!(same == time && time < Time::from(SystemTime::now()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds after the whole seconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Time {
    /// Nanoseconds in a second.
    pub const NANOSECONDS: u32 = 1_000_000_000;

    /// Returns the time `seconds` and `nanoseconds` after the start of 1970-01-01 (UTC).
    pub const fn new(seconds: i64, nanoseconds: u32) -> Time {
        Time { seconds, nanoseconds }
    }

    /// Converts this time to a time of the standard library. `None` if the nanoseconds are 1,000,000,000 or
    /// more, or if the standard library cannot express the time.
    pub fn to_system_time(self) -> Option<SystemTime> {
        if self.nanoseconds >= Time::NANOSECONDS {
            return None;
        }
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let second = match self.seconds {
            ..0 => UNIX_EPOCH.checked_sub(whole),
            _ => UNIX_EPOCH.checked_add(whole),
        };
        second?.checked_add(Duration::from_nanos(self.nanoseconds.into()))
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Time::new(0_i64.saturating_add_unsigned(after.as_secs()), after.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                let seconds = 0_i64.saturating_sub_unsigned(before.as_secs());
                match before.subsec_nanos() {
                    0 => Time::new(seconds, 0),
                    nanoseconds => Time::new(seconds.saturating_sub(1), Time::NANOSECONDS - nanoseconds),
                }
            }
        }
    }
}

/// The version of the bytes of a file.
///
/// After every change of the bytes the version differs from all versions that the file, or any other file,
/// had before. It may also differ after a change of other attributes, such as the mode or the number of
/// names. A version is valid as long as the volume stays open: every open of a volume gives new versions to
/// all files. Therefore a version that a program has kept from before a crash never equals the version of a
/// later state.
///
/// ```
/// use eyrie_engine::Version;
///
/// let version = Version::from_raw([1, 2, 3]);
/// assert_eq!(Version::from_raw(version.raw()), version);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Version {
    session: u64,
    generation: u64,
    changes: u64,
}

impl Version {
    /// Makes the version of a file with this generation, after this number of changes. `session` is the
    /// number of the open of the volume.
    pub(crate) const fn new(session: u64, generation: u64, changes: u64) -> Version {
        Version { session, generation, changes }
    }

    /// Returns the version whose parts are `raw`.
    pub const fn from_raw(raw: [u64; 3]) -> Version {
        Version::new(raw[0], raw[1], raw[2])
    }

    /// Returns the parts of the version: three numbers that only have a meaning together.
    pub const fn raw(self) -> [u64; 3] {
        [self.session, self.generation, self.changes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc;

    #[test]
    fn format_page_matches_kinds() {
        const TITLE: &str = "Object ids";
        let rows = format_doc::cells(TITLE);
        for (row, raw) in rows.iter().zip(1..) {
            assert_eq!(format_doc::number(TITLE, row[1]), usize::from(raw), "{row:?}");
            let id = ObjectId::from_raw(256 + u64::from(raw)).expect("a kind");
            assert_eq!((id.place(), id.kind() as u8), (256, raw));
        }
        assert!(Kind::from_raw(0).is_none() && Kind::from_raw(rows.len() as u8 + 1).is_none());
    }

    #[test]
    fn times_convert_both_ways() {
        for (seconds, nanoseconds) in [(0, 0), (1, 999_999_999), (-1, 0), (-1, 999_999_999), (-2, 1)] {
            let time = Time::new(seconds, nanoseconds);
            let converted = time.to_system_time().expect("within the range of the host");
            assert_eq!(Time::from(converted), time);
        }
        let half = UNIX_EPOCH - Duration::from_millis(500);
        assert_eq!(Time::from(half), Time::new(-1, 500_000_000));
        assert_eq!(Time::new(0, Time::NANOSECONDS).to_system_time(), None);
        for seconds in [i64::MIN, i64::MAX] {
            let converted = Time::new(seconds, 0).to_system_time();
            assert!(converted.is_none_or(|converted| Time::from(converted) == Time::new(seconds, 0)));
        }
    }
}
