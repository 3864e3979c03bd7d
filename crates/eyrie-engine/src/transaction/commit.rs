//! Commits a transaction. Nearly all ordering of the engine is in this module and in `redo`.

use eyrie_medium::Settled;

use super::prepare::Transaction;
use super::redo;
use crate::Result;

impl Transaction<'_> {
    /// Makes the change reachable, and retires the storage that the change made unreachable. The returned
    /// [`Settled`] lets the caller retire further storage. After an error, at most the prelude of the change
    /// is reachable. There is one exception: if the mapping has failed, the result of the commit is unknown.
    ///
    /// # Errors
    /// `Fault`. `NoSpace` if the volume has no room for the redo record. `TooLarge` if the words of the
    /// record need more than 64 MiB.
    #[inline(always)]
    pub fn commit(mut self) -> Result<Settled> {
        self.commit_in_place()
    }

    /// Commits the transaction as [`Transaction::commit`] does, but does not consume it. The caller adds
    /// nothing to the transaction afterwards.
    pub(crate) fn commit_in_place(&mut self) -> Result<Settled> {
        let medium = self.medium();
        medium.check()?;
        self.volume.space().refuse_if_stopped()?;
        // One word or one line commits by a single publish. Two or more need a redo record.
        let settled = if self.lines.len() + self.words.len() > 1 {
            redo::commit(self)?
        } else {
            let mut ordered = self.barrier()?;
            if let Some(line) = self.prelude.take() {
                let seen = medium.publish_line(line.addr, &line.words, ordered)?;
                ordered = medium.settle(seen).into();
            }
            let published = match (self.lines.first(), self.words.first()) {
                (Some(line), _) => medium.publish_line(line.addr, &line.words, ordered)?,
                (None, Some((addr, value))) => medium.publish(addr, value, ordered)?,
                (None, None) => medium.publish_nothing(ordered),
            };
            medium.settle(published)
        };
        self.delayed.withdraw_or_restore(medium)?;
        // The allocated storage is reachable now, so a drop of the transaction must not release it. If the
        // mapping has failed meanwhile, the result of the commit is unknown, and the old storage may still be
        // reachable. Then nothing may be retired.
        self.allocated.clear();
        medium.check()?;
        if !self.retired.is_empty() {
            self.volume.space().retire_all(&self.retired, &[], &settled);
        }
        Ok(settled)
    }
}
