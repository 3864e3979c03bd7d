//! Runs many images, each from a seed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Base, Damage, Examined, Image, examine};

/// What a single image may take. It takes less than a millisecond, but on a host with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// The image of a seed.
pub struct Hostile<'b> {
    /// The volume, damaged.
    pub image: Image<'b>,
    /// What was done to it.
    pub damages: Vec<Damage>,
    /// Whether the checksums are right again.
    pub mended: bool,
}

impl<'b> Hostile<'b> {
    /// Makes the image of `seed`: the same from the same bases.
    pub fn new(bases: &'b [Base], seed: u64) -> Hostile<'b> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut image = Image::new(&bases[random.random_range(0..bases.len())]);
        let count = if random.random() { 1 } else { random.random_range(2..=5) };
        let mut damages: Vec<Damage> = (0..count).map(|_| Damage::draw(&mut random, image.base)).collect();
        if random.random() {
            damages.push(Damage::Unclean);
        }
        damages.iter().for_each(|damage| damage.apply(&mut image));
        let mended = random.random();
        if mended {
            image.mend_checksums();
        }
        Hostile { image, damages, mended }
    }
}

/// How many images let themselves be used how far.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Images.
    pub images: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Those in which a check found something.
    pub broken: u64,
    /// Those that look sound.
    pub sound: u64,
    /// Seeds at which something panicked.
    pub panicked: Vec<u64>,
}

/// Examines the images of these seeds. `told` hears of each that is done.
///
/// If one takes so long that it must have been caught in it, the process ends, after a line with its seed.
pub fn run(bases: &[Base], seeds: Range<u64>, mut told: impl FnMut(&Report)) -> Report {
    let mut report = Report::default();
    let (now, (over, ended)) = (AtomicU64::new(seeds.start), channel::<()>());
    let now = &now;
    thread::scope(|scope| {
        scope.spawn(move || watch(now, &ended));
        for seed in seeds {
            now.store(seed, Ordering::Relaxed);
            let hostile = Hostile::new(bases, seed);
            let examined = catch_unwind(AssertUnwindSafe(|| examine(hostile.image.medium())));
            report.images += 1;
            match examined {
                Ok(Examined::Refused) => report.refused += 1,
                Ok(Examined::Broken) => report.broken += 1,
                Ok(Examined::Sound) => report.sound += 1,
                Err(_) => {
                    eprintln!("seed {seed} of {} panicked: {:?}", hostile.image.base.name, hostile.damages);
                    report.panicked.push(seed);
                }
            }
            told(&report);
        }
        drop(over);
    });
    report
}

/// Ends the process when one image takes all patience.
fn watch(now: &AtomicU64, ended: &Receiver<()>) {
    let mut last = now.load(Ordering::Relaxed);
    while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        let seed = now.load(Ordering::Relaxed);
        if seed == last {
            eprintln!("seed {seed} does not end");
            std::process::abort();
        }
        last = seed;
    }
}
