//! A medium that another process changes, and that this process only reads.

use std::fs::File;
use std::sync::Arc;

use crate::backing::Backing;
use crate::fault::Fault;
use crate::mapping::{Mapping, Sentinel};
use crate::medium::Medium;

impl Medium {
    /// Maps a host file as segment 0, for reading. Another process changes the file. No code may store to the
    /// medium, because the mapping refuses stores.
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses the mapping.
    pub fn for_reading(file: &File, len: u64) -> Result<Medium, Fault> {
        let sentinel = Sentinel::new()?;
        let segment = Arc::new(Mapping::for_reading(file, len, &sentinel)?);
        Ok(Medium::over(Box::new([segment]), sentinel, Backing::Dram))
    }

    /// Makes a forked child accept the mapping that it has from its parent, for a medium that both processes
    /// only read. Until then every check of the medium fails with [`Fault::Forked`].
    pub fn accept_in_child(&self) {
        self.sentinel.accept_in_child();
    }
}
