//! Tests of disk volumes in files of the host.

use std::fs;

use eyrie_testkit::tree_fixture::{Manifest, fill, grow};

use crate::Sandbox;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn paged_volume_reports_its_medium_and_journal() {
    let sandbox = Sandbox::new();
    let made = sandbox.succeed(["mkfs", "vol", "--size", "64M", "--medium", "paged"]);
    assert!(made.contains("64.0 MiB on paged"), "{made}");
    let told = json(&sandbox.succeed(["info", "--json", "vol"]));
    let file = fs::metadata(sandbox.path("vol/segment-0000")).unwrap().len();
    assert_eq!((&told["medium"], &told["size_bytes"]), (&"paged".into(), &(64 << 20).into()));
    assert_eq!((&told["journal_bytes"], &told["segments"][0]["bytes"]), (&(4 << 20).into(), &file.into()));
    // The volume of 64 MiB, its journal of 4 MiB, and the anchor.
    assert_eq!(file, (68 << 20) + 4096);
    let told = sandbox.succeed(["info", "vol"]);
    assert!(told.contains("paged, synchronised changes"), "{told}");
    assert!(told.contains("segment-0000, 68.0 MiB with a journal of 4.0 MiB\n"), "{told}");
    sandbox.succeed(["mkfs", "memory", "--size", "64M", "--medium", "dram"]);
    assert!(!sandbox.succeed(["info", "memory"]).contains("journal"));
    assert!(json(&sandbox.succeed(["info", "--json", "memory"]))["journal_bytes"].is_null());
}

#[test]
fn paged_volume_works_with_little_memory() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("tree")).unwrap();
    grow(&sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree/many"), 300, 100_000).unwrap();
    let before = Manifest::of(&sandbox.path("tree")).unwrap();
    sandbox.succeed(["mkfs", "vol", "--size", "256M", "--medium", "paged", "--memory", "2M"]);
    sandbox.succeed(["--memory", "2M", "import", "tree", "vol:/tree"]);
    assert!(sandbox.succeed(["fsck", "vol", "--memory", "2M"]).contains("sound"));
    let mut export = sandbox.command(["export", "vol:/tree", "out"]);
    let output = export.env("EYRIE_MEMORY", "2M").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let differences = before.differences(&Manifest::of(&sandbox.path("out")).unwrap());
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn invalid_memory_size_is_refused() {
    let sandbox = Sandbox::with_volume("64M");
    for (size, why) in
        [("much", "sizes are written like"), ("0", "sizes are"), ("1000K", "the minimum is 1.0 MiB")]
    {
        sandbox.fail(2, &["--memory", size, why], ["ls", "vol:/", "--memory", size]);
        sandbox.fail(2, &["--memory", size, why], ["--memory", size, "kv", "scan", "vol:/"]);
        let output = sandbox.command(["ls", "vol:/"]).env("EYRIE_MEMORY", size).output().unwrap();
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && line.contains(why), "{line}");
    }
    sandbox.fail(16, &["--memory", "sizes"], ["fsck", "vol", "--memory", "much"]);
    sandbox.succeed(["ls", "vol:/", "--memory", "1M"]);
}

#[test]
fn directory_volume_needs_a_size() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "kept").unwrap();
    sandbox.fail(1, &["file", "already"], ["mkfs", "file"]);
    sandbox.fail(1, &["file", "already"], ["mkfs", "--force", "file", "--size", "64M"]);
    sandbox.fail(1, &["file", "directory or a block device"], ["info", "file"]);
    sandbox.fail(2, &["vol", "--size 4G"], ["mkfs", "vol"]);
    assert_eq!(fs::read(sandbox.path("file")).unwrap(), b"kept");
    assert!(!sandbox.path("vol").exists());
}
