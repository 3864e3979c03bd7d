//! Kills processes that change a volume, for longer than the test `killed`.
//!
//! ```sh
//! cargo run --release -p eyriefs-testkit --bin kills -- --kills 100000 --threads 2 --dir /dev/shm
//! cargo run --release -p eyriefs-testkit --bin kills -- --served yes --kills 20000 --dir /dev/shm
//! ```
//!
//! Volumes are on `dram` and on `paged` in turn. With `--served yes`, volumes are on `dram`, and the program
//! kills services and their clients. The host keeps running, so the program tests killed processes and no
//! power failures.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyrie::MediumChoice;
use eyrie_testkit::kills::served::ServedKillSeries;
use eyrie_testkit::kills::{KillSeries, StepCounts, run_if_child};

const USAGE: &str =
    "usage: kills [--served yes|no] [--kills COUNT] [--threads COUNT] [--from SEED] [--dir DIR]";
/// Number of kills between two lines of output.
const STEP: u64 = 1000;

fn kills(medium: MediumChoice) -> KillSeries {
    KillSeries { medium, volume_bytes: 16 << 20, writers: 2, lives: 5, longest: Duration::from_millis(4) }
}

/// Returns one of three series: one client that logs its changes, two clients that log their changes, or two
/// clients with all kinds of steps.
fn served_kills(seed: u64) -> ServedKillSeries {
    ServedKillSeries {
        volume_bytes: 32 << 20,
        writers: 2,
        clients: if seed.is_multiple_of(3) { 1 } else { 2 },
        with_deferral: seed % 3 != 2,
        kills: 50,
        longest: Duration::from_millis(if seed % 3 != 2 { 16 } else { 8 }),
    }
}

fn main() -> ExitCode {
    run_if_child();
    let (mut count, mut threads, mut from, mut dir) = (1000, 1, 0, std::env::temp_dir());
    let mut served = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let word = arguments.next().unwrap_or_default();
        match (name.as_str(), word.parse::<u64>()) {
            ("--kills", Ok(number)) => count = number,
            ("--threads", Ok(number)) => threads = number,
            ("--from", Ok(number)) => from = number,
            ("--served", _) if word == "yes" || word == "no" => served = word == "yes",
            ("--dir", _) => dir = PathBuf::from(word),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let command = || Command::new(std::env::current_exe().expect("a program knows its own file"));
    let (begun, next) = (Instant::now(), AtomicU64::new(from));
    let [done, acknowledged, unheard, services, with_entries] = [const { AtomicU64::new(0) }; 5];
    let run = |seed| {
        let path = dir.join(format!("eyrie-kills-{}-{seed}", std::process::id()));
        if served {
            let counts = served_kills(seed).run(&path, seed, &command);
            services.fetch_add(counts.services, Ordering::Relaxed);
            with_entries.fetch_add(counts.with_entries, Ordering::Relaxed);
            return (counts.clients + counts.services, counts.steps);
        }
        let medium = if seed % 2 == 0 { MediumChoice::Dram } else { MediumChoice::Paged };
        let kills = kills(medium);
        (kills.lives, kills.run(&path, seed, &command))
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < count {
                    let (killed, steps): (u64, StepCounts) = run(next.fetch_add(1, Ordering::Relaxed));
                    acknowledged.fetch_add(steps.acknowledged, Ordering::Relaxed);
                    unheard.fetch_add(steps.unheard, Ordering::Relaxed);
                    let before = done.fetch_add(killed, Ordering::Relaxed);
                    if before / STEP != (before + killed) / STEP {
                        println!("{} kills in {:.0?}", before + killed, begun.elapsed());
                    }
                }
            });
        }
    });
    println!(
        "{} kills ({} of services, {} with entries that were not applied) in {:.0?}: the volumes show {} \
         acknowledged steps and {} later steps",
        done.into_inner(),
        services.into_inner(),
        with_entries.into_inner(),
        begun.elapsed(),
        acknowledged.into_inner(),
        unheard.into_inner()
    );
    ExitCode::SUCCESS
}
