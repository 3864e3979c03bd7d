//! The prefix cache: the directory that the first part of a path leads to.
//!
//! Each thread has one direct-mapped table. An entry says that a prefix led to a directory, and that certain
//! credentials may search this directory and all directories on the way. The walk that makes an entry first
//! reads the engine's count of directory changes. The entry is valid as long as the count has not changed
//! since then. Prefixes with symbolic links or `..` are not kept.
//!
//! Invariant: an id that the table returns while the caller holds a pin stays valid as long as the pin lives.
//! The caller reads the count after it takes the pin. If the count equals the count in the entry, the
//! directory existed when the pin was taken, so its header is not reused before the pin ends.
//!
//! The table belongs to one thread, so a look-up needs no lock. The only cache line that a look-up shares
//! with other threads is the line of the count.

use std::cell::RefCell;

use eyrie_engine::access::{Judgement, Protection};
use eyrie_engine::{InodeFlags, Kind, ObjectId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of entries of a thread's table. The table takes 64 KiB, so that it stays in the second-level cache
/// of a core.
const ENTRIES: usize = 512;
/// Bytes of the longest prefix that is kept. With this length an entry takes exactly two cache lines.
const LONGEST: usize = 83;

/// A directory, with its mode and owner for permission checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directory {
    pub id: ObjectId,
    pub protection: Protection,
}

/// The file system and the credentials of the walk that made an entry, and the condition under which the
/// entry is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    /// The number of the file system, which is unique in the process and never 0.
    pub instance: u64,
    pub credentials: u64,
    /// The engine's count of directory changes.
    pub changes: u64,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct CachedPrefix {
    scope: Scope,
    id: ObjectId,
    uid: u32,
    gid: u32,
    mode: u16,
    judgement: Judgement,
    has_default_acl: bool,
    length: u8,
    prefix: [u8; LONGEST],
}

const _: () = assert!(size_of::<CachedPrefix>() == 128);

impl CachedPrefix {
    const EMPTY: CachedPrefix = CachedPrefix {
        scope: Scope { instance: 0, credentials: 0, changes: 0 },
        id: ObjectId::new(0, Kind::Directory),
        uid: 0,
        gid: 0,
        mode: 0,
        judgement: Judgement::BY_MODE,
        has_default_acl: false,
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
    /// The table of this thread, which the first [`remember`] allocates.
    static TABLE: RefCell<Vec<CachedPrefix>> = const { RefCell::new(Vec::new()) };
}

#[inline]
fn index(scope: &Scope, prefix: &[u8]) -> usize {
    let seed = scope.instance.rotate_left(32) ^ scope.credentials;
    xxh3_64_with_seed(prefix, seed) as usize % ENTRIES
}

/// Returns the directory that `prefix` leads to, if it is in the table.
#[inline]
pub(super) fn find(scope: &Scope, prefix: &[u8]) -> Option<Directory> {
    if prefix.len() > LONGEST {
        return None;
    }
    TABLE
        .try_with(|table| {
            let table = table.borrow();
            // The table is empty before the first `remember`. The entry may hold another prefix with the same
            // index, so `holds` compares the whole prefix.
            let entry = table.get(index(scope, prefix))?;
            let found = Directory {
                id: entry.id,
                protection: Protection {
                    kind: Kind::Directory,
                    mode: entry.mode,
                    uid: entry.uid,
                    gid: entry.gid,
                    judgement: entry.judgement,
                    has_default_acl: entry.has_default_acl,
                    flags: InodeFlags::empty(),
                },
            };
            entry.holds(scope, prefix).then_some(found)
        })
        .ok()?
}

/// Notes that `prefix` leads to `directory`, which the credentials may search.
pub(super) fn remember(scope: &Scope, prefix: &[u8], directory: &Directory) {
    // A directory with inode flags is not kept, so `find` returns no flags.
    if prefix.len() > LONGEST || !directory.protection.flags.is_empty() {
        return;
    }
    let Protection { mode, uid, gid, judgement, has_default_acl, .. } = directory.protection;
    let mut entry = CachedPrefix {
        scope: *scope,
        id: directory.id,
        uid,
        gid,
        mode,
        judgement,
        has_default_acl,
        length: prefix.len() as u8,
        ..CachedPrefix::EMPTY
    };
    entry.prefix[..prefix.len()].copy_from_slice(prefix);
    // While a thread ends, its table is gone, and nothing needs to be noted.
    let _ = TABLE.try_with(|table| {
        let mut table = table.borrow_mut();
        if table.is_empty() {
            table.resize(ENTRIES, CachedPrefix::EMPTY);
        }
        table[index(scope, prefix)] = entry;
    });
}

#[cfg(test)]
mod tests {
    use eyrie_engine::Owner;

    use super::*;

    #[test]
    fn cached_prefix_is_valid_in_its_scope_only() {
        let scope = Scope { instance: u64::MAX, credentials: 7, changes: 3 };
        let owner = Owner { mode: 0o750, uid: 1, gid: 2 };
        let protection =
            Protection { has_default_acl: true, ..Protection::without_acls(Kind::Directory, owner) };
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
