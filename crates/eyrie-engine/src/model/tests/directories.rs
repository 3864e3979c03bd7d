//! Tests of `RemoveDirectory`, removed directories, listings and attributes.

use super::*;
use crate::AttributeChange;

#[test]
fn directory_counts_entries_and_subdirectories() {
    let f = Fixture::new();
    assert_eq!((f.attributes(f.root).links, f.attributes(f.root).size), (2, 0));
    let a = f.dir(f.root, "a");
    f.dir(f.root, "b");
    f.file(f.root, "x");
    assert_eq!((f.attributes(f.root).links, f.attributes(f.root).size), (4, 3));
    assert_eq!(f.attributes(f.root).parent, Some(f.root));
    assert_eq!((f.attributes(a).parent, f.attributes(a).links), (Some(f.root), 2));
}

#[test]
fn only_empty_directories_are_removed() {
    let f = Fixture::new();
    let d = f.dir(f.root, "d");
    f.file(d, "x");
    assert_refused!(f.remove_directory(f.root, "d", at(2)), Error::NotEmpty);
    f.unlink(d, "x", at(2)).unwrap();
    let changes = f.model.directory_changes();
    f.remove_directory(f.root, "d", at(3)).unwrap();
    assert_eq!(f.times(f.root), (3, 3));
    assert!(f.model.directory_changes() > changes);
    assert_refused!(f.model.attributes(d), Error::Stale);
    assert_refused!(f.remove_directory(f.root, "d", at(4)), Error::NotFound);
}

#[test]
fn remove_directory_refuses_other_kinds() {
    let f = Fixture::new();
    f.file(f.root, "x");
    f.create(f.root, "l", Kind::Symlink);
    assert_refused!(f.remove_directory(f.root, "x", at(2)), Error::NotDirectory);
    assert_refused!(f.remove_directory(f.root, "l", at(2)), Error::NotDirectory);
}

#[test]
fn removed_open_directory_stays_empty() {
    let f = Fixture::new();
    let d = f.dir(f.root, "d");
    let x = f.file(f.root, "x");
    f.model.open(d).unwrap();
    f.remove_directory(f.root, "d", at(3)).unwrap();
    let attributes = f.attributes(d);
    assert_eq!((attributes.links, attributes.size, attributes.parent), (0, 0, None));
    assert_eq!(f.times(d), (1, 3));
    assert_eq!((f.names(d).len(), f.get(d, "x")), (0, None));
    assert_refused!(f.try_create(d, b"x", Kind::File, Content::Empty, at(4)), Error::NotFound);
    assert_refused!(f.link(d, "x", x, at(4)), Error::NotFound);
    assert_refused!(f.rename((f.root, "x"), (d, "x"), RenameMode::Replace, at(4)), Error::NotFound);
    assert_refused!(f.unlink(d, "x", at(4)), Error::NotFound);
    let ops = [Op::Erase { dir: d, name: b"x", time: at(4) }];
    assert_refused!(f.model.apply(&Op::Batch { dir: d, ops: &ops, time: at(4) }), Error::NotFound);
    f.model.apply(&Op::Batch { dir: d, ops: &[], time: at(4) }).unwrap();
    f.model.close(d);
    assert_refused!(f.model.lookup(d, b"x"), Error::Stale);
}

#[test]
fn listing_shows_lasting_entries_once() {
    let f = Fixture::new();
    for name in ["a", "b", "c", "d", "e"] {
        f.file(f.root, name);
    }
    f.file(f.root, "other");
    let mut seen = Vec::new();
    let mut cookie = 0;
    loop {
        let mut shown = false;
        f.model
            .list(f.root, cookie, &mut |entry| {
                seen.push(entry.name.to_vec());
                cookie = entry.next;
                shown = true;
                false
            })
            .unwrap();
        if !shown {
            break;
        }
        // A rename may make a name refer to another object. The name still exists during the whole listing.
        match seen.len() {
            1 => drop(f.rename((f.root, "other"), (f.root, "c"), RenameMode::Replace, at(2)).unwrap()),
            2 => drop(f.rename((f.root, "a"), (f.root, "e"), RenameMode::Exchange, at(2)).unwrap()),
            _ => {}
        }
    }
    seen.sort();
    assert_eq!(seen, [b"a", b"b", b"c", b"d", b"e"]);
}

#[test]
fn a_listing_may_call_the_model() {
    let f = Fixture::new();
    f.file(f.root, "a");
    let mut links = 0;
    f.model
        .list(f.root, 0, &mut |entry| {
            links += f.attributes(entry.id).links;
            true
        })
        .unwrap();
    assert_eq!(links, 1);
}

#[test]
fn mark_access_sets_only_the_access_time() {
    let f = Fixture::new();
    for id in [f.file(f.root, "x"), f.create(f.root, "link", Kind::Symlink), f.root] {
        let (before, version) = (f.attributes(id), f.model.version(id).ok());
        f.model.apply(&Op::MarkAccess { id, time: at(9) }).unwrap();
        assert_eq!(f.attributes(id), Attributes { accessed: at(9), ..before });
        assert_eq!(f.model.version(id).ok(), version);
    }
    let gone = ObjectId::new(1 << 40, Kind::File);
    assert_refused!(f.model.apply(&Op::MarkAccess { id: gone, time: at(9) }), Error::Stale);
}

#[test]
fn set_attributes_sets_named_ones_and_change_time() {
    let f = Fixture::new();
    let id = f.file(f.root, "x");
    let before = f.attributes(id);
    let set = |id, change, time| f.model.apply(&Op::SetAttributes { id, change, time });
    set(id, AttributeChange::default(), at(2)).unwrap();
    assert_eq!(f.attributes(id), Attributes { changed: at(2), ..before });
    let change = AttributeChange {
        mode: Some(0o4711),
        uid: Some(1),
        gid: Some(2),
        accessed: Some(at(-3)),
        modified: Some(at(-4)),
        ..AttributeChange::default()
    };
    set(id, change, at(5)).unwrap();
    let after = Attributes {
        mode: 0o4711,
        uid: 1,
        gid: 2,
        accessed: at(-3),
        modified: at(-4),
        changed: at(5),
        ..before
    };
    assert_eq!(f.attributes(id), after);
    let changes = f.model.directory_changes();
    assert_refused!(set(id, AttributeChange { mode: Some(0o10000), ..change }, at(6)), Error::Invalid(_));
    assert_eq!((f.attributes(id), f.model.directory_changes()), (after, changes));
    set(f.root, change, at(7)).unwrap();
    assert!(f.model.directory_changes() > changes);
}
