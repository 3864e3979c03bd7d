//! The scm engine beside the model.

use std::path::Path;

use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Owner, Time, scm::Scm};
use eyrie_medium::Medium;
use eyrie_testkit::compare::{difference, tree};
use eyrie_testkit::oracle;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time::new(1, 0);
const BYTES: u64 = 64 << 20;

fn options() -> Options {
    Options {
        group_bytes: 8 << 20,
        hash_seed: 7,
        volume_id: [1; 16],
        created: BORN,
        medium: MediumChoice::Auto,
    }
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
