//! Contents, names and random choices. All of them follow from numbers, so every byte that a side returns can
//! be compared with the expected byte. None of the functions for timed code allocates memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Number of digits of a numbered name.
const DIGITS: usize = 8;
/// Number of different numbers of a [`NumberedName`].
pub(crate) const NAME_NUMBERS: u64 = 10_u64.pow(DIGITS as u32);
/// The difference of consecutive words of a [`Pattern`], and of consecutive states of a [`Chooser`]. The
/// number is odd, so neither sequence repeats before 2^64 elements.
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes the bits of a number, as the generator SplitMix64 does.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Random numbers from a seed: the generator SplitMix64.
#[derive(Clone, Debug)]
pub struct Chooser(u64);

impl Chooser {
    /// Makes a generator. Generators with different seeds give different numbers.
    pub fn new(seed: u64) -> Chooser {
        Chooser(mixed(seed.wrapping_add(INCREMENT)))
    }

    /// Returns the next number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mixed(self.0)
    }

    /// Returns a number below `limit`.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number that is at least 0 and below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number of the gamma distribution with shape 1.5 and this mean, at least 1. In filebench the
    /// sizes of files have this distribution.
    pub fn gamma(&mut self, mean: u64) -> u64 {
        // The sum of an exponential number and of half the square of a normal number has shape 1 + 1/2.
        let mut open = || 1.0 - self.fraction();
        let exponential = -open().ln();
        let normal = (-2.0 * open().ln()).sqrt() * (std::f64::consts::TAU * open()).cos();
        let gamma = exponential + normal * normal / 2.0;
        ((gamma / 1.5 * mean as f64) as u64).max(1)
    }
}

/// The bytes of a block, file or value: an endless sequence that its number and version determine.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    first: u64,
}

impl Pattern {
    /// Returns the bytes of the block, file or value with this number after `version` changes.
    pub fn new(number: u64, version: u32) -> Pattern {
        Pattern { first: mixed(mixed(number).wrapping_add(u64::from(version))) }
    }

    fn word(self, index: u64) -> [u8; 8] {
        self.first.wrapping_add(index.wrapping_mul(INCREMENT)).to_le_bytes()
    }

    /// Writes the bytes from `offset` on into `out`.
    pub fn fill(self, out: &mut [u8], offset: u64) {
        let skipped = (offset % 8) as usize;
        let head = if skipped == 0 { 0 } else { (8 - skipped).min(out.len()) };
        let (start, rest) = out.split_at_mut(head);
        start.copy_from_slice(&self.word(offset / 8)[skipped % 8..][..head]);
        let (words, tail) = rest.as_chunks_mut::<8>();
        let first = (offset + head as u64) / 8;
        for (word, index) in words.iter_mut().zip(first..) {
            *word = self.word(index);
        }
        let length = tail.len();
        tail.copy_from_slice(&self.word(first + words.len() as u64)[..length]);
    }

    /// Returns true if `found` has the bytes from `offset` on.
    pub fn matches(self, found: &[u8], offset: u64) -> bool {
        let skipped = (offset % 8) as usize;
        let head = if skipped == 0 { 0 } else { (8 - skipped).min(found.len()) };
        let (start, rest) = found.split_at(head);
        let (words, tail) = rest.as_chunks::<8>();
        let first = (offset + head as u64) / 8;
        // The loop has no early end, so that the compiler can use vectors.
        let differs = words.iter().zip(first..).fold(0, |differs, (word, index)| {
            differs | (u64::from_le_bytes(*word) ^ u64::from_le_bytes(self.word(index)))
        });
        start == &self.word(offset / 8)[skipped % 8..][..head]
            && differs == 0
            && tail == &self.word(first + words.len() as u64)[..tail.len()]
    }
}

/// A name that ends with a number of eight digits. The digits are written in place, because the time of an
/// allocation would count as time of the call that gets the name.
#[derive(Clone, Debug)]
pub struct NumberedName {
    bytes: Vec<u8>,
}

impl NumberedName {
    /// Makes a name that begins with `base`.
    pub fn new(base: &str) -> NumberedName {
        let mut bytes = base.as_bytes().to_vec();
        bytes.extend([b'0'; DIGITS]);
        NumberedName { bytes }
    }

    /// Returns the name with this number, which must have at most eight digits.
    #[inline]
    pub fn key(&mut self, mut number: u64) -> &[u8] {
        let start = self.bytes.len() - DIGITS;
        for digit in self.bytes[start..].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        &self.bytes
    }

    /// Returns the name with this number as a path.
    #[inline]
    pub fn path(&mut self, number: u64) -> &Path {
        Path::new(OsStr::from_bytes(self.key(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_content_fit_together() {
        let content = Pattern::new(7, 3);
        let mut whole = [0; 100];
        content.fill(&mut whole, 0);
        for offset in 0..40 {
            for length in 0..40 {
                let mut part = vec![0; length];
                content.fill(&mut part, offset as u64);
                assert_eq!(part, whole[offset..offset + length]);
                assert!(content.matches(&part, offset as u64));
                for at in 0..length {
                    part[at] ^= 1;
                    assert!(!content.matches(&part, offset as u64));
                    part[at] ^= 1;
                }
            }
        }
        assert!(!Pattern::new(7, 4).matches(&whole, 0) && !Pattern::new(8, 3).matches(&whole, 0));
        assert!(!content.matches(&whole[..92], 8));
    }

    #[test]
    fn numbered_name_changes_in_place() {
        let mut name = NumberedName::new("/bench/many/file-");
        assert_eq!(name.path(42), Path::new("/bench/many/file-00000042"));
        assert_eq!(name.path(12_345_678), Path::new("/bench/many/file-12345678"));
    }

    #[test]
    fn choices_are_spread_and_have_their_mean() {
        let mut chooser = Chooser::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|_| chooser.below(100)).collect();
        assert_eq!((seen.len(), seen.last()), (100, Some(&99)));
        let mean = (0..100_000).map(|_| chooser.gamma(16 << 10)).sum::<u64>() / 100_000;
        assert!((15 << 10..17 << 10).contains(&mean), "{mean}");
        let firsts: std::collections::BTreeSet<u64> =
            (0..1000).map(|seed| Chooser::new(seed).below(1 << 20)).collect();
        assert!(firsts.len() > 990);
    }
}
