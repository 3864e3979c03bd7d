//! Lets the admitted users reach a socket in the directory of a volume.

use std::fs::{Permissions, metadata, set_permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The permission to search a directory, for its group and for all others.
const SEARCH: u32 = 0o011;

/// A directory that every user may search. A drop restores the mode of the directory. After a kill the
/// directory stays as it is. This does no harm, because only its owner may list it or open its files.
pub struct SearchableDirectory {
    path: PathBuf,
    before: Permissions,
}

impl SearchableDirectory {
    /// Lets every user search the directory of a volume if `socket` is in this directory. Returns `None` if
    /// the directory stays as it is.
    pub fn of_volume(volume: &Path, socket: &Path) -> io::Result<Option<SearchableDirectory>> {
        let directory = metadata(volume)?;
        // The parent of a bare name would be an empty path.
        let socket = std::path::absolute(socket)?;
        let parent = socket.parent().map(metadata).transpose()?;
        let is_inside =
            parent.is_some_and(|parent| (parent.dev(), parent.ino()) == (directory.dev(), directory.ino()));
        let before = directory.permissions();
        if !is_inside || before.mode() & SEARCH == SEARCH {
            return Ok(None);
        }
        set_permissions(volume, Permissions::from_mode(before.mode() | SEARCH))?;
        Ok(Some(SearchableDirectory { path: volume.to_owned(), before }))
    }
}

impl Drop for SearchableDirectory {
    fn drop(&mut self) {
        if let Err(error) = set_permissions(&self.path, self.before.clone()) {
            tracing::warn!(%error, path = %self.path.display(), "the directory of the volume keeps its mode");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_name_is_a_socket_in_the_working_directory() {
        let volume = tempfile::tempdir().expect("room");
        let searchable = SearchableDirectory::of_volume(volume.path(), Path::new("s.sock"));
        assert!(searchable.expect("the directories exist").is_none(), "the socket is outside of the volume");
    }
}
