//! Tests that calls on volumes and on files in volumes give the promised errors, and change nothing or
//! exactly the promised part.

use std::fs;
use std::path::{Path, PathBuf};

use eyrie::{
    Credentials, Errno, Error, FallocateMode, Files, Kind, MediumChoice, Posix, PosixExt, Result, Volume,
    Whence, XattrMode,
};

use crate::side_by_side;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A directory for volumes, and the path of one volume in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = place.path().join("vol");
    (place, path)
}

/// Returns the errno of an error that must have the path of its volume.
#[track_caller]
fn errno_at<T>(path: &Path, result: Result<T>) -> Errno {
    let error: Error = result.err().expect("an error");
    assert_eq!(error.path(), Some(path), "{error}");
    error.errno()
}

fn root(volume: &Volume) -> Files {
    volume.files(Credentials::root())
}

#[test]
fn volumes_that_cannot_be_made_or_opened_give_the_promised_errors() {
    let _side_by_side = side_by_side();
    let (place, path) = place();
    let create = |path: &Path, bytes| Volume::create(path, bytes);
    assert_eq!(errno_at(&path, Volume::open(&path)), Errno::NOENT);
    let missing = path.join("vol");
    assert_eq!(errno_at(&missing, create(&missing, MIB)), Errno::NOENT);
    for bytes in [0, MIB - 4096, MIB + 1, (1 << 40) + 4096, u64::MAX] {
        assert_eq!(errno_at(&path, create(&path, bytes)), Errno::INVAL, "{bytes}");
        assert!(!path.exists(), "{bytes}");
    }
    let odd_groups = Volume::options().size(MIB).group_size(3 << 16);
    assert_eq!(errno_at(&path, odd_groups.create(&path)), Errno::INVAL);
    let file = place.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(errno_at(&file, Volume::open(&file)), Errno::NOTDIR);
    assert_eq!(errno_at(&file, create(&file, MIB)), Errno::NOTDIR);
    assert_eq!(errno_at(&file, Volume::from_image(&file, &[0; 4096])), Errno::NOTDIR);
    assert_eq!(errno_at(place.path(), create(place.path(), MIB)), Errno::EXIST);
    assert_eq!(errno_at(place.path(), Volume::from_image(place.path(), &[0; 4096])), Errno::EXIST);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "a volume that was not made leaves nothing");
    Volume::from_image(&path, &[0; 65_536]).unwrap();
    assert_eq!(errno_at(&path, Volume::open(&path)), Errno::INVAL, "no superblock can be recognised");
    fs::remove_dir_all(&path).unwrap();

    let volume = create(&path, MIB).unwrap();
    let text = Volume::open(&path).expect_err("in use").to_string();
    assert_eq!(
        text.matches(&path.display().to_string()).count(),
        1,
        "the message names the volume once: {text}"
    );
    assert_eq!(errno_at(&path, Volume::open(&path)), Errno::BUSY);
    assert_eq!(errno_at(&path, Volume::resize(&path, 2 * MIB)), Errno::BUSY);
    assert_eq!(errno_at(&path, Volume::inspect(&path, eyrie::PagedOptions::for_host())), Errno::BUSY);
    let files = root(&volume);
    assert_eq!(errno_at(&path, volume.close().map_err(Error::from)), Errno::BUSY);
    drop(files);
    Volume::open(&path).unwrap().close().unwrap();
    assert!(!Volume::open(&path).unwrap().information().recovered, "the drop of the files has saved it");
    fs::File::options().write(true).open(path.join("segment-0000")).unwrap().set_len(MIB - 4096).unwrap();
    assert_eq!(errno_at(&path, Volume::open(&path)), Errno::IO, "the volume is truncated");
}

#[test]
fn volume_grows_to_the_size_fixed_by_its_first_size() {
    let _side_by_side = side_by_side();
    let (_place, path) = place();
    for (first, most) in [(MIB, 2 * GIB), (128 * MIB + 4096, 4 * GIB)] {
        Volume::create(&path, first).unwrap().close().unwrap();
        for (size, is) in
            [(most, most), (most + 4096, most), (2 * MIB + 1, most), (2 * MIB, 2 * MIB), (most, most)]
        {
            let resized = Volume::resize(&path, size);
            match size == is {
                true => resized.unwrap(),
                false => assert_eq!(errno_at(&path, resized), Errno::INVAL, "{size}"),
            }
            let volume = Volume::open(&path).unwrap();
            let information = volume.information();
            assert_eq!((information.size_bytes, information.most_bytes), (is, most), "{first} {size}");
            volume.close().unwrap();
        }
        assert_eq!(errno_at(&path, Volume::resize(&path, MIB - 4096)), Errno::INVAL);
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn regression_volume_with_a_short_last_group_grows() {
    let _side_by_side = side_by_side();
    for medium in [MediumChoice::Dram, MediumChoice::Paged] {
        // A whole group has 64 MiB, and the host provides memory in steps of 256 KiB.
        for first in [MIB, MIB + (64 << 10), 100 * MIB, 128 * MIB] {
            let (_place, path) = place();
            let volume = Volume::options().size(first).medium(medium).create(&path).unwrap();
            root(&volume).write("/file", vec![7; 100_000]).unwrap();
            volume.close().unwrap();
            Volume::resize(&path, 200 * MIB).unwrap();
            let volume = Volume::open(&path).unwrap();
            assert_eq!(volume.information().size_bytes, 200 * MIB, "{medium:?} {first}");
            let files = root(&volume);
            files.write("/large", vec![1; 16 << 20]).unwrap();
            assert_eq!(files.read("/file").unwrap(), [7; 100_000], "{medium:?} {first}");
            assert_eq!(volume.check().unwrap().findings, [""; 0], "{medium:?} {first}");
        }
    }
}

#[test]
fn write_of_a_file_that_does_not_fit_leaves_it_empty() {
    let _side_by_side = side_by_side();
    let (_place, path) = place();
    let volume = Volume::create(&path, 8 * MIB).unwrap();
    let (files, large) = (root(&volume), vec![1; 16 << 20]);
    files.write("/old", "contents").unwrap();
    for name in ["/old", "/new"] {
        let error = files.write(name, &large).unwrap_err();
        assert_eq!((error.errno(), error.path()), (Errno::NOSPC, Some(Path::new(name))));
        assert_eq!(files.metadata(name).unwrap().size, 0, "the first of the two steps stays done");
    }
    let store = volume.store("/", Credentials::root()).unwrap();
    store.put("key", "contents").unwrap();
    assert_eq!(store.put("key", &large).unwrap_err().errno(), Errno::NOSPC);
    assert_eq!(store.get("key").unwrap().unwrap(), b"contents", "a put has one step");
}

#[test]
fn calls_on_the_wrong_kind_of_file_of_a_volume_fail_as_promised() {
    let _side_by_side = side_by_side();
    let (_place, path) = place();
    let volume = Volume::create(&path, 8 * MIB).unwrap();
    let files = root(&volume);
    files.create_dir("/dir").unwrap();
    files.write("/file", "x").unwrap();
    files.mknod("/pipe".into(), Kind::Fifo, 0o666, 0).unwrap();
    let dir = files.options().read(true).directory(true).open("/dir").unwrap();
    let file = files.options().read(true).write(true).open("/file").unwrap();
    let errno = |error: Error| error.errno();
    assert_eq!(dir.read_at(&mut [0], 0).map_err(errno), Err(Errno::ISDIR));
    assert_eq!(dir.read_at(&mut [], 0).map_err(errno), Err(Errno::ISDIR));
    assert_eq!(files.seek(dir.handle(), 0, Whence::Hole).map_err(errno), Err(Errno::INVAL));
    assert_eq!(files.list(file.handle(), 0, &mut |_| true).map_err(errno), Err(Errno::NOTDIR));
    let inside = files.stat((file.handle(), "inside").into());
    assert_eq!(inside.map(drop).map_err(errno), Err(Errno::NOTDIR));
    let largest = i64::MAX as u64;
    file.set_len(largest).unwrap();
    assert_eq!(file.append(b"x").map_err(errno), Err(Errno::FBIG));
    let insert = file.fallocate(FallocateMode::InsertRange, 4096, 4096);
    assert_eq!(insert.map_err(errno), Err(Errno::FBIG));
    file.set_len(largest - 1).unwrap();
    assert_eq!(file.append(b"xy").unwrap(), 1);
    let store = volume.store("/", Credentials::root()).unwrap();
    for (key, expected) in [("pipe", Errno::INVAL), ("dir", Errno::ISDIR), ("file", Errno::FBIG)] {
        assert_eq!(store.get(key).map_err(errno), Err(expected), "{key}");
    }
    for (key, expected) in [("pipe", Errno::INVAL), ("dir", Errno::ISDIR)] {
        assert_eq!(store.put(key, "1").map_err(errno), Err(expected), "{key}");
        assert_eq!(store.erase(key).map_err(errno), Err(expected), "{key}");
    }
    let error = files.setxattr("/file".into(), b"user.none", b"", XattrMode::Replace).unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::NODATA, None), "calls of `Posix` do not keep the path");
    let io = std::io::Error::from(error);
    assert_eq!(io.raw_os_error(), Some(Errno::NODATA.raw_os_error()));
}
