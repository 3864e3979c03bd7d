//! Tests of listings through a mount: `telldir`, `seekdir` and `rewinddir`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use eyrie::{Credentials, Kind, ObjectId, PosixExt, VolumeNodes};
use rustix::fs::{Dir, Mode, OFlags};

use super::{fixture, unmount_idle};

/// Number of entries. The kernel fetches them in many parts.
const ENTRIES: usize = 3000;

/// Returns the names of the entries from the position of `listing` on, and the position after each of them,
/// as `telldir` returns it. Leaves out `.` and `..`.
fn rest(listing: &mut Dir) -> Vec<(String, i64)> {
    let entries = std::iter::from_fn(|| listing.read()).map(Result::unwrap);
    let named = entries.map(|entry| (entry.file_name().to_str().unwrap().to_owned(), entry.offset()));
    named.filter(|(name, _)| !name.starts_with('.')).collect()
}

#[test]
fn listings_of_c_programs_seek_and_rewind() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    let dir = fixture.point.join("dir");
    fs::create_dir(&dir).unwrap();
    (0..ENTRIES).for_each(|n| drop(fs::File::create(dir.join(n.to_string())).unwrap()));
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut listing = Dir::new(rustix::fs::open(&dir, open, Mode::empty()).unwrap()).unwrap();
    let all = rest(&mut listing);
    assert_eq!(all.len(), ENTRIES);
    assert!(listing.read().is_none());
    for index in (0..ENTRIES).step_by(97).chain([ENTRIES - 1]).rev() {
        listing.seek(all[index].1).unwrap();
        assert_eq!(rest(&mut listing), all[index + 1..]);
    }

    // Every second entry is removed, and each of the others gets a new neighbour.
    for (name, _) in all.iter().step_by(2) {
        fs::remove_file(dir.join(name)).unwrap();
    }
    for (name, _) in all.iter().skip(1).step_by(2) {
        fs::write(dir.join(format!("new-{name}")), "").unwrap();
    }
    // The kernel may still show removed entries, because it keeps the entries that it has fetched until a
    // rewind. It shows each entry that stayed exactly once.
    let kept: BTreeSet<_> = all.iter().skip(1).step_by(2).map(|(name, _)| name.clone()).collect();
    for index in (1..ENTRIES).step_by(98) {
        listing.seek(all[index].1).unwrap();
        let mut left = rest(&mut listing);
        left.retain(|(name, _)| kept.contains(name));
        let expected: Vec<_> = all[index + 1..].iter().skip(1).step_by(2).cloned().collect();
        assert_eq!(left, expected);
    }
    listing.rewind();
    let mut names: Vec<_> = rest(&mut listing).into_iter().map(|(name, _)| name).collect();
    names.sort();
    let mut expected: Vec<_> = kept.iter().map(|name| format!("new-{name}")).chain(kept.clone()).collect();
    expected.sort();
    assert_eq!(names, expected);
    drop(listing);
    unmount_idle(&mut mount);
}

/// Returns the names in a directory up to an error, and the error.
fn listed(nodes: &VolumeNodes, dir: ObjectId) -> (Vec<String>, Option<i32>) {
    let mut names = Vec::new();
    let result = nodes.list(dir, 0, false, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    });
    (names, result.err().map(|error| error.errno().raw_os_error()))
}

/// Overwrites one page of a directory, so that listings show some entries before they fail. The page of the
/// last entry of a listing, `last`, has this effect. Older copies of this entry may be in other pages, so the
/// function tries each page with the name.
fn damage(volume: &Path, nodes: &VolumeNodes, dir: ObjectId, last: &str) {
    const BUCKET_PAGE: usize = 2048;
    let segment = fs::File::options().read(true).write(true).open(volume.join("segment-0000")).unwrap();
    let mut bytes = vec![0; segment.metadata().unwrap().len() as usize];
    segment.read_exact_at(&mut bytes, 0).unwrap();
    let found = bytes.windows(last.len()).enumerate().filter(|(_, bytes)| *bytes == last.as_bytes());
    for (at, _) in found {
        let start = at / BUCKET_PAGE * BUCKET_PAGE;
        segment.write_all_at(&[0xff; BUCKET_PAGE], start as u64).unwrap();
        let (names, error) = listed(nodes, dir);
        if error.is_some() && !names.is_empty() {
            return;
        }
        segment.write_all_at(&bytes[start..][..BUCKET_PAGE], start as u64).unwrap();
    }
    panic!("no page fits");
}

#[test]
fn regression_listing_of_a_damaged_directory_shows_the_entries_before_the_error() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    let (nodes, root) = (fixture.volume.nodes(), Credentials::root());
    let dir = nodes.make(&root, nodes.root(), b"dir", Kind::Directory, 0o755, 0).unwrap().id;
    for number in 0..500 {
        fixture.files.write(format!("/dir/entry-{number:03}"), "").unwrap();
    }
    // This call leaves a summary of the directory in memory, so later calls for its attributes read no
    // damaged page.
    fixture.files.metadata("/dir").unwrap();
    let (all, _) = listed(&nodes, dir);
    damage(&fixture.place.path().join("volume"), &nodes, dir, all.last().unwrap());
    let (sound, error) = listed(&nodes, dir);

    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(fixture.point.join("dir"), open, Mode::empty()).unwrap();
    let mut listing = Dir::new(opened).unwrap();
    let (mut seen, mut failed) = (Vec::new(), None);
    while let Some(entry) = listing.read() {
        match entry {
            Ok(entry) => seen.push(entry.file_name().to_str().unwrap().to_owned()),
            Err(errno) => {
                failed = Some(errno.raw_os_error());
                break;
            }
        }
    }
    seen.retain(|name| !name.starts_with('.'));
    assert_eq!((seen, failed), (sound, error));
    drop(listing);
    unmount_idle(&mut mount);
}

#[test]
fn listing_shows_the_name_of_a_damaged_file() {
    const HEADER_BYTES: usize = 256;
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    fixture.files.create_dir("/dir").unwrap();
    for name in ["egg", "nest"] {
        fixture.files.write(format!("/dir/{name}"), "blue").unwrap();
    }
    let place = {
        let (nodes, root) = (fixture.volume.nodes(), Credentials::root());
        let dir = nodes.lookup(&root, nodes.root(), b"dir").unwrap().id;
        nodes.lookup(&root, dir, b"egg").unwrap().id.place()
    };
    let segment = fixture.place.path().join("volume/segment-0000");
    let segment = fs::File::options().write(true).open(segment).unwrap();
    segment.write_all_at(&[0xff; HEADER_BYTES], place).unwrap();
    let dir = fixture.point.join("dir");
    let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["egg", "nest"]);
    assert!(fs::symlink_metadata(dir.join("egg")).is_err(), "the file is damaged");
    assert_eq!(fs::read(dir.join("nest")).unwrap(), b"blue");
    unmount_idle(&mut mount);
}
