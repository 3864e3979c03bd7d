//! The messages between a client and the service of a volume, and the memory through which they pass.
//!
//! A session begins on a Unix socket of type `SOCK_SEQPACKET`. The client sends a [`Hello`] with the files of
//! its pins and of its claims. The service answers with a [`Welcome`] and, if it accepts the session, with
//! the files of the volume's segment, of its board, and of the session's lanes. For a volume on a disk, the
//! segment is the page cache of the service, and a fourth file has the flags of its pages. If the session has
//! a change log ([`Welcome::has_log`]), the log is the last file. Afterwards a packet on the socket only
//! wakes the service. The end of the socket ends the session.
//!
//! A *lane* carries one request at a time, from one thread. Its head has a state word, the request and the
//! answer. Its data are further bytes of the request or of the answer, such as an encoded Op, locks, notices,
//! or the text of an error. The service treats everything that a client can write as hostile: it copies a
//! request to private memory before it looks at the request.

mod errors;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) use self::errors::io_fault;
pub use self::errors::{received_error, send_error};

/// First word of a [`Hello`] and of a [`Welcome`]: "EyrieSvc".
pub const MAGIC: u64 = u64::from_le_bytes(*b"EyrieSvc");
/// Version of the protocol. A client and a service of different versions refuse each other.
pub const VERSION: u32 = 12;

/// Number of lanes for requests of ordinary size.
pub const LANES: usize = 16;
/// Number of the first lane for requests that may wait for a long time: [`ServiceCall::Notices`].
pub const FIRST_LONG_LANE: usize = 12;
/// Maximum number of watchers of a session. Each has a lane in which it waits.
pub const MOST_WATCHERS: usize = LANES - FIRST_LONG_LANE;
/// Number of the lane for large requests.
pub const LARGE_LANE: usize = LANES;
/// Bytes of data of an ordinary lane.
pub const LANE_BYTES: usize = 128 << 10;
/// Bytes of data of the large lane: room for the largest value of a key and its Op.
pub const LARGE_LANE_BYTES: usize = 72 << 20;
/// Bytes of the head of a lane.
pub const HEAD_BYTES: usize = 256;
/// Size of the memory of all lanes of a session, in bytes.
pub const MEMORY_BYTES: usize = DATA_START + LANES * LANE_BYTES + LARGE_LANE_BYTES;
const HEADS_START: usize = 4096;
const DATA_START: usize = HEADS_START + ((LANES + 1) * HEAD_BYTES).next_multiple_of(4096);

/// Index of the 64-bit word in which a client sets the bit of each lane with a new request.
pub const DOORBELL: usize = 0;
/// Index of the 64-bit word that the service sets before it sleeps, to one more than the number of the
/// processor on which it sleeps. If a client finds the word set after it rang the doorbell, it wakes the
/// service by a packet on the socket. While the service is awake, the word is 0.
pub const ASLEEP: usize = 8;
/// Index of the 64-bit word with one more than the number of the processor on which the service ran last. A
/// client on the same processor stops spinning early and sleeps, because the service cannot run while the
/// client spins. 0 if the service has not stored the number yet.
pub const RUNS_ON: usize = 9;

/// Index of the 64-bit word with the [`LogWord`] of the session's change log.
pub const LOG_TAIL: usize = 16;
/// Index of the 64-bit word with the position up to which the service has applied the log.
pub const LOG_APPLIED: usize = 24;
/// Index of the 64-bit word with the limit of the storage that all entries since the start of the log may
/// need ([`storage_of_entry`](eyrie_engine::change_log::storage_of_entry)), in bytes.
pub const LOG_BUDGET: usize = 25;
/// Index of the 64-bit word that the service sets to 1 if it could not apply an entry.
pub const LOG_FAILED: usize = 26;
/// Index of the 64-bit word with the first of the
/// [`GENERATIONS`](eyrie_engine::change_log::GENERATIONS) generations that entries may give to new objects.
pub const LOG_GENERATION: usize = 27;

/// The word at [`LOG_TAIL`]. The lowest 40 bits are the position after the last entry of a log, in units of
/// 16 bytes. The next 23 bits are a number that changes with each grant, and with each request of the session
/// that may depend on changes or make one. The highest bit is the seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogWord(u64);

impl LogWord {
    /// Largest position.
    pub const POSITION_MAX: u64 = (LogWord::POSITION) * 16;
    /// The bit that seals a log. The service sets it before it gives grants to the session or takes grants
    /// back, and before it handles a request of the session that may depend on changes or make one.
    pub const SEALED: u64 = 1 << 63;
    const POSITION: u64 = (1 << 40) - 1;
    const NUMBERS: u64 = (1 << 23) - 1;

    /// Returns the word that is this number.
    pub const fn from_raw(raw: u64) -> LogWord {
        LogWord(raw)
    }

    /// Returns the word as a number.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// True if the log is sealed: the client appends nothing.
    pub const fn is_sealed(self) -> bool {
        self.0 & LogWord::SEALED != 0
    }

    /// Returns the position after the last entry.
    pub const fn position(self) -> u64 {
        (self.0 & LogWord::POSITION) * 16
    }

    /// Returns the word with another position, a multiple of 16.
    #[must_use]
    pub const fn with_position(self, position: u64) -> LogWord {
        LogWord((self.0 & !LogWord::POSITION) | (position / 16))
    }

    /// Returns the word with the next number, without a seal and with this position. A number repeats after
    /// 2^23 others, which is far more than the service gives out while a thread appends one entry.
    #[must_use]
    pub const fn renewed(self, position: u64) -> LogWord {
        let number = (((self.0 >> 40) & LogWord::NUMBERS) + 1) & LogWord::NUMBERS;
        LogWord((number << 40) | (position / 16))
    }
}

/// The states of a lane. The first 32-bit word of the head of a lane has its state.
pub mod state {
    /// The lane has no request.
    pub const IDLE: u32 = 0;
    /// The client has made a request.
    pub const REQUESTED: u32 = 1;
    /// The client has made a request, and sleeps until the answer.
    pub const WAITING: u32 = 2;
    /// The service has answered.
    pub const ANSWERED: u32 = 3;
}

/// Returns the offset of the head of a lane.
pub fn head_of(lane: usize) -> usize {
    HEADS_START + lane * HEAD_BYTES
}

/// Returns the offset of the data of a lane, and their size in bytes.
pub fn data_of(lane: usize) -> (usize, usize) {
    let start = DATA_START + lane * LANE_BYTES;
    (start, if lane == LARGE_LANE { LARGE_LANE_BYTES } else { LANE_BYTES })
}

/// Offset of the [`LaneRequest`] in the head of a lane.
pub const REQUEST_AT: usize = 64;
/// Offset of the [`LaneAnswer`] in the head of a lane.
pub const ANSWER_AT: usize = 128;

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ServiceCall {
    /// Apply the encoded Op in the data. The watcher `number` gets no notice of the change.
    Apply = 1,
    /// Reserve `number` ids of the kind `id`. The data of the answer are the ids.
    Reserve,
    /// Give the reserved `id` back.
    Unreserve,
    /// Return the attributes of the directory `id`.
    Attributes,
    /// Return the version of the bytes of the file `id`.
    Version,
    /// Seal the file `id`.
    Seal,
    /// Wait for the Op that is changing the object `id`.
    WaitFor,
    /// Make every applied Op durable.
    Sync,
    /// Return the space of the volume.
    Space,
    /// The client has ended an open of `id`.
    Closed,
    /// Succeed if an open or a hold keeps the unlinked object `id` alive.
    IsOrphan,
    /// Make recently freed storage available.
    Reclaim,
    /// Return the result of the request `number` that the session with key `id` made. That session ended
    /// before the answer. The data of the answer are [`OUTCOME_NOT_MADE`], [`OUTCOME_MADE`] or
    /// [`OUTCOME_UNKNOWN`]. With [`OUTCOME_MADE`], the numbers of the answer are those of the Op.
    Outcome,
    /// Begin to watch the changes of the volume. The watcher gets the number `number`, at least 1, and room
    /// for `id` notices.
    Watch,
    /// Return the next notices of the watcher `number`. If there are none, the answer comes when there is
    /// one, when `id` milliseconds have passed, or after [`Unwatch`](ServiceCall::Unwatch).
    Notices,
    /// End the watcher `number`.
    Unwatch,
    /// Lock or unlock the object `id`, or refuse. The data are a [`SentLock`](crate::sent::SentLock). The
    /// number of the answer is 1 if the owner then has a lock on the target of the request (the whole object,
    /// or any of its ranges), else 0.
    TryLock,
    /// Return the first range lock of the object `id` that conflicts with the lock in the data. The data of
    /// the answer are a lock, or nothing.
    FindLock,
    /// End all locks of some owners on the object `id`. The data are a [`SentLock`](crate::sent::SentLock)
    /// for each owner.
    EndLocks,
    /// Forget the waiter `number`.
    EndWait,
    /// Bring pages of the `number` bytes at the address `id` into memory, at least the first page. The client
    /// holds a pin, which then keeps these pages in memory.
    BringPages,
    /// Return the usage and the limits of accounts that the client may see, from account `number` on. The
    /// number of the answer is 1 if the volume has quotas, and the second number is the count of all accounts
    /// that the client may see. The data are a [`SentQuota`](crate::sent::SentQuota) for each account. If
    /// `id` is not 0, it is the [number](crate::sent::account_number) of the only account that the answer
    /// may have.
    Quotas,
    /// Apply the logged changes of the object `id`. If another session holds the grant of the object, also
    /// take the grant back.
    ApplyLogs,
}

impl ServiceCall {
    const ALL: [ServiceCall; 23] = [
        ServiceCall::Apply,
        ServiceCall::Reserve,
        ServiceCall::Unreserve,
        ServiceCall::Attributes,
        ServiceCall::Version,
        ServiceCall::Seal,
        ServiceCall::WaitFor,
        ServiceCall::Sync,
        ServiceCall::Space,
        ServiceCall::Closed,
        ServiceCall::IsOrphan,
        ServiceCall::Reclaim,
        ServiceCall::Outcome,
        ServiceCall::Watch,
        ServiceCall::Notices,
        ServiceCall::Unwatch,
        ServiceCall::TryLock,
        ServiceCall::FindLock,
        ServiceCall::EndLocks,
        ServiceCall::EndWait,
        ServiceCall::BringPages,
        ServiceCall::Quotas,
        ServiceCall::ApplyLogs,
    ];

    /// True if the call means nothing in the next session, because it names or returns objects or watchers.
    /// `ApplyLogs` names an object, too. It can be repeated in the next session, because it only makes the
    /// service apply logs earlier.
    pub fn is_of_session(self) -> bool {
        use ServiceCall::{ApplyLogs, EndWait, Outcome, Quotas, Reclaim, Space, Sync};
        !matches!(self, ApplyLogs | EndWait | Outcome | Quotas | Reclaim | Space | Sync)
    }

    /// Returns the call with this number. `None` for an unknown number.
    pub fn from_raw(raw: u32) -> Option<ServiceCall> {
        ServiceCall::ALL.into_iter().find(|&call| call as u32 == raw)
    }
}

/// The first packet of a client.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// [`OPEN_SESSION`] or [`LIST_SESSIONS`].
    pub purpose: u32,
}

/// Purpose of a [`Hello`]: to open a session.
pub const OPEN_SESSION: u32 = 0;
/// Purpose of a [`Hello`]: to get a packet with a [`Welcome`] and a [`SentSession`] for each session. The
/// connection then ends.
pub const LIST_SESSIONS: u32 = 1;
/// Maximum number of sessions of a service.
pub const MOST_SESSIONS: usize = eyrie_engine::board::MOST_SESSIONS;

/// A session in the list of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SentSession {
    /// Process of the client when it connected, in the namespace of the service.
    pub process: u32,
    /// User of the client.
    pub user: u32,
    /// Number of threads that hold a pin.
    pub pins: u32,
    /// Number of requests without an answer, except those that wait for notices.
    pub pending: u32,
    /// Number of ids that the client has reserved and not used.
    pub reserved: u32,
    /// The state of the session, as a number: see [`SentSession::state`].
    pub raw_state: u32,
}

/// The state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionState {
    /// The process has connected, and has not opened a session yet.
    Connecting,
    /// The client can read the volume and make requests.
    Open,
    /// A request of the client waits until storage is free.
    LacksStorage,
}

impl SentSession {
    /// Returns the state of the session. An impossible number counts as open.
    pub fn state(&self) -> SessionState {
        match self.raw_state {
            0 => SessionState::Connecting,
            2 => SessionState::LacksStorage,
            _ => SessionState::Open,
        }
    }
}

/// The answer of the service to a [`Hello`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Welcome {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Zero if the greeting is accepted, else the errno of the refusal.
    pub errno: u32,
    /// Identity of the volume.
    pub volume_id: [u8; 16],
    /// The root directory.
    pub root: u64,
    /// The key of the session. 0 if the client did not ask for a session.
    pub key: u64,
    /// Process id of the service.
    pub process: u32,
    /// 1 if the fences of the service make its stores durable, as on persistent memory. Else 0.
    pub fences_make_durable: u32,
    /// 1 if the last file of the packet is the change log of the session. Else 0.
    pub has_log: u32,
    /// User of the client, as the service sees it.
    pub user: u32,
    /// Group of the client, as the service sees it.
    pub group: u32,
    /// The [`hash_of_groups`] of the client's supplementary groups.
    pub groups: u32,
}

/// Returns a hash of supplementary groups. A client in another user namespace than its service has other ids
/// of users and groups. It cannot decide if the service allows a change, so it logs nothing.
pub fn hash_of_groups(groups: &[u32]) -> u32 {
    groups.iter().fold(groups.len() as u32, |hash, group| hash.wrapping_mul(0x0100_0193) ^ group)
}

/// A request, in the head of a lane.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LaneRequest {
    /// The number of a [`ServiceCall`].
    pub call: u32,
    /// Number of the request on its lane.
    pub sequence: u32,
    /// The `id` of the [`ServiceCall`]: in most calls an object.
    pub id: u64,
    /// The `number` of the [`ServiceCall`].
    pub number: u64,
    /// Bytes of data.
    pub data_bytes: u64,
}

/// An answer, in the head of a lane.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LaneAnswer {
    /// Zero for a success, else the number of an error.
    pub error: u32,
    /// Bytes of data.
    pub data_bytes: u32,
    /// A number that the call returns, or the address or the errno of an error.
    pub number: u64,
    /// A second number that the call returns.
    pub second_number: u64,
}

/// Outcome of a request: its change was not made.
pub const OUTCOME_NOT_MADE: u64 = 0;
/// Outcome of a request: its change was made.
pub const OUTCOME_MADE: u64 = 1;
/// Outcome of a request: it is unknown if its change was made.
pub const OUTCOME_UNKNOWN: u64 = 2;

/// Returns the number of a request in its session.
pub fn request_number(lane: usize, sequence: u32) -> u64 {
    (lane as u64) << 32 | u64::from(sequence)
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn lanes_do_not_overlap_and_fill_the_memory() {
        let mut end = head_of(LANES) + HEAD_BYTES;
        assert!(end <= data_of(0).0);
        for lane in 0..=LARGE_LANE {
            let (start, size) = data_of(lane);
            assert!(start >= end);
            end = start + size;
        }
        assert_eq!(end, MEMORY_BYTES);
    }

    #[test]
    fn states_of_sessions_have_their_numbers() {
        for state in [SessionState::Connecting, SessionState::Open, SessionState::LacksStorage] {
            let sent = SentSession { raw_state: state as u32, ..SentSession::new_zeroed() };
            assert_eq!(sent.state(), state);
        }
    }

    #[test]
    fn calls_have_their_numbers() {
        assert!(ServiceCall::ALL.iter().all(|&call| ServiceCall::from_raw(call as u32) == Some(call)));
        assert_eq!((ServiceCall::from_raw(0), ServiceCall::from_raw(24)), (None, None));
    }
}
