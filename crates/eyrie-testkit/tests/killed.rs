//! A process with several writers on a volume of pages is killed, again and again: what was acknowledged is there.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use eyrie::{MediumChoice, PagedOptions, Volume};
use eyrie_testkit::script::{Place, Script};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const WRITERS: usize = 3;
const KILLS: u64 = 200;
/// Kills that one volume goes through.
const LIVES: u64 = 20;
const VOLUME_BYTES: u64 = 64 << 20;
/// Tells the child its volume, and the steps of each writer so far.
const PLACE: &str = "EYRIE_TEST_KILLED_PLACE";
const STEPS: &str = "EYRIE_TEST_KILLED_STEPS";

fn paged() -> PagedOptions {
    PagedOptions { memory_bytes: 2 << 20, drain_interval: Duration::from_millis(50) }
}

fn create(path: &Path) {
    let options = Volume::options().size(VOLUME_BYTES).group_size(1 << 20);
    let volume = options.medium(MediumChoice::Paged).paged(paged()).create(path).expect("room");
    assert_eq!(volume.information().medium, "paged");
    volume.close().expect("the host is sound");
}

fn place(volume: &Volume, writer: usize) -> Place {
    Place::new(volume, &format!("/writer-{writer}")).expect("room")
}

/// Goes on where the volume is, until it is killed.
fn write_until_killed(path: &Path, steps: &str) {
    let steps: Vec<u64> = steps.split(',').map(|number| number.parse().expect("a number")).collect();
    let volume = Volume::open_with(path, paged()).expect("a volume");
    println!("\nopen");
    std::thread::scope(|scope| {
        for (writer, &number) in steps.iter().enumerate() {
            let volume = &volume;
            scope.spawn(move || {
                let place = place(volume, writer);
                let mut script = Script::found(writer as u64, &place, number).expect("as it was left");
                let mut random = SmallRng::seed_from_u64(number);
                loop {
                    script.step(&place).expect("room");
                    if random.random_ratio(1, 8) {
                        place.sync().expect("the host is sound");
                        println!("acknowledged {writer} {}", script.number());
                    }
                }
            });
        }
    });
}

/// Starts a child, kills it after a while, and gives what each writer had acknowledged: at least `steps`.
fn kill_one(path: &Path, mut steps: Vec<u64>, random: &mut SmallRng) -> Vec<u64> {
    let list = steps.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let mut child = Command::new(std::env::current_exe().expect("the test knows its program"))
        .args(["two_hundred_kills_lose_nothing_that_was_acknowledged", "--exact", "--nocapture"])
        .env(PLACE, path)
        .env(STEPS, list)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test can be started again");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (opened, is_open) = channel();
    let reader = std::thread::spawn(move || {
        let mut acknowledged = Vec::new();
        // A line that was cut off was not printed.
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["open"] => drop(opened.send(())),
                ["acknowledged", writer, number] => {
                    acknowledged.push((writer.parse::<usize>(), number.parse::<u64>()));
                }
                _ => {}
            }
        }
        acknowledged
    });
    // Now and then it is killed while it opens.
    let millis = if random.random_ratio(1, 6) {
        random.random_range(0..20)
    } else {
        is_open.recv().expect("it opens the volume");
        random.random_range(0..150)
    };
    std::thread::sleep(Duration::from_millis(millis));
    child.kill().expect("it is there");
    let status = child.wait().expect("it is there");
    assert_eq!(status.code(), None, "it ended by itself");
    let mut acknowledged = reader.join().expect("lines");
    // The last line may be a part of one.
    acknowledged.pop();
    for (writer, number) in acknowledged {
        let (writer, number) = (writer.expect("a number"), number.expect("a number"));
        assert!(steps[writer] <= number);
        steps[writer] = number;
    }
    steps
}

#[test]
fn two_hundred_kills_lose_nothing_that_was_acknowledged() {
    if let (Some(path), Ok(steps)) = (std::env::var_os(PLACE), std::env::var(STEPS)) {
        return write_until_killed(Path::new(&path), &steps);
    }
    let host = tempfile::tempdir().expect("a directory");
    let mut random = SmallRng::seed_from_u64(1);
    let (mut acknowledged, mut unheard) = (0, 0);
    for life in 0..KILLS / LIVES {
        let path = host.path().join(format!("volume-{life}"));
        create(&path);
        let mut steps = vec![0; WRITERS];
        for kill in 0..LIVES {
            let told = kill_one(&path, steps.clone(), &mut random);
            let volume = Volume::open_with(&path, paged()).expect("a volume");
            let report = volume.check().expect("the host is sound");
            assert!(report.is_clean(), "life {life}, kill {kill}: {:#?}", report.findings);
            for (writer, step) in steps.iter_mut().enumerate() {
                let place = place(&volume, writer);
                let script = Script::found(writer as u64, &place, told[writer]);
                let script = script.unwrap_or_else(|error| panic!("life {life}, kill {kill}: {error}"));
                acknowledged += told[writer] - *step;
                unheard += script.number() - told[writer];
                *step = script.number();
            }
            volume.close().expect("the host is sound");
        }
        std::fs::remove_dir_all(&path).expect("it is there");
    }
    println!("{acknowledged} steps were acknowledged, {unheard} more were there");
    assert!(acknowledged > 10 * KILLS);
}
