//! Tests of the flags of opens.

use std::fs;
use std::path::Path;
use std::time::Duration;

use eyrie::posix::{Access, PathAt, Posix, SetTime, Whence};
use eyrie::{
    Credentials, Errno, FallocateMode, File, Files, Host, Kind, MediumChoice, OpenFlags, OpenOptions,
    PagedOptions, PosixExt, Target, Volume, XattrMode,
};

use crate::{copy_of_now, errno, side_by_side, small_volume};

/// Creates a volume on a disk that writes nothing before a sync.
fn volume_on_a_disk(path: &Path) -> Volume {
    let never = PagedOptions::new(64 << 20, Duration::from_secs(3600));
    Volume::options().size(8 << 20).medium(MediumChoice::Paged).paged(never).create(path).unwrap()
}

#[test]
fn fsync_of_a_file_keeps_its_name_and_of_a_directory_its_entries() {
    let _side_by_side = side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("vol");
    let volume = volume_on_a_disk(&path);
    let files = volume.files(Credentials::root());
    files.create_dir("/dir").unwrap();
    files.write("/dir/old", "old").unwrap();
    volume.sync().unwrap();
    let read = |name: &str| {
        let volume = copy_of_now(&path, place.path());
        let bytes = volume.files(Credentials::root()).read(name);
        bytes.map_err(|error| error.errno())
    };

    let file = files.options().write(true).create_new(true).open("/dir/new").unwrap();
    file.write_all_at(b"bytes", 0).unwrap();
    assert_eq!(read("/dir/new"), Err(Errno::NOENT), "no fsync");
    file.sync_all().unwrap();
    assert_eq!(read("/dir/new"), Ok(b"bytes".to_vec()));

    let dir = files.options().read(true).open("/dir").unwrap();
    files.rename("/dir/old", "/dir/moved").unwrap();
    files.remove_file("/dir/new").unwrap();
    assert_eq!(read("/dir/old"), Ok(b"old".to_vec()), "no fsync");
    dir.sync_all().unwrap();
    assert_eq!(read("/dir/moved"), Ok(b"old".to_vec()));
    assert_eq!([read("/dir/old"), read("/dir/new")], [Err(Errno::NOENT), Err(Errno::NOENT)]);
}

#[test]
fn synchronous_writes_are_durable_when_they_return() {
    let _side_by_side = side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("vol");
    let volume = volume_on_a_disk(&path);
    let files = volume.files(Credentials::root());
    let log = || copy_of_now(&path, place.path()).files(Credentials::root()).read("/log").unwrap();
    files.write("/log", "").unwrap();
    volume.sync().unwrap();
    type Opening = fn(OpenOptions<Files>) -> OpenOptions<Files>;
    let openings: [Opening; 2] = [|options| options.sync(true), |options| options.data_sync(true)];
    let mut expected = Vec::new();
    for opening in openings {
        let drains = || volume.stats().disk.unwrap().drains;
        let file = opening(files.options().write(true)).open("/log").unwrap();
        file.write_all_at(b"at an offset ", expected.len() as u64).unwrap();
        expected.extend(b"at an offset ");
        assert_eq!(log(), expected);
        assert_eq!(files.append(file.handle(), b"by a call ").unwrap(), 10);
        expected.extend(b"by a call ");
        assert_eq!(log(), expected);
        let before = drains();
        assert_eq!(files.write_at(file.handle(), b"", 0).unwrap(), 0);
        assert_eq!(drains(), before, "a write of no bytes has nothing to make durable");

        let file = opening(files.options().append(true)).open("/log").unwrap();
        file.write_all_at(b"at the end ", 0).unwrap();
        expected.extend(b"at the end ");
        assert_eq!(log(), expected);

        let file = files.options().append(true).open("/log").unwrap();
        file.write_all_at(b"later ", 0).unwrap();
        assert_eq!(log(), expected, "no flag, and no sync");
        expected.extend(b"later ");
    }
}

/// Opens objects of several kinds with `PATH`. Checks calls for which such a handle serves, and calls that
/// refuse it.
fn opens_of_paths<P: Posix + Clone>(fs: &P) {
    fs.create_dir("/nest").unwrap();
    fs.write("/nest/egg", "blue").unwrap();
    fs.symlink("egg".as_ref(), "/nest/link".into()).unwrap();
    fs.mknod("/nest/pipe".into(), Kind::Fifo, 0, 0).unwrap();
    fs.set_mode("/nest/egg", 0).unwrap();

    let open = |path: &str, flags| fs.open(path.into(), OpenFlags::PATH | flags, 0);
    let kinds = [
        ("/nest", OpenFlags::DIRECTORY, Kind::Directory),
        ("/nest/egg", OpenFlags::WRITE | OpenFlags::TRUNCATE, Kind::File),
        ("/nest/link", OpenFlags::CREATE, Kind::File),
        ("/nest/link", OpenFlags::NOFOLLOW, Kind::Symlink),
        ("/nest/pipe", OpenFlags::READ, Kind::Fifo),
    ];
    for (path, flags, kind) in kinds {
        let handle = open(path, flags).unwrap();
        assert_eq!(fs.stat(Target::Open(&handle)).unwrap().kind, kind);
        assert_eq!(errno(fs.access(Target::Open(&handle), Access::empty())), None);
        match fs.readlink(Target::Open(&handle)) {
            Ok(target) => assert_eq!((kind, &target[..]), (Kind::Symlink, &b"egg"[..])),
            refused => assert_eq!(errno(refused), Some(Errno::NOENT), "{path}"),
        }
        let open = || Target::Open(&handle);
        let refused = [
            errno(fs.read_at(&handle, &mut [0], 0)),
            errno(fs.write_at(&handle, b"x", 0)),
            errno(fs.append(&handle, b"x")),
            errno(fs.truncate(open(), 0)),
            errno(fs.fallocate(&handle, FallocateMode::Allocate, 0, 1)),
            errno(fs.seek(&handle, 0, Whence::Data)),
            errno(fs.list(&handle, 0, &mut |_| true)),
            errno(fs.fsync(&handle)),
            errno(fs.fdatasync(&handle)),
            errno(fs.chmod(open(), 0o777)),
            errno(fs.chown(open(), Some(1), None)),
            errno(fs.utimens(open(), SetTime::Now, SetTime::Now)),
            errno(fs.getxattr(open(), b"user.a", &mut [])),
            errno(fs.listxattr(open(), &mut [])),
            errno(fs.setxattr(open(), b"user.a", b"x", XattrMode::Set)),
            errno(fs.removexattr(open(), b"user.a")),
        ];
        assert_eq!(refused, [Some(Errno::BADF); 16], "{path}");
        fs.close(handle).unwrap();
    }
    assert_eq!(fs.symlink_metadata("/nest/egg").unwrap().size, 4, "the flag to truncate has no effect");
    assert_eq!(errno(open("/nest/egg", OpenFlags::DIRECTORY)), Some(Errno::NOTDIR));
    assert_eq!(errno(open("/nest/other", OpenFlags::CREATE)), Some(Errno::NOENT));

    let nest = open("/nest", OpenFlags::empty()).unwrap();
    fs.link(Target::NoFollow((&nest, "egg").into()), (&nest, "same").into()).unwrap();
    let file = fs.open((&nest, "same").into(), OpenFlags::PATH, 0).unwrap();
    fs.unlink((&nest, "same").into()).unwrap();
    assert_eq!(fs.stat(Target::Open(&file)).unwrap().links, 1);
    assert_eq!(errno(fs.stat((&file, "x").into())), Some(Errno::NOTDIR), "no base of a path");
    let link = open("/nest/link", OpenFlags::NOFOLLOW).unwrap();
    fs.unlink((&nest, "link").into()).unwrap();
    assert_eq!(fs.readlink(Target::Open(&link)).unwrap(), b"egg", "a handle outlives the name");
    for handle in [nest, file, link] {
        fs.close(handle).unwrap();
    }
}

#[test]
fn handles_of_paths_name_objects_and_do_no_more() {
    let _side_by_side = side_by_side();
    let (place, volume) = small_volume();
    let files = volume.files(Credentials::root());
    opens_of_paths(&files);
    files.write("/secret", "x").unwrap();
    files.set_mode("/secret", 0o600).unwrap();
    let user = files.with_credentials(Credentials::new(1, 1, &[]));
    assert_eq!(errno(user.open_file("/secret")), Some(Errno::ACCESS));
    let secret: File<Files> = user.options().path_only(true).open("/secret").unwrap();
    assert_eq!(secret.metadata().unwrap().size, 1, "the open needs no right on the file");
    drop(secret);
    let host = place.path().join("host");
    fs::create_dir(&host).unwrap();
    opens_of_paths(&Host::new(host).unwrap());
}

#[test]
fn direct_opens_of_files_read_and_write_at_any_offset() {
    let _side_by_side = side_by_side();
    let place = tempfile::tempdir().unwrap();
    let volume = Volume::create(place.path().join("vol"), 8 << 20).unwrap();
    let files = volume.files(Credentials::root());
    let options = || files.options().read(true).direct(true);
    let file = options().write(true).create(true).open("/table").unwrap();
    file.write_all_at(b"rows", 3).unwrap();
    assert_eq!(files.read("/table").unwrap(), b"\0\0\0rows");
    assert_eq!(errno(options().open("/")), Some(Errno::INVAL), "only files have direct reads");
}

#[test]
fn regression_long_name_in_a_removed_directory_is_enoent() {
    let _tests = side_by_side();
    let (_place, volume) = small_volume();
    let files = volume.files(Credentials::root());
    files.create_dir("/dir").unwrap();
    let dir = files.open("/dir".into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0).unwrap();
    let long = "a".repeat(256);
    let below = format!("{long}/b");
    let errors = || {
        let at = |path| PathAt { dir: Some(&dir), path: Path::new(path) };
        [errno(files.mkdir(at(&long), 0o755)), errno(files.stat(Target::NoFollow(at(&below))))]
    };
    assert_eq!(errors(), [Some(Errno::NAMETOOLONG); 2]);
    files.remove_dir("/dir").unwrap();
    assert_eq!(errors(), [Some(Errno::NOENT); 2]);
    files.close(dir).unwrap();
}
