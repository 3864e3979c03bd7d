//! Tests that commands end on damaged volumes, with limits on processor time, memory and output.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use eyrie::{Credentials, Posix, PosixExt, Volume};
use eyrie_testkit::hostile::{Broken, Image, bases, broken};

use crate::Sandbox;

/// The limits of a command: 20 seconds of processor time and 1 GiB of memory. A command that waits forever is
/// ended after five minutes.
const LIMITS: &str = "ulimit -t 20; ulimit -d 1048576; exec timeout 300 \"$@\"";
/// The limits of [`LIMITS`] except the limit of memory, for commands that map a volume of a terabyte. The
/// private mapping of a check counts as memory, although the check touches little of it.
const TIME_LIMIT: &str = "ulimit -t 20; exec timeout 300 \"$@\"";
/// Maximum number of bytes that a command may print.
const MOST_PRINTED: usize = 16 << 20;
/// Maximum number of bytes of storage that an export and an archive may occupy together.
const MOST_EXPORTED: u64 = 64 << 20;
/// The bits of a slot with the position of its record.
const RECORD_PLACE: u64 = 0xff << 56;

/// Runs a command with limits. The command must end by itself, without a panic.
fn bounded(sandbox: &Sandbox, arguments: &[&str]) -> Output {
    limited(sandbox, LIMITS, arguments)
}

fn limited(sandbox: &Sandbox, limits: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", limits, "sh", env!("CARGO_BIN_EXE_eyrie")]).args(arguments);
    let output = command.current_dir(sandbox.path("")).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code();
    assert!(status.is_some_and(|status| status < 100), "{arguments:?}: {:?}: {told}", output.status);
    assert!(!told.contains("panicked"), "{arguments:?}: {told}");
    let printed = output.stdout.len() + output.stderr.len();
    assert!(printed < MOST_PRINTED, "{arguments:?} printed {printed} bytes");
    output
}

/// Returns the number of bytes of storage that a file, or a directory with all of its contents, occupies.
fn stored(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    let inside = if metadata.is_dir() { fs::read_dir(path).ok() } else { None };
    let inside = inside.into_iter().flatten().map_while(Result::ok);
    metadata.blocks() * 512 + inside.map(|entry| stored(&entry.path())).sum::<u64>()
}

fn clear(sandbox: &Sandbox, names: &[&str]) {
    for name in names {
        let path = sandbox.path(name);
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
}

/// Runs commands that walk or change a volume. They run on the damaged volume `vol`. The repair comes last.
/// It gets the bytes that the volume had before the other commands.
fn every_command(sandbox: &Sandbox) {
    let bytes = fs::read(sandbox.path("vol/segment-0000")).unwrap();
    let renew = || fs::write(sandbox.path("vol/segment-0000"), &bytes).unwrap();
    for arguments in [
        &["info", "vol"][..],
        &["df", "vol"],
        &["stat", "vol:/"],
        &["ls", "-R", "-l", "-a", "vol:/"],
        &["tree", "vol:/"],
        &["tree", "--canonical", "vol:/"],
        &["find", "vol:/"],
        &["du", "-a", "vol:/"],
        &["kv", "scan", "vol:/"],
        &["xattr", "list", "vol:/"],
        &["dump", "vol:/", "-o", "archive"],
        &["export", "vol:/", "out"],
        &["fsck", "vol"],
    ] {
        bounded(sandbox, arguments);
    }
    assert!(stored(&sandbox.path("out")) + stored(&sandbox.path("archive")) < MOST_EXPORTED);
    for arguments in [
        &["cp", "-r", "vol:/", "copied"][..],
        &["mkdir", "vol:/new"],
        &["rm", "-r", "vol:/dir"],
        &["trim", "vol"],
        &["resize", "vol", "8M"],
    ] {
        bounded(sandbox, arguments);
    }
    renew();
    let repaired = bounded(sandbox, &["fsck", "--repair", "--into", "sound", "vol"]);
    // The status is 0 if the check found no damage, 1 if the volume is repaired, and 8 if no superblock is
    // valid.
    match repaired.status.code() {
        Some(0 | 8) => {}
        Some(1) => assert_eq!(limited(sandbox, TIME_LIMIT, &["fsck", "sound"]).status.code(), Some(0)),
        status => panic!("{status:?}: {}", String::from_utf8_lossy(&repaired.stderr)),
    }
    clear(sandbox, &["archive", "out", "copied", "sound"]);
}

/// Makes the volume `vol` from these bytes of its segment.
fn put(sandbox: &Sandbox, bytes: &[u8]) {
    let dir = sandbox.path("vol");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("lock"), b"").unwrap();
    fs::write(dir.join("segment-0000"), bytes).unwrap();
}

#[test]
fn commands_end_for_any_field_value() {
    let sandbox = Sandbox::new();
    let bases = bases();
    for Broken { image, .. } in broken(&bases[1], 1) {
        put(&sandbox, &image.to_bytes());
        every_command(&sandbox);
    }
}

#[test]
fn illegal_times_are_found_and_do_not_fail_an_export() {
    let sandbox = Sandbox::new();
    let bases = bases();
    let mut seen = 0;
    for Broken { name, image, .. } in broken(&bases[0], 4) {
        if !matches!(name, (_, "modified_nanoseconds" | "accessed_nanoseconds")) {
            continue;
        }
        put(&sandbox, &image.to_bytes());
        assert_eq!(bounded(&sandbox, &["fsck", "vol"]).status.code(), Some(4), "{name:?}");
        let exported = bounded(&sandbox, &["export", "vol:/", "out"]);
        let told = String::from_utf8_lossy(&exported.stdout);
        seen += u32::from(told.contains("with another time"));
        assert!(!String::from_utf8_lossy(&exported.stderr).contains("Invalid argument"), "{exported:?}");
        clear(&sandbox, &["out"]);
    }
    // The modification time of a directory may come from its bucket pages instead of its header, so not every
    // illegal time is seen.
    assert!(seen > 4, "{seen}");
}

/// Changes directory entries of a volume. Each entry that names the first directory of a pair then names the
/// second.
fn redirect(sandbox: &Sandbox, pairs: &[(u64, u64)]) {
    let file = fs::OpenOptions::new().write(true).open(sandbox.path("vol/segment-0000")).unwrap();
    let bytes = fs::read(sandbox.path("vol/segment-0000")).unwrap();
    for &(from, to) in pairs {
        let mut found = 0;
        for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            if word & !RECORD_PLACE == from && word & RECORD_PLACE != 0 {
                let changed = (word & RECORD_PLACE | to).to_le_bytes();
                file.write_all_at(&changed, index as u64 * 8).unwrap();
                found += 1;
            }
        }
        assert!(found > 0, "no entry names {from}");
    }
}

/// Makes a volume with a tree `/tree` of this number of levels. Each level has two names for the next level,
/// and the last level names the first.
fn tangled(levels: usize) -> Sandbox {
    let sandbox = Sandbox::with_volume("16M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    let (mut path, mut inodes, mut pairs) = (String::from("/tree"), Vec::new(), Vec::new());
    for _ in 0..levels {
        files.create_dir(&path).unwrap();
        files.write(format!("{path}/file"), b"kept").unwrap();
        files.create_dir(format!("{path}/twin")).unwrap();
        let inode = |path: &str| files.lstat(path).unwrap().inode;
        inodes.push((inode(&path), inode(&format!("{path}/twin"))));
        path.push_str("/next");
    }
    for (index, &(_, twin)) in inodes.iter().enumerate() {
        let next = inodes.get(index + 1).unwrap_or(&inodes[0]).0;
        pairs.push((twin, next));
    }
    drop(files);
    volume.close().unwrap();
    redirect(&sandbox, &pairs);
    sandbox
}

#[test]
fn directory_cycle_is_reported_once_by_each_command() {
    const LEVELS: usize = 30;
    let sandbox = tangled(LEVELS);
    // Each directory of the tree has two names. A command enters the directory under one name, and reports
    // the other name.
    let reports = |output: &Output| {
        String::from_utf8_lossy(&output.stderr).lines().filter(|line| line.contains("damaged")).count()
    };
    for arguments in [
        &["find", "vol:/tree"][..],
        &["du", "vol:/tree"],
        &["tree", "vol:/tree"],
        &["ls", "-R", "vol:/tree"],
        &["dump", "vol:/tree", "-o", "archive"],
        &["export", "vol:/tree", "out"],
        &["cp", "-r", "vol:/tree", "vol:/copy"],
    ] {
        let output = bounded(&sandbox, arguments);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(reports(&output), LEVELS, "{arguments:?}");
    }
    let deepest = format!("out{}/file", "/next".repeat(LEVELS - 1));
    assert_eq!(fs::read(sandbox.path(deepest)).unwrap(), b"kept");
    assert_eq!(bounded(&sandbox, &["tree", "--canonical", "vol:/tree"]).status.code(), Some(1));
    assert_eq!(bounded(&sandbox, &["fsck", "vol"]).status.code(), Some(4));
    assert_eq!(bounded(&sandbox, &["fsck", "--repair", "--into", "sound", "vol"]).status.code(), Some(1));
    assert!(sandbox.succeed(["fsck", "sound"]).contains("sound"));
    assert_eq!(sandbox.succeed(["find", "sound:/tree", "--name", "file"]).lines().count(), LEVELS);
    assert_eq!(bounded(&sandbox, &["rm", "-r", "vol:/tree"]).status.code(), Some(1));
    assert_eq!(sandbox.run(["find", "vol:/tree", "--name", "file"]).stdout, b"");
}

#[test]
fn small_volume_with_huge_claims_costs_little() {
    let bases = bases();
    let base = &bases[1];
    let sandbox = Sandbox::new();
    let most = 1_u64 << 40;
    // The claimed sizes: the size of the volume, the size of its first segment, and the maximum size.
    for sizes in [[most; 3], [2 << 30, 2 << 30, most]] {
        let mut image = Image::new(base);
        for copy in [0, 4096] {
            for (at, size) in [80, 256, 128].into_iter().zip(sizes) {
                image.write_word(copy + at, size);
            }
        }
        image.mend_checksums();
        put(&sandbox, &image.to_bytes());
        every_command(&sandbox);
        // Some of these commands also run on a segment of the claimed size.
        let file = fs::OpenOptions::new().write(true).open(sandbox.path("vol/segment-0000")).unwrap();
        file.set_len(sizes[0]).unwrap();
        drop(file);
        for arguments in [&["fsck", "vol"][..], &["find", "vol:/"], &["export", "vol:/", "out"]] {
            limited(&sandbox, TIME_LIMIT, arguments);
        }
        clear(&sandbox, &["vol", "out"]);
    }
}

#[test]
fn sparse_file_of_exabytes_costs_little() {
    let sandbox = Sandbox::with_volume("16M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    files.create_dir("/tree").unwrap();
    files.create_file("/tree/huge").unwrap().set_len(1 << 62).unwrap();
    assert_eq!(files.read("/tree/huge").unwrap_err().errno(), eyrie::Errno::NOMEM);
    drop(files);
    volume.close().unwrap();
    for arguments in [
        &["cp", "-r", "vol:/tree", "vol:/copy"][..],
        &["export", "vol:/tree", "out"],
        &["dump", "vol:/tree", "-o", "archive"],
        &["du", "-a", "vol:/"],
        &["kv", "get", "vol:/tree", "huge"],
    ] {
        bounded(&sandbox, arguments);
    }
    assert!(stored(&sandbox.path("out")) + stored(&sandbox.path("archive")) < 1 << 20);
}
