//! Contents of files that depend only on a number.

/// Returns `length` bytes that depend only on `seed`, and that cannot be compressed.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // One step of xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns lines of text that depend only on `seed`, with about `length` bytes.
pub fn text(seed: u64, length: usize) -> String {
    let line = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    bytes(seed, length / 2).chunks(32).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ_and_recur() {
        assert_eq!(bytes(7, 13), bytes(7, 20)[..13]);
        assert_ne!(bytes(7, 13), bytes(8, 13));
        assert_eq!(text(1, 130).lines().count(), 3);
    }
}
