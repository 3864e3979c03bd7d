//! The memory of the host that a collection takes as it grows.

use eyrie_faults::FaultPlan;
use eyrie_medium::{AHEAD_BYTES, SiteKind};

use super::*;

/// A count of steps, so that neither a clock nor a thread matters: memory of tests has no thread.
#[test]
fn growing_collection_provisions_its_segments_in_small_steps() {
    let plan = FaultPlan::default();
    plan.count_calls();
    plan.on_this_thread(|| {
        let volume = volume(128 << 20);
        let directory = Directory::new(&volume);
        let step_bytes = volume.medium().step_bytes();
        let steps = || {
            let calls = plan.calls();
            let is_step = |file: &str| file.ends_with("space/central.rs");
            let steps =
                calls.iter().filter(|(site, _)| site.kind == SiteKind::Provision && is_step(site.file));
            steps.map(|(_, calls)| calls).sum::<u64>()
        };
        let (mut number, mut before, mut most) = (0, steps(), 0);
        // The next bucket is the first of a segment of 8 MiB, which the last round of inserts allocates.
        while directory.view().bucket_count().expect("sound") <= 16_384 {
            let name = format!("{number:0255}");
            directory.insert(name.as_bytes(), id(number));
            let now = steps();
            most = most.max(now - before);
            (number, before) = (number + 1, now);
        }
        assert!(before * step_bytes >= 40 << 20, "the segments have their memory");
        // A segment of this size is not announced. The insert that takes it may need a step for itself.
        assert!(most <= AHEAD_BYTES / step_bytes + 1, "{most} steps in one insert");
    });
}
