//! Differences from a sound volume, as the fuzzer finds them: `cargo +nightly fuzz run images`.

#![no_main]

use std::sync::OnceLock;

use eyrie_testkit::hostile::{BaseVolume, Image, bases, examine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    static BASES: OnceLock<Vec<BaseVolume>> = OnceLock::new();
    if let Some(image) = Image::of_delta(BASES.get_or_init(bases), bytes) {
        examine(image.medium());
    }
});
