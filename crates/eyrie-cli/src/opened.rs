//! The open volumes of one command. A command opens each volume once, however many arguments name it.

use std::path::{Path, PathBuf};

use eyrie::{Credentials, Files, Posix, Stat, Volume};

use crate::failure::{Doing, Failures, Result, with_close};
use crate::place::{Inside, Place, storage};
use crate::volumes::Purpose;
use crate::{text, volumes};

/// The open volumes of one command. A volume can be open for changes only once, so this list finds a volume
/// by its storage.
pub struct OpenVolumes {
    /// The storage of the volumes that are opened for changes. Other volumes are opened only for reading.
    changed: Vec<PathBuf>,
    open: Vec<(PathBuf, Volume)>,
}

impl OpenVolumes {
    /// Opens the volume at `path` unless it is open. Returns the volume and its number in this list.
    ///
    /// # Errors
    /// As [`volumes::open`].
    pub fn get(&mut self, path: &Path) -> Result<(usize, &Volume)> {
        let storage = storage(path);
        let index = match self.open.iter().position(|(known, _)| *known == storage) {
            Some(index) => index,
            None => {
                let purpose = if self.changed.contains(&storage) { Purpose::Change } else { Purpose::Read };
                self.open.push((storage, volumes::open(path, purpose)?));
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

    /// Returns the attributes of the file at a place of the host or of a volume. Symbolic links are followed.
    ///
    /// # Errors
    /// Fails if the volume cannot be opened, or if the file cannot be found.
    pub fn stat(&mut self, place: &Place) -> Result<Stat> {
        match place {
            Place::Host(path) => {
                let (host, path) = volumes::host(path)?;
                host.stat((&path).into()).doing("stat", place)
            }
            Place::Inside(inside) => {
                self.files(&inside.volume)?.stat((&inside.path).into()).doing("stat", place)
            }
        }
    }

    /// Calls `work` for each place, with the files of its volume. The failure of one place is printed, and
    /// the next place follows. A volume that cannot be opened ends the command.
    ///
    /// # Errors
    /// Fails if a place failed, or if a volume cannot be opened.
    pub fn for_each(
        &mut self,
        places: &[Inside],
        mut work: impl FnMut(&Files, &Inside) -> Result<()>,
    ) -> Result<()> {
        let mut failures = Failures::default();
        for place in places {
            let files = self.files(&place.volume).map_err(|failure| failures.ended_by(failure))?;
            failures.add(work(&files, place))?;
        }
        failures.finish()
    }

    /// Closes all volumes. The failure of one is printed, and the next one follows.
    fn close(self) -> Result<()> {
        let mut failures = Failures::default();
        for (path, volume) in self.open {
            failures.add(volume.close().doing("close the volume", text::path(&path)))?;
        }
        failures.finish()
    }
}

/// Calls `work` with an empty list of open volumes. The list opens the volumes at the paths `changed` for
/// changes, and other volumes for reading. Closes the volumes even after an error.
///
/// # Errors
/// As [`with_close`].
pub fn with_volumes<'a, T>(
    changed: impl IntoIterator<Item = &'a Path>,
    work: impl FnOnce(&mut OpenVolumes) -> Result<T>,
) -> Result<T> {
    let changed = changed.into_iter().map(storage).collect();
    let mut volumes = OpenVolumes { changed, open: Vec::new() };
    let result = work(&mut volumes);
    with_close(result, volumes.close())
}

/// Works like [`OpenVolumes::for_each`], with volumes that are opened for this purpose, and closed at the
/// end.
///
/// # Errors
/// Fails if a place failed, or if a volume cannot be opened or closed.
pub fn for_each(
    places: &[Inside],
    purpose: Purpose,
    work: impl FnMut(&Files, &Inside) -> Result<()>,
) -> Result<()> {
    let changed = if purpose == Purpose::Change { places } else { &[] };
    with_volumes(volumes_of(changed), |volumes| volumes.for_each(places, work))
}

/// Returns the paths of the volumes of these places.
pub fn volumes_of(places: &[Inside]) -> impl Iterator<Item = &Path> {
    places.iter().map(|place| &*place.volume)
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
        with_volumes([&*direct], |volumes| {
            assert_eq!((volumes.get(&direct)?.0, volumes.get(&link)?.0), (0, 0));
            assert_eq!(volumes.open.len(), 1);
            Ok(())
        })
        .unwrap();
        // The list closed the volume, so it can be opened again.
        Volume::open(&direct).unwrap().close().unwrap();
    }
}
