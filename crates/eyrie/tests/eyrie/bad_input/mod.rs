//! Tests that bad input, damage and full volumes give clear errors. No call panics, and no signal ends the
//! process. Bad input and full volumes lose no data.

pub mod full_host;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::alone;
use eyrie::{
    Credentials, Errno, Error, Files, MediumChoice, OpenFlags, Posix, PosixExt, RenameMode, Result, SetTime,
    Target, Time, Volume, Whence, XattrMode,
};

const MIB: u64 = 1 << 20;
/// Offset of the version in the superblock, in bytes: see `docs/format.md`.
const VERSION_AT: usize = 8;
/// Offset of the checksum in the superblock, in bytes.
const CHECKSUM_AT: usize = 12;
/// Offset of the flags of incompatible features in the superblock, in bytes.
const INCOMPAT_AT: usize = 56;
/// Offset of the id of the root directory in the superblock, in bytes.
const ROOT_AT: usize = 96;
/// Offset of the clean mark, in bytes.
const CLEAN_AT: u64 = 2 * 4096 + 128;

/// A directory for a volume, in shared memory if the host has it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("vol")
    }

    fn create(&self, bytes: u64) -> Volume {
        create(&self.path(), bytes)
    }

    /// Opens the host's file with the bytes of the volume.
    fn segment(&self) -> fs::File {
        fs::File::options().read(true).write(true).open(self.path().join("segment-0000")).unwrap()
    }
}

fn create(path: &Path, bytes: u64) -> Volume {
    Volume::options().size(bytes).group_size(MIB).create(path).unwrap()
}

fn root(volume: &Volume) -> Files {
    volume.files(Credentials::root())
}

fn errno<T>(result: Result<T>) -> Errno {
    result.err().expect("an error").errno()
}

/// Opens a volume, which must fail with the errno `expected`. Returns the message, which must be one line
/// that names the place.
fn refusal(path: &Path, expected: Errno) -> String {
    let error: Error = Volume::open(path).expect_err("refused");
    let text = error.to_string();
    assert_eq!(error.errno(), expected, "{text}");
    assert!(text.contains(&path.display().to_string()) && !text.contains('\n'), "{text}");
    text
}

/// Changes one of the two copies of the superblock. With `checksum`, also corrects the checksum of the copy.
fn edit_superblock(segment: &fs::File, copy: u64, checksum: bool, edit: impl Fn(&mut [u8])) {
    let mut page = vec![0; 4096];
    segment.read_exact_at(&mut page, copy * 4096).unwrap();
    edit(&mut page);
    if checksum {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&page[..CHECKSUM_AT]), &page[CHECKSUM_AT + 4..]);
        page[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }
    segment.write_all_at(&page, copy * 4096).unwrap();
}

fn assert_sound(volume: &Volume) {
    let report = volume.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn anything_but_a_volume_is_refused() {
    let _alone = alone();
    let place = Place::new();
    refusal(&place.path(), Errno::NOENT);
    fs::write(place.path(), "a file").unwrap();
    refusal(&place.path(), Errno::NOTDIR);
    fs::remove_file(place.path()).unwrap();
    fs::create_dir(place.path()).unwrap();
    assert!(refusal(&place.path(), Errno::INVAL).contains("not an Eyrie volume"));
    for bytes in [0, 100, 4096, 65536, 1 << 20] {
        fs::write(place.path().join("segment-0000"), vec![0x55; bytes]).unwrap();
        refusal(&place.path(), Errno::INVAL);
    }
    fs::remove_file(place.path().join("segment-0000")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place.path().join("segment-0000")).unwrap();
    refusal(&place.path(), Errno::INVAL);
}

#[test]
fn newer_format_is_refused_and_unchanged() {
    let _alone = alone();
    let place = Place::new();
    place.create(4 * MIB).close().unwrap();
    let original = fs::read(place.path().join("segment-0000")).unwrap();
    for (at, edit, expected) in [(VERSION_AT, 2, "version 2"), (INCOMPAT_AT, 128, "newer")] {
        for copy in 0..2 {
            edit_superblock(&place.segment(), copy, true, |page| page[at] = edit);
        }
        let edited = fs::read(place.path().join("segment-0000")).unwrap();
        let text = refusal(&place.path(), Errno::OPNOTSUPP);
        assert!(text.contains(expected), "{text}");
        assert_eq!(
            fs::read(place.path().join("segment-0000")).unwrap(),
            edited,
            "the refused open changed the file"
        );
        place.segment().write_all_at(&original, 0).unwrap();
    }
    Volume::open(place.path()).unwrap();
}

#[test]
fn truncated_volumes_are_refused() {
    let _alone = alone();
    let place = Place::new();
    place.create(4 * MIB).close().unwrap();
    for bytes in [4 * MIB - 4096, MIB, 4096, 100, 0] {
        place.segment().set_len(bytes).unwrap();
        let text = Volume::open(place.path()).expect_err("refused").to_string();
        assert!(text.contains("vol"), "{text}");
    }
}

#[test]
fn one_sound_superblock_is_enough() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(4 * MIB);
    root(&volume).write("/file", "kept").unwrap();
    volume.close().unwrap();
    for copy in [1, 0] {
        let mut sound = vec![0; 4096];
        place.segment().read_exact_at(&mut sound, copy * 4096).unwrap();
        edit_superblock(&place.segment(), copy, false, |page| page[40] ^= 1);
        let volume = Volume::open(place.path()).unwrap();
        assert_eq!(root(&volume).read("/file").unwrap(), b"kept");
        volume.close().unwrap();
        place.segment().write_all_at(&sound, copy * 4096).unwrap();
    }
    for copy in 0..2 {
        edit_superblock(&place.segment(), copy, false, |page| page[40] ^= 1);
    }
    refusal(&place.path(), Errno::IO);
}

/// Changes one word of a closed volume, and then uses the volume if it opens. Repeats this with many other
/// words. In about half of the turns the clean mark is cleared, too, as after a crash. Every call must return
/// a result or an error.
#[test]
fn damage_anywhere_is_an_error_or_harmless() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(4 * MIB);
    let fs_before = root(&volume);
    fs_before.create_dir("/dir").unwrap();
    for number in 0..60 {
        fs_before.write(format!("/dir/file-{number}"), vec![number; 100 * usize::from(number)]).unwrap();
    }
    for number in 0..20 {
        let path = format!("/dir/file-{number}");
        fs_before.setxattr((&path).into(), b"user.one", &vec![number; 400], XattrMode::Set).unwrap();
        fs_before.setxattr((&path).into(), b"user.two", b"value", XattrMode::Set).unwrap();
    }
    fs_before.symlink("dir/file-1".as_ref(), "/link".into()).unwrap();
    drop(fs_before);
    volume.close().unwrap();
    let original = fs::read(place.path().join("segment-0000")).unwrap();
    // Words of the superblocks, of the volume page and of the root's header come in every run, with and
    // without the clean mark, so each run has each outcome: a refused open, a finding, and a sound volume.
    // The other words depend on the random bytes of the volume.
    let root_id = u64::from_le_bytes(original[ROOT_AT..][..8].try_into().unwrap());
    // The id is the address of the header, a multiple of 64, plus the number of the kind.
    let header = (root_id as usize & !63)..(root_id as usize & !63) + 256;
    let words = (0..3 * 4096).chain(header).step_by(8).filter(|&at| original[at..][..8] != [0; 8]);
    let mut turns: Vec<(usize, bool)> = words.flat_map(|at| [(at, false), (at, true)]).collect();
    let lines: Vec<usize> = (3 * 4096..original.len())
        .step_by(64)
        .filter(|&line| original[line..][..64].iter().any(|&byte| byte != 0))
        .collect();
    let sample = lines.iter().step_by(lines.len() / 400 + 1).enumerate();
    turns.extend(sample.map(|(turn, line)| (line + turn / 2 % 8 * 8, turn % 2 == 1)));
    let (mut refused, mut found, mut sound) = (0, 0, 0);
    for (turn, (at, clears_mark)) in turns.into_iter().enumerate() {
        let mut bad = original[at..at + 8].to_vec();
        for (index, byte) in bad.iter_mut().enumerate() {
            *byte ^= (turn * 37 + index * 101) as u8;
        }
        place.segment().write_all_at(&bad, at as u64).unwrap();
        if clears_mark {
            place.segment().write_all_at(&[0; 8], CLEAN_AT).unwrap();
        }
        match Volume::open(place.path()) {
            Err(_) => refused += 1,
            Ok(volume) => {
                use_everything(&root(&volume));
                match volume.check() {
                    Ok(report) if report.is_clean() => sound += 1,
                    _ => found += 1,
                }
                drop(volume);
            }
        }
        place.segment().write_all_at(&original, 0).unwrap();
    }
    assert!(refused > 0 && found > 0 && sound > 0, "{refused} refused, {found} found, {sound} sound");
}

/// Reads and changes files. Calls may fail.
fn use_everything(fs: &Files) {
    let mut dirs = vec![PathBuf::from("/")];
    let mut seen = 0;
    while let Some(dir) = dirs.pop() {
        for entry in fs.read_dir(&dir).into_iter().flatten().map_while(Result::ok) {
            seen += 1;
            if seen > 1000 {
                return;
            }
            for name in fs.symlink_xattr_names(entry.path()).into_iter().flatten() {
                let _ = fs.symlink_xattr(entry.path(), name);
            }
            match fs.stat(Target::NoFollow((&entry.path()).into())) {
                Ok(stat) if stat.is_dir() && dirs.len() < 20 => dirs.push(entry.path()),
                Ok(stat) if stat.size < MIB => drop(fs.read(entry.path())),
                _ => {}
            }
        }
    }
    let _ = fs.write("/dir/file-7", "new");
    let _ = fs.write("/dir/another", vec![1; 10_000]);
    let _ = fs.rename_with("/dir/file-8".into(), "/moved".into(), RenameMode::Replace);
    let _ = fs.remove_file("/dir/file-9");
    let _ = fs.setxattr("/dir/file-10".into(), b"user.one", b"new", XattrMode::Replace);
    let _ = fs.removexattr("/dir/file-11".into(), b"user.two");
}

#[test]
fn second_open_names_the_holder() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(4 * MIB);
    let text = refusal(&place.path(), Errno::BUSY);
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert_eq!(errno(Volume::create(place.path(), 4 * MIB)), Errno::EXIST);
    volume.close().unwrap();
    Volume::open(place.path()).unwrap();
}

/// Writes files of four decreasing sizes, each size until a file does not fit. Returns the number of bytes
/// written.
fn fill(fs: &Files) -> usize {
    let (mut count, mut total) = (0, 0);
    for bytes in [100_000, 10_000, 1000, 10] {
        loop {
            let path = format!("/fill-{count}");
            count += 1;
            match fs.write(&path, vec![7; bytes]) {
                Ok(()) => total += bytes,
                Err(error) => {
                    assert_eq!(error.errno(), Errno::NOSPC, "{error}");
                    break;
                }
            }
        }
    }
    total
}

#[test]
fn full_volume_can_be_emptied_and_reused() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    fs.write("/before", "kept").unwrap();
    let mut first = 0;
    for round in 0..4_u16 {
        let bytes = fill(&fs);
        assert_eq!(fs.read("/before").unwrap(), b"kept");
        assert_sound(&volume);
        fs.chmod("/before".into(), 0o600 + round).unwrap();
        for entry in fs.read_dir("/").unwrap().collect::<Result<Vec<_>>>().unwrap() {
            if entry.name() != "before" {
                fs.remove_file(entry.path()).unwrap();
            }
        }
        first = if round == 0 { bytes } else { first };
        assert!(bytes * 10 >= first * 9, "round {round}: {bytes} bytes, before {first}");
    }
    assert_sound(&volume);
    drop(fs);
    volume.close().unwrap();
    let volume = Volume::open(place.path()).unwrap();
    fill(&root(&volume));
    assert_sound(&volume);
}

#[test]
fn xattr_that_does_not_fit_changes_nothing() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    fs.write("/file", "bytes").unwrap();
    fs.setxattr("/file".into(), b"user.a", &[1; 1000], XattrMode::Set).unwrap();
    fill(&fs);
    let free = volume.information().free_bytes;
    let changed = fs.stat("/file".into()).unwrap().changed;
    assert_eq!(errno(fs.setxattr("/file".into(), b"user.a", &[2; 50_000], XattrMode::Set)), Errno::NOSPC);
    assert_eq!(errno(fs.setxattr("/file".into(), b"user.b", &[2; 50_000], XattrMode::Set)), Errno::NOSPC);
    assert_eq!(fs.xattr("/file", "user.a").unwrap(), [1; 1000]);
    assert_eq!(fs.xattr_names("/file").unwrap(), [b"user.a"]);
    assert_eq!(fs.stat("/file".into()).unwrap().changed, changed);
    assert_eq!(volume.information().free_bytes, free);
    fs.removexattr("/file".into(), b"user.a").unwrap();
    assert!(volume.information().free_bytes >= free + 1000);
    assert_sound(&volume);
}

#[test]
fn write_that_does_not_fit_changes_nothing() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    fs.write("/file", "old").unwrap();
    let file = fs.options().read(true).write(true).open("/file").unwrap();
    let large = vec![1; 16 << 20];
    assert_eq!(errno(fs.write_at(file.handle(), &large, 0)), Errno::NOSPC);
    assert_eq!(errno(fs.append(file.handle(), &large)), Errno::NOSPC);
    assert_eq!(fs.read("/file").unwrap(), b"old");
    fs.create_dir("/store").unwrap();
    let store = volume.store("/store", Credentials::root()).unwrap();
    store.put("key", "old").unwrap();
    assert_eq!(errno(store.put("key", &large)), Errno::NOSPC);
    let mut batch = eyrie::Batch::new();
    batch.put("key", "new").put("large", large);
    assert_eq!(errno(store.commit(&batch)), Errno::NOSPC);
    assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"old"[..]));
    drop(store);
    assert_sound(&volume);
}

#[test]
fn regression_writes_through_handles_reuse_freed_pages() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    // A file with a tree, a small file that each change copies whole, and a file for appends.
    for (path, bytes) in [("/tree", 100_000), ("/small", 4096), ("/log", 1)] {
        fs.write(path, vec![0; bytes]).unwrap();
    }
    let [tree, small, log] =
        ["/tree", "/small", "/log"].map(|path| fs.options().read(true).write(true).open(path).unwrap());
    tree.write_at(&[1; 100], 50_000).unwrap();
    fs.write("/last", vec![1; 2 * 4096]).unwrap();
    fill(&fs);
    fs.remove_file("/last").unwrap();
    // Few pages are free. A write allocates a page before it frees the old one, and a grace period delays the
    // reuse of the freed page.
    for round in 1..100 {
        tree.write_at(&[round; 4096], 40_960).unwrap();
        small.write_at(&[round; 4000], 50).unwrap();
        log.set_len(1).unwrap();
        fs.append(log.handle(), &[round; 3000]).unwrap();
    }
    assert_eq!(fs.read("/tree").unwrap()[40_960..45_056], [99; 4096]);
    assert_eq!(fs.read("/small").unwrap()[50..4050], [99; 4000]);
    assert_eq!(fs.read("/log").unwrap()[1..], [99; 3000]);
    // A write in place needs no new page.
    assert!((0..10_000).any(|number| fs.write(format!("/rest-{number}"), "rest").is_err()), "not full");
    tree.write_at(b"in place", 8).unwrap();
    assert_sound(&volume);
}

#[test]
fn regression_unlinked_open_objects_are_no_leak() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    let before = volume.information();
    fs.create_dir("/store").unwrap();
    let store = volume.store("/store", Credentials::root()).unwrap();
    let file = fs.create_file("/file").unwrap();
    fs.write("/file", vec![1; 50_000]).unwrap();
    fs.remove_file("/file").unwrap();
    fs.create_dir("/dir").unwrap();
    let dir = fs.open("/dir".into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0).unwrap();
    fs.remove_dir("/dir").unwrap();
    // The second put finds the key, so the header that this put reserved stays reserved for the next put.
    for value in ["a value", "another"] {
        store.put("key", value).unwrap();
    }
    assert_sound(&volume);
    let report = volume.check().unwrap();
    assert_eq!((report.directories, report.files), (3, 2), "the counts include open files without a name");
    assert_eq!(volume.information().objects, 5);
    fs.close(dir).unwrap();
    file.close().unwrap();
    store.erase("key").unwrap();
    drop(store);
    fs.remove_dir("/store").unwrap();
    assert_sound(&volume);
    assert_eq!(volume.information().used_bytes, before.used_bytes);
    drop(fs);
    volume.close().unwrap();
    assert_sound(&Volume::open(place.path()).unwrap());
}

#[test]
fn truncated_host_file_fails_its_volume_only() {
    let _alone = alone();
    let (place, elsewhere) = (Place::new(), Place::new());
    let (volume, other) = (place.create(8 * MIB), elsewhere.create(8 * MIB));
    let (fs, other_fs) = (root(&volume), root(&other));
    for fs in [&fs, &other_fs] {
        fs.write("/file", vec![5; 300_000]).unwrap();
    }
    let store = volume.store("/", Credentials::root()).unwrap();
    let file = fs.open_file("/file").unwrap();
    file.sync_all().unwrap();
    place.segment().set_len(4096).unwrap();
    assert_eq!(errno(fs.read("/file")), Errno::IO);
    assert_eq!(errno(fs.write("/new", "x")), Errno::IO);
    assert_eq!(errno(fs.stat("/file".into())), Errno::IO);
    assert_eq!(errno(fs.fsync(file.handle())), Errno::IO);
    assert_eq!(errno(fs.remove_file("/file")), Errno::IO);
    assert_eq!(errno(store.put("key", "x")), Errno::IO);
    assert_eq!(errno(store.get("file")), Errno::IO);
    assert_eq!(errno(volume.check()), Errno::IO);
    drop((file, store));
    drop(fs);
    assert_eq!(errno(volume.close().map_err(Error::from)), Errno::IO);
    assert_eq!(other_fs.read("/file").unwrap(), vec![5; 300_000]);
    other_fs.write("/new", "x").unwrap();
    assert_sound(&other);
}

#[test]
fn illegal_names_and_paths_are_refused() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    fs.write("/file", "x").unwrap();
    let long = "n".repeat(256);
    assert_eq!(errno(fs.write(&long, "x")), Errno::NAMETOOLONG);
    assert_eq!(errno(fs.create_dir(&long)), Errno::NAMETOOLONG);
    assert_eq!(
        errno(fs.rename_with("/file".into(), (&long).into(), RenameMode::Replace)),
        Errno::NAMETOOLONG
    );
    fs.write("n".repeat(255), "x").unwrap();
    assert_eq!(errno(fs.write("a\0b", "x")), Errno::INVAL);
    assert_eq!(errno(fs.write("", "x")), Errno::NOENT);
    assert_eq!(errno(fs.write("/", "x")), Errno::ISDIR);
    assert_eq!(errno(fs.write("/new/", "x")), Errno::ISDIR);
    assert_eq!(errno(fs.write("/file/", "x")), Errno::ISDIR);
    assert_eq!(errno(fs.read("/file/")), Errno::NOTDIR);
    assert_eq!(errno(fs.write("/file/below", "x")), Errno::NOTDIR);
    assert_eq!(errno(fs.symlink("".as_ref(), "/empty".into())), Errno::NOENT);
    assert_eq!(errno(fs.symlink("t".repeat(4096).as_ref(), "/long".into())), Errno::NAMETOOLONG);
    assert_eq!(errno(fs.stat((&"/".repeat(4096)).into())), Errno::NAMETOOLONG);
    fs.stat((&"/".repeat(4095)).into()).unwrap();
    let store = volume.store("/", Credentials::root()).unwrap();
    assert_eq!(errno(store.put("", "x")), Errno::INVAL);
    assert_eq!(errno(store.put(&long, "x")), Errno::NAMETOOLONG);
    assert!(store.put("a/b\0", "any byte will do").unwrap());
    drop(store);
    assert_sound(&volume);
}

#[test]
fn tree_deeper_than_any_path_can_be_removed() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(32 * MIB);
    let fs = root(&volume);
    // A path may have 15 of these names, but not 17.
    let step = "d".repeat(250);
    let half = format!("/{}", [&*step; 15].join("/"));
    fs.create_dir_all(&half).unwrap();
    let below = format!("{half}/{step}/{step}");
    assert_eq!(errno(fs.create_dir(&below)), Errno::NAMETOOLONG);
    // Renames make a tree whose paths are too long for a call.
    for _ in 0..5 {
        fs.create_dir_all("/next").unwrap();
        fs.rename_with((&format!("/{step}")).into(), (&format!("/next/{step}")).into(), RenameMode::Replace)
            .unwrap();
        fs.rename_with("/next".into(), (&format!("/{step}")).into(), RenameMode::Replace).unwrap();
    }
    assert_sound(&volume);
    // The loop empties the tree from the top, and moves the rest of the tree up.
    let mut depth = 0;
    while let Some(entry) = fs.read_dir("/").unwrap().next() {
        let top = entry.unwrap().path();
        let inner = fs.read_dir(&top).unwrap().next();
        if let Some(inner) = inner {
            fs.rename_with(
                (&inner.unwrap().path()).into(),
                (&format!("/rest-{depth}")).into(),
                RenameMode::Replace,
            )
            .unwrap();
        }
        fs.remove_dir(&top).unwrap();
        depth += 1;
    }
    assert_eq!(depth, 20);
    assert_sound(&volume);
}

#[test]
fn loops_of_links_are_errors() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    fs.symlink("b".as_ref(), "/a".into()).unwrap();
    fs.symlink("a".as_ref(), "/b".into()).unwrap();
    fs.symlink("self/x".as_ref(), "/self".into()).unwrap();
    for path in ["/a", "/b", "/a/x", "/self", "/self/y"] {
        assert_eq!(errno(fs.stat(path.into())), Errno::LOOP, "{path}");
        assert_eq!(errno(fs.write(path, "x")), Errno::LOOP, "{path}");
    }
    assert!(fs.stat(Target::NoFollow("/a".into())).unwrap().is_symlink());
    fs.remove_dir_all("/").unwrap();
    assert_sound(&volume);
}

#[test]
fn largest_offsets_and_sizes_are_handled() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    let max = i64::MAX as u64;
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let file = fs.open("/file".into(), flags, 0o600).unwrap();
    let mut byte = [0];
    assert_eq!(fs.read_at(&file, &mut [], 0).unwrap(), 0);
    assert_eq!(fs.write_at(&file, &[], max).unwrap(), 0);
    assert_eq!(fs.stat(Target::Open(&file)).unwrap().size, 0);
    assert_eq!(fs.read_at(&file, &mut [], max).unwrap(), 0);
    assert_eq!(fs.read_at(&file, &mut byte, max - 1).unwrap(), 0);
    // Like the kernel, the calls refuse a range that ends past the largest size.
    for offset in [max, max + 1, u64::MAX] {
        assert_eq!(errno(fs.read_at(&file, &mut byte, offset)), Errno::INVAL);
        assert_eq!(errno(fs.write_at(&file, &byte, offset)), Errno::INVAL);
    }
    assert_eq!(fs.write_at(&file, &[9], max - 1).unwrap(), 1);
    assert_eq!(fs.stat(Target::Open(&file)).unwrap().size, max);
    assert_eq!(fs.read_at(&file, &mut byte, max - 1).unwrap(), 1);
    assert_eq!(byte, [9]);
    assert_eq!(errno(fs.append(&file, &byte)), Errno::FBIG);
    assert_eq!(fs.seek(&file, 0, Whence::Data).unwrap() >> 12, (max - 1) >> 12);
    assert_eq!(errno(fs.seek(&file, max, Whence::Data)), Errno::NXIO);
    for size in [max + 1, u64::MAX] {
        assert_eq!(errno(fs.truncate(Target::Open(&file), size)), Errno::INVAL);
        assert_eq!(errno(fs.truncate("/file".into(), size)), Errno::INVAL);
    }
    for size in [0, 1, max, 4095, 4097, 0] {
        fs.truncate(Target::Open(&file), size).unwrap();
        assert_eq!(fs.stat(Target::Open(&file)).unwrap().size, size);
    }
    for seconds in [i64::MIN, i64::MAX, -1] {
        let time = Time::new(seconds, 999_999_999);
        fs.utimens("/file".into(), SetTime::To(time), SetTime::To(time)).unwrap();
        // As on Linux, the first and the last second of the range have no nanoseconds.
        let time = if seconds == -1 { time } else { Time::new(seconds, 0) };
        assert_eq!(fs.stat("/file".into()).unwrap().modified, time);
    }
    fs.close(file).unwrap();
    assert_sound(&volume);
}

#[test]
fn get_refuses_a_file_larger_than_the_largest_value() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    fs.mkdir("/store".into(), 0o755).unwrap();
    let file = fs.create_file("/store/sparse").unwrap();
    file.set_len(1 << 40).unwrap();
    let store = volume.store("/store", Credentials::root()).unwrap();
    assert_eq!(errno(store.get("sparse")), Errno::FBIG);
    // Extending this sparse file takes no space.
    let free = volume.information().free_bytes;
    file.set_len((1 << 41) + 1).unwrap();
    assert_eq!(volume.information().free_bytes, free);
}

#[test]
fn forked_child_gets_errors_and_harms_nothing() {
    let _alone = alone();
    let place = Place::new();
    let volume = place.create(8 * MIB);
    let fs = root(&volume);
    fs.write("/file", "kept").unwrap();
    let file = fs.options().read(true).write(true).open("/file").unwrap();
    let unnamed = fs.options().read(true).write(true).create(true).open("/unnamed").unwrap();
    unnamed.write_at(b"open", 0).unwrap();
    fs.remove_file("/unnamed").unwrap();
    let path = place.path();
    let all_refused = eyrie_faults::in_forked_child(|| {
        // This close changes only the child's copy of the counts of opens. The parent still has the file
        // open.
        eyrie_engine::Engine::close(&**fs.engine(), unnamed.handle().id());
        // The child does not open the volume again. A thread that the fork did not copy may hold the mutex of
        // the table of volume locks, so the open could wait forever.
        let results = [
            fs.write("/file", "child").map(drop),
            fs.read("/file").map(drop),
            fs.stat("/file".into()).map(drop),
            fs.remove_file("/file"),
            fs.mkdir("/dir".into(), 0o755),
            fs.write_at(file.handle(), b"child", 0).map(drop),
            fs.read_at(file.handle(), &mut [0; 4], 0).map(drop),
            fs.fsync(file.handle()),
            volume.check().map(drop),
        ];
        results.iter().all(|result| matches!(result, Err(error) if error.errno() == Errno::IO))
    });
    assert!(all_refused.unwrap(), "a call of the child succeeded");
    let mut bytes = [0; 4];
    unnamed.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"open");
    unnamed.close().unwrap();
    assert_eq!(fs.read("/file").unwrap(), b"kept");
    fs.write("/file", "parent").unwrap();
    assert_sound(&volume);
    refusal(&place.path(), Errno::BUSY);
    file.close().unwrap();
    drop(fs);
    volume.close().unwrap();
    assert_eq!(root(&Volume::open(&path).unwrap()).read("/file").unwrap(), b"parent");
}
