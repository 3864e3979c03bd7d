//! Reading the entries of a log. The bytes are those of a client, so nothing about them is trusted.

use std::fs::File;

use eyrie_medium::host;
use zerocopy::FromBytes;

use super::{ENTRY_BYTES_MAX, ENTRY_HEAD_BYTES, EntryHead, HEAD_BYTES, RING_BYTES};

/// Bytes that one call of the host reads at most.
const CHUNK_BYTES: u64 = 256 << 10;

/// The log holds bytes that no client writes that keeps the protocol, or the file was shortened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogDamaged;

/// Reads logs. Its buffer serves all logs.
#[derive(Default, Debug)]
pub struct LogReader {
    buffer: Vec<u8>,
}

impl LogReader {
    /// Calls `apply` with the position after each entry from `head` to `tail`, its head and its encoded Op,
    /// until about `limit` bytes are read. Returns the position after the last entry.
    ///
    /// # Errors
    /// [`LogDamaged`]. The entries before the damage were applied.
    pub fn read(
        &mut self,
        file: &File,
        head: u64,
        tail: u64,
        limit: u64,
        mut apply: impl FnMut(u64, &EntryHead, &[u8]),
    ) -> Result<u64, LogDamaged> {
        if tail.checked_sub(head).is_none_or(|bytes| bytes > RING_BYTES) {
            return Err(LogDamaged);
        }
        let (mut at, end) = (head, tail.min(head.saturating_add(limit)));
        while at < end {
            let place = at % RING_BYTES;
            let bytes = (tail - at).min(RING_BYTES - place).min(CHUNK_BYTES) as usize;
            self.buffer.resize(bytes, 0);
            host::read_exact_at(file, &mut self.buffer, HEAD_BYTES as u64 + place).map_err(|_| LogDamaged)?;
            at = self.each_entry(at, tail, &mut apply)?;
        }
        Ok(at)
    }

    /// Calls `apply` with the entries that the buffer holds as a whole. The first one begins at position
    /// `start`.
    fn each_entry(
        &self,
        start: u64,
        tail: u64,
        apply: &mut impl FnMut(u64, &EntryHead, &[u8]),
    ) -> Result<u64, LogDamaged> {
        let (mut at, mut rest) = (start, &self.buffer[..]);
        while let Ok((entry, body)) = EntryHead::read_from_prefix(rest) {
            let bytes = entry.bytes as usize;
            let next = at + u64::from(entry.bytes);
            if bytes < ENTRY_HEAD_BYTES || !bytes.is_multiple_of(16) || next > tail {
                return Err(LogDamaged);
            }
            if entry.op_bytes == 0 {
                // Only the rest of the ring is filled.
                return if next.is_multiple_of(RING_BYTES) { Ok(next) } else { Err(LogDamaged) };
            }
            let op_bytes = entry.op_bytes as usize;
            if bytes > ENTRY_BYTES_MAX || op_bytes > bytes - ENTRY_HEAD_BYTES {
                return Err(LogDamaged);
            }
            if bytes > rest.len() {
                break;
            }
            apply(next, &entry, &body[..op_bytes]);
            (at, rest) = (next, &rest[bytes..]);
        }
        // The buffer is larger than any entry, unless it ends with the ring or with the log.
        if at == start { Err(LogDamaged) } else { Ok(at) }
    }
}
