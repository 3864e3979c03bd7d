//! The client's side of the lanes: requests, and waits for their answers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use eyrie_engine::{Error, Result};
use eyrie_medium::epoch::thread_index;
use eyrie_medium::shared::SharedMemory;
use eyrie_medium::sync::{Mutex, MutexGuard, lock, try_lock};
use rustix::event::Timespec;
use rustix::thread::futex;
use zerocopy::{FromZeros, IntoBytes};

use crate::packet;
use crate::protocol::{
    ANSWER_AT, ASLEEP, DOORBELL, LANES, LARGE_LANE, LaneAnswer, LaneRequest, REQUEST_AT, ServiceCall,
    data_of, head_of, received_error, state,
};

/// Looks at the state of a lane before the client sleeps: some 20 microseconds, a little less than to wake a
/// process.
const SPINS: u32 = 2000;
/// Time between two looks if the service still lives, in nanoseconds.
const LOOK_NANOSECONDS: i64 = 100_000_000;

/// The lanes of a session.
pub struct Channel {
    memory: SharedMemory,
    socket: Arc<OwnedFd>,
    lanes: [Mutex<()>; LANES + 1],
    /// True if the service can run while this process spins.
    may_spin: bool,
}

/// The numbers and the data of a successful answer.
pub struct Reply<'a> {
    channel: &'a Channel,
    lane: usize,
    pub answer: LaneAnswer,
    _held: MutexGuard<'a, ()>,
}

impl Reply<'_> {
    /// Copies the data of the answer.
    pub fn data(&self) -> Vec<u8> {
        let (start, size) = data_of(self.lane);
        let mut bytes = vec![0; (self.answer.data_bytes as usize).min(size)];
        self.channel.memory.read(start, &mut bytes);
        bytes
    }
}

impl Channel {
    pub fn new(memory: SharedMemory, socket: Arc<OwnedFd>) -> Channel {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Channel { memory, socket, lanes: [const { Mutex::new(()) }; LANES + 1], may_spin: processors > 1 }
    }

    /// Makes a request and waits for its answer.
    ///
    /// # Errors
    /// The error of the service. `ServiceEnded` if the service ends before it answers. `TooLarge` for data
    /// that fit no lane.
    pub fn call(&self, call: ServiceCall, id: u64, number: u64, data: &[u8]) -> Result<Reply<'_>> {
        let (lane, held) = self.lane_for(data.len())?;
        let (start, _) = data_of(lane);
        let (head, word) = (head_of(lane), self.state(lane));
        self.memory.write(start, data);
        let data_bytes = data.len() as u64;
        let request = LaneRequest { call: call as u32, reserved: 0, id, number, data_bytes };
        self.memory.write(head + REQUEST_AT, request.as_bytes());
        word.store(state::REQUESTED, Ordering::Release);
        let words = self.memory.words();
        // Both sides access the two words in one order of all processors: either the service sees the bit
        // before it sleeps, or the client sees that the service sleeps.
        words[DOORBELL].fetch_or(1 << lane, Ordering::SeqCst);
        if words[ASLEEP].load(Ordering::SeqCst) != 0 {
            // If the service has ended meanwhile, it may have answered before. The wait finds out.
            let _ = packet::send(self.socket.as_fd(), b"w", &[]);
        }
        self.wait(word)?;
        let mut answer = LaneAnswer::new_zeroed();
        self.memory.read(head + ANSWER_AT, answer.as_mut_bytes());
        word.store(state::IDLE, Ordering::Relaxed);
        let reply = Reply { channel: self, lane, answer, _held: held };
        if answer.error == 0 {
            return Ok(reply);
        }
        let text = String::from_utf8_lossy(&reply.data()).into_owned();
        Err(received_error(answer.error, answer.number, &text))
    }

    /// Returns a free lane with room for `bytes` of data: that at this thread's index, or any other one.
    /// Waits if all lanes are in use.
    fn lane_for(&self, bytes: usize) -> Result<(usize, MutexGuard<'_, ()>)> {
        if bytes > data_of(LARGE_LANE).1 {
            return Err(Error::TooLarge);
        }
        if bytes > data_of(0).1 {
            return Ok((LARGE_LANE, lock(&self.lanes[LARGE_LANE])));
        }
        let first = thread_index() % LANES;
        let free = (0..LANES).map(|n| (first + n) % LANES).find_map(|lane| {
            let held = try_lock(&self.lanes[lane])?;
            Some((lane, held))
        });
        Ok(free.unwrap_or_else(|| (first, lock(&self.lanes[first]))))
    }

    fn state(&self, lane: usize) -> &AtomicU32 {
        &self.memory.short_words()[head_of(lane) / 4]
    }

    /// Waits for the answer: first awake, then asleep.
    fn wait(&self, word: &AtomicU32) -> Result<()> {
        for _ in 0..if self.may_spin { SPINS } else { 1 } {
            if word.load(Ordering::Acquire) == state::ANSWERED {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let asleep =
            word.compare_exchange(state::REQUESTED, state::WAITING, Ordering::AcqRel, Ordering::Acquire);
        if asleep == Err(state::ANSWERED) {
            return Ok(());
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: LOOK_NANOSECONDS };
        loop {
            // A service that has ended rings nobody, so this look comes before each sleep.
            if packet::is_closed(self.socket.as_fd()) {
                // The service may have answered just before it ended.
                let is_answered = word.load(Ordering::Acquire) == state::ANSWERED;
                return if is_answered { Ok(()) } else { Err(Error::ServiceEnded) };
            }
            let _ = futex::wait(word, futex::Flags::empty(), state::WAITING, Some(&pause));
            if word.load(Ordering::Acquire) == state::ANSWERED {
                return Ok(());
            }
        }
    }
}
