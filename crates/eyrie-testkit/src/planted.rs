//! Plants bugs: leaves out one point of the code at a time. A point is a fence, publish, checksum, flush or
//! write. For each missing point, at least one trial must fail.

use std::collections::BTreeSet;

use eyrie_faults::Site;
use eyrie_sim::explore::caught;

/// A point that was left out, and the result of the trials.
#[derive(Debug)]
pub struct Planted {
    /// The point.
    pub site: Site,
    /// Number of trials that meet the point.
    pub trials: usize,
    /// The error that the first failing trial found, or `None` if no trial noticed the missing point.
    pub caught: Option<String>,
}

/// Leaves out each point that any of `trials` meets. `without` runs a trial with a point left out, and
/// returns a description of the error or `None`. A panic in a trial also counts as noticed.
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
