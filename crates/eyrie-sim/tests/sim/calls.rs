//! Tests of every call except `batch`, `clone`, `read` and `tmpfile`: its result and some of its errors. The
//! effects of most of these calls are tested, too.

use eyrie::{
    InodeFlags, Kind, Posix, PosixExt, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaReport, QuotaUsage,
};
use eyrie_sim::script::{Call, Script, bytes};

use crate::{on_volume, run, succeed};

/// Returns the `length` bytes that a call writes at `offset` for the seed `seed`.
fn expected(seed: u64, offset: u64, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    bytes::fill(seed, offset, &mut out);
    out
}

#[test]
fn every_call_has_its_result() {
    on_volume(|files| {
        for (line, result) in [
            ("creat /a 0640", "0"),
            ("creat /none/a", "ENOENT (No such file or directory)"),
            ("mkdir /dir", "0"),
            ("mkdir /dir", "EEXIST (File exists)"),
            ("write /a 10 100 7", "0"),
            ("write /dir 0 1 1", "EISDIR (Is a directory)"),
            ("write /a 0x8000000000000000 1 1", "EINVAL (Invalid argument)"),
            ("append /a 5 8", "0"),
            ("append /none 5 8", "ENOENT (No such file or directory)"),
            ("fsync /a", "0"),
            ("fsync /dir", "0"),
            ("fsync /none", "ENOENT (No such file or directory)"),
            ("fdatasync /a", "0"),
            ("fdatasync /a/b", "ENOTDIR (Not a directory)"),
            ("sync", "0"),
            ("rename /a /b", "0"),
            ("rename /b /dir noreplace", "EEXIST (File exists)"),
            ("rename /b /none exchange", "ENOENT (No such file or directory)"),
            ("rename /b /dir exchange", "0"),
            ("link /dir /b/hard", "0"),
            ("link /b /c", "EPERM (Operation not permitted)"),
            ("symlink loop /loop", "0"),
            ("symlink other /loop", "EEXIST (File exists)"),
            ("creat /loop", "ELOOP (Too many levels of symbolic links)"),
            ("rmdir /b", "ENOTEMPTY (Directory not empty)"),
            ("unlink /b", "EISDIR (Is a directory)"),
            ("unlink /b/hard", "0"),
            ("rmdir /b", "0"),
            ("truncate /dir 50", "0"),
            ("truncate /dir 0xffffffffffffffff", "EINVAL (Invalid argument)"),
            ("fallocate /none allocate 0 1", "ENOENT (No such file or directory)"),
            ("fallocate / allocate 0 1", "EISDIR (Is a directory)"),
            ("creat /f", "0"),
            ("fallocate /f allocate 100 10000", "0"),
            ("fallocate /f allocate 0 0", "EINVAL (Invalid argument)"),
            ("fallocate /f keep-size 0x8000000000000000 1", "EINVAL (Invalid argument)"),
            ("fallocate /f keep-size 0x7fffffffffffffff 1", "EFBIG (File too large)"),
            ("fallocate /f allocate 0 100M", "ENOSPC (No space left on device)"),
            ("fallocate /f keep-size 0 100M", "ENOSPC (No space left on device)"),
            ("fallocate /f zero-range 0 0x7fffffffffffffff", "ENOSPC (No space left on device)"),
            ("fallocate /f punch-hole 0 0x7fffffffffffffff", "0"),
            ("fallocate /f collapse-range 0 100", "EINVAL (Invalid argument)"),
            ("fallocate /f collapse-range 4096 8192", "EINVAL (Invalid argument)"),
            ("fallocate /f insert-range 12K 4K", "EINVAL (Invalid argument)"),
            ("fallocate /f insert-range 8K 0x7ffffffffffff000", "EFBIG (File too large)"),
            ("fallocate /f insert-range 4K 0x7fffffffffffe000", "EFBIG (File too large)"),
            ("fallocate /f insert-range 8K 4K", "0"),
            ("fallocate /f collapse-range 0 12K", "0"),
            ("unlink /f", "0"),
            ("setxattr /dir user.a \"b c\"", "0"),
            ("setxattr /dir system.a b", "EOPNOTSUPP (Operation not supported)"),
            ("removexattr /dir user.a", "0"),
            ("removexattr /dir user.a", "ENODATA (No data available)"),
            ("chmod /dir 0400", "0"),
            ("chmod /none 0400", "ENOENT (No such file or directory)"),
            ("chown /dir 5 -1", "0"),
            ("chown \"\" 5 5", "ENOENT (No such file or directory)"),
            ("chattr /dir i", "0"),
            ("chmod /dir 0400", "EPERM (Operation not permitted)"),
            ("chattr /dir -", "0"),
            ("chattr /none a", "ENOENT (No such file or directory)"),
            ("utimes /dir 1.5 -2", "0"),
            ("utimes /none 1 2", "ENOENT (No such file or directory)"),
            ("put / \"k/\" 1000 9", "0"),
            ("put / \"\" 1 1", "EINVAL (Invalid argument)"),
            ("put / big 65M 1", "EFBIG (File too large)"),
            ("put /dir a 1 1", "ENOTDIR (Not a directory)"),
            ("erase / \"k/\"", "0"),
            ("erase / \"k/\"", "ENOENT (No such file or directory)"),
        ] {
            let call = Script::parse("test", line.as_bytes()).unwrap().lines()[0].call.clone();
            assert_eq!(run(files, line), [format!("1 {call} = {result}")]);
        }
    });
}

#[test]
fn calls_have_their_documented_effects() {
    on_volume(|files| {
        succeed(files, "creat /a 0640\nwrite /a 10 100 7\nappend /a 5 8");
        let content = files.read("/a").unwrap();
        assert_eq!(content, [vec![0; 10], expected(7, 10, 100), expected(8, 110, 5)].concat());
        assert_eq!(files.metadata("/a").unwrap().mode, 0o640);
        succeed(files, "write /a 3 0 7\ntruncate /a 50\ncreat /a 0600");
        assert_eq!((files.metadata("/a").unwrap().size, files.metadata("/a").unwrap().mode), (0, 0o640));
        succeed(files, "mkdir /dir 0711\nlink /a /b\nsymlink a /dir/s\nrename /b /dir/c\nchmod /a 4751");
        assert_eq!(files.metadata("/dir").unwrap().mode, 0o711);
        assert_eq!(files.metadata("/dir/c").unwrap().mode, 0o4751);
        assert_eq!(files.readlink("/dir/s".into()).unwrap(), b"a");
        succeed(files, "chown /a 5 -1\nutimes /a 1.5 -2\nsetxattr /a user.b \"v\\x00\"");
        let stat = files.metadata("/a").unwrap();
        assert_eq!((stat.uid, stat.gid, stat.links, stat.kind), (5, 0, 2, Kind::File));
        assert_eq!((stat.accessed.seconds, stat.accessed.nanoseconds), (1, 500_000_000));
        assert_eq!((stat.modified.seconds, stat.modified.nanoseconds), (-2, 0));
        assert_eq!(files.xattr("/a", "user.b").unwrap(), b"v\0");
        succeed(
            files,
            "creat /f\nwrite /f 0 10000 1\nfallocate /f insert-range 4K 8K\nfallocate /f punch-hole 100 50",
        );
        let moved = [expected(1, 0, 4096), vec![0; 8192], expected(1, 4096, 5904)].concat();
        let holed = [&moved[..100], &[0; 50], &moved[150..]].concat();
        assert_eq!(files.read("/f").unwrap(), holed);
        succeed(files, "fallocate /f collapse-range 0 12K\nfallocate /f zero-range 5000 2000");
        let zeroed = [&moved[12_288..][..5000], &[0; 2000]].concat();
        assert_eq!(files.read("/f").unwrap(), zeroed);
        succeed(files, "fallocate /f keep-size 0 9000\nfallocate /f zero-range-keep-size 6000 9000");
        assert_eq!(files.read("/f").unwrap(), zeroed);
        succeed(files, "fallocate /f allocate 0 9000");
        assert_eq!(files.read("/f").unwrap(), [&zeroed[..], &[0; 2000]].concat());
        succeed(files, "chattr /f ai");
        assert_eq!(files.open_file("/f").unwrap().inode_flags().unwrap(), InodeFlags::all());
        assert_eq!(run(files, "unlink /f"), ["1 unlink /f = EPERM (Operation not permitted)"]);
        succeed(files, "chattr /f a\nappend /f 9 1\nchattr /f -\nunlink /f");
        succeed(files, "put /dir k 1000 9\nput /dir k 999 10");
        assert_eq!(files.read("/dir/k").unwrap(), expected(10, 0, 999));
        succeed(files, "erase /dir k\nremovexattr /a user.b\nunlink /dir/s\nunlink /dir/c\nrmdir /dir");
        assert!(files.xattr_names("/a").unwrap().is_empty());
        assert_eq!(files.read_dir("/").unwrap().count(), 1);
    });
}

#[test]
fn calls_set_limits_and_trees() {
    on_volume(|files| {
        succeed(files, "mkdir /tree\nproject /tree 9\nquota tree 9 0 1M 5 10\ncreat /tree/a\ncreat /b");
        let id = QuotaId { kind: QuotaKind::Tree, number: 9 };
        let limit = |soft, hard| QuotaLimit { soft, hard, deadline: 0 };
        let limits = QuotaLimits { bytes: limit(0, 1 << 20), files: limit(5, 10) };
        let usage = QuotaUsage::new(0, 2);
        assert!(files.quotas().unwrap().unwrap().contains(&QuotaReport::new(id, usage, limits)));
        for (line, error) in [
            ("link /b /tree/b", "EXDEV (Invalid cross-device link)"),
            ("project /none 9", "ENOENT (No such file or directory)"),
            ("quota tree 0 0 1048576 0 0", "EINVAL (Invalid argument)"),
            ("quota user 7 2 1 0 0", "EINVAL (Invalid argument)"),
        ] {
            assert_eq!(run(files, line), [format!("1 {line} = {error}")]);
        }
        succeed(files, "removexattr / trusted.eyrie.quota\nlink /b /tree/b");
        assert!(files.quotas().unwrap().is_none());
    });
}

#[test]
fn calls_run_when_their_result_is_taken() {
    on_volume(|files| {
        let script = Script::parse("test", b"creat /a\nunlink /b\ncreat /c").unwrap();
        let done: Vec<bool> = script.run(files).map(|done| done.result.is_ok()).take(2).collect();
        assert_eq!(done, [true, false]);
        assert!(files.exists("/a").unwrap() && !files.exists("/c").unwrap());
        assert_eq!(run(files, "creat /c")[0], "1 creat /c 0644 = 0");
    });
}

#[test]
fn write_larger_than_the_volume_fails() {
    on_volume(|files| {
        let lines = run(files, "creat /a\nwrite /a 0 100M 1\nappend /a 100 1");
        assert_eq!(
            lines[1..],
            ["2 write /a 0 104857600 1 = ENOSPC (No space left on device)", "3 append /a 100 1 = 0"]
        );
    });
}

#[test]
fn append_stops_at_the_largest_size() {
    on_volume(|files| {
        let largest = i64::MAX as u64;
        let lines = run(files, &format!("creat /a\ntruncate /a {}\nappend /a 9 1", largest - 4));
        assert_eq!(lines[2], "3 append /a 9 1 = EFBIG (File too large)");
        let file = files.open_file("/a").unwrap();
        let mut end = [0; 4];
        assert_eq!(file.read_at(&mut end, largest - 4).unwrap(), 4);
        assert_eq!(end[..], expected(1, largest - 4, 4));
    });
}

#[test]
fn a_call_names_its_file_in_its_error() {
    on_volume(|files| {
        let call = Call::Write { path: "/none".into(), offset: 0, length: 1, seed: 1 };
        let error = eyrie_sim::script::perform(files, &call).unwrap_err();
        assert_eq!(error.to_string(), "open /none: No such file or directory");
    });
}
