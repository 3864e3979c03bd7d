//! The tests of `tests/posix.rs` for longer, on other seeds. It takes minutes and must run as root:
//!
//! ```sh
//! cargo run --release -p eyrie-testkit --example long_posix
//! ```

use eyrie_medium::Medium;
use eyrie_testkit::posix::{compare_model_with_host, compare_scm_with_host, in_tmpfs_root};

fn main() {
    in_tmpfs_root("long_posix", || {
        compare_model_with_host(1000..2000, 400);
        println!("The model behaves as the kernel.");
        compare_scm_with_host(Medium::memory(1 << 30).expect("memory"), 1000..2000, 400);
        println!("The scm engine behaves as the kernel.");
    });
}
