//! Notices of changes: the client asks the service for those of each watcher.

use std::time::{Duration, Instant};

use eyrie_engine::{Notice, Result, Watcher};
use eyrie_medium::sync::lock;

use crate::client::Client;
use crate::protocol::ServiceCall;

/// Time between two attempts to reach a service that does not answer.
const PAUSE: Duration = Duration::from_millis(100);

impl Client {
    pub(crate) fn new_watcher(&self, capacity: usize) -> Watcher {
        let watcher = self.notices.watch(capacity);
        // If the service does not answer, `next_notice_of` makes it know the watcher later.
        let _ = self.make_known(&watcher);
        watcher
    }

    /// Lets the service know a watcher. Returns false if the service knew it already.
    fn make_known(&self, watcher: &Watcher) -> Result<bool> {
        let session = self.session.load_full();
        let mut watched = lock(&session.watched);
        if watched.contains(&watcher.id()) {
            return Ok(false);
        }
        self.call(ServiceCall::Watch, watcher.capacity() as u64, watcher.id(), &[])?;
        watched.push(watcher.id());
        Ok(true)
    }

    pub(crate) fn next_notice_of(&self, watcher: &Watcher, timeout: Duration) -> Option<Notice> {
        let end = Instant::now() + timeout;
        loop {
            if watcher.is_ready() {
                return watcher.next(Duration::ZERO);
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.fetch_notices(watcher, left) {
                Ok(()) if left.is_zero() => return watcher.next(Duration::ZERO),
                Ok(()) => {}
                Err(_) if left.is_zero() => return None,
                Err(_) => watcher.wait(left.min(PAUSE)),
            }
        }
    }

    /// Waits for notices of a watcher, and adds them to its queue.
    fn fetch_notices(&self, watcher: &Watcher, timeout: Duration) -> Result<()> {
        if self.make_known(watcher)? {
            // An earlier service has ended, and others may have made changes since.
            watcher.add(&Notice::Everything);
            return Ok(());
        }
        let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let reply = self.call(ServiceCall::Notices, milliseconds, watcher.id(), &[])?;
        let mut bytes = &reply.data[..];
        while let Some(notice) = Notice::decode(&mut bytes) {
            watcher.add(&notice);
        }
        Ok(())
    }

    pub(crate) fn end_watch(&self, watcher: &Watcher) {
        watcher.stop();
        // If the service has ended, its watchers have ended with it.
        let _ = self.call(ServiceCall::Unwatch, 0, watcher.id(), &[]);
        lock(&self.session.load().watched).retain(|&id| id != watcher.id());
    }
}
