//! Notices of changes, for front-ends that cache attributes and entries, as a kernel does for a mount.
//!
//! A [`Watcher`] has a queue of bounded length. The thread that makes a change adds a notice to each queue
//! after the change is visible. If a queue is full, one notice replaces all its notices, and tells the
//! watcher to forget everything. While nobody watches, the only cost for a change is the load of a flag.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyrie_medium::Fault;

use crate::op::NAME_MAX;
use crate::{Error, ObjectId, Result};

/// A change that a watcher sees.
///
/// ```
/// use eyrie_engine::Notice;
///
/// fn forgets_all(notice: &Notice) -> bool {
///     matches!(notice, Notice::Everything)
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The bytes of an object have changed, and with them attributes such as its times.
    Object(ObjectId),
    /// Attributes, extended attributes or the ACL of an object have changed, but not its bytes.
    Attributes(ObjectId),
    /// A reader has set the access time of an object. Nothing else has changed.
    Access(ObjectId),
    /// An entry of a directory has changed, and with it the attributes of the directory and of the objects
    /// that the entry named before and names now.
    #[non_exhaustive]
    Entry {
        /// The directory.
        dir: ObjectId,
        /// Name of the entry.
        name: Box<[u8]>,
        /// The object that the entry named before the change, if any.
        before: Option<ObjectId>,
        /// The object that the entry names now, if any.
        after: Option<ObjectId>,
    },
    /// An entry has moved. The attributes of both directories and of the objects have changed, too.
    #[non_exhaustive]
    Rename {
        /// The directory of the old name.
        from_dir: ObjectId,
        /// The old name.
        from_name: Box<[u8]>,
        /// The directory of the new name.
        to_dir: ObjectId,
        /// The new name.
        to_name: Box<[u8]>,
        /// The object that has moved.
        moved: ObjectId,
        /// The object that the new name named before the change, if any.
        replaced: Option<ObjectId>,
        /// The object that the old name names now, if any: the replaced object after an exchange, or a
        /// whiteout.
        left: Option<ObjectId>,
    },
    /// Notices were lost. Anything may have changed.
    Everything,
}

const OBJECT: u8 = 1;
const ENTRY: u8 = 2;
const EVERYTHING: u8 = 3;
const ATTRIBUTES: u8 = 4;
const RENAME: u8 = 5;
const ACCESS: u8 = 6;

impl Notice {
    /// Appends the encoded notice. Another process can [decode](Notice::decode) it.
    #[doc(hidden)]
    pub fn encode(&self, out: &mut Vec<u8>) {
        fn put(out: &mut Vec<u8>, ids: &[Option<ObjectId>], names: &[&[u8]]) {
            for id in ids {
                out.extend_from_slice(&id.map_or(0, ObjectId::raw).to_le_bytes());
            }
            for name in names {
                // A name has at most 255 bytes.
                out.push(name.len() as u8);
                out.extend_from_slice(name);
            }
        }
        match self {
            Notice::Object(id) => {
                out.push(OBJECT);
                put(out, &[Some(*id)], &[]);
            }
            Notice::Attributes(id) => {
                out.push(ATTRIBUTES);
                put(out, &[Some(*id)], &[]);
            }
            Notice::Access(id) => {
                out.push(ACCESS);
                put(out, &[Some(*id)], &[]);
            }
            Notice::Entry { dir, name, before, after } => {
                out.push(ENTRY);
                put(out, &[Some(*dir), *before, *after], &[name]);
            }
            Notice::Rename { from_dir, from_name, to_dir, to_name, moved, replaced, left } => {
                out.push(RENAME);
                let ids = [Some(*from_dir), Some(*to_dir), Some(*moved), *replaced, *left];
                put(out, &ids, &[from_name, to_name]);
            }
            Notice::Everything => out.push(EVERYTHING),
        }
    }

    /// Decodes the first notice of `bytes`, and removes it from `bytes`. Returns `None` if `bytes` is empty
    /// or begins with no valid notice.
    #[doc(hidden)]
    pub fn decode(bytes: &mut &[u8]) -> Option<Notice> {
        fn id(bytes: &mut &[u8]) -> Option<Option<ObjectId>> {
            let (raw, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(ObjectId::from_raw(u64::from_le_bytes(*raw)))
        }
        fn name(bytes: &mut &[u8]) -> Option<Box<[u8]>> {
            let length = usize::from(*bytes.split_off_first()?);
            Some(bytes.split_off(..length)?.into())
        }
        match *bytes.split_off_first()? {
            OBJECT => Some(Notice::Object(id(bytes)??)),
            ATTRIBUTES => Some(Notice::Attributes(id(bytes)??)),
            ACCESS => Some(Notice::Access(id(bytes)??)),
            ENTRY => {
                let (dir, before, after) = (id(bytes)??, id(bytes)?, id(bytes)?);
                Some(Notice::Entry { dir, name: name(bytes)?, before, after })
            }
            RENAME => {
                let (from_dir, to_dir, moved) = (id(bytes)??, id(bytes)??, id(bytes)??);
                let (replaced, left) = (id(bytes)?, id(bytes)?);
                let (from_name, to_name) = (name(bytes)?, name(bytes)?);
                Some(Notice::Rename { from_dir, from_name, to_dir, to_name, moved, replaced, left })
            }
            EVERYTHING => Some(Notice::Everything),
            _ => None,
        }
    }

    /// Greatest number of bytes of an encoded notice.
    #[doc(hidden)]
    pub const ENCODED_MAX: usize = 1 + 5 * 8 + 2 * (1 + NAME_MAX);
}

/// True if an Op or a commit with this result may have changed the volume. An Op or a commit that fails may
/// have changed the volume if the medium has failed.
#[cold]
pub(crate) fn may_have_changed<T>(result: &Result<T>) -> bool {
    match result {
        Ok(_) => true,
        // If the host or the journal has no room, the Op fails before its commit, or runs again.
        Err(Error::Fault(fault)) => !fault.lacks_room() && !matches!(fault, Fault::OpTooLarge { .. }),
        Err(_) => false,
    }
}

/// The watchers of an engine.
#[derive(Default)]
pub struct Notices {
    is_watched: AtomicBool,
    queues: Mutex<Vec<Arc<Queue>>>,
}

/// The notices that a watcher has not taken yet.
#[derive(Debug)]
struct Queue {
    id: u64,
    capacity: usize,
    state: Mutex<QueueState>,
    filled: Condvar,
}

#[derive(Default, Debug)]
struct QueueState {
    notices: VecDeque<Notice>,
    /// True if notices were dropped, because the queue was full.
    overflowed: bool,
    /// True after [`Watcher::stop`].
    stopped: bool,
}

thread_local! {
    /// Id of the queue that gets no notices of this thread's changes; 0 for none.
    static QUIET: Cell<u64> = const { Cell::new(0) };
}

/// Returns the id of the watcher that gets no notice of this thread's [changes](Watcher::quietly); 0 for
/// none.
#[inline]
pub fn quiet_watcher() -> u64 {
    QUIET.get()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic while the lock is held, some queues may lack one notice, but each queue is still sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notices {
    /// True if the engine has a watcher.
    #[inline]
    pub fn is_watched(&self) -> bool {
        // `watch` sets the flag before it returns. So each change that begins after its return sees the flag.
        self.is_watched.load(Ordering::Acquire)
    }

    /// Adds a notice to the queue of each watcher.
    #[cold]
    pub fn add(&self, notice: &Notice) {
        let quiet = QUIET.get();
        for queue in lock(&self.queues).iter().filter(|queue| queue.id != quiet) {
            queue.add(notice);
        }
    }

    /// Adds a watcher, with room for `capacity` notices.
    pub fn watch(self: &Arc<Self>, capacity: usize) -> Watcher {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::new(Queue { id, capacity, state: Mutex::default(), filled: Condvar::new() });
        let mut queues = lock(&self.queues);
        queues.push(Arc::clone(&queue));
        self.is_watched.store(true, Ordering::Release);
        Watcher { queue, notices: Arc::clone(self) }
    }
}

impl QueueState {
    fn is_ready(&self) -> bool {
        !self.notices.is_empty() || self.overflowed || self.stopped
    }
}

impl Queue {
    fn add(&self, notice: &Notice) {
        let mut state = lock(&self.state);
        // Equal notices in a row become one notice, because a thread may write a file in many small pieces.
        if state.stopped || state.overflowed || state.notices.back() == Some(notice) {
            return;
        }
        if state.notices.len() < self.capacity {
            state.notices.push_back(notice.clone());
        } else {
            state.notices.clear();
            state.overflowed = true;
        }
        drop(state);
        self.filled.notify_one();
    }
}

/// Receives the notices of an engine's changes: see [`Engine::watch`](crate::Engine::watch). The watch ends
/// with the drop of this value.
pub struct Watcher {
    queue: Arc<Queue>,
    notices: Arc<Notices>,
}

impl Watcher {
    /// Returns a number, at least 1, that distinguishes this watcher from all others of the process.
    pub fn id(&self) -> u64 {
        self.queue.id
    }

    /// Returns the number of notices for which the watcher has room.
    pub fn capacity(&self) -> usize {
        self.queue.capacity
    }

    /// Adds a notice that another process has sent.
    pub fn add(&self, notice: &Notice) {
        self.queue.add(notice);
    }

    /// True if [`Watcher::next`] does not wait.
    pub fn is_ready(&self) -> bool {
        lock(&self.queue.state).is_ready()
    }

    /// Waits for a notice, up to `timeout`. Returns `None` if none came, or after [`Watcher::stop`].
    pub fn next(&self, timeout: Duration) -> Option<Notice> {
        let mut state = self.filled(timeout);
        if state.stopped {
            return None;
        }
        if std::mem::take(&mut state.overflowed) {
            return Some(Notice::Everything);
        }
        state.notices.pop_front()
    }

    /// Waits up to `timeout` for a notice or for [`Watcher::stop`].
    pub fn wait(&self, timeout: Duration) {
        drop(self.filled(timeout));
    }

    fn filled(&self, timeout: Duration) -> MutexGuard<'_, QueueState> {
        let Queue { state, filled, .. } = &*self.queue;
        let waiting = |state: &mut QueueState| !state.is_ready();
        let (state, _) =
            filled.wait_timeout_while(lock(state), timeout, waiting).unwrap_or_else(PoisonError::into_inner);
        state
    }

    /// Makes the current call and all later calls of [`Watcher::next`] return `None` at once.
    pub fn stop(&self) {
        let mut state = lock(&self.queue.state);
        state.stopped = true;
        state.notices = VecDeque::new();
        drop(state);
        self.queue.filled.notify_all();
    }

    /// True after [`Watcher::stop`].
    pub fn is_stopped(&self) -> bool {
        lock(&self.queue.state).stopped
    }

    /// Runs `changes` on this thread. This watcher gets no notice of these changes, because the caller knows
    /// of its own changes.
    pub fn quietly<T>(&self, changes: impl FnOnce() -> T) -> T {
        /// Restores the queue of an outer call, even while a panic unwinds.
        struct Restore(u64);
        impl Drop for Restore {
            fn drop(&mut self) {
                QUIET.set(self.0);
            }
        }
        let _restore = Restore(QUIET.replace(self.queue.id));
        changes()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut queues = lock(&self.notices.queues);
        queues.retain(|queue| queue.id != self.queue.id);
        self.notices.is_watched.store(!queues.is_empty(), Ordering::Release);
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("queue", &self.queue.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn object(number: u64) -> Notice {
        Notice::Object(ObjectId::new(number * 256, Kind::File))
    }

    #[test]
    fn watchers_get_the_notices_of_others() {
        let notices = Arc::new(Notices::default());
        assert!(!notices.is_watched());
        let (first, second) = (notices.watch(10), notices.watch(10));
        notices.add(&object(1));
        notices.add(&object(1));
        first.quietly(|| notices.add(&object(2)));
        notices.add(&object(3));
        let taken =
            |watcher: &Watcher| std::iter::from_fn(|| watcher.next(Duration::ZERO)).collect::<Vec<_>>();
        assert_eq!(taken(&first), [object(1), object(3)]);
        assert_eq!(taken(&second), [object(1), object(2), object(3)]);
        drop(first);
        assert!(notices.is_watched());
        drop(second);
        assert!(!notices.is_watched());
    }

    #[test]
    fn notices_can_be_sent() {
        let name: Box<[u8]> = (1..=NAME_MAX).map(|number| number as u8).collect();
        let Notice::Object(id) = object(3) else { unreachable!() };
        let entry = Notice::Entry { dir: id, name: name.clone(), before: None, after: Some(id) };
        let other = ObjectId::new(512, Kind::Directory);
        let rename = Notice::Rename {
            from_dir: other,
            from_name: name.clone(),
            to_dir: id,
            to_name: name,
            moved: id,
            replaced: Some(other),
            left: None,
        };
        let sent =
            [object(1), Notice::Attributes(other), Notice::Access(id), entry, rename, Notice::Everything];
        let mut bytes = Vec::new();
        for notice in &sent {
            let before = bytes.len();
            notice.encode(&mut bytes);
            assert!(bytes.len() - before <= Notice::ENCODED_MAX);
        }
        let decoded = |mut bytes: &[u8]| {
            let notices: Vec<_> = std::iter::from_fn(|| Notice::decode(&mut bytes)).collect();
            (notices, bytes.len())
        };
        assert_eq!(decoded(&bytes), (sent.to_vec(), 0));
        for length in 0..bytes.len() {
            assert!(decoded(&bytes[..length]).0.len() < sent.len());
        }
        assert_eq!(decoded(&[9, 1, 2]).0, []);
    }

    #[test]
    fn full_queue_tells_to_forget_everything() {
        let notices = Arc::new(Notices::default());
        let watcher = notices.watch(3);
        (1..=4).for_each(|number| notices.add(&object(number)));
        notices.add(&object(5));
        assert_eq!(watcher.next(Duration::ZERO), Some(Notice::Everything));
        assert_eq!(watcher.next(Duration::ZERO), None);
        notices.add(&object(6));
        assert_eq!(watcher.next(Duration::ZERO), Some(object(6)));
    }

    #[test]
    fn stop_ends_a_wait() {
        let watcher = Arc::new(Notices::default()).watch(3);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| watcher.next(Duration::from_secs(3600)));
            watcher.stop();
            assert_eq!(waiter.join().expect("no panic"), None);
        });
        assert!(watcher.is_stopped());
    }

    #[test]
    fn stopped_watcher_keeps_no_notices() {
        let notices = Arc::new(Notices::default());
        let watcher = notices.watch(3);
        notices.add(&Notice::Everything);
        watcher.stop();
        notices.add(&Notice::Everything);
        assert!(lock(&watcher.queue.state).notices.is_empty() && watcher.is_ready());
    }

    #[test]
    fn ops_that_fail_without_a_change_give_no_notice() {
        assert!(may_have_changed(&Ok(())));
        assert!(may_have_changed::<()>(&Err(Error::Fault(Fault::ReadOnly))));
        for error in [Error::NoSpace, Fault::HostFull.into(), Fault::OpTooLarge { needed: 1 }.into()] {
            assert!(!may_have_changed::<()>(&Err(error)));
        }
    }
}
