//! Tests of space: free space can be used, a full volume can be emptied, sizes change, and large files work.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use eyrie::{
    Credentials, Errno, FallocateMode, Files, MediumChoice, OpenFlags, Posix, PosixExt, Volume, Whence,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{alone, side_by_side};

pub const MEDIA: [MediumChoice; 2] = [MediumChoice::Dram, MediumChoice::Paged];

pub fn create(path: &Path, bytes: u64, medium: MediumChoice) -> Volume {
    Volume::options().size(bytes).group_size(4 << 20).medium(medium).create(path).expect("room")
}

/// Makes a new volume on each medium, one after another. The second value is the directory of the volume.
pub fn volumes(bytes: u64) -> impl Iterator<Item = (MediumChoice, tempfile::TempDir, Volume, Files)> {
    MEDIA.into_iter().map(move |medium| {
        let host = tempfile::tempdir().unwrap();
        let volume = create(&host.path().join("v"), bytes, medium);
        let files = volume.files(Credentials::root());
        (medium, host, volume, files)
    })
}

fn free_bytes(files: &Files) -> u64 {
    let space = files.statvfs("/".into()).expect("sound");
    space.blocks_free * space.block_size
}

/// Makes files of `bytes` bytes in directories until the volume is full. Returns the number of files that
/// fit.
fn fill(files: &Files, bytes: usize) -> usize {
    let data = vec![7; bytes];
    files.create_dir("/top").expect("room");
    for number in 0.. {
        let dir = format!("/top/d{}", number / 500);
        let file = format!("{dir}/file-{number}");
        let made = if number % 500 == 0 { files.create_dir(&dir) } else { Ok(()) };
        if let Err(error) = made.and_then(|()| files.write(&file, &data)) {
            assert_eq!(error.errno(), Errno::NOSPC, "{error}");
            return number;
        }
    }
    unreachable!("the volume never became full")
}

#[test]
fn free_space_can_be_used_to_the_end() {
    let _side_by_side = side_by_side();
    for medium in MEDIA {
        for bytes in [1024, 4096] {
            let host = tempfile::tempdir().unwrap();
            let volume = create(&host.path().join("v"), 64 << 20, medium);
            let files = volume.files(Credentials::root());
            let empty = volume.information();
            for _ in 0..2 {
                let count = fill(&files, bytes);
                let left = free_bytes(&files);
                assert!(
                    left < (64 << 20) / 50,
                    "{medium:?}: {left} bytes are left of {count} files of {bytes}"
                );
                files.remove_file("/top/d0/file-1").unwrap();
                files.create_file("/top/d0/file-2").unwrap();
                let last = files.options().write(true).open("/top/d1/file-501").unwrap();
                last.set_len(0).unwrap();
                drop(last);
                files.remove_dir_all("/top").unwrap();
                let information = volume.information();
                assert_eq!((information.free_bytes, information.objects), (empty.free_bytes, empty.objects));
            }
            assert_eq!(volume.check().unwrap().findings, [""; 0]);
        }
    }
}

#[test]
fn truncation_that_does_not_fit_changes_nothing() {
    // A pin of another test could delay the reuse of storage until after the volume was full.
    let _alone = alone();
    for (medium, _host, volume, files) in volumes(16 << 20) {
        let content: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
        files.write("/large", &content).unwrap();
        fill(&files, 4096);
        let file = files.options().write(true).open("/large").unwrap();
        match file.set_len(100) {
            // `fill` may leave a free extent of the size class that this call needs.
            Ok(()) => assert_eq!(files.read("/large").unwrap(), content[..100], "{medium:?}"),
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC, "{medium:?}");
                assert_eq!(files.read("/large").unwrap(), content, "{medium:?}");
            }
        }
        file.set_len(0).unwrap();
        drop((file, files));
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
    }
}

#[test]
fn allocated_range_can_be_written_in_a_full_volume() {
    let _side_by_side = side_by_side();
    for (_, _host, volume, files) in volumes(16 << 20) {
        let file = files.create_file("/reserved").unwrap();
        file.fallocate(FallocateMode::Allocate, 0, 1 << 20).unwrap();
        assert!(file.metadata().unwrap().allocated >= 1 << 20);
        fill(&files, 1024);
        for page in (0..256).rev() {
            file.write_all_at(&[page as u8; 4096], page * 4096).unwrap();
        }
        let content = files.read("/reserved").unwrap();
        assert!((0..256).all(|page| content[page << 12..][..4096] == [page as u8; 4096]));
        assert_eq!(
            file.fallocate(FallocateMode::Allocate, 1 << 20, 1 << 20).unwrap_err().errno(),
            Errno::NOSPC
        );
        file.fallocate(FallocateMode::PunchHole, 0, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().allocated, 0);
        drop(file);
        drop(files);
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
    }
}

#[test]
fn storage_past_the_end_stays_and_takes_appends_in_a_full_volume() {
    let _side_by_side = side_by_side();
    for (_, host, volume, files) in volumes(16 << 20) {
        let file = files.create_file("/ahead").unwrap();
        file.write_all_at(b"egg", 0).unwrap();
        file.fallocate(FallocateMode::KeepSize, 0, 1 << 20).unwrap();
        let stat = file.metadata().unwrap();
        assert_eq!((stat.size, stat.allocated), (3, 1 << 20));
        drop((file, files));
        volume.close().unwrap();
        let volume = Volume::open(host.path().join("v")).unwrap();
        let files = volume.files(Credentials::root());
        let file = files.options().read(true).append(true).open("/ahead").unwrap();
        fill(&files, 1024);
        let data: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        for part in data.chunks(1000) {
            file.append(part).unwrap();
        }
        assert!(files.read("/ahead").unwrap() == [b"egg", &data[..]].concat());
        let stat = file.metadata().unwrap();
        assert_eq!(stat.allocated, 1 << 20);
        file.set_len(stat.size).unwrap();
        assert_eq!(file.metadata().unwrap().allocated, stat.size.next_multiple_of(4096));
        drop((file, files));
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
    }
}

/// As on Linux, a call that must make a new entry reports an existing one before it looks for space.
#[test]
fn existing_entry_comes_before_a_full_volume() {
    // A pin of another test could delay the reuse of storage until after the volume was full.
    let _alone = alone();
    for (medium, _host, _volume, files) in volumes(8 << 20) {
        fill(&files, 0);
        let exclusive = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let large = "x".repeat(4000);
        let make = |path: &Path| {
            let made = [
                files.mkdir(path.into(), 0o755),
                files.open(path.into(), exclusive, 0o644).map(drop),
                files.symlink(Path::new(&large), path.into()),
            ];
            made.map(|made| made.err().map(|error| error.errno()))
        };
        let refused = |errno| [Some(errno); 3];
        assert_eq!(make(Path::new("/top")), refused(Errno::EXIST), "{medium:?}");
        // The last file of `fill` may have failed because its bucket had to split. Another bucket may then
        // still have room, so the test makes names until all three calls fail.
        let full = (0..1000).any(|number| {
            let made = make(format!("/top/new-{number}").as_ref());
            let expected = [None, Some(Errno::EXIST), Some(Errno::NOSPC)];
            assert!(made.iter().all(|errno| expected.contains(errno)), "{medium:?} {made:?}");
            made == refused(Errno::NOSPC)
        });
        assert!(full, "{medium:?}: the volume never became full");
        assert_eq!(make(Path::new("/top")), refused(Errno::EXIST), "{medium:?}");
    }
}

#[test]
fn allocation_that_does_not_fit_changes_nothing() {
    let _side_by_side = side_by_side();
    let host = tempfile::tempdir().unwrap();
    let volume = create(&host.path().join("v"), 16 << 20, MediumChoice::Dram);
    let files = volume.files(Credentials::root());
    let content: Vec<u8> = (0..50_000).map(|at| at as u8).collect();
    files.write("/file", &content).unwrap();
    let file = files.options().write(true).open("/file").unwrap();
    let (before, free) = (file.metadata().unwrap(), free_bytes(&files));
    let modes = [
        FallocateMode::Allocate,
        FallocateMode::KeepSize,
        FallocateMode::ZeroRange,
        FallocateMode::ZeroRangeKeepSize,
    ];
    for mode in modes {
        for length in [17 << 20, 1 << 40, i64::MAX as u64] {
            assert_eq!(
                file.fallocate(mode, 0, length).unwrap_err().errno(),
                Errno::NOSPC,
                "{mode:?} {length}"
            );
        }
        assert_eq!((file.metadata().unwrap(), free_bytes(&files)), (before, free));
    }
    assert_eq!(files.read("/file").unwrap(), content);
    // Allocating an allocated range takes no more space.
    file.fallocate(FallocateMode::Allocate, 0, 50_000).unwrap();
    assert_eq!(free_bytes(&files), free);
    drop(file);
    drop(files);
    assert_eq!(volume.check().unwrap().findings, [""; 0]);
}

#[test]
fn resize_keeps_the_contents() {
    let _side_by_side = side_by_side();
    for medium in MEDIA {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("v");
        let volume = create(&path, 8 << 20, medium);
        let files = volume.files(Credentials::root());
        fill(&files, 4096);
        drop(files);
        let error = Volume::resize(&path, 16 << 20).unwrap_err();
        assert_eq!(error.errno(), Errno::BUSY);
        volume.close().unwrap();

        let error = Volume::resize(&path, 4 << 20).unwrap_err();
        assert_eq!(error.errno(), Errno::INVAL);
        assert!(error.to_string().contains("nothing is moved"), "{error}");
        Volume::resize(&path, 32 << 20).unwrap();
        let volume = Volume::open(&path).unwrap();
        assert!(!volume.information().recovered);
        assert_eq!(volume.information().size_bytes, 32 << 20);
        let files = volume.files(Credentials::root());
        assert!(free_bytes(&files) > 23 << 20);
        assert_eq!(files.read("/top/d1/file-501").unwrap(), [7; 4096]);
        files.write("/large", vec![1; 12 << 20]).unwrap();
        files.remove_file("/large").unwrap();
        drop(files);
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
        volume.close().unwrap();

        Volume::resize(&path, 9 << 20).unwrap();
        let volume = Volume::open(&path).unwrap();
        let files = volume.files(Credentials::root());
        // The tables in front of the data take 20 pages.
        assert_eq!(files.statvfs("/".into()).unwrap().blocks * 4096, (9 << 20) - 20 * 4096);
        assert_eq!(files.read("/top/d1/file-501").unwrap(), [7; 4096]);
        assert_eq!(files.write("/large", vec![1; 2 << 20]).unwrap_err().errno(), Errno::NOSPC);
        drop(files);
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
    }
}

/// Returns the number of bytes that a volume takes on the host.
fn host_bytes(path: &Path) -> u64 {
    std::fs::metadata(path.join("segment-0000")).expect("there").blocks() * 512
}

#[test]
fn free_groups_return_to_the_host_and_are_reused() {
    let _side_by_side = side_by_side();
    for medium in MEDIA {
        let host = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = host.path().join("v");
        let volume = create(&path, 64 << 20, medium);
        let files = volume.files(Credentials::root());
        files.write("/kept", vec![5; 100 << 10]).unwrap();
        for _ in 0..3 {
            files.write("/large", vec![9; 48 << 20]).unwrap();
            let full = host_bytes(&path);
            files.remove_file("/large").unwrap();
            let trimmed = volume.trim().unwrap();
            // `/large` has 48 MiB, and a group has 4 MiB. A group that also holds other storage does not go
            // back.
            assert!(trimmed >= 40 << 20, "{medium:?}: {trimmed}");
            // Meanwhile a background thread can make the host provide up to two huge pages.
            let rest = full - trimmed;
            assert!((rest..=rest + (4 << 20)).contains(&host_bytes(&path)), "{medium:?}: {rest}");
            assert_eq!(files.read("/kept").unwrap(), vec![5; 100 << 10]);
        }
        files.write("/large", vec![8; 48 << 20]).unwrap();
        assert_eq!(files.read("/large").unwrap(), vec![8; 48 << 20]);
        files.remove_file("/large").unwrap();
        assert!(volume.trim().unwrap() >= 40 << 20);

        // A copy of the open volume has the contents that a kill would leave now, after the discards.
        let copy = host.path().join("copy");
        copy_volume(&path, &copy);
        let crashed = Volume::open(&copy).unwrap();
        assert!(crashed.information().recovered);
        let copied = crashed.files(Credentials::root());
        copied.write("/large", vec![7; 48 << 20]).unwrap();
        assert_eq!(copied.read("/kept").unwrap(), vec![5; 100 << 10]);
        assert_eq!(crashed.check().unwrap().findings, [""; 0]);
        drop((crashed, copied));

        files.write("/large", vec![6; 48 << 20]).unwrap();
        let full = host_bytes(&path);
        files.remove_file("/large").unwrap();
        drop(files);
        volume.close().unwrap();
        assert!(host_bytes(&path) < full - (40 << 20), "the close gives the free storage back");
        let volume = Volume::open(&path).unwrap();
        assert!(!volume.information().recovered);
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
        let files = volume.files(Credentials::root());
        files.write("/large", vec![6; 48 << 20]).unwrap();
        assert_eq!(files.read("/large").unwrap(), vec![6; 48 << 20]);
    }
}

fn copy_volume(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("new");
    for name in ["segment-0000", "lock"] {
        std::fs::copy(from.join(name), to.join(name)).expect("room");
    }
}

#[test]
fn file_larger_than_the_volume_is_sparse() {
    const END: u64 = 16 << 40;
    let _side_by_side = side_by_side();
    for (_, _host, volume, files) in volumes(16 << 20) {
        let file = files.options().read(true).write(true).create(true).open("/sparse").unwrap();
        file.set_len(END).unwrap();
        file.write_at(b"end", END - 3).unwrap();
        file.write_at(b"middle", END / 2).unwrap();
        assert_eq!(files.metadata("/sparse").unwrap().size, END);
        assert!(volume.information().used_bytes < 100 << 10, "{:?}", volume.information());
        let mut bytes = [1; 6];
        assert_eq!(file.read_at(&mut bytes, END - 6).unwrap(), 6);
        assert_eq!(&bytes, b"\0\0\0end");
        file.read_at(&mut bytes, END / 2).unwrap();
        assert_eq!(&bytes, b"middle");
        let handle = files.open("/sparse".into(), OpenFlags::READ, 0).unwrap();
        let seek = |offset, whence| files.seek(&handle, offset, whence).unwrap();
        assert_eq!(seek(0, Whence::Data), END / 2);
        assert_eq!(seek(END / 2, Whence::Hole), END / 2 + 4096);
        assert_eq!(seek(END / 2 + 4096, Whence::Data), END - 4096);
        assert_eq!(seek(END - 4096, Whence::Hole), END);
        file.set_len(3).unwrap();
        file.set_len(0).unwrap();
        drop((file, handle));
        assert_eq!(volume.check().unwrap().findings, [""; 0]);
    }
}

/// Returns the number of bytes of those pages of a file that have data.
fn data_bytes(files: &Files, path: &str) -> u64 {
    let handle = files.open(path.into(), OpenFlags::READ, 0).expect("sound");
    let (mut bytes, mut offset) = (0, 0);
    while let Ok(start) = files.seek(&handle, offset, Whence::Data) {
        offset = files.seek(&handle, start, Whence::Hole).expect("sound");
        bytes += offset.next_multiple_of(4096) - start / 4096 * 4096;
    }
    bytes
}

#[test]
fn sparse_file_takes_the_space_of_its_data() {
    const END: u64 = 1 << 30;
    let _side_by_side = side_by_side();
    for (medium, _host, _volume, files) in volumes(64 << 20) {
        let mut random = SmallRng::seed_from_u64(1);
        for round in 0..500 {
            let path = format!("/{round}");
            let file = files.options().write(true).create(true).open(&path).unwrap();
            // The file is large enough for a tree, which has only whole pages.
            file.write_at(&[1; 20_000], 0).unwrap();
            for _ in 0..random.random_range(1..10) {
                let size = file.metadata().unwrap().size;
                match random.random_range(0..10) {
                    0 => file.set_len(random.random_range(20_000..END)).unwrap(),
                    1 => file.set_len(size + random.random_range(0..10_000)).unwrap(),
                    2 => file.set_len(size - random.random_range(0..size.min(9000))).unwrap(),
                    3 => drop(file.write_at(&[2; 5000], size + random.random_range(0..9000)).unwrap()),
                    _ => {
                        let offset = random.random_range(0..size + size / 4);
                        file.write_at(&vec![3; random.random_range(1..30_000)], offset).unwrap();
                    }
                }
                let stat = file.metadata().unwrap();
                if stat.size > 64 << 10 {
                    assert_eq!(stat.allocated, data_bytes(&files, &path), "{medium:?}, {path}: {stat:?}");
                }
            }
            files.unlink((&path).into()).unwrap();
        }
    }
}

#[test]
fn space_of_large_sparse_file_is_estimated_within_limits() {
    const STEP: u64 = 2 << 20;
    let _side_by_side = side_by_side();
    let host = tempfile::tempdir().unwrap();
    let volume = create(&host.path().join("v"), 64 << 20, MediumChoice::Dram);
    let files = volume.files(Credentials::root());
    let file = files.options().write(true).create(true).open("/file").unwrap();
    for number in 0..1000 {
        file.write_at(&[7; 4096], number * STEP).unwrap();
        if number % 50 > 0 {
            continue;
        }
        let stat = file.metadata().unwrap();
        let exact = (number + 1) * 4096;
        assert!((exact..=stat.size).contains(&stat.allocated), "{stat:?}");
        // Each write adds one page, and one node above that page. `stat` reads a limited number of nodes, and
        // counts every page below an unread node as allocated. So its result is exact only for a small tree.
        assert!(number > 250 || stat.allocated == exact, "{stat:?}");
    }
}

#[test]
fn large_directory_is_whole_after_a_crash() {
    const COUNT: usize = 100_000;
    let _side_by_side = side_by_side();
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("v");
    let volume = create(&path, 256 << 20, MediumChoice::Dram);
    let files = volume.files(Credentials::root());
    for number in 0..COUNT {
        files.write(format!("/{number}"), format!("{number}").as_bytes()).unwrap();
    }
    for number in (0..COUNT).step_by(3) {
        files.remove_file(format!("/{number}")).unwrap();
    }
    let copy = host.path().join("copy");
    copy_volume(&path, &copy);
    let crashed = Volume::open(&copy).unwrap();
    assert!(crashed.information().recovered);
    assert_eq!(crashed.information().objects, volume.information().objects);
    let files = crashed.files(Credentials::root());
    let mut seen: Vec<usize> = files
        .read_dir("/")
        .unwrap()
        .map(|entry| entry.unwrap().name().to_str().unwrap().parse().unwrap())
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..COUNT).filter(|number| number % 3 != 0)));
    assert_eq!(files.read("/99998").unwrap(), b"99998");
    drop(files);
    assert_eq!(crashed.check().unwrap().findings, [""; 0]);
}

#[test]
fn regression_a_file_that_ends_inside_its_last_large_piece_grows() {
    let _side_by_side = side_by_side();
    let place = tempfile::tempdir().expect("a directory");
    let volume = Volume::create(place.path().join("volume"), 16 << 20).expect("room");
    let files = volume.files(Credentials::root());
    for (name, size) in [("/short", 2_097_000), ("/page", (2 << 20) - 4096), ("/whole", 2 << 20)] {
        let file = files.options().read(true).write(true).create(true).open(name).expect("room");
        file.set_len(size).expect("sparse");
        file.fallocate(FallocateMode::KeepSize, 0, 2 << 20).expect("room");
        file.write_all_at(b"x", size).expect("room");
        file.set_len(3 << 20).expect("sparse");
        file.fallocate(FallocateMode::Allocate, 0, 3 << 20).expect("room");
        let mut bytes = vec![1; 3 << 20];
        file.read_exact_at(&mut bytes, 0).expect("sound");
        assert_eq!(bytes.iter().position(|&byte| byte != 0), Some(size as usize), "{name}");
    }
}

#[test]
fn stepwise_allocation_that_does_not_fit_changes_nothing() {
    let _side_by_side = side_by_side();
    let place = tempfile::tempdir().expect("a directory");
    let volume = Volume::create(place.path().join("volume"), 256 << 20).expect("room");
    let files = volume.files(Credentials::root());
    let file = files.options().read(true).write(true).create(true).open("/file").expect("room");
    for length in [300 << 20, 1 << 40, i64::MAX as u64] {
        let refused = file.fallocate(FallocateMode::Allocate, 0, length).expect_err("too much");
        assert_eq!((refused.errno(), files.stat("/file".into()).expect("there").size), (Errno::NOSPC, 0));
    }
    file.fallocate(FallocateMode::Allocate, 0, 150 << 20).expect("three steps");
    assert_eq!(files.stat("/file".into()).expect("there").size, 150 << 20);
}

#[test]
fn long_allocation_keeps_the_steps_before_an_error() {
    const MIB: u64 = 1 << 20;
    let _side_by_side = side_by_side();
    let place = tempfile::tempdir().expect("a directory");
    let volume = Volume::create(place.path().join("volume"), 256 * MIB).expect("room");
    let files = volume.files(Credentials::root());
    let file = files.options().read(true).write(true).create(true).open("/file").expect("room");
    file.fallocate(FallocateMode::Allocate, 0, 100 * MIB).expect("room");
    let refused = file.fallocate(FallocateMode::Allocate, 100 * MIB, 200 * MIB).expect_err("too much");
    let steps = files.stat("/file".into()).expect("there").size - 100 * MIB;
    assert_eq!((refused.errno(), steps), (Errno::NOSPC, 128 * MIB), "two steps of 64 MiB fit");
    drop(file);
    drop(files);
    assert_eq!(volume.check().expect("sound").findings, [""; 0]);
}
