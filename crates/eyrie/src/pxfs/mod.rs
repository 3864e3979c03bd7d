//! PXFS: the calls of [`Posix`](crate::posix::Posix) over an engine.
//!
//! A call walks its path, asks [`eyrie_engine::access`] whether its credentials may, and reads or applies one
//! Op. It holds one epoch pin throughout, so ids stay valid between look-up and use; when another thread's change makes
//! an engine answer `Stale` all the same, it walks again.
//!
//! Differences from Linux's tmpfs:
//! - Access times change only when set (`noatime`).
//! - Pipes, sockets and devices can be made and named, but not opened (`ENXIO`).
//! - Names that begin with `%kv%` are escaped keys ([`crate::names`]); those that are none cannot be created (`EINVAL`).
//! - There are no ACLs (`system.*` extended attributes) and no capabilities of programs (`security.capability`).
//! - Links, pipes and files in shared directories are protected as [`Pxfs::with_rules`] says, whatever the host says: by
//!   default hard links alone, as with `fs.protected_hardlinks = 1`.

mod cache;
mod calls;
mod change;
mod entries;
mod open;
mod walk;
mod xattr;

pub use open::Handle;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::access::{AccessRules, Credentials};
use eyrie_engine::{Engine, ObjectId, Time};
use eyrie_medium::epoch;
use rustix::io::Errno;

use crate::posix::Stat;
use crate::stamps::{self, Clock};
use crate::{Error, Result};

/// How often a call walks again before it reports `ESTALE`: changes of others can only go on for so long by accident.
const ATTEMPTS: u32 = 1000;

/// The POSIX calls over an engine, for one set of credentials. See the [module](self) for what differs from Linux.
pub struct Pxfs<E: Engine> {
    engine: Arc<E>,
    credentials: Credentials,
    rules: AccessRules,
    /// Tells this file system from every other of the process in caches.
    instance: u64,
    clock: Clock,
    /// The directory where paths begin, unless that is the root.
    start: Option<Arc<Start<E>>>,
}

/// An open directory.
struct Start<E: Engine> {
    engine: Arc<E>,
    id: ObjectId,
}

impl<E: Engine> Drop for Start<E> {
    fn drop(&mut self) {
        let _pin = epoch::pin();
        self.engine.close(self.id);
    }
}

/// A number that no other file system of the process has.
fn next_instance() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<E: Engine> Pxfs<E> {
    /// The calls over `engine`, made by `credentials`.
    pub fn new(engine: Arc<E>, credentials: Credentials) -> Pxfs<E> {
        let (instance, clock) = (next_instance(), Clock::System);
        Pxfs { engine, credentials, rules: AccessRules::default(), instance, clock, start: None }
    }

    /// The same file system for somebody else.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Pxfs<E> {
        Pxfs { credentials, ..self.clone() }
    }

    /// The same file system with other protections against misleading links, pipes and files, for whatever credentials.
    #[must_use]
    pub fn with_rules(&self, rules: AccessRules) -> Pxfs<E> {
        Pxfs { rules, ..self.clone() }
    }

    /// The same file system with another source of time stamps than the clocks of the system.
    #[must_use]
    pub fn with_clock(&self, clock: fn() -> Time) -> Pxfs<E> {
        Pxfs { clock: Clock::Given(clock), ..self.clone() }
    }

    /// The same file system with an open directory in the place of the root.
    fn rooted(&self, dir: &Handle) -> Step<Pxfs<E>> {
        let id = dir.id();
        if !id.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.engine.open(id)?;
        let start = Start { engine: Arc::clone(&self.engine), id };
        Ok(Pxfs { instance: next_instance(), start: Some(Arc::new(start)), ..self.clone() })
    }

    /// Where paths begin.
    fn start(&self) -> ObjectId {
        self.start.as_ref().map_or_else(|| self.engine.root(), |start| start.id)
    }

    /// Who makes the calls.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The protections against misleading links, pipes and files.
    pub fn rules(&self) -> AccessRules {
        self.rules
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<E> {
        &self.engine
    }

    /// The source of time stamps.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// The stamp of a change of these objects.
    #[inline]
    fn now<const N: usize>(&self, ids: [ObjectId; N]) -> Time {
        self.clock.stamp(ids)
    }

    /// The attributes that `stat` tells of an object.
    #[inline]
    fn stat_of(&self, id: ObjectId) -> Step<Stat> {
        let attributes = self.engine.attributes(id)?;
        stamps::show(id, attributes.changed);
        Ok(Stat::new(id, &attributes))
    }

    /// Runs one call under a pin, again if ids went stale meanwhile, or if there was no space but soon will be.
    #[inline(always)]
    fn call<T>(&self, operation: &'static str, mut attempt: impl FnMut() -> Step<T>) -> Result<T> {
        let pin = epoch::pin();
        match attempt() {
            Ok(result) => Ok(result),
            Err(failure) => {
                drop(pin);
                self.call_again(operation, failure, attempt)
            }
        }
    }

    #[cold]
    fn call_again<T>(
        &self,
        operation: &'static str,
        mut failure: Failure,
        mut attempt: impl FnMut() -> Step<T>,
    ) -> Result<T> {
        let mut reclaimed = false;
        for _ in 0..ATTEMPTS {
            match failure {
                Failure::Engine(eyrie_engine::Error::Stale) | Failure::Again => {}
                Failure::Engine(error) if error.is_full() && !reclaimed && self.engine.reclaim() => {
                    reclaimed = true;
                }
                failure => return Err(failure.into_error(operation)),
            }
            let _pin = epoch::pin();
            match attempt() {
                Ok(result) => return Ok(result),
                Err(next) => failure = next,
            }
        }
        Err(failure.into_error(operation))
    }
}

/// Shares the engine.
impl<E: Engine> Clone for Pxfs<E> {
    fn clone(&self) -> Self {
        let Pxfs { engine, credentials, rules, instance, clock, start } = self;
        Pxfs {
            engine: Arc::clone(engine),
            credentials: credentials.clone(),
            rules: *rules,
            instance: *instance,
            clock: *clock,
            start: start.clone(),
        }
    }
}

impl<E: Engine> std::fmt::Debug for Pxfs<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Pxfs { credentials, instance, .. } = self;
        f.debug_struct("Pxfs").field("credentials", credentials).field("instance", instance).finish()
    }
}

/// Result of a step of a call.
type Step<T> = std::result::Result<T, Failure>;

/// Why a step failed.
#[derive(Debug)]
enum Failure {
    Errno(Errno),
    Engine(eyrie_engine::Error),
    /// Another thread was faster: the call begins again.
    Again,
}

impl Failure {
    #[cold]
    fn into_error(self, operation: &'static str) -> Error {
        match self {
            Failure::Errno(errno) => Error::new(errno, operation),
            Failure::Engine(error) => Error::from_engine(error, operation),
            Failure::Again => Error::new(Errno::STALE, operation),
        }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

impl From<eyrie_engine::Error> for Failure {
    fn from(error: eyrie_engine::Error) -> Failure {
        Failure::Engine(error)
    }
}

#[inline]
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
pub(crate) mod tests;
