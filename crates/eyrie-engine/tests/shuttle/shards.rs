//! Tests of Ops that change entries of one directory at the same time, under the locks of different shards.

use super::*;

/// Returns the names that a thread adds, and the Ops of that thread. The Ops of different threads concern
/// different names, so all of them succeed.
fn ops_of(start: &Start, thread: usize) -> (Vec<Vec<u8>>, Vec<OpRecord>) {
    let (dir, owner, time) = (start.dirs[1], OWNER, LATER);
    let added: Vec<_> = (0..5).map(|n| format!("thread-{thread}-{n}").into_bytes()).collect();
    let create = |n: usize| {
        let (id, content) = (start.fresh[thread * 6 + n], Content::Bytes(OLD));
        OpRecord::new(&Op::Create { dir, name: &added[n], id, owner, content, time })
    };
    let put = |n: usize| {
        OpRecord::new(&Op::Put {
            dir,
            name: &added[n],
            id: start.fresh[thread * 6 + n],
            owner,
            data: OLD,
            time,
        })
    };
    let rename = OpRecord::new(&Op::Rename {
        from_dir: dir,
        from_name: &entry(thread),
        to_dir: dir,
        to_name: &added[4],
        mode: RenameMode::NoReplace,
        whiteout: None,
        time,
    });
    let unlink = OpRecord::new(&Op::Unlink { dir, name: &entry(thread + 2), time });
    let ops = vec![create(0), put(1), rename, create(2), unlink, put(3)];
    (added, ops)
}

#[test]
fn ops_in_one_growing_directory_keep_every_entry() {
    let _alone = alone();
    for (seed, entries) in (0..).zip((8..230).step_by(6)) {
        let mut start = Start::make_with(entries);
        let dir = start.dirs[1];
        start.known = (entries % 4 == 0).then_some(dir);
        run(Bursts::new(seed, 60), move || {
            let engine = start.open();
            let changing: Vec<_> = (0..2)
                .map(|thread| {
                    let (engine, start) = (Arc::clone(&engine), start.clone());
                    shuttle::thread::spawn(move || {
                        let (added, ops) = ops_of(&start, thread);
                        for op in ops {
                            engine.apply(&op.decode().op()).expect("no other thread uses the names");
                        }
                        added
                    })
                })
                .collect();
            // A reader may build the summary of the directory meanwhile.
            engine.attributes(dir).expect("sound");
            let mut names: BTreeSet<Vec<u8>> = (4..entries).map(entry).collect();
            names.insert(b"b".to_vec());
            for thread in changing {
                names.extend(thread.join().expect("no panic"));
            }
            let mut listed = BTreeSet::new();
            engine.list(dir, 0, &mut |entry| listed.insert(entry.name.to_vec())).expect("sound");
            assert_eq!(listed, names);
            for name in &names {
                assert!(engine.lookup(dir, name).expect("sound").is_some(), "{}", name.escape_ascii());
            }
            assert_eq!(engine.attributes(dir).expect("sound").size, names.len() as u64);
            // Each thread has used the first four of its six ids.
            start.fresh.chunks(6).for_each(|ids| ids[4..].iter().for_each(|&id| engine.unreserve(id)));
            let report = engine.check().expect("sound");
            assert!(report.is_clean(), "{:?}", report.findings);
        });
    }
}

/// Removes all entries of a directory. The directory keeps eight buckets, so new entries have several shards.
/// It cannot shrink, because the clock goes back: the page of the last bucket has a later time than the page
/// with which it would merge, but only the earlier time counts for the directory's modification time. One
/// page cannot keep both times.
fn empty_but_large(engine: &Scm, dir: ObjectId) {
    let bucket = |name: &[u8]| engine.bucket_for_test(dir, name).expect("sound");
    let unlink = |name: &[u8], time| {
        engine.apply(&Op::Unlink { dir, name, time }).expect("there");
    };
    let all: Vec<_> = (0..MANY).map(entry).chain([b"b".to_vec()]).collect();
    let (last, others): (Vec<_>, Vec<_>) = all.iter().partition(|name| bucket(name).1 == 7);
    last.into_iter().for_each(|name| unlink(name, LATER));
    let change = AttributeChange { modified: Some(BORN), ..AttributeChange::default() };
    engine.apply(&Op::SetAttributes { id: dir, change, time: BORN }).expect("there");
    others.into_iter().for_each(|name| unlink(name, BORN));
    assert_eq!(bucket(b"b").0, 8);
}

#[test]
fn removed_directory_takes_no_entry_in_any_shard() {
    let _alone = alone();
    let start = Start::make_with(MANY);
    run(Bursts::new(1, 200), move || {
        let engine = start.open();
        let Start { dirs: [root, dir], ref fresh, .. } = start;
        empty_but_large(&engine, dir);
        let creating: Vec<_> = (0..2)
            .map(|thread| {
                let (engine, id) = (Arc::clone(&engine), fresh[thread]);
                shuttle::thread::spawn(move || {
                    let (name, owner, time) = (entry(thread * 3), OWNER, LATER);
                    let content = Content::Empty;
                    engine.apply(&Op::Create { dir, name: &name, id, owner, content, time }).map(drop)
                })
            })
            .collect();
        let removed = engine.apply(&Op::RemoveDirectory { dir: root, name: b"dir", time: LATER });
        let created: Vec<_> = creating.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        match removed {
            Ok(_) => assert!(
                created.iter().all(|result| matches!(result, Err(Error::NotFound | Error::Stale))),
                "{created:?}"
            ),
            Err(error) => {
                assert!(matches!(error, Error::NotEmpty), "{error:?}");
                assert!(created.iter().any(Result::is_ok), "{created:?}");
            }
        }
        for (index, &id) in fresh.iter().enumerate() {
            if !created.get(index).is_some_and(Result::is_ok) {
                engine.unreserve(id);
            }
        }
        let report = engine.check().expect("sound");
        assert!(report.is_clean(), "{:?}", report.findings);
    });
}

/// Bound for the number of steps that the third thread takes alone. Its Ops take about as many steps.
const THIRD: usize = 150;

/// A scheduler for an Op that is overtaken. The first thread takes `steps` steps, then the second thread runs
/// as long as it can, and then the third thread takes a random number of steps. From then on, all threads
/// take single steps in a random order.
pub(super) struct Overtaken {
    steps: usize,
    left: usize,
    left_of_third: usize,
    random: SmallRng,
    executions: usize,
    has_overtaken: bool,
}

impl Overtaken {
    pub(super) fn new(steps: usize, executions: usize) -> Overtaken {
        let random = SmallRng::seed_from_u64(steps as u64);
        Overtaken { steps, left: steps, left_of_third: 0, random, executions, has_overtaken: false }
    }
}

impl Scheduler for Overtaken {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.executions = self.executions.checked_sub(1)?;
        (self.left, self.has_overtaken) = (self.steps, false);
        self.left_of_third = self.random.random_range(0..THIRD);
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], _: Option<TaskId>, _: bool) -> Option<TaskId> {
        let task = |number: usize| runnable.iter().find(|task| usize::from(task.id()) == number);
        // The main thread spawns the others first.
        if let (Some(main), None) = (task(0), task(3))
            && !self.has_overtaken
        {
            return Some(main.id());
        }
        if let Some(first) = task(1)
            && self.left > 0
        {
            self.left -= 1;
            return Some(first.id());
        }
        if let Some(second) = task(2)
            && !self.has_overtaken
        {
            return Some(second.id());
        }
        self.has_overtaken = true;
        if let Some(third) = task(3)
            && self.left_of_third > 0
        {
            self.left_of_third -= 1;
            return Some(third.id());
        }
        Some(runnable[self.random.random_range(0..runnable.len())].id())
    }

    fn next_u64(&mut self) -> u64 {
        self.random.random()
    }
}

/// Returns two numbers. With the first number of entries, a directory grows to `buckets` buckets when it gets
/// its next entry. The second number is that of an entry that this growth moves to the new bucket.
fn before_growth(buckets: u64) -> (usize, usize) {
    let found = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let (start, result) = (Start::make(), Arc::clone(&found));
    run(Bursts::new(0, 1), move || {
        let engine = start.open();
        let dir = start.dirs[1];
        let bucket = |n: usize| engine.bucket_for_test(dir, &entry(n)).expect("sound");
        let grown = (0..).find(|&n| {
            let op = Op::Link { dir, name: &entry(n), id: start.file, time: BORN };
            engine.apply(&op).expect("room");
            bucket(n).0 == buckets
        });
        let grown = grown.expect("it grows");
        let moved = (0..grown).find(|&n| bucket(n).1 == buckets - 1).expect("a split moves entries");
        result.iter().zip([grown, moved]).for_each(|(word, n)| word.store(n, Ordering::SeqCst));
    });
    let [grown, moved] = &*found;
    (grown.load(Ordering::SeqCst), moved.load(Ordering::SeqCst))
}

/// After a reader has read the number of buckets, an Op makes the directory grow, and clears the wanted entry
/// from the bucket that the reader then searches.
#[test]
fn reader_finds_an_entry_that_growth_moves() {
    let _alone = alone();
    let (entries, moved) = before_growth(4);
    for steps in 0..40 {
        let start = Start::make_with(entries);
        run(Overtaken::new(steps, 1), move || {
            let engine = start.open();
            let (dir, id) = (start.dirs[1], start.fresh[0]);
            let (reader, writer) = (Arc::clone(&engine), Arc::clone(&engine));
            let reading = shuttle::thread::spawn(move || reader.lookup(dir, &entry(moved)));
            let growing = shuttle::thread::spawn(move || {
                let (name, content) = (entry(entries), Content::Bytes(OLD));
                let op = Op::Create { dir, name: &name, id, owner: OWNER, content, time: LATER };
                writer.apply(&op).map(drop)
            });
            // The scheduler begins when three threads exist.
            let third = shuttle::thread::spawn(|| ());
            growing.join().expect("no panic").expect("room");
            third.join().expect("no panic");
            let found = reading.join().expect("no panic").expect("sound");
            assert!(found.is_some(), "after {steps} steps");
            start.fresh[1..].iter().for_each(|&id| engine.unreserve(id));
        });
    }
}

/// An Op looks an entry up. Before the Op has noted the shard of the entry, another Op makes the directory
/// grow, so that the entry belongs to another shard. A third Op adds entries to the same bucket.
#[test]
fn overtaken_look_up_locks_the_present_shard() {
    let _alone = alone();
    // The growth to 4 buckets gives bucket 2 another shard, and the growth to 8 buckets gives bucket 4
    // another shard. Neither growth splits these buckets, so their entries stay in them.
    for (buckets, bucket) in [(4, 2), (8, 4)] {
        let (entries, _) = before_growth(buckets);
        for steps in 0..40 {
            let start = Start::make_with(entries);
            run(Overtaken::new(steps, 40), move || {
                let engine = start.open();
                let dir = start.dirs[1];
                let in_bucket = |name: &[u8]| {
                    let (now, of) = engine.bucket_for_test(dir, name).expect("sound");
                    now + 1 == buckets && of == bucket
                };
                let victim = (0..entries).map(entry).find(|name| in_bucket(name)).expect("some entry");
                let others = (0..).map(|n| format!("other-{n}").into_bytes());
                let added: Vec<_> = others.filter(|name| in_bucket(name)).take(2).collect();
                let spawn = |ops: Vec<OpRecord>| {
                    let engine = Arc::clone(&engine);
                    shuttle::thread::spawn(move || {
                        for op in ops {
                            engine.apply(&op.decode().op()).expect("room");
                        }
                    })
                };
                let growing = entry(entries);
                let names = [&growing, &added[0], &added[1]];
                let create = |n: usize| {
                    let (name, id, content) = (names[n], start.fresh[n], Content::Bytes(OLD));
                    OpRecord::new(&Op::Create { dir, name, id, owner: OWNER, content, time: LATER })
                };
                // The Op that makes the directory grow commits one word, so it counts no redo record. If it
                // counted one, the first thread would repeat its look-up.
                let threads = [
                    spawn(vec![OpRecord::new(&Op::Unlink { dir, name: &victim, time: LATER })]),
                    spawn(vec![create(0)]),
                    spawn(vec![create(1), create(2)]),
                ];
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
                assert_eq!(engine.lookup(dir, &victim).expect("sound"), None);
                for name in names {
                    assert!(engine.lookup(dir, name).expect("sound").is_some(), "{}", name.escape_ascii());
                }
                start.fresh[names.len()..].iter().for_each(|&id| engine.unreserve(id));
                let report = engine.check().expect("sound");
                assert!(report.is_clean(), "{:?}", report.findings);
            });
        }
    }
}
