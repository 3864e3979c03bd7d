//! Tests of volumes whose pages have checksums.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use eyrie::{Credentials, Errno, Files, MediumChoice, PosixExt, Repair, Volume, VolumeOptions};

/// Size of each file, in bytes.
const LEN: usize = 1_500_000;

fn options() -> VolumeOptions {
    Volume::options().size(32 << 20).checksums(true)
}

fn root(volume: &Volume) -> Files {
    volume.files(Credentials::root())
}

/// Returns the bytes of a file. Each page of each file differs from all other pages.
fn contents(name: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0_u64..).flat_map(u64::to_le_bytes).take(LEN).collect();
    for page in bytes.chunks_mut(4096) {
        page[..name.len()].copy_from_slice(name.as_bytes());
    }
    bytes
}

const NAMES: [&str; 3] = ["/dir/first", "/dir/second", "/third"];

fn make(path: &Path) {
    let volume = options().create(path).unwrap();
    let files = root(&volume);
    files.create_dir("/dir").unwrap();
    for name in NAMES {
        files.write(name, contents(name)).unwrap();
    }
    drop(files);
    volume.close().unwrap();
}

fn segment(volume: &Path) -> PathBuf {
    volume.join("segment-0000")
}

/// Flips one bit of the page that begins with these bytes.
fn damage(volume: &Path, start: &[u8]) {
    let mut bytes = fs::read(segment(volume)).unwrap();
    let mut found = (0..bytes.len()).step_by(4096).filter(|&at| bytes[at..].starts_with(start));
    let at = found.next().expect("the page is there");
    assert_eq!(found.next(), None);
    bytes[at + 3000] ^= 1;
    fs::write(segment(volume), bytes).unwrap();
}

/// Returns the first bytes of page number `page` of a file.
fn start_of(name: &str, page: usize) -> Vec<u8> {
    contents(name)[page * 4096..][..64].to_vec()
}

#[test]
fn damaged_page_is_an_error_that_names_its_file() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nest");
    make(&path);
    damage(&path, &start_of("/dir/second", 200));
    let volume = Volume::open(&path).unwrap();
    assert!(volume.information().checksums);
    let files = root(&volume);
    let error = files.read("/dir/second").unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::IO, Some(Path::new("/dir/second"))));
    assert!(error.to_string().contains("does not match its checksum"), "{error}");
    assert_eq!(files.read("/dir/first").unwrap(), contents("/dir/first"));
    let file = files.open_file("/dir/second").unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 199 * 4096).unwrap();
    assert_eq!(page[..], contents("/dir/second")[199 * 4096..][..4096]);
    let error = file.read_exact_at(&mut page, 200 * 4096).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    let error = file.read_at(&mut page, 200 * 4096).unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::IO, Some(Path::new("/dir/second"))));
    let writer = files.options().write(true).open("/dir/second").unwrap();
    let error = writer.write_at(b"part", 200 * 4096).unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::IO, Some(Path::new("/dir/second"))));
    // A whole new page replaces the damaged one.
    files.write("/dir/second", contents("/dir/first")).unwrap();
    assert_eq!(files.read("/dir/second").unwrap(), contents("/dir/first"));
}

#[test]
fn scrub_names_damaged_files() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nest");
    make(&path);
    let volume = Volume::open(&path).unwrap();
    let sound = volume.scrub(|_, _| true).unwrap();
    assert!(sound.read_bytes > 3 * LEN as u64 && sound.damaged.is_empty() && sound.paths.is_empty());
    volume.close().unwrap();
    damage(&path, &start_of("/dir/second", 200));
    damage(&path, &start_of("/third", 0));
    damage(&path, &start_of("/third", 300));
    let volume = Volume::open_read_only(&path).unwrap();
    let mut steps = Vec::new();
    let report = volume.scrub(|done, total| {
        steps.push((done, total));
        true
    });
    let report = report.unwrap();
    assert_eq!(report.damaged.len(), 3);
    assert_eq!(report.paths, [Path::new("/dir/second"), Path::new("/third")]);
    let (done, total) = steps[steps.len() - 1];
    assert!(done == total && total == sound.read_bytes && steps.len() > 3);
    let mut calls = 0;
    let stopped = volume.scrub(|_, _| {
        calls += 1;
        false
    });
    assert!(calls == 1 && stopped.unwrap().read_bytes < total);
}

#[test]
fn memory_has_no_checksums_and_no_scrub() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for medium in [MediumChoice::Dram, MediumChoice::Pmem] {
        let error = options().medium(medium).create(place.path().join("nest")).unwrap_err();
        assert_eq!(error.errno(), Errno::INVAL);
        assert!(!place.path().join("nest").exists());
    }
    // For checksums, the default choice of the medium is `paged`.
    assert_eq!(options().create(place.path().join("nest")).unwrap().information().medium, "paged");
    let memory = Volume::options().size(4 << 20).medium(MediumChoice::Dram);
    let volume = memory.create(place.path().join("memory")).unwrap();
    assert!(!volume.information().checksums);
    assert_eq!(volume.scrub(|_, _| true).unwrap_err().errno(), Errno::OPNOTSUPP);
}

#[test]
fn volume_keeps_its_checksums_when_it_grows_and_shrinks() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nest");
    make(&path);
    for bytes in [48 << 20, 32 << 20, 33 << 20, 16 << 20] {
        Volume::resize(&path, bytes).unwrap();
        let volume = Volume::open(&path).unwrap();
        let files = root(&volume);
        for name in NAMES {
            assert_eq!(files.read(name).unwrap(), contents(name));
        }
        files.write(format!("/{bytes}"), contents("more")).unwrap();
        files.remove_file(format!("/{bytes}")).unwrap();
        let information = volume.information();
        assert!(information.checksums && information.size_bytes == bytes);
        assert_eq!(information.segments[0].1, fs::metadata(segment(&path)).unwrap().len());
        assert!(volume.scrub(|_, _| true).unwrap().damaged.is_empty());
        assert!(volume.check().unwrap().is_clean());
        drop(files);
        volume.close().unwrap();
    }
    damage(&path, &start_of("/third", 300));
    let volume = Volume::open(&path).unwrap();
    assert_eq!(volume.scrub(|_, _| true).unwrap().paths, [Path::new("/third")]);
}

#[test]
fn repair_loses_only_damaged_pages() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nest");
    make(&path);
    damage(&path, &start_of("/dir/second", 200));
    let repaired = Repair::new().run(&path).unwrap();
    assert!(repaired.is_none(), "a check does not read the bytes of files");
    // Without the anchor behind the volume, the repair finds the pages by the superblock.
    let len = fs::metadata(segment(&path)).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(segment(&path)).unwrap();
    file.set_len(len - 4096).unwrap();
    Repair::new().run(&path).unwrap().expect("it was damaged");
    let volume = Volume::open(&path).unwrap();
    let files = root(&volume);
    assert_eq!(files.read("/third").unwrap(), contents("/third"));
    let (found, mut expected) = (files.read("/dir/second").unwrap(), contents("/dir/second"));
    let lost = 200 * 4096..201 * 4096;
    expected[lost.clone()].copy_from_slice(&found[lost]);
    assert!(found == expected, "more than one page is lost");
    assert!(volume.check().unwrap().is_clean());
}

/// If only the superblock or only the journal said that the volume has checksums, an open would find pages at
/// wrong places.
#[test]
fn superblock_and_journal_must_agree() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let (with, without) = (place.path().join("with"), place.path().join("without"));
    make(&with);
    Volume::options().size(32 << 20).medium(MediumChoice::Paged).create(&without).unwrap().close().unwrap();
    let (mut one, other) = (fs::read(segment(&with)).unwrap(), fs::read(segment(&without)).unwrap());
    one[..8192].copy_from_slice(&other[..8192]);
    fs::write(segment(&with), one).unwrap();
    let error = Volume::open(&with).unwrap_err();
    assert!(error.errno() == Errno::IO && error.to_string().contains("disagree about checksums"), "{error}");
}

/// The superblocks lie before the first checksum page, and have checksums of their own.
#[test]
fn scrub_compares_the_superblocks() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    for checksums in [true, false] {
        let path = place.path().join(format!("nest {checksums}"));
        let options = Volume::options().size(4 << 20).medium(MediumChoice::Paged).checksums(checksums);
        let volume = options.create(&path).unwrap();
        root(&volume).write("/file", "bytes").unwrap();
        assert_eq!(volume.scrub(|_, _| true).unwrap().damaged, []);
        for copy in [4096, 0] {
            let file = fs::OpenOptions::new().read(true).write(true).open(segment(&path)).unwrap();
            file.write_all_at(&[1], copy + 4000).unwrap();
            let damaged = volume.scrub(|_, _| true).unwrap().damaged;
            assert_eq!(damaged, if copy == 0 { vec![0, 4096] } else { vec![4096] });
        }
    }
}

/// A scrub reads the damaged pages a second time. The caller can end the scrub during these reads.
#[test]
fn second_look_of_a_scrub_can_be_ended() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nest");
    make(&path);
    for page in [0, 100, 102, 103, 300] {
        damage(&path, &start_of("/third", page));
    }
    let volume = Volume::open(&path).unwrap();
    let mut calls = 0;
    let whole = volume.scrub(|done, total| {
        calls += u32::from(done == total);
        true
    });
    assert_eq!((calls, whole.unwrap().damaged.len()), (5, 5), "two neighbours are read together");
    let mut calls = 0;
    let ended = volume.scrub(|done, total| {
        calls += u32::from(done == total);
        calls < 2
    });
    assert_eq!((calls, ended.unwrap().damaged.len()), (2, 5));
}

/// A disk may lose a range with a checksum page and the pages behind it.
#[test]
fn zeros_over_tables_and_their_checksums_are_noticed() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nest");
    make(&path);
    let mut bytes = fs::read(segment(&path)).unwrap();
    bytes[2 * 4096..40 * 4096].fill(0);
    fs::write(segment(&path), bytes).unwrap();
    let error = Volume::open(&path).unwrap_err();
    assert!(
        error.errno() == Errno::IO && error.to_string().contains("does not match its checksum"),
        "{error}"
    );
}

/// If the disk has lost checksums of pages, here of the tables, a repair takes these pages as they are.
#[test]
fn repair_takes_pages_without_checksums() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nest");
    make(&path);
    let mut bytes = fs::read(segment(&path)).unwrap();
    bytes[2 * 4096..3 * 4096].fill(0);
    fs::write(segment(&path), bytes).unwrap();
    assert_eq!(Volume::open(&path).unwrap_err().errno(), Errno::IO);
    Repair::new().run(&path).unwrap().expect("it was damaged");
    let volume = Volume::open(&path).unwrap();
    let files = root(&volume);
    for name in NAMES {
        assert_eq!(files.read(name).unwrap(), contents(name));
    }
    assert!(volume.scrub(|_, _| true).unwrap().damaged.is_empty() && volume.check().unwrap().is_clean());
}
