//! Runs the tests of the module `posix` for longer, on other seeds. The program takes minutes and must run as
//! root:
//!
//! ```sh
//! cargo run --release -p eyriefs-testkit --bin long_posix
//! ```
//!
//! The program prints the number of calls of each comparison. With `EYRIE_TEST_SEEDS=1830-1840` it uses only
//! the seeds from 1830 to 1839.

use std::num::NonZero;

use eyrie::MediumChoice;
use eyrie_faults::FaultPlan;
use eyrie_medium::Medium;
use eyrie_testkit::posix::{
    Comparison, clients_in_tmpfs_root, compare_clients_with_host, compare_locks_of_clients_with_host,
    compare_locks_with_host, compare_model_with_host, compare_scm_with_host, compare_threads_with_host,
};
use eyrie_testkit::power::DiskSizes;

/// Number of calls of each seed.
const CALLS: usize = 1000;

fn main() {
    // The comparison starts the program again with other arguments, so the seeds come from the environment.
    let seeds = std::env::var("EYRIE_TEST_SEEDS").unwrap_or_else(|_| "1000-2000".to_string());
    let (first, end) = seeds.split_once('-').expect("EYRIE_TEST_SEEDS=FIRST-END");
    let [first, end] = [first, end].map(|seed| seed.parse::<u64>().expect("a seed"));
    assert!(first < end, "EYRIE_TEST_SEEDS has no seed");
    let calls = (end - first) * CALLS as u64;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
    clients_in_tmpfs_root("long_posix", 1 << 30, MediumChoice::Auto, |clients| {
        // A tenth of the seeds, and at least one, so that each comparison can replay a single seed.
        let fewer = first..first + (end - first).div_ceil(10);
        let fewer_calls = (fewer.end - fewer.start) * CALLS as u64;
        compare_locks_with_host(fewer.clone(), CALLS);
        println!("{fewer_calls} calls on locks: the answers are those of the kernel.");
        compare_model_with_host(&Comparison::long(fewer.clone(), CALLS));
        println!("{fewer_calls} calls on the model: the answers and trees are those of the kernel.");
        let sizes = DiskSizes { volume_bytes: 256 << 20, memory_bytes: 1 << 20 };
        let (paged, _) = sizes.medium(&FaultPlan::default()).expect("a new disk");
        compare_scm_with_host(paged, &Comparison::long(fewer.clone(), CALLS));
        println!("{fewer_calls} calls on pages of a disk: the answers and trees are those of the kernel.");
        compare_locks_of_clients_with_host(clients, fewer.clone(), CALLS);
        println!("{fewer_calls} calls of three clients on locks: the answers are those of the kernel.");
        compare_clients_with_host(clients, Comparison::long(fewer, CALLS));
        println!("{fewer_calls} calls of three clients: the answers and trees are those of the kernel.");
        let bound = |part| first + (end - first) * part / threads;
        let part = |part| Comparison::long(bound(part)..bound(part + 1), CALLS);
        let parts: Vec<_> = (0..threads).map(part).collect();
        compare_threads_with_host(Medium::memory(4 << 30).expect("memory"), &parts);
        println!(
            "{calls} calls of {threads} threads on a volume: the answers and trees are those of the kernel."
        );
    });
}
