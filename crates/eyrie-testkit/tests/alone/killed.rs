//! Tests that all acknowledged steps survive when processes are killed: processes with several writers on a
//! paged volume, and services with their clients.

use std::process::Command;
use std::time::Duration;

use eyrie::MediumChoice;
use eyrie_testkit::kills::served::ServedKillSeries;
use eyrie_testkit::kills::{KillSeries, StepCounts, run_if_child};

use crate::alone;

const KILLS: u64 = 200;

/// Returns the command that runs one test of this program.
fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test knows its program"));
    command.args([name, "--exact", "--nocapture"]);
    command
}

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
    let command = || this_test("killed::two_hundred_kills_lose_nothing_that_was_acknowledged");
    let mut all = StepCounts::default();
    for seed in 0..KILLS / kills.lives {
        let steps = kills.run(&host.path().join(format!("volume-{seed}")), seed, &command);
        all.acknowledged += steps.acknowledged;
        all.unheard += steps.unheard;
    }
    println!("{} steps were acknowledged, {} more were there", all.acknowledged, all.unheard);
    assert!(all.acknowledged > 10 * KILLS);
}

#[test]
fn killed_services_and_clients_lose_and_repeat_nothing() {
    run_if_child();
    let _alone = alone();
    let kills = |clients, with_deferral| ServedKillSeries {
        volume_bytes: 32 << 20,
        writers: 2,
        clients,
        with_deferral,
        kills: 100,
        longest: Duration::from_millis(8),
    };
    let host = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let command = || this_test("killed::killed_services_and_clients_lose_and_repeat_nothing");
    let (mut services, mut clients, mut acknowledged, mut with_entries) = (0, 0, 0, 0);
    for seed in 0..6 {
        let (clients_of_series, with_deferral) = [(1, true), (2, true), (2, false)][seed as usize % 3];
        let counts = kills(clients_of_series, with_deferral).run(
            &host.path().join(format!("volume-{seed}")),
            seed,
            &command,
        );
        services += counts.services;
        clients += counts.clients;
        acknowledged += counts.steps.acknowledged;
        with_entries += counts.with_entries;
    }
    assert!(with_entries > 10, "{with_entries} kills came before the log was applied");
    assert!(services > 200 && clients > 200, "{services} services and {clients} clients were killed");
    // A busy machine makes fewer steps between two kills.
    assert!(acknowledged > 2 * (services + clients), "{acknowledged} steps were acknowledged");
}
