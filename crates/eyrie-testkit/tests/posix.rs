//! PXFS on the scm engine beside the kernel's tmpfs: the same random calls, as root and as two other users.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use eyrie::{Credentials, Pxfs};
use eyrie_engine::volume::Options;
use eyrie_engine::{Owner, Time, scm::Scm};
use eyrie_medium::Medium;
use eyrie_testkit::posix::{compare_with_host, in_tmpfs_root};

/// A clock that never shows the same time twice.
fn counter() -> Time {
    static NEXT: AtomicI64 = AtomicI64::new(2_000_000_000);
    Time::new(NEXT.fetch_add(1, Ordering::Relaxed), 0)
}

#[test]
fn random_calls_give_what_the_kernel_gives() {
    in_tmpfs_root("random_calls_give_what_the_kernel_gives", || {
        let medium = Medium::memory(1 << 30).expect("memory");
        let options = Options { group_bytes: 64 << 20, hash_seed: 7, volume_id: [1; 16], created: counter() };
        let owner = Owner { mode: 0o777, uid: 0, gid: 0 };
        let engine = Arc::new(Scm::create_on(medium, &options, owner, counter()).expect("a new volume"));
        let fs = Pxfs::new(Arc::clone(&engine), Credentials::root()).with_clock(counter);
        if let Err(difference) = compare_with_host(|who| fs.with_credentials(who.clone()), 0..60, 300) {
            panic!("{difference}");
        }
        let report = engine.check().expect("the medium is sound");
        assert!(report.is_clean(), "{:#?}", report.findings);
    });
}
