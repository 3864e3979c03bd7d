//! The scm engine beside the model.

use eyrie_engine::volume::Options;
use eyrie_engine::{Owner, Time, scm::Scm};
use eyrie_medium::Medium;
use eyrie_testkit::oracle;

fn options() -> Options {
    Options { group_bytes: 8 << 20, hash_seed: 7, volume_id: [1; 16], created: Time::new(1, 0) }
}

fn new_volume() -> Scm {
    let medium = Medium::memory(64 << 20).expect("memory");
    let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
    Scm::create_on(medium, &options(), owner, Time::new(1, 0)).expect("a new volume")
}

#[test]
fn random_ops_give_what_the_model_gives() {
    for seed in 0..200 {
        oracle::check(new_volume, seed, 600);
    }
}
