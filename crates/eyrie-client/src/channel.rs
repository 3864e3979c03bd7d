//! The client's side of the lanes: requests, and waits for their answers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use eyrie_engine::{Error, Result};
use eyrie_medium::epoch::thread_index;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::shared::SharedMemory;
use eyrie_medium::sync::sleep::{can_spin, processor};
use eyrie_medium::sync::{Mutex, MutexGuard, lock, try_lock};
use zerocopy::{FromZeros, IntoBytes};

use crate::packet;
use crate::protocol::{
    ANSWER_AT, ASLEEP, DOORBELL, FIRST_LONG_LANE, LANES, LARGE_LANE, LaneAnswer, LaneRequest, REQUEST_AT,
    RUNS_ON, ServiceCall, data_of, head_of, request_number, state,
};

/// Number of looks at the state of a lane before the client sleeps. They take some 20 microseconds, which is
/// about half of the time to wake a process.
const SPINS: u32 = 2000;
/// Number of looks at the state of a lane before the client looks if the service can run. They take somewhat
/// longer than most answers of a service that runs.
const SPINS_BEFORE_LOOK: u32 = 128;
/// Time between two checks that the service still lives.
const LOOK: Duration = Duration::from_millis(100);

/// The lanes of a session.
pub struct Channel {
    memory: Arc<SharedMemory>,
    socket: Arc<OwnedFd>,
    /// For each lane the number of its last request. A thread that uses a lane holds its lock.
    lanes: [Mutex<u32>; LANES + 1],
    /// True if the service can run while this process spins.
    may_spin: bool,
}

/// A request to a service.
pub struct ServiceRequest<'a> {
    pub call: ServiceCall,
    pub id: u64,
    pub number: u64,
    pub data: &'a [u8],
}

/// The numbers and the data of an answer.
pub struct Reply {
    pub answer: LaneAnswer,
    pub data: Vec<u8>,
}

/// The result of [`Channel::call`].
pub enum Called {
    /// The service has answered.
    Answered(Reply),
    /// The session ended before the request with this number was answered.
    Ended(u64),
}

impl Channel {
    pub fn new(memory: Arc<SharedMemory>, socket: Arc<OwnedFd>) -> Channel {
        Channel { memory, socket, lanes: [const { Mutex::new(0) }; LANES + 1], may_spin: can_spin() }
    }

    /// Wakes the service if it sleeps.
    pub fn wake(&self) {
        if self.memory.word(ASLEEP).load(Ordering::SeqCst) != 0 {
            // A service that has ended needs no wake.
            let _ = packet::send(self.socket.as_fd(), b"w", &[]);
        }
    }

    /// Makes a request and waits for its answer, or for the end of the session.
    ///
    /// # Errors
    /// `TooLarge` for data that fit no lane.
    pub fn call(&self, request: &ServiceRequest<'_>) -> Result<Called> {
        let (lane, mut sequence) = self.lane_for(request)?;
        *sequence = sequence.wrapping_add(1);
        let (start, room) = data_of(lane);
        let head = head_of(lane);
        self.memory.write(start, request.data);
        let sent = LaneRequest {
            call: request.call as u32,
            sequence: *sequence,
            id: request.id,
            number: request.number,
            data_bytes: request.data.len() as u64,
        };
        self.memory.write(head + REQUEST_AT, sent.as_bytes());
        let word = head / 4;
        self.memory.short_word_to_store(word).store(state::REQUESTED, Ordering::Release);
        // All processors see the accesses of both sides to the two words in the same order. So either the
        // service sees the bit before it sleeps, or the client sees that the service sleeps.
        let look = || self.memory.word(ASLEEP).load(Ordering::SeqCst);
        let too_early = broken(SafetyRule::BellRingsBeforeTheLook).then(look);
        self.memory.word_to_store(DOORBELL).fetch_or(1 << lane, Ordering::SeqCst);
        let asleep = too_early.unwrap_or_else(look);
        if asleep != 0 {
            // An error of this call is ignored, because the service may have answered before it ended. The
            // wait below looks for the answer.
            let _ = packet::send(self.socket.as_fd(), b"w", &[]);
        }
        // The kernel often wakes a process on the processor on which it fell asleep. If that is the processor
        // of this thread, the service runs only after this thread has gone to sleep.
        let spins = self.may_spin && (asleep == 0 || asleep != 1 + processor());
        if !self.wait_for_answer(word, spins) {
            return Ok(Called::Ended(request_number(lane, *sequence)));
        }
        let mut answer = LaneAnswer::new_zeroed();
        self.memory.read(head + ANSWER_AT, answer.as_mut_bytes());
        let mut data = vec![0; (answer.data_bytes as usize).min(room)];
        self.memory.read(start, &mut data);
        self.memory.short_word_to_store(word).store(state::IDLE, Ordering::Relaxed);
        Ok(Called::Answered(Reply { answer, data }))
    }

    /// Returns a free lane with room for the data of a request: the lane at this thread's index if it is
    /// free, otherwise any free lane. If all lanes are in use, waits for the lane at the index. A request
    /// with more data than an ordinary lane holds gets the large lane.
    fn lane_for(&self, request: &ServiceRequest<'_>) -> Result<(usize, MutexGuard<'_, u32>)> {
        let bytes = request.data.len();
        if bytes > data_of(LARGE_LANE).1 {
            return Err(Error::TooLarge);
        }
        if bytes > data_of(0).1 {
            return Ok((LARGE_LANE, lock(&self.lanes[LARGE_LANE])));
        }
        // Long requests have lanes of their own, so that a short request never waits behind them.
        let lanes = match request.call {
            ServiceCall::Notices => FIRST_LONG_LANE..LANES,
            _ => 0..FIRST_LONG_LANE,
        };
        let first = thread_index() % lanes.len();
        let free = (0..lanes.len()).find_map(|n| {
            let lane = lanes.start + (first + n) % lanes.len();
            let held = try_lock(&self.lanes[lane])?;
            Some((lane, held))
        });
        let first = lanes.start + first;
        Ok(free.unwrap_or_else(|| (first, lock(&self.lanes[first]))))
    }

    /// Waits for the answer of the lane with this state word: first awake if `spins`, then asleep. Returns
    /// false if the session ended before the answer.
    fn wait_for_answer(&self, word: usize, spins: bool) -> bool {
        let state = || self.memory.short_word(word);
        for spin in 1..=if spins { SPINS } else { 1 } {
            if state().load(Ordering::Acquire) == state::ANSWERED {
                return true;
            }
            if spin % SPINS_BEFORE_LOOK == 0
                && self.memory.word(RUNS_ON).load(Ordering::Relaxed) == 1 + processor()
            {
                // The service probably waits for the processor on which this thread runs.
                break;
            }
            std::hint::spin_loop();
        }
        let asleep = self.memory.short_word_to_store(word).compare_exchange(
            state::REQUESTED,
            state::WAITING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if asleep == Err(state::ANSWERED) {
            return true;
        }
        loop {
            // A service that has ended wakes no client, so this check comes before each sleep.
            if packet::is_closed(self.socket.as_fd()) {
                // The service may have answered just before it ended. It keeps no record of a request that it
                // has answered, so the next service would report that the change was not made.
                return !broken(SafetyRule::AnswerOfADeadServiceCounts)
                    && state().load(Ordering::Acquire) == state::ANSWERED;
            }
            self.memory.sleep_on(word, state::WAITING, LOOK);
            if state().load(Ordering::Acquire) == state::ANSWERED {
                return true;
            }
        }
    }
}
