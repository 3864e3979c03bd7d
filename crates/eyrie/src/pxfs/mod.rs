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
//! - Hard links are protected as with `fs.protected_hardlinks = 1`, whatever the host says.

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

use eyrie_engine::access::Credentials;
use eyrie_engine::{Engine, ObjectId, Time};
use eyrie_medium::epoch;
use rustix::io::Errno;

use crate::{Error, Result};

/// How often a call walks again before it reports `ESTALE`: changes of others can only go on for so long by accident.
const ATTEMPTS: u32 = 1000;

/// The POSIX calls over an engine, for one set of credentials. See the [module](self) for what differs from Linux.
pub struct Pxfs<E: Engine> {
    engine: Arc<E>,
    credentials: Credentials,
    /// Tells this file system from every other of the process in caches.
    instance: u64,
    clock: fn() -> Time,
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
        Pxfs { engine, credentials, instance: next_instance(), clock: coarse_time, start: None }
    }

    /// The same file system for somebody else.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Pxfs<E> {
        Pxfs { credentials, ..self.clone() }
    }

    /// The same file system with another source of time stamps than the system's coarse clock.
    #[must_use]
    pub fn with_clock(&self, clock: fn() -> Time) -> Pxfs<E> {
        Pxfs { clock, ..self.clone() }
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

    /// The engine.
    pub fn engine(&self) -> &Arc<E> {
        &self.engine
    }

    /// The source of time stamps.
    pub(crate) fn clock(&self) -> fn() -> Time {
        self.clock
    }

    #[inline]
    fn now(&self) -> Time {
        (self.clock)()
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
        let Pxfs { engine, credentials, instance, clock, start } = self;
        Pxfs {
            engine: Arc::clone(engine),
            credentials: credentials.clone(),
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

/// The clock that the kernel stamps files with: read without a system call, a few milliseconds coarse.
pub(crate) fn coarse_time() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Time::new(now.tv_sec, now.tv_nsec as u32)
}

#[inline]
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
pub(crate) mod tests;
