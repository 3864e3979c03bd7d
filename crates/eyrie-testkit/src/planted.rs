//! Planted bugs: one point of the code is left out at a time, and some trial must notice.

use std::collections::BTreeSet;

use eyrie_faults::Site;
use eyrie_sim::explore::caught;

/// A point that was left out, and the trial that noticed.
#[derive(Debug)]
pub struct Planted {
    /// The point.
    pub site: Site,
    /// Trials that meet the point (a count).
    pub trials: usize,
    /// The fact that the first failing trial found wrong. `None`: no trial noticed.
    pub caught: Option<String>,
}

/// Leaves out each point that any of `trials` meets. `without` runs a trial without a point and returns the
/// fact that is wrong, or `None`. A trial that panics has noticed, too.
pub(crate) fn plant_each<T>(
    trials: &[(BTreeSet<Site>, T)],
    without: impl Fn(&T, Site) -> Option<String>,
) -> Vec<Planted> {
    let sites: BTreeSet<Site> = trials.iter().flat_map(|(points, _)| points).copied().collect();
    let planted = sites.into_iter().map(|site| {
        let with_it = || trials.iter().filter(|(points, _)| points.contains(&site));
        let caught = with_it().find_map(|(_, trial)| caught(|| without(trial, site)).unwrap_or_else(Some));
        Planted { site, trials: with_it().count(), caught }
    });
    planted.collect()
}
