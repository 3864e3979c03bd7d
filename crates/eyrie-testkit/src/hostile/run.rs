//! Examines many images, each from a seed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{BaseVolume, Damage, DiskBase, Examined, HostileDisk, Image, examine};

/// Interval of the watch thread, which aborts the process if one image is in progress during a whole
/// interval. An image usually takes less than a millisecond, but the host may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The image of a seed.
pub struct Hostile<'b> {
    /// The damaged volume.
    pub image: Image<'b>,
    /// The changes that damaged the volume.
    pub damages: Vec<Damage>,
    /// True if the checksums are valid again.
    pub mended: bool,
}

impl<'b> Hostile<'b> {
    /// Makes the image of `seed`. Equal bases and seeds give equal images.
    pub fn new(bases: &'b [BaseVolume], seed: u64) -> Hostile<'b> {
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

/// Counts of images by result.
#[derive(Clone, Default, Debug)]
pub struct HostileReport {
    /// All images.
    pub images: u64,
    /// Images that the engine refused to open.
    pub refused: u64,
    /// Images in which the check before the changes failed or found problems.
    pub broken: u64,
    /// Images in which the check before the changes found no problem.
    pub sound: u64,
    /// Seeds whose image caused a panic.
    pub panicked: Vec<u64>,
}

impl HostileReport {
    /// Adds another report.
    pub(super) fn add(&mut self, other: &HostileReport) {
        self.images += other.images;
        self.refused += other.refused;
        self.broken += other.broken;
        self.sound += other.sound;
        self.panicked.extend(&other.panicked);
    }
}

/// Examines the images of these seeds. Calls `on_progress` with the report so far after each image.
///
/// A panic of any thread of the process counts for the image that is examined at this moment. So a process
/// makes one run at a time.
///
/// If one image is in progress during a whole interval of the watch thread (one minute), the process prints
/// the seed and aborts. The engine is then probably in an endless loop.
pub fn run(
    bases: &[BaseVolume],
    seeds: Range<u64>,
    on_progress: impl FnMut(&HostileReport),
) -> HostileReport {
    let examined = |seed| examine(Hostile::new(bases, seed).image.medium());
    let describe = |seed| {
        let Hostile { image, damages, .. } = Hostile::new(bases, seed);
        format!("{}: {damages:?}", image.base.name)
    };
    run_each(seeds, examined, describe, on_progress)
}

/// Works like [`run`], for hostile disks.
pub fn run_disks(
    bases: &[DiskBase],
    seeds: Range<u64>,
    on_progress: impl FnMut(&HostileReport),
) -> HostileReport {
    let examined = |seed| HostileDisk::new(bases, seed).examine();
    let describe = |seed| {
        let HostileDisk { base, damages, mended, pages_are_mended, .. } = HostileDisk::new(bases, seed);
        format!("{}, checksums mended: {mended}, of pages: {pages_are_mended}: {damages:?}", base.name)
    };
    run_each(seeds, examined, describe, on_progress)
}

fn run_each(
    seeds: Range<u64>,
    examined: impl Fn(u64) -> Examined,
    describe: impl Fn(u64) -> String,
    mut on_progress: impl FnMut(&HostileReport),
) -> HostileReport {
    let mut report = HostileReport::default();
    let (now, (over, ended)) = (AtomicU64::new(seeds.start), channel::<()>());
    let (now, panics) = (&now, panics());
    thread::scope(|scope| {
        scope.spawn(move || watch(now, &ended));
        for seed in seeds {
            now.store(seed, Ordering::Relaxed);
            let before = panics.load(Ordering::Relaxed);
            let examined = catch_unwind(AssertUnwindSafe(|| examined(seed)));
            report.images += 1;
            match examined {
                Ok(Examined::Refused) => report.refused += 1,
                Ok(Examined::Broken) => report.broken += 1,
                Ok(Examined::Sound) => report.sound += 1,
                Err(_) => {}
            }
            if panics.load(Ordering::Relaxed) != before {
                eprintln!("the image of seed {seed} caused a panic: {}", describe(seed));
                report.panicked.push(seed);
            }
            on_progress(&report);
        }
        drop(over);
    });
    report
}

/// Returns the count of panics of this process since the first call of this function. The count includes
/// panics of threads that are never joined.
fn panics() -> &'static AtomicU64 {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            print(panic);
        }));
    });
    &PANICS
}

/// Aborts the process if one image takes too long.
fn watch(now: &AtomicU64, ended: &Receiver<()>) {
    let mut last = now.load(Ordering::Relaxed);
    while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        let seed = now.load(Ordering::Relaxed);
        if seed == last {
            eprintln!("the image of seed {seed} takes too long");
            std::process::abort();
        }
        last = seed;
    }
}
