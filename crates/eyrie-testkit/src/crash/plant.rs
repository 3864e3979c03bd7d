//! Planted bugs: one fence is left out at a time, and some case must notice.

use std::collections::BTreeSet;

use eyrie_medium::Site;

use eyrie_sim::explore::Limits;

use super::{Case, Failure, explore_creation};

/// A fence that was left out, and what noticed.
#[derive(Debug)]
pub struct Planted {
    /// The fence.
    pub site: Site,
    /// Cases that have it (a count).
    pub cases: usize,
    /// The first failure; `None`: nothing noticed.
    pub caught: Option<Box<Failure>>,
}

/// Cases that are not noticed early are left: what is missed by so many images of a crash is seen in another case.
const LIMITS: Limits = Limits { images: 400, is_complete: false, recoveries: 0 };

/// Leaves out each fence that any of `cases`, or the creation of a volume, has.
///
/// # Panics
/// If a case fails with all its fences.
pub fn plant(cases: &[Case]) -> Vec<Planted> {
    let sites_of: Vec<BTreeSet<Site>> =
        cases.iter().map(|case| case.run(None).expect("it works").1).collect();
    let (_, created) = explore_creation(None, LIMITS).expect("it works");
    let all: BTreeSet<Site> = sites_of.iter().flatten().chain(&created).copied().collect();
    all.into_iter()
        .map(|site| {
            let with_it: Vec<&Case> = sites_of
                .iter()
                .zip(cases)
                .filter_map(|(sites, case)| sites.contains(&site).then_some(case))
                .collect();
            let mut caught = with_it.iter().find_map(|case| case.explore(Some(site), LIMITS).err());
            if caught.is_none() && created.contains(&site) {
                caught = explore_creation(Some(site), LIMITS).err();
            }
            Planted { site, cases: with_it.len(), caught }
        })
        .collect()
}
