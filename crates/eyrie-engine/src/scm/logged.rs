//! Applies the entries of the change logs of clients, and keeps the storage free that these entries need.

use std::ops::Range;

use eyrie_medium::rules::{SafetyRule, broken};

use super::Scm;
use crate::access::{AccessRules, Credentials, Requester, may_exceed_limits};
use crate::board::SessionKey;
use crate::change_log::{EntryHead, GENERATIONS, NO_DETAIL};
use crate::op::encode::decode_unsummed;
use crate::{AttributeChange, Engine, Error, ObjectId, Op, RenameMode, Result, Time};

const NOT_LOGGED: Error = Error::Invalid("an Op that is not logged");
/// The error of an entry that may need more storage than is left of the budget of its log.
pub const BEYOND_BUDGET: Error = Error::Invalid("an entry beyond the budget of its log");

/// An entry of a change log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedEntry<'a> {
    /// The user of the log.
    pub who: &'a Credentials,
    /// The start of the entry.
    pub head: &'a EntryHead,
    /// The encoded Op.
    pub op: &'a [u8],
    /// The time of the change.
    pub now: Time,
    /// The session of the log, if this session must hold the grants of the parts with all objects of the
    /// change. `None` if no grant is required.
    pub holder: Option<SessionKey>,
    /// True if a dead service has left the log. This entry may then be applied already, if it is the first
    /// one.
    pub is_of_dead_service: bool,
}

/// The result of a comparison of an entry with the volume.
enum Checked {
    /// The change is made already.
    IsMade,
    /// The change is not made. It makes an object with this id, if there is one.
    ToMake(Option<ObjectId>),
}

/// True for a change of attributes that sets nothing but times.
pub fn sets_only_times(change: &AttributeChange) -> bool {
    let &AttributeChange { accessed, modified, .. } = change;
    *change == AttributeChange { accessed, modified, ..AttributeChange::default() }
}

/// True for an Op that changes an object, and no name.
fn is_of_object(op: &Op<'_>) -> bool {
    matches!(op, Op::Write { .. } | Op::SetSize { .. } | Op::SetAttributes { .. })
}

impl Scm {
    /// Applies an entry of a change log. Only Ops that a client may log are applied. `may_use` tells if the
    /// client may give this id and this generation to a new object. Returns the id of the new object, if
    /// there is one.
    ///
    /// # Errors
    /// `NoSpace` or `HostFull` if readers hold back the storage that is free, or if the host is full.
    /// `NotReserved` if `may_use` returns false. `Invalid` for an entry that breaks the protocol. Also the
    /// errors of the Op, although a client that keeps the protocol logs no Op that fails.
    pub fn apply_logged(
        &self,
        entry: &LoggedEntry<'_>,
        may_use: impl FnOnce(ObjectId, u64) -> bool,
    ) -> Result<Option<ObjectId>> {
        let &LoggedEntry { who, head, op, now, holder, is_of_dead_service } = entry;
        let (decoded, length) =
            decode_unsummed(op).map_err(|_| Error::Invalid("a damaged entry of a log"))?;
        if length != op.len() {
            return Err(Error::Invalid("bytes after the Op of an entry"));
        }
        let requester = Requester { engine: self, who, rules: AccessRules::default(), now };
        let op = match requester.authorize(&decoded.op()) {
            // An object that is gone has no name and is not open, so nobody misses the change.
            Err(Error::Stale) if is_of_object(&decoded.op()) => return Ok(None),
            authorized => authorized?,
        };
        let new = match self.check_entry_of_log(&op, head, is_of_dead_service)? {
            Checked::IsMade => return Ok(None),
            Checked::ToMake(new) => new,
        };
        if let Some(key) = holder
            && !self.holds_objects(key, &op, new)?
        {
            return Err(Error::Invalid("a log with an object of another session"));
        }
        if let Some(id) = new
            && !may_use(id, head.detail)
        {
            return Err(Error::NotReserved);
        }
        let keeps = !(is_of_dead_service && broken(SafetyRule::ReplayKeepsGenerations));
        let generation = new.filter(|_| keeps).map(|_| head.detail);
        let apply = || self.apply_with(&op, generation);
        let apply = || if may_exceed_limits(who) { self.above_limits(apply) } else { apply() };
        let made = match apply() {
            Err(error) if error.is_full() && self.reclaim() => apply(),
            made => made,
        };
        match (made, new) {
            (Ok(_), new) => Ok(new),
            (Err(Error::Stale), None) if is_of_object(&op) => Ok(None),
            (Err(error), None) => Err(error),
            // The change may have been made, so the id may be in use.
            (Err(error @ Error::Fault(_)), Some(_)) if !error.is_full() => Err(error),
            (Err(error), Some(id)) => {
                // The failed Op may have written the header.
                self.reset_reserved(id);
                Err(error)
            }
        }
    }

    /// True if a session holds the grants of the objects of an Op. `new` is the new object, if the Op makes
    /// one.
    fn holds_objects(&self, key: SessionKey, op: &Op<'_>, new: Option<ObjectId>) -> Result<bool> {
        let board = self.volume.board();
        let holds = |id| board.is_held_by(id, key);
        // The head of the entry has the object, too, but a client may write any number there.
        let holds_named = |dir, name| Ok::<_, Error>(self.lookup(dir, name)?.is_none_or(holds));
        Ok(match *op {
            Op::Write { id, .. } | Op::SetSize { id, .. } | Op::SetAttributes { id, .. } => holds(id),
            Op::Create { dir, id, .. } => holds(dir) && holds(id),
            Op::Put { dir, name, .. } => {
                let changed = if new.is_some() { new } else { self.lookup(dir, name)? };
                holds(dir) && changed.is_some_and(holds)
            }
            Op::Unlink { dir, name, .. } | Op::Erase { dir, name, .. } => {
                holds(dir) && holds_named(dir, name)?
            }
            Op::Rename { from_dir, from_name, to_dir, to_name, .. } => {
                holds(from_dir)
                    && holds(to_dir)
                    && holds_named(from_dir, from_name)?
                    && holds_named(to_dir, to_name)?
            }
            _ => false,
        })
    }

    /// Compares the Op of an entry with the volume, and with the detail in the head of the entry. The result
    /// tells if the change is made already, and which new object the Op makes.
    fn check_entry_of_log(&self, op: &Op<'_>, head: &EntryHead, is_of_dead_service: bool) -> Result<Checked> {
        let new = match *op {
            Op::Write { id, .. } => {
                // In a log that a dead service has left, the size is not compared, because an earlier attempt
                // may have made the file longer already.
                if head.detail != NO_DETAIL && !is_of_dead_service && self.attributes(id)?.size != head.detail
                {
                    return Err(Error::Invalid("a log with another size of the file"));
                }
                None
            }
            Op::SetSize { .. } => None,
            Op::SetAttributes { change, .. } if sets_only_times(&change) => None,
            Op::Put { dir, name, id, .. } => self.lookup(dir, name)?.is_none().then_some(id),
            Op::Create { id, .. } if id.is_directory() => return Err(NOT_LOGGED),
            Op::Create { dir, name, id, .. } => {
                if is_of_dead_service && self.lookup(dir, name)? == Some(id) {
                    return Ok(Checked::IsMade);
                }
                Some(id)
            }
            Op::Unlink { dir, name, .. }
            | Op::Erase { dir, name, .. }
            | Op::Rename {
                from_dir: dir,
                from_name: name,
                mode: RenameMode::Replace | RenameMode::NoReplace,
                ..
            } => {
                // In a log that a dead service has left, a name that no longer has the object of the entry
                // shows that the entry was applied. In a log of a live client, only a mistake in the protocol
                // changes the object. So only debug builds compare there: the Op is checked against the
                // present object anyway.
                if (is_of_dead_service || cfg!(debug_assertions))
                    && self.lookup(dir, name)?.map(ObjectId::raw) != Some(head.detail)
                {
                    return if is_of_dead_service {
                        Ok(Checked::IsMade)
                    } else {
                        Err(Error::Invalid("a log with another name"))
                    };
                }
                None
            }
            _ => return Err(NOT_LOGGED),
        };
        Ok(Checked::ToMake(new))
    }

    /// True if clients may log changes of this volume. A client cannot decide that a change succeeds if the
    /// change counts for a quota, or if a file may be immutable or append-only. If files have capabilities, a
    /// write may remove one, and other clients read capabilities without checking the grant.
    pub fn may_defer(&self) -> bool {
        let board = self.volume.board();
        !(board.has_quotas() || board.has_capabilities() || board.has_flags())
    }

    /// Sets the promised storage: the number of bytes that changes in the logs of clients may still need.
    /// Directories do not grow into this storage.
    pub fn promise_storage(&self, bytes: u64) {
        self.volume.space().promise(bytes);
    }

    /// True if the promised storage is still free after an allocation of this size.
    pub fn leaves_promised_storage(&self, bytes: u64) -> bool {
        self.volume.space().leaves_promised(bytes)
    }

    /// Returns [`GENERATIONS`] numbers for new objects, which this volume never assigned before.
    ///
    /// # Errors
    /// As [`Volume::take_generations`](crate::volume::Volume::take_generations).
    pub fn generations_for_log(&self) -> Result<Range<u64>> {
        let _gate = self.medium().enter()?;
        self.volume.take_generations(GENERATIONS)
    }

    /// Returns the storage that the next logged changes may need, in bytes: a quarter of the free storage
    /// that exceeds a fiftieth of the volume. `None` if changes of this volume must not be deferred.
    pub fn deferral_budget_bytes(&self) -> Option<u64> {
        if !self.may_defer() {
            return None;
        }
        let usage = self.space();
        Some(usage.free.checked_sub(usage.total / 50)? / 4)
    }
}
