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

/// Returns the fingerprint of the line at `offset`. The fingerprint of an image is the exclusive or of the
/// fingerprints of its lines. A line of zeros has fingerprint 0, so unused memory needs no hash.
fn fingerprint_of(offset: u64, bytes: &[u8]) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) { 0 } else { xxh3_64_with_seed(bytes, offset) }
}

/// Returns the fingerprint of `bytes`, whose first line is at offset `first`.
pub(crate) fn fingerprint_from(first: u64, bytes: &[u8]) -> u64 {
    let lines = bytes.chunks(LINE_SIZE as usize).zip((first..).step_by(LINE_SIZE as usize));
    lines.fold(0, |sum, (line, at)| sum ^ fingerprint_of(at, line))
}

impl ImageBase {
    /// Makes memory that holds `bytes`.
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

    /// Returns a copy of the bytes.
    ///
    /// # Panics
    /// If the kernel cannot read memory.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.file.read_exact_at(&mut bytes, 0).expect("memory can be read");
        bytes
    }

    /// Returns a hash of the contents. The exclusive or of this hash and
    /// [`CrashImage::fingerprint`](crate::CrashImage::fingerprint) is the fingerprint of the image.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Changes the memory of later images. An image that exists already may or may not see the change.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.len, "a store outside the image");
        let (first, within) = (offset - offset % LINE_SIZE, (offset % LINE_SIZE) as usize);
        let mut contents = vec![0; (within + bytes.len()).next_multiple_of(LINE_SIZE as usize)];
        self.file.read_exact_at(&mut contents, first).expect("memory can be read");
        // The first exclusive or removes the old bytes of these lines from the fingerprint. The second one
        // adds the new bytes.
        self.fingerprint ^= fingerprint_from(first, &contents);
        contents[within..within + bytes.len()].copy_from_slice(bytes);
        self.fingerprint ^= fingerprint_from(first, &contents);
        self.file.write_all_at(bytes, offset).expect("memory that is there can be written");
    }

    /// Makes a copy-on-write medium for one image.
    pub(crate) fn copy(&self) -> Result<Medium, Fault> {
        Medium::copy_of(&self.file, self.len)
    }
}
