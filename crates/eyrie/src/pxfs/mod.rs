//! PXFS: the calls of [`Posix`](crate::posix::Posix) over an engine.
//!
//! A call walks its path, checks permissions with [`eyrie_engine::access`], and then reads, or changes the
//! volume by one [`Op`], which a crash leaves whole or undone. (A long `fallocate` or `clone_range` applies
//! several Ops.) Each attempt of a call holds one pin ([`Guard`](crate::Guard)), so no id is reused between
//! look-up and use. If another thread removes the object in between, the engine returns `Stale`, and the call
//! begins again.
//!
//! Differences from Linux's tmpfs:
//! - No read sets an access time, as with the mount option `noatime`, unless [`Pxfs::with_access_times`]
//!   chooses another rule.
//! - Pipes, sockets and devices can be made, but opened only with [`OpenFlags::PATH`](crate::OpenFlags::PATH)
//!   (otherwise `ENXIO`).
//! - A path that begins at an open directory that was removed cannot lead through `..` (`ESTALE`).
//! - Names that begin with `%kv%` are escaped keys ([`crate::names`]). A name that begins with `%kv%` but
//!   stands for no key cannot be made (`EINVAL`).
//! - [`Pxfs::with_rules`] sets the protection of links, pipes and files in shared directories. The settings
//!   of the host have no effect. By default only hard links are protected, as with `fs.protected_hardlinks =
//!   1`.

mod access_times;
mod cache;
mod calls;
mod change;
mod clone;
mod entries;
mod handle;
mod locks;
mod nodes;
mod open;
mod path;
mod quotas;
mod short_writes;
mod size;
mod space;
mod view;
mod watch;
mod xattr;

pub use access_times::AccessTimes;
pub use handle::Handle;
pub use nodes::{Node, NodeEntry, Nodes, SetAttributes};
pub use view::Pieces;
pub use watch::{Watch, WatchEvent, WatchEventKind, WatchOptions, WatchStopper};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::access::{self, AccessRules, Credentials};
use eyrie_engine::{Applied, Engine, ObjectId, Op, Time};
use eyrie_medium::epoch;

use crate::posix::Stat;
use crate::retry::Retries;
use crate::stamps::{self, Clock};
use crate::{Errno, Error, Result};

/// The POSIX calls over an engine, for one set of credentials. The [module](self) lists the differences from
/// Linux. A clone costs one atomic increment.
///
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// use eyrie::{Credentials, Files, PosixExt};
///
/// let files: Files = volume.files(Credentials::of_process()); // `Files` is a `Pxfs`
/// files.write("/egg", "blue")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pxfs<E: Engine> {
    shared: Arc<Shared<E>>,
}

/// The state that all clones of a [`Pxfs`] share.
struct Shared<E: Engine> {
    engine: Arc<E>,
    credentials: Credentials,
    rules: AccessRules,
    access_times: AccessTimes,
    /// True if a write that does not fit writes the bytes that fit.
    short_writes: bool,
    /// A number that identifies this file system in the caches of the process.
    instance: u64,
    clock: Clock,
    /// Number of the process that owns the range locks. `None` stands for the id of the calling process. A
    /// forked child has another id than its parent.
    lock_process: Option<u64>,
}

/// Returns a number that no other file system of the process has had.
fn next_instance() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<E: Engine> Pxfs<E> {
    /// Makes a file system over `engine`. The calls of the file system use `credentials`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use eyrie::*; fn f(files: &Files) {
    /// let as_root = Pxfs::new(Arc::clone(files.engine()), Credentials::root());
    /// # }
    /// ```
    pub fn new(engine: Arc<E>, credentials: Credentials) -> Pxfs<E> {
        let (instance, clock) = (next_instance(), Clock::System);
        let (rules, lock_process) = (AccessRules::default(), None);
        let (access_times, short_writes) = (AccessTimes::default(), false);
        Pxfs::over(Shared {
            engine,
            credentials,
            rules,
            access_times,
            short_writes,
            instance,
            clock,
            lock_process,
        })
    }

    fn over(shared: Shared<E>) -> Pxfs<E> {
        Pxfs { shared: Arc::new(shared) }
    }

    /// Returns the same file system for other credentials.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// let as_ada = files.with_credentials(Credentials::new(1000, 1000, &[]));
    /// # }
    /// ```
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Pxfs<E> {
        Pxfs::over(Shared { credentials, ..self.shared.copy() })
    }

    /// Returns the same file system with other rules for links, pipes and files in shared directories.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// let as_host = files.with_rules(AccessRules::of_host());
    /// # }
    /// ```
    #[must_use]
    pub fn with_rules(&self, rules: AccessRules) -> Pxfs<E> {
        Pxfs::over(Shared { rules, ..self.shared.copy() })
    }

    /// Returns the same file system with another owner of its [range locks](crate::RangeOwner::Process). By
    /// default all file systems of a process are one owner, whose number is the process id. A front-end that
    /// serves several processes gives each of them a number below 2^63. (Mounts choose numbers from 2^63 on.)
    /// A [close](crate::Posix::close) of a file ends only the range locks on this file that have the number
    /// of the closing file system.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// let other = files.with_lock_process(4711);
    /// # }
    /// ```
    #[must_use]
    pub fn with_lock_process(&self, number: u64) -> Pxfs<E> {
        Pxfs::over(Shared { lock_process: Some(number), ..self.shared.copy() })
    }

    /// Returns the same file system with `clock` as the source of time stamps, in place of the clocks of the
    /// system. This function needs the feature `testing`.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// let stopped = files.with_clock(|| Time::new(1_000_000_000, 0));
    /// # }
    /// ```
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_clock(&self, clock: fn() -> Time) -> Pxfs<E> {
        Pxfs::over(Shared { clock: Clock::Given(clock), ..self.shared.copy() })
    }

    /// Returns the credentials of the calls.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// println!("files of user {}", files.credentials().uid());
    /// # }
    /// ```
    #[inline]
    pub fn credentials(&self) -> &Credentials {
        &self.shared.credentials
    }

    /// Returns the rules for links, pipes and files in shared directories.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// assert!(files.rules().protected_hardlinks);
    /// # }
    /// ```
    #[inline]
    pub fn rules(&self) -> AccessRules {
        self.shared.rules
    }

    /// Returns the engine.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// println!("read-only: {}", files.engine().is_read_only());
    /// # }
    /// ```
    #[inline]
    pub fn engine(&self) -> &Arc<E> {
        &self.shared.engine
    }

    /// Returns the source of time stamps.
    #[inline]
    pub(crate) fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Returns the file system as the user of the credentials sees it.
    #[inline]
    fn as_user(&self) -> AsUser<'_, E> {
        AsUser { shared: &self.shared, credentials: &self.shared.credentials }
    }
}

/// The file system as one user sees it. All calls are methods of this view, because a front-end may serve
/// many users ([`Nodes`]).
struct AsUser<'a, E: Engine> {
    shared: &'a Shared<E>,
    credentials: &'a Credentials,
}

impl<E: Engine> Clone for AsUser<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Engine> Copy for AsUser<'_, E> {}

impl<'a, E: Engine> AsUser<'a, E> {
    #[inline]
    fn credentials(&self) -> &'a Credentials {
        self.credentials
    }

    #[inline]
    fn rules(&self) -> AccessRules {
        self.shared.rules
    }

    #[inline]
    fn engine(&self) -> &'a E {
        &self.shared.engine
    }

    #[inline]
    fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Applies an Op. A user with the capability `CAP_SYS_RESOURCE` may exceed the limits of quotas.
    #[inline]
    fn apply(&self, op: &Op<'_>) -> eyrie_engine::Result<Applied> {
        if access::may_exceed_limits(self.credentials()) {
            self.engine().apply_above_limits(op)
        } else {
            self.engine().apply(op)
        }
    }

    /// Returns the stamp of a change of these objects.
    #[inline]
    fn now<const N: usize>(&self, ids: [ObjectId; N]) -> Time {
        self.clock().stamp(ids)
    }

    /// Returns the attributes of an object for `stat`.
    #[inline]
    fn stat_of(&self, id: ObjectId) -> CallResult<Stat> {
        let attributes = self.engine().attributes(id)?;
        stamps::note_seen(id, attributes.changed);
        Ok(Stat::of_object(id, &attributes))
    }

    /// Makes a call under a pin, and repeats it after an error as long as [`Retries`] allows.
    #[inline(always)]
    fn call<T>(self, operation: &'static str, mut attempt: impl FnMut(Self) -> CallResult<T>) -> Result<T> {
        let pin = epoch::pin();
        match attempt(self) {
            Ok(result) => Ok(result),
            Err(error) => {
                // The engine cannot reclaim space while this thread holds a pin.
                drop(pin);
                self.call_again(operation, error, attempt)
            }
        }
    }

    #[cold]
    fn call_again<T>(
        self,
        operation: &'static str,
        mut error: CallError,
        mut attempt: impl FnMut(Self) -> CallResult<T>,
    ) -> Result<T> {
        let mut retries = Retries::default();
        loop {
            let is_worth_it = match &error {
                CallError::Again => retries.allows_another(),
                CallError::Engine(error) => retries.allows(error, self.engine()),
                CallError::Errno(_) | CallError::Final(_) => false,
            };
            if !is_worth_it {
                return Err(error.into_error(operation));
            }
            let _pin = epoch::pin();
            match attempt(self) {
                Ok(result) => return Ok(result),
                Err(next) => error = next,
            }
        }
    }
}

impl<E: Engine> Shared<E> {
    /// Returns a copy that shares the engine.
    fn copy(&self) -> Shared<E> {
        Shared { engine: Arc::clone(&self.engine), credentials: self.credentials.clone(), ..*self }
    }
}

impl<E: Engine> Clone for Pxfs<E> {
    #[inline]
    fn clone(&self) -> Self {
        Pxfs { shared: Arc::clone(&self.shared) }
    }
}

impl<E: Engine> std::fmt::Debug for Pxfs<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shared { credentials, instance, .. } = &*self.shared;
        f.debug_struct("Pxfs").field("credentials", credentials).field("instance", instance).finish()
    }
}

/// Result of one part of a call.
type CallResult<T> = std::result::Result<T, CallError>;

/// An error of one part of a call.
#[derive(Debug)]
enum CallError {
    Errno(Errno),
    Engine(eyrie_engine::Error),
    /// Another thread made the same file first, so the call begins again.
    Again,
    /// An error after a change, so the call must not begin again.
    Final(eyrie_engine::Error),
}

impl CallError {
    #[cold]
    fn into_error(self, operation: &'static str) -> Error {
        match self {
            CallError::Errno(errno) => Error::new(errno, operation),
            CallError::Engine(error) | CallError::Final(error) => Error::from_engine(error, operation),
            CallError::Again => Error::new(Errno::STALE, operation),
        }
    }
}

impl From<Errno> for CallError {
    fn from(errno: Errno) -> CallError {
        CallError::Errno(errno)
    }
}

impl From<eyrie_engine::Error> for CallError {
    fn from(error: eyrie_engine::Error) -> CallError {
        CallError::Engine(error)
    }
}

#[cfg(test)]
pub(crate) mod tests;
