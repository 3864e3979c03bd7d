//! The bytes that calls write: a seed and an offset determine each byte.
//!
//! The bytes are words of eight bytes, little-endian. Word *i* of seed *s* is output *i* (from 0) of
//! SplitMix64 with *s* as its initial state. The state of SplitMix64 grows by a constant at each step. So a
//! word is a function of *s* and *i*, and any range of bytes can be made without the bytes before it.

use eyrie_faults::SplitMix64;

/// Size of a word, in bytes.
const WORD: u64 = 8;

/// Returns word `index` of the bytes of `seed`.
#[inline]
#[must_use]
pub fn word(seed: u64, index: u64) -> u64 {
    SplitMix64::output(seed, index)
}

/// Fills `out` with the bytes of `seed` from `offset` on.
pub fn fill(seed: u64, offset: u64, out: &mut [u8]) {
    let skipped = (offset % WORD) as usize;
    let mut index = offset / WORD;
    let first = out.len().min((WORD as usize - skipped) % WORD as usize);
    let (head, tail) = out.split_at_mut(first);
    if !head.is_empty() {
        head.copy_from_slice(&word(seed, index).to_le_bytes()[skipped..][..head.len()]);
        index += 1;
    }
    let (words, end) = tail.as_chunks_mut();
    for bytes in words {
        *bytes = word(seed, index).to_le_bytes();
        index += 1;
    }
    end.copy_from_slice(&word(seed, index).to_le_bytes()[..end.len()]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_document() {
        // The published first outputs of SplitMix64 with these seeds.
        assert_eq!(
            [0, 1, 2].map(|index| word(0, index)),
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]
        );
        assert_eq!(
            [0, 1].map(|index| word(1_234_567, index)),
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        let mut bytes = [0; 16];
        fill(0, 5, &mut bytes);
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "a820e2f465b9a16a9e786e4f45098018");
        assert!(include_str!("../../../../docs/scripts.md").contains(&text));
    }

    proptest! {
        #[test]
        fn a_piece_is_the_same_alone(
            seed: u64,
            start in any::<u64>(),
            skipped in 0_usize..40,
            length in 0_usize..40,
        ) {
            let mut whole = vec![0; skipped + length];
            fill(seed, start, &mut whole);
            let mut piece = vec![0; length];
            fill(seed, start.wrapping_add(skipped as u64), &mut piece);
            // Offsets have 64 bits, so no call writes past the largest offset.
            prop_assume!(start.checked_add((skipped + length) as u64).is_some());
            prop_assert_eq!(&whole[skipped..], &piece[..]);
        }
    }
}
