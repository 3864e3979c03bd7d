//! The watch over the pins of another process.
//!
//! A table of pins is added only between two attempts to advance the clock. An attempt that did not know the
//! table would begin an epoch without a note of the counts. The next attempt would then not recognise a pin
//! of the earlier epoch.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{ADVANCING, OTHERS, TABLE_BYTES, WATCHED, WatchedPins, own};
use crate::fault::Fault;
use crate::shared::{SharedAccess, SharedMemory};
use crate::sync::{unpoisoned, wait};

/// Returns a file of the pins of this process. The process that owns a volume [watches](watch_pins) them
/// while this process reads the volume.
///
/// # Errors
/// [`Fault::Io`] if the host has no memory or no descriptor for the pins.
pub fn pins_file() -> Result<File, Fault> {
    let fault = |source| Fault::Io { what: "sharing the pins of this process".to_string(), source };
    let file = own().and_then(|own| own.table.0.file());
    file.ok_or_else(|| fault(std::io::ErrorKind::OutOfMemory.into()))?.try_clone().map_err(fault)
}

/// The watch over the pins of another process. A drop ends the watch. After the drop, the other process must
/// not read the volumes of this process.
#[must_use = "a watch ends when it is dropped"]
pub struct PinWatch(Arc<WatchedPins>);

/// Makes the clock of this process also wait for the pins of another process. `pins` is the file of these
/// pins.
///
/// # Errors
/// [`Fault::Io`] if the file is not that of the pins of a process, or the host refuses to map it.
pub fn watch_pins(pins: File) -> Result<PinWatch, Fault> {
    let memory = SharedMemory::map(pins.into(), TABLE_BYTES, SharedAccess::Read)?;
    let watched = Arc::new(WatchedPins::new(memory));
    let mut attempt = 0;
    while ADVANCING.swap(true, Ordering::Acquire) {
        wait(attempt);
        attempt += 1;
    }
    let mut all = unpoisoned(WATCHED.lock());
    all.push(Arc::clone(&watched));
    OTHERS.store(all.len(), Ordering::SeqCst);
    drop(all);
    ADVANCING.store(false, Ordering::Release);
    Ok(PinWatch(watched))
}

impl PinWatch {
    /// Returns the file of the pins. All watches over one process have the same file.
    pub fn file(&self) -> Option<&File> {
        self.0.table.0.file()
    }

    /// True if a pin of the other process keeps the clock from advancing.
    pub fn holds_back(&self) -> bool {
        self.0.are_behind()
    }

    /// Returns the number of threads of the other process that hold a pin now.
    pub fn pinned(&self) -> usize {
        let table = &self.0.table;
        let is_pinned = |&slot: &usize| table.count(slot).load(Ordering::Relaxed) % 2 == 1;
        (0..table.used()).filter(is_pinned).count().saturating_add(table.crowd().pins() as usize)
    }
}

impl Drop for PinWatch {
    fn drop(&mut self) {
        let mut all = unpoisoned(WATCHED.lock());
        all.retain(|watched| !Arc::ptr_eq(watched, &self.0));
        OTHERS.store(all.len(), Ordering::SeqCst);
    }
}
