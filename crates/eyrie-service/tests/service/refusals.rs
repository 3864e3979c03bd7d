//! Opens of a volume by users whom its directory or its service refuses.

use std::fs::{Permissions, set_permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use eyrie::{Credentials, PosixExt, Volume};
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

fn mode_of(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// Runs `work` while a service with these options listens at `socket`.
fn served(path: &Path, socket: &Path, users: Option<Vec<u32>>, work: impl FnOnce()) {
    let mut options = ServeOptions::default();
    options.users = users;
    let service = Service::start(path, socket, options).unwrap();
    let stopper = service.stopper();
    let thread = std::thread::spawn(move || service.run());
    work();
    stopper.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn admitted_users_reach_the_socket_in_the_directory_of_the_volume() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let path = place.path().join("volume");
    let volume = Volume::create(&path, 8 << 20).unwrap();
    volume.files(Credentials::of_process()).write("/egg", "blue").unwrap();
    volume.close().unwrap();
    for users in [Some(vec![USER]), None] {
        served(&path, &path.join(SOCKET_NAME), users, || {
            assert_eq!(mode_of(&path), 0o711);
            as_user(|| {
                let volume = Volume::open(&path).unwrap();
                let files = volume.files(Credentials::of_process());
                assert!(volume.is_served());
                assert_eq!(files.read("/egg").unwrap(), b"blue");
                assert_eq!(files.write("/egg", "red").unwrap_err().errno(), Errno::ACCESS);
                // Only the owner may list the directory of the volume or open its files.
                let denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
                assert!(denied(std::fs::read_dir(&path).unwrap_err()));
                assert!(denied(std::fs::File::open(path.join("segment-0000")).unwrap_err()));
            });
        });
        assert_eq!(mode_of(&path), 0o700, "the mode is restored");
    }
    served(&path, &path.join(SOCKET_NAME), Some(Vec::new()), || assert_eq!(mode_of(&path), 0o700));
    let outside = place.path().join("socket");
    served(&path, &outside, None, || {
        assert_eq!(mode_of(&path), 0o700, "the socket is at another place");
        as_user(|| {
            let volume = Volume::open(&outside).unwrap();
            assert_eq!(volume.files(Credentials::of_process()).read("/egg").unwrap(), b"blue");
        });
    });
}

#[test]
fn path_of_a_socket_stands_for_the_volume() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, socket) = (place.path().join("volume"), place.path().join("socket"));
    Volume::create(&path, 8 << 20).unwrap().close().unwrap();
    served(&path, &socket, Some(Vec::new()), || {
        let volume = Volume::open(&socket).unwrap();
        volume.files(Credentials::of_process()).write("/egg", "blue").unwrap();
        let reader = Volume::open_read_only(&socket).unwrap();
        assert_eq!(reader.files(Credentials::of_process()).read("/egg").unwrap(), b"blue");
        // The socket is not in the directory of the volume, so an open of this directory does not find the
        // service.
        assert_eq!(Volume::open(&path).unwrap_err().errno(), Errno::BUSY);
    });
    // A service that was killed leaves its socket behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let (errno, text) = refusal_of(&socket);
    let reason = std::io::Error::from(Errno::CONNREFUSED);
    let expected = format!("{}: no service can be reached at this socket: {reason}", socket.display());
    assert_eq!((errno, text), (Errno::CONNREFUSED, format!("open volume {expected}")));
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
