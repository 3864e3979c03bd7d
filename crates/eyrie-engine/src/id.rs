//! Object ids, kinds and times.

use std::fmt;

/// The kind of an object. Its number is stored on media.
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
    pub const fn has_data(self) -> bool {
        matches!(self, Kind::File | Kind::Symlink)
    }
}

/// Names an object in its engine. The low six bits are the kind. The other bits have no meaning to callers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u64);

impl ObjectId {
    const KIND_MASK: u64 = 63;

    /// Returns the id of the object at `place` with kind `kind`. `place` is a multiple of 64 and unique in
    /// the engine.
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
        matches!(self.kind(), Kind::Directory)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{:#x}", self.kind(), self.place())
    }
}

/// A time, counted from the start of 1970-01-01 (UTC). Earlier times have negative seconds.
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
}
