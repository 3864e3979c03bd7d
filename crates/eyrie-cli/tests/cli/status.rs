//! Tests of the exit status of `fsck`, which scripts rely on.

use std::fs;
use std::os::unix::fs::FileExt;

use eyrie::Volume;
use eyrie_testkit::tree_fixture::fill;

use crate::Sandbox;

#[test]
fn sound_volume_is_0_closed_or_not() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["fsck", "vol"]);
    sandbox.kill_an_import();
    // `fsck` recovers a copy of the volume, and finds this copy sound.
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
}

#[test]
fn broken_volume_is_4_even_if_output_fails() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 300, 3000).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    break_something(&sandbox);
    let output = sandbox.run(["fsck", "vol"]);
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{complaints}");
    assert!(
        complaints.lines().next().unwrap_or_default().starts_with("eyrie: damaged: vol: "),
        "{complaints}"
    );
    assert!(complaints.lines().last().unwrap_or_default().contains("--repair"), "{complaints}");
    let output = sandbox.run(["fsck", "--json", "vol"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json["sound"]), (Some(4), &false.into()));
    let mut command = sandbox.command(["fsck", "--json", "vol"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(complaints.contains("cannot write: standard output"), "{complaints}");
}

/// Overwrites the first 64 bytes of one page after another until a check finds damage. If a check finds none,
/// restores the bytes of that page.
pub fn break_something(sandbox: &Sandbox) {
    let segment = crate::errors::segment(sandbox);
    let file = fs::File::options().read(true).write(true).open(segment).unwrap();
    let size = file.metadata().unwrap().len();
    for page in 64..size / 4096 {
        let mut before = [0; 64];
        file.read_exact_at(&mut before, page * 4096).unwrap();
        if before.iter().all(|&byte| byte == 0) {
            continue;
        }
        file.write_all_at(&[0x5a; 64], page * 4096).unwrap();
        if sandbox.run(["fsck", "vol"]).status.code() == Some(4) {
            return;
        }
        file.write_all_at(&before, page * 4096).unwrap();
    }
    panic!("no check found a change of the volume");
}

#[test]
fn uncheckable_volume_is_8() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), "x").unwrap();
    for name in ["missing", "file"] {
        sandbox.fail(8, &[name, "volume"], ["fsck", name]);
    }
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    sandbox.fail(8, &["vol", "in use"], ["fsck", "vol"]);
    volume.close().unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = sandbox.command(["fsck", "vol"]).stdout(full).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(8),
        "the status must be 8 if the report of a sound volume cannot be printed: {output:?}"
    );
    sandbox.succeed(["fsck", "vol"]);
}

#[test]
fn wrong_arguments_are_16() {
    let sandbox = Sandbox::new();
    sandbox.fail(16, &["VOLUME", "eyrie fsck --help"], ["fsck"]);
    sandbox.fail(16, &["--repair", "eyrie fsck --help"], ["fsck", "--into", "new", "vol"]);
    sandbox.fail(
        16,
        &["--into", "eyrie fsck --help"],
        ["fsck", "--repair", "--discard", "--into", "new", "vol"],
    );
}
