//! Extended attributes of copies. An attribute that cannot be read from the source, or that the target
//! refuses, is counted, but is not a failure.

use std::collections::BTreeMap;
use std::path::Path;

use eyrie::{AclKind, Errno, Posix, PosixExt, QUOTA_XATTR, Target, XattrMode};

use super::progress::Progress;
use super::spot::Spot;
use crate::failure::reason;

/// Names and values of extended attributes.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads the extended attributes that a copy of `path` gets: all but the quota limits of a volume, which are
/// an attribute of its root directory. A symbolic link is not followed.
pub(super) fn read_copied<S: Posix + Clone>(source: &S, path: &Path, progress: &Progress<'_>) -> Xattrs {
    let mut xattrs = read(source, path, progress);
    xattrs.retain(|(name, _)| name != QUOTA_XATTR);
    xattrs
}

/// Reads the extended attributes of `path`. A symbolic link is not followed.
pub fn read<S: Posix + Clone>(source: &S, path: &Path, progress: &Progress<'_>) -> Xattrs {
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

/// Returns the attributes of `path` that a comparison of two trees includes: `user` and `trusted` ones, and
/// ACLs. Other attributes are left out, such as labels that the host itself makes. The quota limits of a
/// volume are left out, because copies have none. A symbolic link is not followed.
pub fn comparable<P: Posix + Clone>(fs: &P, path: &Path) -> eyrie::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let names = match fs.symlink_xattr_names(path) {
        Err(error) if error.errno() == Errno::OPNOTSUPP => Vec::new(),
        names => names?,
    };
    let is_comparable = |name: &Vec<u8>| match AclKind::of_name(name) {
        Some(_) => true,
        None => name != QUOTA_XATTR && (name.starts_with(b"user.") || name.starts_with(b"trusted.")),
    };
    let with_value = |name: Vec<u8>| Ok((name.clone(), fs.symlink_xattr(path, name)?));
    names.into_iter().filter(is_comparable).map(with_value).collect()
}

/// Sets the extended attributes of the entry `spot`. A symbolic link is not followed.
pub(super) fn set<D: Posix + Clone>(spot: &Spot<'_, D>, xattrs: &Xattrs, progress: &Progress<'_>) {
    for kind in AclKind::ALL {
        // The copy may have inherited an ACL that its source does not have.
        let target = || Target::NoFollow(spot.name.into());
        if !xattrs.iter().any(|(name, _)| name == kind.name())
            && spot.target.getxattr(target(), kind.name(), &mut []).is_ok()
            && let Err(error) = spot.target.removexattr(target(), kind.name())
        {
            progress.xattr_lost(kind.name(), &reason(&error));
        }
    }
    for (name, value) in xattrs {
        match spot.target.setxattr(Target::NoFollow(spot.name.into()), name, value, XattrMode::Set) {
            Ok(()) => progress.xattr_kept(),
            Err(error) => progress.xattr_lost(name, &reason(&error)),
        }
    }
}
