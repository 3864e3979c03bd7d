//! Tests with hostile, damaged and unusual archives. `tests/cli` tests archives of GNU tar.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use eyrie::{
    Credentials, Files, Host, InodeFlags, Kind, Posix, PosixExt, PosixProjects, Stat, Volume, XattrMode,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tar::{EntryType, Header};

use super::member::{Body, Member};
use super::pax::Records;
use super::sparse::whole;
use super::write::ArchiveWriter;
use super::{dump, load};
use crate::copy::{Progress, Reporter, Tally, Xattrs};
use crate::failure::Result;

/// A volume into which a test loads archives. The volume must be sound at the end.
struct TestVolume {
    files: Files,
    volume: Volume,
    _dir: tempfile::TempDir,
}

impl TestVolume {
    fn new() -> TestVolume {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let volume = Volume::create(dir.path().join("vol"), 64 << 20).unwrap();
        let files = volume.files(Credentials::of_process());
        files.write("/secret", "secret").unwrap();
        TestVolume { files, volume, _dir: dir }
    }

    fn load(&self, archive: &[u8], to: &str) -> Result<Tally> {
        load(archive, "archive", &self.files, Path::new(to), &Reporter::silent())
    }

    /// Loads an archive, which must succeed. Returns the number of members that could not be loaded.
    fn failures(&self, archive: &[u8], to: &str) -> u64 {
        self.load(archive, to).unwrap().failed()
    }

    fn dump(&self, from: &str) -> Vec<u8> {
        let reporter = Reporter::silent();
        let progress = Progress::new(&reporter);
        let mut archive = Vec::new();
        dump(&self.files, Path::new(from), &mut archive, &progress).unwrap();
        assert_eq!(progress.outcome(Path::new("archive")).unwrap().failed(), 0);
        archive
    }

    /// Returns the names in a directory.
    fn names(&self, dir: &str) -> Vec<String> {
        let entries = self.files.read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Checks that the volume is sound, that `/secret` is unchanged, and that the names of all other entries
    /// of the root begin with `to`.
    fn check(self) {
        let names = self.names("/");
        assert!(names.iter().all(|name| name == "secret" || name.starts_with("to")), "{names:?}");
        assert_eq!(self.files.read("/secret").unwrap(), b"secret");
        assert_eq!(self.files.stat("/secret".into()).unwrap().links, 1);
        let report = self.volume.check().unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
    }
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Makes one member. `change` can make its header invalid.
fn member(kind: EntryType, name: &str, data: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(7);
    change(&mut header);
    header.set_cksum();
    padded([&header.as_bytes()[..], data].concat())
}

fn file(name: &str, data: &str) -> Vec<u8> {
    member(EntryType::Regular, name, data.as_bytes(), |_| ())
}

fn link(kind: EntryType, name: &str, target: &str) -> Vec<u8> {
    member(kind, name, b"", |header| header.set_link_name_literal(target).unwrap())
}

fn records(list: &[(&str, &[u8])]) -> Vec<u8> {
    let mut records = Records::default();
    list.iter().for_each(|&(key, value)| records.push(key, value));
    member(EntryType::XHeader, "records", &records.encode(), |_| ())
}

/// Makes an archive of these members, with an end mark.
fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}

#[test]
fn archive_cannot_write_outside_the_target() {
    let volume = TestVolume::new();
    let hostile = [
        file("../out", "x"),
        file("a/../../out", "x"),
        file("..", "x"),
        file("/..", "x"),
        link(EntryType::Symlink, "up", ".."),
        file("up/out", "x"),
        member(EntryType::Directory, "up/", b"", |_| ()),
        member(EntryType::Directory, "up/out/", b"", |_| ()),
        link(EntryType::Symlink, "root", "/"),
        link(EntryType::Link, "root/out", "up"),
        link(EntryType::Link, "stolen", "up/secret"),
        link(EntryType::Link, "stolen", "../secret"),
        link(EntryType::Link, "stolen", "/secret"),
        link(EntryType::Link, "stolen", "stolen"),
        member(EntryType::Directory, "dir/", b"", |_| ()),
        link(EntryType::Symlink, "dir", "/"),
        link(EntryType::Link, "hard", "dir"),
        records(&[("path", b"../long")]),
        file("name", "x"),
        records(&[("path", b"nul\0name")]),
        file("name", "x"),
        records(&[("linkpath", b"../secret")]),
        link(EntryType::Link, "stolen", "name"),
        link(EntryType::Symlink, ".", "/"),
        file("", "x"),
    ];
    // All members except two symbolic links and one directory fail.
    assert_eq!(volume.failures(&archive(&hostile), "/to"), 19);
    assert_eq!(volume.names("/to"), ["dir", "root", "up"]);
    assert_eq!(volume.names("/to/dir"), [""; 0]);
    let absolute = [file("/etc/passwd", "x"), file("//a//./b", "y"), link(EntryType::Link, "/c", "/a/b")];
    assert_eq!(volume.failures(&archive(&absolute), "/to2"), 0);
    assert_eq!(volume.files.read("/to2/etc/passwd").unwrap(), b"x");
    assert_eq!(volume.files.read("/to2/c").unwrap(), b"y");
    volume.check();
}

#[test]
fn later_member_replaces_earlier_file() {
    let volume = TestVolume::new();
    let members = [
        file("a", "first"),
        link(EntryType::Link, "b", "a"),
        file("a", "second"),
        link(EntryType::Symlink, "c", "a"),
        file("c", "third"),
        member(EntryType::Directory, "d", b"", |header| header.set_mode(0o700)),
        file("d/e", "fourth"),
        member(EntryType::Directory, "d", b"", |header| header.set_mode(0o711)),
        file("d", "fifth"),
    ];
    assert_eq!(volume.failures(&archive(&members), "/to"), 1);
    for (name, content) in [("a", "second"), ("b", "first"), ("c", "third"), ("d/e", "fourth")] {
        assert_eq!(volume.files.read(format!("/to/{name}")).unwrap(), content.as_bytes(), "{name}");
    }
    assert_eq!(volume.files.stat("/to/d".into()).unwrap().mode, 0o711);
    volume.check();
}

#[test]
fn later_member_of_a_directory_has_its_flags() {
    let volume = TestVolume::new();
    let directory = || member(EntryType::Directory, "d", b"", |_| ());
    let first = records(&[("SCHILY.fflags", b"schg"), ("EYRIE.project", b"7")]);
    assert_eq!(volume.failures(&archive(&[first, directory(), directory()]), "/to"), 0);
    // An immutable directory would refuse the new entry.
    volume.files.write("/to/d/new", "").unwrap();
    assert_eq!(volume.files.project("/to/d".into()).unwrap(), 0);
    volume.check();
}

#[test]
fn illegal_members_are_skipped_and_the_rest_loads() {
    let volume = TestVolume::new();
    let (long, deep) = ("n".repeat(256), "n/".repeat(2048));
    let members = [
        records(&[("path", deep.as_bytes())]),
        file("name", "x"),
        records(&[("path", long.as_bytes())]),
        file("name", "x"),
        records(&[("uid", b"4294967296")]),
        file("owner", "x"),
        member(EntryType::Regular, "owner", b"", |header| header.set_gid(1 << 40)),
        records(&[("uid", b"root")]),
        file("owner", "x"),
        member(EntryType::Regular, "owner", b"", |header| header.as_old_mut().gid = *b"staff\0\0\0"),
        records(&[("mtime", b"yesterday")]),
        file("time", "x"),
        member(EntryType::new(b'Z'), "strange", b"data", |_| ()),
        member(EntryType::new(b'M'), "continued", b"data", |_| ()),
        records(&[("comment", b"no harm"), ("SCHILY.xattr.user.x", b"a\n\nb\0"), ("path", b"long\nname")]),
        file("name", "kept"),
        member(EntryType::new(b'V'), "label", b"data", |_| ()),
        member(EntryType::Continuous, "also", b"kept", |_| ()),
        member(EntryType::new(b'D'), "listed", b"Yfile\0\0", |_| ()),
        member(EntryType::new(0), "old directory/", b"", |_| ()),
    ];
    assert_eq!(volume.failures(&archive(&members), "/to"), 9);
    assert_eq!(volume.names("/to"), ["also", "listed", "long\nname", "old directory"]);
    assert_eq!(volume.files.read("/to/long\nname").unwrap(), b"kept");
    assert_eq!(volume.files.xattr("/to/long\nname", "user.x").unwrap(), b"a\n\nb\0");
    assert_eq!(volume.files.stat("/to/old directory".into()).unwrap().kind, Kind::Directory);
    volume.check();
}

#[test]
fn global_records_hold_until_cancelled() {
    let volume = TestVolume::new();
    let global = |time: &[u8]| {
        let mut records = Records::default();
        records.push("mtime", time);
        member(EntryType::XGlobalHeader, "global", &records.encode(), |_| ())
    };
    let members = [
        global(b"5.5"),
        file("a", ""),
        records(&[("mtime", b"-1.25")]),
        file("b", ""),
        file("c", ""),
        global(b""),
        file("d", ""),
    ];
    assert_eq!(volume.failures(&archive(&members), "/to"), 0);
    let time = |name: &str| {
        let time = volume.files.stat((&format!("/to/{name}")).into()).unwrap().modified;
        (time.seconds, time.nanoseconds)
    };
    assert_eq!([time("a"), time("b")], [(5, 500_000_000), (-2, 750_000_000)]);
    assert_eq!([time("c"), time("d")], [(5, 500_000_000), (7, 0)]);
    volume.check();
}

#[test]
fn flags_of_a_file_without_permissions_are_lost() {
    let volume = TestVolume::new();
    volume.files.create_dir("/to").unwrap();
    volume.files.set_mode("/to", 0o777).unwrap();
    let user = volume.volume.files(Credentials::new(4242, 4242, &[]));
    let locked = member(EntryType::Regular, "locked", b"bytes", |header| header.set_mode(0));
    let input = archive(&[records(&[("SCHILY.fflags", b"schg")]), locked]);
    let tally = load(&input[..], "archive", &user, Path::new("/to"), &Reporter::silent()).unwrap();
    assert_eq!((tally.failed(), &tally.json()["flags_not_kept"]), (0, &1.into()));
    volume.check();
}

/// An input that fails once, and then ends.
struct Fault(bool);

impl Read for Fault {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.0, true) { Ok(0) } else { Err(io::Error::other("a fault")) }
    }
}

#[test]
fn load_ends_at_data_that_cannot_be_read() {
    let volume = TestVolume::new();
    let input = archive(&[file("first", "bytes"), file("second", "")]);
    let (header, rest) = input.split_at(512);
    let input = header.chain(Fault(false)).chain(rest);
    let loaded = load(input, "archive", &volume.files, Path::new("/to"), &Reporter::silent());
    assert!(loaded.unwrap_err().to_string().contains("cannot read the archive: a fault"));
    assert!(!volume.names("/to").contains(&"second".to_owned()));
    volume.check();
}

#[test]
fn absurd_sizes_are_refused_or_sparse() {
    let volume = TestVolume::new();
    let sized = |size: u64| member(EntryType::Regular, "large", b"", |header| header.set_size(size));
    let sparse = |list: &[(&str, &[u8])], data: &[u8]| {
        archive(&[records(list), file("sparse", &String::from_utf8_lossy(data))])
    };
    // The descriptions of one member may have at most 16 MiB. One of these records is within this limit, but
    // two are above it.
    let much = records(&[("comment", &[b'x'; 9 << 20])]);
    // Each of these records has no bytes, but takes memory.
    let tiny = records(&vec![("", &b""[..]); 300_000]);
    let version = [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", b"0")];
    let with_size = |size: &'static [u8]| [version[0], version[1], ("GNU.sparse.realsize", size)];
    for (number, wrong) in [
        archive(&[sized(1 << 40)]),
        archive(&[sized(i64::MAX as u64)]),
        archive(&[sized(u64::MAX)]),
        archive(&[records(&[("size", b"99999999999999999999999")]), file("x", "")]),
        archive(&[records(&[("size", b"-1")]), file("x", "")]),
        archive(&[member(EntryType::XHeader, "x", b"", |header| header.set_size(1 << 40)), file("x", "")]),
        archive(&[
            member(EntryType::GNULongName, "x", b"", |header| header.set_size(1 << 24)),
            file("x", ""),
        ]),
        archive(&[much.clone(), much, file("x", "")]),
        archive(&[tiny, file("x", "")]),
        archive(&[member(EntryType::GNUSparse, "x", b"", |header| {
            header.as_gnu_mut().unwrap().set_real_size(u64::MAX);
        })]),
        member(EntryType::GNUSparse, "x", b"", |header| {
            header.as_gnu_mut().unwrap().set_real_size(5);
            header.as_gnu_mut().unwrap().set_is_extended(true);
        }),
        sparse(&with_size(b"9223372036854775808"), b"0\n"),
        sparse(&with_size(b"100"), b"18446744073709551615\n"),
        sparse(&with_size(b"100"), b"2\n50\n10\n0\n"),
        sparse(&with_size(b"100"), b"1\n0\n200\n"),
        sparse(&with_size(b"100"), b"1\n000000000000000000000000000000000000000000\n"),
        sparse(&with_size(b"100"), b"x"),
        sparse(&version, b"0\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let loaded = volume.load(&wrong, &format!("/to{number}"));
        let line = loaded.map_or_else(|failure| failure.to_string(), |tally| tally.summary());
        assert!(line.contains("damaged") || line.contains("ends early"), "{number}: {line}");
    }
    let data = padded(b"2\n4096\n4\n4611686018427387904\n0\n".to_vec());
    let holes = sparse(&with_size(b"4611686018427387904"), &[&data[..], b"data"].concat());
    assert_eq!(volume.failures(&holes, "/to"), 0);
    let stat = volume.files.stat("/to/sparse".into()).unwrap();
    assert!(stat.size == 1 << 62 && stat.allocated < 16 << 20, "{stat:?}");
    let mut bytes = [1; 8];
    volume.files.open_file("/to/sparse").unwrap().read_exact_at(&mut bytes, 4094).unwrap();
    assert_eq!(&bytes, b"\0\0data\0\0");
    volume.check();
}

/// Makes a tree with directories, files, hard and symbolic links, a pipe, holes and extended attributes.
fn plant(files: &Files) {
    files.create_dir_all("/to/dir/inner").unwrap();
    files.write("/to/dir/file", vec![7; 5000]).unwrap();
    files.write("/to/dir/long-".to_owned() + &"n".repeat(150), "long").unwrap();
    files.hard_link("/to/dir/file", "/to/hard").unwrap();
    files.symlink("dir/file".as_ref(), "/to/soft".into()).unwrap();
    files.mknod("/to/pipe".into(), Kind::Fifo, 0o600, 0).unwrap();
    files.setxattr("/to/dir/file".into(), b"user.x", b"value", XattrMode::Set).unwrap();
    files.setxattr("/to/dir".into(), b"user.y", &[7; 1000], XattrMode::Set).unwrap();
    let holes = files.create_file("/to/holes").unwrap();
    holes.write_all_at(b"data", 1 << 20).unwrap();
    holes.set_len(3 << 20).unwrap();
}

#[test]
fn cut_off_archive_is_never_complete() {
    let volume = TestVolume::new();
    plant(&volume.files);
    let whole = volume.dump("/to");
    for (number, end) in (0..=whole.len() - 1024).step_by(256).enumerate() {
        let failure = volume.load(&whole[..end], "/to2").unwrap_err();
        let line = failure.to_string();
        let expected = if end < 512 { "not an archive" } else { "ends early" };
        assert!(line.contains(expected), "{number}: {line}");
        if volume.files.exists("/to2").unwrap() {
            volume.files.remove_dir_all("/to2").unwrap();
        }
    }
    assert_eq!(volume.failures(&whole, "/to2"), 0);
    assert_eq!(volume.dump("/to2"), whole, "equal trees give equal archives");
    volume.check();
}

#[test]
fn damaged_archive_is_an_error_or_loads_something() {
    let volume = TestVolume::new();
    plant(&volume.files);
    let whole = volume.dump("/to");
    let (mut errors, mut loaded) = (0, 0);
    for seed in 0..600 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut damaged = whole.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..damaged.len());
            damaged[at] = random.random();
            // The code below corrects the checksum of a damaged header, so that the header passes the first
            // check. It also writes a checksum into half of the damaged blocks that are no headers.
            let block = at / 512 * 512;
            if let Some(bytes) = damaged.get_mut(block..block + 512)
                && (bytes[257..262] == *b"ustar" || random.random())
            {
                let mut header = Header::new_old();
                header.as_mut_bytes().copy_from_slice(bytes);
                header.set_cksum();
                bytes.copy_from_slice(header.as_bytes());
            }
        }
        match volume.load(&damaged, "/to2") {
            Ok(_) => loaded += 1,
            Err(failure) => {
                assert!(failure.to_string().contains("archive"), "{seed}: {failure}");
                errors += 1;
            }
        }
        if volume.files.exists("/to2").unwrap() {
            volume.files.remove_dir_all("/to2").unwrap();
        }
    }
    assert!(errors > 50 && loaded > 50, "{errors} errors, {loaded} loaded");
    volume.check();
}

#[test]
fn blank_ids_belong_to_root() {
    let volume = TestVolume::new();
    volume.files.create_dir("/to").unwrap();
    let blank = member(EntryType::Regular, "blank", b"", |header| {
        let old = header.as_old_mut();
        (old.uid, old.gid) = ([0; 8], *b"       \0");
    });
    assert_eq!(volume.failures(&archive(&[blank]), "/to"), 0);
    let stat = volume.files.stat("/to/blank".into()).unwrap();
    assert_eq!((stat.uid, stat.gid), (0, 0));
}

#[test]
fn owner_that_no_file_can_have_gets_no_set_id_bits() {
    let volume = TestVolume::new();
    let own = volume.files.stat("/secret".into()).unwrap();
    let program = |name: &str, uid: u32, gid: u32| {
        member(EntryType::Regular, name, b"", |header| {
            header.set_mode(0o6755);
            header.set_uid(uid.into());
            header.set_gid(gid.into());
        })
    };
    let programs = [
        program("both", u32::MAX, u32::MAX),
        program("user", u32::MAX, own.gid),
        program("group", own.uid, u32::MAX),
        program("own", own.uid, own.gid),
        member(EntryType::Directory, "dir/", b"", |header| {
            header.set_mode(0o2755);
            header.set_uid(own.uid.into());
            header.set_gid(u32::MAX.into());
        }),
    ];
    let tally = volume.load(&archive(&programs), "/to").unwrap();
    assert!(tally.summary().contains("; 4 with another owner"), "{}", tally.summary());
    for (name, mode) in [("both", 0o755), ("user", 0o755), ("group", 0o755), ("own", 0o6755), ("dir", 0o755)]
    {
        let stat = volume.files.stat((&format!("/to/{name}")).into()).unwrap();
        assert_eq!((stat.mode, stat.uid, stat.gid), (mode, own.uid, own.gid), "{name}");
    }
    volume.check();
}

/// A file on which the first write fails.
#[derive(Default)]
struct FailingOnce {
    failed: bool,
    written: Vec<u8>,
}

impl Write for FailingOnce {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.failed, true) {
            self.written.write(bytes)
        } else {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn archive_without_its_last_member_has_no_end_mark() {
    let volume = TestVolume::new();
    volume.files.create_dir("/to").unwrap();
    let reporter = Reporter::silent();
    let progress = Progress::new(&reporter);
    let mut archive = FailingOnce::default();
    dump(&volume.files, Path::new("/to"), &mut archive, &progress).unwrap();
    assert_eq!(archive.written, b"");
    assert!(progress.outcome(Path::new("archive")).is_err());
    volume.check();
}

#[test]
fn file_that_grows_during_its_dump_has_the_size_of_its_header() {
    // The ranges are those of a file that has grown after its size was read.
    for (size, ranges, rest) in [
        (100, vec![0..4096, 1 << 20..(1 << 20) + 4096], whole(100)),
        (8192, vec![0..4096, 1 << 20..(1 << 20) + 4096], whole(4096)),
        (6000, vec![1024..2048, 4096..8192], vec![1024..2048, 4096..6000]),
        (100, vec![4096..8192, 1 << 20..(1 << 20) + 4096], vec![]),
        (0, whole(4096), vec![]),
    ] {
        let mut stat = Stat::new(Kind::File);
        stat.size = size;
        let (xattrs, flags) = (Xattrs::new(), InodeFlags::empty());
        let (name, project) = (b"a".into(), 0);
        let mut member = Member { name, stat, xattrs, flags, project, body: Body::File(ranges) };
        let mut bytes = Vec::new();
        let mut archive = ArchiveWriter::new(&mut bytes);
        archive.member(&mut member).unwrap();
        let Body::File(runs) = member.body else { panic!("a file stays a file") };
        assert_eq!(runs, rest, "{size}");
        for run in runs {
            archive.data(&vec![b'x'; (run.end - run.start) as usize]).unwrap();
        }
        archive.finish().unwrap();
        let volume = TestVolume::new();
        assert_eq!(volume.failures(&bytes, "/to"), 0, "{size}");
        let mut expected = vec![0; size as usize];
        rest.into_iter().for_each(|run| expected[run.start as usize..run.end as usize].fill(b'x'));
        assert_eq!(volume.files.read("/to/a").unwrap(), expected, "{size}");
        volume.check();
    }
}

#[test]
fn unreadable_bytes_are_zeros_and_counted() {
    // A file of sysfs has the size of one page, but a read returns fewer bytes. So the dump stores zeros in
    // place of the missing bytes. The inode flags of such a file cannot be read, which is a failure, too.
    let from = Path::new("/sys/kernel/mm/transparent_hugepage");
    if !from.join("enabled").exists() {
        return;
    }
    let reporter = Reporter::silent();
    let progress = Progress::new(&reporter);
    let mut archive = Vec::new();
    dump(&Host::new("/").unwrap(), from, &mut archive, &progress).unwrap();
    assert!(progress.outcome(Path::new("archive")).unwrap().failed() > 0);
    let volume = TestVolume::new();
    assert_eq!(volume.failures(&archive, "/to"), 0, "the archive is complete nevertheless");
    let (loaded, mut expected) =
        (volume.files.read("/to/enabled").unwrap(), std::fs::read(from.join("enabled")).unwrap());
    assert!(expected.len() < loaded.len(), "{loaded:?}");
    expected.resize(loaded.len(), 0);
    assert_eq!(loaded, expected);
    volume.check();
}

#[test]
fn input_without_archive_makes_nothing() {
    let volume = TestVolume::new();
    for wrong in [&b""[..], b"short", &[b'x'; 5000], b"\x1f\x8b\x08\0", &[[0x1f; 600], [0x8b; 600]].concat()]
    {
        let line = volume.load(wrong, "/to").unwrap_err().to_string();
        assert!(line.starts_with("cannot load: archive: "), "{line}");
        assert!(!volume.files.exists("/to").unwrap());
    }
    let directory = File::open("/").unwrap();
    let failed =
        load(directory, "archive", &volume.files, Path::new("/to"), &Reporter::silent()).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "cannot load: archive: cannot read the archive: Is a directory: name a file"
    );
    volume.files.create_dir("/to").unwrap();
    assert_eq!(volume.failures(&archive(&[]), "/to"), 0, "a load must accept an empty directory");
    assert_eq!(volume.failures(&archive(&[file("a", "x")]), "/to"), 0);
    for to in ["/to", "/to/a", "/to/a/b", "/nowhere/to"] {
        volume.load(&archive(&[]), to).unwrap_err();
    }
    volume.check();
}
