//! Runs the tests of the module `posix` for longer, on other seeds. The program takes minutes and must run as
//! root:
//!
//! ```sh
//! cargo run --release -p eyriefs-testkit --bin long_posix
//! ```
//!
//! With `EYRIE_TEST_SEEDS=1830-1840` the program runs only the seeds from 1830 to 1839.

use eyrie_medium::Medium;
use eyrie_testkit::posix::{
    compare_locks_with_host, compare_model_with_host, compare_scm_with_host, in_tmpfs_root,
};

fn main() {
    // `in_tmpfs_root` starts the program again with other arguments, so the seeds come from the environment.
    let seeds = std::env::var("EYRIE_TEST_SEEDS").unwrap_or_else(|_| "1000-2000".to_string());
    let (first, end) = seeds.split_once('-').expect("EYRIE_TEST_SEEDS=FIRST-END");
    let [first, end] = [first, end].map(|seed| seed.parse::<u64>().expect("a seed"));
    in_tmpfs_root("long_posix", || {
        compare_locks_with_host(first..end, 1000);
        println!("Locks are those of the kernel.");
        compare_model_with_host(first..end, 400);
        println!("The model behaves as the kernel.");
        compare_scm_with_host(Medium::memory(1 << 30).expect("memory"), first..end, 400);
        println!("The scm engine behaves as the kernel.");
    });
}
