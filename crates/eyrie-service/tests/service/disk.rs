//! Services of volumes on disks.

use std::os::unix::fs::{FileExt, MetadataExt};

use eyrie::{Credentials, PosixExt, Volume};
use eyrie_client::Client;
use eyrie_client::protocol::{LaneRequest, ServiceCall};
use eyrie_engine::Errno;
use eyrie_medium::shared::{SharedAccess, SharedMemory};

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
