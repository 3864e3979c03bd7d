//! Volumes on disks: files of the host and block devices.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use eyrie::{PagedOptions, Volume};
use eyrie_testkit::tree_fixture::{Manifest, fill, grow};

use crate::Sandbox;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_paged_volume_tells_what_it_takes() {
    let sandbox = Sandbox::new();
    let made = sandbox.succeed(["mkfs", "vol", "--size", "64M", "--medium", "paged"]);
    assert!(made.contains("64.0 MiB on paged"), "{made}");
    let told = json(&sandbox.succeed(["info", "--json", "vol"]));
    let file = fs::metadata(sandbox.path("vol/segment-0000")).unwrap().len();
    assert_eq!((&told["medium"], &told["size_bytes"]), (&"paged".into(), &(64 << 20).into()));
    assert_eq!((&told["journal_bytes"], &told["segments"][0]["bytes"]), (&(4 << 20).into(), &file.into()));
    assert_eq!(file, (68 << 20) + 4096);
    let told = sandbox.succeed(["info", "vol"]);
    assert!(told.contains("paged, what was synchronised"), "{told}");
    assert!(told.contains("segment-0000, 68.0 MiB with a journal of 4.0 MiB\n"), "{told}");
    sandbox.succeed(["mkfs", "memory", "--size", "64M", "--medium", "dram"]);
    assert!(!sandbox.succeed(["info", "memory"]).contains("journal"));
    assert!(json(&sandbox.succeed(["info", "--json", "memory"]))["journal_bytes"].is_null());
}

#[test]
fn a_paged_volume_works_with_little_memory() {
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
fn memory_that_cannot_be_is_refused() {
    let sandbox = Sandbox::with_volume("64M");
    for (size, why) in
        [("much", "sizes are written like"), ("0", "sizes are"), ("1000K", "the least is 1.0 MiB")]
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
fn what_is_no_device_needs_a_size_and_stays() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "kept").unwrap();
    sandbox.fail(1, &["file", "already"], ["mkfs", "file"]);
    sandbox.fail(1, &["file", "already"], ["mkfs", "--force", "file", "--size", "64M"]);
    sandbox.fail(1, &["file", "directory or a block device"], ["info", "file"]);
    sandbox.fail(2, &["vol", "--size 4G"], ["mkfs", "vol"]);
    assert_eq!(fs::read(sandbox.path("file")).unwrap(), b"kept");
    assert!(!sandbox.path("vol").exists());
}

/// A block device over a file, detached when dropped.
struct Device(PathBuf);

impl Device {
    /// `None` where the host has none for us.
    fn new(sandbox: &Sandbox, bytes: u64) -> Option<Device> {
        let file = sandbox.path("disk");
        fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then(|| Device(PathBuf::from(name)))
    }

    fn place(&self, path: &str) -> String {
        format!("{}{path}", self.0.display())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_a_volume() {
    let sandbox = Sandbox::new();
    let Some(device) = crate::is_root().then(|| Device::new(&sandbox, 100 << 20)).flatten() else { return };
    let vol = device.place("");
    for medium in ["dram", "pmem"] {
        sandbox.fail(1, &[&vol, "has the medium paged"], ["mkfs", &vol, "--medium", medium]);
    }
    sandbox.fail(1, &[&vol, "leave the size out"], ["mkfs", &vol, "--size", "64M"]);
    sandbox.fail(1, &[&vol, "not an Eyrie volume"], ["info", &vol]);
    assert!(is_zero(&sandbox.path("disk")), "what is refused is not written to");
    assert!(sandbox.succeed(["mkfs", &vol]).contains("MiB on paged"));
    let told = json(&sandbox.succeed(["info", "--json", &vol]));
    assert_eq!((&told["segments"][0]["path"], &told["recovered"]), (&vol.clone().into(), &false.into()));
    assert_eq!(told["segments"][0]["bytes"], 100 << 20);

    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 300, 50_000).unwrap();
    let before = Manifest::of(&sandbox.path("tree")).unwrap();
    sandbox.succeed(["import", "tree", &device.place(":/tree"), "--memory", "2M"]);
    sandbox.succeed(["export", &device.place(":/tree"), "out", "--memory", "2M"]);
    let differences = before.differences(&Manifest::of(&sandbox.path("out")).unwrap());
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(sandbox.succeed(["fsck", &vol]).contains("sound"));

    sandbox.fail(1, &[&vol, "an Eyrie volume on it: --force overwrites it"], ["mkfs", &vol]);
    sandbox.fail(1, &[&vol, "as large as the device"], ["resize", &vol, "64M"]);
    assert!(sandbox.succeed(["trim", &vol]).contains("given back"));
    let held = Volume::open_with(&vol, PagedOptions::for_host()).unwrap();
    sandbox.fail(1, &[&vol, "in use"], ["ls", &device.place(":/")]);
    sandbox.fail(1, &[&vol, "in use"], ["mkfs", "--force", &vol]);
    sandbox.fail(8, &[&vol, "in use"], ["fsck", &vol]);
    assert!(Volume::open(&vol).is_err(), "nor may this process open it again");
    held.close().unwrap();
    sandbox.succeed(["mkfs", "--force", &vol, "--medium", "paged"]);
    assert_eq!(sandbox.succeed(["ls", &device.place(":/")]), "");
}

fn is_zero(file: &Path) -> bool {
    // Nothing was ever written to it.
    fs::metadata(file).unwrap().blocks() == 0
}

#[test]
fn a_device_with_a_file_system_is_left_alone() {
    let sandbox = Sandbox::new();
    let Some(device) = crate::is_root().then(|| Device::new(&sandbox, 64 << 20)).flatten() else { return };
    let vol = device.place("");
    let disk = fs::File::options().read(true).write(true).open(&device.0).unwrap();
    // Where ext4 has its superblock.
    disk.write_all_at(b"\x53\xef", 1024 + 0x38).unwrap();
    drop(disk);
    sandbox.fail(1, &[&vol, "something on it", "--force"], ["mkfs", &vol]);
    sandbox.fail(1, &[&vol, "not an Eyrie volume"], ["ls", &device.place(":/")]);
    sandbox.succeed(["mkfs", "--force", &vol]);
    assert!(sandbox.succeed(["fsck", &vol]).contains("sound"));
}
