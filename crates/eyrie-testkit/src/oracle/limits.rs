//! Limits of quotas: the parts of a report that the model knows, and the check of limits of storage.

use eyrie_engine::Time;
use eyrie_engine::quota::{QuotaLimit, QuotaReport};

/// Returns a report without the bytes and the grace time of bytes, which the model does not count.
pub(super) fn without_bytes(report: &QuotaReport) -> QuotaReport {
    let mut known = *report;
    known.usage.bytes = 0;
    known.limits.bytes = QuotaLimit { deadline: 0, ..known.limits.bytes };
    known
}

/// True if the storage of an account has grown above a limit that it had before the change.
pub(super) fn exceeded(before: &[QuotaReport], after: &[QuotaReport], now: Time) -> bool {
    before.iter().any(|old| {
        let new = after.iter().find(|new| new.id == old.id);
        let bytes = new.map_or(0, |new| new.usage.bytes);
        old.limits.bytes.refuses(old.usage.bytes, bytes as i64 - old.usage.bytes as i64, now)
    })
}
