//! The engine on a paged medium: beside the model, through power failures, and on disks that fail.

use eyrie_testkit::oracle;
use eyrie_testkit::power::{Disk, Run};

const SMALL: Disk = Disk { volume_bytes: 2 << 20, memory_bytes: 1 << 20 };

#[test]
fn random_ops_on_pages_give_what_the_model_gives() {
    let disk = Disk { volume_bytes: 64 << 20, memory_bytes: 4 << 20 };
    for seed in 0..40 {
        oracle::check(|| disk.create().expect("a new volume").0, seed, 400);
    }
}

#[test]
fn ten_thousand_power_failures_leave_a_state_since_the_last_sync() {
    let mut failures = 0;
    for seed in 0.. {
        if failures >= 10_000 {
            break;
        }
        let mut run = Run::new(SMALL, seed).expect("a new volume");
        for step in 0..60 {
            run.step().expect("the disk is sound");
            if step % 3 == 2 {
                run.power_failure(&format!("seed {seed}, step {step}"));
                failures += 1;
            }
        }
    }
}

#[test]
fn a_disk_that_fails_at_any_call_loses_nothing_acknowledged() {
    for forever in [false, true] {
        for call in 1.. {
            let mut run = Run::new(SMALL, 5).expect("a new volume");
            let before = run.simulated().calls();
            run.simulated().fail_at(call, forever);
            let failed = (0..60).find_map(|_| run.step().err());
            let what = format!("call {call}, forever: {forever}");
            run.power_failure(&what);
            match failed {
                None => {
                    assert!(run.simulated().calls() - before < call, "{what}: nobody was told");
                    break;
                }
                // A drain in the background may have been the one that failed.
                Some(error) => assert!(
                    ["I/O", "read-only"].iter().any(|word| error.to_string().contains(word)),
                    "{what}: {error}"
                ),
            }
            assert!(run.is_read_only(), "{what}: changes go on after the disk failed");
        }
    }
}
