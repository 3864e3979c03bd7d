//! Kills processes that change a volume, for longer than the test `killed`.
//!
//! ```sh
//! cargo run --release -p eyriefs-testkit --bin kills -- --kills 100000 --threads 2 --dir /dev/shm
//! ```
//!
//! Volumes are on `dram` and on `paged` in turn. The host keeps running, so the program tests killed
//! processes and no power failures.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyrie::MediumChoice;
use eyrie_testkit::kills::{KillSeries, run_if_child};

const USAGE: &str = "usage: kills [--kills COUNT] [--threads COUNT] [--from SEED] [--dir DIR]";
/// Number of kills between two lines of output.
const STEP: u64 = 10_000;

fn kills(medium: MediumChoice) -> KillSeries {
    KillSeries { medium, volume_bytes: 16 << 20, writers: 2, lives: 5, longest: Duration::from_millis(4) }
}

fn main() -> ExitCode {
    run_if_child();
    let (mut count, mut threads, mut from, mut dir) = (1000, 1, 0, std::env::temp_dir());
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let word = arguments.next().unwrap_or_default();
        match (name.as_str(), word.parse::<u64>()) {
            ("--kills", Ok(number)) => count = number,
            ("--threads", Ok(number)) => threads = number,
            ("--from", Ok(number)) => from = number,
            ("--dir", _) => dir = PathBuf::from(word),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let command = || Command::new(std::env::current_exe().expect("a program knows its own file"));
    let (begun, next) = (Instant::now(), AtomicU64::new(from));
    let [done, acknowledged, unheard] = [const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < count {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let medium = if seed % 2 == 0 { MediumChoice::Dram } else { MediumChoice::Paged };
                    let kills = kills(medium);
                    let path = dir.join(format!("eyrie-kills-{}-{seed}", std::process::id()));
                    let steps = kills.run(&path, seed, &command);
                    acknowledged.fetch_add(steps.acknowledged, Ordering::Relaxed);
                    unheard.fetch_add(steps.unheard, Ordering::Relaxed);
                    let before = done.fetch_add(kills.lives, Ordering::Relaxed);
                    if before / STEP != (before + kills.lives) / STEP {
                        println!("{} kills in {:.0?}", before + kills.lives, begun.elapsed());
                    }
                }
            });
        }
    });
    println!(
        "{} kills in {:.0?}: the volumes show {} acknowledged steps and {} later steps",
        done.into_inner(),
        begun.elapsed(),
        acknowledged.into_inner(),
        unheard.into_inner()
    );
    ExitCode::SUCCESS
}
