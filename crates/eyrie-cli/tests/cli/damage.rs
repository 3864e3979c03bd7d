//! Tests that every command on a damaged volume comes to an end, with limits on processor time, memory and
//! output.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use eyrie::{Credentials, Files, Posix, PosixExt, Target, Volume};
use eyrie_testkit::hostile::{
    Damage, FieldDamage, Image, LowestSlots, bases, field_damages, journal_damages, owned_twice,
};

use crate::Sandbox;
use crate::errors::segment;

/// The limits of a command: 20 seconds of processor time and 1 GiB of memory. A command that waits forever is
/// ended after five minutes.
const LIMITS: &str = "ulimit -t 20; ulimit -d 1048576; exec timeout 300 \"$@\"";
/// The limits of [`LIMITS`] except the limit of memory, for commands that map a volume of a terabyte. The
/// private mapping of a check counts as memory, although the check touches little of it.
const TIME_LIMIT: &str = "ulimit -t 20; exec timeout 300 \"$@\"";
/// Maximum number of bytes that a command may print.
const MAX_PRINTED: usize = 16 << 20;
/// Maximum number of bytes of storage that an export and an archive may occupy together.
const MAX_EXPORTED: u64 = 64 << 20;
/// The bits of a slot that hold the position of its record.
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
    assert!(printed < MAX_PRINTED, "{arguments:?} printed {printed} bytes");
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

/// Commands that read a volume. They name objects of both volumes that the tests damage, `few` and `large`.
const READING: &[&[&str]] = &[
    &["info", "vol"],
    &["df", "vol"],
    &["stat", "vol:/"],
    &["ls", "-R", "-l", "-a", "vol:/"],
    &["tree", "vol:/"],
    &["tree", "--canonical", "vol:/"],
    &["find", "vol:/"],
    &["du", "-a", "vol:/"],
    &["cat", "vol:/a", "vol:/b", "vol:/tree", "vol:/sparse"],
    &["kv", "scan", "vol:/"],
    &["kv", "get", "vol:/", "tree"],
    &["xattr", "list", "vol:/"],
    &["xattr", "get", "vol:/b", "user.one"],
    &["lsattr", "-R", "vol:/"],
    &["dump", "vol:/", "-o", "archive"],
    &["export", "vol:/", "out"],
    &["diff", "vol:/", "out"],
    &["diff", "--json", "vol:/", "vol:/"],
    &["stats", "vol"],
    &["fsck", "vol"],
];

/// Commands that change a volume, or something beside it.
const CHANGING: &[&[&str]] = &[
    &["cp", "-r", "vol:/", "copied"],
    &["cp", "-r", "vol:/d", "vol:/e/copied"],
    &["mkdir", "vol:/new"],
    &["rm", "-r", "vol:/d", "vol:/e"],
    &["rm", "vol:/a", "vol:/s", "vol:/p", "vol:/tree", "vol:/extent"],
    &["mv", "vol:/a", "vol:/b"],
    &["mv", "vol:/d", "vol:/e/d"],
    &["ln", "vol:/b", "vol:/d/new"],
    &["ln", "-s", "target", "vol:/d/link"],
    &["touch", "vol:/a", "vol:/d/new", "vol:/tree"],
    &["touch", "-r", "vol:/b", "vol:/a", "vol:/extent"],
    &["truncate", "-s", "10", "vol:/b", "vol:/tree", "vol:/sparse"],
    &["truncate", "-s", "1M", "vol:/c", "vol:/extent"],
    &["truncate", "-r", "vol:/sparse", "vol:/b"],
    &["chmod", "-R", "700", "vol:/"],
    &["chown", "-R", "7:7", "vol:/"],
    &["chattr", "-R", "+a", "vol:/"],
    &["chattr", "-R", "=", "vol:/"],
    &["kv", "put", "vol:/", "a", "a new value"],
    &["kv", "put", "vol:/d", "new", "a value"],
    &["kv", "put", "--if-absent", "vol:/", "tree", "a value"],
    &["kv", "erase", "vol:/", "tree"],
    &["kv", "erase", "vol:/", "b"],
    &["xattr", "set", "vol:/b", "user.two", "another value"],
    &["xattr", "rm", "vol:/b", "user.one"],
    &["import", "small", "vol:/imported"],
    &["load", "vol:/loaded", "-i", "small.tar"],
    &["run", "--keep-going", "script", "vol"],
    &["sync", "vol"],
    &["trim", "vol"],
    &["resize", "vol", "8M"],
    &["resize", "vol", "400K"],
    &["fsck", "--repair", "vol"],
];

/// The script of the command `run`.
const SCRIPT: &str = "\
write /a 10 5000 1
append /tree 9000 2
fallocate /b punch-hole 0 4096
rename /c /d/x
rename /d /f
unlink /b
put / k2 60 3
setxattr /d user.new value
truncate /sparse 100
sync
";

/// Makes a sandbox with inputs for the commands of [`CHANGING`].
fn with_inputs() -> Sandbox {
    let sandbox = Sandbox::with_volume("1M");
    fs::create_dir_all(sandbox.path("small/dir")).unwrap();
    fs::write(sandbox.path("small/dir/file"), [7; 6000]).unwrap();
    fs::write(sandbox.path("script"), SCRIPT).unwrap();
    sandbox.succeed(["import", "small", "vol:/small"]);
    sandbox.succeed(["dump", "-q", "vol:/small", "-o", "small.tar"]);
    sandbox
}

/// Runs the commands that read the damaged volume `vol`.
fn read(sandbox: &Sandbox) {
    READING.iter().for_each(|arguments| drop(bounded(sandbox, arguments)));
    assert!(stored(&sandbox.path("out")) + stored(&sandbox.path("archive")) < MAX_EXPORTED);
    clear(sandbox, &["archive", "out"]);
}

/// Runs the commands that change the damaged volume `vol`. Each command starts with the same bytes of the
/// volume.
fn change(sandbox: &Sandbox) {
    let bytes = fs::read(segment(sandbox)).unwrap();
    for arguments in CHANGING {
        bounded(sandbox, arguments);
        clear(sandbox, &["copied", "vol", "vol.damaged"]);
        put(sandbox, &bytes);
    }
}

/// Repairs the damaged volume `vol`. Returns true if a sound volume was made.
fn repair(sandbox: &Sandbox) -> bool {
    let repaired = bounded(sandbox, &["fsck", "--repair", "--into", "sound", "vol"]);
    // The status is 0 if the check found no damage, 1 if the volume is repaired, and 8 if no superblock is
    // valid.
    let status = repaired.status.code();
    assert!(matches!(status, Some(0 | 1 | 8)), "{}", String::from_utf8_lossy(&repaired.stderr));
    if status == Some(1) {
        assert_eq!(limited(sandbox, TIME_LIMIT, &["fsck", "sound"]).status.code(), Some(0));
    }
    clear(sandbox, &["sound"]);
    status == Some(1)
}

fn every_command(sandbox: &Sandbox, bytes: &[u8]) {
    put(sandbox, bytes);
    read(sandbox);
    put(sandbox, bytes);
    change(sandbox);
    repair(sandbox);
}

/// Makes the volume `vol` from these bytes of its segment.
fn put(sandbox: &Sandbox, bytes: &[u8]) {
    let dir = sandbox.path("vol");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("lock"), b"").unwrap();
    fs::write(dir.join("segment-0000"), bytes).unwrap();
}

/// The structures of a volume that do not depend on its objects.
const TABLES: [&str; 6] =
    ["Superblock", "Volume page", "Redo slot", "Saved allocator", "Saved slab page", "Saved header chunk"];

/// Runs the reading commands on each image of the volume `base` in which a field of a chosen structure has
/// another value. Runs the changing commands and the repair on one of every 16 images. Returns the number of
/// repaired images.
fn meet_fields_of(base: &str, is_chosen: impl Fn(&str) -> bool) -> u32 {
    let sandbox = with_inputs();
    let bases = bases();
    let base = bases.iter().find(|found| found.name == base).unwrap();
    let images = field_damages(base, 1).filter(|damage| is_chosen(damage.name.0));
    let mut repaired = 0;
    for (index, FieldDamage { image, .. }) in images.enumerate() {
        let bytes = image.to_bytes();
        put(&sandbox, &bytes);
        read(&sandbox);
        if index % 16 == 0 {
            put(&sandbox, &bytes);
            change(&sandbox);
            repaired += u32::from(repair(&sandbox));
        }
    }
    repaired
}

#[test]
fn commands_end_for_any_field_value_of_tables() {
    // The number of repairs does not matter here. With most values of the superblock no copy of it is valid,
    // so a repair is refused. Most fields of the other tables are not used.
    let _ = meet_fields_of("few", |structure| TABLES.contains(&structure));
}

#[test]
fn commands_end_for_any_field_value_of_objects() {
    assert!(meet_fields_of("few", |structure| !TABLES.contains(&structure)) > 1);
}

#[test]
fn commands_end_for_any_field_value_of_trees() {
    assert!(meet_fields_of("large", |structure| !TABLES.contains(&structure)) > 1);
}

#[test]
fn commands_end_for_a_damaged_journal() {
    let sandbox = with_inputs();
    clear(&sandbox, &["vol"]);
    sandbox.succeed(["mkfs", "vol", "--size", "1M", "--medium", "paged"]);
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    for (path, bytes) in [("/a", 100), ("/b", 5000), ("/tree", 40_000)] {
        files.write(path, vec![1; bytes]).unwrap();
        volume.sync().unwrap();
    }
    // These bytes are those of a volume whose process was killed, so its journal is replayed.
    let killed = fs::read(segment(&sandbox)).unwrap();
    drop(files);
    volume.close().unwrap();
    let (mut sound, mut refused) = (0, 0);
    for (index, (_, bytes)) in journal_damages(&killed).enumerate() {
        put(&sandbox, &bytes);
        // Most of these values end the journal early. The volume then has the contents of an earlier sync.
        match bounded(&sandbox, &["fsck", "vol"]).status.code() {
            Some(0) => sound += 1,
            _ => refused += 1,
        }
        bounded(&sandbox, &["ls", "vol:/"]);
        if index % 10 == 0 {
            every_command(&sandbox, &bytes);
        }
    }
    assert!(sound > 20 && refused > 5, "{sound}, {refused}");
}

#[test]
fn commands_end_for_a_tree_of_shared_nodes() {
    let sandbox = with_inputs();
    let bases = bases();
    let base = bases.iter().find(|base| base.name == "large").unwrap();
    for slots in LowestSlots::ALL {
        let mut image = Image::new(base);
        // The leaf and the six nodes of the tree are in seven of the last eight pages.
        let page = base.bytes.len() as u64 - (8 << 12);
        Damage::Bomb { file: base.hot_copy(b"tree"), page, slots }.apply(&mut image);
        every_command(&sandbox, &image.to_bytes());
        put(&sandbox, &image.to_bytes());
        for arguments in [
            &["cat", "vol:/tree"][..],
            &["cp", "vol:/tree", "copied"],
            &["dump", "vol:/", "-o", "archive"],
            &["export", "vol:/", "out"],
        ] {
            assert_eq!(bounded(&sandbox, arguments).status.code(), Some(1), "{arguments:?}, {slots:?}");
        }
        assert!(sandbox.path("out/extent").exists() && !sandbox.path("out/tree").exists());
        clear(&sandbox, &["archive", "copied", "out"]);
        put(&sandbox, &image.to_bytes());
        assert!(repair(&sandbox));
    }
}

#[test]
fn commands_end_if_storage_has_two_owners() {
    let sandbox = with_inputs();
    let bases = bases();
    let base = bases.iter().find(|base| base.name == "few").unwrap();
    for (what, image) in owned_twice(base) {
        let bytes = image.to_bytes();
        every_command(&sandbox, &bytes);
        assert_eq!(bounded(&sandbox, &["fsck", "vol"]).status.code(), Some(4), "{what}");
        assert!(repair(&sandbox), "{what}");
    }
}

#[test]
fn illegal_times_are_found_and_do_not_fail_an_export() {
    let sandbox = Sandbox::new();
    let bases = bases();
    let mut seen = 0;
    for FieldDamage { name, image, .. } in field_damages(&bases[0], 1) {
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
    let file = fs::OpenOptions::new().write(true).open(segment(sandbox)).unwrap();
    let bytes = fs::read(segment(sandbox)).unwrap();
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

fn inode(files: &Files, path: &str) -> u64 {
    files.stat(Target::NoFollow(path.into())).unwrap().inode
}

/// Makes a volume with a tree `/tree` of this number of levels. Each level has two names for the next level:
/// `next` and `twin`. The last level has only `twin`, which names the first level.
fn tangled(levels: usize) -> Sandbox {
    let sandbox = Sandbox::with_volume("16M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    let (mut path, mut inodes, mut pairs) = (String::from("/tree"), Vec::new(), Vec::new());
    for _ in 0..levels {
        files.create_dir(&path).unwrap();
        files.write(format!("{path}/file"), b"kept").unwrap();
        files.create_dir(format!("{path}/twin")).unwrap();
        inodes.push((inode(&files, &path), inode(&files, &format!("{path}/twin"))));
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
fn diff_compares_nothing_below_a_directory_that_it_cannot_read() {
    let sandbox = Sandbox::with_volume("16M");
    fs::create_dir_all(sandbox.path("tree")).unwrap();
    for name in ["0", "a", "b", "c"] {
        fs::create_dir(sandbox.path("tree").join(name)).unwrap();
        fs::write(sandbox.path("tree").join(name).join("file"), "x").unwrap();
    }
    sandbox.succeed(["import", "-q", "tree", "vol:/tree"]);
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    let [first, a, b] = ["/tree/0", "/tree/a", "/tree/b"].map(|path| inode(&files, path));
    drop(files);
    volume.close().unwrap();
    // The names `a` and `b` then lead to a directory that the walk has entered before.
    redirect(&sandbox, &[(a, first), (b, first)]);
    fs::write(sandbox.path("tree/c/new"), "x").unwrap();
    for places in [["vol:/tree", "tree"], ["tree", "vol:/tree"]] {
        let output = bounded(&sandbox, &["diff", places[0], places[1]]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "Only in tree/c: new\n");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.lines().count() == 2 && told.contains("/tree/a") && told.contains("/tree/b"), "{told}");
    }
    // Both sides fail at the same paths.
    let both = bounded(&sandbox, &["diff", "vol:/tree", "vol:/tree"]);
    assert_eq!((both.status.code(), both.stdout.len()), (Some(2), 0), "{both:?}");
}

#[test]
fn small_volume_with_huge_claims_costs_little() {
    let bases = bases();
    // The base `few`.
    let base = &bases[1];
    let sandbox = with_inputs();
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
        every_command(&sandbox, &image.to_bytes());
        // Some of these commands also run on a segment of the claimed size.
        let file = fs::OpenOptions::new().write(true).open(segment(&sandbox)).unwrap();
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
        &["diff", "vol:/tree", "vol:/copy"],
        &["diff", "vol:/tree", "out"],
    ] {
        bounded(&sandbox, arguments);
    }
    assert!(stored(&sandbox.path("out")) + stored(&sandbox.path("archive")) < 1 << 20);
}
