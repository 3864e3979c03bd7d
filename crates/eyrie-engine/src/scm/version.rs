//! Versions of the bytes of files, and conditions on them.

use eyrie_medium::epoch::pin;

use super::Scm;
use super::arguments::{require_bytes, require_file};
use crate::object::header::{Header, Selector};
use crate::{Condition, Error, ObjectId, Result, Version};

impl Scm {
    /// Returns the version of the bytes of a file. The parts of the version are the number of this open of
    /// the volume, the generation of the file, and the version of the selector.
    ///
    /// The bytes of a sealed object in a single extent change only by a new root, and the selector changes
    /// with the root. In any other file, an Op may change bytes shortly before it changes the selector, or
    /// shortly afterwards (`Header::touch_first`). An Op holds the lock of the file until both are done. So
    /// for such a file this call waits for the lock. If the selector is then unchanged, no Op was changing
    /// the bytes. Otherwise the call begins again.
    pub(super) fn read_version(&self, id: ObjectId) -> Result<Version> {
        let _pin = pin();
        require_bytes(id)?;
        let medium = self.medium();
        let header = self.header(id)?;
        loop {
            let hot = header.hot(medium)?;
            if hot.selector.sealed() && hot.root.height() == 0 {
                return self.version_of(header, hot.selector);
            }
            // In a forked child, the holder of a lock may be a thread that exists only in the parent. The
            // check of the medium refuses a forked child.
            medium.check()?;
            self.locks.wait_for(id);
            if header.selector(medium)? == hot.selector {
                return self.version_of(header, hot.selector);
            }
        }
    }

    /// Returns the version of a file whose selector is `selector`. The caller holds a pin and knows that no
    /// Op is changing the bytes.
    fn version_of(&self, header: Header, selector: Selector) -> Result<Version> {
        let identity = header.identity(self.medium())?;
        Ok(Version::new(self.open_number, identity.generation, selector.version()))
    }

    /// Refuses a batch with a condition that does not hold for the object that the key names. The caller
    /// holds the lock of the object, so no Op is changing the object, and its version is that of its bytes.
    pub(super) fn check_condition(&self, condition: Condition, existing: Option<ObjectId>) -> Result<()> {
        let version = |id| {
            require_file(id)?;
            let header = self.header(id)?;
            self.version_of(header, header.selector(self.medium())?)
        };
        if condition.holds(existing.map(version).transpose()?) {
            return Ok(());
        }
        Err(Error::ConditionFailed)
    }
}
