//! Tests of listings: positions in a directory, and listings beside changes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use eyrie::{Credentials, DirEntry, Errno, Files, Host, Posix, PosixExt, ReadDir, Volume};

use crate::errno;

/// Number of entries in the small directories. A listing fetches them in several parts.
const FEW: usize = 200;

/// Returns the names and cookies of the entries from the position of `listing` on.
fn rest<P: Posix>(listing: &mut ReadDir<P>) -> Vec<(String, u64)> {
    let named = |entry: DirEntry| (entry.name().to_str().unwrap().to_owned(), entry.cookie());
    listing.map(|entry| named(entry.unwrap())).collect()
}

/// Seeks to the position after each entry, from the last entry to the first, in two listings. Then reads the
/// entries one by one, and compares the position after each.
fn cookies_lead_back<P: Posix + Clone>(fs: P) {
    fs.create_dir("/dir").unwrap();
    (0..FEW).for_each(|n| fs.write(format!("/dir/{n}"), "").unwrap());
    let mut listing = fs.read_dir("/dir").unwrap();
    let start = listing.cookie();
    let all = rest(&mut listing);
    assert_eq!((start, all.len()), (0, FEW));
    assert_eq!(listing.cookie(), all[FEW - 1].1);
    assert!(listing.next().is_none());

    let mut other = fs.read_dir("/dir").unwrap();
    for (index, (_, cookie)) in all.iter().enumerate().rev() {
        for listing in [&mut listing, &mut other] {
            listing.seek(*cookie);
            assert_eq!(listing.cookie(), *cookie);
            assert_eq!(rest(listing), all[index + 1..]);
        }
    }
    // A position in the middle of a fetch is the one after the entry that was returned last.
    other.rewind();
    for (name, cookie) in &all {
        let entry = other.next().unwrap().unwrap();
        assert_eq!((entry.name().to_str().unwrap(), entry.cookie()), (&name[..], *cookie));
        assert_eq!(other.cookie(), *cookie);
    }
}

/// Changes a directory between two listings, and then rewinds and seeks.
fn cookies_survive_changes<P: Posix + Clone>(fs: P) {
    fs.create_dir("/dir").unwrap();
    (0..FEW).for_each(|n| fs.write(format!("/dir/{n}"), "").unwrap());
    let mut listing = fs.read_dir("/dir").unwrap();
    let all = rest(&mut listing);
    fs.write("/dir/new", "").unwrap();
    listing.rewind();
    let names = |entries: Vec<(String, u64)>| entries.into_iter().map(|(name, _)| name).collect();
    let mut expected: BTreeSet<String> = names(all.clone());
    expected.insert("new".into());
    assert_eq!(names(rest(&mut listing)), expected);

    // Every second entry is removed, and others are inserted and renamed.
    for (name, _) in all.iter().step_by(2) {
        fs.remove_file(format!("/dir/{name}")).unwrap();
    }
    for n in 0..FEW {
        fs.write(format!("/dir/inserted-{n}"), "").unwrap();
        fs.rename(format!("/dir/inserted-{n}"), format!("/dir/renamed-{n}")).unwrap();
    }
    for (index, (_, cookie)) in all.iter().enumerate() {
        listing.seek(*cookie);
        let left = rest(&mut listing).into_iter().map(|(name, _)| name);
        let left: Vec<_> = left.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect();
        let expected = all[index + 1..].iter().skip(index % 2).step_by(2).map(|(name, _)| name);
        assert_eq!(left, expected.cloned().collect::<Vec<_>>());
    }
}

/// Runs `test` on a volume and on the host.
fn on_both(volume: fn(Files), host: fn(Host)) {
    let (place, small) = crate::small_volume();
    volume(small.files(Credentials::of_process()));
    let dir = place.path().join("host");
    std::fs::create_dir(&dir).unwrap();
    host(Host::new(dir).unwrap());
}

#[test]
fn seek_to_each_cookie_continues_after_its_entry() {
    let _tests = crate::side_by_side();
    on_both(cookies_lead_back, cookies_lead_back);
}

#[test]
fn cookies_stay_valid_while_other_entries_change() {
    let _tests = crate::side_by_side();
    // Before Linux 6.6, the offsets of a tmpfs change with its entries, so the host is left out.
    let (_place, volume) = crate::small_volume();
    cookies_survive_changes(volume.files(Credentials::of_process()));
}

#[test]
fn listing_of_a_removed_directory_fails_once_and_after_a_rewind() {
    let _tests = crate::side_by_side();
    let (_place, volume) = crate::small_volume();
    let files = volume.files(Credentials::of_process());
    files.create_dir("/dir").unwrap();
    let mut listing = files.read_dir("/dir").unwrap();
    files.remove_dir("/dir").unwrap();
    for _ in 0..2 {
        assert_eq!(errno(listing.next().unwrap()), Some(Errno::NOENT));
        assert!(listing.next().is_none());
        listing.rewind();
    }
}

/// Number of entries of the large directory.
const MANY: usize = 1_000_000;

/// Number of entries in one part of a listing of the large directory.
const PART: usize = 1000;

fn path_of(n: usize) -> String {
    format!("/dir/{n}")
}

/// Makes one of the changes of a thread: the change with this number.
type Change = fn(&mut Changes, usize);

/// Changes of one thread in the large directory. The name of each entry is a number.
struct Changes {
    files: Files,
    /// The entries that this thread removes or renames, in this order.
    old: Box<dyn Iterator<Item = usize> + Send>,
    /// The names that this thread gives, each once.
    new: Range<usize>,
    /// The entries that the thread has removed or renamed, and those that it has made.
    removed: Vec<usize>,
    made: Vec<usize>,
}

impl Changes {
    /// Returns the changes of thread `number` of two.
    fn new(files: &Files, number: usize) -> Changes {
        // The factor spreads the entries over the whole directory, and meets each of them once.
        let old = (number..MANY).step_by(2).map(|n| n * 7919 % MANY);
        let new = MANY * (number + 1)..MANY * (number + 2);
        Changes { files: files.clone(), old: Box::new(old), new, removed: Vec::new(), made: Vec::new() }
    }

    fn insert(&mut self) {
        let new = self.new.next().unwrap();
        self.files.hard_link("/file", path_of(new)).unwrap();
        self.made.push(new);
    }

    /// Removes the next old entry, if one is left.
    fn remove(&mut self) {
        let Some(old) = self.old.next() else { return };
        self.files.remove_file(path_of(old)).unwrap();
        self.removed.push(old);
    }

    /// Renames the next old entry, if one is left.
    fn rename(&mut self) {
        let Some(old) = self.old.next() else { return };
        let new = self.new.next().unwrap();
        self.files.rename(path_of(old), path_of(new)).unwrap();
        self.removed.push(old);
        self.made.push(new);
    }

    /// Makes change `step` while the directory grows.
    fn grow(&mut self, step: usize) {
        match step % 4 {
            0 => self.remove(),
            1 => self.rename(),
            _ => self.insert(),
        }
    }

    /// Makes change `step` while the directory shrinks.
    fn shrink(&mut self, step: usize) {
        match step % 100 {
            0 => self.insert(),
            1 => self.rename(),
            _ => self.remove(),
        }
    }
}

/// Lists the large directory in parts, and makes `count` changes after each part. Meanwhile a second thread
/// makes up to `most` changes. Returns the number of times that each entry was listed.
fn list_beside(
    files: &Files,
    changes: &mut [Changes; 2],
    (count, most): (usize, usize),
    change: Change,
) -> Vec<u8> {
    let (mut seen, done) = (vec![0; 3 * MANY], AtomicBool::new(false));
    let [between, during] = changes;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..most).take_while(|_| !done.load(Ordering::Relaxed)).for_each(|step| change(during, step));
        });
        let mut listing = files.read_dir("/dir").unwrap();
        for step in 0.. {
            let before = listing.cookie();
            for entry in listing.by_ref().take(PART) {
                seen[entry.unwrap().name().to_str().unwrap().parse::<usize>().unwrap()] += 1;
            }
            let at = listing.cookie();
            if at == before {
                break;
            }
            (0..count).for_each(|index| change(between, step * count + index));
            // The next part fetches its entries after the changes.
            listing.seek(at);
        }
        done.store(true, Ordering::Relaxed);
    });
    seen
}

#[test]
fn listings_of_a_million_entries_beside_changes_lose_and_repeat_nothing() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let volume = Volume::create(place.path().join("volume"), 1 << 30).unwrap();
    let files = volume.files(Credentials::of_process());
    files.create_dir("/dir").unwrap();
    files.write("/file", "").unwrap();
    (0..MANY).for_each(|n| files.hard_link("/file", path_of(n)).unwrap());
    let mut stays: BTreeSet<usize> = (0..MANY).collect();
    let mut changes = [0, 1].map(|number| Changes::new(&files, number));
    let phases = [((40, 40_000), Changes::grow as Change), ((3000, MANY), Changes::shrink)];
    for (counts, change) in phases {
        let seen = list_beside(&files, &mut changes, counts, change);
        let removed: Vec<_> = changes.iter_mut().flat_map(|changes| changes.removed.drain(..)).collect();
        let made: Vec<_> = changes.iter_mut().flat_map(|changes| changes.made.drain(..)).collect();
        println!("{} entries were removed or renamed, and {} made", removed.len(), made.len());
        removed.iter().for_each(|n| assert!(stays.remove(n)));
        assert!(removed.len() > 10_000 && stays.len() > 10_000);
        assert!(seen.iter().all(|&times| times <= 1), "an entry was listed twice");
        assert!(stays.iter().all(|&n| seen[n] == 1), "an entry was lost");
        stays.extend(made);
    }
    // The second thread may have been too slow for all of its removals. Below an eighth of its largest size,
    // the directory has shrunk.
    while stays.len() >= MANY / 8 {
        files.remove_file(path_of(stays.pop_last().unwrap())).unwrap();
    }
    assert_eq!(files.read_dir("/dir").unwrap().count(), stays.len());
}
