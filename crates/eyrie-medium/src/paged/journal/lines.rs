//! The packed form of changed lines. It leaves zero words out, because many lines have many zero words.

use super::layout::{LINE, WORD};

/// Appends the packed form of a line: a byte with a bit for each word that is not zero, and these words.
pub(super) fn pack(line: &[u8], out: &mut Vec<u8>) {
    let words = line.as_chunks::<WORD>().0.iter();
    let nonzero =
        words.clone().enumerate().fold(0, |bits, (at, word)| bits | u8::from(*word != [0; WORD]) << at);
    out.push(nonzero);
    if nonzero == u8::MAX {
        // One copy is faster than eight. Lines with the contents of files often have no zero word.
        return out.extend_from_slice(line);
    }
    words.filter(|word| **word != [0; WORD]).for_each(|word| out.extend_from_slice(word));
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
