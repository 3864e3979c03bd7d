//! Repairs hostile images as `eyrie fsck --repair` does, in a directory in memory if the host has one. The
//! output ends with the reasons of refused repairs, and with the seeds of failures. A run of 10,000 images:
//!
//! ```sh
//! cargo run --release -p eyriefs-testkit --bin repairs -- --images 10000 --from 0
//! ```

use std::time::Instant;

use eyrie_testkit::hostile::{bases, repairs};

const USAGE: &str = "usage: repairs [--images COUNT] [--from SEED]";

fn main() {
    let (mut count, mut from) = (10_000, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let number = arguments.next().and_then(|number| number.parse::<u64>().ok());
        match (name.as_str(), number) {
            ("--images", Some(number)) => count = number,
            ("--from", Some(number)) => from = number,
            _ => {
                eprintln!("{USAGE}");
                std::process::exit(2);
            }
        }
    }
    let begun = Instant::now();
    let report = repairs(&bases(), from..from.saturating_add(count));
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("{count} images, {rate:.0} a second: {} sound, {} repaired", report.sound, report.repaired);
    for (reason, count) in &report.refused {
        println!("{count} times: {reason}");
    }
    for (seed, finding) in &report.unsound {
        println!("seed {seed}: {finding}");
    }
    if !report.unsound.is_empty() {
        std::process::exit(1);
    }
}
