//! The prefix cache: the directory that the first part of a path leads to.
//!
//! Each thread has one direct-mapped table. An entry says that a prefix led to a directory, and that certain
//! credentials may search this directory and all directories on the way. The walk that makes an entry first
//! reads the engine's count of directory changes. The entry is valid as long as the count has not changed
//! since then. Prefixes with symbolic links or `..` are not kept.
//!
//! A removal of a directory is a directory change, too. The directory was empty, so the removal makes only
//! the prefixes of this one directory wrong. If all changes since an entry was made are removals by this
//! thread, and none of them removed the directory of the entry, the entry is still valid ([`Removals`]).
//!
//! Invariant: an id that the table returns while the caller holds a pin stays valid as long as the pin lives.
//! The caller reads the count after it takes the pin. The comparisons of an entry with this count show that
//! its directory existed when the pin was taken, so its header is not reused before the pin ends.
//!
//! The table belongs to one thread, so a look-up needs no lock. The only cache line that a look-up shares
//! with other threads is the line of the count.

use std::cell::RefCell;

use eyrie_engine::access::{Judgement, Protection};
use eyrie_engine::{InodeFlags, Kind, ObjectId};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

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

/// Successive directory changes, all of which are removals of directories by this thread.
#[derive(Clone, Copy)]
struct Removals {
    /// The number of the file system.
    instance: u64,
    /// The count of directory changes before the first of the removals.
    before: u64,
    /// The count after the last one.
    after: u64,
    /// Bits that the ids of the removed directories select. Another id may select the same bit.
    removed: u64,
}

impl Removals {
    const NONE: Removals = Removals { instance: 0, before: 0, after: 0, removed: 0 };
    /// With more bits than this, too many entries of other directories would seem to be removed.
    const MOST_BITS: u32 = 24;

    #[inline]
    fn bit(id: ObjectId) -> u64 {
        1 << (xxh3_64(&id.raw().to_le_bytes()) % 64)
    }

    /// Returns true if the entry is valid after these removals, and `scope` has their last count.
    #[inline]
    fn keep_valid(&self, entry: &CachedPrefix, scope: &Scope) -> bool {
        self.instance == scope.instance
            && self.after == scope.changes
            && (self.before..self.after).contains(&entry.scope.changes)
            && self.removed & Removals::bit(entry.id) == 0
    }
}

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
    fn holds(&self, scope: &Scope, prefix: &[u8], removals: &Removals) -> bool {
        let Scope { instance, credentials, changes } = self.scope;
        instance == scope.instance
            && credentials == scope.credentials
            && (changes == scope.changes || removals.keep_valid(self, scope))
            && usize::from(self.length) == prefix.len()
            && self.prefix[..prefix.len()] == *prefix
    }
}

/// The table of a thread, and the last removals by the thread.
struct Table {
    /// Empty before the first [`remember`], which allocates the entries.
    entries: Vec<CachedPrefix>,
    removals: Removals,
}

thread_local! {
    static TABLE: RefCell<Table> =
        const { RefCell::new(Table { entries: Vec::new(), removals: Removals::NONE }) };
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
            let entry = table.entries.get(index(scope, prefix))?;
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
            entry.holds(scope, prefix, &table.removals).then_some(found)
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
        let entries = &mut table.borrow_mut().entries;
        if entries.is_empty() {
            entries.resize(ENTRIES, CachedPrefix::EMPTY);
        }
        entries[index(scope, prefix)] = entry;
    });
}

/// Notes that this thread has removed the directory `id`. `scope` is from before the look-up of the
/// directory, and `after` is the count of directory changes after the removal. If another change happened in
/// between, this function does nothing, and then no earlier entry is valid any more.
pub(super) fn note_removal(scope: &Scope, after: u64, id: ObjectId) {
    // A count with the highest bit set was returned during a change. The next such count is greater by 1,
    // whatever happened in between, so a difference of 1 then proves nothing.
    let is_only_change = after == scope.changes.wrapping_add(1) && after >> 63 == 0;
    if !is_only_change {
        return;
    }
    let _ = TABLE.try_with(|table| {
        let removals = &mut table.borrow_mut().removals;
        let continues = removals.instance == scope.instance
            && removals.after == scope.changes
            && removals.removed.count_ones() < Removals::MOST_BITS;
        if !continues {
            *removals = Removals { before: scope.changes, instance: scope.instance, ..Removals::NONE };
        }
        removals.after = after;
        removals.removed |= Removals::bit(id);
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

    #[test]
    fn own_removals_leave_other_prefixes_valid() {
        let scope = Scope { instance: u64::MAX - 1, credentials: 7, changes: 10 };
        let at = |changes| Scope { changes, ..scope };
        let owner = Owner { mode: 0o755, uid: 1, gid: 2 };
        let directory = |number: u64| Directory {
            id: ObjectId::new(64 * number, Kind::Directory),
            protection: Protection::without_acls(Kind::Directory, owner),
        };
        let [kept, gone, late] = [1, 2, 3].map(directory);
        let bits = [kept, gone, late].map(|directory| Removals::bit(directory.id));
        assert!(bits[0] != bits[1] && bits[1] != bits[2] && bits[0] != bits[2], "{bits:?}");
        remember(&scope, b"kept", &kept);
        remember(&scope, b"gone", &gone);

        // Each removal is the only change between its two counts.
        note_removal(&scope, 11, gone.id);
        assert!(find(&at(11), b"kept").is_some() && find(&at(11), b"gone").is_none());
        remember(&at(11), b"late", &late);
        note_removal(&at(11), 12, directory(40).id);
        assert!(find(&at(12), b"kept").is_some() && find(&at(12), b"late").is_some());
        assert!(
            find(&at(12), b"gone").is_none() && find(&Scope { instance: 3, ..at(12) }, b"kept").is_none()
        );

        // The change from 12 to 13 is that of another thread.
        assert!(find(&at(13), b"kept").is_none());
        note_removal(&at(13), 14, directory(40).id);
        assert!(find(&at(14), b"kept").is_none() && find(&at(14), b"late").is_none());
        remember(&at(14), b"kept", &kept);
        note_removal(&at(14), 16, gone.id);
        assert!(find(&at(16), b"kept").is_none(), "two changes, one of them by another thread");
        let during = 1 << 63;
        remember(&at(during), b"kept", &kept);
        note_removal(&at(during), during + 1, gone.id);
        assert!(find(&at(during + 1), b"kept").is_none(), "these are no counts");

        // The counts of another file system may be the same. Its changes are not those of the first file
        // system.
        let other = |changes| Scope { instance: u64::MAX - 2, ..at(changes) };
        remember(&other(20), b"kept", &kept);
        note_removal(&at(20), 21, gone.id);
        assert!(find(&other(21), b"kept").is_none(), "a removal in the first file system");
        remember(&other(22), b"late", &late);
        note_removal(&at(21), 22, gone.id);
        note_removal(&other(22), 23, gone.id);
        assert!(find(&other(23), b"late").is_some() && find(&other(23), b"kept").is_none());
    }
}
