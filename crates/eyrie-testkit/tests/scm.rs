//! The scm engine beside the model.

use std::path::Path;

use eyrie_engine::volume::Options;
use eyrie_engine::{Content, Engine, Kind, ObjectId, Op, Owner, Time, XattrMode, scm::Scm};
use eyrie_medium::{Addr, Medium};
use eyrie_testkit::compare::{difference, tree};
use eyrie_testkit::oracle;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time::new(1, 0);
const BYTES: u64 = 64 << 20;

fn options() -> Options {
    Options { group_bytes: 8 << 20, hash_seed: 7, volume_id: [1; 16], created: BORN }
}

fn in_memory() -> Scm {
    let medium = Medium::memory(BYTES).expect("memory");
    Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume")
}

fn on_host(path: &Path) -> Scm {
    Scm::create(path, BYTES, &options(), OWNER, BORN).expect("a new volume")
}

fn assert_clean(engine: &Scm) {
    let report = engine.check().expect("the medium is sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn random_ops_give_what_the_model_gives() {
    for seed in 0..200 {
        oracle::check(in_memory, seed, 600);
    }
}

#[test]
fn after_any_ops_the_volume_is_sound_and_opens_to_the_same() {
    let host = tempfile::tempdir().expect("a directory");
    for seed in 1000..1060 {
        let path = host.path().join(format!("volume-{seed}"));
        let engine = on_host(&path);
        oracle::run(&engine, seed, 300, oracle::Options::default()).expect("the model's results");
        assert_clean(&engine);
        let before = tree(&engine);

        engine.close().expect("close");
        let engine = Scm::open(&path).expect("open");
        assert!(!engine.recovered(), "a closed volume needs no recovery");
        assert_eq!(difference(&before, &tree(&engine)), None, "after close, seed {seed}");
        assert_clean(&engine);

        // As when the process dies: nothing is saved.
        drop(engine);
        let engine = Scm::open(&path).expect("open");
        assert!(engine.recovered(), "a volume that was not closed is recovered");
        assert_eq!(difference(&before, &tree(&engine)), None, "after recovery, seed {seed}");
        assert_clean(&engine);
    }
}

/// A new file `name` in the root, with an extended attribute of these bytes.
fn file_with_xattr(engine: &Scm, name: &[u8], value: &[u8]) -> ObjectId {
    let (dir, id) = (engine.root(), engine.reserve(Kind::File).expect("room"));
    let content = Content::Bytes(b"bytes");
    engine.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: BORN }).expect("created");
    engine
        .apply(&Op::SetXattr { id, name: b"user.a", value, mode: XattrMode::Set, time: BORN })
        .expect("set");
    id
}

#[test]
fn extended_attributes_take_space_and_give_it_back() {
    let engine = in_memory();
    let (dir, time) = (engine.root(), BORN);
    // What directories and tables need is there before.
    file_with_xattr(&engine, b"before", b"1");
    let free = engine.space().free;
    for is_open in [false, true] {
        let id = file_with_xattr(&engine, b"file", &[7; 60_000]);
        let allocated = |id| engine.attributes(id).expect("there").allocated;
        assert!((60_000..80_000).contains(&allocated(id)), "{} bytes", allocated(id));
        assert!(engine.space().free <= free - 60_000);
        let (name, mode) = (b"user.a", XattrMode::Replace);
        engine.apply(&Op::SetXattr { id, name, value: &[8; 5000], mode, time }).expect("replaced");
        assert!((5000..20_000).contains(&allocated(id)), "{} bytes", allocated(id));
        if is_open {
            engine.open(id).expect("there");
        }
        engine.apply(&Op::Unlink { dir, name: b"file", time }).expect("there");
        if is_open {
            let mut value = [0; 5000];
            assert_eq!(engine.xattr(id, name, &mut value).expect("open"), Some(5000));
            assert_eq!(value, [8; 5000]);
            Engine::close(&engine, id);
        }
        assert_eq!(engine.space().free, free, "the space of a removed file is free");
        assert_clean(&engine);
    }
}

#[test]
fn damaged_extended_attributes_are_found_and_harm_no_other_call() {
    let engine = in_memory();
    let value = [0xa5; 300];
    let id = file_with_xattr(&engine, b"file", &value);
    let medium = engine.volume().medium();
    let image = medium.snapshot();
    let at = image.windows(value.len()).position(|bytes| bytes == value).expect("it is somewhere");
    // The entry's head, before the name.
    let head = Addr::from_raw((at - b"user.a".len() - 6) as u64);
    drop(medium.write(head, &[0xff; 4]).expect("in bounds"));
    let report = engine.check().expect("the medium is sound");
    assert!(report.findings.iter().any(|finding| finding.contains("extended attribute")), "{report:?}");
    assert!(engine.xattr(id, b"user.a", &mut []).is_err());
    assert!(engine.apply(&Op::RemoveXattr { id, name: b"user.a", time: BORN }).is_err());
    let mut bytes = [0; 5];
    assert_eq!(engine.read(id, 0, &mut bytes).expect("sound"), 5);
    engine.apply(&Op::Unlink { dir: engine.root(), name: b"file", time: BORN }).expect("sound");
    assert_clean(&engine);
}
