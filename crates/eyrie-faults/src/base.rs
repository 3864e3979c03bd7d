//! Memory that crash images share, and fingerprints of its contents.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use eyrie_medium::{Fault, LINE_SIZE, Medium};
use rustix::fs::MemfdFlags;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Memory that images share. Each image has a private copy of the pages that it changes.
pub struct ImageBase {
    file: File,
    len: u64,
    fingerprint: u64,
}

/// The part of one line in the fingerprint of an image. Lines of zeros have none, so an image needs no look
/// at unused memory.
fn fingerprint_of(line: u64, bytes: &[u8]) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) { 0 } else { xxh3_64_with_seed(bytes, line) }
}

/// The part of the lines from `first` on in the fingerprint.
pub(crate) fn fingerprint_from(first: u64, bytes: &[u8]) -> u64 {
    let lines = bytes.chunks(LINE_SIZE as usize).zip((first..).step_by(LINE_SIZE as usize));
    lines.fold(0, |sum, (line, at)| sum ^ fingerprint_of(at, line))
}

impl ImageBase {
    /// Memory that holds `bytes`.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn new(bytes: &[u8]) -> Result<ImageBase, Fault> {
        let file = rustix::fs::memfd_create(c"image", MemfdFlags::CLOEXEC).map(File::from);
        let filled =
            file.map_err(io::Error::from).and_then(|file| file.write_all_at(bytes, 0).map(|()| file));
        let file =
            filled.map_err(|source| Fault::Io { what: "making memory for images".to_string(), source })?;
        Ok(ImageBase { file, len: bytes.len() as u64, fingerprint: fingerprint_from(0, bytes) })
    }

    /// A copy of the bytes.
    ///
    /// # Panics
    /// If the kernel cannot read memory.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.file.read_exact_at(&mut bytes, 0).expect("memory can be read");
        bytes
    }

    /// A hash of the contents. See [`fingerprint`](crate::CrashImage::fingerprint) of images.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Changes the memory of later images. Existing images may see the change or not. All of `bytes` is in
    /// one line or sector.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.len, "a store outside the image");
        let (first, within) = (offset - offset % LINE_SIZE, (offset % LINE_SIZE) as usize);
        let mut contents = vec![0; (within + bytes.len()).next_multiple_of(LINE_SIZE as usize)];
        self.file.read_exact_at(&mut contents, first).expect("memory can be read");
        // Takes the old part of the line out, and puts the new one in below.
        self.fingerprint ^= fingerprint_from(first, &contents);
        contents[within..within + bytes.len()].copy_from_slice(bytes);
        self.fingerprint ^= fingerprint_from(first, &contents);
        self.file.write_all_at(bytes, offset).expect("memory that is there can be written");
    }

    /// A copy-on-write medium for one image.
    pub(crate) fn copy(&self) -> Result<Medium, Fault> {
        Medium::copy_of(&self.file, self.len)
    }
}
