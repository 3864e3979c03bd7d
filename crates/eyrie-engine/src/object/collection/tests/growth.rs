//! The memory of the host that a collection takes as it grows.

use eyrie_faults::FaultPlan;
use eyrie_medium::{AHEAD_BYTES, SiteKind};

use super::*;

/// The test counts steps instead of time. `Medium::memory` has no background thread, so the count is exact.
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
        // Bucket 16,384 is the first of a segment of 8 MiB. The last insert of this loop allocates the
        // segment.
        while directory.view().bucket_count().expect("sound") <= 16_384 {
            // Names of 255 bytes fill many pages after few inserts.
            let name = format!("{number:0255}");
            directory.insert(name.as_bytes(), id(number));
            let now = steps();
            most = most.max(now - before);
            (number, before) = (number + 1, now);
        }
        assert!(before * step_bytes >= 40 << 20, "the segments have their memory");
        // A segment of `AHEAD_BYTES` or less is not announced, so one insert provisions all steps of it. That
        // insert may need one more step for other storage.
        assert!(most <= AHEAD_BYTES / step_bytes + 1, "{most} steps in one insert");
    });
}
