//! Serves new volumes.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use eyrie::{MediumChoice, PagedOptions, Volume};
use eyrie_service::{ServeOptions, Service};
use tempfile::TempDir;

/// Serves a new volume of `bytes` for all users while `body` runs with the path of the socket. On a disk, the
/// service has a page cache of 1 MiB. Returns the directory with the volume.
///
/// # Panics
/// Panics if `/dev/shm` has no room, or if the service fails.
pub fn served(bytes: u64, medium: MediumChoice, body: impl FnOnce(&Path)) -> TempDir {
    let place = tempfile::tempdir_in("/dev/shm").expect("room");
    set_permissions(place.path(), Permissions::from_mode(0o755)).expect("the directory is new");
    let path = place.path().join("volume");
    Volume::options().size(bytes).medium(medium).create(&path).expect("room").close().expect("sound");
    let mut options = ServeOptions::default();
    options.users = None;
    options.paged.memory_bytes = PagedOptions::MIN_MEMORY_BYTES;
    let service = Service::start(&path, &place.path().join("socket"), options).expect("it is not in use");
    let (stopper, socket) = (service.stopper(), service.socket().to_owned());
    let serving = std::thread::spawn(move || service.run());
    body(&socket);
    stopper.stop();
    serving.join().expect("the service does not panic").expect("the volume is saved");
    place
}
