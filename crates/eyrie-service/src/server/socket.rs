//! The socket at which a service listens, and its file.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use eyrie_engine::Result;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::{BACKLOG, fault, io_fault};

/// The file of the socket of a service. A drop removes the file. Callers drop it before they release the lock
/// of the volume, because the next service may make the same file afterwards.
pub struct SocketFile {
    path: PathBuf,
    is_there: bool,
}

impl SocketFile {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, unless it was removed before.
    pub fn remove(&mut self) {
        if std::mem::take(&mut self.is_there) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Makes the socket of a service, and its file. Removes the socket that a dead service has left.
pub fn listen_at(path: &Path) -> Result<(OwnedFd, SocketFile)> {
    let address = SocketAddrUnix::new(path).map_err(fault("naming the socket"))?;
    let make = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(fault("making a socket"))
    };
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    // This process has opened the volume, so no other service of the volume lives. But the socket may belong
    // to a service of another volume.
    if is_socket && connect(&make()?, &address) == Err(rustix::io::Errno::CONNREFUSED) {
        std::fs::remove_file(path).map_err(|source| io_fault("removing an old socket", source))?;
    }
    let listener = make()?;
    bind(&listener, &address).map_err(fault("binding the socket of the service"))?;
    let file = SocketFile { path: path.to_owned(), is_there: true };
    listen(&listener, BACKLOG).map_err(fault("listening at the socket"))?;
    Ok((listener, file))
}
