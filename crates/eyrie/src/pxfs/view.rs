//! Views of files in place.

use std::ops::{Bound, RangeBounds};

use eyrie_engine::{Engine, Errno, FileView, ObjectId};
use eyrie_medium::epoch::{self, Guard};

use super::{AsUser, CallResult, Handle, Pxfs};
use crate::Result;
use crate::posix::File;
use crate::view::View;

/// Zeros that stand for a hole of a file.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Maximum number of bytes of a piece. On a disk a piece is read into memory as a whole. If the file changes
/// during the search for a piece, this search begins again. So larger pieces would take more memory, and more
/// of the work would be repeated.
const PIECE_MAX: u64 = 1 << 20;

/// Views of files in place. Only files of a volume have them.
///
/// The first view of a file *seals* the file: from then on, writes never change stored bytes in place, but
/// copy the page that they change. A write of a few bytes of such a file therefore costs as much as a write
/// of a page. Nothing else about the file changes, and a reader needs no permission to write.
///
/// The bytes of a view do not change as long as its pin lives, even if the file is written, truncated or
/// removed meanwhile. Storage that is freed while a pin lives is reused only after the pin is dropped.
///
/// This holds for a sound volume. In a damaged one, two files may have the same storage, and a write to one
/// file changes the view of the other. An open does not look for such damage, but
/// [`Volume::inspect`](crate::Volume::inspect) does. So inspect a volume from an untrusted source before you
/// view its files and change it.
impl<E: Engine> File<Pxfs<E>> {
    /// Returns bytes of the file as they are at one moment. The view ends where `range` or the file ends. The
    /// bytes are in place if they are in one piece of storage, or in pieces of storage that follow one
    /// another without a gap. A file that one write made is in one piece, up to 64 MiB. Bytes in several
    /// pieces are copied, and so are holes. [`File::pieces`] does not copy them. [`Pxfs::pin`] takes a pin.
    ///
    /// In a volume on a disk, the pages of the range are read into memory, and none of them leaves memory
    /// before the pin is dropped. So use [`File::pieces`] with several pins for a range that is larger than
    /// the memory for pages.
    ///
    /// ```
    /// # use eyrie::{Credentials, PosixExt, Volume};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let place = tempfile::tempdir()?;
    /// # let volume = Volume::create(place.path().join("volume"), 64 << 20)?;
    /// # let files = volume.files(Credentials::root());
    /// files.write("/data", vec![7; 100_000])?;
    /// let file = files.open_file("/data")?;
    /// let pin = files.pin();
    /// let view = file.view(50_000.., &pin)?;
    /// files.write("/data", "changed")?;
    /// assert!(view.is_in_place());
    /// assert_eq!(&view[..], [7; 50_000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::read_at`](crate::posix::Posix::read_at). `ENOMEM` if there is no memory for a copy. If the
    /// file cannot be sealed, for example in a volume that is full, the bytes are copied.
    pub fn view<'a>(&'a self, range: impl RangeBounds<u64>, pin: &'a Guard) -> Result<View<'a>> {
        self.call(|fs, handle| {
            let view = fs.as_user().view_range(handle, offsets(range), pin);
            view.map_err(|error| error.into_error("view"))
        })
    }

    /// Returns the bytes of a range in pieces of at most 1 MiB. Each piece is in place, or is a part of a
    /// hole. A piece is a copy only if the file cannot be sealed, or changes during the search for the piece.
    /// If the range passes the end of the file, the pieces end there. Each piece has the bytes that the file
    /// has when the iterator comes to the piece.
    ///
    /// In a volume on a disk, no page of the pieces leaves memory before the pin is dropped. So take a new
    /// pin from time to time in a walk through a file that is larger than the memory for pages.
    ///
    /// ```
    /// # use eyrie::{Credentials, PosixExt, Volume};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let place = tempfile::tempdir()?;
    /// # let volume = Volume::create(place.path().join("volume"), 64 << 20)?;
    /// # let files = volume.files(Credentials::root());
    /// let file = files.options().read(true).write(true).create(true).open("/data")?;
    /// file.write_all_at(&[1; 4096], 1 << 20)?;
    /// let mut sum = 0;
    /// for piece in file.pieces(.., &files.pin()) {
    ///     sum += piece?.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    /// }
    /// assert_eq!(sum, 4096);
    /// # Ok(())
    /// # }
    /// ```
    pub fn pieces<'a>(&'a self, range: impl RangeBounds<u64>, pin: &'a Guard) -> Pieces<'a, E> {
        let (at, end) = offsets(range);
        Pieces { file: self, pin, at, end, has_ended: false }
    }
}

/// Returns the first offset of a range, and the offset after its last offset.
fn offsets(range: impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(&offset) => offset,
        Bound::Excluded(&offset) => offset.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&offset) => offset.saturating_add(1),
        Bound::Excluded(&offset) => offset,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

/// An iterator over the pieces of a file: see [`File::pieces`]. It ends after an error.
///
/// ```
/// # use eyrie::*; fn f(file: &File<Files>) -> Result<()> {
/// let pin = file.file_system().pin();
/// let pieces = file.pieces(.., &pin).collect::<Result<Vec<View>>>()?;
/// println!("{} pieces", pieces.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pieces<'a, E: Engine> {
    file: &'a File<Pxfs<E>>,
    pin: &'a Guard,
    at: u64,
    end: u64,
    has_ended: bool,
}

impl<'a, E: Engine> Iterator for Pieces<'a, E> {
    type Item = Result<View<'a>>;

    fn next(&mut self) -> Option<Result<View<'a>>> {
        if self.has_ended {
            return None;
        }
        let (range, pin) = ((self.at, self.end), self.pin);
        let piece = self.file.call(|fs, handle| {
            let piece = fs.as_user().next_piece(handle, range, pin);
            piece.map_err(|error| error.into_error("view"))
        });
        match piece {
            Ok(piece) if piece.is_empty() => {
                self.has_ended = true;
                None
            }
            Ok(piece) => {
                self.at += piece.len() as u64;
                Some(Ok(piece))
            }
            Err(error) => {
                self.has_ended = true;
                Some(Err(error))
            }
        }
    }
}

impl<E: Engine> std::iter::FusedIterator for Pieces<'_, E> {}

impl<E: Engine> Pxfs<E> {
    /// Takes a pin for [`File::view`]. Storage that is freed while the pin lives is reused only after the pin
    /// is dropped.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files, file: &File<Files>) -> Result<()> {
    /// let pin: Guard = files.pin();
    /// let head = file.view(..16, &pin)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pin(&self) -> Guard {
        epoch::pin()
    }
}

impl<'a, E: Engine> AsUser<'a, E> {
    fn view_range(&self, handle: &Handle, range: (u64, u64), pin: &'a Guard) -> CallResult<View<'a>> {
        let id = self.readable(handle, range.0)?;
        let view = if let Some(FileView { bytes, size }) = self.lend(id, range, pin)?
            && bytes.len() as u64 == range.1.min(size).saturating_sub(range.0)
        {
            View::InPlace(bytes)
        } else {
            View::Copied(self.copy_range(id, range)?)
        };
        self.note_read(id, handle.flags);
        Ok(view)
    }

    /// Returns a piece of the file from the start of the range on. The piece is empty at the end of the range
    /// or of the file.
    fn next_piece(&self, handle: &Handle, (start, end): (u64, u64), pin: &'a Guard) -> CallResult<View<'a>> {
        let id = self.readable(handle, start)?;
        let end = end.min(start + PIECE_MAX);
        let piece = match self.lend(id, (start, end), pin)? {
            Some(FileView { bytes, size }) if !bytes.is_empty() || start >= end.min(size) => {
                View::InPlace(bytes)
            }
            Some(FileView { size, .. }) => {
                let data = self.engine().seek(id, start, false)?.unwrap_or(size);
                // Since the engine looked for bytes to lend, another thread may have filled the hole, or
                // truncated the file.
                let len = data.min(end).saturating_sub(start).min(ZEROS.len() as u64);
                match len {
                    0 => View::Copied(self.copy_range(id, (start, end))?),
                    len => View::InPlace(&ZEROS[..len as usize]),
                }
            }
            None => View::Copied(self.copy_range(id, (start, end))?),
        };
        self.note_read(id, handle.flags);
        Ok(piece)
    }

    /// Returns bytes of a file in place, and seals the file first if necessary. `None` if the engine cannot
    /// lend them.
    fn lend(&self, id: ObjectId, range: (u64, u64), pin: &'a Guard) -> CallResult<Option<FileView<'a>>> {
        let view = self.engine().view(id, range, pin)?;
        // A file that cannot be sealed, for example in a full volume, can still be read.
        if view.is_some() || self.engine().seal(id).is_err() {
            return Ok(view);
        }
        Ok(self.engine().view(id, range, pin)?)
    }

    /// Returns a copy of the bytes of a range, as they are at one moment.
    fn copy_range(&self, id: ObjectId, (start, end): (u64, u64)) -> CallResult<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            // The buffer ends with the range, but at most one byte past the end of the file. If the read
            // fills that byte, the file has grown since its size was read.
            let size = self.engine().attributes(id)?.size;
            let end = end.min(size.saturating_add(1));
            let len = usize::try_from(end.saturating_sub(start)).map_err(|_| Errno::NOMEM)?;
            bytes.try_reserve_exact(len.saturating_sub(bytes.len())).map_err(|_| Errno::NOMEM)?;
            bytes.resize(len, 0);
            let count = self.engine().read(id, start, &mut bytes)?;
            // The buffer is empty if the range is empty or begins past the end of the file. The read is then
            // complete, although it filled the buffer.
            if count < len || len == 0 || end <= size {
                bytes.truncate(count);
                return Ok(bytes);
            }
        }
    }
}
