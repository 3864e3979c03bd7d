//! The order of steps on which two processes rely.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use eyrie_client::packet;
use eyrie_client::protocol::{Hello, MAGIC, OPEN_SESSION, VERSION, Welcome};
use eyrie_engine::claims::Claims;
use eyrie_medium::shared::{SharedAccess, SharedMemory};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use zerocopy::{FromZeros, IntoBytes};

use super::*;

/// A client opens a file that another client unlinks. The open keeps the file, or it fails.
///
/// The test fails if the client claims the file after its look at the file.
#[test]
fn open_beside_an_unlink_keeps_the_file_or_fails() {
    let _alone = alone();
    let template = Template::make();
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let (seen, executions) = (Arc::clone(&counts), AtomicUsize::new(0));
    run(Bursts::new(1, 800), move || {
        let mut served = template.serve();
        let (opener, remover) = (served.client(), served.client());
        let name = &b"egg"[..];
        make_file(&remover, name);
        let removing = shuttle::thread::spawn(move || {
            repeated(|| remover.apply(&Op::Unlink { dir: remover.root(), name, time: TIME }));
            // These files get the storage and the id of the unlinked file, if the unlink has freed them.
            for new in [&b"new"[..], b"newer"] {
                make_file(&remover, new);
                remover.reclaim();
            }
        });
        let pin = epoch::pin();
        let found = opener.lookup(opener.root(), name).unwrap();
        // The open begins at different steps of the unlink.
        for _ in 0..executions.fetch_add(1, Ordering::Relaxed) * 7 % 400 {
            shuttle::thread::yield_now();
        }
        let opened = found.map(|id| (id, opener.open(id)));
        drop(pin);
        match opened {
            Some((id, Ok(()))) => {
                seen[0].fetch_add(1, Ordering::Relaxed);
                for _ in 0..4 {
                    let mut bytes = [0; 64];
                    let count = opener.read(id, 0, &mut bytes).expect("an open file is there");
                    assert_eq!(&bytes[..count], name);
                    shuttle::thread::yield_now();
                }
                removing.join().unwrap();
                let mut bytes = [0; 64];
                let count = opener.read(id, 0, &mut bytes).expect("an open file is there");
                assert_eq!(&bytes[..count], name);
                opener.close(id);
            }
            Some((_, Err(Error::Stale))) => {
                seen[1].fetch_add(1, Ordering::Relaxed);
                removing.join().unwrap();
            }
            None => removing.join().unwrap(),
            Some((_, Err(error))) => panic!("{error}"),
        }
        drop(opener);
        served.end();
    });
    let [kept, refused] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert!(kept > 50 && refused > 50, "both happen: {kept} opens, {refused} refusals");
}

/// Size of a table of pins in bytes, and the index of the word with the count of its first slot. The table
/// has 128 bytes for its head and for each of 256 slots.
const PINS: (usize, usize) = (257 * 128, 16);
/// Number of the first word of the board with a key.
const KEYS: usize = 256;

/// A client that holds a pin and never ends it.
struct PinnedClient {
    socket: OwnedFd,
    board: SharedMemory,
    key: u64,
}

impl PinnedClient {
    fn join(served: &Served) -> PinnedClient {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&served.socket).unwrap()).unwrap();
        let (pins, claims) = (SharedMemory::create_for_readers(PINS.0).unwrap(), Claims::create().unwrap());
        // One slot is in use, and its count is odd.
        pins.words()[0].store(1, Ordering::SeqCst);
        pins.words()[PINS.1].store(1, Ordering::SeqCst);
        let hello = Hello { magic: MAGIC, version: VERSION, purpose: OPEN_SESSION };
        let files = [pins.file().unwrap().as_fd(), claims.file().unwrap().as_fd()];
        packet::send(&socket, hello.as_bytes(), &files).unwrap();
        let mut welcome = Welcome::new_zeroed();
        let (_, mut files) = packet::await_packet(&socket, welcome.as_mut_bytes()).unwrap();
        let board = File::from(files.swap_remove(1));
        let bytes = board.metadata().unwrap().len() as usize;
        let board = SharedMemory::map(board.into(), bytes, SharedAccess::Read).unwrap();
        PinnedClient { socket, board, key: welcome.key }
    }

    fn is_current(&self) -> bool {
        let place = KEYS + self.key as usize % 256;
        self.board.words()[place].load(Ordering::SeqCst) == self.key
    }
}

/// The service ends the session of a client that holds a pin. Another thread of the service's process wants
/// to reuse storage: it waits until the clock has passed the pin. Before that, the client must see the end of
/// its session.
///
/// The test fails if the service drops the pins before it ends the session on the board.
#[test]
fn session_ends_before_the_clock_passes_its_pins() {
    let _alone = alone();
    let template = Template::make();
    run(Bursts::new(2, 500), move || {
        let mut served = template.serve();
        let client = Arc::new(PinnedClient::join(&served));
        assert!(client.is_current());
        let retired = epoch::now();
        let reusing = shuttle::thread::spawn({
            let client = Arc::clone(&client);
            move || {
                while !retired.is_over(epoch::advance()) {
                    shuttle::thread::yield_now();
                }
                assert!(!client.is_current(), "storage is reused under a session that has not ended");
            }
        });
        packet::send(&client.socket, &[0; 64], &[]).unwrap();
        reusing.join().unwrap();
        drop(client);
        served.end();
    });
}
