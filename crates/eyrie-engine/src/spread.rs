//! The slots of objects in tables of locks and of counts.

use crate::ObjectId;
use crate::tables::layout::{HEADER_BYTES, HEADERS_PER_CHUNK};

/// Spreads ids over a table of `len` slots. `len` is a power of two and at least [`HEADERS_PER_CHUNK`].
///
/// The objects of a header chunk get successive slots. A thread takes headers that are neighbours, so threads
/// that create files use different cache lines of the table. Directories are spread one by one, because
/// threads that work in different directories should not use the same cache line either.
#[inline]
pub(crate) fn spread(id: ObjectId, len: usize) -> usize {
    let header = id.place() / HEADER_BYTES;
    let (chunk, slot) = (header / HEADERS_PER_CHUNK, header % HEADERS_PER_CHUNK);
    let mixed = match id.is_directory() {
        true => mix(header),
        false => mix(chunk) * HEADERS_PER_CHUNK + slot,
    };
    mixed as usize & (len - 1)
}

/// Multiplies a number by (2^64 / golden ratio), which spreads successive numbers evenly. Returns bits 32 to
/// 63 of the product.
const fn mix(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}
