//! Tests that all acknowledged steps survive when processes with several writers on a paged volume are
//! killed.

use std::process::Command;
use std::time::Duration;

use eyrie::MediumChoice;
use eyrie_testkit::kills::{KillSeries, StepCounts, run_if_child};

use crate::alone;

const KILLS: u64 = 200;

#[test]
fn two_hundred_kills_lose_nothing_that_was_acknowledged() {
    run_if_child();
    let _alone = alone();
    let kills = KillSeries {
        medium: MediumChoice::Paged,
        volume_bytes: 64 << 20,
        writers: 3,
        lives: 20,
        longest: Duration::from_millis(150),
    };
    let host = tempfile::tempdir().expect("a directory");
    let command = || {
        let mut command = Command::new(std::env::current_exe().expect("the test knows its program"));
        command.args([
            "killed::two_hundred_kills_lose_nothing_that_was_acknowledged",
            "--exact",
            "--nocapture",
        ]);
        command
    };
    let mut all = StepCounts::default();
    for seed in 0..KILLS / kills.lives {
        let steps = kills.run(&host.path().join(format!("volume-{seed}")), seed, &command);
        all.acknowledged += steps.acknowledged;
        all.unheard += steps.unheard;
    }
    println!("{} steps were acknowledged, {} more were there", all.acknowledged, all.unheard);
    assert!(all.acknowledged > 10 * KILLS);
}
