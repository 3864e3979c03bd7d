//! Tests of volumes on block devices. Files take the place of the devices.

use std::os::unix::fs::FileExt;
use std::path::Path;

use eyrie_medium::{Medium, PAGE_SIZE, PagedOptions};
use tempfile::NamedTempFile;

use crate::Result;
use crate::host::device::{self, NewVolume};
use crate::host::{Hold, HostPlace, Sharing};
use crate::volume::{MediumChoice, Opened, Options, Volume};

const BYTES: u64 = 16 << 20;

fn options() -> Options {
    Options { group_bytes: 1 << 18, ..Options::random(crate::Time::new(0, 0)).expect("random bytes") }
}

/// Returns a file of zeros that takes the place of a device.
fn device(bytes: u64) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    file.as_file().set_len(bytes).expect("room");
    file
}

fn refusal<T>(result: Result<T>) -> String {
    result.err().expect("refused").to_string()
}

fn make(file: &NamedTempFile, options: &Options) -> Result<Volume> {
    let reopened = file.reopen().expect("a file");
    let new = NewVolume::measure(&reopened, options, "here")?;
    new.clear(&reopened).expect("room");
    let medium = new.format(reopened, options)?;
    let taken = medium.disk_bytes().expect("a disk");
    let volume = Volume::create_in(medium, options, taken, "here")?;
    volume.medium().checkpoint()?;
    Ok(volume)
}

fn reopen(file: &NamedTempFile) -> Result<(Volume, Opened)> {
    Volume::open_in(
        device::open_volume(&file.reopen().expect("a file"), PagedOptions::for_host(), "here")?,
        None,
        "here",
    )
}

#[test]
fn a_volume_fills_a_device_of_any_size() {
    // The first size is that of the smallest device that has room for a volume. The third and the fourth size
    // are not whole numbers of pages.
    for bytes in [(2 << 20) + 4096, BYTES, BYTES + 512, BYTES + 4096 * 3 + 4095, 3 << 30] {
        let file = device(bytes);
        let volume = make(&file, &options()).expect("created");
        let (size, journal) = (volume.geometry().volume_bytes(), volume.medium().journal_bytes());
        assert_eq!(size + journal.expect("a journal") + PAGE_SIZE, bytes - bytes % PAGE_SIZE);
        assert!(
            size >= 1 << 20 && journal >= Some(1 << 20) && journal <= Some(64 << 20),
            "{size} {journal:?}"
        );
        let id = volume.volume_id();
        volume.close().expect("sound");
        let (volume, opened) = reopen(&file).expect("a volume");
        assert_eq!((volume.volume_id(), opened), (id, Opened::Clean));
        assert_eq!(file.as_file().metadata().expect("a file").len(), bytes);
    }
    assert!(refusal(make(&device((2 << 20) + 4095), &options())).contains("too small"));
    assert!(refusal(make(&device(0), &options())).contains("too small"));
    assert!(refusal(make(&device(2 << 40), &options())).contains("at most 1 TiB"));
}

#[test]
fn occupied_device_is_kept_unless_overwrite() {
    // The bytes are signatures of ext4 and btrfs, the label of a partition table at the end, and a single
    // byte 1 MiB before the end or at the start.
    for (offset, bytes) in [
        (1024 + 0x38, &b"\x53\xef"[..]),
        ((64 << 10) + 64, b"_BHRfS_M"),
        (BYTES - 512, b"EFI PART"),
        (BYTES - (1 << 20), b"x"),
        (0, b"x"),
    ] {
        let file = device(BYTES);
        file.as_file().write_all_at(bytes, offset).expect("room");
        assert!(refusal(make(&file, &options())).contains("something on it"), "{offset}");
        assert!(refusal(reopen(&file)).contains("not an Eyrie volume"));
        let mut kept = vec![0; bytes.len()];
        file.as_file().read_exact_at(&mut kept, offset).expect("there");
        assert_eq!(kept, bytes);
        make(&file, &Options { overwrite: true, ..options() }).expect("created").close().expect("sound");
        assert!(refusal(make(&file, &options())).contains("an Eyrie volume on it"));
        assert!(reopen(&file).is_ok());
    }
}

#[test]
fn a_volume_over_an_old_one_sees_nothing_of_it() {
    let file = device(BYTES);
    file.as_file().write_all_at(&vec![0xa5; BYTES as usize], 0).expect("room");
    let options = Options { overwrite: true, ..options() };
    let first = make(&file, &options).expect("created").volume_id();
    // The volume was not closed, so the device is in the state after a killed process.
    let (volume, opened) = reopen(&file).expect("a volume");
    assert_eq!((volume.volume_id(), opened), (first, Opened::Crashed));
    drop(volume);
    let second = Options::random(crate::Time::new(1, 0)).expect("random bytes").volume_id;
    make(&file, &Options { volume_id: second, ..options }).expect("created");
    assert_eq!(reopen(&file).expect("a volume").0.volume_id(), second);
}

#[test]
fn no_journal_is_replayed_over_something_else() {
    let file = device(BYTES);
    let volume = make(&file, &options()).expect("created");
    let gate = volume.medium().enter().expect("sound");
    volume.space().allocate_header().expect("empty");
    drop(gate);
    volume.medium().drain().expect("a record in the journal");
    drop(volume);
    file.as_file().write_all_at(&[7; 2 * PAGE_SIZE as usize], 0).expect("room");
    assert!(refusal(reopen(&file)).contains("not an Eyrie volume"));
    let mut start = [0; 2 * PAGE_SIZE as usize];
    file.as_file().read_exact_at(&mut start, 0).expect("there");
    assert!(start.iter().all(|&byte| byte == 7), "the new contents of the device are whole");
}

#[test]
fn truncated_device_is_refused() {
    let file = device(BYTES);
    make(&file, &options()).expect("created").close().expect("sound");
    file.as_file().set_len(BYTES - PAGE_SIZE).expect("shorter");
    assert!(refusal(reopen(&file)).contains("truncated volume: it takes 16777216 bytes"));
}

fn resize(file: &NamedTempFile, bytes: Option<u64>) -> Result<u64> {
    let (volume, opened) = reopen(file)?;
    assert_eq!(opened, Opened::Clean);
    let volume = Volume { hold: Some(Hold::Device(file.reopen().expect("a file"))), ..volume };
    let (mut volume, _) = volume.resize(Path::new("here"), bytes, PagedOptions::for_host())?;
    // The resize has opened the volume again, and its free storage is not known yet. The volume has no
    // objects, so only its own tables are in use.
    let marks = volume.marks();
    volume.adopt(&marks);
    let bytes = volume.geometry().volume_bytes();
    volume.close()?;
    Ok(bytes)
}

#[test]
fn a_device_changes_its_size_under_a_volume() {
    let file = device(BYTES);
    let volume = make(&file, &options()).expect("created");
    let full = volume.geometry().volume_bytes();
    let half = full / 2 / PAGE_SIZE * PAGE_SIZE;
    volume.close().expect("sound");
    let what = refusal(resize(&file, Some(full + PAGE_SIZE)));
    assert!(what.contains(&format!("its device has room for {full} bytes")), "{what}");
    assert_eq!(resize(&file, None).expect("sound"), full);

    file.as_file().set_len(2 * BYTES).expect("room");
    let larger = resize(&file, None).expect("sound");
    // The journal grows too, but takes less than 1/16 of the added bytes.
    assert!(larger > full + BYTES / 16 * 15, "{larger}");
    assert_eq!(resize(&file, Some(full)).expect("sound"), full);
    assert_eq!(resize(&file, Some(half)).expect("sound"), half);

    let (volume, _) = reopen(&file).expect("a volume");
    let taken = volume.medium().disk_bytes().expect("a disk");
    assert_eq!(taken, Medium::paged_bytes(half, false));
    volume.close().expect("sound");
    file.as_file().set_len(taken).expect("shorter");
    reopen(&file).expect("a volume").0.close().expect("sound");
    file.as_file().set_len(taken - 1).expect("shorter");
    assert!(refusal(reopen(&file)).contains("truncated volume"));
}

#[test]
fn device_refuses_other_media_and_sizes() {
    for medium in [MediumChoice::Dram, MediumChoice::Pmem] {
        let what = refusal(make(&device(BYTES), &Options { medium, ..options() }));
        assert!(what.contains("must have the medium paged"), "{what}");
    }
    make(&device(BYTES), &Options { medium: MediumChoice::Paged, ..options() }).expect("created");
    let sized = HostPlace::Device(Path::new("any")).create(Some(BYTES), &options(), |_, _| Ok(()));
    assert!(refusal(sized).contains("fills its block device"));
}

#[test]
fn a_device_that_another_holds_is_in_use() {
    let file = NamedTempFile::new().expect("a file");
    let held = device::lock_device(file.path(), Sharing::Exclusive).expect("free");
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        assert!(refusal(device::lock_device(file.path(), sharing)).contains("in use"));
    }
    drop(held);
    device::lock_device(file.path(), Sharing::Exclusive).expect("free again");
}

#[test]
fn readers_share_a_device_and_change_nothing() {
    let file = device(BYTES);
    make(&file, &options()).expect("created").close().expect("sound");
    let before = std::fs::read(file.path()).expect("there");
    let open = || Volume::open_copy_at(HostPlace::Device(file.path()), PagedOptions::for_host());
    let [first, second] = [open(), open()].map(|opened| opened.expect("shared").0);
    assert!(refusal(device::lock_device(file.path(), Sharing::Exclusive)).contains("in use"));
    drop((first, second));
    assert!(std::fs::read(file.path()).expect("there") == before, "a reader has changed the device");
    device::lock_device(file.path(), Sharing::Exclusive).expect("free again");
}
