//! Concurrent writes to one file, through io_uring.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::{Errno, ReadWriteFlags};

use crate::sync::unpoisoned;

/// Maximum number of concurrent writes.
const DEPTH: usize = 64;

/// Maximum length of one wait for all remaining writes. After this time the ring cancels the writes that the
/// kernel has not started. Linux 6.18 has been seen to queue writes and never start them.
const PATIENCE: Duration = Duration::from_secs(1);

/// A ring. No write is in progress between two calls.
pub(super) struct Ring(Mutex<IoUring>);

impl Ring {
    /// Makes a ring for writes to this file.
    ///
    /// # Errors
    /// The host's error if it has no io_uring or does not permit its use. `EOPNOTSUPP` if the host cannot
    /// start a write to this file without waiting, as on tmpfs. There the kernel would pass each write to a
    /// kernel thread, which is slower than an ordinary write. `EOPNOTSUPP` also before Linux 5.11, where a
    /// wait for writes cannot have a limit of time.
    pub(super) fn new(file: &File) -> io::Result<Ring> {
        let mut byte = [0];
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT) {
            Err(error @ Errno::OPNOTSUPP) => Err(error.into()),
            // Any other error comes from a host that supports `NOWAIT`. The byte is not in the cache, or the
            // file is open for direct transfers, which cannot have a length of one byte.
            Ok(_) | Err(_) => {
                let ring = IoUring::new(DEPTH as u32)?;
                // An older kernel refuses each wait with a limit, and `complete` ends the process if a wait
                // is refused.
                if !ring.params().is_feature_ext_arg() {
                    return Err(Errno::OPNOTSUPP.into());
                }
                Ok(Ring(Mutex::new(ring)))
            }
        }
    }

    /// Stores several ranges, in any order.
    ///
    /// # Errors
    /// The host's error; any part of the data may have been stored.
    pub(super) fn write_all(&self, file: &File, ranges: &[(u64, &[u8])]) -> io::Result<()> {
        let mut ring = unpoisoned(self.0.lock());
        ranges.chunks(DEPTH).try_for_each(|batch| write_batch(&mut ring, file, batch))
    }
}

/// Returns the length of one write of the ring. The length field of a request has 32 bits. So if the data has
/// 4 GiB or more, the first 1 GiB goes through the ring, and an ordinary write stores the rest.
fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(1 << 30)
}

/// Stores at most [`DEPTH`] ranges.
fn write_batch(ring: &mut IoUring, file: &File, batch: &[(u64, &[u8])]) -> io::Result<()> {
    for (number, (offset, data)) in batch.iter().enumerate() {
        let write = opcode::Write::new(Fd(file.as_raw_fd()), data.as_ptr(), length(data)).offset(*offset);
        // SAFETY: the data and the file outlive the write, because this function returns only when every
        // write is complete.
        let pushed = unsafe { ring.submission().push(&write.build().user_data(number as u64)) };
        debug_assert!(pushed.is_ok(), "the ring has room for a batch");
    }
    complete(ring, batch.len()).into_iter().try_for_each(|(number, result)| {
        // After a short or failed write, an ordinary write stores the rest or returns the host's error.
        let ((offset, data), stored) = (batch[number], usize::try_from(result).unwrap_or(0));
        file.write_all_at(data.get(stored..).unwrap_or(&[]), offset + stored as u64)
    })
}

/// Waits until every pushed write is complete. Returns the number and result of each write. From Linux 6.0
/// on, a write that the kernel does not start within [`PATIENCE`] is cancelled, and its result is an error.
fn complete(ring: &mut IoUring, count: usize) -> Vec<(usize, i32)> {
    let patience = Timespec::from(PATIENCE);
    let patient = SubmitArgs::new().timespec(&patience);
    let mut results = Vec::with_capacity(count);
    while results.len() < count {
        match ring.submitter().submit_with_args(count - results.len(), &patient) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                // The kernel cannot cancel a write that the disk has begun, and a kernel before 6.0 cancels
                // no write. The loop waits again for the writes that remain.
                let _ = ring.submitter().register_sync_cancel(Some(Timespec::new()), CancelBuilder::any());
            }
            Err(error) if is_passing(&error) => {}
            // The process ends, because a return would be unsafe: the kernel may still read buffers that the
            // caller is about to reuse.
            Err(_) => std::process::abort(),
        }
        results.extend(ring.completion().map(|done| (done.user_data() as usize, done.result())));
    }
    results
}

/// Returns true if the call may succeed when it is made again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    /// Makes a ring, and an empty file for its writes. Returns `None` where the host has no ring for
    /// temporary files.
    fn ring() -> Option<(Ring, File)> {
        let file = tempfile::tempfile().expect("room");
        match Ring::new(&file) {
            Ok(ring) => Some((ring, file)),
            Err(error) => {
                eprintln!("not run: no io_uring for temporary files: {error}");
                None
            }
        }
    }

    #[test]
    fn all_ranges_of_many_are_written() {
        let Some((ring, file)) = ring() else { return };
        let data: Vec<Vec<u8>> = (0..3 * DEPTH).map(|number| vec![number as u8; 1 + number * 7]).collect();
        let place = |number: usize| 4096 * (3 * DEPTH - number) as u64;
        let ranges: Vec<(u64, &[u8])> =
            data.iter().enumerate().map(|(number, data)| (place(number), &data[..])).collect();
        ring.write_all(&file, &ranges).expect("room");
        for (number, data) in data.iter().enumerate() {
            let mut read = vec![0; data.len()];
            file.read_exact_at(&mut read, place(number)).expect("written");
            assert!(read == *data, "range {number}");
        }
    }

    #[test]
    fn failed_write_leaves_the_ring_usable() {
        let Some((ring, file)) = ring() else { return };
        let readable = File::open("/dev/null").expect("there");
        let data = [7; 4096];
        let error =
            ring.write_all(&readable, &[(0, &data), (4096, &data)]).expect_err("only open for reading");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        ring.write_all(&file, &[(0, &data), (4096, &data)]).expect("the ring goes on");
    }

    /// The write to a full pipe never starts, because no thread reads from the pipe.
    #[test]
    fn regression_stalled_write_is_cancelled() {
        let Some((ring, file)) = ring() else { return };
        let (_reader, mut writer) = io::pipe().expect("room");
        rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can refuse to wait");
        while writer.write(&[0; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&writer, false).expect("a pipe can wait");
        let pipe = File::from(OwnedFd::from(writer));
        let error = ring.write_all(&pipe, &[(0, &[7; 4096])]).expect_err("a pipe has no offsets");
        assert_eq!(error.raw_os_error(), Some(libc::ESPIPE));
        ring.write_all(&file, &[(0, &[7; 4096])]).expect("the ring goes on");
    }
}
