//! Tests of files without a name: their life, their first names, and their end by a crash or a close.

use std::collections::HashMap;

use super::*;
use crate::{Applied, claims};

/// Makes a file without a name, opens it, and writes to it.
fn unnamed(engine: &Scm, linkable: bool) -> ObjectId {
    let (dir, id) = (engine.root(), engine.reserve(Kind::File).expect("room"));
    engine.apply(&Op::CreateUnnamed { dir, id, owner: OWNER, linkable, time: BORN }).expect("room");
    engine.open(id).expect("just made");
    let data = &[7; 100_000];
    engine.apply(&Op::Append { id, data, set_ids: SetIds::Keep, time: BORN }).expect("room");
    id
}

fn link(engine: &Scm, id: ObjectId, name: &[u8]) -> Result<Applied> {
    engine.apply(&Op::Link { dir: engine.root(), name, id, time: LATER })
}

/// Returns the volume as the next process finds it after a crash.
fn after_crash(engine: &Scm) -> Scm {
    Scm::open_on(Medium::memory_holding(&engine.medium().snapshot()).expect("memory")).expect("sound")
}

fn assert_clean(engine: &Scm) {
    let report = engine.check().expect("sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn last_close_frees_unnamed_file() {
    let engine = engine();
    let before = engine.space();
    let id = unnamed(&engine, true);
    let attributes = engine.attributes(id).expect("open");
    assert_eq!((attributes.links, attributes.size), (0, 100_000));
    assert!(engine.space().free < before.free);
    assert_clean(&engine);
    engine.open(id).expect("a further open of an open file");
    engine.close_object(id);
    assert!(engine.attributes(id).is_ok(), "one open is left");
    engine.close_object(id);
    assert!(matches!(engine.open(id), Err(Error::Stale)));
    engine.reclaim();
    assert_eq!(engine.space(), before);
    assert_clean(&engine);
}

#[test]
fn first_name_keeps_the_file() {
    let engine = engine();
    let id = unnamed(&engine, true);
    link(&engine, id, b"first").expect("linkable");
    let attributes = engine.attributes(id).expect("open");
    assert_eq!((attributes.links, attributes.changed), (1, LATER));
    link(&engine, id, b"second").expect("a further name");
    engine.close_object(id);
    assert_clean(&engine);
    let next = after_crash(&engine);
    assert_eq!(next.lookup(next.root(), b"first").expect("sound"), Some(id));
    assert_eq!(next.attributes(id).expect("named").links, 2);
    assert_clean(&next);
    for name in [&b"first"[..], b"second"] {
        engine.apply(&Op::Unlink { dir: engine.root(), name, time: LATER }).expect("there");
    }
    assert!(matches!(engine.open(id), Err(Error::Stale)), "the last name was removed");
    assert_clean(&engine);
}

#[test]
fn unlinked_and_exclusive_files_get_no_name() {
    let engine = engine();
    let id = unnamed(&engine, false);
    assert!(matches!(link(&engine, id, b"name"), Err(Error::NotFound)));
    engine.close_object(id);
    let id = unnamed(&engine, true);
    link(&engine, id, b"name").expect("linkable");
    engine.apply(&Op::Unlink { dir: engine.root(), name: b"name", time: LATER }).expect("there");
    assert_eq!(engine.attributes(id).expect("open").links, 0);
    assert!(matches!(link(&engine, id, b"again"), Err(Error::NotFound)), "it has had a name");
    engine.close_object(id);
    assert_clean(&engine);
}

#[test]
fn failed_link_leaves_the_file_unnamed() {
    let engine = engine();
    let id = unnamed(&engine, true);
    assert!(matches!(link(&engine, id, &[b'n'; 256]), Err(Error::NameTooLong)));
    link(&engine, id, b"name").expect("linkable");
    let other = unnamed(&engine, true);
    assert!(matches!(link(&engine, other, b"name"), Err(Error::Exists)));
    assert_eq!(engine.attributes(other).expect("open").links, 0);
    engine.close_object(other);
    assert!(matches!(engine.open(other), Err(Error::Stale)));
    assert_clean(&engine);
}

#[test]
fn crash_and_close_free_unnamed_files() {
    let engine = engine();
    let free = engine.space();
    let id = unnamed(&engine, true);
    let next = after_crash(&engine);
    assert_eq!(next.space().objects, free.objects);
    assert_clean(&next);
    engine.close_object(id);

    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("v");
    let place = HostPlace::Directory(&path);
    let engine = Scm::create_at(place, Some(BYTES), &options(), OWNER, BORN).expect("room");
    let free = engine.space();
    unnamed(&engine, true);
    engine.close().expect("sound");
    let engine = Scm::open_at(place, PagedOptions::for_host()).expect("a closed volume");
    assert!(!engine.recovered(), "the close left a clean mark");
    assert_eq!(engine.space().objects, free.objects);
    assert_clean(&engine);
}

#[test]
fn only_files_are_made_without_a_name() {
    let engine = engine();
    let (dir, time) = (engine.root(), BORN);
    let id = engine.reserve(Kind::Directory).expect("room");
    let op = Op::CreateUnnamed { dir, id, owner: OWNER, linkable: true, time };
    assert!(matches!(engine.apply(&op), Err(Error::Invalid(_))));
    engine.unreserve(id);
    let (file, name, content) = (engine.reserve(Kind::File).expect("room"), b"file", Content::Empty);
    engine.apply(&Op::Create { dir, name, id: file, owner: OWNER, content, time }).expect("room");
    let id = engine.reserve(Kind::File).expect("room");
    let op = Op::CreateUnnamed { dir: file, id, owner: OWNER, linkable: true, time };
    assert!(matches!(engine.apply(&op), Err(Error::NotDirectory)));
    engine.unreserve(id);
    assert_clean(&engine);
}

/// Two threads: one closes the last handle of a file without a name, and the other one gives the file a name.
#[test]
fn link_beside_the_last_close_keeps_or_refuses() {
    // A pin of another test may keep all freed space meanwhile, so the volume has room for all rounds.
    let medium = Medium::memory(16 * BYTES).expect("memory");
    let engine = Scm::create_on(medium, &options(), OWNER, BORN).expect("room");
    for round in 0..200_u32 {
        let id = unnamed(&engine, true);
        let name = round.to_le_bytes();
        let linked = std::thread::scope(|scope| {
            let link = scope.spawn(|| {
                let _pin = eyrie_medium::epoch::pin();
                link(&engine, id, &name)
            });
            engine.close_object(id);
            link.join().expect("no panic")
        });
        match linked {
            Ok(_) => {
                assert_eq!(engine.attributes(id).expect("named").links, 1);
                engine.apply(&Op::Unlink { dir: engine.root(), name: &name, time: LATER }).expect("there");
            }
            Err(error) => {
                assert!(matches!(error, Error::Stale | Error::NotFound), "{error:?}");
                assert_eq!(engine.lookup(engine.root(), &name).expect("sound"), None);
            }
        }
        assert!(engine.open(id).is_err());
    }
    assert_clean(&engine);
}

/// A counter counts the opens of several objects. While one of them is open, none of the orphans among them
/// is freed.
#[test]
fn orphan_may_wait_for_the_close_of_another_file() {
    let medium = Medium::memory(64 << 20).expect("memory");
    let engine = Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume");
    let mut known = HashMap::new();
    let (other, file) = loop {
        let id = engine.reserve(Kind::File).expect("room");
        if let Some(other) = known.insert(claims::stripe_of(id), id) {
            break (other, id);
        }
    };
    let dir = engine.root;
    for (name, id) in [(&b"other"[..], other), (b"file", file)] {
        let content = Content::Bytes(&[7; 5000]);
        engine.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: BORN }).expect("room");
        engine.open(id).expect("there");
    }
    engine.apply(&Op::Unlink { dir, name: b"file", time: LATER }).expect("there");
    engine.close_object(file);
    assert!(engine.is_orphan(file), "its counter counts the open of the other file, too");
    engine.close_object(other);
    assert!(!engine.is_orphan(file));
    assert!(engine.open(file).is_err() && engine.open(other).is_ok());
}
