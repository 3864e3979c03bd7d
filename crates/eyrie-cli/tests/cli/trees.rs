//! Tests that trees are the same after import and export.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use eyrie::Volume;
use eyrie_testkit::tree_fixture::{Manifest, grow};

use crate::Sandbox;

#[test]
fn import_and_export_keep_every_attribute() {
    ["auto", "paged"].into_iter().for_each(round_trip);
}

fn round_trip(medium: &str) {
    let sandbox = Sandbox::new();
    sandbox.succeed(["mkfs", "vol", "--size", "256M", "--medium", medium]);
    let tree = sandbox.path("tree");
    fs::create_dir(&tree).unwrap();
    grow(&tree).unwrap();
    let before = Manifest::of(&tree).unwrap();
    let told = sandbox.succeed(["import", "tree", "vol:/tree"]);
    assert!(told.starts_with("imported "), "{told}");
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    sandbox.succeed(["export", "vol:/tree", "out"]);
    let differences = before.differences(&Manifest::of(&sandbox.path("out")).unwrap());
    assert!(differences.is_empty(), "{differences:#?}");

    sandbox.succeed(["mkfs", "two", "--size", "256M"]);
    sandbox.succeed(["cp", "-r", "vol:/tree", "two:/"]);
    sandbox.succeed(["cp", "-r", "two:/tree", "again"]);
    assert!(sandbox.succeed(["fsck", "two"]).contains("sound"));
    let differences = before.differences(&Manifest::of(&sandbox.path("again")).unwrap());
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Gives a file the capability to open every file. Returns false if the host refuses, as it does to users
/// other than root.
fn set_capability(path: &Path) -> bool {
    // Version 2 of the kernel's format, with CAP_DAC_OVERRIDE.
    let words = [0x0200_0000_u32, 1 << 1, 0, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    rustix::fs::setxattr(path, "security.capability", &bytes, rustix::fs::XattrFlags::empty()).is_ok()
}

/// Returns the value of an extended attribute of a file of the host.
fn attribute(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 100];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
    value.truncate(length);
    value
}

#[test]
fn capabilities_are_copied_and_archived() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    let file = sandbox.path("tree/file");
    fs::write(&file, "bytes").unwrap();
    if !set_capability(&file) {
        return;
    }
    std::os::unix::fs::chown(&file, Some(7), Some(8)).unwrap();
    assert!(set_capability(&file), "the change of the owner has removed it");
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    sandbox.succeed(["cp", "vol:/tree/file", "vol:/copy"]);
    sandbox.succeed(["dump", "vol:/", "-o", "all.tar"]);
    sandbox.succeed(["mkfs", "two", "--size", "64M"]);
    sandbox.succeed(["load", "two:/", "-i", "all.tar"]);
    sandbox.succeed(["export", "two:/", "out"]);
    for name in ["tree/file", "copy"] {
        let copied = attribute(&sandbox.path("out").join(name), "security.capability");
        assert_eq!(copied, attribute(&file, "security.capability"), "{name}");
    }
    for volume in ["vol", "two"] {
        assert!(sandbox.succeed(["fsck", volume]).contains("sound"));
    }
}

#[test]
fn acls_are_copied_and_archived() {
    // The rights of the owner, user 1000, the group, the mask and others, in the format of Linux.
    let acl = |rights: [u16; 5]| {
        let none = u32::MAX;
        let entries = [(1_u16, none), (2, 1000), (4, none), (0x10, none), (0x20, none)];
        let entry = |((tag, id), rights): ((u16, u32), u16)| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        [2_u32.to_le_bytes().to_vec(), entries.into_iter().zip(rights).flat_map(entry).collect()].concat()
    };
    let sandbox = Sandbox::with_volume("64M");
    let tree = sandbox.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "bytes").unwrap();
    let acls = [
        ("file", "system.posix_acl_access", acl([6, 4, 0, 4, 0])),
        ("", "system.posix_acl_access", acl([7, 5, 5, 5, 0])),
        ("", "system.posix_acl_default", acl([7, 7, 0, 7, 0])),
    ];
    for (path, name, value) in &acls {
        let set = rustix::fs::setxattr(tree.join(path), *name, value, rustix::fs::XattrFlags::empty());
        if set.is_err() {
            eprintln!("NOT TESTED: the host's file system has no ACLs");
            return;
        }
    }
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    sandbox.succeed(["cp", "-r", "vol:/tree", "vol:/copy"]);
    sandbox.succeed(["dump", "vol:/", "-o", "all.tar"]);
    sandbox.succeed(["mkfs", "two", "--size", "64M"]);
    sandbox.succeed(["load", "two:/", "-i", "all.tar"]);
    sandbox.succeed(["export", "two:/", "out"]);
    for (top, (path, name, value)) in
        ["tree", "copy"].iter().flat_map(|top| acls.iter().map(move |acl| (top, acl)))
    {
        let found = attribute(&sandbox.path("out").join(top).join(path), name);
        assert_eq!(found, *value, "{name} of {top}/{path}");
    }
}

#[test]
fn archives_have_all_bytes_of_clones() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), vec![7; 8 << 20]).unwrap();
    sandbox.succeed(["cp", "file", "vol:/file"]);
    sandbox.succeed(["cp", "vol:/file", "vol:/clone"]);
    sandbox.succeed(["dump", "vol:/", "-o", "all.tar"]);
    assert!(fs::metadata(sandbox.path("all.tar")).unwrap().len() > 16 << 20);
    sandbox.succeed(["mkfs", "two", "--size", "64M"]);
    sandbox.succeed(["load", "two:/", "-i", "all.tar"]);
    let saved = |volume: &str| {
        let stats: serde_json::Value =
            serde_json::from_str(&sandbox.succeed(["stats", volume, "--json"])).unwrap();
        stats["saved_by_sharing_bytes"].as_u64().unwrap()
    };
    assert_eq!((saved("vol"), saved("two")), (8 << 20, 0));
}

#[test]
fn real_tree_is_equal_for_diff() {
    let real = ["/usr/include", "/usr/lib/python3", "/etc"].map(Path::new);
    let Some(real) = real.into_iter().find(|path| path.is_dir()) else { return };
    let sandbox = Sandbox::with_volume("2G");
    let imported = sandbox.run(["import".as_ref(), real.as_os_str(), "vol:/real".as_ref()]);
    assert!(imported.status.success(), "{imported:?}");
    sandbox.succeed(["export", "vol:/real", "out"]);
    let diff =
        Command::new("diff").args(["-r", "--no-dereference"]).arg(real).arg(sandbox.path("out")).output();
    let diff = diff.unwrap();
    assert!(diff.status.success() && diff.stdout.is_empty(), "{}", String::from_utf8_lossy(&diff.stdout));
}

#[test]
fn verbose_import_prints_every_path() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir_all(sandbox.path("tree/in")).unwrap();
    fs::write(sandbox.path("tree/in/new\nline"), "x").unwrap();
    let output = sandbox.run(["import", "-v", "tree", "vol:/tree"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["vol:/tree", "vol:/tree/in", "vol:/tree/in/new\\nline"]);
}

#[test]
fn volume_is_not_imported_into_itself() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), "x").unwrap();
    sandbox.succeed(["import", ".", "vol:/all"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/all"]), "file\n");
    sandbox.fail(1, &["own storage"], ["export", "vol:/all", "vol/out"]);
}

#[test]
fn unreadable_files_are_counted() {
    if crate::is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/file"), "x").unwrap();
    fs::write(sandbox.path("tree/secret"), "x").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    fs::set_permissions(sandbox.path("tree/secret"), mode).unwrap();
    let output = sandbox.run(["import", "tree", "vol:/tree"]);
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaints.contains("tree/secret") && complaints.contains("1 entry left out"), "{complaints}");
    assert_eq!(sandbox.succeed(["ls", "vol:/tree"]), "file\n");
}

/// Returns the offsets and bytes of the data at the start, in the middle and at the end of a sparse file of
/// `size` bytes.
fn islands(size: u64) -> [(u64, Vec<u8>); 3] {
    [(0, b"start".to_vec()), (size / 2 + 12345, vec![7; 100_000]), (size - 1, b"x".to_vec())]
}

/// Makes a sparse file with three ranges of data. The size of the file is 16 TiB, or a page less than 16 TiB,
/// or 1 TiB: the first of these sizes that the host allows. Returns this size.
fn make_large(path: &Path) -> u64 {
    let file = fs::File::create(path).unwrap();
    let largest = [1 << 44, (1 << 44) - 4096, 1 << 40];
    let size = largest.into_iter().find(|&size| file.set_len(size).is_ok()).unwrap();
    islands(size).iter().for_each(|(offset, bytes)| file.write_all_at(bytes, *offset).unwrap());
    size
}

fn assert_is_large(path: &Path, size: u64) {
    let file = fs::File::open(path).unwrap();
    let stat = file.metadata().unwrap();
    assert_eq!(stat.len(), size);
    assert!(stat.blocks() * 512 < 1 << 20, "the holes take space: {} blocks", stat.blocks());
    for (offset, bytes) in islands(size) {
        let mut read = vec![0; bytes.len()];
        file.read_exact_at(&mut read, offset).unwrap();
        assert!(read == bytes, "the bytes at {offset} differ");
    }
}

#[test]
fn sparse_files_of_16_tib_cost_only_their_data() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (sandbox, medium) in [(Sandbox::new(), "dram"), (Sandbox { dir: disk }, "paged")] {
        let succeed = |arguments: &[&str]| {
            // A command whose work grows with the size of the file would take days.
            let mut command = Command::new("timeout");
            command.args(["60", env!("CARGO_BIN_EXE_eyrie")]).args(arguments).current_dir(sandbox.path("."));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        };
        fs::create_dir(sandbox.path("tree")).unwrap();
        let size = make_large(&sandbox.path("tree/large"));
        succeed(&["mkfs", "vol", "--size", "64M", "--medium", medium]);
        succeed(&["import", "tree", "vol:/tree"]);
        succeed(&["export", "vol:/tree", "exported"]);
        assert_is_large(&sandbox.path("exported/large"), size);

        succeed(&["dump", "vol:/tree", "--output", "archive.tar"]);
        assert!(fs::metadata(sandbox.path("archive.tar")).unwrap().len() < 1 << 20);
        succeed(&["load", "vol:/loaded", "--input", "archive.tar"]);
        succeed(&["cp", "vol:/loaded/large", "copied"]);
        assert_is_large(&sandbox.path("copied"), size);

        succeed(&["fsck", "vol"]);
        succeed(&["rm", "-r", "vol:/tree", "vol:/loaded"]);
        let volume = Volume::open(sandbox.path("vol")).unwrap();
        assert!(volume.information().used_bytes < 64 << 10, "{:?}", volume.information());
    }
}
