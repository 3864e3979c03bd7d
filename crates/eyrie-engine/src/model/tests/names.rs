//! Tests of `Create`, `Link`, `Unlink`, and objects without names.

use super::*;

#[test]
fn create_sets_attributes_and_touches_directory() {
    let f = Fixture::new();
    let id = f.try_create(f.root, b"x", Kind::File, Content::Bytes(b"hello"), at(7)).unwrap();
    let attributes = f.attributes(id);
    assert_eq!((attributes.kind, attributes.links, attributes.size), (Kind::File, 1, 5));
    assert_eq!((attributes.mode, attributes.uid, attributes.gid), (0o755, 1000, 100));
    let times =
        [attributes.accessed, attributes.modified, attributes.changed, f.model.birth(id).unwrap().created];
    assert_eq!(times, [at(7); 4]);
    assert_eq!((f.attributes(f.root).accessed, f.times(f.root)), (START, (7, 7)));
    assert_eq!(f.get(f.root, "x"), Some(id));
    assert_eq!(f.bytes(id), b"hello");
}

#[test]
fn a_taken_name_is_refused_and_changes_nothing() {
    let f = Fixture::new();
    let id = f.file(f.root, "x");
    assert_refused!(f.try_create(f.root, b"x", Kind::Directory, Content::Empty, at(2)), Error::Exists);
    assert_refused!(f.link(f.root, "x", id, at(2)), Error::Exists);
    assert_eq!(f.times(f.root), (1, 1));
    assert_eq!(f.attributes(id).links, 1);
}

#[test]
fn names_have_one_to_255_bytes_of_any_kind() {
    let f = Fixture::new();
    let file = |name: &[u8]| f.try_create(f.root, name, Kind::File, Content::Empty, at(2));
    assert_refused!(file(b""), Error::Invalid(_));
    assert_refused!(file(&[b'a'; 256]), Error::NameTooLong);
    file(&[b'a'; 255]).unwrap();
    file(b"\xff\0/\xfe").unwrap();
    assert_refused!(f.model.lookup(f.root, &[b'a'; 256]), Error::NameTooLong);
    assert_refused!(f.model.lookup(f.root, b""), Error::Invalid(_));
    assert_refused!(f.unlink(f.root, "", at(2)), Error::Invalid(_));
}

#[test]
fn only_directories_have_entries() {
    let f = Fixture::new();
    let file = f.file(f.root, "x");
    assert_refused!(f.try_create(file, b"y", Kind::File, Content::Empty, at(2)), Error::NotDirectory);
    assert_refused!(f.model.lookup(file, b"y"), Error::NotDirectory);
    assert_refused!(f.model.list(file, 0, &mut |_| true), Error::NotDirectory);
    assert_refused!(f.unlink(file, "y", at(2)), Error::NotDirectory);
    assert_refused!(f.remove_directory(file, "y", at(2)), Error::NotDirectory);
    assert_refused!(f.link(file, "y", file, at(2)), Error::NotDirectory);
    assert_refused!(f.rename((f.root, "x"), (file, "y"), RenameMode::Replace, at(2)), Error::NotDirectory);
}

#[test]
fn kinds_start_with_their_own_content_only() {
    let f = Fixture::new();
    let start = |kind, content| f.try_create(f.root, b"new", kind, content, at(2));
    assert_refused!(start(Kind::Directory, Content::Bytes(b"x")), Error::Invalid(_));
    assert_refused!(start(Kind::Symlink, Content::Empty), Error::Invalid(_));
    assert_refused!(start(Kind::Symlink, Content::Bytes(b"")), Error::Invalid(_));
    assert_refused!(start(Kind::File, Content::Device(1)), Error::Invalid(_));
    assert_refused!(start(Kind::Fifo, Content::Device(1)), Error::Invalid(_));
    assert_refused!(start(Kind::BlockDevice, Content::Empty), Error::Invalid(_));
    let device = f.create(f.root, "device", Kind::CharDevice);
    assert_eq!(f.attributes(device).device, 0x103);
    let link = f.create(f.root, "link", Kind::Symlink);
    assert_eq!((f.bytes(link).as_slice(), f.attributes(link).size), (&b"target"[..], 6));
}

#[test]
fn create_refuses_used_id_and_large_mode() {
    let f = Fixture::new();
    let id = f.file(f.root, "x");
    let create = |id, mode| {
        let owner = Owner { mode, ..OWNER };
        f.model.apply(&Op::Create {
            dir: f.root,
            name: b"y",
            id,
            owner,
            content: Content::Empty,
            time: at(2),
        })
    };
    assert_refused!(create(id, 0), Error::Invalid(_));
    assert_refused!(create(f.model.reserve(Kind::File).unwrap(), 0o20000), Error::Invalid(_));
}

#[test]
fn a_link_is_another_name_for_the_same_object() {
    let f = Fixture::new();
    let id = f.file(f.root, "x");
    let dir = f.dir(f.root, "d");
    f.link(dir, "y", id, at(4)).unwrap();
    assert_eq!(f.get(dir, "y"), Some(id));
    assert_eq!((f.attributes(id).links, f.times(id)), (2, (1, 4)));
    assert_eq!((f.times(dir), f.times(f.root)), ((4, 4), (1, 1)));
}

#[test]
fn link_refuses_directories_and_nameless_objects() {
    let f = Fixture::new();
    let dir = f.dir(f.root, "d");
    assert_refused!(f.link(f.root, "e", dir, at(2)), Error::NotPermitted);
    let id = f.file(f.root, "x");
    f.model.open(id).unwrap();
    f.unlink(f.root, "x", at(2)).unwrap();
    assert_refused!(f.link(f.root, "y", id, at(3)), Error::NotFound);
    f.model.close(id);
    assert_refused!(f.link(f.root, "y", id, at(3)), Error::Stale);
}

#[test]
fn unlink_of_last_name_removes_object() {
    let f = Fixture::new();
    let id = f.file(f.root, "x");
    f.link(f.root, "y", id, START).unwrap();
    f.unlink(f.root, "x", at(3)).unwrap();
    assert_eq!((f.attributes(id).links, f.times(id), f.times(f.root)), (1, (1, 3), (3, 3)));
    assert_refused!(f.unlink(f.root, "x", at(4)), Error::NotFound);
    f.unlink(f.root, "y", at(4)).unwrap();
    assert_refused!(f.model.attributes(id), Error::Stale);
    assert_refused!(f.model.open(id), Error::Stale);
    assert_refused!(f.write(id, 0, b"x", at(5)), Error::Stale);
    assert_eq!(f.model.objects(), [f.root]);
}

#[test]
fn unlink_refuses_directories() {
    let f = Fixture::new();
    f.dir(f.root, "d");
    assert_refused!(f.unlink(f.root, "d", at(2)), Error::IsDirectory);
}

#[test]
fn an_open_object_outlives_its_names() {
    let f = Fixture::new();
    let id = f.file(f.root, "x");
    f.model.open(id).unwrap();
    f.model.open(id).unwrap();
    f.unlink(f.root, "x", at(3)).unwrap();
    assert_eq!((f.attributes(id).links, f.times(id)), (0, (1, 3)));
    f.write(id, 0, b"still here", at(4)).unwrap();
    f.model.close(id);
    assert_eq!(f.bytes(id), b"still here");
    f.model.close(id);
    assert_refused!(f.model.attributes(id), Error::Stale);
}

#[test]
fn a_fork_goes_its_own_way() {
    let f = Fixture::new();
    let id = f.file(f.root, "x");
    f.write(id, 0, b"before", at(2)).unwrap();
    let fork = f.model.fork();
    f.write(id, 0, b"after.", at(3)).unwrap();
    f.unlink(f.root, "x", at(4)).unwrap();
    let mut out = [0; 6];
    fork.read(id, 0, &mut out).unwrap();
    assert_eq!((&out, fork.attributes(id).unwrap().links), (b"before", 1));
}
