//! Opens of a volume by users whom its directory or its service refuses.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use eyrie::Volume;
use eyrie_client::{Client, SOCKET_NAME};
use eyrie_engine::Errno;
use eyrie_service::{ServeOptions, Service};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

pub const USER: u32 = 65_534;

/// Runs `work` in a thread of another user. Does nothing if this process may not become that user.
pub fn as_user(work: impl FnOnce() + Send) {
    let user = Uid::from_raw(USER);
    let run = || {
        if set_thread_res_uid(None, user, None).is_ok() {
            work();
        }
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap());
}

/// Returns the errno and the message of a failed open.
fn refusal_of(path: &Path) -> (Errno, String) {
    let error = Volume::open(path).unwrap_err();
    (error.errno(), error.to_string())
}

#[test]
fn regression_directory_of_another_user_is_eacces() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("volume");
    Volume::create(&path, 1 << 20).unwrap().close().unwrap();
    set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    as_user(|| {
        let (errno, text) = refusal_of(&path);
        assert_eq!(errno, Errno::ACCESS, "{text}");
        assert!(text.contains("cannot be opened: Permission denied"), "{text}");
    });
}

#[test]
fn regression_volume_in_use_with_a_long_path_is_ebusy() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("a".repeat(120));
    let _volume = Volume::create(&path, 1 << 20).unwrap();
    let (errno, text) = refusal_of(&path);
    assert_eq!(errno, Errno::BUSY, "{text}");
    assert!(text.contains("in use"), "{text}");
}

#[test]
fn regression_refusal_of_the_service_has_its_errno() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("volume");
    Volume::create(&path, 1 << 20).unwrap().close().unwrap();
    for directory in [place.path(), &path] {
        set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    let socket = path.join(SOCKET_NAME);
    for (users, expected) in [(vec![], Errno::ACCESS), (vec![USER], Errno::AGAIN)] {
        let mut options = ServeOptions::default();
        options.users = Some(users);
        let service = Service::start(&path, &socket, options).unwrap();
        let stopper = service.stopper();
        let thread = std::thread::spawn(move || service.run());
        as_user(|| {
            let mut clients = Vec::new();
            if expected == Errno::AGAIN {
                clients.extend(std::iter::from_fn(|| Client::connect(&socket, false).ok()));
                assert!(clients.len() > 16, "{} clients", clients.len());
            }
            let (errno, text) = refusal_of(&path);
            assert_eq!(errno, expected, "{text}");
            let reason = std::io::Error::from(expected);
            let place = path.display();
            assert_eq!(text, format!("open volume {place}: the service refused the connection: {reason}"));
            // A client that connects directly gets the same errno.
            assert_eq!(Client::connect(&socket, false).err().unwrap().errno(), expected);
        });
        stopper.stop();
        thread.join().unwrap().unwrap();
    }
}
