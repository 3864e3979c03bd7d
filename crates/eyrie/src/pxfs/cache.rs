//! The prefix cache: where the directory part of a path leads.
//!
//! One direct-mapped table a thread. An entry says that a prefix, walked by certain credentials, led to a directory that
//! they may search; it holds as long as the engine's count of directory changes stands where it stood before that walk.
//! Only prefixes without symbolic links and without `..` are kept.
//!
//! Invariant: a hit under an epoch pin gives an id that is valid as long as the pin. The count is read after the pin
//! was taken and had not moved, so the directory was still there under the pin.

use std::cell::RefCell;

use eyrie_engine::access::Protection;
use eyrie_engine::{Kind, ObjectId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Entries of a thread's table.
const ENTRIES: usize = 512;
/// Longest prefix that is kept, in bytes; it makes an entry two cache lines.
const LONGEST: usize = 85;

/// A directory and what decides who may use it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directory {
    pub id: ObjectId,
    pub protection: Protection,
}

/// Whose walk an entry remembers, and when it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    /// The file system, by a number that is unique in the process and never 0.
    pub instance: u64,
    pub credentials: u64,
    /// The engine's count of directory changes.
    pub changes: u64,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Entry {
    scope: Scope,
    id: ObjectId,
    uid: u32,
    gid: u32,
    mode: u16,
    length: u8,
    prefix: [u8; LONGEST],
}

const _: () = assert!(size_of::<Entry>() == 128);

impl Entry {
    const EMPTY: Entry = Entry {
        scope: Scope { instance: 0, credentials: 0, changes: 0 },
        id: ObjectId::new(0, Kind::Directory),
        uid: 0,
        gid: 0,
        mode: 0,
        length: 0,
        prefix: [0; LONGEST],
    };

    #[inline]
    fn holds(&self, scope: &Scope, prefix: &[u8]) -> bool {
        self.scope == *scope
            && usize::from(self.length) == prefix.len()
            && self.prefix[..prefix.len()] == *prefix
    }
}

thread_local! {
    /// Allocated by the thread's first [`remember`].
    static TABLE: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

#[inline]
fn index(scope: &Scope, prefix: &[u8]) -> usize {
    let seed = scope.instance.rotate_left(32) ^ scope.credentials;
    xxh3_64_with_seed(prefix, seed) as usize % ENTRIES
}

/// The directory that `prefix` leads to, if remembered.
#[inline]
pub(super) fn find(scope: &Scope, prefix: &[u8]) -> Option<Directory> {
    if prefix.len() > LONGEST {
        return None;
    }
    TABLE
        .try_with(|table| {
            let table = table.borrow();
            let entry = table.get(index(scope, prefix))?;
            let found = Directory {
                id: entry.id,
                protection: Protection {
                    kind: Kind::Directory,
                    mode: entry.mode,
                    uid: entry.uid,
                    gid: entry.gid,
                },
            };
            entry.holds(scope, prefix).then_some(found)
        })
        .ok()?
}

/// Remembers that `prefix` leads to `directory`, which the credentials may search.
pub(super) fn remember(scope: &Scope, prefix: &[u8], directory: &Directory) {
    if prefix.len() > LONGEST {
        return;
    }
    let Protection { mode, uid, gid, .. } = directory.protection;
    let mut entry =
        Entry { scope: *scope, id: directory.id, uid, gid, mode, length: prefix.len() as u8, ..Entry::EMPTY };
    entry.prefix[..prefix.len()].copy_from_slice(prefix);
    // In a thread that is being torn down there is no table any more.
    let _ = TABLE.try_with(|table| {
        let mut table = table.borrow_mut();
        if table.is_empty() {
            table.resize(ENTRIES, Entry::EMPTY);
        }
        table[index(scope, prefix)] = entry;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_holds_for_its_scope_and_prefix_only() {
        let scope = Scope { instance: u64::MAX, credentials: 7, changes: 3 };
        let protection = Protection { kind: Kind::Directory, mode: 0o750, uid: 1, gid: 2 };
        let directory = Directory { id: ObjectId::new(640, Kind::Directory), protection };
        assert!(find(&scope, b"a/b").is_none());
        remember(&scope, b"a/b", &directory);
        let found = find(&scope, b"a/b").expect("it was just remembered");
        assert_eq!((found.id, found.protection), (directory.id, protection));
        assert!(find(&scope, b"a/c").is_none());
        assert!(find(&Scope { changes: 4, ..scope }, b"a/b").is_none());
        assert!(find(&Scope { credentials: 8, ..scope }, b"a/b").is_none());
        assert!(find(&Scope { instance: 1, ..scope }, b"a/b").is_none());
        remember(&scope, &[b'x'; LONGEST + 1], &directory);
        assert!(find(&scope, &[b'x'; LONGEST + 1]).is_none());
    }
}
