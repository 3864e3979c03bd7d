//! Tests that `fsck` without `--repair` changes nothing, and that `fsck --repair` saves the readable parts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use eyrie_testkit::tree_fixture::fill;

use crate::Sandbox;
use crate::errors::segment;
use crate::status::break_something;

fn is_sound(sandbox: &Sandbox, volume: &str) -> bool {
    sandbox.run(["fsck", volume]).status.code() == Some(0)
}

/// Makes a volume with a tree and some damage.
fn damaged() -> Sandbox {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 300, 3000).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    break_something(&sandbox);
    sandbox
}

/// Returns the paths and bytes of the files that can be exported from a volume.
fn files(sandbox: &Sandbox, volume: &str, to: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    // The export leaves out unreadable files, and then has a failure status.
    sandbox.run(["export", &format!("{volume}:/tree"), to]);
    let (root, mut found) = (sandbox.path(to), BTreeMap::new());
    let mut waiting = vec![root.clone()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(&root).unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn bytes(volume: &Path) -> Vec<u8> {
    fs::read(volume.join("segment-0000")).unwrap()
}

#[test]
fn check_changes_no_byte_of_the_volume() {
    let sandbox = damaged();
    let before = bytes(&sandbox.path("vol"));
    assert_eq!(sandbox.run(["fsck", "vol"]).status.code(), Some(4));
    assert!(bytes(&sandbox.path("vol")) == before);

    // An open of a volume that was not closed would recover the volume, and so change its bytes.
    for medium in ["dram", "paged"] {
        let sandbox = Sandbox::new();
        sandbox.succeed(["mkfs", "vol", "--size", "64M", "--medium", medium]);
        sandbox.kill_an_import();
        let before = bytes(&sandbox.path("vol"));
        assert!(is_sound(&sandbox, "vol"), "{medium}");
        sandbox.succeed(["fsck", "--repair", "vol"]);
        assert!(bytes(&sandbox.path("vol")) == before, "{medium}");
    }
}

#[test]
fn repair_replaces_and_keeps_the_damaged_volume() {
    let sandbox = damaged();
    let before = bytes(&sandbox.path("vol"));
    let readable = files(&sandbox, "vol", "before");
    // The repair must start from the bytes `before`, even if the export changed the volume.
    fs::write(segment(&sandbox), &before).unwrap();
    let output = sandbox.run(["fsck", "--repair", "vol"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(told.contains("vol is repaired") && told.contains("vol.damaged"), "{told}");
    assert!(is_sound(&sandbox, "vol"));
    assert!(bytes(&sandbox.path("vol.damaged")) == before);
    assert!(!sandbox.path("vol.repairing").exists());
    let saved = files(&sandbox, "vol", "after");
    for (path, bytes) in &readable {
        assert!(saved.get(path) == Some(bytes), "{} has other bytes than before the repair", path.display());
    }
    sandbox.succeed(["fsck", "--repair", "vol"]);

    // A repair renames the damaged volume to `vol.damaged`, and fails if this name exists.
    fs::write(segment(&sandbox), &before).unwrap();
    sandbox.fail(4, &["vol.damaged", "in the way"], ["fsck", "--repair", "vol"]);
    fs::remove_dir_all(sandbox.path("vol.damaged")).unwrap();
    assert_eq!(sandbox.run(["fsck", "--repair", "--discard", "vol"]).status.code(), Some(1));
    assert!(is_sound(&sandbox, "vol") && !sandbox.path("vol.damaged").exists());
}

#[test]
fn repair_into_another_place_keeps_the_damaged_volume() {
    let sandbox = damaged();
    let before = bytes(&sandbox.path("vol"));
    let output = sandbox.run(["fsck", "--json", "--repair", "--into", "new", "vol"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["sound"], true);
    assert!(!json["findings"].as_array().unwrap().is_empty());
    assert!(is_sound(&sandbox, "new"));
    assert!(bytes(&sandbox.path("vol")) == before);
    sandbox.fail(4, &["new", "not empty"], ["fsck", "--repair", "--into", "new", "vol"]);
    assert!(is_sound(&sandbox, "new"), "the refused repair changed the existing volume");
}

#[test]
fn repair_of_truncated_volume_saves_the_rest() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 300, 3000).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    fs::write(sandbox.path("file"), "x").unwrap();
    sandbox.fail(8, &["file", "volume"], ["fsck", "--repair", "file"]);
    let file = fs::File::options().write(true).open(segment(&sandbox)).unwrap();
    file.set_len(32 << 20).unwrap();
    assert_eq!(sandbox.run(["fsck", "vol"]).status.code(), Some(4));
    assert_eq!(sandbox.run(["fsck", "--repair", "vol"]).status.code(), Some(1));
    assert!(is_sound(&sandbox, "vol") && files(&sandbox, "vol", "after").len() > 100);
}

#[test]
fn regression_repair_without_a_reader_prints_no_empty_error() {
    let sandbox = damaged();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = sandbox.command(["fsck", "--repair", "vol"]).stdout(writer).output().unwrap();
    let lines = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("eyrie: damaged: vol: ")), "{lines}");
    assert!(is_sound(&sandbox, "vol"));
}

/// A repair would drop the changes in the logs of a killed service. Another version of the program can apply
/// them.
#[test]
fn change_logs_of_another_version_are_no_damage() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("vol/sessions"), [7; 4096]).unwrap();
    let before = bytes(&sandbox.path("vol"));
    let words = ["vol", "another version", "sessions"];
    for arguments in [&["fsck", "vol"][..], &["fsck", "--repair", "vol"]] {
        sandbox.fail(8, &words, arguments);
    }
    assert!(bytes(&sandbox.path("vol")) == before);
    sandbox.fail(1, &words, ["ls", "vol:/"]);
    fs::remove_file(sandbox.path("vol/sessions")).unwrap();
    sandbox.succeed(["ls", "vol:/"]);
}
