//! Examines hostile images of any range of seeds, for longer than the test `hostile`:
//!
//! ```sh
//! cargo run --release -p eyriefs-testkit --bin hostile -- --images 10000000 --from 100000
//! ```
//!
//! `--images 1 --from SEED` replays a failure. With `--disks` the program damages disks of the medium
//! `paged`. `--processes` sets the number of processes, each of which examines a part of the seeds.

use std::ops::Range;
use std::process::Command;
use std::time::Instant;

use eyrie_testkit::hostile::{
    Hostile, HostileDisk, HostileReport, bases, disk_bases, run, run_disks, run_in_processes,
};

/// Number of images between two lines of output.
const STEP: u64 = 100_000;

const USAGE: &str = "usage: hostile [--disks] [--images COUNT] [--from SEED] [--processes COUNT]";

/// Examines the images of these seeds. If only one seed is given, first prints the damage to its image.
fn images(seeds: Range<u64>, on_progress: impl FnMut(&HostileReport)) -> HostileReport {
    let bases = bases();
    if seeds.end - seeds.start == 1 {
        let hostile = Hostile::new(&bases, seeds.start);
        println!("{}, checksums mended: {}", hostile.image.base.name, hostile.mended);
        hostile.damages.iter().for_each(|damage| println!("{damage:x?}"));
    }
    run(&bases, seeds, on_progress)
}

/// Examines the disks of these seeds. If only one seed is given, first prints the damage to its disk.
fn disks(seeds: Range<u64>, on_progress: impl FnMut(&HostileReport)) -> HostileReport {
    let bases = disk_bases();
    if seeds.end - seeds.start == 1 {
        let hostile = HostileDisk::new(&bases, seeds.start);
        let (mended, pages) = (hostile.mended, hostile.pages_are_mended);
        println!("{}, checksums mended: {mended}, of pages: {pages}", hostile.base.name);
        hostile.damages.iter().for_each(|damage| println!("{damage:x?}"));
    }
    run_disks(&bases, seeds, on_progress)
}

/// Examines the images or disks of these seeds in several processes of this program.
fn in_processes(seeds: Range<u64>, count: u64, are_disks: bool) -> std::io::Result<HostileReport> {
    let program = std::env::current_exe()?;
    run_in_processes(&seeds, count, |part| {
        let mut command = Command::new(&program);
        command.arg("--part").args(are_disks.then_some("--disks"));
        command.args(["--from", &part.start.to_string(), "--images", &(part.end - part.start).to_string()]);
        command
    })
}

fn main() {
    let (mut count, mut from, mut are_disks) = (STEP, 0, false);
    let (mut processes, mut is_part) = (1, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--disks" {
            are_disks = true;
            continue;
        }
        if name == "--part" {
            is_part = true;
            continue;
        }
        let number = arguments.next().and_then(|number| number.parse::<u64>().ok());
        match (name.as_str(), number) {
            ("--images", Some(number)) => count = number,
            ("--from", Some(number)) => from = number,
            ("--processes", Some(number)) => processes = number,
            _ => {
                eprintln!("{USAGE}");
                std::process::exit(2);
            }
        }
    }
    let (seeds, begun) = (from..from.saturating_add(count), Instant::now());
    let on_progress = |report: &HostileReport| {
        if report.images.is_multiple_of(STEP) && !is_part {
            println!("{} images in {:.0?}", report.images, begun.elapsed());
        }
    };
    let report = match are_disks {
        _ if processes > 1 => match in_processes(seeds, processes, are_disks) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(1);
            }
        },
        true => disks(seeds, on_progress),
        false => images(seeds, on_progress),
    };
    if is_part {
        return println!("{}", report.to_line());
    }
    let rate = report.images as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{} images, {rate:.0} a second: {} refused, {} broken, {} sound; panics at {:?}",
        report.images, report.refused, report.broken, report.sound, report.panicked
    );
    if !report.panicked.is_empty() {
        std::process::exit(1);
    }
}
