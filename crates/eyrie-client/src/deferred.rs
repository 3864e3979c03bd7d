//! Deferred changes: a client that holds the grants of all objects of a change logs the change, and does not
//! wait for the service.
//!
//! Two groups of Ops are deferred. The first group changes the bytes, the size and the times of one file:
//! writes, appends, new sizes, new times, and puts of keys that exist. The second group changes names of
//! objects that are no directories: creates, puts of new keys, unlinks, erases and renames.
//!
//! Other clients make the service take the grant back before a read that may depend on such a change. This
//! client finds names, owners and generations in its [`Shadow`](crate::shadow). For all other attributes, and
//! for bytes, it waits until the entries of the object are applied.

use std::sync::atomic::Ordering;

use eyrie_engine::access::{AccessRules, Requester};
use eyrie_engine::board::{GRANTED_IN_PARTS, SessionKey, part_of};
use eyrie_engine::change_log::NO_DETAIL;
use eyrie_engine::notices::quiet_watcher;
use eyrie_engine::op::{FILE_MAX, is_target};
use eyrie_engine::scm::sets_only_times;
use eyrie_engine::volume::VolumeView;
use eyrie_engine::{Applied, Content, Error, Kind, ObjectId, Op, Owner, RenameMode, Result, SetIds};
use eyrie_medium::Fault;
use eyrie_medium::epoch::pin_number;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::lock;

use crate::client::Client;
use crate::log::{Appended, Appender, ChangeLog};
use crate::protocol::ServiceCall;
use crate::shadow::{Effect, MadeObject};

/// Largest number of bytes of a deferred write. A larger write waits for the service, because the size of an
/// entry is limited ([`ENTRY_BYTES_MAX`](eyrie_engine::change_log::ENTRY_BYTES_MAX)).
const WRITE_MAX: usize = 64 << 10;
/// Maximum number of attempts to decide about a change. An attempt fails if another thread of this client
/// appends an entry or makes a request meanwhile. After the last attempt the change waits for the service.
const MOST_ATTEMPTS: u32 = 16;
/// Largest size of the bytes of a deferred new object or value: one page. A larger value needs storage in one
/// piece. A volume may have no such piece, although enough storage is free in all.
const VALUE_MAX: usize = 4096;

/// An Op that a client can log, and its effect. An append has become a write.
struct Loggable<'o> {
    op: Op<'o>,
    /// See [`EntryHead`](eyrie_engine::change_log::EntryHead).
    detail: u64,
    effect: Effect<'o>,
    applied: Applied,
}

/// The session whose log may have changes of an object, before the service has applied them.
enum Logger {
    Nobody,
    /// The session of this client.
    This,
    Other,
}

/// True for an Op that may be logged. This look needs no lock.
fn may_be_logged(op: &Op<'_>) -> bool {
    let is_short = |data: &[u8]| data.len() <= VALUE_MAX;
    match *op {
        Op::Write { data, .. } | Op::Append { data, .. } => (1..=WRITE_MAX).contains(&data.len()),
        Op::Put { owner, data, .. } => owner.mode <= 0o7777 && is_short(data),
        Op::SetSize { id, size, .. } => id.kind() == Kind::File && size <= FILE_MAX,
        Op::SetAttributes { id, change, .. } => !id.is_directory() && sets_only_times(&change),
        Op::Create { id, owner, content, .. } => {
            owner.mode <= 0o7777
                && match (id.kind(), content) {
                    (Kind::File, Content::Bytes(bytes)) => is_short(bytes),
                    (Kind::Symlink, Content::Bytes(target)) => is_short(target) && is_target(target),
                    (Kind::File | Kind::Fifo | Kind::Socket, Content::Empty) => true,
                    _ => false,
                }
        }
        Op::Rename { mode, .. } => matches!(mode, RenameMode::Replace | RenameMode::NoReplace),
        Op::Unlink { .. } | Op::Erase { .. } => true,
        _ => false,
    }
}

impl Client {
    /// Logs a change. `None` if the change has to wait for the service.
    pub(crate) fn log_change(&self, op: &Op<'_>) -> Option<Result<Applied>> {
        let session = self.session.load();
        let log = session.log.as_ref()?;
        // A sealed log is the usual case, and this look needs no lock.
        log.word().filter(|_| may_be_logged(op))?;
        let key = session.key;
        // A forked child must not use the log of its parent. A change of which one watcher gets no notice is
        // made by a request, because an entry cannot name this watcher.
        if self.key() != key || quiet_watcher() != 0 || self.medium().check().is_err() {
            return None;
        }
        // The id of a new object belongs to the session of the pin under which it was reserved.
        if pin_number() == 0 && matches!(op, Op::Create { .. } | Op::Put { .. }) {
            return None;
        }
        let mut attempts = 0;
        let (op, mut appender, word) = loop {
            attempts += 1;
            if attempts > MOST_ATTEMPTS {
                return None;
            }
            let word = log.word()?;
            // The service sets the time. An Op that this check refuses gets its error from the service.
            let (who, rules) = (&log.who, AccessRules::default());
            let op = Requester { engine: self, who, rules, now: op.time() }.authorize(op).ok()?;
            let appender = lock(&log.appender);
            // Another thread of this client may have appended an entry, or made a request, since the rights
            // were checked.
            if log.word()? == word {
                break (op, appender, word);
            }
        };
        let Loggable { op, detail, effect, applied } = self.loggable(op, log, &mut appender)?;
        // The service gives further grants only while the log is sealed. So if the exchange succeeds, the
        // session has held these grants since the word was loaded.
        let appended = match self.holds_objects(key, &op, &effect) {
            true => log.append(&mut appender, word, &op, detail, &effect),
            false => Appended::No,
        };
        match appended {
            Appended::No => {
                if let Effect::Made { made, .. } = effect {
                    // The next new object gets this generation.
                    appender.return_generation(made.generation);
                }
                None
            }
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
    fn loggable<'o>(&self, op: Op<'o>, log: &ChangeLog, appender: &mut Appender) -> Option<Loggable<'o>> {
        let end =
            |offset: u64, data: &[u8]| offset.checked_add(data.len() as u64).filter(|&end| end <= FILE_MAX);
        let of_file = |op, id, size| {
            let effect = Effect::File { id, size };
            Some(Loggable { op, detail: NO_DETAIL, effect, applied: Applied::default() })
        };
        match op {
            Op::Write { id, offset, data, set_ids: SetIds::Keep, .. } => {
                let size = self.size_in(log, appender, id)?.max(end(offset, data)?);
                of_file(op, id, Some(size))
            }
            Op::Append { id, data, set_ids: set_ids @ SetIds::Keep, time } => {
                let offset = self.size_in(log, appender, id)?;
                let (op, size) = (Op::Write { id, offset, data, set_ids, time }, end(offset, data)?);
                let applied = Applied { offset, generation: offset, ..Applied::default() };
                let effect = Effect::File { id, size: Some(size) };
                Some(Loggable { op, detail: offset, effect, applied })
            }
            Op::SetSize { id, size, set_ids: SetIds::Keep, .. } => of_file(op, id, Some(size)),
            Op::SetAttributes { id, .. } => of_file(op, id, None),
            Op::Put { dir, name, id, owner, data, .. } => match self.name_in(log, appender, dir, name)? {
                Some(id) if id.kind() == Kind::File => of_file(op, id, Some(data.len() as u64)),
                Some(_) => None,
                None => self.loggable_new(op, (dir, name), (id, owner), data.len() as u64, (log, appender)),
            },
            Op::Create { dir, name, id, owner, content, .. } => {
                let size = if let Content::Bytes(bytes) = content { bytes.len() as u64 } else { 0 };
                match self.name_in(log, appender, dir, name)? {
                    Some(_) => None,
                    None => self.loggable_new(op, (dir, name), (id, owner), size, (log, appender)),
                }
            }
            Op::Unlink { dir, name, .. } | Op::Erase { dir, name, .. } => {
                let id = self.name_in(log, appender, dir, name)??;
                let is_possible = match op {
                    Op::Erase { .. } => id.kind() == Kind::File,
                    _ => !id.is_directory(),
                };
                let effect = Effect::Removed { dir, name, id };
                let loggable = Loggable { op, detail: id.raw(), effect, applied: Applied::default() };
                is_possible.then_some(loggable)
            }
            Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout: None, .. } => {
                let id = self.name_in(log, appender, from_dir, from_name)??;
                let replaced = self.name_in(log, appender, to_dir, to_name)?;
                let is_possible = !id.is_directory()
                    && replaced.is_none_or(|it| !it.is_directory() && it != id && !mode.needs_free_name())
                    && self.is_alive(to_dir)?;
                let effect =
                    Effect::Moved { from: (from_dir, from_name), to: (to_dir, to_name), id, replaced };
                let loggable = Loggable { op, detail: id.raw(), effect, applied: Applied::default() };
                is_possible.then_some(loggable)
            }
            _ => None,
        }
    }

    /// Returns an Op that makes an object, if the directory is not removed and has no default ACL, which the
    /// object would inherit.
    fn loggable_new<'o>(
        &self,
        op: Op<'o>,
        (dir, name): (ObjectId, &'o [u8]),
        (id, owner): (ObjectId, Owner),
        size: u64,
        (log, appender): (&ChangeLog, &mut Appender),
    ) -> Option<Loggable<'o>> {
        let may_get_objects =
            |view: &VolumeView| Ok(!view.read_guards(dir)?.has_default_acl && !view.read_is_removed(dir)?);
        if !self.reading(may_get_objects).ok()? {
            return None;
        }
        let generation = log.next_generation(appender)?;
        let made = MadeObject { owner, generation };
        let applied = Applied { created: true, generation, offset: generation };
        Some(Loggable { op, detail: generation, effect: Effect::Made { dir, name, id, size, made }, applied })
    }

    /// True if a session holds the grants of all objects of a change. The caller has found that the log of
    /// the session is not sealed.
    fn holds_objects(&self, key: SessionKey, op: &Op<'_>, effect: &Effect<'_>) -> bool {
        let board = self.board();
        if board.granted_to() == key.raw() || broken(SafetyRule::HeldPartsAreCompared) {
            return true;
        }
        let holds = |id| board.is_held_by(id, key);
        match *effect {
            Effect::File { id, .. } => {
                let is_value_held = if let Op::Put { dir, .. } = *op { holds(dir) } else { true };
                is_value_held && holds(id)
            }
            Effect::Made { dir, id, .. } | Effect::Removed { dir, id, .. } => holds(dir) && holds(id),
            Effect::Moved { from, to, id, replaced } => {
                holds(from.0) && holds(to.0) && holds(id) && replaced.is_none_or(holds)
            }
        }
    }

    /// Returns the size of a file after all entries.
    fn size_in(&self, log: &ChangeLog, appender: &Appender, id: ObjectId) -> Option<u64> {
        match appender.shadow.size_of(id, log.applied()) {
            Some(size) => Some(size),
            None if id.kind() == Kind::File => {
                self.reading(|view| view.read_object(id)).ok().map(|it| it.size)
            }
            None => None,
        }
    }

    /// Returns the object that a name has after all entries. The outer `None` stands for an error.
    fn name_in(
        &self,
        log: &ChangeLog,
        appender: &Appender,
        dir: ObjectId,
        name: &[u8],
    ) -> Option<Option<ObjectId>> {
        match appender.shadow.name(dir, name, log.applied()) {
            Some(known) => Some(known),
            None => self.reading(|view| view.read_lookup(dir, name)).ok(),
        }
    }

    /// True for a directory that is not removed. Only the service removes directories.
    fn is_alive(&self, dir: ObjectId) -> Option<bool> {
        self.reading(|view| view.read_is_removed(dir)).ok().map(|is_removed| !is_removed)
    }

    /// Returns the object that a name has after a logged change. The outer `None` means that no such change
    /// waits for the service: neither one of this client, nor one of another client.
    #[cold]
    pub(crate) fn logged_name(&self, dir: ObjectId, name: &[u8]) -> Result<Option<Option<ObjectId>>> {
        let session = self.session.load();
        match self.logger_of(dir, session.key) {
            Logger::Nobody => Ok(None),
            Logger::This => {
                let log = session.log.as_ref().filter(|_| !broken(SafetyRule::OwnNamesAreSeen));
                match log.and_then(|log| log.name(dir, name)) {
                    Some(known) => self.checked_result(session.key, Ok(Some(known))),
                    None => Ok(None),
                }
            }
            Logger::Other => self.wait_until_applied(dir).map(|()| None),
        }
    }

    /// Returns an object that a logged change of this client has made, until that change is applied.
    pub(crate) fn logged_object(&self, id: ObjectId) -> Option<MadeObject> {
        if self.board().granted_to() == 0 { None } else { self.logged_state(id)?.0 }
    }

    /// Works as [`ChangeLog::object`]. `None` if another session may have logged changes of the object.
    pub(crate) fn logged_state(&self, id: ObjectId) -> Option<(Option<MadeObject>, bool)> {
        let session = self.session.load();
        match self.logger_of(id, session.key) {
            Logger::Nobody => Some((None, false)),
            Logger::This => session.log.as_ref().map(|log| log.object(id)),
            Logger::Other => None,
        }
    }

    /// Runs `read` as [`Client::reading`] does. Logged changes of an existing object do not change the
    /// attributes that `read` returns. If a logged change of this client has made the object `id`, first
    /// waits until that change is applied.
    #[inline(always)]
    pub(crate) fn reading_object<'a, T>(
        &'a self,
        id: ObjectId,
        read: impl FnOnce(&'a VolumeView) -> Result<T>,
    ) -> Result<T> {
        if self.logged_object(id).is_some() {
            self.wait_until_applied(id)?;
        }
        self.reading(read)
    }

    /// Returns the session that may have logged changes of an object. `key` is the present session of this
    /// client. A forked child has logged nothing.
    fn logger_of(&self, id: ObjectId, key: SessionKey) -> Logger {
        let (board, granted) = (self.board(), self.board().granted_to());
        let holder = if granted == GRANTED_IN_PARTS { board.part_holder(part_of(id)) } else { granted };
        match holder {
            0 => Logger::Nobody,
            _ if holder == key.raw() && self.key() == key && self.is_current(key) => Logger::This,
            _ => Logger::Other,
        }
    }

    /// Waits until the service has applied all logged changes of the object `id`, and of the names in the
    /// directory `id`: those of this client, and those of other clients.
    #[cold]
    pub(crate) fn wait_until_applied(&self, id: ObjectId) -> Result<()> {
        if self.medium().check().is_err() || broken(SafetyRule::ReadsWaitForEntries) {
            // The read itself finds out that this process is a forked child.
            return Ok(());
        }
        let session = self.session.load();
        let is_applied = match self.logger_of(id, session.key) {
            Logger::Nobody => true,
            Logger::This => session.log.as_ref().is_none_or(|log| log.is_applied(id)),
            Logger::Other => false,
        };
        if is_applied {
            return Ok(());
        }
        self.call(ServiceCall::ApplyLogs, id.raw(), 0, &[]).map(drop)
    }

    /// Returns an error if the service could not make a change that this client has logged.
    pub(crate) fn check_log(&self) -> Result<()> {
        let has_failed = self.session.load().log.as_ref().is_some_and(ChangeLog::has_failed);
        if !has_failed && !self.has_lost_logged.load(Ordering::Relaxed) {
            return Ok(());
        }
        let source = std::io::Error::other("the service could not make a logged change");
        Err(Error::Fault(Fault::Io { what: "syncing the volume".to_owned(), source }))
    }
}
