//! Room in the journal of a disk for the changes of one Op.
//!
//! Most Ops change few lines of pages that the last durable cut uses, and the medium reserves room for these
//! lines. An Op that needs more fails with [`Fault::OpTooLarge`] before its commit. The engine then runs the
//! Op again with more room. This room is in the journal if the journal is large enough, otherwise in free
//! storage that is lent to the journal.

use eyrie_medium::{Fault, Gate, Medium, PAGE_SIZE};

use super::allocator::Space;
use super::magazine::Shape;
use crate::extent::Class;
use crate::{Error, Result};

impl Space {
    /// Runs `change` inside the gate, and again with more room if its changes are too large for the journal.
    /// Callers pass a `change` that may run again after [`Fault::OpTooLarge`]. When `change` returns this
    /// error, it has committed nothing that a second attempt would do twice.
    ///
    /// `extra` returns the room that `change` is likely to need beyond that of an ordinary Op, in bytes.
    /// `stored` returns the number of bytes that `change` stores for its caller.
    ///
    /// # Errors
    /// The errors of `change`. [`Error::NoSpace`] if there is no free storage for so many changes.
    #[inline]
    pub(crate) fn with_room<T>(
        &self,
        extra: impl FnOnce() -> u64,
        stored: impl FnOnce() -> u64,
        mut change: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let gate = self.context().medium.enter_with(extra)?;
        match change() {
            Err(Error::Fault(Fault::OpTooLarge { needed })) => {
                drop(gate);
                // The second attempt has room for all bytes, even if none of them goes to a new page.
                self.with_more_room(needed.max(Medium::room_of_stores(stored())), change)
            }
            done => done,
        }
    }

    #[cold]
    #[inline(never)]
    fn with_more_room<T>(&self, mut needed: u64, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let lends = needed > self.context().medium.most_room();
            let gate = self.context().medium.enter_with(|| needed)?;
            let done = if lends { self.lend(&gate, needed).and_then(|()| change()) } else { change() };
            drop(gate);
            let Err(Error::Fault(Fault::OpTooLarge { needed: more })) = done else { return done };
            if lends {
                // The drain returns the storage that was lent in vain.
                self.drain()?;
            }
            // An attempt may report only a part of the room that it needs. The room at least doubles each
            // time, so few attempts are needed.
            needed = more.max(needed.saturating_mul(2));
        }
    }

    /// Lends at least `bytes` of free storage to the journal, until the cut of this Op is durable.
    fn lend(&self, _gate: &Gate<'_>, bytes: u64) -> Result<()> {
        let mut left = bytes.next_multiple_of(PAGE_SIZE);
        let mut class = Class::fitting(left.min(Class::MAX_BYTES)).ok_or(Error::NoSpace)?;
        while left > 0 {
            class = Class::fitting(left).map_or(class, |fitting| class.min(fitting));
            let addr = match self.allocate_last(Shape::Extent(class)) {
                Ok(addr) => addr,
                // The volume has no free extent of this size, or the host has no memory for one. Several
                // smaller extents together may hold as many bytes.
                Err(error) if error.is_full() && class > Class::PAGE => {
                    class = Class::fitting((class.bytes() / 2).max(PAGE_SIZE)).ok_or(Error::NoSpace)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match self.context().medium.lend(addr, class.bytes()) {
                Ok(cut) => self.central().free_after(cut, addr, class.bytes()),
                Err(fault) => {
                    // The medium did not take the extent, so the extent need not wait for a cut.
                    self.central().free_after(0, addr, class.bytes());
                    return Err(if matches!(fault, Fault::OpTooLarge { .. }) {
                        Error::NoSpace
                    } else {
                        fault.into()
                    });
                }
            }
            left = left.saturating_sub(class.bytes());
        }
        Ok(())
    }
}
