//! Extended attributes of copies. An attribute that the source hides or the target refuses is counted. It is
//! no failure.

use std::path::Path;

use eyrie::{Errno, Posix, PosixExt, XattrMode};

use super::progress::Progress;
use super::spot::Spot;
use crate::failure::reason;

/// Names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the extended attributes of `path` itself, which may be a symbolic link.
pub fn read<S: Posix>(source: &S, path: &Path, progress: &Progress<'_>) -> Xattrs {
    let names = match source.symlink_xattr_names(path) {
        Ok(names) => names,
        // This file system has no extended attributes.
        Err(error) if error.errno() == Errno::OPNOTSUPP => return Xattrs::new(),
        Err(error) => {
            progress.xattr_lost(b"", &reason(&error));
            return Xattrs::new();
        }
    };
    let mut xattrs = Xattrs::new();
    for name in names {
        match source.symlink_xattr(path, &name) {
            Ok(value) => xattrs.push((name, value)),
            Err(error) => progress.xattr_lost(&name, &reason(&error)),
        }
    }
    xattrs
}

/// Sets the extended attributes of `spot` itself, which may be a symbolic link.
pub(super) fn set<D: Posix>(spot: &Spot<'_, D>, xattrs: &Xattrs, progress: &Progress<'_>) {
    for (name, value) in xattrs {
        match spot.target.lsetxattr(spot.name, name, value, XattrMode::Set) {
            Ok(()) => progress.xattr_kept(),
            Err(error) => progress.xattr_lost(name, &reason(&error)),
        }
    }
}
