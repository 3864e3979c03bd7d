//! Applies a difference, which the fuzzer generates, to a sound volume, and uses the result as the tests use
//! hostile images. `cargo +nightly fuzz run images` runs this target.

#![no_main]

use std::sync::OnceLock;

use eyrie_testkit::hostile::{BaseVolume, Image, bases, examine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    static BASES: OnceLock<Vec<BaseVolume>> = OnceLock::new();
    if let Some(image) = Image::from_fuzzer(BASES.get_or_init(bases), bytes) {
        examine(image.medium());
    }
});
