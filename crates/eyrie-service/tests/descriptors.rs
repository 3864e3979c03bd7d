//! A service whose process has reached its limit of file descriptors. The limit counts for the whole process,
//! so this test is the only one in its binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

use eyrie::Volume;
use eyrie_client::packet;
use eyrie_client::protocol::Welcome;
use eyrie_engine::Errno;
use eyrie_service::{ServeOptions, Service};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use zerocopy::{FromZeros, IntoBytes};

/// Limit of file descriptors during the test.
const LIMIT: u64 = 200;

fn set_limit(limit: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
}

/// Returns the processor time that this process has used.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

#[test]
fn service_without_a_descriptor_rests_and_refuses_later() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, at) = (place.path().join("volume"), place.path().join("socket"));
    Volume::create(&path, 1 << 20).unwrap().close().unwrap();
    let service = Service::start(&path, &at, ServeOptions::default()).unwrap();
    let stopper = service.stopper();
    let thread = std::thread::spawn(move || service.run());
    let client = || {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(10))).unwrap();
        socket
    };
    let clients: [OwnedFd; 3] = std::array::from_fn(|_| client());
    let address = SocketAddrUnix::new(&at).unwrap();
    set_limit(LIMIT);
    let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!all.is_empty() && all.len() < LIMIT as usize);

    // The service closes its spare descriptor and cannot get it back.
    set_limit(0);
    connect(&clients[0], &address).unwrap();
    let before = processor_time();
    std::thread::sleep(Duration::from_millis(500));
    let used = processor_time() - before;
    assert!(
        used < Duration::from_millis(200),
        "the service used {used:?} of 500 ms while it could only wait"
    );

    // Now the service can get one descriptor. It needs this descriptor for every refusal.
    set_limit(LIMIT);
    for (number, client) in clients.iter().enumerate() {
        if number > 0 {
            connect(client, &address).unwrap();
        }
        let mut welcome = Welcome::new_zeroed();
        let (length, _) = packet::receive(client, welcome.as_mut_bytes()).unwrap();
        assert_eq!(
            (length, welcome.errno),
            (size_of::<Welcome>(), i32::from(Errno::MFILE) as u32),
            "{number}"
        );
    }
    drop(all);
    stopper.stop();
    thread.join().unwrap().unwrap();
}
