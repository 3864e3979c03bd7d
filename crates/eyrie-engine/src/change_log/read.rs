//! Reading the entries of a log. The bytes are those of a client, so nothing about them is trusted.

use std::fs::File;
use std::io;

use eyrie_medium::host;
use zerocopy::FromBytes;

use super::{ENTRY_BYTES_MAX, ENTRY_HEAD_BYTES, EntryHead, HEAD_BYTES, RING_BYTES};

/// Maximum number of bytes that one call of the host reads.
const CHUNK_BYTES: u64 = 256 << 10;

/// The reason why a log cannot be read.
#[derive(Debug)]
pub enum LogError {
    /// The log holds bytes that a client never writes if it keeps the protocol, or the file was shortened.
    Damaged,
    /// The host could not read the file. A later attempt may succeed.
    Host(io::Error),
}

/// Reads logs. Its buffer serves all logs.
#[derive(Default, Debug)]
pub struct LogReader {
    buffer: Vec<u8>,
}

impl LogReader {
    /// Calls `apply` for each entry between the positions `start` and `tail`, until `apply` returns false, or
    /// until about `limit` bytes are read. `apply` gets the position after the entry, the head of the entry,
    /// and the encoded Op. Returns the position after the last entry for which `apply` has returned true.
    ///
    /// # Errors
    /// [`LogError`]. The entries before the damage were applied.
    pub fn read(
        &mut self,
        file: &File,
        start: u64,
        tail: u64,
        limit: u64,
        mut apply: impl FnMut(u64, &EntryHead, &[u8]) -> bool,
    ) -> Result<u64, LogError> {
        if tail.checked_sub(start).is_none_or(|bytes| bytes > RING_BYTES) {
            return Err(LogError::Damaged);
        }
        let (mut at, end) = (start, tail.min(start.saturating_add(limit)));
        let mut is_stopped = false;
        while at < end && !is_stopped {
            let place = at % RING_BYTES;
            let bytes = (tail - at).min(RING_BYTES - place).min(CHUNK_BYTES) as usize;
            self.buffer.resize(bytes, 0);
            host::read_exact_at(file, &mut self.buffer, HEAD_BYTES as u64 + place).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => LogError::Damaged,
                    _ => LogError::Host(error),
                }
            })?;
            (at, is_stopped) = self.each_entry(at, tail, &mut apply)?;
        }
        Ok(at)
    }

    /// Calls `apply` for the entries that the buffer holds as a whole. The first one begins at position
    /// `start`. Returns the position after the last of these entries for which `apply` has returned true, and
    /// true if `apply` has returned false.
    fn each_entry(
        &self,
        start: u64,
        tail: u64,
        apply: &mut impl FnMut(u64, &EntryHead, &[u8]) -> bool,
    ) -> Result<(u64, bool), LogError> {
        let (mut at, mut rest) = (start, &self.buffer[..]);
        while let Ok((entry, body)) = EntryHead::read_from_prefix(rest) {
            let bytes = entry.bytes as usize;
            let next = at + u64::from(entry.bytes);
            if bytes < ENTRY_HEAD_BYTES || !bytes.is_multiple_of(16) || next > tail {
                return Err(LogError::Damaged);
            }
            if entry.op_bytes == 0 {
                // An entry without an Op must end where the ring ends.
                return if next.is_multiple_of(RING_BYTES) {
                    Ok((next, false))
                } else {
                    Err(LogError::Damaged)
                };
            }
            let op_bytes = entry.op_bytes as usize;
            if bytes > ENTRY_BYTES_MAX || op_bytes > bytes - ENTRY_HEAD_BYTES {
                return Err(LogError::Damaged);
            }
            if bytes > rest.len() {
                break;
            }
            if !apply(next, &entry, &body[..op_bytes]) {
                return Ok((at, true));
            }
            (at, rest) = (next, &rest[bytes..]);
        }
        // The buffer is larger than any entry, unless it ends with the ring or with the log. So an entry that
        // does not fit into the buffer is damage.
        if at == start { Err(LogError::Damaged) } else { Ok((at, false)) }
    }
}
