//! Clients that write arbitrary values into the memory that they share with the service, or try to write into
//! the memory that they may only read.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use eyrie_client::packet;
use eyrie_medium::shared::{SharedAccess, SharedMemory};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::hostile::RawSession;
use super::*;

/// Size of a table of pins in bytes, and the index of its word with the number of used slots.
const PINS: (usize, usize) = (257 * 128, 0);
/// Size of the claims in bytes.
const CLAIMS: usize = 1 << 18;

/// A session with pins and claims that a test writes.
struct Scribbler {
    session: RawSession,
    pins: SharedMemory,
    claims: SharedMemory,
}

impl Scribbler {
    fn join(served: &Served) -> Scribbler {
        let [pins, claims] = [PINS.0, CLAIMS].map(|bytes| SharedMemory::create(bytes).unwrap());
        let session = RawSession::with_files(served, pins.file().unwrap(), claims.file().unwrap());
        Scribbler { session, pins, claims }
    }

    /// Fills the pins and the claims. Most words are as large or as small as possible.
    fn scribble(&self, random: &mut StdRng) {
        for words in [self.pins.words(), self.claims.words()] {
            for word in words {
                let values = [0, 1, u64::MAX, random.random()];
                word.store(values[random.random_range(0..4)], Ordering::Relaxed);
            }
        }
        self.pins.words()[PINS.1].store(u64::MAX, Ordering::Relaxed);
    }
}

/// One client, the scribbler, fills its pins and claims with any values. The other client writes several
/// times the size of the volume, so it needs storage that these pins and claims keep. The service may end a
/// session that keeps storage. The scribbler then joins again.
#[test]
fn scribbled_pins_and_claims_disturb_nobody() {
    let mut served = Served::new(8 << 20);
    let files = served.files();
    let (is_over, start) = (AtomicBool::new(false), Instant::now());
    // If the other client fails, the scribbler ends all the same.
    let goes_on = || !is_over.load(Ordering::Relaxed) && start.elapsed().as_secs() < 60;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(3);
            let mut scribbler = Scribbler::join(&served);
            while goes_on() {
                scribbler.scribble(&mut random);
                if packet::is_closed(&scribbler.session.socket) {
                    scribbler = Scribbler::join(&served);
                }
            }
        });
        for number in 0..24_usize {
            let (bytes, path) = (vec![number as u8; 512 << 10], format!("/{}", number % 4));
            // A new session keeps storage again before the service has ended it.
            while let Err(error) = files.write(&path, &bytes) {
                assert!(error.errno() == Errno::NOSPC && goes_on(), "{error}");
            }
            assert!(files.read(&path).unwrap() == bytes);
        }
        assert!(goes_on(), "the service waits for a hostile client");
        is_over.store(true, Ordering::Relaxed);
    });
    drop(files);
    served.stop();
}

/// Claims of a hostile client keep each file that others unlink. The end of its session frees these files.
#[test]
fn claims_of_everything_end_with_their_session() {
    let mut served = Served::new(16 << 20);
    let files = served.files();
    let scribbler = Scribbler::join(&served);
    scribbler.claims.words().iter().for_each(|word| word.store(u64::MAX, Ordering::SeqCst));
    files.write("/first", "blue").unwrap();
    let objects = || files.engine().space().objects;
    let before = objects();
    for number in 0..20 {
        files.write("/egg", vec![number; 1000]).unwrap();
        files.remove_file("/egg").unwrap();
    }
    // The ids of the files were reserved before.
    assert_eq!(objects(), before, "a claim keeps an unlinked file");
    drop(scribbler);
    let start = Instant::now();
    while objects() > before - 20 {
        assert!(start.elapsed().as_secs() < 20, "files without a claim stay");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(files.read("/first").unwrap(), b"blue");
    drop(files);
    served.stop();
}

/// The files of the volume and of the board are open for reading. The board has a seal, too, so that a client
/// cannot open it again for writing, even as root.
#[test]
fn client_cannot_change_the_board_or_the_volume() {
    let mut served = Served::new(8 << 20);
    let session = RawSession::open(&served);
    let [segment, board, ..] = &session.files[..] else { panic!("{:?}", session.files) };
    let bytes = board.metadata().unwrap().len() as usize;
    for file in [segment, board] {
        assert!(file.write_at(b"forged", 0).is_err() && file.set_len(0).is_err());
        assert!(SharedMemory::map(file.try_clone().unwrap().into(), bytes, SharedAccess::ReadWrite).is_err());
    }
    assert!(SharedMemory::map(board.try_clone().unwrap().into(), bytes, SharedAccess::Read).is_ok());
    let again = File::options().read(true).write(true).open(format!("/proc/self/fd/{}", board.as_raw_fd()));
    if let Ok(again) = again {
        assert!(again.write_at(b"forged", 0).is_err() && again.set_len(0).is_err());
        assert!(SharedMemory::map(again.into(), bytes, SharedAccess::ReadWrite).is_err());
    }
    drop(session);
    served.stop();
}

on_disk! {
    claims_of_everything_end_with_their_session client_cannot_change_the_board_or_the_volume
}
