//! Tests of `Put`, `Erase` and `Batch`.

use super::*;
use crate::{Condition, FallocateMode, Version};

impl Fixture {
    fn put(&self, dir: ObjectId, name: &str, data: &[u8], time: Time) -> Result<Applied> {
        let id = self.model.reserve(Kind::File)?;
        self.model.apply(&Op::Put { dir, name: name.as_bytes(), id, owner: OWNER, data, time })
    }

    fn erase(&self, name: &str, time: Time) -> Result<Applied> {
        self.model.apply(&Op::Erase { dir: self.root, name: name.as_bytes(), time })
    }

    fn batch(&self, ops: &[Op<'_>], time: Time) -> Result<Applied> {
        self.model.apply(&Op::Batch { dir: self.root, ops, time })
    }

    fn put_op<'a>(&self, name: &'a [u8], data: &'a [u8]) -> Op<'a> {
        let id = self.model.reserve(Kind::File).unwrap();
        Op::Put { dir: self.root, name, id, owner: OWNER, data, time: at(9) }
    }

    fn erase_op<'a>(&self, name: &'a [u8]) -> Op<'a> {
        Op::Erase { dir: self.root, name, time: at(9) }
    }

    fn value(&self, name: &str) -> Option<Vec<u8>> {
        self.get(self.root, name).map(|id| self.bytes(id))
    }
}

#[test]
fn put_makes_a_key_or_replaces_all_of_its_value() {
    let f = Fixture::new();
    assert!(f.put(f.root, "k", b"first value", at(2)).unwrap().created);
    let id = f.get(f.root, "k").unwrap();
    assert_eq!(f.times(f.root), (2, 2));
    assert!(!f.put(f.root, "k", b"second", at(3)).unwrap().created);
    assert_eq!(f.get(f.root, "k"), Some(id));
    assert_eq!(f.value("k").unwrap(), b"second");
    assert_eq!((f.times(id), f.times(f.root), f.model.birth(id).unwrap().created), ((3, 3), (2, 2), at(2)));
    f.put(f.root, "k", b"", at(4)).unwrap();
    assert_eq!((f.value("k").unwrap().len(), f.times(id)), (0, (4, 4)));
}

#[test]
fn only_files_are_values() {
    let f = Fixture::new();
    f.dir(f.root, "d");
    f.create(f.root, "l", Kind::Symlink);
    assert_refused!(f.put(f.root, "d", b"x", at(2)), Error::IsDirectory);
    assert_refused!(f.put(f.root, "l", b"x", at(2)), Error::Invalid(_));
    assert_refused!(f.erase("d", at(2)), Error::IsDirectory);
    assert_refused!(f.erase("l", at(2)), Error::Invalid(_));
    assert_refused!(f.erase("none", at(2)), Error::NotFound);
    let id = f.model.reserve(Kind::Fifo).unwrap();
    let op = Op::Put { dir: f.root, name: b"new", id, owner: OWNER, data: b"", time: at(2) };
    assert_refused!(f.model.apply(&op), Error::Invalid(_));
}

#[test]
fn values_have_at_most_64_mib() {
    let f = Fixture::new();
    let mut value = vec![0; 64 << 20];
    f.put(f.root, "k", &value, at(2)).unwrap();
    value.push(0);
    assert_refused!(f.put(f.root, "k", &value, at(2)), Error::TooLarge);
    assert_refused!(f.put(f.root, "new", &value, at(2)), Error::TooLarge);
}

#[test]
fn erase_is_an_unlink() {
    let f = Fixture::new();
    f.put(f.root, "k", b"v", START).unwrap();
    let id = f.get(f.root, "k").unwrap();
    f.model.open(id).unwrap();
    f.erase("k", at(3)).unwrap();
    assert_eq!((f.get(f.root, "k"), f.times(f.root)), (None, (3, 3)));
    assert_eq!((f.attributes(id).links, f.times(id)), (0, (1, 3)));
}

#[test]
fn a_batch_does_all_of_its_parts_at_its_time() {
    let f = Fixture::new();
    f.put(f.root, "old", b"o", START).unwrap();
    f.put(f.root, "gone", b"g", START).unwrap();
    let ops = [
        f.put_op(b"new", b"n"),
        f.put_op(b"old", b"replaced"),
        f.erase_op(b"gone"),
        f.erase_op(b"never was"),
    ];
    f.batch(&ops, at(4)).unwrap();
    assert_eq!(f.names(f.root), ["new", "old"]);
    assert_eq!(f.value("old").unwrap(), b"replaced");
    assert_eq!((f.times(f.root), f.times(f.get(f.root, "old").unwrap())), ((4, 4), (4, 4)));
}

#[test]
fn a_batch_that_fails_does_none_of_its_parts() {
    let f = Fixture::new();
    f.dir(f.root, "d");
    f.put(f.root, "k", b"v", START).unwrap();
    let too_long = [b'n'; 256];
    let bad = [
        (f.put_op(b"d", b"x"), errno(&Error::IsDirectory)),
        (f.erase_op(b"d"), errno(&Error::IsDirectory)),
        (f.put_op(&too_long, b"x"), errno(&Error::NameTooLong)),
        (f.put_op(b"", b"x"), errno(&Error::Invalid(""))),
    ];
    for (last, expected) in bad {
        let ops = [f.put_op(b"new", b"n"), f.erase_op(b"k"), last];
        let error = f.batch(&ops, at(4)).unwrap_err();
        assert_eq!(errno(&error), expected);
        assert_eq!((f.names(f.root), f.times(f.root)), (vec!["d".to_owned(), "k".to_owned()], (1, 1)));
    }
}

#[test]
fn batch_takes_puts_and_erases_of_distinct_keys() {
    let f = Fixture::new();
    let d = f.dir(f.root, "d");
    let twice = [f.put_op(b"k", b"1"), f.erase_op(b"k")];
    assert_refused!(f.batch(&twice, at(2)), Error::Invalid(_));
    let elsewhere = [Op::Erase { dir: d, name: b"k", time: at(2) }];
    assert_refused!(f.batch(&elsewhere, at(2)), Error::Invalid(_));
    let unlink = [Op::Unlink { dir: f.root, name: b"d", time: at(2) }];
    assert_refused!(f.batch(&unlink, at(2)), Error::Invalid(_));
    let nested = [Op::Batch { dir: f.root, ops: &[], time: at(2) }];
    assert_refused!(f.batch(&nested, at(2)), Error::Invalid(_));
    let file = f.file(f.root, "x");
    assert_refused!(f.model.apply(&Op::Batch { dir: file, ops: &[], time: at(2) }), Error::NotDirectory);
    f.batch(&[], at(2)).unwrap();
    assert_eq!(f.times(f.root), (1, 1));
}

#[test]
fn batch_with_a_failed_condition_does_nothing() {
    let f = Fixture::new();
    f.dir(f.root, "d");
    f.put(f.root, "k", b"v", START).unwrap();
    let id = f.get(f.root, "k").unwrap();
    let version = f.model.version(id).unwrap();
    let expect = |name, condition| Op::Expect { dir: f.root, name, condition };
    let holds = [
        expect(b"k", Condition::Present),
        expect(b"k", Condition::Version(version)),
        expect(b"none", Condition::Absent),
    ];
    let fails = [
        expect(b"k", Condition::Absent),
        expect(b"none", Condition::Present),
        expect(b"none", Condition::Version(version)),
        expect(b"k", Condition::Version(Version::from_raw([0; 3]))),
    ];
    for condition in fails {
        assert_refused!(
            f.batch(&[f.put_op(b"new", b"n"), condition, f.erase_op(b"k")], at(4)),
            Error::ConditionFailed
        );
        assert_eq!((f.names(f.root), f.times(f.root)), (vec!["d".to_owned(), "k".to_owned()], (1, 1)));
    }
    // A condition refers to the key before the batch, even if an earlier part of the batch changes the key.
    f.batch(&[f.put_op(b"k", b"w"), holds[1], holds[2]], at(4)).unwrap();
    assert_refused!(f.batch(&[holds[1]], at(5)), Error::ConditionFailed);
    f.batch(&[holds[0], holds[2]], at(5)).unwrap();
    assert_eq!((f.value("k").unwrap(), f.times(id)), (b"w".to_vec(), (4, 4)));
    assert_refused!(f.batch(&[expect(b"d", Condition::Absent)], at(5)), Error::IsDirectory);
    assert_refused!(f.batch(&[holds[0], holds[0]], at(5)), Error::Invalid(_));
    assert_refused!(f.model.apply(&holds[0]), Error::Invalid(_));
}

#[test]
fn version_changes_with_the_bytes_alone() {
    let f = Fixture::new();
    let id = f.file(f.root, "x");
    let mut seen = vec![f.model.version(id).unwrap()];
    let change = |op: &Op<'_>| f.model.apply(op).map(drop);
    let (set_ids, time) = (SetIds::Keep, at(2));
    for op in [
        Op::Write { id, offset: 0, data: b"1", set_ids, time },
        Op::Append { id, data: b"1", set_ids, time },
        Op::SetSize { id, size: 1, set_ids, time },
        f.put_op(b"x", b"1"),
        Op::Fallocate { id, mode: FallocateMode::ZeroRange, offset: 0, length: 1, set_ids, time },
    ] {
        change(&op).unwrap();
        let version = f.model.version(id).unwrap();
        assert!(!seen.contains(&version), "{op:?}");
        seen.push(version);
    }
    f.link(f.root, "y", id, at(3)).unwrap();
    assert_eq!(f.model.version(id).unwrap(), seen[5]);
    assert_refused!(f.model.version(f.root), Error::IsDirectory);
}

fn errno(error: &Error) -> i32 {
    error.errno().raw_os_error()
}
