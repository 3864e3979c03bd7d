//! Threads whose calls no script has, or that are more than two.

use std::sync::{Arc, Mutex};

use eyrie::{Kvfs, PosixExt};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{REDO_SLOTS, redo_slot};
use eyrie_medium::{CrashImage, CrashPoint, ImageBase, Turns};

use super::super::ground::crashed;
use super::super::record::{Session, set_clock};
use super::super::recovered::{sound, usable};
use super::*;
use crate::compare::{Include, Tree, tree, try_tree};
use crate::script::{bytes, perform};

/// What threads do to one volume.
type Call<'a> = Box<dyn Fn(&Session) + Sync + 'a>;

/// A run of threads; bit *n* of a mark says that thread *n* is done.
struct Together {
    base: Vec<u8>,
    events: Vec<Event>,
    before: Tree,
    after: Tree,
}

/// Lets each thread make one call.
fn together(start: &Start, turns: &Arc<Turns>, calls: &[Call<'_>]) -> Together {
    let session = Session::open(start, &Plan::default()).expect("a volume");
    let base = session.files.engine().volume().medium().snapshot();
    let before = tree(&**session.files.engine());
    let done = Mutex::new(0);
    std::thread::scope(|scope| {
        for (number, call) in calls.iter().enumerate() {
            let (session, done) = (&session, &done);
            scope.spawn(move || {
                turns.take_part(number, || {
                    set_clock(session.started + 1);
                    call(session);
                    let mut done = done.lock().expect("no panic");
                    *done |= 1 << number;
                    session.recorder.mark(*done);
                });
            });
        }
    });
    let after = tree(&**session.files.engine());
    Together { base, events: session.recorder.take(), before, after }
}

impl Together {
    /// Opens so many images of each crash; `see` is told who was done, and what there is.
    fn crash(&self, images: u64, mut see: impl FnMut(&ImageBase, &CrashPoint, u64, &Tree)) {
        let mut points = CrashPoints::new(&self.base, &self.events).expect("memory");
        while let Some(point) = points.next() {
            for sample in 0..images {
                // The first image has lost everything that it may lose.
                let pick =
                    |line: usize| if sample == 0 { 0 } else { bytes::word(sample, line as u64) as usize };
                let picks = point.pending.values().enumerate();
                let picks = picks.map(|(line, stores)| pick(line) % (stores.len() + 1)).collect();
                let image = CrashImage::of(&point, picks);
                let engine = crashed(points.base(), image).and_then(Scm::open_on).expect("it opens");
                let found = try_tree(&engine, Include::ALL).expect("a tree");
                see(points.base(), &point, point.mark.unwrap_or(0), &found);
                sound(&engine).and_then(|()| usable(&engine)).unwrap_or_else(|what| panic!("{what}"));
            }
        }
    }
}

fn named<'a>(
    tree: &'a Tree,
    name: &str,
) -> impl Iterator<Item = (&'a Vec<Vec<u8>>, &'a crate::compare::Node)> {
    let name = name.as_bytes().to_vec();
    tree.nodes.iter().filter(move |(path, _)| path.first() == Some(&name))
}

/// The records that a recovery finds in `image`.
fn records(image: &[u8]) -> usize {
    let is_free = |&slot: &usize| image[redo_slot(slot).offset() as usize..][..8] == [0; 8];
    REDO_SLOTS - (0..REDO_SLOTS).filter(is_free).count()
}

#[test]
fn redo_slots_that_are_all_in_use_survive_every_crash() {
    const THREADS: usize = REDO_SLOTS + 1;
    let made = (0..THREADS).map(|n| {
        format!("mkdir /d{n}\nmkdir /d{n}/x\nmkdir /d{n}/y\ncreat /d{n}/x/a\nwrite /d{n}/x/a 0 9 {n}\ncreat /d{n}/y/b\n")
    });
    let start = Start::empty(Rule::Lines, 1 << 20).expect("room").after(&script(&made.collect::<String>()));
    let renames: Vec<Script> =
        (0..THREADS).map(|n| script(&format!("rename /d{n}/x/a /d{n}/y/b\n"))).collect();
    let rename = |script| -> Call<'_> {
        let script: &Script = script;
        Box::new(move |session| perform(&session.files, &script.lines()[0].call).expect("a rename"))
    };
    let calls: Vec<_> = renames.iter().map(rename).collect();
    let run = together(&start.expect("room"), &Turns::in_order(THREADS), &calls);
    let (mut most, mut images) = (0, 0);
    run.crash(30, |base, point, done, found| {
        for thread in 0..THREADS {
            let name = format!("d{thread}");
            let is = |tree| named(found, &name).eq(named(tree, &name));
            let may_be_undone = done & (1 << thread) == 0;
            assert!(
                is(&run.after) || may_be_undone && is(&run.before),
                "after {} events: thread {thread}",
                point.after
            );
        }
        most = most.max(records(&base.bytes()));
        images += 1;
    });
    assert_eq!(most, REDO_SLOTS, "never all of them");
    assert!(images > 2000, "only {images} images");
}

/// The second call finds that the first one, which has not returned, left it nothing to do.
#[test]
fn a_call_that_finds_its_work_done_lasts() {
    type Case = (&'static str, fn(&Session), fn(&Session), fn(&Tree) -> bool);
    let has_n = |tree: &Tree| named(tree, "n").next().is_some();
    let erase = |session: &Session| {
        let keys = Kvfs::open(&session.files, "/").expect("a directory");
        keys.erase("k2").map(drop).expect("a key or none");
    };
    let create = |session: &Session| {
        let opened = session.files.options().write(true).create(true).open("/n");
        drop(opened.expect("it is there"));
    };
    let cases: [Case; 2] =
        [("erase", erase, erase, |tree| named(tree, "k2").next().is_none()), ("open", create, create, has_n)];
    let start = start().after(&workload::setup()).expect("room");
    for (name, first, second, holds) in cases {
        for seed in (0..64).map(|store| 16 * store + 3) {
            let calls: [Call<'_>; 2] = [Box::new(first), Box::new(second)];
            let run = together(&start, &Turns::new(2, seed), &calls);
            run.crash(1, |_, _, done, found| {
                assert!(done & 2 == 0 || holds(found), "{name}, seed {seed}");
            });
        }
    }
}
