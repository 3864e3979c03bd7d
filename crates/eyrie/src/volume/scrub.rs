//! Scrubbing: reading all pages of a volume on a disk, to find those that the disk has damaged.

use std::path::{Path, PathBuf};

use eyrie_engine::ObjectId;
use eyrie_engine::access::Credentials;
use eyrie_engine::check::is_on_pages;
use eyrie_medium::epoch::pin;

use super::Volume;
use crate::{Errno, Error, PosixExt, Result, WalkStep};

/// The report of [`Volume::scrub`].
///
/// # Examples
/// ```
/// # fn f(report: eyrie::ScrubReport) {
/// for path in &report.paths {
///     println!("{} is damaged", path.display());
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ScrubReport {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Offsets of the damaged pages in the volume: those that cannot be read, or do not match their
    /// checksums.
    pub damaged: Vec<u64>,
    /// The paths that lead to objects with bytes on damaged pages. Objects below a damaged directory may be
    /// missing.
    pub paths: Vec<PathBuf>,
}

impl Volume {
    /// Reads every page in use from the disk, even if the page is in memory, and compares it with its
    /// checksum. On a volume without [checksums](crate::VolumeOptions::checksums), only the two superblocks
    /// have checksums, and any other page counts as damaged only if it cannot be read. Other threads can use
    /// the volume meanwhile. After each part of at most 1 MiB, `progress` gets the number of bytes that were
    /// read so far, and the number of bytes to read in all. At its end the scrub reads the damaged pages a
    /// second time, and `progress` gets the same numbers again. The scrub ends early if `progress` returns
    /// false. Pages that were freed during a scrub that ended early may count as damaged.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the volume is not on a disk. `EBUSY` if the volume is [served](Volume::is_served).
    /// Also the errors of [`Volume::sync`], because earlier changes are made durable first.
    ///
    /// # Examples
    /// ```
    /// # use eyrie::Volume;
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// let volume = Volume::options().size(2 << 20).checksums(true).create(place.path().join("nest"))?;
    /// let report = volume.scrub(|_, _| true)?;
    /// assert!(report.read_bytes > 0 && report.damaged.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scrub(&self, mut progress: impl FnMut(u64, u64) -> bool) -> Result<ScrubReport> {
        let volume = self.engine.owner("scrub volume").map_err(|error| error.at(&self.path))?.volume();
        let scrubbed = volume.scrub(&mut progress);
        let found = scrubbed.map_err(|error| Error::from_engine(error, "scrub volume").at(&self.path))?;
        let mut paths = Vec::new();
        if !found.damaged.is_empty() {
            let walk = self.files(Credentials::root()).walk("/");
            if walk.is_err() {
                paths.push(PathBuf::from("/"));
            }
            for step in walk.into_iter().flatten() {
                match step {
                    WalkStep::Entry(entry) => {
                        let _pin = pin();
                        let is_damaged = |id| is_on_pages(volume, id, &found.damaged);
                        if ObjectId::from_raw(entry.inode).is_some_and(is_damaged) {
                            paths.push(Path::new("/").join(&entry.relative));
                        }
                    }
                    WalkStep::Failed(path, error) if error.errno() == Errno::IO => {
                        paths.push(Path::new("/").join(path))
                    }
                    _ => {}
                }
            }
            paths.dedup();
        }
        let damaged = found.damaged.iter().map(|addr| addr.offset()).collect();
        Ok(ScrubReport { read_bytes: found.read_bytes, damaged, paths })
    }
}
