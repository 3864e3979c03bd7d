//! Tests of extended attributes.

use super::*;
use crate::XattrMode;
use crate::op::{XATTR_LIST_MAX, XATTR_SIZE_MAX};

impl Fixture {
    fn set_xattr(
        &self,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        time: Time,
    ) -> Result<Applied> {
        self.model.apply(&Op::SetXattr { id, name, value, mode, time })
    }

    fn remove_xattr(&self, id: ObjectId, name: &[u8], time: Time) -> Result<Applied> {
        self.model.apply(&Op::RemoveXattr { id, name, time })
    }

    fn xattrs(&self, id: ObjectId) -> Vec<String> {
        let mut names = Vec::new();
        self.model
            .xattr_names(id, &mut |name| names.push(String::from_utf8_lossy(name).into_owned()))
            .unwrap();
        names
    }
}

#[test]
fn xattrs_are_a_map_and_set_change_time() {
    let f = Fixture::new();
    let set = XattrMode::Set;
    for id in [f.root, f.file(f.root, "f"), f.create(f.root, "s", Kind::Symlink)] {
        let modified = f.times(id).0;
        f.set_xattr(id, b"b", b"1", set, at(10)).unwrap();
        f.set_xattr(id, b"a", b"", set, at(11)).unwrap();
        assert_eq!((f.xattrs(id), f.times(id)), (vec!["a".into(), "b".into()], (modified, 11)));
        f.set_xattr(id, b"b", b"longer", set, at(12)).unwrap();
        let mut out = [0; 8];
        assert_eq!(f.model.xattr(id, b"b", &mut out).unwrap(), Some(6));
        assert_eq!(&out, b"longer\0\0");
        let mut short = [7; 5];
        assert_eq!((f.model.xattr(id, b"b", &mut short).unwrap(), short), (Some(6), [7; 5]));
        f.remove_xattr(id, b"b", at(13)).unwrap();
        assert_eq!((f.xattrs(id), f.times(id)), (vec!["a".into()], (modified, 13)));
        assert_eq!(f.model.xattr(id, b"b", &mut out).unwrap(), None);
    }
}

#[test]
fn xattrs_stay_with_their_object() {
    let f = Fixture::new();
    let id = f.file(f.root, "f");
    f.set_xattr(id, b"a", b"1", XattrMode::Set, at(2)).unwrap();
    f.link(f.root, "g", id, at(3)).unwrap();
    f.unlink(f.root, "f", at(4)).unwrap();
    f.write(id, 0, b"bytes", at(5)).unwrap();
    assert_eq!(f.xattrs(id), ["a"]);
    f.model.open(id).unwrap();
    f.unlink(f.root, "g", at(6)).unwrap();
    f.set_xattr(id, b"b", b"2", XattrMode::Create, at(7)).unwrap();
    assert_eq!((f.xattrs(id), f.attributes(id).changed), (vec!["a".into(), "b".into()], at(7)));
    f.model.close(id);
    assert_refused!(f.model.xattr(id, b"a", &mut []), Error::Stale);
}

#[test]
fn refused_xattr_changes_nothing() {
    let f = Fixture::new();
    let id = f.file(f.root, "f");
    let large = vec![1; XATTR_SIZE_MAX + 1];
    let set = XattrMode::Set;
    f.set_xattr(id, b"a", b"1", set, at(2)).unwrap();
    assert_refused!(f.set_xattr(id, b"", b"1", set, at(3)), Error::XattrName);
    assert_refused!(f.set_xattr(id, &[b'n'; 256], b"1", set, at(3)), Error::XattrName);
    assert_refused!(f.set_xattr(id, b"b", &large, set, at(3)), Error::XattrTooLarge);
    assert_refused!(f.set_xattr(id, b"b", &large[1..], set, at(3)), Error::XattrsFull);
    assert_refused!(f.set_xattr(id, b"a", b"2", XattrMode::Create, at(3)), Error::Exists);
    assert_refused!(f.set_xattr(id, b"b", b"2", XattrMode::Replace, at(3)), Error::NoXattr);
    assert_refused!(f.remove_xattr(id, b"b", at(3)), Error::NoXattr);
    assert_refused!(f.remove_xattr(id, b"", at(3)), Error::XattrName);
    assert_eq!((f.xattrs(id), f.times(id).1), (vec!["a".into()], 2));
    f.set_xattr(id, b"a", &large[1..], set, at(4)).unwrap();
    for number in 0..(XATTR_LIST_MAX - 2) / 256 {
        f.set_xattr(id, format!("{number:0>255}").as_bytes(), b"", set, at(5)).unwrap();
    }
    assert_refused!(f.set_xattr(id, &[b'n'; 255], b"", set, at(6)), Error::XattrsFull);
}
