//! The opens of a client: a process that reads a volume while another process, the owner, changes it.
//!
//! A claim keeps an object alive, as an open in the owner's process does. The counts are in memory that the
//! owner maps, too. So an open needs no request to the owner. `scm::opens` explains how an open and an unlink
//! agree.

use std::fs::File;
use std::sync::atomic::AtomicU32;

use eyrie_medium::shared::{SharedAccess, SharedMemory, announce_store};

use crate::spread::spread;
use crate::{ObjectId, Result};

/// Number of stripes of the counts. With so many stripes (256 KiB of counts), open objects rarely share a
/// stripe.
pub(crate) const STRIPES: usize = 1 << 16;
const CLAIM_BYTES: usize = STRIPES * size_of::<AtomicU32>();

/// Returns the stripe of an object.
#[inline]
pub(crate) fn stripe_of(id: ObjectId) -> usize {
    spread(id, STRIPES)
}

/// The counts of a process's opens, by stripes of objects.
pub struct Claims {
    memory: SharedMemory,
}

impl Claims {
    /// Makes the claims of a process that has nothing open.
    ///
    /// # Errors
    /// `Fault`.
    pub fn create() -> Result<Claims> {
        Ok(Claims { memory: SharedMemory::create(CLAIM_BYTES)? })
    }

    /// Maps the claims in a file that [`Claims::create`] has made in another process. The mapping is only for
    /// reading.
    ///
    /// # Errors
    /// `Fault` if the file has no claims, or the host refuses to map it.
    pub fn map(file: File) -> Result<Claims> {
        Ok(Claims { memory: SharedMemory::map(file.into(), CLAIM_BYTES, SharedAccess::Read)? })
    }

    /// Returns the file, which another process can map.
    pub fn file(&self) -> Option<&File> {
        self.memory.file()
    }

    /// Gives a forked child claims of its own. They begin with the counts of its parent, because the child
    /// has the same objects open.
    ///
    /// # Errors
    /// `Fault`.
    pub fn unshare_in_child(&self) -> Result<()> {
        Ok(self.memory.unshare_in_child()?)
    }

    /// Returns the count of the stripe of an object.
    #[inline]
    pub fn count(&self, id: ObjectId) -> &AtomicU32 {
        &self.memory.short_words()[stripe_of(id)]
    }

    /// As [`Claims::count`], for a change that follows immediately. A test can observe the change.
    #[inline]
    #[track_caller]
    pub fn count_to_change(&self, id: ObjectId) -> &AtomicU32 {
        announce_store();
        self.count(id)
    }
}
