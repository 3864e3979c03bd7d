//! More threads than redo slots, all of which hold records when power fails.

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{REDO_SLOTS, redo_slot};
use eyrie_medium::{CrashImage, Turns};

use super::super::ground::crashed;
use super::super::record::{Session, set_clock};
use super::super::recovered::{sound, usable};
use super::*;
use crate::compare::{Include, Tree, tree, try_tree};
use crate::script::{bytes, perform};

const THREADS: usize = REDO_SLOTS + 1;
/// Images of one crash that are opened.
const IMAGES: u64 = 30;

/// What a tree holds in one directory of the root, and the directory.
fn part(tree: &Tree, thread: usize) -> Tree {
    let name = format!("d{thread}").into_bytes();
    let of = tree.nodes.iter().filter(|(path, _)| path.first() == Some(&name));
    Tree { nodes: of.map(|(path, node)| (path.clone(), node.clone())).collect() }
}

/// What the volume holds before and after the renames, and the run; bit *n* of a mark says that thread *n* was done.
struct Renames {
    base: Vec<u8>,
    events: Vec<Event>,
    before: Tree,
    after: Tree,
}

/// One rename of each thread, from one directory of its own to another, over a name that is there; all go on store by store.
fn renames() -> Renames {
    let made = (0..THREADS).map(|n| {
        format!("mkdir /d{n}\nmkdir /d{n}/x\nmkdir /d{n}/y\ncreat /d{n}/x/a\nwrite /d{n}/x/a 0 9 {n}\ncreat /d{n}/y/b\n")
    });
    let calls: Vec<Script> = (0..THREADS).map(|n| script(&format!("rename /d{n}/x/a /d{n}/y/b\n"))).collect();
    let start = Start::empty(Rule::Lines, 1 << 20).expect("room").after(&script(&made.collect::<String>()));
    let session = Session::open(&start.expect("room"), &Plan::default()).expect("a volume");
    let base = session.files.engine().volume().medium().snapshot();
    let before = tree(&**session.files.engine());
    let (turns, done, seconds) = (Turns::in_order(THREADS), std::sync::Mutex::new(0), session.started + 1);
    std::thread::scope(|scope| {
        for (number, script) in calls.iter().enumerate() {
            let (turns, done, session) = (&turns, &done, &session);
            scope.spawn(move || {
                turns.take_part(number, || {
                    set_clock(seconds);
                    perform(&session.files, &script.lines()[0].call).expect("a rename");
                    let mut done = done.lock().expect("no panic");
                    *done |= 1 << number;
                    session.recorder.mark(*done);
                });
            });
        }
    });
    let after = tree(&**session.files.engine());
    Renames { base, events: session.recorder.take(), before, after }
}

/// The records that a recovery finds in `image`.
fn records(image: &[u8]) -> usize {
    let is_free = |&slot: &usize| image[redo_slot(slot).offset() as usize..][..8] == [0; 8];
    REDO_SLOTS - (0..REDO_SLOTS).filter(is_free).count()
}

#[test]
fn redo_slots_that_are_all_in_use_survive_every_crash() {
    let (mut most, mut images) = (0, 0);
    let Renames { base, events, before, after } = renames();
    let mut points = CrashPoints::new(&base, &events).expect("memory");
    while let Some(point) = points.next() {
        for sample in 0..IMAGES {
            // The first image has lost everything that it may lose.
            let pick = |line: usize| {
                if sample == 0 { 0 } else { bytes::word(sample, line as u64) as usize }
            };
            let picks =
                point.pending.values().enumerate().map(|(line, stores)| pick(line) % (stores.len() + 1));
            let image = CrashImage::of(&point, picks.collect());
            let engine = crashed(points.base(), image).and_then(Scm::open_on).expect("it opens");
            let found = try_tree(&engine, Include::ALL).expect("a tree");
            let done = point.mark.unwrap_or(0);
            for thread in 0..THREADS {
                let is_whole = part(&found, thread) == part(&after, thread);
                let may_be_undone = done & (1 << thread) == 0;
                let is_undone = may_be_undone && part(&found, thread) == part(&before, thread);
                assert!(is_whole || is_undone, "after {} events: thread {thread}", point.after);
            }
            sound(&engine).and_then(|()| usable(&engine)).unwrap_or_else(|what| panic!("{what}"));
            images += 1;
        }
        most = most.max(records(&points.base().bytes()));
    }
    assert_eq!(most, REDO_SLOTS, "never all of them");
    assert!(images > 2000, "only {images} images");
}
