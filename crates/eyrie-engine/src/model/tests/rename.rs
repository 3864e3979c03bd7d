//! Tests of `Rename`.

use super::RenameMode::{Exchange, NoReplace, Replace};
use super::*;

#[test]
fn rename_moves_entry_and_sets_times_of_object_and_dirs() {
    let f = Fixture::new();
    let (a, b) = (f.dir(f.root, "a"), f.dir(f.root, "b"));
    let x = f.file(a, "x");
    f.rename((a, "x"), (b, "y"), Replace, at(3)).unwrap();
    assert_eq!((f.get(a, "x"), f.get(b, "y")), (None, Some(x)));
    assert_eq!((f.times(a), f.times(b), f.times(x), f.times(f.root)), ((3, 3), (3, 3), (1, 3), (1, 1)));
    assert_refused!(f.rename((a, "x"), (b, "z"), Replace, at(4)), Error::NotFound);
}

#[test]
fn a_file_replaces_a_file_which_loses_a_name() {
    let f = Fixture::new();
    let (x, y) = (f.file(f.root, "x"), f.file(f.root, "y"));
    f.link(f.root, "y2", y, START).unwrap();
    f.rename((f.root, "x"), (f.root, "y"), Replace, at(3)).unwrap();
    assert_eq!((f.get(f.root, "y"), f.get(f.root, "x")), (Some(x), None));
    assert_eq!((f.attributes(y).links, f.times(y)), (1, (1, 3)));
    f.rename((f.root, "y"), (f.root, "y2"), Replace, at(4)).unwrap();
    assert_refused!(f.model.attributes(y), Error::Stale);
}

#[test]
fn a_replaced_file_that_is_open_stays() {
    let f = Fixture::new();
    f.file(f.root, "x");
    let y = f.file(f.root, "y");
    f.model.open(y).unwrap();
    f.rename((f.root, "x"), (f.root, "y"), Replace, at(3)).unwrap();
    assert_eq!(f.attributes(y).links, 0);
}

#[test]
fn only_directories_replace_directories() {
    let f = Fixture::new();
    f.file(f.root, "x");
    let d = f.dir(f.root, "d");
    let e = f.dir(f.root, "e");
    assert_refused!(f.rename((f.root, "x"), (f.root, "d"), Replace, at(2)), Error::IsDirectory);
    assert_refused!(f.rename((f.root, "d"), (f.root, "x"), Replace, at(2)), Error::NotDirectory);
    let inner = f.file(e, "inner");
    assert_refused!(f.rename((f.root, "d"), (f.root, "e"), Replace, at(2)), Error::NotEmpty);
    assert_refused!(f.rename((e, "inner"), (f.root, "e"), Replace, at(2)), Error::IsDirectory);
    f.create(f.root, "l", Kind::Symlink);
    f.rename((f.root, "l"), (e, "inner"), Replace, at(2)).unwrap();
    assert_refused!(f.model.attributes(inner), Error::Stale);
    f.unlink(e, "inner", at(2)).unwrap();
    f.rename((f.root, "d"), (f.root, "e"), Replace, at(3)).unwrap();
    assert_eq!(f.get(f.root, "e"), Some(d));
    assert_refused!(f.model.attributes(e), Error::Stale);
}

#[test]
fn moved_directory_counts_in_new_parent() {
    let f = Fixture::new();
    let (a, b) = (f.dir(f.root, "a"), f.dir(f.root, "b"));
    let d = f.dir(a, "d");
    let changes = f.model.directory_changes();
    f.rename((a, "d"), (b, "d"), Replace, at(3)).unwrap();
    assert_eq!(f.attributes(d).parent, Some(b));
    assert_eq!((f.attributes(a).links, f.attributes(b).links), (2, 3));
    assert!(f.model.directory_changes() > changes);
}

#[test]
fn a_directory_does_not_move_into_itself() {
    let f = Fixture::new();
    let a = f.dir(f.root, "a");
    let b = f.dir(a, "b");
    assert_refused!(f.rename((f.root, "a"), (a, "c"), Replace, at(2)), Error::Invalid(_));
    assert_refused!(f.rename((f.root, "a"), (b, "c"), NoReplace, at(2)), Error::Invalid(_));
    assert_refused!(f.rename((f.root, "a"), (b, "c"), Exchange, at(2)), Error::NotFound);
    f.file(b, "c");
    assert_refused!(f.rename((f.root, "a"), (b, "c"), Replace, at(2)), Error::Invalid(_));
    assert_refused!(f.rename((f.root, "a"), (b, "c"), Exchange, at(2)), Error::Invalid(_));
    assert_refused!(f.rename((b, "c"), (f.root, "a"), Exchange, at(2)), Error::Invalid(_));
    assert_refused!(f.rename((a, "b"), (f.root, "a"), Replace, at(2)), Error::NotEmpty);
    assert_eq!(f.times(f.root), (1, 1));
}

#[test]
fn renaming_an_object_onto_itself_does_nothing() {
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    f.link(f.root, "y", x, START).unwrap();
    f.dir(f.root, "d");
    for (from, to) in [("x", "x"), ("x", "y"), ("d", "d")] {
        for mode in [Replace, Exchange] {
            f.rename((f.root, from), (f.root, to), mode, at(2)).unwrap();
        }
        assert_refused!(f.rename((f.root, from), (f.root, to), NoReplace, at(2)), Error::Exists);
    }
    assert_eq!((f.names(f.root), f.times(f.root)), (vec!["d".into(), "x".into(), "y".into()], (1, 1)));
    assert_eq!((f.attributes(x).links, f.times(x)), (2, (1, 1)));
}

#[test]
fn no_replace_renames_to_free_names_only() {
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    f.file(f.root, "y");
    assert_refused!(f.rename((f.root, "x"), (f.root, "y"), NoReplace, at(2)), Error::Exists);
    assert_refused!(f.rename((f.root, "none"), (f.root, "y"), NoReplace, at(2)), Error::NotFound);
    f.rename((f.root, "x"), (f.root, "z"), NoReplace, at(2)).unwrap();
    assert_eq!(f.get(f.root, "z"), Some(x));
}

#[test]
fn exchange_swaps_any_two_kinds() {
    let f = Fixture::new();
    let (a, b) = (f.dir(f.root, "a"), f.dir(f.root, "b"));
    let x = f.file(a, "x");
    let d = f.dir(b, "d");
    f.file(d, "inner");
    f.rename((a, "x"), (b, "d"), Exchange, at(3)).unwrap();
    assert_eq!((f.get(a, "x"), f.get(b, "d")), (Some(d), Some(x)));
    assert_eq!(f.attributes(d).parent, Some(a));
    assert_eq!((f.attributes(a).links, f.attributes(b).links), (3, 2));
    assert_eq!((f.times(a), f.times(b), f.times(x), f.times(d)), ((3, 3), (3, 3), (1, 3), (1, 3)));
    assert_refused!(f.rename((a, "x"), (b, "none"), Exchange, at(4)), Error::NotFound);
}

#[test]
fn exchange_in_one_directory_keeps_counts() {
    let f = Fixture::new();
    let (x, d) = (f.file(f.root, "x"), f.dir(f.root, "d"));
    f.rename((f.root, "x"), (f.root, "d"), Exchange, at(3)).unwrap();
    assert_eq!((f.get(f.root, "x"), f.get(f.root, "d")), (Some(d), Some(x)));
    assert_eq!((f.attributes(f.root).links, f.attributes(f.root).size), (3, 2));
}

#[test]
fn a_whiteout_is_made_only_by_the_modes_that_leave_one() {
    use crate::op::Whiteout;
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    let rename = |mode, kind: Option<Kind>, to_name| {
        let id = kind.map(|kind| f.model.reserve(kind).unwrap());
        let whiteout = id.map(|id| Whiteout { id, owner: OWNER });
        let (from_dir, to_dir, from_name) = (f.root, f.root, b"x");
        let op = Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time: at(3) };
        (f.model.apply(&op), id)
    };
    for mode in RenameMode::ALL {
        let wrong = if mode.leaves_whiteout() { None } else { Some(Kind::CharDevice) };
        assert_refused!(rename(mode, wrong, b"y").0, Error::Invalid(_));
    }
    assert_refused!(rename(RenameMode::Whiteout, Some(Kind::BlockDevice), b"y").0, Error::Invalid(_));
    let (same, unused) = rename(RenameMode::Whiteout, Some(Kind::CharDevice), b"x");
    assert!(!same.unwrap().created && f.model.attributes(unused.unwrap()).is_err());
    let (made, id) = rename(RenameMode::NoReplaceWhiteout, Some(Kind::CharDevice), b"y");
    assert!(made.unwrap().created);
    assert_eq!((f.get(f.root, "x"), f.get(f.root, "y")), (id, Some(x)));
    let whiteout = f.attributes(id.unwrap());
    let found = (whiteout.kind, whiteout.device, whiteout.links, whiteout.changed);
    assert_eq!(found, (Kind::CharDevice, 0, 1, at(3)));
}
