//! Resizes the file or the device of a volume.
//!
//! Safe when power fails: the file of a `paged` volume ends with a sound anchor at any moment. On a device,
//! callers have made all pages durable in their places and emptied the journal before a resize. The resize
//! first writes another empty journal at the new end. Then it changes the two copies of the superblock, one
//! after the other, to name the new end.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use eyrie_medium::{Blocks, Medium, MediumKind, PagedOptions, host};
use zerocopy::IntoBytes;

use super::lock::{Hold, HostLock, Sharing};
use super::segment::{FirstPages, blocks, errno_of};
use super::{device, directory};
use crate::tables::layout::SUPERBLOCKS;
use crate::tables::superblock;
use crate::{Errno, Error, Result};

/// The segment of a volume whose size changes.
pub(crate) struct ResizedSegment<'a> {
    path: &'a Path,
    file: File,
    /// The lock of the volume in a directory; `None` on a device.
    lock: Option<Arc<HostLock>>,
    paged: PagedOptions,
    checksums: bool,
}

impl<'a> ResizedSegment<'a> {
    /// Opens the segment of the volume at `path`. `hold` keeps other owners away from the volume. `checksums`
    /// is true if the pages of the volume have checksums.
    pub(crate) fn of(
        path: &'a Path,
        hold: &Hold,
        paged: PagedOptions,
        checksums: bool,
    ) -> Result<ResizedSegment<'a>> {
        let (lock, file) = match hold {
            Hold::Device(file) => (None, device::duplicate_locked(file, path)?),
            Hold::Directory(lock) => {
                (Some(Arc::clone(lock)), directory::segment_file(path, Sharing::Exclusive)?)
            }
        };
        Ok(ResizedSegment { path, file, lock, paged, checksums })
    }

    /// Returns the path of the volume, for messages.
    pub(crate) fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the size of the largest volume that fits on the device; `None` for a file.
    pub(crate) fn device_room(&self) -> Result<Option<u64>> {
        if self.lock.is_none() {
            device::room(&self.file, self.checksums, &self.place()).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Gives the segment room for exactly `bytes`. Callers have unmapped the segment. The function calls
    /// `step` after each durable change, so that a test can stop there.
    pub(crate) fn resize(
        &self,
        kind: MediumKind,
        bytes: u64,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        if self.lock.is_none() {
            return self.resize_device(bytes, step);
        }
        self.resize_file(kind, bytes)?;
        step()
    }

    /// Maps the segment again.
    pub(crate) fn map(&self) -> Result<Medium> {
        match &self.lock {
            None => device::open_volume(&self.file, self.paged, &self.place()),
            Some(lock) => directory::map_segment(self.path, &self.file, lock, self.paged),
        }
    }

    /// Gives the file of a volume room for exactly `bytes` on its medium. Callers have unmapped the volume.
    /// Safe when power fails: the file of a `paged` volume ends with a sound anchor at any moment. Only the
    /// write of its new anchor makes such a file longer. Before such a file is made shorter, the anchor at
    /// the new end is durable.
    fn resize_file(&self, kind: MediumKind, bytes: u64) -> Result<()> {
        let (file, checksums, place) = (&self.file, self.checksums, &self.place());
        let failed = |error: std::io::Error| {
            Error::volume(place, format!("cannot be resized: {error}"), errno_of(&error))
        };
        let mut total = bytes;
        if kind == MediumKind::Paged {
            total = Medium::paged_bytes(bytes, checksums);
            let blocks = blocks(host::try_clone(file).map_err(failed)?);
            if total > host::metadata_of(file).map_err(failed)?.len() {
                Medium::extend_paged(&blocks, bytes, checksums)?;
            } else {
                Medium::format_paged(&blocks, bytes, checksums)?;
                // The new anchor must be durable before it becomes the end of the file.
                host::sync_data(file).map_err(failed)?;
            }
        }
        host::set_len(file, total).map_err(failed)?;
        host::sync_all(file).map_err(failed)
    }

    /// Gives the volume on the device room for exactly `bytes`. Callers have emptied the journal and unmapped
    /// the volume. The function calls `step` after each durable change. If the volume becomes smaller, the
    /// last step discards the bytes of the device between the new and the old end.
    fn resize_device(&self, bytes: u64, step: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let (file, place) = (&self.file, &self.place());
        let failed = |error| device::failed(place, "cannot be resized")(error);
        let whole = blocks(host::try_clone(file).map_err(failed)?);
        let kept = Medium::move_paged(&whole, bytes, self.checksums)?;
        step()?;
        let start = FirstPages::read(file).map_err(failed)?;
        let newest =
            start.and_then(|start| Some((superblock::newest(&start.0, superblock::is_whole)?, start)));
        let Some((newest, mut start)) = newest else {
            return Err(Error::volume(
                place,
                "corrupt volume: both copies of the superblock are damaged",
                Errno::IO,
            ));
        };
        let before = start.device_bytes();
        let mut block = start.0[newest];
        block.disk_bytes.set(kept);
        superblock::renumber(&mut block);
        start.0 = [block; 2];
        // The newest copy is written last. While one copy is being written, the other copy is whole and names
        // a journal that exists.
        for copy in [1 - newest, newest] {
            let (bytes, place) = (start.0[copy].as_bytes(), SUPERBLOCKS[copy].offset());
            host::write_all_at(file, bytes, place).map_err(failed)?;
            host::sync_data(file).map_err(failed)?;
            step()?;
        }
        if let Some(behind) = before.and_then(|before| before.checked_sub(kept)) {
            host::call(|| whole.discard(kept, behind)).map_err(failed)?;
        }
        Ok(())
    }
}
