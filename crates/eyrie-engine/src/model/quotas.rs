//! Quotas in the model: the project ids of trees, and limits on the number of objects.
//!
//! The storage that an object takes depends on the engine. So the model counts no bytes, and no limit on
//! bytes refuses an Op.

use std::collections::BTreeMap;

use super::state::{ModelObject, ModelState};
use crate::quota::{QuotaId, QuotaReport, QuotaTable, QuotaUsage};
use crate::{Applied, Error, ObjectId, Op, Result, Time};

impl ModelObject {
    fn accounts(&self) -> impl Iterator<Item = QuotaId> {
        QuotaId::of_owners(self.owner.uid, self.owner.gid, self.project)
    }

    fn counts_for(&self, id: QuotaId) -> bool {
        self.accounts().any(|account| account == id)
    }
}

impl ModelState {
    /// Applies an Op, unless an account would have too many objects.
    pub(super) fn apply_within_limits(&mut self, op: &Op<'_>) -> Result<Applied> {
        let before = self.limits.is_some().then(|| self.clone());
        let applied = self.apply_above_limits(op)?;
        if let Some(before) = before
            && before.refuses(self, op.time())
        {
            *self = before;
            return Err(Error::QuotaExceeded);
        }
        Ok(applied)
    }

    /// Applies an Op that no limit stops.
    pub(super) fn apply_above_limits(&mut self, op: &Op<'_>) -> Result<Applied> {
        let applied = self.apply(op)?;
        self.update_deadlines(op.time());
        Ok(applied)
    }

    /// True if a limit refuses the state `next`. An account grows by its new objects, and by those that had
    /// another owner. The objects that an Op removes leave their accounts after the Op, so they make no room
    /// for it.
    fn refuses(&self, next: &ModelState, now: Time) -> bool {
        let mut accounts = self.limits.iter().flat_map(QuotaTable::accounts);
        accounts.any(|(id, limits)| {
            let count = |object: &ModelObject| i64::from(object.counts_for(id));
            let before = |id: &ObjectId| self.objects.get(id).map_or(0, count);
            let growth = next.objects.iter().map(|(id, object)| count(object) - before(id)).sum();
            limits.files.refuses(self.usage(id).files, growth, now)
        })
    }

    fn usage(&self, id: QuotaId) -> QuotaUsage {
        let files = self.objects.values().filter(|object| object.counts_for(id)).count() as u64;
        QuotaUsage { files, ..QuotaUsage::default() }
    }

    /// Sets the limits of the volume, or removes them. A grace time that has begun goes on.
    pub(super) fn set_limits(&mut self, limits: Option<QuotaTable>) {
        let earlier = std::mem::replace(&mut self.limits, limits);
        if let (Some(limits), Some(earlier)) = (&mut self.limits, &earlier) {
            limits.keep_deadlines(earlier);
        }
    }

    /// Begins or ends the grace times of all accounts.
    pub(super) fn update_deadlines(&mut self, now: Time) {
        let Some(mut limits) = self.limits.take() else { return };
        let ids: Vec<QuotaId> = limits.accounts().map(|(id, _)| id).collect();
        for id in ids {
            limits.update_deadlines(id, self.usage(id), Some(now));
        }
        self.limits = Some(limits);
    }

    /// Returns the usage and the limits of each account that has any. The usage counts no bytes.
    pub(super) fn quota_reports(&self) -> Option<Vec<QuotaReport>> {
        let limits = self.limits.as_ref()?;
        let mut files = BTreeMap::<QuotaId, u64>::new();
        for (id, _) in limits.accounts() {
            files.insert(id, 0);
        }
        for id in self.objects.values().flat_map(ModelObject::accounts) {
            *files.entry(id).or_default() += 1;
        }
        let report = |(id, files)| QuotaReport {
            id,
            usage: QuotaUsage { files, ..QuotaUsage::default() },
            limits: limits.get(id),
        };
        Some(files.into_iter().map(report).collect())
    }

    /// Returns the project id that new objects in a directory inherit, or 0.
    pub(super) fn tree_of(&self, dir: ObjectId) -> Result<u32> {
        Ok(if self.limits.is_some() { self.object(dir)?.project } else { 0 })
    }

    /// Refuses to give an object a name in a directory of another tree.
    pub(super) fn check_tree(&self, dir: ObjectId, id: ObjectId) -> Result<()> {
        let tree = self.tree_of(dir)?;
        if tree == 0 || self.object(id)?.project == tree { Ok(()) } else { Err(Error::OtherTree) }
    }
}
