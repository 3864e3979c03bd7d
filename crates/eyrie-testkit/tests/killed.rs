//! A process with several writers on a volume of pages is killed, again and again: what was acknowledged is there.

use std::process::Command;
use std::time::Duration;

use eyrie::MediumChoice;
use eyrie_testkit::kills::{Kills, Steps, run_if_child};

const KILLS: u64 = 200;

#[test]
fn two_hundred_kills_lose_nothing_that_was_acknowledged() {
    run_if_child();
    let kills = Kills {
        medium: MediumChoice::Paged,
        volume_bytes: 64 << 20,
        writers: 3,
        lives: 20,
        longest: Duration::from_millis(150),
    };
    let host = tempfile::tempdir().expect("a directory");
    let command = || {
        let mut command = Command::new(std::env::current_exe().expect("the test knows its program"));
        command.args(["two_hundred_kills_lose_nothing_that_was_acknowledged", "--exact", "--nocapture"]);
        command
    };
    let mut all = Steps::default();
    for life in 0..KILLS / kills.lives {
        let steps = kills.run(&host.path().join(format!("volume-{life}")), life, &command);
        all.acknowledged += steps.acknowledged;
        all.unheard += steps.unheard;
    }
    println!("{} steps were acknowledged, {} more were there", all.acknowledged, all.unheard);
    assert!(all.acknowledged > 10 * KILLS);
}
