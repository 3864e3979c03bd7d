//! What is in the source directory.

use std::path::{Path, PathBuf};

use eyrie::{Host, Posix, PosixExt, Stat};

use crate::failure::{Doing, Result};
use crate::{interrupt, text};

/// Bytes of a block: what small files are rounded up to in an estimate.
const BLOCK_BYTES: u64 = 4096;

/// One entry of the source.
pub struct Entry {
    /// Its path under the directory; empty for the directory itself.
    pub relative: PathBuf,
    /// Its attributes.
    pub stat: Stat,
}

/// A directory and all that is in it.
pub struct Survey {
    /// Every entry that can be read, directories before what is in them.
    pub entries: Vec<Entry>,
    /// Bytes of the regular files, hard links counted once for each name.
    pub bytes: u64,
    /// Bytes that they take, in whole blocks.
    pub block_bytes: u64,
}

impl Survey {
    /// Looks at everything under `root`. What cannot be read is left out; the import reports it.
    pub fn of(host: &Host, root: &Path) -> Result<Survey> {
        let stat = host.stat(root).doing("look at", text::path(root))?;
        let mut survey = Survey { entries: Vec::new(), bytes: 0, block_bytes: 0 };
        let mut pending = vec![PathBuf::new()];
        survey.entries.push(Entry { relative: PathBuf::new(), stat });
        while let Some(dir) = pending.pop() {
            interrupt::check("tour")?;
            let Ok(listing) = host.read_dir(root.join(&dir)) else { continue };
            for entry in listing.map_while(|entry| entry.ok()) {
                let Ok(stat) = host.lstat(entry.path()) else { continue };
                let relative = dir.join(entry.name());
                if stat.is_dir() {
                    pending.push(relative.clone());
                } else if stat.is_file() {
                    survey.bytes += stat.size;
                    survey.block_bytes += stat.size.next_multiple_of(BLOCK_BYTES);
                }
                survey.entries.push(Entry { relative, stat });
            }
        }
        Ok(survey)
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }
}
