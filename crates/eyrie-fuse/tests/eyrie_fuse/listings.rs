//! Tests of listings through a mount: `telldir`, `seekdir` and `rewinddir`.

use std::collections::BTreeSet;
use std::fs;

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
