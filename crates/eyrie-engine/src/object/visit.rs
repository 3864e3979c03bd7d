//! Visits the storage of an object of any kind, for recovery and `check`.

use eyrie_medium::rules::{SafetyRule, broken};

use super::collection::Collection;
use super::header::Header;
use super::mfile::{self, FileTree};
use super::xattr::XattrRoot;
use crate::extent::Extent;
use crate::volume::VolumeView;
use crate::{Error, Kind, ObjectId, Result};

/// Verifies the header of an object, and calls `visit` for each extent of the object's storage. The second
/// argument of `visit` is true if the pointer to the extent has the shared bit.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `visit`.
pub(crate) fn visit_object(
    volume: &VolumeView,
    id: ObjectId,
    visit: &mut dyn FnMut(Extent, bool) -> Result<()>,
) -> Result<()> {
    let header = Header::of(id);
    header.identity(volume.medium())?;
    let (hot, cold) = header.hot_and_cold(volume.medium()).map_err(|error| match error {
        Error::Stale => Error::corrupt(header.addr(), "entry that names a dead object"),
        other => other,
    })?;
    if let Some(xattrs) = XattrRoot::of(header, &cold).extent()?
        && !broken(SafetyRule::RecoveryVisitsAttributes)
    {
        visit(xattrs, false)?;
    }
    match id.kind() {
        Kind::Directory => {
            Collection::new(volume, hot.root).visit_storage(&mut |extent| visit(extent, false))
        }
        Kind::File if hot.root.height() > 1 && broken(SafetyRule::RecoveryVisitsEveryHeight) => Ok(()),
        Kind::File | Kind::Symlink => {
            mfile::visit_storage(volume.medium(), FileTree::of(header, &hot), visit)
        }
        _ if hot.root.is_null() => Ok(()),
        _ => Err(Error::corrupt(header.addr(), "pipe, socket or device with storage")),
    }
}
