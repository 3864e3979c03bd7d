//! This check runs more threads than there are redo slots. Each thread makes a rename. If the power fails in
//! the middle of the renames, a recovery may find records in all slots.

use std::sync::{Arc, Mutex};

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{REDO_SLOTS, redo_slot};
use eyrie_faults::{CrashImage, CrashPoint, CrashPoints, Event, FaultPlan, ImageBase, ThreadSchedule};

use eyrie_medium::sync::unpoisoned;

use super::images::{Counts, Images, Limits};
use super::medium::crashed;
use super::record::{RecordSession, StartVolume, set_clock};
use super::recovered::{caught, sound, usable};
use crate::compare::{Tree, TreeNode, TreeParts, tree, try_tree};
use crate::script::{Script, perform};

/// A call of a thread.
pub(super) type ThreadCall<'a> = Box<dyn Fn(&RecordSession) + Sync + 'a>;

/// A function that gets the durable bytes at a crash, the crash point, a number with one bit for each thread
/// whose call had returned, and the recovered tree. It returns false to stop.
pub(super) type See<'a> = dyn FnMut(&ImageBase, &CrashPoint, u64, &Tree) -> Result<bool, String> + 'a;

/// A run of threads. Bit *n* of a mark is set once the call of thread *n* has returned.
pub(super) struct Together {
    base: Vec<u8>,
    events: Vec<Event>,
    pub(super) before: Tree,
    pub(super) after: Tree,
}

/// Lets each thread make one call.
pub(super) fn together(
    start: &StartVolume,
    turns: &Arc<ThreadSchedule>,
    calls: &[ThreadCall<'_>],
) -> Result<Together, String> {
    let session = RecordSession::open(start, &FaultPlan::default()).map_err(|error| error.to_string())?;
    let base = session.files.engine().volume().medium().snapshot();
    let before = tree(&**session.files.engine());
    let done = Mutex::new(0);
    std::thread::scope(|scope| {
        for (number, call) in calls.iter().enumerate() {
            let (session, done) = (&session, &done);
            scope.spawn(move || {
                turns.run_thread(number, || {
                    set_clock(session.started + 1);
                    call(session);
                    let mut done = unpoisoned(done.lock());
                    *done |= 1 << number;
                    session.recorder.mark(*done);
                });
            });
        }
    });
    let after = tree(&**session.files.engine());
    Ok(Together { base, events: session.recorder.take(), before, after })
}

impl Together {
    /// Opens up to `images` images of each crash, and calls `see` for each.
    pub(super) fn crash(&self, images: u64, see: &mut See<'_>) -> Result<(), String> {
        let limits = Limits { images: 1, sampled: images - 1, is_complete: false, recoveries: 0 };
        let mut points = CrashPoints::new(&self.base, &self.events).map_err(|error| error.to_string())?;
        while let Some(point) = points.next() {
            let mut images = Images::new(limits, point.after);
            while let Some(picks) = images.next_picks() {
                let image = CrashImage::of(&point, picks);
                let engine = crashed(points.base(), image.clone()).and_then(Scm::open_on);
                let engine = engine.map_err(|error| format!("open: {error}"))?;
                let found = try_tree(&engine, TreeParts::ALL).map_err(|error| error.to_string())?;
                images.add_choices(&image.choices());
                if !see(points.base(), &point, point.mark.unwrap_or(0), &found)? {
                    return Ok(());
                }
                sound(&engine).and_then(|()| usable(&engine))?;
            }
        }
        Ok(())
    }
}

/// Returns the part of a tree at and below `name`, an entry of the root.
pub(super) fn named<'a>(
    tree: &'a Tree,
    name: &str,
) -> impl Iterator<Item = (&'a Vec<Vec<u8>>, &'a TreeNode)> {
    let name = name.as_bytes().to_vec();
    tree.nodes.iter().filter(move |(path, _)| path.first() == Some(&name))
}

/// Returns the number of redo records that a recovery finds in `image`.
fn records(image: &[u8]) -> usize {
    let is_free = |&slot: &usize| image[redo_slot(slot).offset() as usize..][..8] == [0; 8];
    REDO_SLOTS - (0..REDO_SLOTS).filter(is_free).count()
}

/// Starts one thread more than there are redo slots. Each thread renames a file below a directory of its own,
/// and the power fails at every fence. Opens up to `images` images of each crash. Returns the counts, and the
/// largest number of records that a crash left.
///
/// # Errors
/// Fails at the first image in which a rename is torn, a rename that had returned is undone, or the volume is
/// not sound and usable.
pub(super) fn explore(
    empty: &StartVolume,
    images: u64,
    should_continue: &mut dyn FnMut() -> bool,
) -> Result<(Counts, usize), String> {
    const THREADS: usize = REDO_SLOTS + 1;
    let parse = |text: &str| Script::parse("redo slots", text.as_bytes()).expect("a constant script");
    let made = (0..THREADS).map(|n| {
        format!(
            "mkdir /d{n}\nmkdir /d{n}/x\nmkdir /d{n}/y\ncreat /d{n}/x/a\nwrite /d{n}/x/a 0 9 {n}\n\
             creat /d{n}/y/b\n"
        )
    });
    let start = empty.after_script(&parse(&made.collect::<String>())).map_err(|error| error.to_string())?;
    let renames: Vec<Script> =
        (0..THREADS).map(|n| parse(&format!("rename /d{n}/x/a /d{n}/y/b\n"))).collect();
    let rename = |script| -> ThreadCall<'_> {
        let script: &Script = script;
        Box::new(move |session| perform(&session.files, &script.lines()[0].call).expect("a rename"))
    };
    let calls: Vec<_> = renames.iter().map(rename).collect();
    let mut explored = || {
        let run = together(&start, &ThreadSchedule::in_order(THREADS), &calls)?;
        let (mut most, mut counts) = (0, Counts::default());
        let mut last = None;
        run.crash(images, &mut |base, point, done, found| {
            if last.replace(point.after) != Some(point.after) {
                counts.points += 1;
                if !should_continue() {
                    return Ok(false);
                }
                most = most.max(records(&base.bytes()));
            }
            counts.images += 1;
            for thread in 0..THREADS {
                let name = format!("d{thread}");
                let is = |tree| named(found, &name).eq(named(tree, &name));
                let may_be_undone = done & (1 << thread) == 0;
                if !(is(&run.after) || may_be_undone && is(&run.before)) {
                    return Err(format!(
                        "after {} events: the rename of thread {thread} is torn, or undone after its return",
                        point.after
                    ));
                }
            }
            Ok(true)
        })?;
        Ok((counts, most))
    };
    caught(&mut explored).unwrap_or_else(Err)
}
