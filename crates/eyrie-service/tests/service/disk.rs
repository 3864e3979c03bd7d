//! Services of volumes on disks.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyrie::{Credentials, PosixExt, Volume};
use eyrie_client::protocol::{LaneRequest, ServiceCall};
use eyrie_client::{Client, packet};
use eyrie_engine::Errno;
use eyrie_medium::shared::{SharedAccess, SharedMemory};
use eyrie_medium::{Addr, Medium};

use crate::hostile::RawSession;
use crate::{ON_DISK, Served};

/// Runs tests of a module again, with volumes on disks and page caches of 1 MiB.
macro_rules! on_disk {
    ($($test:ident)*) => {
        mod on_disk {
            $(#[test]
            fn $test() {
                crate::ON_DISK.set(true);
                super::$test();
            })*
        }
    };
}

/// Returns the word at an offset of a test's file.
fn word_at(offset: u64) -> u64 {
    offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Returns the bytes of a test's file from an offset on.
fn bytes_at(offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length).step_by(8).flat_map(|at| word_at(at).to_le_bytes()).collect()
}

const MIB: u64 = 1 << 20;

/// Makes a served volume on a disk with a file `/large` of `bytes`.
fn with_large_file(bytes: u64) -> Served {
    ON_DISK.set(true);
    let served = Served::new(64 << 20);
    let files = served.files();
    let large = files.options().write(true).create(true).open("/large").unwrap();
    for offset in (0..bytes).step_by(MIB as usize / 4) {
        large.write_all_at(&bytes_at(offset, MIB / 4), offset).unwrap();
    }
    served
}

#[test]
fn file_larger_than_the_cache_is_read_beside_a_writer() {
    const BYTES: u64 = 8 * MIB;
    let mut served = with_large_file(BYTES);
    let readers = [served.files(), served.files()];
    let writer = served.files();
    std::thread::scope(|scope| {
        for (number, files) in readers.iter().enumerate() {
            scope.spawn(move || {
                let large = files.open_file("/large").unwrap();
                let mut offset = 0;
                for step in 0..400 {
                    let length = 8 << (step % 12);
                    offset = (offset * 5 + 4096 * (number as u64 + 3) + 8 * step) % (BYTES - length);
                    let mut bytes = vec![0; length as usize];
                    large.read_exact_at(&mut bytes, offset).unwrap();
                    assert!(bytes == bytes_at(offset, length), "{length} bytes at {offset}");
                }
            });
        }
        scope.spawn(|| {
            for number in 0..100_u64 {
                let path = format!("/small-{}", number % 10);
                writer.write(&path, bytes_at(number, 32 << 10)).unwrap();
                assert!(writer.read(&path).unwrap() == bytes_at(number, 32 << 10));
                if number % 8 == 0 {
                    writer.remove_file(path).unwrap();
                }
            }
        });
    });
    drop((readers, writer));
    served.stop();
}

#[test]
fn volume_on_a_disk_grows_for_its_clients() {
    let mut served = with_large_file(0);
    let [writer, reader] = [served.files(), served.files()];
    assert_eq!(reader.read_dir("/").unwrap().count(), 1);
    for number in 0..600_u64 {
        writer.write(format!("/{number}"), bytes_at(number, 32 << 10)).unwrap();
    }
    for number in 0..600_u64 {
        assert!(reader.read(format!("/{number}")).unwrap() == bytes_at(number, 32 << 10));
    }
    drop((writer, reader));
    served.stop();
}

#[test]
fn damaged_page_is_an_error_of_its_readers_only() {
    let mut served = with_large_file(0);
    served.end();
    std::fs::remove_dir_all(&served.path).unwrap();
    let options = Volume::options().size(16 << 20).checksums(true);
    let volume = options.create(&served.path).unwrap();
    let files = volume.files(Credentials::of_process());
    files.write("/egg", bytes_at(0, 256 << 10)).unwrap();
    files.write("/stone", bytes_at(8, 256 << 10)).unwrap();
    drop(files);
    volume.close().unwrap();
    let segment = served.path.join("segment-0000");
    let mut bytes = std::fs::read(&segment).unwrap();
    let page = bytes_at(4096 * 5, 4096);
    let at = (0..bytes.len()).step_by(4096).find(|&at| bytes[at..at + 4096] == page).unwrap();
    bytes[at + 100] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    served.start();
    let [one, other] = [served.files(), served.files()];
    for _ in 0..3 {
        let error = one.read("/egg").unwrap_err();
        assert_eq!(error.errno(), Errno::IO);
        let text = error.to_string();
        assert!(text.contains("/egg") && text.contains("does not match its checksum"), "{text}");
        assert!(one.read("/stone").unwrap() == bytes_at(8, 256 << 10));
        assert!(other.read("/stone").unwrap() == bytes_at(8, 256 << 10));
    }
    // The pages before and after the damaged one are sound.
    let egg = other.open_file("/egg").unwrap();
    for page in [4, 6] {
        let mut bytes = vec![0; 4096];
        egg.read_exact_at(&mut bytes, page * 4096).unwrap();
        assert!(bytes == bytes_at(page * 4096, 4096));
    }
    assert_eq!(Client::sessions(&served.socket).unwrap().len(), 2);
    drop((egg, one, other));
    served.end();
}

#[test]
fn service_that_was_stopped_has_lost_nothing() {
    let mut served = with_large_file(0);
    let files = served.files();
    let egg = files.options().write(true).create(true).open("/egg").unwrap();
    for round in 0..3 {
        egg.write_all_at(&bytes_at(round, 4096), 4096 * round).unwrap();
        served.end();
        served.start();
        egg.sync_all().unwrap();
        assert!(files.read("/egg").unwrap()[4096 * round as usize..] == bytes_at(round, 4096));
    }
    drop((egg, files));
    served.stop();
}

#[test]
fn client_cannot_change_the_page_cache() {
    let mut served = with_large_file(MIB);
    let session = RawSession::open(&served);
    let [pages, _, _, flags] = &session.files[..] else { panic!("{:?}", session.files) };
    assert!(pages.write_at(b"forged", 0).is_err() && pages.set_len(0).is_err());
    assert_eq!(pages.metadata().unwrap().mode() & 0o777, 0o400, "other users cannot open it again");
    let bytes = flags.metadata().unwrap().len() as usize;
    let map = |access| SharedMemory::map(flags.try_clone().unwrap().into(), bytes, access);
    assert!(map(SharedAccess::Read).is_ok() && map(SharedAccess::ReadWrite).is_err());
    assert!(flags.write_at(b"forged", 0).is_err());
    // A request for pages outside the volume is an error.
    for (id, number) in [(u64::MAX, 1), (64 << 20, 4096), (u64::MAX, u64::MAX), (1 << 63, 8)] {
        let call = ServiceCall::BringPages as u32;
        let (answer, _) = session.ask(LaneRequest { call, id, number, ..LaneRequest::default() }, &[]);
        assert!(answer.error != 0, "{id}");
    }
    drop(session);
    served.stop();
}

/// Size of a table of pins in bytes, and the indices of two of its words: the number of used slots, and the
/// count of the first slot. The table has 128 bytes for its head and for each of 256 slots.
const PINS: (usize, usize, usize) = (257 * 128, 0, 16);

/// Opens a session whose process holds a pin all the time: one slot is used, and its count is odd.
pub fn with_a_long_pin(served: &Served) -> (RawSession, SharedMemory) {
    let pins = SharedMemory::create_for_readers(PINS.0).unwrap();
    pins.words()[PINS.1].store(1, Ordering::SeqCst);
    pins.words()[PINS.2].store(1, Ordering::SeqCst);
    (RawSession::with_pins(served, pins.file().unwrap()), pins)
}

impl RawSession {
    fn bring(&self, address: u64) {
        let call = ServiceCall::BringPages as u32;
        let request = LaneRequest { call, id: address, number: 1, ..LaneRequest::default() };
        assert_eq!(self.ask(request, &[]).0.error, 0);
    }

    /// Returns the memory that the host has allocated for the page cache, in bytes.
    fn cache_bytes(&self) -> u64 {
        self.files[0].metadata().unwrap().blocks() * 512
    }
}

/// Held by each test that holds a pin for long, or in which storage or memory must become free. All services
/// of this process have one clock of grace periods, so the pin of one test would delay the others.
static CLOCK: Mutex<()> = Mutex::new(());

/// Waits until no other test has a long pin.
pub fn alone_with_the_clock() -> MutexGuard<'static, ()> {
    CLOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn eventually(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A client reads the whole file of the page cache, so the host allocates memory for each page that is not in
/// the cache.
#[test]
fn holes_that_a_client_reads_do_not_stay_in_memory() {
    let _alone = alone_with_the_clock();
    let mut served = with_large_file(4 * MIB);
    let files = served.files();
    let session = RawSession::open(&served);
    let pages = Medium::for_reading(&session.files[0], 64 * MIB).unwrap();
    let mut bytes = vec![0; MIB as usize];
    for round in 0..3 {
        for at in (0..64 * MIB).step_by(MIB as usize) {
            pages.read(Addr::from_raw(at), &mut bytes).unwrap();
        }
        assert!(round > 0 || session.cache_bytes() > 8 * MIB, "{}", session.cache_bytes());
        // The keeper leaves the cache of 1 MiB, and up to 4 MiB of pages that it does not know (`SLACK` in
        // `paged/holes.rs`). The sixth MiB is for pages whose reads are in progress.
        eventually(|| session.cache_bytes() <= 6 * MIB);
        assert!(files.read("/large").unwrap() == bytes_at(0, 4 * MIB));
    }
    drop((session, files));
    served.stop();
}

/// A client that makes no call still maps the pages of a service that has been stopped.
#[test]
fn stopped_service_gives_its_page_cache_back() {
    let mut served = with_large_file(4 * MIB);
    let session = RawSession::open(&served);
    assert!(session.cache_bytes() > 0);
    served.end();
    assert_eq!(session.cache_bytes(), 0);
}

/// The service does not pause for an eviction that waits for the pin of a client. The client continues to
/// request pages, so it is not expelled.
#[test]
fn long_pin_does_not_slow_other_clients() {
    const BYTES: u64 = 40 * MIB;
    const PINNED: u64 = 30 * MIB;
    let _alone = alone_with_the_clock();
    let mut served = with_large_file(BYTES);
    let files = served.files();
    let large = files.open_file("/large").unwrap();
    let (session, _pins) = with_a_long_pin(&served);
    let mut bytes = vec![0; MIB as usize];
    for offset in (0..PINNED).step_by(MIB as usize) {
        session.bring(0);
        large.read_exact_at(&mut bytes, offset).unwrap();
    }
    assert!(session.cache_bytes() > PINNED / 2, "the pin keeps pages: {}", session.cache_bytes());
    let mut page = vec![0; 8];
    // Each step reads another page, far from the last one, so most steps need a page from the disk. With a
    // pause of 10 ms before each of these pages, the steps would take 25 s.
    let start = Instant::now();
    for step in 0..2500 {
        if step % 100 == 0 {
            session.bring(0);
        }
        let offset = step * 797 % ((BYTES - PINNED) / 4096) * 4096;
        large.read_exact_at(&mut page, PINNED + offset).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "the service pauses");
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        session.bring(0);
        large.read_exact_at(&mut page, 0).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(Client::sessions(&served.socket).unwrap().len(), 2);
    drop((session, large, files));
    served.stop();
}

/// The pin of a client keeps in memory all pages that other clients use. The client is expelled, and the
/// cache returns to its limit.
#[test]
fn client_whose_pin_overfills_the_cache_is_expelled() {
    let _alone = alone_with_the_clock();
    let mut served = with_large_file(8 * MIB);
    let files = served.files();
    let (session, _pins) = with_a_long_pin(&served);
    let read = || assert!(files.read("/large").unwrap() == bytes_at(0, 8 * MIB));
    read();
    // The service gets no request meanwhile, and sleeps.
    eventually(|| packet::is_closed(&session.socket));
    // Each read fills the cache. Afterwards the keeper evicts pages, as soon as it runs.
    for _ in 0..3 {
        read();
        eventually(|| session.cache_bytes() <= 2 * MIB);
    }
    assert_eq!(Client::sessions(&served.socket).unwrap().len(), 1);
    drop((session, files));
    served.stop();
}

/// Address of the page with the number of the owner (see `docs/format.md`).
const VOLUME_PAGE: u64 = 2 * 4096;

/// The page with the number of the owner leaves memory, and cannot be read again.
#[test]
fn unreadable_number_of_the_owner_ends_no_session() {
    let _alone = alone_with_the_clock();
    let mut served = with_large_file(0);
    served.end();
    std::fs::remove_dir_all(&served.path).unwrap();
    let volume = Volume::options().size(32 << 20).checksums(true).create(&served.path).unwrap();
    volume.files(Credentials::of_process()).write("/large", bytes_at(0, 12 * MIB)).unwrap();
    volume.close().unwrap();
    served.start();
    let files = served.files();
    assert!(files.read("/large").unwrap() == bytes_at(0, 12 * MIB));
    let segment = File::options().read(true).write(true).open(served.path.join("segment-0000")).unwrap();
    // Offset of the page in the file, which also has checksum pages. `place_bytes` returns the size that the
    // volume would have on the disk if this page were its last page.
    let at = Medium::place_bytes(VOLUME_PAGE + 4096, true) - 4096;
    let mut page = vec![0; 4096];
    // So many pages have lines in the journal that the keeper makes a checkpoint. Afterwards each page can
    // leave memory.
    let large = files.options().write(true).open("/large").unwrap();
    for offset in (0..2 * MIB).step_by(4096) {
        large.write_all_at(&bytes_at(offset, 8), offset).unwrap();
    }
    large.sync_all().unwrap();
    let session = RawSession::open(&served);
    let flags = session.files[3].try_clone().unwrap();
    let length = flags.metadata().unwrap().len() as usize;
    let flags = SharedMemory::map(flags.into(), length, SharedAccess::Read).unwrap();
    // Each page has two words: its flags, and its changed lines. Bit 0 of the flags is `RESIDENT` of
    // `paged/page.rs`.
    let is_in_memory = || flags.words()[2 * VOLUME_PAGE as usize / 4096].load(Ordering::Relaxed) & 1 != 0;
    eventually(|| {
        assert!(files.read("/large").unwrap() == bytes_at(0, 12 * MIB));
        !is_in_memory()
    });
    segment.read_exact_at(&mut page, at).unwrap();
    segment.write_all_at(&[0xee; 4096], at).unwrap();
    for _ in 0..10 {
        assert!(files.read("/large").unwrap() == bytes_at(0, 12 * MIB));
    }
    // Changes need the page, and so do new clients.
    assert_eq!(files.create_dir("/nest").unwrap_err().errno(), Errno::IO);
    segment.write_all_at(&page, at).unwrap();
    files.create_dir("/nest").unwrap();
    drop((large, session));
    drop(files);
    served.stop();
}
