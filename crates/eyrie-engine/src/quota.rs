//! Quotas: limits for the storage and the number of files of a user, a group or a tree.
//!
//! The limits of a volume are one value, the extended attribute [`QUOTA_XATTR`] of the root directory. So a
//! change of limits is an ordinary Op, which only root may make. Repairs and archives keep the limits as they
//! keep other attributes. The volume counts usage while the root directory has this attribute.

use std::collections::BTreeMap;

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Error, Result, Time};

/// Name of the extended attribute of the root directory that holds the limits.
///
/// ```
/// assert_eq!(eyrie_engine::quota::QUOTA_XATTR, b"trusted.eyrie.quota");
/// ```
pub const QUOTA_XATTR: &[u8] = b"trusted.eyrie.quota";

/// Default of the grace times: 7 days, in seconds.
const DEFAULT_GRACE: u64 = 7 * 24 * 60 * 60;

/// The kinds of accounts that have limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaKind {
    /// The objects that a user owns.
    User = 1,
    /// The objects that belong to a group.
    Group = 2,
    /// The objects of a directory tree: those with one project id.
    Tree = 3,
}

impl QuotaKind {
    /// Returns the kind with this number.
    #[doc(hidden)]
    pub fn from_raw(raw: u32) -> Option<QuotaKind> {
        [QuotaKind::User, QuotaKind::Group, QuotaKind::Tree].into_iter().find(|&kind| kind as u32 == raw)
    }
}

/// One account: a user, a group or a tree, with its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QuotaId {
    /// Kind of the account.
    pub kind: QuotaKind,
    /// User id, group id or project id.
    pub number: u32,
}

impl QuotaId {
    /// Returns the accounts that an object of this user and group counts for. `project` is 0 for an object
    /// that belongs to no tree.
    pub(crate) fn of_owners(uid: u32, gid: u32, project: u32) -> impl Iterator<Item = QuotaId> {
        let account = |kind, number| QuotaId { kind, number };
        let tree = (project != 0).then(|| account(QuotaKind::Tree, project));
        [account(QuotaKind::User, uid), account(QuotaKind::Group, gid)].into_iter().chain(tree)
    }
}

/// The limits of one quantity. 0 means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaLimit {
    /// Usage may be above this limit for the grace time.
    pub soft: u64,
    /// Only callers with the capability `SYS_RESOURCE` can raise usage above this limit.
    pub hard: u64,
    /// End of the grace time, in seconds since 1970. 0 while usage is not above the soft limit.
    pub deadline: i64,
}

impl QuotaLimit {
    /// True if there is neither a soft nor a hard limit.
    pub fn is_none(self) -> bool {
        self.soft == 0 && self.hard == 0
    }

    /// True if the soft limit is not above the hard limit.
    fn is_possible(self) -> bool {
        self.hard == 0 || self.soft <= self.hard
    }

    /// True if the limits forbid usage to grow by `change` at `now`. Usage may always fall.
    #[doc(hidden)]
    pub fn refuses(self, usage: u64, change: i64, now: Time) -> bool {
        let after = usage.saturating_add_signed(change);
        let is_late = self.deadline != 0 && now.seconds >= self.deadline;
        change > 0 && (self.hard != 0 && after > self.hard || self.soft != 0 && after > self.soft && is_late)
    }

    /// Begins the grace time if usage is above the soft limit, and ends it otherwise. Without `now`, no grace
    /// time begins.
    fn update_deadline(&mut self, usage: u64, grace: u64, now: Option<Time>) {
        if self.soft == 0 || usage <= self.soft {
            self.deadline = 0;
        } else if let (0, Some(now)) = (self.deadline, now) {
            self.deadline = now.seconds.saturating_add_unsigned(grace);
        }
    }
}

/// The limits of one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaLimits {
    /// Limits of storage, in bytes.
    pub bytes: QuotaLimit,
    /// Limits of the number of files and other objects.
    pub files: QuotaLimit,
}

/// The usage of one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct QuotaUsage {
    /// Storage of the account's objects, in bytes: the bytes of files and symbolic links with the nodes of
    /// their trees, and all extended attributes. The names in a directory do not count.
    pub bytes: u64,
    /// Number of objects.
    pub files: u64,
}

impl QuotaUsage {
    /// Returns the usage of an account.
    #[doc(hidden)]
    pub fn new(bytes: u64, files: u64) -> QuotaUsage {
        QuotaUsage { bytes, files }
    }
}

/// The limits and the usage of one account.
///
/// ```
/// use eyrie_engine::quota::{QuotaReport, QuotaUsage};
///
/// /// Returns the bytes that the account may still use. `None` if it has no hard limit.
/// fn left(report: &QuotaReport) -> Option<u64> {
///     let (usage, limit): (QuotaUsage, _) = (report.usage, report.limits.bytes);
///     (limit.hard != 0).then(|| limit.hard.saturating_sub(usage.bytes))
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QuotaReport {
    /// The account.
    pub id: QuotaId,
    /// Its usage.
    pub usage: QuotaUsage,
    /// Its limits.
    pub limits: QuotaLimits,
}

impl QuotaReport {
    /// Returns the report about an account.
    #[doc(hidden)]
    pub fn new(id: QuotaId, usage: QuotaUsage, limits: QuotaLimits) -> QuotaReport {
        QuotaReport { id, usage, limits }
    }
}

/// All limits of a volume.
///
/// ```
/// use eyrie_engine::quota::{QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable};
///
/// let mut table = QuotaTable::default();
/// let bytes = QuotaLimit { hard: 1 << 20, ..QuotaLimit::default() };
/// let ada = QuotaId { kind: QuotaKind::User, number: 1000 };
/// table.set(ada, QuotaLimits { bytes, ..QuotaLimits::default() })?;
/// assert!(table.get(ada).files.is_none()); // no limit of the number of files
/// assert_eq!(table.accounts().count(), 1);
/// # Ok::<(), eyrie_engine::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaTable {
    /// Time for which the bytes of an account may be above their soft limit, in seconds.
    pub bytes_grace: u64,
    /// Time for which the files of an account may be above their soft limit, in seconds.
    pub files_grace: u64,
    limits: BTreeMap<QuotaId, QuotaLimits>,
}

impl Default for QuotaTable {
    fn default() -> QuotaTable {
        QuotaTable { bytes_grace: DEFAULT_GRACE, files_grace: DEFAULT_GRACE, limits: BTreeMap::new() }
    }
}

/// First bytes of the stored limits.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredHead {
    bytes_grace: U64,
    files_grace: U64,
}

/// The stored limits of one account.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StoredLimits {
    kind: U32,
    number: U32,
    bytes_soft: U64,
    bytes_hard: U64,
    bytes_deadline: I64,
    files_soft: U64,
    files_hard: U64,
    files_deadline: I64,
}

const _: () = assert!(size_of::<StoredHead>() == 16 && size_of::<StoredLimits>() == 56);

impl QuotaTable {
    /// Returns the limits of an account.
    pub fn get(&self, id: QuotaId) -> QuotaLimits {
        self.limits.get(&id).copied().unwrap_or_default()
    }

    /// Sets the limits of an account. If all of `limits` are 0, the account has no limits any more.
    ///
    /// # Errors
    /// `Invalid` for the number 0, which cannot have limits, and for a soft limit above the hard limit.
    pub fn set(&mut self, id: QuotaId, limits: QuotaLimits) -> Result<()> {
        if id.number == 0 {
            return Err(Error::Invalid("user 0, group 0 and files outside of trees cannot have limits"));
        }
        if !limits.bytes.is_possible() || !limits.files.is_possible() {
            return Err(Error::Invalid("a soft limit is above its hard limit"));
        }
        if limits.bytes.is_none() && limits.files.is_none() {
            self.limits.remove(&id);
        } else {
            self.limits.insert(id, limits);
        }
        Ok(())
    }

    /// Returns all accounts with limits, in order.
    pub fn accounts(&self) -> impl Iterator<Item = (QuotaId, QuotaLimits)> + '_ {
        self.limits.iter().map(|(id, limits)| (*id, *limits))
    }

    /// Begins or ends the grace times of an account. Without `now`, no grace time begins. Returns true if a
    /// deadline has changed.
    pub(crate) fn update_deadlines(&mut self, id: QuotaId, usage: QuotaUsage, now: Option<Time>) -> bool {
        let Some(limits) = self.limits.get_mut(&id) else { return false };
        let before = *limits;
        limits.bytes.update_deadline(usage.bytes, self.bytes_grace, now);
        limits.files.update_deadline(usage.files, self.files_grace, now);
        *limits != before
    }

    /// Copies the ends of grace times from the earlier limits, for each account that has earlier limits. The
    /// copied end is 0 if the grace time has not begun. So new limits neither begin nor end nor delay a grace
    /// time of such an account. A new account keeps the ends that come with its limits, for example from an
    /// archive.
    pub(crate) fn keep_deadlines(&mut self, earlier: &QuotaTable) {
        for (id, QuotaLimits { bytes, files }) in earlier.accounts() {
            if let Some(limits) = self.limits.get_mut(&id) {
                (limits.bytes.deadline, limits.files.deadline) = (bytes.deadline, files.deadline);
            }
        }
    }

    /// Returns the value of [`QUOTA_XATTR`].
    #[doc(hidden)]
    pub fn encode(&self) -> Vec<u8> {
        let head = StoredHead { bytes_grace: self.bytes_grace.into(), files_grace: self.files_grace.into() };
        let mut bytes = head.as_bytes().to_vec();
        for (id, QuotaLimits { bytes: storage, files }) in self.accounts() {
            let stored = StoredLimits {
                kind: (id.kind as u32).into(),
                number: id.number.into(),
                bytes_soft: storage.soft.into(),
                bytes_hard: storage.hard.into(),
                bytes_deadline: storage.deadline.into(),
                files_soft: files.soft.into(),
                files_hard: files.hard.into(),
                files_deadline: files.deadline.into(),
            };
            bytes.extend_from_slice(stored.as_bytes());
        }
        bytes
    }

    /// Reads the value of [`QUOTA_XATTR`]. The bytes are untrusted.
    ///
    /// # Errors
    /// `Invalid` if [`QuotaTable::encode`] cannot return these bytes. For example, the accounts must be in
    /// order, and each must have a limit.
    #[doc(hidden)]
    pub fn decode(bytes: &[u8]) -> Result<QuotaTable> {
        let wrong = || Error::Invalid("not a table of quotas");
        let (head, rest) = StoredHead::read_from_prefix(bytes).map_err(|_| wrong())?;
        let entries = <[StoredLimits]>::ref_from_bytes(rest).map_err(|_| wrong())?;
        let mut table = QuotaTable {
            bytes_grace: head.bytes_grace.get(),
            files_grace: head.files_grace.get(),
            limits: BTreeMap::new(),
        };
        for entry in entries {
            let kind = QuotaKind::from_raw(entry.kind.get()).ok_or_else(wrong)?;
            let id = QuotaId { kind, number: entry.number.get() };
            let limit = |soft: U64, hard: U64, deadline: I64| QuotaLimit {
                soft: soft.get(),
                hard: hard.get(),
                deadline: deadline.get(),
            };
            let limits = QuotaLimits {
                bytes: limit(entry.bytes_soft, entry.bytes_hard, entry.bytes_deadline),
                files: limit(entry.files_soft, entry.files_hard, entry.files_deadline),
            };
            let follows = table.limits.last_key_value().is_none_or(|(last, _)| *last < id);
            table.set(id, limits)?;
            if !follows || !table.limits.contains_key(&id) {
                return Err(wrong());
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::{assert_described, fields};

    #[test]
    fn format_page_matches_quotas() {
        let head = fields!(StoredHead { bytes_grace, files_grace });
        assert_described("Head of the limits", size_of::<StoredHead>(), &head);
        let limits = fields!(StoredLimits {
            kind,
            number,
            bytes_soft,
            bytes_hard,
            bytes_deadline,
            files_soft,
            files_hard,
            files_deadline
        });
        assert_described("Limits of an account", size_of::<StoredLimits>(), &limits);
    }

    #[test]
    fn impossible_tables_are_refused() {
        let mut table = QuotaTable::default();
        let bytes = QuotaLimit { soft: 5, hard: 9, deadline: -1 };
        for number in [1, u32::MAX] {
            for kind in [QuotaKind::User, QuotaKind::Group, QuotaKind::Tree] {
                let limits = QuotaLimits { bytes, ..QuotaLimits::default() };
                table.set(QuotaId { kind, number }, limits).expect("possible");
            }
        }
        let sound = table.encode();
        assert_eq!(QuotaTable::decode(&sound).expect("sound"), table);
        assert!(QuotaTable::decode(&sound[..sound.len() - 1]).is_err() && QuotaTable::decode(&[]).is_err());
        let changed = |at: usize, value: u8| {
            let mut bytes = sound.clone();
            bytes[at] = value;
            QuotaTable::decode(&bytes)
        };
        assert!(changed(16, 0).is_err() && changed(16, 4).is_err(), "kinds");
        assert!(changed(16, 2).is_err(), "order");
        assert!(changed(20, 0).is_err(), "number 0");
        assert!(changed(24, 10).is_err(), "a soft limit above the hard limit");
    }
}
