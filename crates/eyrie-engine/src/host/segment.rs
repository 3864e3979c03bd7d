//! The file or device of a volume's segment: its first pages, and its blocks.

use std::fs::File;
use std::io;
use std::path::Path;

use eyrie_medium::{FileBlocks, PAGE_SIZE, host};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::Errno;
use crate::Error;
use crate::tables::layout::{CHECKSUMS, MAGIC, MEDIUM_PAGED, SUPERBLOCKS, Superblock};
use crate::tables::superblock::{self, Purpose};

/// Name of the file of segment 0 in the directory of a volume.
pub(super) const SEGMENT_FILE: &str = "segment-0000";

/// Returns the error of a host call about `path`.
pub(super) fn host_error(path: &Path, doing: &str, error: &io::Error) -> Error {
    let errno = errno_of(error);
    Error::volume(&path.display().to_string(), format!("{doing}: {error}"), errno)
}

/// Returns the errno of a failed host call, or `EIO` if the error has no errno.
pub(super) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Returns another descriptor of the file or device of the volume at `shown_path`.
#[track_caller]
pub(super) fn duplicate(file: &File, shown_path: &str) -> crate::Result<File> {
    host::try_clone(file)
        .map_err(|error| host_error(Path::new(shown_path), "its descriptor cannot be duplicated", &error))
}

/// Returns a file or device as blocks. Transfers bypass the page cache of the host if the host supports
/// direct transfers.
pub(super) fn blocks(file: File) -> FileBlocks {
    if let Ok(flags) = rustix::fs::fcntl_getfl(&file) {
        // A failure is ignored: without this flag the host keeps copies of the pages, which costs only
        // memory.
        let _ = rustix::fs::fcntl_setfl(&file, flags | rustix::fs::OFlags::DIRECT);
    }
    FileBlocks::new(file)
}

/// The first pages of a file or device, with both copies of the superblock. They are aligned for direct
/// transfers.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(super) struct FirstPages(pub(super) [Superblock; 2]);

const _: () = assert!(SUPERBLOCKS[0].offset() == 0 && SUPERBLOCKS[1].offset() == PAGE_SIZE);

impl FirstPages {
    /// Reads the first pages, or returns `None` if the device or file is shorter.
    #[track_caller]
    pub(super) fn read(file: &File) -> io::Result<Option<FirstPages>> {
        let mut pages = FirstPages::new_zeroed();
        match host::read_exact_at(file, pages.as_mut_bytes(), 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(pages)),
        }
    }

    /// True if a copy of the superblock names `paged` as the medium. The medium of a volume never changes, so
    /// a damaged copy counts too.
    pub(super) fn is_paged(&self) -> bool {
        self.0.iter().any(|copy| copy.magic == MAGIC && copy.medium == MEDIUM_PAGED)
    }

    /// Returns the size of a volume whose pages have checksums. Returns `None` if the newest whole copy of
    /// the superblock records no checksums, or if no copy is whole.
    pub(super) fn bytes_with_checksums(&self) -> Option<u64> {
        let copy = &self.0[superblock::newest(&self.0, superblock::is_whole)?];
        (copy.incompat.get() & CHECKSUMS != 0).then(|| copy.volume_bytes.get())
    }

    /// Refuses a volume with a version or with features that this program does not know. Callers that change
    /// the volume make this check before the replay of the journal, so a refused volume stays as it is. A
    /// volume without a whole copy of the superblock passes, because a copy may be in the journal.
    pub(super) fn check_known(&self, purpose: Purpose, shown_path: &str) -> crate::Result<()> {
        let newest = superblock::newest(&self.0, superblock::is_whole);
        newest.map_or(Ok(()), |newest| superblock::check_known(&self.0[newest], purpose, shown_path))
    }

    /// True if the first pages have the magic number of a superblock. The superblock may be damaged.
    pub(super) fn has_volume(&self) -> bool {
        self.0.iter().any(|copy| copy.magic == MAGIC)
    }

    /// Returns the number of bytes of the device that the volume takes; `None` if no whole copy of the
    /// superblock records this number.
    pub(super) fn device_bytes(&self) -> Option<u64> {
        let copy = &self.0[superblock::newest(&self.0, superblock::is_whole)?];
        Some(copy.disk_bytes.get()).filter(|&bytes| bytes > 0)
    }
}
