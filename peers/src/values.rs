//! The keys and values of a run. All of them follow from numbers, so each result can be compared with the
//! bytes that it should have.

/// The generator SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Returns the key with this number. Keys have the order of their numbers.
pub fn key(number: usize) -> Vec<u8> {
    format!("key-{number:010}").into_bytes()
}

/// Replaces `out` by the value that a key has after `version` changes.
pub fn value(number: usize, version: u32, bytes: usize, out: &mut Vec<u8>) {
    let mut random = Random::new((number as u64) << 32 | u64::from(version));
    out.clear();
    while out.len() < bytes {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(bytes);
}
