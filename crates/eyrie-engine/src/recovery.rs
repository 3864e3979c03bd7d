//! Recovery: what a crashed volume still uses, found from its root.
//!
//! Nothing needs repair: objects are whole because every Op commits by one publish or by a redo record, which was
//! replayed before. What no object reaches is free (BPFS finds its free blocks the same way, `bpfs.txt` section 3.3).

use eyrie_medium::Addr;
use eyrie_medium::epoch::pin;

use crate::object::collection::Collection;
use crate::object::header::Header;
use crate::object::pointer::Extent;
use crate::object::{mfile, xattr};
use crate::volume::{Marks, Overlap, Volume};
use crate::{Error, Kind, ObjectId, Result};

/// Marks everything that the root reaches.
///
/// # Errors
/// `Corrupt` at the first contradiction; `Fault`.
pub fn mark(volume: &Volume, root: ObjectId) -> Result<Marks> {
    let mut marks = volume.marks();
    let mut found = vec![root];
    while let Some(id) = found.pop() {
        let _pin = pin();
        let addr = Addr::from_raw(id.place());
        let overlap = |at: Addr| move |overlap: Overlap| Error::corrupt(at, overlap.what());
        if !marks.mark_header(addr).map_err(overlap(addr))? {
            continue;
        }
        visit_object(volume, id, &mut |extent| marks.mark_extent(extent).map_err(overlap(extent.addr)))?;
        if id.is_directory() {
            let hot = Header::of(id).hot(volume.medium())?;
            Collection::new(volume, hot.root).visit_entries(&mut |_, child| {
                found.push(child);
                Ok(())
            })?;
        }
    }
    Ok(marks)
}

/// Visits the storage of one object, whose header is verified first.
///
/// # Errors
/// `Corrupt`, `Fault`, and those of `visit`.
pub(crate) fn visit_object(
    volume: &Volume,
    id: ObjectId,
    visit: &mut dyn FnMut(Extent) -> Result<()>,
) -> Result<()> {
    let header = Header::of(id);
    header.identity(volume.medium())?;
    let (hot, cold) = header.hot_and_cold(volume.medium()).map_err(|error| match error {
        Error::Stale => Error::corrupt(header.addr(), "entry that names a dead object"),
        other => other,
    })?;
    if let Some(xattrs) = xattr::extent(cold.xattrs())? {
        visit(xattrs)?;
    }
    match id.kind() {
        Kind::Directory => Collection::new(volume, hot.root).visit_storage(visit),
        Kind::File | Kind::Symlink => mfile::visit_storage(volume.medium(), hot.root, hot.size, visit),
        _ if hot.root.is_null() => Ok(()),
        _ => Err(Error::corrupt(header.addr(), "pipe, socket or device with storage")),
    }
}
