//! Counting usage, and refusing changes above a limit.
//!
//! The counts are in memory. One pass over all objects makes them when the volume is opened, or when limits
//! are set for the first time. From then on, each Op that takes storage, makes an object or sets an owner
//! charges the accounts of the object. It does so under the locks of its objects, and before its commit. So a
//! refused Op changes nothing, and two threads cannot pass a limit together. The usage of retired storage is
//! given back after the commit that retires it. An object that has lost its last name counts until it is
//! freed.
//!
//! In a volume without quotas, the only cost is that each commit tests one word of the board.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use eyrie_medium::Settled;
use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, lock};
use smallvec::SmallVec;

use super::Scm;
use super::locks::LockedParent;
use crate::extent::Extent;
use crate::object::header::{Cold, Header};
use crate::object::visit::visit_object;
use crate::object::xattr::{self, XattrRoot};
use crate::quota::{QUOTA_XATTR, QuotaId, QuotaReport, QuotaTable, QuotaUsage};
use crate::transaction::Transaction;
use crate::volume::Volume;
use crate::{Error, ObjectId, Result, Time, recovery};

thread_local! {
    /// True while the thread makes a change for a caller whom no limit stops. In Linux, too, a capability of
    /// the running thread decides this.
    static IS_EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a change that no limit stops.
pub(super) fn without_limits<T>(change: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_EXEMPT.set(self.0);
        }
    }
    let _restore = Restore(IS_EXEMPT.replace(true));
    change()
}

/// The owners of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owners {
    uid: u32,
    gid: u32,
    project: u32,
}

impl Owners {
    pub(super) fn of(cold: &Cold) -> Owners {
        Owners { uid: cold.uid, gid: cold.gid, project: cold.project }
    }

    /// Returns the accounts that the object counts for.
    fn accounts(self) -> impl Iterator<Item = QuotaId> {
        QuotaId::of_owners(self.uid, self.gid, self.project)
    }
}

/// A change of the usage of one account.
#[derive(Clone, Copy)]
struct UsageChange {
    id: QuotaId,
    bytes: i64,
    files: i64,
}

/// The changes of usage that one Op makes.
#[derive(Clone, Default)]
pub(super) struct QuotaChange {
    parts: SmallVec<[UsageChange; 6]>,
}

impl QuotaChange {
    pub(super) fn add(&mut self, owners: Owners, bytes: i64, files: i64) {
        for id in owners.accounts() {
            match self.parts.iter_mut().find(|part| part.id == id) {
                Some(part) => (part.bytes, part.files) = (part.bytes + bytes, part.files + files),
                None => self.parts.push(UsageChange { id, bytes, files }),
            }
        }
    }
}

type Usages = HashMap<QuotaId, QuotaUsage>;

fn count(usages: &mut Usages, owners: Owners, bytes: u64) {
    for id in owners.accounts() {
        let usage = usages.entry(id).or_default();
        (usage.bytes, usage.files) = (usage.bytes + bytes, usage.files + 1);
    }
}

#[cfg(test)]
thread_local! {
    /// Number of accounts about which this thread has got reports.
    pub(super) static REPORTED: Cell<usize> = const { Cell::new(0) };
}

#[derive(Default)]
struct QuotaState {
    table: QuotaTable,
    usages: Usages,
    /// True if a deadline has changed since the table was stored.
    has_new_deadlines: bool,
}

/// The limits of a volume, and the usage of each account.
#[derive(Default)]
pub(super) struct Quotas {
    state: Mutex<QuotaState>,
}

/// A charge for a change that has not committed yet. A drop gives it back.
#[must_use]
struct Charge<'a> {
    quotas: &'a Quotas,
    change: QuotaChange,
    now: Time,
}

impl QuotaState {
    /// Refuses a change that would raise the usage of an account above a limit.
    fn check(&self, change: &QuotaChange, now: Time) -> Result<()> {
        for &UsageChange { id, bytes, files } in &change.parts {
            let limits = self.table.get(id);
            let usage = self.usages.get(&id).copied().unwrap_or_default();
            if limits.bytes.refuses(usage.bytes, bytes, now) || limits.files.refuses(usage.files, files, now)
            {
                return Err(Error::QuotaExceeded);
            }
        }
        Ok(())
    }

    fn report(&self, id: QuotaId) -> QuotaReport {
        #[cfg(test)]
        REPORTED.set(REPORTED.get() + 1);
        let usage = self.usages.get(&id).copied().unwrap_or_default();
        QuotaReport { id, usage, limits: self.table.get(id) }
    }

    /// Adds a change to the usages. `part` selects, from each number of the change, the part that is added.
    /// Without `now`, no grace time begins.
    fn add(&mut self, change: &QuotaChange, part: impl Fn(i64) -> i64, now: Option<Time>) {
        for &UsageChange { id, bytes, files } in &change.parts {
            let usage = self.usages.entry(id).or_default();
            usage.bytes = usage.bytes.saturating_add_signed(part(bytes));
            usage.files = usage.files.saturating_add_signed(part(files));
            let usage = *usage;
            if usage == QuotaUsage::default() {
                self.usages.remove(&id);
            }
            self.has_new_deadlines |= self.table.update_deadlines(id, usage, now);
        }
    }
}

impl Quotas {
    /// Charges the parts of a change that raise usage.
    fn charge(&self, change: QuotaChange, now: Time) -> Result<Charge<'_>> {
        let mut state = lock(&self.state);
        if !IS_EXEMPT.get() {
            state.check(&change, now)?;
        }
        state.add(&change, |part| part.max(0), Some(now));
        Ok(Charge { quotas: self, change, now })
    }

    /// Gives back the storage of an object that was freed.
    fn give_back(&self, owners: Owners, bytes: u64) {
        let mut change = QuotaChange::default();
        change.add(owners, -(bytes as i64), -1);
        // After a crash, the account may still be above a soft limit without a deadline. The next charge then
        // begins the grace time.
        lock(&self.state).add(&change, |part| part, None);
    }
}

impl Charge<'_> {
    /// Ends a charge after its commit. Gives back the storage that the commit has retired.
    fn keep(mut self) {
        let change = std::mem::take(&mut self.change);
        lock(&self.quotas.state).add(&change, |part| part.min(0), Some(self.now));
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        lock(&self.quotas.state).add(&self.change, |part| -part.max(0), Some(self.now));
    }
}

/// Returns the owners of an object, and the bytes of its storage that quotas count: all extents of a file or
/// a symbolic link, and the extended attributes of any object. The table and the pages of a directory do not
/// count.
fn counted_storage(volume: &Volume, id: ObjectId) -> Result<(Owners, u64)> {
    let header = Header::of(id);
    let (_, cold) = header.hot_and_cold(volume.medium())?;
    let (mut bytes, mut extents) = (0, 0);
    if id.is_directory() {
        bytes = XattrRoot::of(header, &cold).extent()?.map_or(0, Extent::bytes);
    } else {
        // A damaged tree may contain a cycle. Therefore the number of extents that are not shared, such as
        // nodes, is limited.
        let most = volume.space().most_extents() + 1;
        visit_object(volume, id, &mut |extent, is_shared| {
            (bytes, extents) = (bytes + extent.bytes(), extents + usize::from(!is_shared));
            let is_endless = extents > most;
            if is_endless { Err(Error::corrupt(extent.addr, "endless storage of an object")) } else { Ok(()) }
        })?;
    }
    Ok((Owners::of(&cold), bytes))
}

impl Scm {
    /// True if the volume counts usage.
    #[inline(always)]
    pub(super) fn has_quotas(&self) -> bool {
        self.volume.board().has_quotas()
    }

    /// Commits a change of the storage of one object, and charges its owners. `shared` has the extents to
    /// which the object gets pointers although other objects have pointers to them, too. Each of these
    /// extents counts as if only this object had it. The caller holds the lock of the object.
    #[inline(always)]
    pub(super) fn commit_charged(
        &self,
        transaction: &mut Transaction<'_>,
        header: Header,
        shared: &[Extent],
        now: Time,
    ) -> Result<Settled> {
        if self.has_quotas() {
            return self.charge_and_commit(transaction, header, shared, now);
        }
        transaction.commit_in_place()
    }

    #[cold]
    #[inline(never)]
    fn charge_and_commit(
        &self,
        transaction: &mut Transaction<'_>,
        header: Header,
        shared: &[Extent],
        now: Time,
    ) -> Result<Settled> {
        let mut change = QuotaChange::default();
        let shared: i64 = shared.iter().map(|extent| extent.bytes() as i64).sum();
        self.add_storage_change(&mut change, transaction.storage_change() + shared, header)?;
        self.charging(change, now, || transaction.commit_in_place())
    }

    /// Adds a change of the storage of one object, which keeps its owners.
    #[cold]
    pub(super) fn add_storage_change(
        &self,
        change: &mut QuotaChange,
        bytes: i64,
        header: Header,
    ) -> Result<()> {
        let (_, cold) = header.hot_and_cold(self.medium())?;
        change.add(Owners::of(&cold), bytes, 0);
        Ok(())
    }

    /// Refuses to give an object a name in a directory of another tree.
    #[inline]
    pub(super) fn check_tree(&self, parent: &LockedParent, id: ObjectId) -> Result<()> {
        if parent.project != 0 && self.header(id)?.hot_and_cold(self.medium())?.1.project != parent.project {
            return Err(Error::OtherTree);
        }
        Ok(())
    }

    /// Adds a new object, which is written, but to which nothing leads yet.
    #[cold]
    pub(super) fn add_new_object(&self, change: &mut QuotaChange, id: ObjectId) -> Result<()> {
        let (owners, bytes) = counted_storage(&self.volume, id)?;
        change.add(owners, bytes as i64, 1);
        Ok(())
    }

    /// Adds a change of the owners of an object: the object moves to the accounts of `to`. `bytes` is the
    /// change of the object's storage that the same commit makes.
    #[cold]
    pub(super) fn add_move(
        &self,
        change: &mut QuotaChange,
        id: ObjectId,
        to: Owners,
        bytes: i64,
    ) -> Result<()> {
        let (from, before) = counted_storage(&self.volume, id)?;
        if !broken(SafetyRule::ChownMovesUsage) {
            change.add(from, -(before as i64), -1);
        }
        change.add(to, before as i64 + bytes, 1);
        Ok(())
    }

    /// Charges for a change, and commits it.
    #[cold]
    pub(super) fn charging<T>(
        &self,
        change: QuotaChange,
        now: Time,
        commit: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if broken(SafetyRule::ChargeBeforeTheCommit) {
            let done = commit()?;
            self.quotas.charge(change, now)?.keep();
            return Ok(done);
        }
        let charge = self.quotas.charge(change, now)?;
        let done = commit()?;
        charge.keep();
        Ok(done)
    }

    /// Charges for a new object if the volume counts usage, and commits.
    #[inline(always)]
    pub(super) fn charging_for_new<T>(
        &self,
        id: ObjectId,
        now: Time,
        commit: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.has_quotas() {
            let mut change = QuotaChange::default();
            self.add_new_object(&mut change, id)?;
            return self.charging(change, now, commit);
        }
        commit()
    }

    /// Gives back the storage of an object that is about to be freed. The caller holds the lock of the
    /// object.
    #[cold]
    pub(super) fn give_back(&self, id: ObjectId) {
        if broken(SafetyRule::FreedObjectGivesBack) {
            return;
        }
        // The storage of a damaged object cannot be found. The next open counts again.
        if let Ok((owners, bytes)) = counted_storage(&self.volume, id) {
            self.quotas.give_back(owners, bytes);
        }
    }

    /// Reads the limits of a volume that was just opened, and counts usage if there are limits.
    pub(super) fn load_quotas(&self) -> Result<()> {
        if !self.volume.has_quota_feature() {
            return Ok(());
        }
        let header = Header::of(self.root);
        let stored = {
            let _pin = pin();
            let (_, cold) = header.hot_and_cold(self.medium())?;
            xattr::value(self.medium(), XattrRoot::of(header, &cold), QUOTA_XATTR)?
        };
        let Some(bytes) = stored else { return Ok(()) };
        let table = QuotaTable::decode(&bytes)
            .map_err(|_| Error::corrupt(header.addr(), "impossible table of quotas"))?;
        self.start_counting(table)
    }

    /// Loads the limits of a volume that was opened read-only. No Op is applied to such a volume, so only a
    /// report needs the counts.
    pub(super) fn load_quotas_for_report(&self) -> Result<()> {
        if self.read_only && !self.has_quotas() { self.sound(self.load_quotas()) } else { Ok(()) }
    }

    /// Counts the usage of all objects, and begins to enforce these limits. No Op runs meanwhile.
    pub(super) fn start_counting(&self, table: QuotaTable) -> Result<()> {
        let usages = self.count_usages()?;
        *lock(&self.quotas.state) = QuotaState { table, usages, has_new_deadlines: false };
        self.volume.board().set_has_quotas(true);
        Ok(())
    }

    /// Counts the usage of all objects. No Op runs meanwhile.
    fn count_usages(&self) -> Result<Usages> {
        let usages = Mutex::new(Usages::new());
        recovery::visit_objects(&self.volume, self.root, &|id| {
            let (owners, bytes) = counted_storage(&self.volume, id)?;
            count(&mut lock(&usages), owners, bytes);
            Ok(())
        })?;
        let mut usages = std::mem::take(&mut *lock(&usages));
        // Another thread may be about to free an orphan that it has taken from the list. It will then give
        // the storage back.
        let mut orphans = self.opens.orphans();
        let taken = self.opens.freeing().into_iter().filter(|&id| !self.must_not_free(id));
        let taken: Vec<ObjectId> = taken.filter(|id| !orphans.contains(id)).collect();
        orphans.extend(taken);
        for id in orphans {
            let _pin = pin();
            let (owners, bytes) = counted_storage(&self.volume, id)?;
            count(&mut usages, owners, bytes);
        }
        Ok(usages)
    }

    /// Ends counting, and removes all limits. The caller holds the locks of all objects.
    pub(super) fn stop_counting(&self) {
        self.volume.board().set_has_quotas(false);
        *lock(&self.quotas.state) = QuotaState::default();
    }

    /// Makes these limits those of the volume at `now`. The caller has stored them. A grace time that has
    /// begun goes on.
    pub(super) fn set_limits(&self, mut table: QuotaTable, now: Time) {
        let mut state = lock(&self.quotas.state);
        let QuotaState { table: earlier, usages, has_new_deadlines } = &mut *state;
        let stored = table.clone();
        table.keep_deadlines(earlier);
        for (id, _) in stored.accounts() {
            table.update_deadlines(id, usages.get(&id).copied().unwrap_or_default(), Some(now));
        }
        (*has_new_deadlines, *earlier) = (table != stored, table);
    }

    /// Returns the limits as they are to be stored, if a deadline has changed since they were stored.
    pub(super) fn changed_quotas(&self) -> Option<Vec<u8>> {
        if !self.has_quotas() {
            return None;
        }
        let mut state = lock(&self.quotas.state);
        std::mem::take(&mut state.has_new_deadlines).then(|| state.table.encode())
    }

    /// Returns the usage and the limits of each account that has any.
    pub(super) fn quota_reports(&self) -> Vec<QuotaReport> {
        let state = lock(&self.quotas.state);
        let limited = state.table.accounts().map(|(id, _)| id);
        let ids: BTreeSet<QuotaId> = state.usages.keys().copied().chain(limited).collect();
        ids.into_iter().map(|id| state.report(id)).collect()
    }

    /// Returns the usage and the limits of one account.
    pub(super) fn quota_report(&self, id: QuotaId) -> QuotaReport {
        lock(&self.quotas.state).report(id)
    }

    /// Compares the counts with those of a new pass. Returns a line for each account that differs.
    pub(super) fn compare_usages(&self) -> Result<Vec<String>> {
        if !self.has_quotas() {
            return Ok(Vec::new());
        }
        let found = self.count_usages()?;
        let state = lock(&self.quotas.state);
        let ids: BTreeSet<&QuotaId> = state.usages.keys().chain(found.keys()).collect();
        let differs = |id: &&QuotaId| state.usages.get(*id) != found.get(*id);
        let line = |id: &QuotaId| {
            let usage = |usages: &Usages| usages.get(id).copied().unwrap_or_default();
            let (counted, found) = (usage(&state.usages), usage(&found));
            format!(
                "{:?} {}: {} bytes and {} files are counted, but there are {} bytes and {} files",
                id.kind, id.number, counted.bytes, counted.files, found.bytes, found.files
            )
        };
        Ok(ids.into_iter().filter(differs).map(line).collect())
    }
}
