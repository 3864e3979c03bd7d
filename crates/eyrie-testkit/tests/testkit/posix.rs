//! Compares `Pxfs` with a tmpfs of the kernel: the same random calls, as root, as two users without
//! capabilities, as a user with one, and as a user whose real ids differ from the effective ones. The program
//! `long_posix` runs more seeds.

use eyrie::QuotaKind;
use eyrie_medium::Medium;
use eyrie_testkit::posix::{
    Comparison, OwnerLimits, compare_deadlocks_with_host, compare_locks_with_host, compare_model_with_host,
    compare_quotas_with_host, compare_scm_with_host, compare_threads_with_host, generate_pages,
    in_tmpfs_root, in_tmpfs_with_quotas, plain_users,
};
use eyrie_testkit::power::DiskSizes;

#[test]
fn the_model_behaves_as_the_kernel() {
    in_tmpfs_root("posix::the_model_behaves_as_the_kernel", || {
        compare_model_with_host(&Comparison::new(0..120, 300));
    });
}

#[test]
fn random_calls_match_the_kernel() {
    in_tmpfs_root("posix::random_calls_match_the_kernel", || {
        compare_scm_with_host(Medium::memory(1 << 30).expect("memory"), &Comparison::new(0..120, 300))
    });
}

#[test]
fn random_calls_of_threads_match_the_kernel() {
    in_tmpfs_root("posix::random_calls_of_threads_match_the_kernel", || {
        let seeds = [1000..1050, 1050..1100, 1100..1150];
        let comparisons = seeds.map(|seeds| Comparison::long(seeds, 300));
        compare_threads_with_host(Medium::memory(1 << 30).expect("memory"), &comparisons);
    });
}

#[test]
fn random_calls_on_pages_equal_the_kernel() {
    in_tmpfs_root("posix::random_calls_on_pages_equal_the_kernel", || {
        let sizes = DiskSizes { volume_bytes: 128 << 20, memory_bytes: 1 << 20 };
        compare_scm_with_host(
            sizes.medium(&eyrie_faults::FaultPlan::default()).expect("a new disk").0,
            &Comparison::new(100..112, 300),
        )
    });
}

/// Compares random calls with those of a tmpfs with limits. The test with the name `test` calls this
/// function.
fn compare_limits(test: &str, limits: OwnerLimits, comparison: Comparison) {
    in_tmpfs_with_quotas(test, limits, || {
        compare_quotas_with_host(Medium::memory(1 << 30).expect("memory"), limits, comparison);
    });
}

/// Returns a comparison of calls that store whole pages. A write above a limit sets times in a tmpfs, but not
/// in a volume, so the comparison has no seeds that compare times.
fn pages_of_users() -> Comparison {
    Comparison { generate: generate_pages, users: plain_users, ..Comparison::long(1..200, 300) }
}

#[test]
fn limits_of_objects_are_those_of_the_kernel() {
    let limits = OwnerLimits { kind: QuotaKind::User, objects: 2, pages: 0 };
    compare_limits("posix::limits_of_objects_are_those_of_the_kernel", limits, Comparison::new(0..60, 300));
}

#[test]
fn limits_of_storage_are_those_of_the_kernel() {
    let limits = OwnerLimits { kind: QuotaKind::User, objects: 0, pages: 3 };
    compare_limits("posix::limits_of_storage_are_those_of_the_kernel", limits, pages_of_users());
}

#[test]
fn limits_of_groups_are_those_of_the_kernel() {
    let limits = OwnerLimits { kind: QuotaKind::Group, objects: 3, pages: 4 };
    compare_limits("posix::limits_of_groups_are_those_of_the_kernel", limits, pages_of_users());
}

#[test]
fn random_locks_match_the_kernel() {
    in_tmpfs_root("posix::random_locks_match_the_kernel", || compare_locks_with_host(0..40, 400));
}

#[test]
fn deadlocks_are_those_of_the_kernel() {
    in_tmpfs_root("posix::deadlocks_are_those_of_the_kernel", compare_deadlocks_with_host);
}

#[test]
fn child_process_without_a_test_is_noticed() {
    let run = || in_tmpfs_root("posix::no_such_test", || ());
    let is_noticed = std::panic::catch_unwind(run).is_err();
    assert_eq!(is_noticed, rustix::process::geteuid().is_root(), "only root starts child processes");
}
