//! The entries of the directory from which the volume is filled.

use std::path::{Path, PathBuf};

use eyrie::{Host, PosixExt, Stat, WalkStep};

use crate::failure::{Doing, Result};
use crate::{interrupt, text};

/// Bytes of a block. The estimate of the needed space rounds file sizes up to whole blocks.
const BLOCK_BYTES: u64 = 4096;
/// An estimate for which no host has room. It is small enough that no computation of the tour overflows.
const MOST_BYTES: u64 = 1 << 58;

/// One entry of the source.
pub struct SurveyEntry {
    /// The path under the directory. The directory itself has the empty path.
    pub relative: PathBuf,
    /// The attributes of the entry.
    pub stat: Stat,
}

/// The entries of a directory tree, and their sizes.
pub struct Survey {
    /// Every entry that can be read, a directory before its entries.
    pub entries: Vec<SurveyEntry>,
    /// Sum of the sizes of the regular files, each rounded up to whole blocks. A file with several names is
    /// counted once for each name. The sum is at most [`MOST_BYTES`].
    pub block_bytes: u64,
}

impl Survey {
    /// Reads the attributes of all entries of the tree `root`. Leaves out entries that cannot be read,
    /// because the import reports them.
    pub fn of(host: &Host, root: &Path) -> Result<Survey> {
        let mut survey = Survey { entries: Vec::new(), block_bytes: 0 };
        // With a slash at the end of the path, the walk follows a symbolic link.
        let root = root.join("");
        for step in host.walk(&root).doing("look at", text::path(&root))? {
            interrupt::check("tour")?;
            let WalkStep::Entry(entry) = step else { continue };
            let Ok(stat) = entry.stat() else { continue };
            if stat.is_file() {
                // Sparse files may have any size.
                let blocks = stat.size.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
                survey.block_bytes = survey.block_bytes.saturating_add(blocks).min(MOST_BYTES);
            }
            survey.entries.push(SurveyEntry { relative: entry.relative, stat });
        }
        Ok(survey)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }
}
