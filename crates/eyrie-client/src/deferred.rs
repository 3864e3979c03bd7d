//! Deferred changes: a client that holds the grant of the volume logs a change, and does not wait for the
//! service.
//!
//! Three kinds of Ops are deferred: writes, appends, and puts of keys that exist. They change the bytes, the
//! size and the times of one file, and nothing else. So only reads of these wait for the log: other clients
//! make the service take the grant back first, and this client waits until the entries of the file are
//! applied.

use eyrie_engine::access::{AccessRules, Requester};
use eyrie_engine::change_log::ANY_SIZE;
use eyrie_engine::notices::quiet_watcher;
use eyrie_engine::op::FILE_MAX;
use eyrie_engine::{Applied, Engine, Error, Kind, ObjectId, Op, Result, SetIds};
use eyrie_medium::Fault;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::lock;

use crate::client::Client;
use crate::log::{Appended, Appender, ChangeLog};
use crate::protocol::ServiceCall;

/// Largest number of bytes of a deferred write. Larger ones wait for the service, which copies them once.
const WRITE_MAX: usize = 64 << 10;
/// Largest size of a deferred value, in bytes: one page. A larger value needs storage in one piece, which a
/// volume with enough free storage may not have.
const VALUE_MAX: usize = 4096;

/// An Op that a client can log, and its effect.
struct Loggable<'o> {
    op: Op<'o>,
    /// The file that the Op changes, and its size afterwards.
    file: (ObjectId, u64),
    /// Size of the file before, if the answer depends on it, else [`ANY_SIZE`].
    size_before: u64,
    applied: Applied,
}

impl Client {
    /// Logs a change. `None` if the change has to wait for the service.
    pub(crate) fn log_change(&self, op: &Op<'_>) -> Option<Result<Applied>> {
        let session = self.session.load();
        let log = session.log.as_ref()?;
        // The first look is for the many calls that find the log sealed.
        log.word()?;
        let key = session.key;
        // A forked child must not use the log of its parent.
        if self.key() != key || quiet_watcher() != 0 || self.medium().check().is_err() {
            return None;
        }
        let mut appender = lock(&log.appender);
        let word = log.word()?;
        let loggable = self.loggable(op, log, &appender)?;
        let Loggable { op, file, size_before, applied } = loggable;
        match log.append(&mut appender, word, &op, size_before, file) {
            Appended::No => None,
            Appended::Yes(fills_up) => {
                drop(appender);
                if fills_up {
                    session.channel.wake();
                }
                Some(Ok(applied))
            }
            Appended::InDoubt(end) => {
                drop(appender);
                Some(self.rejoin(key).and_then(|()| match log.outcome(end) {
                    Some(true) => Ok(applied),
                    Some(false) => Err(Error::Stale),
                    None => Err(Error::ServiceEnded),
                }))
            }
        }
    }

    /// Returns an Op as the service will apply it, if this client can decide that it succeeds.
    fn loggable<'o>(&self, op: &Op<'o>, log: &ChangeLog, appender: &Appender) -> Option<Loggable<'o>> {
        match op {
            Op::Write { data, .. } | Op::Append { data, .. } if (1..=WRITE_MAX).contains(&data.len()) => {}
            Op::Put { data, .. } if data.len() <= VALUE_MAX => {}
            _ => return None,
        }
        let (who, rules) = (&log.who, AccessRules::default());
        // The service sets the time. An Op that this check refuses gets its error from the service.
        let op = Requester { engine: self, who, rules, now: op.time() }.authorize(op).ok()?;
        let size_of = |id: ObjectId| match log.size_of(appender, id) {
            Some(size) => Some(size),
            None if id.kind() == Kind::File => {
                self.reading(|view| view.read_object(id)).ok().map(|it| it.size)
            }
            None => None,
        };
        let end =
            |offset: u64, data: &[u8]| offset.checked_add(data.len() as u64).filter(|&end| end <= FILE_MAX);
        match op {
            Op::Write { id, offset, data, set_ids: SetIds::Keep, .. } => {
                let size = size_of(id)?.max(end(offset, data)?);
                Some(Loggable { op, file: (id, size), size_before: ANY_SIZE, applied: Applied::default() })
            }
            Op::Append { id, data, set_ids: set_ids @ SetIds::Keep, time } => {
                let offset = size_of(id)?;
                let op = Op::Write { id, offset, data, set_ids, time };
                let applied = Applied { offset, generation: offset, ..Applied::default() };
                Some(Loggable { op, file: (id, end(offset, data)?), size_before: offset, applied })
            }
            Op::Put { dir, name, data, .. } => {
                let id = self.lookup(dir, name).ok()?.filter(|id| id.kind() == Kind::File)?;
                let file = (id, data.len() as u64);
                Some(Loggable { op, file, size_before: ANY_SIZE, applied: Applied::default() })
            }
            _ => None,
        }
    }

    /// Waits until no logged change of the file `id` waits for the service: neither one of this client, nor
    /// one of another client.
    #[cold]
    pub(crate) fn settle(&self, id: ObjectId) -> Result<()> {
        if self.medium().check().is_err() || broken(SafetyRule::ReadsSettleGrants) {
            // The read itself finds out that this process is a forked child.
            return Ok(());
        }
        let session = self.session.load();
        let is_own = self.board().granted_to() == session.key.raw();
        if is_own && session.log.as_ref().is_none_or(|log| log.is_applied(id)) {
            return Ok(());
        }
        self.call(ServiceCall::Settle, 0, 0, &[]).map(drop)
    }

    /// Returns an error if the service could not make a change that this client has taken for made.
    pub(crate) fn check_log(&self) -> Result<()> {
        match &self.session.load().log {
            Some(log) if log.has_failed() => {
                let source = std::io::Error::other("the service could not make a logged change");
                Err(Error::Fault(Fault::Io { what: "syncing the volume".to_owned(), source }))
            }
            _ => Ok(()),
        }
    }
}
