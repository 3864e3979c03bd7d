//! The open volumes of one command. A command opens each volume once, however many arguments name it.

use std::path::{Path, PathBuf};

use eyrie::{Credentials, Files, Volume};

use crate::failure::{Doing, Failures, Result};
use crate::place::Inside;
use crate::place::real;
use crate::volumes::Purpose;
use crate::{text, volumes};

/// The open volumes of one command. A volume can be open for changes only once, so this list finds a volume
/// by its real path.
pub struct OpenVolumes {
    purpose: Purpose,
    /// The real path of a volume that is opened for changes, even if the other volumes are opened only for
    /// reading.
    target: Option<PathBuf>,
    open: Vec<(PathBuf, Volume)>,
}

impl OpenVolumes {
    /// Opens the volume at `path` unless it is open. Returns the volume and its number in this list.
    ///
    /// # Errors
    /// As [`volumes::open`].
    pub fn get(&mut self, path: &Path) -> Result<(usize, &Volume)> {
        let real = real(path);
        let index = match self.open.iter().position(|(known, _)| *known == real) {
            Some(index) => index,
            None => {
                let is_target = self.target.as_ref() == Some(&real);
                let purpose = if is_target { Purpose::Change } else { self.purpose };
                self.open.push((real, volumes::open(path, purpose)?));
                self.open.len() - 1
            }
        };
        Ok((index, &self.open[index].1))
    }

    /// Returns the files of the volume at `path`, for the user of this process.
    ///
    /// # Errors
    /// As [`OpenVolumes::get`].
    pub fn files(&mut self, path: &Path) -> Result<Files> {
        let (_, volume) = self.get(path)?;
        Ok(volume.files(Credentials::of_process()))
    }

    fn close(self) -> Result<()> {
        for (path, volume) in self.open {
            volume.close().doing("close the volume", text::path(&path))?;
        }
        Ok(())
    }
}

/// Calls `work` with an empty list of open volumes, which opens volumes for this purpose. Closes the volumes
/// even after an error.
///
/// # Errors
/// The error of `work`, or else the first error of closing a volume.
pub fn with_volumes<T>(purpose: Purpose, work: impl FnOnce(&mut OpenVolumes) -> Result<T>) -> Result<T> {
    with_target(purpose, None, work)
}

/// Works as [`with_volumes`], but opens the volume at `target` for changes in any case.
///
/// # Errors
/// As [`with_volumes`].
pub fn with_target<T>(
    purpose: Purpose,
    target: Option<&Path>,
    work: impl FnOnce(&mut OpenVolumes) -> Result<T>,
) -> Result<T> {
    let mut volumes = OpenVolumes { purpose, target: target.map(real), open: Vec::new() };
    let result = work(&mut volumes);
    let closed = volumes.close();
    let result = result?;
    closed?;
    Ok(result)
}

/// Calls `work` for each place, with the files of its volume. The failure of one place is printed, and the
/// next place follows. A volume that cannot be opened ends the command.
///
/// # Errors
/// Fails if a place failed, or if a volume cannot be opened or closed.
pub fn for_each(
    places: &[Inside],
    purpose: Purpose,
    mut work: impl FnMut(&Files, &Inside) -> Result<()>,
) -> Result<()> {
    with_volumes(purpose, |volumes| {
        let mut failures = Failures::default();
        for place in places {
            let files = volumes.files(&place.volume)?;
            failures.add(work(&files, place))?;
        }
        failures.finish()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_paths_of_one_volume_share_one_open() {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (direct, link) = (dir.path().join("vol"), dir.path().join("link"));
        Volume::create(&direct, 64 << 20).unwrap().close().unwrap();
        std::os::unix::fs::symlink("vol", &link).unwrap();
        with_volumes(Purpose::Change, |volumes| {
            assert_eq!((volumes.get(&direct)?.0, volumes.get(&link)?.0), (0, 0));
            assert_eq!(volumes.open.len(), 1);
            Ok(())
        })
        .unwrap();
        // The list closed the volume, so it can be opened again.
        Volume::open(&direct).unwrap().close().unwrap();
    }
}
