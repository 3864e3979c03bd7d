//! The random generator of tests and scripts. Its sequence follows from its seed.

/// The constant that each step adds to the state.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). The field is its state.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Returns the next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "the sequence does not end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns output number `index` (from 0) of the generator with state `seed`. Each step adds a constant
    /// to the state, so this call computes no earlier output.
    #[inline]
    #[must_use]
    pub fn output(seed: u64, index: u64) -> u64 {
        SplitMix64(seed.wrapping_add(GAMMA.wrapping_mul(index))).next()
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_the_published_one() {
        let mut random = SplitMix64(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_eq!(SplitMix64::output(1_234_567, 1), 3_203_168_211_198_807_973);
    }
}
