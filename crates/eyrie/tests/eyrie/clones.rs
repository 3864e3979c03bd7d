//! Tests of files that share extents: rights, errors, space, attributes, and what survives.

use std::path::Path;

use eyrie::{
    Credentials, Errno, FallocateMode, File, Files, InodeFlags, OpenFlags, Posix, PosixClones, PosixExt,
    QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable, Whence, XattrMode,
};

use crate::space::volumes;
use crate::{alone, errno, side_by_side};

const PAGE: u64 = 4096;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 4096) as u8 | 1).collect()
}

fn used(files: &Files) -> u64 {
    // The statistics count retired storage as free.
    let space = files.statvfs("/".into()).unwrap();
    (space.blocks - space.blocks_free) * space.block_size
}

fn open(files: &Files, path: &str, flags: OpenFlags) -> File<Files> {
    let handle = files.open(path.into(), flags, 0).unwrap();
    File::from_handle(files.clone(), handle, false)
}

#[test]
fn clone_takes_no_space_and_a_changed_page_takes_one() {
    let _tests = side_by_side();
    for (medium, _host, volume, files) in volumes(64 << 20) {
        let empty = used(&files);
        let data = bytes(5 << 20);
        // The second write makes the file a tree. Its second 2 MiB are one leaf, and the rest are pages.
        files.write("/source", &data).unwrap();
        open(&files, "/source", OpenFlags::WRITE).write_all_at(&data[..100], 0).unwrap();
        let before = used(&files);
        files.reflink("/source", "/target").unwrap();
        let nodes = used(&files) - before;
        assert!(nodes <= 8 * PAGE, "{medium:?}: {nodes} bytes of nodes");
        let stats = ["/source", "/target"].map(|path| files.metadata(path).unwrap());
        assert_eq!((stats[0].size, stats[0].allocated), (stats[1].size, stats[1].allocated), "{medium:?}");
        assert_eq!(files.read("/target").unwrap(), data);

        let before = used(&files);
        let target = open(&files, "/target", OpenFlags::WRITE);
        target.write_all_at(b"twelve bytes", 3 * PAGE + 5).unwrap();
        assert_eq!(used(&files), before + PAGE, "{medium:?}");
        // One aligned word is stored in place only if no other file has the page.
        target.write_all_at(b"8 bytes!", 9 * PAGE).unwrap();
        assert_eq!(used(&files), before + 2 * PAGE, "{medium:?}");
        assert_eq!(files.read("/source").unwrap(), data);
        target.close().unwrap();

        files.remove_file("/source").unwrap();
        let kept = files.read("/target").unwrap();
        assert_eq!(&kept[3 * 4096 + 5..3 * 4096 + 17], b"twelve bytes");
        assert_eq!(kept[4 << 20..], data[4 << 20..]);
        files.remove_file("/target").unwrap();
        assert_eq!(used(&files), empty, "{medium:?}");
        assert!(volume.check().unwrap().is_clean());
    }
}

#[test]
fn copy_file_range_shares_pages_and_copies_the_rest() {
    let _tests = side_by_side();
    for (medium, _host, volume, files) in volumes(64 << 20) {
        let data = bytes(3_000_000);
        files.write("/source", &data).unwrap();
        let before = used(&files);
        assert_eq!(files.copy("/source", "/whole").unwrap(), data.len() as u64);
        assert!(used(&files) - before < 20 * PAGE, "{medium:?}");
        assert_eq!(files.read("/whole").unwrap(), data);

        // Both offsets have the same position within a page. So the first call copies up to the next page
        // boundary, and the later calls share pages.
        let (source, target) =
            (open(&files, "/source", OpenFlags::READ), files.create_file("/part").unwrap());
        let mut copied = 0;
        let mut calls = 0;
        while copied < 1_000_000 {
            let count = target.copy_range((&source, 1000 + copied), 5096 + copied, 1_000_000 - copied);
            copied += count.unwrap();
            calls += 1;
        }
        assert!(calls < 5, "{medium:?}: {calls} calls");
        let part = files.read("/part").unwrap();
        assert_eq!((&part[5096..], &part[..5096]), (&data[1000..1_001_000], &[0; 5096][..]));
        assert!(used(&files) - before < 40 * PAGE, "{medium:?}");
        // These offsets have different positions within a page, so all bytes are copied.
        assert_eq!(target.copy_range((&source, 0), 1, u64::MAX - 1).unwrap(), 1 << 20);
        assert_eq!(files.read("/part").unwrap()[1..(1 << 20) + 1], data[..1 << 20]);
        assert_eq!(target.copy_range((&source, 3_000_000), 0, 10).unwrap(), 0);
        assert!(volume.check().unwrap().is_clean());
    }
}

#[test]
fn reflink_and_copy_above_a_limit_leave_a_part_of_the_target() {
    let _tests = side_by_side();
    for (medium, _host, volume, files) in volumes(16 << 20) {
        let data = bytes(2 << 20);
        files.write("/source", &data).unwrap();
        files.set_mode("/source", 0o755).unwrap();
        files.set_mode("/", 0o777).unwrap();
        let mut table = QuotaTable::default();
        let bytes = QuotaLimit { hard: 3 << 19, ..QuotaLimit::default() };
        let ada = QuotaId { kind: QuotaKind::User, number: 1000 };
        table.set(ada, QuotaLimits { bytes, ..QuotaLimits::default() }).unwrap();
        files.set_quota_table(Some(&table)).unwrap();
        let user = files.with_credentials(Credentials::new(1000, 1000, &[]));
        for path in ["/clone", "/copy"] {
            user.write(path, "old").unwrap();
            user.set_mode(path, 0o600).unwrap();
        }
        let errors = [user.reflink("/source", "/clone"), user.copy("/source", "/copy").map(drop)];
        let wanted = [("/clone", 0), ("/copy", 1 << 20)];
        for ((path, length), error) in wanted.into_iter().zip(errors.map(Result::unwrap_err)) {
            assert_eq!((error.errno(), error.path()), (Errno::DQUOT, Some(Path::new(path))), "{medium:?}");
            assert!(user.read(path).unwrap() == data[..length], "{medium:?} {path}");
            assert_eq!(user.metadata(path).unwrap().mode, 0o600, "{medium:?} {path}");
        }
        assert!(volume.check().unwrap().is_clean());
    }
}

#[test]
fn clones_have_the_errors_of_linux() {
    let _tests = side_by_side();
    for (_, _host, _volume, files) in volumes(16 << 20) {
        files.write("/source", bytes(10_000)).unwrap();
        files.write("/target", bytes(20_000)).unwrap();
        let (source, target) =
            (open(&files, "/source", OpenFlags::READ), open(&files, "/target", OpenFlags::WRITE));
        let appending = open(&files, "/target", OpenFlags::WRITE | OpenFlags::APPEND);
        let both = open(&files, "/target", OpenFlags::READ | OpenFlags::WRITE);
        let dir = open(&files, "/", OpenFlags::READ);
        let ranges = [
            (target.clone_range((&target, 0), 0, PAGE), Some(Errno::BADF)),
            (source.clone_range((&source, 0), 0, PAGE), Some(Errno::BADF)),
            (appending.clone_range((&source, 0), 0, PAGE), Some(Errno::BADF)),
            (target.clone_range((&dir, 0), 0, PAGE), Some(Errno::ISDIR)),
            (target.clone_range((&source, 1), 0, PAGE), Some(Errno::INVAL)),
            (target.clone_range((&source, 0), 1, PAGE), Some(Errno::INVAL)),
            (target.clone_range((&source, 0), 0, 100), Some(Errno::INVAL)),
            (target.clone_range((&source, 0), 0, 3 * PAGE), Some(Errno::INVAL)),
            (target.clone_range((&source, 0), 0, 0), Some(Errno::INVAL)),
            (target.clone_range((&source, u64::MAX), 0, PAGE), Some(Errno::INVAL)),
            (target.clone_range((&source, 0), (1 << 63) - PAGE, PAGE), Some(Errno::INVAL)),
            (both.clone_range((&both, 0), PAGE, 2 * PAGE), Some(Errno::INVAL)),
            (target.clone_range((&source, 10_000), 0, 0), Some(Errno::INVAL)),
            (target.clone_range((&source, 0), 0, 2 * PAGE), None),
            (target.clone_range((&source, 8192), 16_384, 0), Some(Errno::INVAL)),
            (target.clone_range((&source, 8192), 20_480, 0), None),
        ];
        for (number, (result, expected)) in ranges.into_iter().enumerate() {
            // A range that begins at the end of the source is empty, so there is nothing to refuse.
            let expected = if number == 12 { None } else { expected };
            assert_eq!(errno(result), expected, "call {number}");
        }
        assert_eq!(files.metadata("/target").unwrap().size, 20_480 + 10_000 - 8192);
        assert_eq!(errno(both.copy_range((&both, 0), 10, 100)), Some(Errno::INVAL));
        assert_eq!(errno(target.copy_range((&target, 0), 0, 1)), Some(Errno::BADF));
        let most = i64::MAX as u64;
        for (from, to, length, expected) in [
            (0, 1, u64::MAX, Errno::OVERFLOW),
            (1, 0, u64::MAX, Errno::OVERFLOW),
            (0, most, 0, Errno::FBIG),
            (0, most + 1, 1, Errno::INVAL),
        ] {
            assert_eq!(errno(target.copy_range((&source, from), to, length)), Some(expected));
        }
        files.set_inode_flags(both.handle(), InodeFlags::IMMUTABLE).unwrap();
        assert_eq!(errno(target.clone_range((&source, 0), 0, PAGE)), Some(Errno::PERM));
        assert_eq!(errno(target.copy_range((&source, 0), 0, PAGE)), Some(Errno::PERM));
    }
}

#[test]
fn clone_of_more_than_a_gibibyte_is_whole_or_refused() {
    let _tests = side_by_side();
    const GIB: u64 = 1 << 30;
    for (medium, _host, volume, files) in volumes(32 << 20) {
        let (size, empty) = (3 * GIB + 10_000, used(&files));
        let create = |path| {
            files.create_file(path).unwrap();
            open(&files, path, OpenFlags::READ | OpenFlags::WRITE)
        };
        let (source, target) = (create("/source"), create("/target"));
        // Data at both ends of the file, at the ends of a step, and in the middle of a step.
        let places = [0, GIB - PAGE, GIB, GIB + 5_000_000, 3 * GIB - 5, size - 3000];
        let read = |file: &File<Files>, at: u64| {
            let mut part = [9; 3000];
            file.read_exact_at(&mut part, at).unwrap();
            part
        };
        for place in places {
            source.write_all_at(&bytes(3000)[..3000], place).unwrap();
        }
        target.write_all_at(&[1; 10_000], 0).unwrap();
        let is_unchanged = || {
            files.metadata("/target").unwrap().size == 10_000 && files.read("/target").unwrap() == [1; 10_000]
        };
        let pages = size.next_multiple_of(PAGE);
        let largest = (1 << 63) - PAGE;
        for (number, result) in [
            target.clone_range((&source, 0), 0, size + 1),
            target.clone_range((&source, 1), 0, 0),
            target.clone_range((&source, 0), 1, 0),
            target.clone_range((&source, 0), 0, 2 * GIB + 1),
            target.clone_range((&source, 0), largest - 2 * GIB, 0),
            target.clone_range((&source, 0), largest - 2 * GIB, 3 * GIB),
            source.clone_range((&source, 0), 2 * GIB, 0),
            source.clone_range((&source, 2 * GIB), 0, 2 * GIB + PAGE),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(errno(result), Some(Errno::INVAL), "{medium:?}, call {number}");
            assert!(is_unchanged() && files.metadata("/source").unwrap().size == size, "call {number}");
        }
        for to in [0, 7 * PAGE, 2 * GIB + PAGE] {
            target.clone_range((&source, 0), to, 0).unwrap();
            assert_eq!(files.metadata("/target").unwrap().size, to + size);
            assert!(places.iter().all(|&at| read(&target, to + at) == read(&source, at)), "{medium:?}, {to}");
            assert_eq!(read(&target, to + GIB / 2), [0; 3000]);
            target.set_len(10_000).unwrap();
        }
        source.clone_range((&source, 0), pages, 0).unwrap();
        assert!(places.iter().all(|&at| read(&source, pages + at) == read(&source, at)), "{medium:?}");
        assert!(volume.check().unwrap().is_clean());
        drop((source, target));
        files.remove_file("/source").unwrap();
        files.remove_file("/target").unwrap();
        assert_eq!(used(&files), empty, "{medium:?}");
    }
}

/// A clone within a file, of a range that ends inside a page, makes the step at the end of the range first.
/// This step moves the end of the file.
#[test]
fn clone_within_a_file_of_a_full_volume_fails_for_lack_of_space() {
    const GIB: u64 = 1 << 30;
    let _tests = alone();
    for (medium, _host, volume, files) in volumes(32 << 20) {
        files.create_file("/sparse").unwrap();
        let sparse = open(&files, "/sparse", OpenFlags::READ | OpenFlags::WRITE);
        // Each page that is written in the first GiB needs a node of its own. The pages at the end share one.
        for place in (0..GIB).step_by(2 << 20) {
            sparse.write_all_at(&bytes(4096), place).unwrap();
        }
        sparse.write_all_at(&bytes(5000), GIB).unwrap();
        files.write("/spare", bytes(400 << 10)).unwrap();
        let filler = files.options().append(true).create(true).open("/filler").unwrap();
        for part in [64 << 10, 4096] {
            while filler.append(&bytes(part)).is_ok() {}
        }
        files.remove_file("/spare").unwrap();
        // This write waits until the freed storage can be used again.
        files.write("/probe", bytes(64 << 10)).unwrap();
        assert_eq!(errno(sparse.clone_range((&sparse, 0), 2 * GIB, 0)), Some(Errno::NOSPC), "{medium:?}");
        assert_eq!(
            files.metadata("/sparse").unwrap().size,
            3 * GIB + 5000,
            "{medium:?}: the last step stays"
        );
        let mut end = [0; 5000];
        sparse.read_exact_at(&mut end, 3 * GIB).unwrap();
        assert_eq!(end[..], bytes(5000), "{medium:?}");
        assert!(volume.check().unwrap().is_clean(), "{medium:?}");
    }
}

#[test]
fn clone_changes_times_and_drops_rights_of_the_target() {
    let _tests = side_by_side();
    for (_, _host, volume, files) in volumes(16 << 20) {
        files.write("/source", bytes(10_000)).unwrap();
        files.write("/target", b"a program").unwrap();
        let capability = [&[0, 0, 0, 2][..], &[1; 16]].concat();
        files.setxattr("/target".into(), b"security.capability", &capability, XattrMode::Set).unwrap();
        files.chmod("/target".into(), 0o6777).unwrap();
        let before = files.metadata("/target").unwrap();
        let source = files.metadata("/source").unwrap();
        let user = volume.files(Credentials::new(5, 5, &[]));
        let target = open(&user, "/target", OpenFlags::WRITE);
        target.clone_range((&open(&user, "/source", OpenFlags::READ), 0), 0, 0).unwrap();
        let after = files.metadata("/target").unwrap();
        assert_eq!(after.mode, 0o777);
        assert!(after.modified > before.modified && after.changed > before.changed);
        let missing = files.getxattr("/target".into(), b"security.capability", &mut []);
        assert_eq!(errno(missing), Some(Errno::NODATA));
        assert_eq!(files.metadata("/source").unwrap().changed, source.changed);
    }
}

#[test]
fn holes_and_storage_past_the_end_are_not_shared() {
    let _tests = side_by_side();
    for (_, _host, volume, files) in volumes(16 << 20) {
        let source = files.create_file("/source").unwrap();
        source.write_all_at(&bytes(4096), 8192).unwrap();
        source.fallocate(FallocateMode::Allocate, 16_384, 8192).unwrap();
        source.fallocate(FallocateMode::KeepSize, 0, 1 << 20).unwrap();
        files.reflink("/source", "/target").unwrap();
        let (from, to) = (files.metadata("/source").unwrap(), files.metadata("/target").unwrap());
        assert_eq!((from.size, from.allocated), (24_576, 1 << 20));
        assert_eq!((to.size, to.allocated), (24_576, 4096));
        let target = open(&files, "/target", OpenFlags::READ);
        let seek = |from, whence| files.seek(target.handle(), from, whence).unwrap();
        assert_eq!((seek(0, Whence::Data), seek(8192, Whence::Hole)), (8192, 12_288));
        assert_eq!(files.read("/source").unwrap(), files.read("/target").unwrap());
        assert!(volume.check().unwrap().is_clean());
    }
}

#[test]
fn counts_survive_a_close() {
    let _tests = side_by_side();
    for (medium, host, volume, files) in volumes(16 << 20) {
        let (data, empty) = (bytes(100_000), used(&files));
        files.write("/source", &data).unwrap();
        for number in 0..5 {
            files.reflink("/source", format!("/clone-{number}")).unwrap();
        }
        drop(files);
        volume.close().unwrap();
        let volume = eyrie::Volume::open(host.path().join("v")).unwrap();
        assert!(volume.check().unwrap().is_clean(), "{medium:?}");
        let files = volume.files(Credentials::root());
        files.remove_file("/source").unwrap();
        for number in 0..4 {
            files.remove_file(format!("/clone-{number}")).unwrap();
            assert_eq!(files.read("/clone-4").unwrap(), data, "{medium:?}");
        }
        files.remove_file("/clone-4").unwrap();
        assert_eq!(used(&files), empty, "{medium:?}");
        assert!(volume.check().unwrap().is_clean(), "{medium:?}");
    }
}

#[test]
fn unshared_range_takes_its_space_at_once() {
    let _tests = side_by_side();
    for (medium, _host, volume, files) in volumes(16 << 20) {
        files.write("/source", bytes(100 * 4096)).unwrap();
        files.reflink("/source", "/target").unwrap();
        let target = open(&files, "/target", OpenFlags::WRITE);
        target.fallocate(FallocateMode::UnshareRange, 0, 100 * PAGE).unwrap();
        let before = used(&files);
        for page in 0..100 {
            target.write_all_at(b"changed", page * PAGE + 1).unwrap();
        }
        assert_eq!(used(&files), before, "{medium:?}");
        target.fallocate(FallocateMode::UnshareRangeKeepSize, 0, 200 * PAGE).unwrap();
        assert_eq!(files.metadata("/target").unwrap().size, 100 * PAGE);
        target.fallocate(FallocateMode::UnshareRange, 0, 200 * PAGE).unwrap();
        assert_eq!(files.metadata("/target").unwrap().size, 200 * PAGE);
        assert_eq!(files.read("/source").unwrap(), bytes(100 * 4096));
        assert!(volume.check().unwrap().is_clean());
    }
}

#[test]
fn threads_share_and_change_the_same_pages() {
    let _tests = side_by_side();
    for (medium, _host, volume, files) in volumes(64 << 20) {
        let (data, empty) = (bytes(40 * 4096), used(&files));
        files.write("/base", &data).unwrap();
        open(&files, "/base", OpenFlags::WRITE).write_all_at(&data[..100], 0).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (files, data) = (files.clone(), &data);
                scope.spawn(move || {
                    let own = format!("/own-{thread}");
                    for round in 0..200 {
                        files.reflink("/base", &own).unwrap();
                        let file = open(&files, &own, OpenFlags::READ | OpenFlags::WRITE);
                        let mut wanted = data.clone();
                        let at = (round * 7 + thread) % 39 * 4096 + round % 5 * 8;
                        file.write_all_at(&[thread as u8; 8], at as u64).unwrap();
                        wanted[at..at + 8].fill(thread as u8);
                        if round % 3 == 0 {
                            file.append(&[9; 5000]).unwrap();
                            wanted.extend([9; 5000]);
                        }
                        assert!(files.read(&own).unwrap() == wanted, "{medium:?}");
                        assert!(files.read("/base").unwrap() == *data, "{medium:?}");
                        if round % 2 == 0 {
                            files.remove_file(&own).unwrap();
                        }
                    }
                    let _ = files.remove_file(&own);
                });
            }
        });
        assert!(volume.check().unwrap().is_clean(), "{medium:?}");
        files.remove_file("/base").unwrap();
        assert_eq!(used(&files), empty, "{medium:?}");
    }
}
