//! Learning the entries of the watched directories from listings, within the rights of the user.

use eyrie_engine::access::{self, Rights};
use eyrie_engine::{Engine, ObjectId};
use eyrie_medium::epoch;

use super::known::KnownTree;
use super::{Watch, WatchEventKind, WatchOptions};
use crate::Errno;
use crate::pxfs::{AsUser, CallError, CallResult};

impl<E: Engine> Watch<E> {
    /// Adds the event that everything may have changed, and learns all entries again.
    pub(super) fn look_again(&mut self) {
        self.push_of_root(WatchEventKind::Overflow);
        // After another error, for example without a service, a further overflow follows.
        if let Err(error) = self.list_all()
            && is_gone(&error)
        {
            self.end();
        }
    }

    /// Forgets all entries, and learns those that the watch needs from listings.
    pub(super) fn list_all(&mut self) -> CallResult<()> {
        loop {
            let session = self.source.engine.session();
            match self.try_list_all() {
                // The client has joined the next session with its service meanwhile.
                Err(CallError::Engine(eyrie_engine::Error::Stale))
                    if self.source.engine.session() != session => {}
                listed => return listed,
            }
        }
    }

    fn try_list_all(&mut self) -> CallResult<()> {
        let root = self.known.root();
        self.known = KnownTree::new(root);
        if let Some(handle) = &self.handle {
            handle.current(self.files.as_user().engine())?;
        }
        self.list(root)
    }

    /// Watches a directory that a known entry names, unless it is watched already or the user may not read
    /// it.
    pub(super) fn enter_known(&mut self, dir: ObjectId) {
        if self.options.tree
            && dir.is_directory()
            && !self.known.watches(dir)
            && let Some((parent, _)) = self.known.places(dir).first()
            && self.may_enter(*parent, dir)
        {
            self.known.add_directory(dir);
            // An error means that the session with the service has ended. Then an overflow follows.
            let _ = self.list(dir);
        }
    }

    /// Learns the entries of a directory, and those below it.
    fn list(&mut self, dir: ObjectId) -> CallResult<()> {
        let mut unlisted = vec![dir];
        while let Some(dir) = unlisted.pop() {
            let Watch { files, known, options, .. } = self;
            let mut found = Vec::new();
            let listed = files.as_user().list_object(|| Ok(dir), 0, &mut |entry| {
                if is_needed(*options, entry.id) {
                    known.place(dir, entry.name, entry.id);
                }
                if options.tree && entry.id.is_directory() {
                    found.push(entry.id);
                }
                options.tree || !options.entries_only
            });
            match listed {
                // Another thread has removed a directory of the tree meanwhile, or the directory is damaged.
                // Of a damaged directory, the watch knows the entries before the damage, and the calls that
                // use the directory report the damage.
                Err(error) if dir != self.known.root() && (is_gone(&error) || is_damage(&error)) => {}
                listed => listed?,
            }
            for id in found {
                if self.may_enter(dir, id) && self.known.add_directory(id) {
                    unlisted.push(id);
                }
            }
        }
        Ok(())
    }

    pub(super) fn place(&mut self, dir: ObjectId, name: &[u8], id: ObjectId) {
        if is_needed(self.options, id) {
            self.known.place(dir, name, id);
        }
    }

    /// True if the user may list `dir`, which a listing or a notice has shown in the directory `parent`. If
    /// `dir` was removed or moved since then, the rights that it had in `parent` are not known. The result is
    /// then true only for a user who may list every directory. If `dir` has moved within the tree, the notice
    /// of the move enters it.
    pub(super) fn may_enter(&self, parent: ObjectId, dir: ObjectId) -> bool {
        let user = self.files.as_user();
        access::passes_everywhere(user.credentials()) || {
            let _pin = epoch::pin();
            may_list(user, parent, dir).is_ok()
        }
    }
}

/// True if a watch with these options has to know the names of an object.
fn is_needed(options: WatchOptions, id: ObjectId) -> bool {
    !options.entries_only || options.tree && id.is_directory()
}

/// True if an object does not exist any more.
fn is_gone(error: &CallError) -> bool {
    matches!(error, CallError::Errno(Errno::NOENT) | CallError::Engine(eyrie_engine::Error::Stale))
}

fn is_damage(error: &CallError) -> bool {
    matches!(error, CallError::Engine(eyrie_engine::Error::Corrupt { .. }))
}

fn may_list<E: Engine>(user: AsUser<'_, E>, parent: ObjectId, dir: ObjectId) -> CallResult<()> {
    if user.engine().parent_of(dir)? != Some(parent) {
        return Err(Errno::NOENT.into());
    }
    access::check_search(user.credentials(), &user.protection(parent)?)?;
    Ok(access::check(user.credentials(), &user.protection(dir)?, Rights::READ)?)
}
