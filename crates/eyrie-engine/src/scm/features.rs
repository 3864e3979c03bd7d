//! Features that the superblock of a volume names before their first use.

use eyrie_medium::rules::{SafetyRule, broken};

use super::Scm;
use crate::volume::VolumeView;
use crate::{Applied, Result};

/// A feature that a volume gets with its first use.
#[derive(Clone, Copy)]
pub(super) struct Feature {
    /// Adds the feature to the superblock.
    add: fn(&VolumeView) -> Result<()>,
    /// The rule that the superblock names the feature before its first use.
    rule: SafetyRule,
}

impl Feature {
    pub(super) const ACLS: Feature =
        Feature { add: VolumeView::set_acls, rule: SafetyRule::FeatureBeforeTheFirstAcl };
    pub(super) const FLAGS: Feature =
        Feature { add: VolumeView::set_flags, rule: SafetyRule::FeatureBeforeTheFirstFlag };
    pub(super) const PREALLOCATION: Feature =
        Feature { add: VolumeView::set_preallocation, rule: SafetyRule::FeatureBeforeStoragePastTheEnd };
    pub(super) const SHARED_EXTENTS: Feature =
        Feature { add: VolumeView::set_shared_extents, rule: SafetyRule::FeatureBeforeTheFirstClone };
    pub(super) const CAPABILITIES: Feature =
        Feature { add: VolumeView::set_capabilities, rule: SafetyRule::FeatureBeforeTheFirstCapability };
    pub(super) const QUOTAS: Feature =
        Feature { add: VolumeView::set_quota_feature, rule: SafetyRule::FeatureBeforeTheFirstQuota };
}

impl Scm {
    /// Makes a change that needs a feature of the volume. Before the first such change, the superblock gets
    /// the feature.
    pub(super) fn with_feature(
        &self,
        feature: Feature,
        change: impl FnOnce() -> Result<Applied>,
    ) -> Result<Applied> {
        let is_late = broken(feature.rule);
        if !is_late {
            (feature.add)(&self.volume)?;
        }
        let applied = change()?;
        if is_late {
            (feature.add)(&self.volume)?;
        }
        Ok(applied)
    }
}
