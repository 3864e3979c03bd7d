//! Serves new volumes. The clients are in this process, or in a process of their own.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use eyrie::{MediumChoice, PagedOptions, Volume};
use eyrie_service::{ServeOptions, Service};
use tempfile::TempDir;

/// Serves a new volume of `bytes` for all users while `body` runs with the path of the socket. On a disk, the
/// service has a page cache of 1 MiB. In memory, it grants parts, so that clients log their changes. Returns
/// the directory with the volume.
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

/// Environment variable of a process with clients: the path of the service's socket.
pub(crate) const SOCKET_VARIABLE: &str = "EYRIE_TEST_SOCKET";

/// Returns the path of the service's socket, if another process serves a volume for this one.
pub(crate) fn socket_of_parent() -> Option<PathBuf> {
    std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from)
}

/// Runs `body` in a child process, with the path of a socket. Meanwhile this process serves a new volume of
/// `bytes` there. The child runs only the test with the name `test` (in the form `module::function`, as the
/// test harness prints it). Checks the volume at the end.
///
/// # Panics
/// Panics if the child fails, if no test has this name, or if the volume is not sound.
pub fn in_client_process(test: &str, bytes: u64, medium: MediumChoice, body: impl FnOnce(&Path)) {
    // A child that does not make this file has run no test, because no test has the name `test`.
    let marker = |socket: &Path| socket.with_file_name("entered");
    if let Some(socket) = socket_of_parent() {
        std::fs::write(marker(&socket), "").expect("the parent has made the directory");
        return body(&socket);
    }
    let program = std::env::current_exe().expect("the test knows its program");
    served_and_checked(bytes, medium, |socket| {
        let mut child = Command::new(program);
        child.args([test, "--exact", "--nocapture"]).env(SOCKET_VARIABLE, socket);
        let status = child.status().expect("the test can be started again");
        assert!(status.success(), "{test} failed in its child process");
        assert!(marker(socket).exists(), "no test has the name {test}");
    });
}

/// Works like [`served`], and then checks the volume.
pub(crate) fn served_and_checked(bytes: u64, medium: MediumChoice, body: impl FnOnce(&Path)) {
    let place = served(bytes, medium, body);
    let report = Volume::open(place.path().join("volume")).expect("sound").check().expect("sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}
