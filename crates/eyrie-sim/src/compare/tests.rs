//! Trees of small volumes, and the differences between them.

use eyrie_engine::{
    AttributeChange, Content, Engine, Kind, Model, ObjectId, Op, Owner, SetIds, Time, XattrMode,
};

use super::*;

const OWNER: Owner = Owner { mode: 0o644, uid: 7, gid: 8 };

/// Makes a model whose root has the id of a directory at `place`. The model has a directory, a file under two
/// names, and a symbolic link.
fn sample(place: u64) -> (Model, ObjectId) {
    let root = ObjectId::new(place, Kind::Directory);
    let model = Model::new(root, OWNER, Time::new(1, 0));
    let dir = create(&model, root, b"dir", Kind::Directory, Content::Empty);
    let file = create(&model, dir, b"file", Kind::File, Content::Bytes(b"bytes"));
    create(&model, dir, b"link", Kind::Symlink, Content::Bytes(b"file"));
    model.apply(&Op::Link { dir: root, name: b"other", id: file, time: Time::new(2, 0) }).unwrap();
    (model, file)
}

fn create(model: &Model, dir: ObjectId, name: &[u8], kind: Kind, content: Content<'_>) -> ObjectId {
    let id = model.reserve(kind).unwrap();
    model.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: Time::new(2, 0) }).unwrap();
    id
}

/// Returns the difference between the sample and the same sample after `op`.
fn difference_after(op: impl Fn(&Model, ObjectId) -> Op<'static>) -> String {
    let (model, file) = sample(1 << 20);
    let before = tree(&model);
    model.apply(&op(&model, file)).unwrap();
    difference(&before, &tree(&model)).expect("they differ")
}

#[test]
fn a_tree_does_not_depend_on_ids() {
    let (a, _) = sample(1 << 20);
    let (b, _) = sample(1 << 30);
    b.reserve(Kind::File).unwrap();
    assert_eq!(difference(&tree(&a), &tree(&b)), None);
    let paths: Vec<String> = tree(&a).nodes.keys().map(super::tree::show).collect();
    assert_eq!(paths, ["/", "/dir", "/dir/file", "/dir/link", "/other"]);
}

#[test]
fn names_of_one_object_are_distinguished_from_copies() {
    let (a, _) = sample(1 << 20);
    let (b, _) = sample(1 << 20);
    b.apply(&Op::Unlink { dir: b.root(), name: b"other", time: Time::new(2, 0) }).unwrap();
    create(&b, b.root(), b"other", Kind::File, Content::Bytes(b"bytes"));
    let text = difference(&tree(&a), &tree(&b)).expect("they differ");
    assert!(text.contains("/other: same object as /dir/file, and no other path"), "{text}");
}

#[test]
fn every_difference_is_reported() {
    let time = Time::new(2, 0);
    let text = difference_after(|_, id| Op::Write { id, offset: 2, data: b"T", set_ids: SetIds::Keep, time });
    assert_eq!(text, "/dir/file: byte 2 is 0x74, and 0x54");
    let text = difference_after(|_, id| Op::SetSize { id, size: 4, set_ids: SetIds::Keep, time });
    assert!(text.contains("/dir/file: size 5, and 4"), "{text}");
    let change = AttributeChange { mode: Some(0o600), modified: Some(Time::new(9, 9)), ..Default::default() };
    let text = difference_after(|_, id| Op::SetAttributes { id, change, time });
    assert!(text.contains("/dir/file: mode 0o644, and 0o600"), "{text}");
    assert!(text.contains("modified Time"), "{text}");
    let xattr = |id| Op::SetXattr { id, name: b"user.a", value: b"1", mode: XattrMode::Set, time };
    let text = difference_after(move |_, id| xattr(id));
    assert!(text.contains("/dir/file: extended attribute user.a absent, and of 1 B"), "{text}");
    let text = difference_after(|model, _| Op::Unlink { dir: model.root(), name: b"other", time });
    assert!(text.contains("/other: File in the first only"), "{text}");
}

#[test]
fn differences_of_xattrs_show_sizes_or_the_first_byte() {
    let xattrs = |pairs: &[(&str, &str)]| -> Xattrs {
        pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    };
    let left = xattrs(&[("user.a", "1"), ("user.\n", "value"), ("user.same", "x")]);
    let right = xattrs(&[("user.\n", "vague"), ("user.same", "x"), ("user.z", "longer")]);
    let expected = [
        "byte 2 of extended attribute user.\\n 0x6c, and 0x67",
        "extended attribute user.a of 1 B, and absent",
        "extended attribute user.z absent, and of 6 B",
    ];
    assert_eq!(xattr_differences(&left, &right), expected);
    assert_eq!(xattr_differences(&left, &left), [""; 0]);
}

#[test]
fn parts_left_out_do_not_differ() {
    let (model, id) = sample(1 << 20);
    let read = |include| try_tree(&model, include).unwrap();
    let no_contents = TreeParts { contents: false, ..TreeParts::NO_TIMES };
    let before = (read(TreeParts::NO_TIMES), read(no_contents), tree(&model));
    model.apply(&Op::SetSize { id, size: 5, set_ids: SetIds::Keep, time: Time::new(3, 0) }).unwrap();
    assert_eq!(before.0, read(TreeParts::NO_TIMES));
    assert_ne!(before.2, tree(&model));
    model
        .apply(&Op::Write { id, offset: 0, data: b"B", set_ids: SetIds::Keep, time: Time::new(3, 0) })
        .unwrap();
    assert_ne!(before.0, read(TreeParts::NO_TIMES));
    assert_eq!(before.1, read(no_contents));
}

#[test]
fn zeros_equal_holes_in_huge_files() {
    let (a, id) = sample(1 << 20);
    let (b, _) = sample(1 << 20);
    let far = 1 << 62;
    for model in [&a, &b] {
        model
            .apply(&Op::Write { id, offset: far, data: b"far", set_ids: SetIds::Keep, time: Time::new(3, 0) })
            .unwrap();
    }
    b.apply(&Op::Write {
        id,
        offset: 1 << 40,
        data: &[0; 9000],
        set_ids: SetIds::Keep,
        time: Time::new(3, 0),
    })
    .unwrap();
    assert_eq!(difference(&tree(&a), &tree(&b)), None);
    b.apply(&Op::Write { id, offset: far + 1, data: b"A", set_ids: SetIds::Keep, time: Time::new(3, 0) })
        .unwrap();
    let text = difference(&tree(&a), &tree(&b)).expect("they differ");
    assert_eq!(text, format!("/dir/file: byte {} is 0x61, and 0x41", far + 1));
}
