//! What is in the source directory.

use std::path::{Path, PathBuf};

use eyrie::{Host, Stat, Step, Walk};

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
        let mut survey = Survey { entries: Vec::new(), bytes: 0, block_bytes: 0 };
        // A slash at the end follows a symbolic link.
        let root = root.join("");
        for step in Walk::new(host, &root).doing("look at", text::path(&root))? {
            interrupt::check("tour")?;
            let Step::Found(found) = step else { continue };
            let Ok(stat) = found.stat() else { continue };
            if stat.is_file() {
                survey.bytes += stat.size;
                survey.block_bytes += stat.size.next_multiple_of(BLOCK_BYTES);
            }
            survey.entries.push(Entry { relative: found.relative, stat });
        }
        Ok(survey)
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }
}
