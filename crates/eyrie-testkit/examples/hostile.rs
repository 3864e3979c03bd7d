//! Hostile images, as many as are asked for: those of `tests/hostile.rs`, and others. One line replays a failure:
//!
//! ```sh
//! cargo run --release -p eyrie-testkit --example hostile -- --images 10000000 --from 100000
//! ```

use std::time::Instant;

use eyrie_testkit::hostile::{Hostile, bases, run};

/// Images between two lines.
const STEP: u64 = 100_000;

fn main() {
    let (mut images, mut from) = (STEP, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let number = arguments.next().and_then(|number| number.parse::<u64>().ok());
        match (name.as_str(), number) {
            ("--images", Some(number)) => images = number,
            ("--from", Some(number)) => from = number,
            _ => return eprintln!("usage: hostile [--images COUNT] [--from SEED]"),
        }
    }
    let (bases, begun) = (bases(), Instant::now());
    if images == 1 {
        let hostile = Hostile::new(&bases, from);
        println!("{}, checksums mended: {}", hostile.image.base.name, hostile.mended);
        hostile.damages.iter().for_each(|damage| println!("{damage:x?}"));
    }
    let report = run(&bases, from..from.saturating_add(images), |report| {
        if report.images % STEP == 0 {
            println!("{} images in {:.0?}", report.images, begun.elapsed());
        }
    });
    let rate = report.images as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{} images, {rate:.0} a second: {} refused, {} broken, {} sound; panics at {:?}",
        report.images, report.refused, report.broken, report.sound, report.panicked
    );
    if !report.panicked.is_empty() {
        std::process::exit(1);
    }
}
