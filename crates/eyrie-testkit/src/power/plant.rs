//! Plants bugs in the medium `paged`: leaves out a flush, a write or a checksum. [`plant`] tells for each bug
//! if a trial noticed it.
//!
//! The trials simulate power failures between Ops, at writes and flushes of drains and recoveries, and after
//! the creation of a journal. One trial damages the anchor. The trials also simulate kills of the process at
//! writes and flushes of drains. Power then fails in the recoveries of the volumes that the killed processes
//! left.

use std::ops::Range;

use eyrie_faults::{FaultPlan, SimulatedDisk};
use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Blocks, LINE_SIZE, Medium, PAGE_SIZE};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{DiskSizes, PowerRun};
use crate::planted::{Planted, plant_each};

/// Number of pages of the volumes in these trials.
const PAGES: u64 = 512;
const SMALL: DiskSizes = DiskSizes { volume_bytes: PAGES * PAGE_SIZE, memory_bytes: 1 << 20 };
/// A disk with memory for every page, so that no page is evicted.
const ROOMY: DiskSizes = DiskSizes { volume_bytes: PAGES * PAGE_SIZE, memory_bytes: 16 * PAGES * PAGE_SIZE };

/// Number of power failures that are simulated at each moment. After each of them the disk is opened once,
/// without a further failure. A power failure keeps a random set of the unflushed sector writes.
const WAYS: u64 = 8;
/// Maximum number of calls at which power fails in each sequence of consecutive calls from one site (a line
/// of the sources). Power fails at the first calls. The later calls of such a sequence differ little.
const ALIKE: u64 = 2;

type Verdict = Result<(), String>;

/// The trials. Each returns an error or panics if a volume is wrong after a failure or after damage.
const TRIALS: [fn(&FaultPlan) -> Verdict; 5] = [anchors, extension, scripted, interrupted_ops, ops];

/// Leaves out each point that any of the trials meets, one at a time, and runs the trials that meet it.
///
/// # Panics
/// Panics if a trial fails while no point is left out.
pub fn plant() -> Vec<Planted> {
    let trials = TRIALS.map(|trial| {
        let plan = FaultPlan::default();
        trial(&plan).unwrap_or_else(|what| panic!("nothing is left out: {what}"));
        (plan.points().into_keys().collect(), trial)
    });
    plant_each(&trials, |trial, site| trial(&FaultPlan::without(Some(site))).err())
}

fn to_message(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The byte that fills each page, or `None` for a free page.
type Contents = Vec<Option<u8>>;

/// A step of a run on a medium.
#[derive(Clone, Debug)]
enum MediumStep {
    /// Stores to pages in use.
    StorePages(Range<u64>, u8),
    /// Allocates free pages, and stores to them.
    Allocate(Range<u64>, u8),
    /// Frees pages in use.
    Free(Range<u64>),
    /// Stores to the first line of a page whose number is [`LINES`] or higher.
    StoreLine(u64, u8),
    /// Drains the medium.
    Drain,
    /// Makes a checkpoint.
    Checkpoint,
}

/// First of the pages of which only the first line is used.
const LINES: u64 = 480;
/// Free pages that each step with a store lends to the journal, in case the changed lines need more room than
/// the journal has. The steps allocate none of these pages.
const LENT: Range<usize> = 400..480;

/// Returns steps whose cuts have few pages, many pages, lines or fresh pages. The steps fill the journal.
/// They also free pages, and allocate these pages again.
fn script() -> Vec<MediumStep> {
    use MediumStep::{Allocate, Checkpoint, Drain, Free, StoreLine, StorePages};
    let lines = (1..4).flat_map(|byte| [StoreLine(LINES, byte), Drain]);
    let mut script: Vec<MediumStep> = lines.collect();
    // After the checkpoint the journal starts over. Its next record is longer than each record before the
    // checkpoint, so this record overwrites several old ones.
    script.extend([Checkpoint, StorePages(0..2, 8), StoreLine(LINES + 1, 1), Drain]);
    script.extend(vec![
        StorePages(0..3, 1),
        Drain,
        StorePages(1..4, 2),
        Allocate(10..14, 2),
        Drain,
        Allocate(20..60, 3),
        StoreLine(LINES + 2, 3),
        Drain,
        Free(20..60),
        Drain,
        Allocate(20..60, 4),
        StoreLine(LINES + 2, 4),
        Drain,
        Checkpoint,
        StorePages(100..200, 5),
        StorePages(2..3, 5),
        Drain,
        Free(2..3),
        StorePages(0..1, 6),
        Drain,
        Allocate(2..3, 7),
        StorePages(200..360, 7),
        Drain,
        Free(100..360),
        Drain,
        Allocate(100..400, 8),
        StorePages(0..1, 8),
        Drain,
        StorePages(0..2, 9),
        Drain,
    ]);
    script
}

/// Returns the contents at the start. Pages that the script allocates without freeing them before are free.
fn blank() -> Contents {
    let mut contents = vec![Some(0); PAGES as usize];
    for free in [10..14, 20..60, 360..400, LENT] {
        contents[free].fill(None);
    }
    contents
}

fn place(page: u64) -> Addr {
    Addr::from_raw(page * PAGE_SIZE)
}

fn store(medium: &Medium, pages: &Range<u64>, byte: u8, len: u64, is_new: bool) -> Verdict {
    let _gate = medium.enter_with(|| u64::MAX).map_err(to_message)?;
    medium.lend(place(LENT.start as u64), LENT.len() as u64 * PAGE_SIZE).map_err(to_message)?;
    let _pin = pin();
    let bytes = (pages.end - pages.start) * PAGE_SIZE;
    if is_new {
        medium.mark_allocated(place(pages.start), bytes).map_err(to_message)?;
    }
    for page in pages.clone() {
        let dirty = medium.write(place(page), &vec![byte; len as usize]).map_err(to_message)?;
        let _ordered = medium.barrier(dirty);
    }
    Ok(())
}

/// Makes a step. Returns true if all changes up to this step are durable.
fn perform(medium: &Medium, contents: &mut Contents, step: &MediumStep) -> Result<bool, String> {
    let (pages, becomes) = match step {
        MediumStep::StorePages(pages, byte) | MediumStep::Allocate(pages, byte) => {
            store(medium, pages, *byte, PAGE_SIZE, matches!(step, MediumStep::Allocate(..)))?;
            (pages.clone(), Some(*byte))
        }
        MediumStep::StoreLine(page, byte) => {
            store(medium, &(*page..page + 1), *byte, LINE_SIZE, false)?;
            (*page..page + 1, Some(*byte))
        }
        MediumStep::Free(pages) => {
            let _ = medium.mark_freed(place(pages.start), (pages.end - pages.start) * PAGE_SIZE);
            (pages.clone(), None)
        }
        MediumStep::Drain => return medium.drain().map(|()| true).map_err(to_message),
        MediumStep::Checkpoint => return medium.checkpoint().map(|()| true).map_err(to_message),
    };
    contents[pages.start as usize..pages.end as usize].fill(becomes);
    Ok(false)
}

/// Opens copies of the disk that `left` returns, with a power failure at some of the calls of the open. The
/// contents must be one of `states`.
fn survives(left: &dyn Fn() -> SimulatedDisk, states: &[Contents], random: &mut SmallRng) -> Verdict {
    let whole = left();
    let before = whole.calls();
    is_one_of(&ROOMY.mount(&whole).map_err(to_message)?, states)?;
    let calls = whole.calls() - before;
    // A replay may write hundreds of pages by similar calls. Only the first and the last calls differ, so the
    // loop tries at most one call between them.
    let middle = (calls > 8).then(|| random.random_range(4..calls - 4));
    for call in (1..=calls).filter(|&call| call < 3 || call + 2 > calls || Some(call) == middle) {
        let opened = left();
        opened.fail_at(call, true);
        if ROOMY.mount(&opened).is_ok() {
            return Err(format!("the open succeeds although call {call} fails"));
        }
        let odds = random.random_range(0..=4);
        let medium =
            ROOMY.mount(&opened.power_failure(|| random.random_range(0..4) < odds)).map_err(to_message)?;
        is_one_of(&medium, states)
            .map_err(|what| format!("power failed in opening, at call {call}: {what}"))?;
    }
    Ok(())
}

/// Fails unless the pages in use have the bytes of one of `states`. Free pages may have any bytes.
fn is_one_of(medium: &Medium, states: &[Contents]) -> Verdict {
    let _pin = pin();
    let mut bytes = vec![0; (PAGES * PAGE_SIZE) as usize];
    medium.read(Addr::NULL, &mut bytes).map_err(to_message)?;
    let used = |number| if number < LINES { PAGE_SIZE } else { LINE_SIZE } as usize;
    let pages = bytes.chunks(PAGE_SIZE as usize).zip(0..).map(|(page, number)| &page[..used(number)]);
    let full_of: Vec<_> = pages.map(|page| (page[1..] == page[..page.len() - 1]).then(|| page[0])).collect();
    let differs = |state: &Contents| {
        let mut pages = full_of.iter().zip(state);
        pages.position(|(found, wanted)| wanted.is_some() && found != wanted)
    };
    let wrong: Vec<_> = states.iter().map(differs).collect();
    if wrong.contains(&None) {
        return Ok(());
    }
    Err(format!(
        "the pages match no moment since the last acknowledged cut; for each, the first wrong page: {wrong:?}"
    ))
}

/// A run of the script on a disk. From a chosen write or flush on, all writes and flushes fail, as at a power
/// failure.
struct Interrupted {
    disk: SimulatedDisk,
    /// The contents that the disk may have after the failure.
    states: Vec<Contents>,
    /// True if no call failed.
    is_complete: bool,
}

impl Interrupted {
    /// Runs the script on a new disk, whose writes and flushes fail from number `call` on.
    fn at(plan: &FaultPlan, call: u64) -> Result<Interrupted, String> {
        let (medium, disk) = ROOMY.medium(plan).map_err(to_message)?;
        let mut states = vec![blank()];
        let (mut acknowledged, mut is_complete) = (0, true);
        disk.fail_at(call, true);
        for step in script() {
            let mut contents = states.last().expect("at least the first").clone();
            let done = perform(&medium, &mut contents, &step);
            states.push(contents);
            match done {
                Ok(true) => acknowledged = states.len() - 1,
                Ok(false) => {}
                Err(_) => {
                    is_complete = false;
                    break;
                }
            }
        }
        states.drain(..acknowledged);
        Ok(Interrupted { disk, states, is_complete })
    }

    /// Opens the disk after each of [`WAYS`] power failures. Then lets power fail inside the opens that
    /// follow one more power failure, and inside the opens that follow a kill.
    fn survives(&self, random: &mut SmallRng) -> Verdict {
        let mut fail = || {
            let odds = random.random_range(0..=4);
            self.disk.power_failure(|| random.random_range(0..4) < odds)
        };
        for _ in 0..WAYS {
            is_one_of(&ROOMY.mount(&fail()).map_err(to_message)?, &self.states)?;
        }
        let after = fail();
        survives(&|| after.power_failure(|| true), &self.states, random)?;
        survives(&|| self.disk.killed(), &self.states, random).map_err(|what| format!("killed: {what}"))
    }
}

/// Lets power fail at the writes and flushes of the disk. Of consecutive calls from one site, power fails
/// only at the first [`ALIKE`].
fn scripted(plan: &FaultPlan) -> Verdict {
    let mut last = (None, 0);
    for call in 1.. {
        let interrupted = Interrupted::at(plan, call)?;
        let site = plan.last_point();
        last = (site, if last.0 == site { last.1 + 1 } else { 0 });
        if last.1 < ALIKE {
            let mut random = SmallRng::seed_from_u64(call);
            interrupted
                .survives(&mut random)
                .map_err(|what| format!("power failed at call {call}: {what}"))?;
        }
        if interrupted.is_complete {
            break;
        }
    }
    Ok(())
}

/// Lets power fail between Ops of an engine.
fn ops(plan: &FaultPlan) -> Verdict {
    for seed in 0..8 {
        let mut run = PowerRun::with_plan(SMALL, seed, plan).map_err(to_message)?;
        for step in 0..60 {
            run.step().map_err(to_message)?;
            if step % 3 == 2 {
                run.power_failure(&format!("seed {seed}, step {step}"));
            }
        }
    }
    Ok(())
}

/// Lets power fail inside the drains of an engine.
fn interrupted_ops(plan: &FaultPlan) -> Verdict {
    for call in 1..40 {
        let mut run = PowerRun::with_plan(SMALL, 5, plan).map_err(to_message)?;
        run.simulated().fail_at(call, true);
        // The run ends at the first step that returns an error. Power fails at this moment.
        let _ = (0..60).find_map(|_| run.step().err());
        run.power_failure(&format!("at call {call}"));
    }
    Ok(())
}

/// Checks that a new journal past the end of a volume is durable when [`Medium::extend_paged`] returns.
fn extension(plan: &FaultPlan) -> Verdict {
    let disk = ROOMY.blank(plan);
    Medium::extend_paged(&disk, PAGES * PAGE_SIZE, false).map_err(to_message)?;
    ROOMY.mount(&disk.power_failure(|| false)).map(drop).map_err(to_message)
}

/// Damages each of the first 64 bytes of the anchor in turn. These bytes hold the fields of the anchor. The
/// open must fail, or find the same contents.
fn anchors(plan: &FaultPlan) -> Verdict {
    let (medium, disk) = ROOMY.medium(plan).map_err(to_message)?;
    let mut contents = vec![Some(0); PAGES as usize];
    for step in [MediumStep::StorePages(0..3, 1), MediumStep::Drain] {
        perform(&medium, &mut contents, &step)?;
    }
    let size = disk.size().map_err(to_message)?;
    let mut page = vec![0; PAGE_SIZE as usize];
    disk.read(size - PAGE_SIZE, &mut page).map_err(to_message)?;
    for at in 0..64 {
        let damaged = disk.power_failure(|| true);
        page[at] ^= 0xff;
        damaged.write(size - PAGE_SIZE, &page).map_err(to_message)?;
        page[at] ^= 0xff;
        if let Ok(medium) = ROOMY.mount(&damaged) {
            is_one_of(&medium, &[contents.clone()])
                .map_err(|what| format!("byte {at} of the anchor: {what}"))?;
        }
    }
    Ok(())
}
