//! Tests of watches: events of a directory and of a tree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eyrie::{
    Credentials, Errno, Files, Kind, LockKind, LockWait, ObjectId, OpenFlags, Posix, PosixExt, PosixLocks,
    RangeOwner, RenameMode, Target, Volume, VolumeEngine, WalkStep, Watch, WatchEvent, WatchEventKind,
    WatchOptions, XattrMode,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn volume() -> (tempfile::TempDir, Volume, Files) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = Volume::create(place.path().join("volume"), 64 << 20).unwrap();
    let files = volume.files(Credentials::root());
    (place, volume, files)
}

fn one(files: &Files, path: &str) -> Watch<VolumeEngine> {
    files.watch(path.into(), WatchOptions::new()).unwrap()
}

fn tree(files: &Files, path: &str) -> Watch<VolumeEngine> {
    files.watch(path.into(), WatchOptions::new().tree(true)).unwrap()
}

/// Returns an event as a short text.
fn text(event: &WatchEvent) -> String {
    let path = event.path.display();
    assert_eq!(event.name(), event.path.file_name());
    match event.kind {
        WatchEventKind::Created => format!("+{path}"),
        WatchEventKind::Removed => format!("-{path}"),
        WatchEventKind::RenamedFrom { cookie } => format!("{cookie}<{path}"),
        WatchEventKind::RenamedTo { cookie } => format!("{cookie}>{path}"),
        WatchEventKind::Modified => format!("={path}"),
        WatchEventKind::AttributesChanged => format!("@{path}"),
        WatchEventKind::Overflow => {
            assert_eq!(event.object, None);
            "overflow".to_owned()
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the events that are there, as one text.
fn events(watch: &mut Watch<VolumeEngine>) -> String {
    let texts: Vec<_> = std::iter::from_fn(|| watch.poll()).map(|event| text(&event)).collect();
    texts.join(" ")
}

#[test]
fn watch_reports_the_changes_of_its_directory_only() {
    let _tests = crate::side_by_side();
    let (_place, volume, files) = volume();
    files.create_dir_all("/nest/below").unwrap();
    files.write("/nest/old", "old").unwrap();
    let mut watch = one(&files, "/nest");
    assert_eq!(events(&mut watch), "");

    files.write("/nest/egg", "blue").unwrap();
    files.set_mode("/nest/egg", 0o600).unwrap();
    files.truncate(Target::Follow("/nest/old".into()), 1).unwrap();
    files.setxattr("/nest/old".into(), b"user.colour", b"blue", XattrMode::Set).unwrap();
    assert_eq!(events(&mut watch), "+egg =egg @egg =old @old");
    files.hard_link("/nest/egg", "/nest/twin").unwrap();
    files.write("/nest/egg", "red").unwrap();
    files.remove_file("/nest/twin").unwrap();
    assert_eq!(events(&mut watch), "+twin =egg =twin -twin");
    files.create_dir("/nest/new").unwrap();
    files.remove_dir("/nest/new").unwrap();
    files.set_mode("/nest", 0o700).unwrap();
    assert_eq!(events(&mut watch), "+new -new @");

    // The watch reports the attributes of a subdirectory, but not the entries of the subdirectory.
    files.set_mode("/nest/below", 0o700).unwrap();
    files.write("/nest/below/far", "away").unwrap();
    files.write("/outside", "").unwrap();
    assert_eq!(events(&mut watch), "@below");

    // Keys and nodes are other ways to make changes. A key with a slash has an escaped name.
    let store = volume.store("/nest", Credentials::root()).unwrap();
    store.put("key", "value").unwrap();
    store.put("key", "other").unwrap();
    store.put("a/b", "value").unwrap();
    store.erase("key").unwrap();
    let escaped = files.read_dir("/nest").unwrap().map(|entry| entry.unwrap().name().to_owned());
    let escaped = escaped.map(|name| name.into_string().unwrap()).find(|name| name.contains('%')).unwrap();
    assert_eq!(events(&mut watch), format!("+key =key +{escaped} -key"));
    let (nodes, root) = (volume.nodes().watching(10), Credentials::root());
    nodes.make(&root, watch.directory(), b"node", Kind::Fifo, 0o600, 0).unwrap();
    assert_eq!(events(&mut watch), "+node");

    // A call that fails changes nothing.
    assert!(files.setxattr("/nest/old".into(), b"user.a", b"", XattrMode::Replace).is_err());
    assert!(files.create_dir("/nest/old").is_err());
    assert!(files.remove_file("/nest/missing").is_err());
    assert_eq!(events(&mut watch), "");
}

#[test]
fn events_name_their_directory_and_object() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    files.create_dir("/nest").unwrap();
    let mut watch = tree(&files, "/");
    files.write("/nest/egg", "").unwrap();
    let id_of = |path: &str| files.metadata(path).unwrap().inode;
    let event = watch.poll().unwrap();
    assert_eq!(event.name().unwrap(), "egg");
    assert_eq!((event.dir.raw(), event.object.unwrap().raw()), (id_of("/nest"), id_of("/nest/egg")));
    files.set_mode("/", 0o711).unwrap();
    let event = watch.poll().unwrap();
    assert_eq!((event.name(), event.object), (None, Some(watch.directory())));
    assert_eq!(event.dir.raw(), id_of("/"));
}

#[test]
fn renames_come_as_pairs_unless_one_name_is_outside() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    for dir in ["/nest", "/outside"] {
        files.create_dir(dir).unwrap();
    }
    for file in ["/nest/a", "/nest/b", "/nest/c"] {
        files.write(file, "").unwrap();
    }
    let mut watch = one(&files, "/nest");
    files.rename("/nest/a", "/nest/d").unwrap();
    files.rename("/nest/d", "/nest/b").unwrap();
    assert_eq!(events(&mut watch), "1<a 1>d 2<d 2>b");
    files.rename("/nest/b", "/outside/b").unwrap();
    files.write("/outside/b", "unseen").unwrap();
    files.rename("/outside/b", "/nest/e").unwrap();
    files.write("/nest/e", "seen").unwrap();
    assert_eq!(events(&mut watch), "3<b 4>e =e");
    files.rename_with("/nest/c".into(), "/nest/e".into(), RenameMode::Exchange).unwrap();
    assert_eq!(events(&mut watch), "5<c 5>e 6<e 6>c");
    files.write("/nest/c", "was e").unwrap();
    files.rename_with("/nest/e".into(), "/nest/f".into(), RenameMode::Whiteout).unwrap();
    assert_eq!(events(&mut watch), "=c 7<e 7>f +e");
    // Two names of one object: the rename changes nothing.
    files.hard_link("/nest/f", "/nest/g").unwrap();
    files.rename("/nest/f", "/nest/g").unwrap();
    assert_eq!(events(&mut watch), "+g");
    // A removal and a link are no rename.
    files.remove_file("/nest/f").unwrap();
    files.hard_link("/nest/g", "/nest/f").unwrap();
    assert_eq!(events(&mut watch), "-f +f");
}

#[test]
fn tree_watch_follows_directories_that_are_made_and_moved() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    files.create_dir_all("/tree/a/b").unwrap();
    files.create_dir_all("/outside/x/y").unwrap();
    files.write("/tree/a/b/file", "").unwrap();
    files.write("/outside/x/y/file", "").unwrap();
    let mut watch = tree(&files, "/tree");
    append(&files, "/tree/a/b/file", "1");
    assert_eq!(events(&mut watch), "=a/b/file");

    // The watch looks at these changes after they have all been made.
    files.create_dir_all("/tree/new/deep").unwrap();
    files.write("/tree/new/deep/file", "").unwrap();
    files.rename("/tree/new/deep", "/tree/a/moved").unwrap();
    append(&files, "/tree/a/moved/file", "2");
    files.rename("/tree/a", "/tree/c").unwrap();
    append(&files, "/tree/c/moved/file", "3");
    files.remove_file("/tree/c/moved/file").unwrap();
    assert_eq!(
        events(&mut watch),
        "+new +new/deep +new/deep/file 1<new/deep 1>a/moved =a/moved/file 2<a 2>c =c/moved/file -c/moved/file"
    );

    // A directory with contents moves in, and out again.
    files.rename("/outside/x", "/tree/x").unwrap();
    append(&files, "/tree/x/y/file", "4");
    files.rename("/tree/x", "/outside/x").unwrap();
    append(&files, "/outside/x/y/file", "5");
    files.create_dir("/outside/x/y/unseen").unwrap();
    assert_eq!(events(&mut watch), "3>x =x/y/file 4<x");
    files.rename("/outside/x", "/tree/x").unwrap();
    assert_eq!(events(&mut watch), "5>x");
    append(&files, "/tree/x/y/file", "6");
    files.remove_dir("/tree/x/y/unseen").unwrap();
    assert_eq!(events(&mut watch), "=x/y/file -x/y/unseen");

    // Two directories change their places, with all below them.
    files.rename_with("/tree/x/y".into(), "/tree/c".into(), RenameMode::Exchange).unwrap();
    append(&files, "/tree/c/file", "7");
    append(&files, "/tree/x/y/b/file", "8");
    assert_eq!(events(&mut watch), "6<x/y 6>c 7<c 7>x/y =c/file =x/y/b/file");
    files.rename_with("/tree/x".into(), "/outside".into(), RenameMode::Exchange).unwrap();
    append(&files, "/outside/y/b/file", "9");
    files.write("/tree/x/egg", "").unwrap();
    assert_eq!(events(&mut watch), "8<x 9>x +x/egg");
}

/// Appends to a file.
fn append(files: &Files, path: &str, text: &str) {
    let handle = files.open(path.into(), OpenFlags::WRITE, 0).unwrap();
    files.append(&handle, text.as_bytes()).unwrap();
    files.close(handle).unwrap();
}

#[test]
fn watch_of_entries_only_reports_no_contents() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    files.create_dir_all("/tree/a").unwrap();
    let mut trees = files.watch("/tree".into(), WatchOptions::new().tree(true).entries_only(true)).unwrap();
    let mut single = files.watch("/tree".into(), WatchOptions::new().entries_only(true)).unwrap();
    files.write("/tree/a/file", "1").unwrap();
    files.set_mode("/tree", 0o700).unwrap();
    files.rename("/tree/a", "/tree/b").unwrap();
    files.write("/tree/b/file", "2").unwrap();
    files.rename("/tree/b/file", "/tree/file").unwrap();
    assert_eq!(events(&mut trees), "+a/file 1<a 1>b 2<b/file 2>file");
    assert_eq!(events(&mut single), "1<a 1>b 2>file");
}

#[test]
fn full_queue_gives_one_overflow_and_the_watch_goes_on() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    files.create_dir_all("/tree/a").unwrap();
    let mut watch = files.watch("/tree".into(), WatchOptions::new().tree(true).capacity(8)).unwrap();
    for number in 0..4 {
        files.write(format!("/tree/{number}"), "").unwrap();
    }
    assert_eq!(events(&mut watch), "+0 +1 +2 +3");
    // A writer that changes one file many times does not fill the queue.
    for _ in 0..100 {
        append(&files, "/tree/0", "more");
    }
    assert_eq!(events(&mut watch), "=0");
    files.rename("/tree/a", "/tree/b").unwrap();
    files.create_dir("/tree/b/made").unwrap();
    for number in 0..100 {
        files.write(format!("/tree/b/made/{number}"), "").unwrap();
    }
    assert_eq!(events(&mut watch), "overflow");
    // The watch has learned the new names.
    append(&files, "/tree/b/made/99", "more");
    files.remove_file("/tree/b/made/0").unwrap();
    assert_eq!(events(&mut watch), "=b/made/99 -b/made/0");
    // Changes elsewhere in the volume fill the queue, too.
    (0..9).for_each(|number| files.write(format!("/{number}"), "").unwrap());
    assert_eq!(events(&mut watch), "overflow");
}

#[test]
fn user_watches_only_directories_that_it_may_read() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    let ada = files.with_credentials(Credentials::new(1, 1, &[]));
    let errno = |path: &str| ada.watch(path.into(), WatchOptions::new()).err().map(|error| error.errno());
    for (path, mode) in
        [("/tree", 0o755), ("/tree/private", 0o711), ("/tree/listed", 0o744), ("/tree/listed/in", 0o755)]
    {
        files.create_dir(path).unwrap();
        files.set_mode(path, mode).unwrap();
    }
    files.create_dir("/tree/private/open").unwrap();
    files.write("/tree/file", "").unwrap();
    assert_eq!(errno("/tree/private"), Some(Errno::ACCESS));
    assert_eq!(errno("/tree/listed/in"), Some(Errno::ACCESS));
    assert_eq!(errno("/tree/file"), Some(Errno::NOTDIR));
    assert_eq!(errno("/tree/missing"), Some(Errno::NOENT));
    assert_eq!(errno("/tree/private/open"), None);
    assert_eq!(errno("/tree/listed"), None);

    let mut watch = tree(&ada, "/tree");
    files.write("/tree/private/secret", "").unwrap();
    files.write("/tree/private/open/secret", "").unwrap();
    files.write("/tree/listed/name", "").unwrap();
    files.write("/tree/listed/in/secret", "").unwrap();
    assert_eq!(events(&mut watch), "+listed/name");
    // A move out of a private directory shows only the new name.
    files.rename("/tree/private/secret", "/tree/known").unwrap();
    assert_eq!(events(&mut watch), "1>known");
    // Directories that are made or moved later follow the same rule.
    files.create_dir("/tree/new").unwrap();
    files.create_dir("/tree/hidden").unwrap();
    files.set_mode("/tree/hidden", 0o700).unwrap();
    files.create_dir_all("/away/in").unwrap();
    files.set_mode("/away/in", 0o700).unwrap();
    files.rename("/away", "/tree/away").unwrap();
    assert_eq!(events(&mut watch), "+new +hidden @hidden 2>away");
    files.write("/tree/new/file", "").unwrap();
    files.write("/tree/hidden/secret", "").unwrap();
    files.write("/tree/away/file", "").unwrap();
    files.write("/tree/away/in/secret", "").unwrap();
    assert_eq!(events(&mut watch), "+new/file +away/file");
    // A new mode opens a directory.
    files.set_mode("/tree/hidden", 0o755).unwrap();
    assert_eq!(events(&mut watch), "@hidden");
    files.write("/tree/hidden/shown", "").unwrap();
    assert_eq!(events(&mut watch), "+hidden/shown");
    // A directory that has moved away before the watch looks at it may be in a private place.
    files.create_dir("/secret").unwrap();
    files.set_mode("/secret", 0o700).unwrap();
    files.create_dir("/brief").unwrap();
    files.write("/brief/name", "").unwrap();
    files.rename("/brief", "/tree/brief").unwrap();
    files.write("/tree/brief/name", "blue").unwrap();
    files.rename("/tree/brief", "/secret/brief").unwrap();
    assert_eq!(events(&mut watch), "3>brief 4<brief");
}

#[test]
fn watch_ends_with_its_directory_but_not_with_its_name() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    files.create_dir("/nest").unwrap();
    let mut watch = one(&files, "/nest");
    files.rename("/nest", "/moved").unwrap();
    files.write("/moved/egg", "").unwrap();
    files.remove_file("/moved/egg").unwrap();
    assert_eq!(events(&mut watch), "1< +egg -egg");
    assert!(!watch.has_ended());
    files.remove_dir("/moved").unwrap();
    files.create_dir("/moved").unwrap();
    assert!(!watch.has_ended(), "an event is left");
    assert_eq!(watch.map(|event| text(&event)).collect::<Vec<_>>(), ["-"]);

    // A rename can remove the directory, too.
    files.create_dir("/other").unwrap();
    let mut watch = tree(&files, "/moved");
    files.rename("/other", "/moved").unwrap();
    assert_eq!(events(&mut watch), "-");
    assert!(watch.has_ended());

    // The removal is among the lost notices.
    let mut watch = files.watch("/moved".into(), WatchOptions::new().capacity(1)).unwrap();
    files.remove_dir("/moved").unwrap();
    files.create_dir("/moved").unwrap();
    assert_eq!(events(&mut watch), "overflow -");
    assert!(watch.has_ended());
}

#[test]
fn end_of_a_watch_ends_no_locks() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    files.create_dir("/nest").unwrap();
    let other = files.with_lock_process(4711);
    let open = |files: &Files| files.options().read(true).directory(true).open("/nest").unwrap();
    let (dir, foreign) = (open(&files), open(&other));
    let range = (0, 1);
    let shared = Some(LockKind::Shared);
    files.set_range_lock(dir.handle(), RangeOwner::Process, range, shared, LockWait::NO).unwrap();
    let mut watch = one(&files, "/nest");
    files.write("/nest/egg", "").unwrap();
    assert_eq!(events(&mut watch), "+egg");
    drop(watch);
    let process = RangeOwner::Process;
    let found = other.find_range_lock(foreign.handle(), process, range, LockKind::Exclusive).unwrap();
    assert_eq!(found.map(|found| found.kind), shared);
}

#[test]
fn waits_end_with_an_event_the_limit_or_the_stopper() {
    let _tests = crate::side_by_side();
    let (_place, volume, files) = volume();
    files.create_dir("/nest").unwrap();
    let mut watch = one(&files, "/nest");
    let began = Instant::now();
    assert_eq!(watch.next_within(Duration::from_millis(20)), None);
    assert!(began.elapsed() >= Duration::from_millis(20));
    let stopper = watch.stopper();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let made = watch.next().map(|event| text(&event));
            (made, watch.next(), watch.has_ended(), watch.poll())
        });
        std::thread::sleep(Duration::from_millis(10));
        files.write("/outside", "").unwrap();
        files.create_dir("/nest/egg").unwrap();
        std::thread::sleep(Duration::from_millis(10));
        stopper.stop();
        let (made, next, has_ended, poll) = waiter.join().unwrap();
        assert_eq!((made.as_deref(), next, has_ended, poll), (Some("+egg"), None, true, None));
    });
    stopper.stop();
    // A watch keeps its volume open, and a stopper does not.
    let watch = one(&files, "/nest");
    drop(files);
    let busy = volume.close().unwrap_err();
    assert_eq!(busy.errno(), Errno::BUSY);
    drop(watch);
    busy.into_volume().close().unwrap();
}

/// A copy of the names of a tree, kept up to date by the events of a watch.
#[derive(Default)]
struct TreeCopy {
    entries: BTreeMap<PathBuf, ObjectId>,
    /// The entries below a name that a rename is moving, and the cookie of the rename.
    moving: Option<(u64, Vec<(PathBuf, ObjectId)>)>,
}

impl TreeCopy {
    /// Removes an entry and all below it. Returns them with paths relative to the entry.
    fn take(&mut self, path: &Path) -> Vec<(PathBuf, ObjectId)> {
        let below = |other: &&PathBuf| other.starts_with(path);
        let paths: Vec<_> = self.entries.keys().filter(below).cloned().collect();
        let taken = paths.into_iter().filter_map(|path| self.entries.remove_entry(&path));
        taken.map(|(found, id)| (found.strip_prefix(path).unwrap().to_owned(), id)).collect()
    }

    fn follow(&mut self, event: WatchEvent) {
        match event.kind {
            WatchEventKind::Created => {
                let before = self.entries.insert(event.path.clone(), event.object.unwrap());
                assert_eq!(before, None, "{event:?}");
            }
            WatchEventKind::Removed => {
                assert_eq!(self.entries.remove(&event.path), event.object, "{event:?}");
            }
            WatchEventKind::RenamedFrom { cookie } => {
                let taken = self.take(&event.path);
                assert_eq!(taken.first().map(|(_, id)| *id), event.object, "{event:?}");
                self.moving = Some((cookie, taken));
            }
            WatchEventKind::RenamedTo { cookie } => {
                let (moving, entries) = self.moving.take().unwrap();
                assert_eq!(moving, cookie);
                self.take(&event.path);
                let moved = |(path, id): (PathBuf, ObjectId)| {
                    let is_itself = path.as_os_str().is_empty();
                    (if is_itself { event.path.clone() } else { event.path.join(path) }, id)
                };
                self.entries.extend(entries.into_iter().map(moved));
            }
            WatchEventKind::Modified | WatchEventKind::AttributesChanged => {
                assert_eq!(self.entries.get(&event.path).copied(), event.object, "{event:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Makes one random change of the tree. The change may fail, because a name exists already or is missing.
fn change_at_random(files: &Files, random: &mut SmallRng) {
    let mut path = || -> String {
        let depth = random.random_range(1..4);
        let parts = (0..depth).map(|_| ["/a", "/b", "/c"][random.random_range(0..3)]);
        std::iter::once("/tree").chain(parts).collect()
    };
    let (from, to) = (path(), path());
    let _ = match random.random_range(0..10) {
        0 | 1 => files.create_dir(from),
        2 => files.write(from, "bytes"),
        3 => files.remove_file(from),
        4 => files.remove_dir(from),
        5 => files.set_mode(from, 0o700),
        6 => files.hard_link(from, to),
        _ => files.rename(from, to),
    };
}

#[test]
fn events_of_a_tree_keep_a_copy_of_its_names() {
    let _tests = crate::side_by_side();
    let (_place, _volume, files) = volume();
    files.create_dir("/tree").unwrap();
    for seed in 0..20 {
        let mut watch = tree(&files, "/tree");
        let mut copy = TreeCopy::default();
        std::thread::scope(|scope| {
            let changers = [seed, seed + 1000, seed + 2000].map(|seed| {
                let files = &files;
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed);
                    (0..400).for_each(|_| change_at_random(files, &mut random));
                })
            });
            while !changers.iter().all(|changer| changer.is_finished()) {
                while let Some(event) = watch.next_within(Duration::from_millis(1)) {
                    copy.follow(event);
                }
            }
        });
        while let Some(event) = watch.poll() {
            copy.follow(event);
        }
        let mut expected = BTreeMap::new();
        for step in files.walk("/tree").unwrap() {
            if let WalkStep::Entry(entry) = step
                && entry.depth > 0
            {
                expected.insert(entry.relative.clone(), entry.inode);
            }
        }
        let names: BTreeMap<_, _> = copy.entries.into_iter().map(|(path, id)| (path, id.raw())).collect();
        assert_eq!(names, expected, "seed {seed}");
        files.remove_dir_all("/tree").unwrap();
        assert!(watch.find(|event| event.path.as_os_str().is_empty()).is_some());
        files.create_dir("/tree").unwrap();
    }
}
