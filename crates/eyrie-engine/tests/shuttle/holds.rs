//! Tests of holds while another thread unlinks the held object, or closes it for the last time.

use super::*;

/// Unlinks a name in the root directory.
fn unlink(engine: &Scm, root: ObjectId, name: &[u8]) {
    engine.apply(&Op::Unlink { dir: root, name, time: LATER }).expect("there is such a name");
}

/// Checks that one object was freed, and that it was freed once.
fn check_one_was_freed(engine: &Scm, objects: u64) {
    assert!(engine.reclaim(), "no pin is left");
    let report = engine.check().expect("sound");
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!((engine.space().objects, engine.volume().space().refused_frees()), (objects - 1, 0));
}

#[test]
fn hold_beside_an_unlink_keeps_the_object_or_fails() {
    let _alone = alone();
    let start = Start::make();
    let held = Arc::new(AtomicUsize::new(0));
    let refused = Arc::new(AtomicUsize::new(0));
    let counts = (Arc::clone(&held), Arc::clone(&refused));
    run(Bursts::new(1, 1500), move || {
        let engine = start.open();
        start.fresh.iter().for_each(|&id| engine.unreserve(id));
        let (root, target, objects) = (start.dirs[0], start.key, engine.space().objects);
        let unlinking = shuttle::thread::spawn({
            let engine = Arc::clone(&engine);
            move || unlink(&engine, root, b"k")
        });
        let holders: Vec<_> = (0..2)
            .map(|_| {
                let (engine, counts) = (Arc::clone(&engine), counts.clone());
                shuttle::thread::spawn(move || {
                    // This pin stands for the look-up that found the object.
                    let pin = epoch::pin();
                    let result = engine.hold(target);
                    drop(pin);
                    match result {
                        Ok(()) => {
                            counts.0.fetch_add(1, Ordering::Relaxed);
                            engine.attributes(target).expect("a held object is there");
                            engine.release(target, 1);
                        }
                        Err(Error::Stale) => drop(counts.1.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => panic!("{error}"),
                    }
                })
            })
            .collect();
        for thread in holders {
            thread.join().expect("no panic");
        }
        unlinking.join().expect("no panic");
        check_one_was_freed(&engine, objects);
    });
    let (held, refused) = (held.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    assert!(held > 100 && refused > 100, "both happen: {held} holds, {refused} refusals");
}

#[test]
fn last_hold_and_last_close_free_an_orphan_once() {
    let _alone = alone();
    let start = Start::make();
    for unlinked_before in [true, false] {
        let start = start.clone();
        run(Bursts::new(2, 1000), move || {
            let engine = start.open();
            start.fresh.iter().for_each(|&id| engine.unreserve(id));
            let (root, target, objects) = (start.dirs[0], start.key, engine.space().objects);
            engine.open(target).expect("there");
            engine.hold(target).expect("there");
            engine.hold(target).expect("there");
            if unlinked_before {
                unlink(&engine, root, b"k");
            }
            let start_thread = |work: fn(&Scm, ObjectId)| {
                let engine = Arc::clone(&engine);
                shuttle::thread::spawn(move || work(&engine, target))
            };
            let threads =
                [start_thread(Engine::close), start_thread(|engine, target| engine.release(target, 1))];
            engine.attributes(target).expect("the second hold keeps the object");
            engine.release(target, 1);
            if !unlinked_before {
                unlink(&engine, root, b"k");
            }
            for thread in threads {
                thread.join().expect("no panic");
            }
            check_one_was_freed(&engine, objects);
        });
    }
}
