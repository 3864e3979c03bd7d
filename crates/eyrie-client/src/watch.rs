//! Notices of changes: the client asks the service for the notices of each watcher.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eyrie_engine::{Notice, Result, Watcher};
use eyrie_medium::Fault;
use eyrie_medium::sync::lock;

use crate::channel::ServiceRequest;
use crate::client::Client;
use crate::protocol::ServiceCall;
use crate::session::NoticeWaits;

/// Time between two attempts to reach a service that does not answer.
const PAUSE: Duration = Duration::from_millis(100);
/// A wait without a limit: some 68 years.
const LONGEST: Duration = Duration::from_secs(1 << 31);

impl Client {
    /// Returns the waits of this process. A forked child first replaces those of its parent.
    fn notice_waits(&self) -> Arc<NoticeWaits> {
        let process = std::process::id();
        let is_own = |waits: &NoticeWaits| waits.process == process;
        let waits = self.notice_waits.load_full();
        if is_own(&waits) {
            return waits;
        }
        // Another thread of the child may have replaced them.
        let of_process =
            |now: &Arc<_>| if is_own(now) { Arc::clone(now) } else { Arc::new(NoticeWaits::new()) };
        self.notice_waits.rcu(of_process);
        self.notice_waits.load_full()
    }

    /// True in a forked child that has not joined a service yet. Its parent may have held the locks of its
    /// session at the fork.
    fn is_forked(&self) -> bool {
        matches!(self.medium().check(), Err(Fault::Forked))
    }

    pub(crate) fn new_watcher(&self, capacity: usize) -> Watcher {
        let watcher = self.notices.watch(capacity);
        // If the service does not answer, `next_notice_of` registers the watcher later.
        let _ = self.make_known(&watcher);
        watcher
    }

    /// Registers a watcher with the service. Returns false if the service already knew the watcher.
    fn make_known(&self, watcher: &Watcher) -> Result<bool> {
        let key = self.key();
        if self.is_forked() {
            self.rejoin(key)?;
        }
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
        let now = Instant::now();
        let end = now.checked_add(timeout).unwrap_or(now + LONGEST);
        let waits = self.notice_waits();
        loop {
            // Another thread that waits for the same watcher may take a notice first.
            let notice = watcher.next(Duration::ZERO);
            if notice.is_some() || watcher.is_stopped() {
                return notice;
            }
            let left = end.saturating_duration_since(Instant::now());
            // The service answers one request of a watcher at a time. The notices in the answer wake the
            // other threads.
            let is_first = lock(&waits.fetching).insert(watcher.id());
            let fetched = is_first.then(|| self.fetch_notices(watcher, left));
            if is_first {
                lock(&waits.fetching).remove(&watcher.id());
            }
            match fetched {
                Some(Ok(())) => {}
                None => watcher.wait(left.min(PAUSE)),
                Some(Err(_)) => {
                    watcher.wait(left.min(PAUSE));
                    // A watcher that the service does not know misses changes.
                    if !watcher.is_ready() && self.notes_loss(watcher) {
                        return Some(Notice::Everything);
                    }
                }
            }
            if left.is_zero() {
                return watcher.next(Duration::ZERO);
            }
        }
    }

    /// Notes that a watcher misses changes. Returns false if that was noted within the last [`PAUSE`].
    fn notes_loss(&self, watcher: &Watcher) -> bool {
        let (now, waits) = (Instant::now(), self.notice_waits());
        let mut losses = lock(&waits.losses);
        let is_new = losses.get(&watcher.id()).is_none_or(|noted| now - *noted >= PAUSE);
        if is_new {
            losses.insert(watcher.id(), now);
        }
        is_new
    }

    /// Waits for notices of a watcher, and adds them to its queue.
    fn fetch_notices(&self, watcher: &Watcher, timeout: Duration) -> Result<()> {
        if self.make_known(watcher)? {
            // This session did not know the watcher, so the watcher may have missed changes.
            watcher.add(&Notice::Everything);
            return Ok(());
        }
        let milliseconds = u64::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        let reply = self.call(ServiceCall::Notices, milliseconds, watcher.id(), &[])?;
        let mut bytes = &reply.data[..];
        while let Some(notice) = Notice::decode(&mut bytes) {
            watcher.add(&notice);
        }
        if !bytes.is_empty() {
            // The service has sent bytes that are no notice.
            watcher.add(&Notice::Everything);
        }
        Ok(())
    }

    pub(crate) fn end_watch(&self, watcher: &Watcher) {
        watcher.stop();
        if self.is_forked() {
            return;
        }
        lock(&self.notice_waits().losses).remove(&watcher.id());
        // The present session has the watcher, even if the caller's pin belongs to an earlier one. An error
        // is ignored, because a session that has ended has no watchers.
        let session = self.session.load();
        let request = ServiceRequest { call: ServiceCall::Unwatch, id: 0, number: watcher.id(), data: &[] };
        let _ = session.channel.call(&request);
        lock(&session.watched).retain(|&id| id != watcher.id());
    }
}
