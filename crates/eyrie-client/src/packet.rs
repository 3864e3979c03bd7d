//! Packets with files, over a Unix socket that keeps packets whole (`SOCK_SEQPACKET`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use eyrie_medium::host;
use eyrie_medium::sync::{interleave, sleep};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Maximum number of files of a packet.
pub const MOST_FILES: usize = 4;

/// Sends a packet with files.
///
/// # Errors
/// Those of the host. `WouldBlock` if the socket is full, and either does not block or stays full for its
/// time limit. `InvalidInput` for more than [`MOST_FILES`] files.
pub fn send(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags))?;
    sleep::socket_changed();
    Ok(())
}

/// Receives a packet into `bytes`. Returns its length and its files. The length is 0 if the other side has
/// closed its end of the socket.
///
/// # Errors
/// Those of the host. `WouldBlock` if the socket has no packet, and either does not block or gets none within
/// its time limit. `InvalidData` for a packet that is longer than `bytes`. `EMFILE` for a packet with more
/// than [`MOST_FILES`] files, or if this process has too many open files.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_by(socket, bytes, RecvFlags::empty())
}

/// Works as [`receive`], and tells the scheduler of a test that this thread waits for the packet.
///
/// # Errors
/// As [`receive`].
pub fn await_packet(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let look = |limit: Option<Duration>| {
        let flags = if limit.is_some() { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        receive_by(&socket, bytes, flags)
    };
    let is_over = |received: &io::Result<_>| {
        !received.as_ref().is_err_and(|error: &io::Error| error.kind() == io::ErrorKind::WouldBlock)
    };
    sleep::wait_for_socket(None, look, is_over)
}

fn receive_by(socket: impl AsFd, bytes: &mut [u8], flags: RecvFlags) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::io::retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags))?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The process has no descriptor left for a file, or the packet has too many files.
        return Err(rustix::io::Errno::MFILE.into());
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((received.bytes, files))
}

/// True if the other side has closed its end of the socket.
#[track_caller]
pub fn is_closed(socket: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    interleave();
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match host::call(|| poll(&mut polled, Some(&now))) {
        Ok(_) => polled[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL),
        Err(_) => false,
    }
}
