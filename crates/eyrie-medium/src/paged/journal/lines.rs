//! The packed form of changed lines. It leaves zero words out, because many words of a typical line are zero.

use super::layout::{LINE, WORD};

/// Appends the packed form of a line.
pub(super) fn pack(line: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    for (index, word) in line.as_chunks::<WORD>().0.iter().enumerate() {
        if *word != [0; WORD] {
            out[at] |= 1 << index;
            out.extend_from_slice(word);
        }
    }
}

/// Takes from `rest` the packed form of a line, as [`pack`] makes it, and returns the line. Returns `None` if
/// bytes are missing.
pub(super) fn unpack(rest: &mut &[u8]) -> Option<[u8; LINE]> {
    let mut line = [0; LINE];
    let words = *take(rest, 1)?.first()?;
    for (_, word) in
        line.as_chunks_mut::<WORD>().0.iter_mut().enumerate().filter(|(at, _)| words >> at & 1 == 1)
    {
        word.copy_from_slice(take(rest, WORD)?);
    }
    Some(line)
}

/// Takes the next `len` bytes from `rest`. Returns `None` if bytes are missing.
pub(super) fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(taken)
}
