//! The waker of the keeper, the background thread of a page cache. The waker is an event descriptor, because
//! the keeper polls it together with a file by which the kernel reports that memory is short.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::host;

/// Wakes the keeper, and carries the request to stop.
pub(super) struct Waker {
    event: OwnedFd,
    stop: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        let event = host::call(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        Ok(Waker { event, stop: AtomicBool::new(false) })
    }

    /// Wakes the keeper.
    pub(super) fn wake(&self) {
        // The write fails only when the counter of the descriptor is full, and then the descriptor is
        // readable and wakes the keeper anyway.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Requests that the keeper stops.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns true after [`Waker::stop`].
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Sleeps until a thread wakes the keeper, memory is short, or `time` has passed, but for an hour at
    /// most. Returns true if memory is short, as the file `pressure` reports.
    pub(super) fn wait(&self, pressure: Option<&File>, time: Duration) -> bool {
        let mut watched = vec![PollFd::new(&self.event, PollFlags::IN)];
        watched.extend(pressure.map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::PRI)));
        let time = time.min(Duration::from_secs(3600)).try_into().ok();
        // An interrupted wait only ends early, which is harmless.
        let _ = poll(&mut watched, time.as_ref());
        let is_short = watched.get(1).is_some_and(|file| file.revents().contains(PollFlags::PRI));
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        is_short
    }
}
