//! Tests of volumes in directories of the host.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use eyrie_medium::{MediumKind, PagedOptions};

use crate::volume::{MediumChoice, Opened, Options, Volume};
use crate::{Result, Time};

const SEGMENT_FILE: &str = "segment-0000";
const LOCK: &str = "lock";

const BYTES: u64 = 2 << 20;

fn options() -> Options {
    Options {
        group_bytes: 1 << 18,
        medium: MediumChoice::Dram,
        ..Options::random(Time::new(0, 0)).expect("random bytes")
    }
}

fn refusal<T>(result: Result<T>) -> String {
    result.err().expect("refused").to_string()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn a_volume_is_created_closed_and_opened() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("v");
    let volume = Volume::create(&path, Some(BYTES), &options()).expect("created");
    assert_eq!((mode(&path), mode(&path.join(SEGMENT_FILE)), mode(&path.join(LOCK))), (0o700, 0o600, 0o600));
    let id = volume.volume_id();
    let extent = volume.space().allocate(100).expect("empty");
    volume.close().expect("sound");
    let (volume, opened) = Volume::open(&path, PagedOptions::for_host()).expect("a volume");
    assert_eq!((opened, volume.volume_id()), (Opened::Clean, id));
    assert_ne!(volume.space().allocate(100).expect("room"), extent);
    drop(volume);
    assert_eq!(Volume::open(&path, PagedOptions::for_host()).expect("a volume").1, Opened::Crashed);
}

#[test]
fn volume_keeps_its_medium() {
    let parent = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let path = parent.path().join("v");
    let choose = |medium| Volume::create(&path, Some(BYTES), &Options { medium, ..options() });
    assert!(refusal(choose(MediumChoice::Pmem)).contains("refuses MAP_SYNC"));
    assert!(!path.exists());
    for (choice, kind) in [
        (MediumChoice::Auto, MediumKind::Dram),
        (MediumChoice::Dram, MediumKind::Dram),
        (MediumChoice::Paged, MediumKind::Paged),
    ] {
        choose(choice).expect("created").close().expect("sound");
        let (volume, _) = Volume::open(&path, PagedOptions::for_host()).expect("a volume");
        assert_eq!(volume.medium().kind(), kind);
        fs::remove_dir_all(&path).expect("closed");
    }

    // This volume records that it was made on persistent memory, but its file is an ordinary file. The error
    // must name the missing ability of the host.
    fs::create_dir(&path).expect("a directory");
    let segment = path.join(SEGMENT_FILE);
    let file = File::options().read(true).write(true).create_new(true).open(segment).expect("a file");
    file.set_len(BYTES).expect("room");
    let (medium, _) = eyrie_faults::pmem_anywhere(file, BYTES).expect("mapped");
    drop(Volume::create_on(medium, &options()).expect("created"));
    let what = refusal(Volume::open(&path, PagedOptions::for_host()));
    assert!(what.contains("made on persistent memory") && what.contains("-o dax"), "{what}");
}

#[test]
fn refused_create_names_obstacle_and_leaves_nothing() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("v");
    assert!(refusal(Volume::create(&path, Some(4096), &options())).contains("too small"));
    assert!(refusal(Volume::create(&path, Some(BYTES + 1), &options())).contains("multiple of 4096"));
    assert!(refusal(Volume::create(&path.join("w"), Some(BYTES), &options())).contains("No such file"));
    assert!(refusal(Volume::open(&path, PagedOptions::for_host())).contains("No such file"));
    assert!(!path.exists());

    fs::write(&path, "x").expect("a file");
    let what = refusal(Volume::create(&path, Some(BYTES), &options()));
    assert!(what.contains("exists already, but its entries cannot be read: Not a directory"), "{what}");
    assert!(refusal(Volume::open(&path, PagedOptions::for_host())).contains("a volume is a directory or"));
    fs::remove_file(&path).expect("a file");

    fs::create_dir(&path).expect("a directory");
    assert!(refusal(Volume::open(&path, PagedOptions::for_host())).contains("no segment-0000"));
    assert!(!path.join(LOCK).exists(), "a refused open makes no file");
    drop(Volume::create(&path, Some(BYTES), &options()).expect("an empty directory will do"));
    assert!(refusal(Volume::create(&path, Some(BYTES), &options())).contains("not empty"));

    let segment = OpenOptions::new().write(true).open(path.join(SEGMENT_FILE)).expect("a segment");
    segment.set_len(BYTES / 2).expect("shorter");
    let what = refusal(Volume::open(&path, PagedOptions::for_host()));
    assert!(what.contains("1048576") && what.contains("2097152"), "{what}");
    segment.set_len(100).expect("shorter");
    assert!(refusal(Volume::open(&path, PagedOptions::for_host())).contains("only 100 bytes"));
}
