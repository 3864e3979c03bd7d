//! Options of a new volume.

use eyrie_medium::PagedOptions;

use crate::{Errno, Error, Result, Time};

/// Smallest volume in a directory or on a device of the host, in bytes: 1 MiB.
pub const MIN_HOST_BYTES: u64 = 1 << 20;

/// The choice of a medium for a new volume.
///
/// ```
/// use eyrie_engine::volume::MediumChoice;
///
/// assert_eq!(MediumChoice::default(), MediumChoice::Auto);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum MediumChoice {
    /// A disk if the volume has checksums. Otherwise persistent memory if the host's file system is on it,
    /// shared memory if that file system is in memory, and a disk in all other cases.
    #[default]
    Auto,
    /// Shared memory of the host: completed calls survive the death of the process.
    Dram,
    /// Persistent memory mounted with DAX: completed calls survive a power failure.
    Pmem,
    /// A disk: completed calls survive a power failure if a sync followed them, or if they are older than a
    /// few seconds.
    Paged,
}

/// Options of a new volume. Random values and the present time are fields too, so that a test can fix them.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of a group, in bytes: a power of two from 64 KiB to 64 MiB. The largest extent has this size,
    /// too.
    pub group_bytes: u64,
    /// Key of the hash of names.
    pub hash_seed: u64,
    /// Random bytes that name the volume.
    pub volume_id: [u8; 16],
    /// Time of creation.
    pub created: Time,
    /// The medium of a volume on the host. [`Volume::create_on`](crate::Volume::create_on) ignores this
    /// choice, because its caller passes a medium.
    pub medium: MediumChoice,
    /// True if a block device is overwritten even if it holds data.
    pub overwrite: bool,
    /// True if the pages of a volume on a disk have checksums.
    pub checksums: bool,
    /// Limits of memory and time for a volume on a disk. The volume does not record them.
    pub paged: PagedOptions,
}

impl Options {
    /// Returns the options of an ordinary volume created at `created`, with an id and a hash key from the
    /// host.
    ///
    /// # Errors
    /// [`Error::Volume`] when the host has no random bytes.
    pub fn random(created: Time) -> Result<Options> {
        let mut bytes = [0; 24];
        let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
        if filled != Ok(bytes.len()) {
            let place = "new volume";
            let what = "the host gave no random bytes";
            let errno =
                filled.err().map_or(Errno::IO, |errno| Errno::from_raw_os_error(errno.raw_os_error()));
            return Err(Error::volume(place, what, errno));
        }
        let (mut seed, mut volume_id) = ([0; 8], [0; 16]);
        seed.copy_from_slice(&bytes[..8]);
        volume_id.copy_from_slice(&bytes[8..]);
        let hash_seed = u64::from_le_bytes(seed);
        Ok(Options {
            group_bytes: 64 << 20,
            hash_seed,
            volume_id,
            created,
            medium: MediumChoice::Auto,
            overwrite: false,
            checksums: false,
            paged: PagedOptions::for_host(),
        })
    }
}
