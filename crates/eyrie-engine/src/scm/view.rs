//! Views: the bytes of files in place.

use eyrie_medium::epoch::{Guard, pin};
use eyrie_medium::rules::{SafetyRule, broken};

use super::Scm;
use super::arguments::require_file;
use crate::object::mfile;
use crate::transaction::Transaction;
use crate::volume::VolumeView;
use crate::{FileView, ObjectId, Result};

impl VolumeView {
    /// Returns bytes of a file in place, if the file is sealed. If `is_fixed` is true, no call changes the
    /// bytes of any file, so the file need not be sealed.
    ///
    /// # Errors
    /// As [`Engine::view`](crate::Engine::view).
    #[inline]
    pub fn read_view<'a>(
        &'a self,
        id: ObjectId,
        range: (u64, u64),
        is_fixed: bool,
        guard: &'a Guard,
    ) -> Result<Option<FileView<'a>>> {
        self.on_file(id, |hot, file| {
            if !hot.selector.sealed() && !is_fixed && !broken(SafetyRule::OnlySealedBytesAreLent) {
                return Ok(None);
            }
            // In a damaged volume, a pointer of a file may lead to a header or a table. Their bytes change in
            // place, and a slice over such bytes would be unsound. `require_possible_extent` returns
            // `Corrupt` for such an extent. It does not find an extent that another object also uses, or that
            // the allocator counts as free. `Medium::bytes` names a sound volume as a condition for this
            // reason.
            let require = |extent| self.require_possible_extent(extent);
            let (addr, len) = mfile::contiguous(self.medium(), file, range, require)?;
            Ok(Some(FileView { bytes: self.medium().bytes(addr, len, guard)?, size: file.size }))
        })
    }
}

impl Scm {
    /// Seals a file, so that no Op changes its bytes in place from now on. Takes the lock of the file, and so
    /// waits for an Op that is changing bytes in place. Does nothing in a volume opened read-only.
    pub(super) fn seal_file(&self, id: ObjectId) -> Result<()> {
        require_file(id)?;
        // This pin ends before `with_room`, because a thread that waits at the gate should hold up neither
        // evictions nor the reuse of storage. The pin or the open of the caller keeps the id valid meanwhile.
        let header = {
            let _pin = pin();
            let header = self.header(id)?;
            if self.read_only || header.selector(self.medium())?.sealed() {
                return Ok(());
            }
            header
        };
        let space = self.volume.space();
        let seal = || {
            let _pin = pin();
            let _held = self.locks.hold(&[id]);
            let selector = header.selector(self.medium())?;
            // Another thread may have sealed the file since the check without the lock.
            if selector.sealed() {
                return Ok(());
            }
            let mut transaction = Transaction::begin(&self.volume);
            header.seal(&mut transaction, selector);
            transaction.commit()?;
            Ok(())
        };
        space.with_room(|| 0, || 0, || space.stop_on_panic(seal))
    }
}
