//! Tests that a command which fails prints one clear line.

use std::fs;
use std::path::Path;
use std::process::Command;

use eyrie::Volume;
use eyrie_testkit::tree_fixture::fill;

use crate::Sandbox;

/// Returns the path of the volume's segment, which is the largest file in the volume's directory.
pub(crate) fn segment(sandbox: &Sandbox) -> std::path::PathBuf {
    let files = fs::read_dir(sandbox.path("vol")).unwrap().map(|entry| entry.unwrap().path());
    files.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

#[test]
fn missing_volume_is_one_clear_line() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("empty")).unwrap();
    fs::write(sandbox.path("file"), "x").unwrap();
    for (name, status) in [("missing", 3), ("empty", 1), ("file", 1)] {
        sandbox.fail(status, &[name, "volume"], ["info", name]);
        sandbox.fail(status, &[name, "volume"], ["ls", &format!("{name}:/")]);
        sandbox.fail(8, &[name, "volume"], ["fsck", name]);
    }
}

#[test]
fn existing_target_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.fail(1, &["vol", "already"], ["mkfs", "vol", "--size", "64M"]);
    fs::create_dir(sandbox.path("tree")).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    sandbox.fail(1, &["vol:/tree", "exists"], ["import", "tree", "vol:/tree"]);
    sandbox.fail(1, &["vol:/", "exists"], ["import", "tree", "vol:/"]);
    sandbox.fail(1, &["tree", "exists"], ["export", "vol:/tree", "tree"]);
    sandbox.fail(1, &["vol:/tree"], ["mkdir", "vol:/tree"]);
}

#[test]
fn unsupported_medium_is_one_clear_line() {
    let sandbox = Sandbox::new();
    let mkfs = |medium| ["mkfs", "vol", "--size", "64M", "--medium", medium];
    sandbox.fail(1, &["vol", "persistent memory", "-o dax"], mkfs("pmem"));
    sandbox.fail(2, &["tape", "auto", "dram", "pmem"], mkfs("tape"));
    assert!(!sandbox.path("vol").exists(), "the failed mkfs left a volume behind");
    assert!(sandbox.succeed(mkfs("auto")).contains(" on dram"));
    let info = sandbox.succeed(["info", "vol"]);
    assert!(info.contains("dram, every completed call survives the death of the process"), "{info}");
    let info = sandbox.succeed(["info", "--json", "vol"]);
    assert!(info.contains("\"medium\": \"dram\"") && info.contains("\"promise\": \"every "), "{info}");
    fs::remove_dir_all(sandbox.path("vol")).unwrap();
    assert!(sandbox.succeed(mkfs("paged")).contains(" on paged"));
    let info = sandbox.succeed(["info", "vol"]);
    assert!(info.contains("paged, synchronised changes"), "{info}");
}

#[test]
fn missing_file_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.fail(3, &["nowhere"], ["import", "nowhere", "vol:/new"]);
    fs::write(sandbox.path("file"), "x").unwrap();
    sandbox.fail(1, &["file", "directory"], ["import", "file", "vol:/new"]);
    sandbox.fail(3, &["vol:/a/b"], ["import", ".", "vol:/a/b"]);
    sandbox.fail(3, &["vol:/nowhere"], ["export", "vol:/nowhere", "out"]);
    assert!(!sandbox.path("out").exists());
    for command in ["cat", "ls", "stat", "rm", "tree"] {
        sandbox.fail(3, &["vol:/nowhere"], [command, "vol:/nowhere"]);
    }
    sandbox.fail(3, &["vol:/nowhere"], ["mv", "vol:/nowhere", "vol:/there"]);
    sandbox.fail(3, &["nowhere"], ["cp", "nowhere", "vol:/there"]);
    sandbox.fail(3, &["nowhere"], ["tour", "nowhere"]);
}

#[test]
fn directory_in_place_of_a_file_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/dir"]);
    sandbox.fail(1, &["cannot read: vol:/dir: Is a directory"], ["cat", "vol:/dir"]);
}

#[test]
fn too_long_name_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    let place = format!("vol:/{}", "n".repeat(256));
    sandbox.fail(1, &["255"], ["mkdir", &place]);
    sandbox.fail(1, &["a path at most 4095"], ["mkdir", &format!("vol:/{}", "n/".repeat(2048))]);
    sandbox.succeed(["mkdir", "vol:/store"]);
    sandbox.fail(1, &["255"], ["kv", "put", "vol:/store", &"k".repeat(256), "value"]);
}

#[test]
fn nonempty_directory_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/a", "vol:/dir/a/inner"]);
    // The message names no option, because no option of `mv` helps.
    sandbox.fail(
        1,
        &["vol:/dir/a", "not empty: remove its contents first, or choose another name"],
        ["mv", "vol:/a", "vol:/dir"],
    );
    assert_eq!(sandbox.succeed(["ls", "vol:/dir/a"]), "inner\n");
}

#[test]
fn volume_in_use_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    sandbox.fail(1, &["vol", "in use"], ["ls", "vol:/"]);
    sandbox.fail(8, &["vol", "in use"], ["fsck", "vol"]);
    volume.close().unwrap();
    sandbox.succeed(["ls", "vol:/"]);
}

#[test]
fn truncated_volume_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/dir"]);
    for bytes in [4096, 100, 0] {
        fs::File::options().write(true).open(segment(&sandbox)).unwrap().set_len(bytes).unwrap();
        sandbox.fail(1, &["vol"], ["ls", "vol:/"]);
        sandbox.fail(8, &["vol"], ["fsck", "vol"]);
    }
}

#[test]
fn full_volume_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/large"), vec![1; 100 << 20]).unwrap();
    sandbox.fail(1, &["vol:/tree", "space", "larger volume"], ["import", "tree", "vol:/tree"]);
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    assert_eq!(sandbox.succeed(["ls", "vol:/tree"]), "");
    sandbox.succeed(["rm", "-r", "vol:/tree"]);
    sandbox.fail(1, &["vol:/large"], ["cp", "tree/large", "vol:/large"]);
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
}

/// A mounted file system of a limited size. The drop of this value unmounts the file system.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // If the unmount fails, the mount stays. The removal of the temporary directory then removes the
        // files of the mounted file system.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn full_host_is_one_clear_line() {
    let sandbox = Sandbox::new();
    let small = sandbox.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = crate::is_root()
        && Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"])
            .arg(&small)
            .output()
            .is_ok_and(|output| output.status.success());
    if !mounted {
        return;
    }
    let _mount = Mount(&small);
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 3000, 100_000).unwrap();
    sandbox.succeed(["mkfs", "small/vol", "--size", "4G"]);
    sandbox.fail(1, &["small/vol:/tree", "is full", "make room"], ["import", "tree", "small/vol:/tree"]);
    assert!(sandbox.succeed(["fsck", "small/vol"]).contains("sound"));
    sandbox.succeed(["rm", "-r", "small/vol:/tree"]);
    sandbox.succeed(["mkdir", "small/vol:/works"]);
    sandbox.fail(1, &["small/new", "space"], ["cp", "-r", "tree", "small/new"]);
}
