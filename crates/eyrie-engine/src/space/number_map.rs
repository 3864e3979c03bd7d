//! Maps by number of a page or of a header chunk.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by number of a page or chunk.
pub(crate) type NumberMap<V> = HashMap<u32, V, BuildHasherDefault<NumberHasher>>;

/// Hashes one small number: multiplies it by (2^64 / golden ratio), which spreads the bits of the number. The
/// hash has no key: numbers that were chosen by an attacker can make look-ups slow, but not wrong.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
