//! The needs of requests: their storage, and the changes that must be applied before them.

use eyrie_client::protocol::ServiceCall;
use eyrie_engine::op::CAPABILITY_XATTR;
use eyrie_engine::op::encode::decode_unsummed;
use eyrie_engine::quota::QUOTA_XATTR;
use eyrie_engine::scm::{HEADER_BYTES, Scm};
use eyrie_engine::{Engine, FallocateMode, Op};
use eyrie_medium::sync::lock;

use super::{MOST_IDS, MOST_UNAPPLIED};
use crate::session::Joined;

/// True if logged changes must be applied before a request.
pub fn needs_applied_log(engine: &Scm, joined: &Joined, call: ServiceCall) -> bool {
    use ServiceCall::{BringPages, EndLocks, EndWait, Notices, Outcome, Reserve, Unreserve, Unwatch};
    match call {
        // An id stays reserved until the entry of its new object is applied. Ids also need storage, which may
        // be promised to entries. If ids or storage may run short, the log is applied first.
        Reserve => {
            let count = lock(&joined.reserved).len();
            count + MOST_IDS as usize > MOST_UNAPPLIED || !has_room_for_ids(engine)
        }
        // The answers do not depend on logged changes. So none of these requests may fail with `Stale` while
        // an entry waits for storage. After `Outcome`, the client would make an Op again that is made
        // already. After `EndLocks`, the locks would stay.
        BringPages | EndLocks | EndWait | Notices | Outcome | Unreserve | Unwatch => false,
        _ => true,
    }
}

/// True if the storage that is promised to entries stays free when the headers of further reserved ids take
/// storage.
pub fn has_room_for_ids(engine: &Scm) -> bool {
    engine.leaves_promised_storage(MOST_IDS * HEADER_BYTES)
}

/// True for an Op that may set a feature with which no change is deferred: quotas, capabilities, inode flags.
pub fn may_set_feature(op: &Op<'_>) -> bool {
    match op {
        Op::SetXattr { name, .. } => [CAPABILITY_XATTR, QUOTA_XATTR].contains(name),
        Op::SetAttributes { change, .. } => change.flags.is_some() || change.project.is_some(),
        _ => false,
    }
}

/// Returns an upper bound of the storage that an Op may need, in bytes.
pub fn storage_of(op: &Op<'_>) -> u64 {
    const EACH: u64 = 128 << 10;
    match *op {
        Op::Fallocate { length, .. } | Op::CloneRange { length, .. } => length.saturating_add(EACH),
        Op::Batch { ops, .. } => ops.iter().map(storage_of).fold(EACH, u64::saturating_add),
        _ => op.data_len() + EACH,
    }
}

/// True if a request that found no storage may find it as soon as no reader holds storage back. False only if
/// its Op needs more storage than the volume has.
#[cold]
pub fn may_find_storage(engine: &Scm, call: Option<ServiceCall>, request: &[u8]) -> bool {
    if call != Some(ServiceCall::Apply) {
        return true;
    }
    let least = |op: &Op<'_>| match *op {
        Op::Fallocate { mode: FallocateMode::Allocate | FallocateMode::KeepSize, length, .. } => length,
        _ => op.data_len(),
    };
    decode_unsummed(request).is_ok_and(|(decoded, _)| least(&decoded.op()) <= engine.space().total)
}

/// True for a request about one object, whose id it names.
pub fn has_one_object(call: ServiceCall) -> bool {
    use ServiceCall::{ApplyLogs, Attributes, Closed, FindLock, IsOrphan, Seal, TryLock, Version, WaitFor};
    matches!(call, ApplyLogs | Attributes | Closed | FindLock | IsOrphan | Seal | TryLock | Version | WaitFor)
}

/// True for a request about the volume as a whole that changes no object.
pub fn reads_volume(call: ServiceCall) -> bool {
    matches!(call, ServiceCall::Quotas | ServiceCall::Space | ServiceCall::Sync | ServiceCall::Watch)
}
