//! Tests of `Write`, `Append`, `SetSize` and the reads.

use super::*;
use crate::{AttributeChange, FallocateMode};

const MAX: u64 = i64::MAX as u64;

impl Fixture {
    fn append(&self, id: ObjectId, data: &[u8], time: Time) -> Result<Applied> {
        self.model.apply(&Op::Append { id, data, set_ids: SetIds::Keep, time })
    }

    fn set_size(&self, id: ObjectId, size: u64, time: Time) -> Result<Applied> {
        self.model.apply(&Op::SetSize { id, size, set_ids: SetIds::Keep, time })
    }
}

#[test]
fn writes_fill_gaps_with_zeros_and_set_the_times() {
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    f.write(x, 3, b"abc", at(3)).unwrap();
    f.write(x, 4, b"B", at(4)).unwrap();
    assert_eq!(f.bytes(x), b"\0\0\0aBc");
    assert_eq!((f.times(x), f.attributes(x).accessed), ((4, 4), START));
    assert_eq!(f.times(f.root), (1, 1));
}

#[test]
fn append_tells_where_it_began() {
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    assert_eq!(f.append(x, b"abc", at(2)).unwrap().offset, 0);
    assert_eq!(f.append(x, b"de", at(3)).unwrap().offset, 3);
    assert_eq!(f.append(x, b"", at(4)).unwrap().offset, 5);
    assert_eq!((f.bytes(x), f.times(x)), (b"abcde".to_vec(), (3, 3)));
}

#[test]
fn an_empty_write_changes_nothing() {
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    f.write(x, 100, b"", at(3)).unwrap();
    f.write(x, MAX, b"", at(3)).unwrap();
    assert_eq!((f.attributes(x).size, f.times(x)), (0, (1, 1)));
}

#[test]
fn nothing_lies_past_the_largest_size() {
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    assert_refused!(f.write(x, MAX, b"x", at(2)), Error::TooLarge);
    assert_refused!(f.write(x, MAX - 1, b"xy", at(2)), Error::TooLarge);
    assert_refused!(f.write(x, u64::MAX, b"xy", at(2)), Error::TooLarge);
    assert_refused!(f.set_size(x, MAX + 1, at(2)), Error::TooLarge);
    assert_eq!((f.attributes(x).size, f.times(x)), (0, (1, 1)));
    f.write(x, MAX - 1, b"x", at(2)).unwrap();
    assert_eq!(f.attributes(x).size, MAX);
    assert_refused!(f.append(x, b"x", at(3)), Error::TooLarge);
    f.append(x, b"", at(3)).unwrap();
    f.set_size(x, MAX, at(3)).unwrap();
}

#[test]
fn set_size_truncates_extends_and_sets_times() {
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    f.write(x, 0, b"abcdef", at(2)).unwrap();
    f.set_size(x, 3, at(3)).unwrap();
    f.set_size(x, 5, at(4)).unwrap();
    assert_eq!((f.bytes(x), f.times(x)), (b"abc\0\0".to_vec(), (4, 4)));
    f.set_size(x, 5, at(5)).unwrap();
    assert_eq!(f.times(x), (5, 5));
}

#[test]
fn only_files_are_written() {
    let f = Fixture::new();
    let link = f.create(f.root, "l", Kind::Symlink);
    let fifo = f.create(f.root, "p", Kind::Fifo);
    for (id, is_directory) in [(f.root, true), (link, false), (fifo, false)] {
        for result in [f.write(id, 0, b"x", at(2)), f.append(id, b"", at(2)), f.set_size(id, 0, at(2))] {
            match result {
                Err(Error::IsDirectory) => assert!(is_directory),
                Err(Error::Invalid(_)) => assert!(!is_directory),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn only_files_and_links_are_read() {
    let f = Fixture::new();
    let fifo = f.create(f.root, "p", Kind::Fifo);
    let mut out = [0; 4];
    assert_refused!(f.model.read(f.root, 0, &mut out), Error::IsDirectory);
    assert_refused!(f.model.read(fifo, 0, &mut out), Error::Invalid(_));
    assert_refused!(f.model.seek(f.root, 0, true), Error::IsDirectory);
    assert_refused!(f.model.seek(fifo, 0, true), Error::Invalid(_));
}

#[test]
fn a_sparse_file_seeks_from_data_to_hole() {
    let f = Fixture::new();
    let x = f.file(f.root, "x");
    f.write(x, 1 << 62, b"far", at(2)).unwrap();
    let seek = |offset, hole| f.model.seek(x, offset, hole).unwrap();
    assert_eq!((seek(0, true), seek(0, false)), (Some(0), Some(1 << 62)));
    assert_eq!((seek(1 << 62, true), seek((1 << 62) + 3, true)), (Some((1 << 62) + 3), None));
    f.set_size(x, 10, at(3)).unwrap();
    assert_eq!((seek(0, true), seek(0, false), seek(10, true)), (Some(0), None, None));
}

#[test]
fn write_clears_set_id_bits_unless_it_fails() {
    let f = Fixture::new();
    let id = f.file(f.root, "file");
    let set_mode = |mode| {
        let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
        f.model.apply(&Op::SetAttributes { id, change, time: at(2) }).unwrap();
    };
    let (member, stranger) = (SetIds::DropAsMember, SetIds::DropAsStranger);
    for (before, set_ids, after) in [
        (0o6755, SetIds::Keep, 0o6755),
        (0o6755, member, 0o755),
        (0o6745, member, 0o2745),
        (0o6745, stranger, 0o745),
    ] {
        for op in [
            Op::Write { id, offset: 1, data: b"1", set_ids, time: at(3) },
            Op::Append { id, data: b"1", set_ids, time: at(3) },
            Op::SetSize { id, size: 3, set_ids, time: at(3) },
            Op::Fallocate { id, mode: FallocateMode::Allocate, offset: 0, length: 9, set_ids, time: at(3) },
        ] {
            set_mode(before);
            f.model.apply(&op).unwrap();
            assert_eq!(f.attributes(id).mode, after, "{op:?}");
        }
    }
    set_mode(0o6755);
    assert_refused!(
        f.model.apply(&Op::Write { id, offset: MAX, data: b"1", set_ids: stranger, time: at(4) }),
        Error::TooLarge
    );
    assert_eq!(f.attributes(id).mode, 0o6755);
}
