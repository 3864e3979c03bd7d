//! Tests of volumes on block devices. The tests use loop devices, which only root can make.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use eyrie::{Credentials, Errno, PagedOptions, Posix, Volume};
use eyrie_testkit::tree_fixture::{Manifest, fill};
use serde_json::Value;

use crate::Sandbox;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A loop device over a file. The drop of this value detaches the device.
struct Device(PathBuf);

impl Device {
    /// Makes a loop device, or returns `None` if this process cannot get one.
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

    /// Makes the device larger or smaller. The bytes below the new size stay unchanged.
    fn set_size(&self, sandbox: &Sandbox, bytes: u64) {
        fs::File::options().write(true).open(sandbox.path("disk")).unwrap().set_len(bytes).unwrap();
        let status = Command::new("losetup").arg("--set-capacity").arg(&self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn block_device_holds_a_volume() {
    let sandbox = Sandbox::new();
    let Some(device) = crate::is_root().then(|| Device::new(&sandbox, 100 << 20)).flatten() else { return };
    let vol = device.place("");
    for medium in ["dram", "pmem"] {
        sandbox.fail(1, &[&vol, "must have the medium paged"], ["mkfs", &vol, "--medium", medium]);
    }
    sandbox.fail(1, &[&vol, "leave the size out"], ["mkfs", &vol, "--size", "64M"]);
    sandbox.fail(1, &[&vol, "not an Eyrie volume"], ["info", &vol]);
    assert!(is_zero(&sandbox.path("disk")), "a refused mkfs must not write to the device");
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
    let held = Volume::open_with(&vol, PagedOptions::for_host()).unwrap();
    sandbox.fail(1, &[&vol, "in use"], ["ls", &device.place(":/")]);
    sandbox.fail(1, &[&vol, "in use"], ["mkfs", "--force", &vol]);
    sandbox.fail(8, &[&vol, "in use"], ["fsck", &vol]);
    assert!(Volume::open(&vol).is_err(), "this process must not open the volume a second time");
    held.close().unwrap();
    // If another test starts a child process, the child holds a copy of the device's descriptor until it
    // executes its program.
    let is_free = || sandbox.run(["ls", &device.place(":/")]).status.success();
    assert!((0..1000).any(|_| is_free()), "the device stays in use");
    sandbox.succeed(["mkfs", "--force", &vol, "--medium", "paged"]);
    assert_eq!(sandbox.succeed(["ls", &device.place(":/")]), "");
}

fn is_zero(file: &Path) -> bool {
    // A file without storage has only zeros.
    fs::metadata(file).unwrap().blocks() == 0
}

#[test]
fn regression_library_makes_a_volume_on_an_empty_device() {
    let sandbox = Sandbox::new();
    let Some(device) = crate::is_root().then(|| Device::new(&sandbox, 20 << 20)).flatten() else { return };
    // A child process that another test starts holds a copy of the device's descriptor until it executes its
    // program. The device is in use meanwhile.
    let when_free = |open: &dyn Fn() -> eyrie::Result<Volume>| {
        let opened = |_| match open() {
            Err(error) if error.errno() == Errno::BUSY => {
                std::thread::sleep(Duration::from_millis(10));
                None
            }
            opened => Some(opened.unwrap()),
        };
        (0..1000).find_map(opened).expect("the device stays in use")
    };
    for _ in 0..2 {
        when_free(&|| Volume::open_or_create(device.place(""), 64 << 20)).close().unwrap();
    }
    let volume = when_free(&|| Volume::open(device.place("")));
    assert!(volume.information().size_bytes < 20 << 20);
    volume.close().unwrap();
}

#[test]
fn device_with_file_system_is_refused() {
    let sandbox = Sandbox::new();
    let Some(device) = crate::is_root().then(|| Device::new(&sandbox, 64 << 20)).flatten() else { return };
    let vol = device.place("");
    let disk = fs::File::options().read(true).write(true).open(&device.0).unwrap();
    // The magic number of ext4. The superblock begins at byte 1024.
    disk.write_all_at(b"\x53\xef", 1024 + 0x38).unwrap();
    drop(disk);
    sandbox.fail(1, &[&vol, "something on it", "--force"], ["mkfs", &vol]);
    sandbox.fail(1, &[&vol, "not an Eyrie volume"], ["ls", &device.place(":/")]);
    sandbox.succeed(["mkfs", "--force", &vol]);
    assert!(sandbox.succeed(["fsck", &vol]).contains("sound"));
}

fn host_bytes(file: &Path) -> u64 {
    fs::metadata(file).unwrap().blocks() * 512
}

#[test]
fn trim_discards_free_blocks_of_a_device() {
    const MIB: u64 = 1 << 20;
    let sandbox = Sandbox::new();
    let Some(device) = crate::is_root().then(|| Device::new(&sandbox, 128 * MIB)).flatten() else { return };
    let (vol, disk) = (device.place(""), sandbox.path("disk"));
    fs::write(&disk, vec![0xa5; 128 << 20]).unwrap();
    sandbox.succeed(["mkfs", "--force", &vol, "--group-size", "4M"]);
    assert!(host_bytes(&disk) >= 120 * MIB, "the old contents of the device still take space");
    assert!(sandbox.succeed(["trim", &vol]).contains("MiB given back"));
    // The journal, the group in use and the tables keep their blocks.
    let empty = host_bytes(&disk);
    assert!(empty <= 20 * MIB, "{empty}");

    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/large"), vec![7; 60 << 20]).unwrap();
    fs::write(sandbox.path("tree/small"), vec![9; 5000]).unwrap();
    sandbox.succeed(["import", "tree", &device.place(":/tree")]);
    assert!(host_bytes(&disk) >= 60 * MIB);
    let held = Volume::open_with(&vol, PagedOptions::for_host()).unwrap();
    held.files(Credentials::root()).unlink("/tree/large".into()).unwrap();
    let trimmed = held.trim().unwrap();
    assert!(trimmed >= 56 * MIB, "{trimmed}");
    assert!(host_bytes(&disk) <= empty + 8 * MIB, "{}", host_bytes(&disk));
    held.close().unwrap();
    assert_eq!(sandbox.run(["cat", &device.place(":/tree/small")]).stdout, vec![9; 5000]);
    let told = json(&sandbox.succeed(["trim", "--json", &vol]));
    assert!(told["trimmed_bytes"].as_u64() >= Some(100 * MIB), "all empty groups are counted again: {told}");
    assert!(sandbox.succeed(["fsck", &vol]).contains("sound"));
}

#[test]
fn volume_and_device_change_their_sizes() {
    let sandbox = Sandbox::new();
    let Some(device) = crate::is_root().then(|| Device::new(&sandbox, 100 << 20)).flatten() else { return };
    let vol = device.place("");
    sandbox.succeed(["mkfs", &vol]);
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 300, 50_000).unwrap();
    let before = Manifest::of(&sandbox.path("tree")).unwrap();
    sandbox.succeed(["import", "tree", &device.place(":/tree")]);
    let sizes = || {
        let told = json(&sandbox.succeed(["info", "--json", &vol]));
        (told["size_bytes"].as_u64().unwrap(), told["segments"][0]["bytes"].as_u64().unwrap())
    };
    let assert_whole = || {
        let differences = |out: &str| before.differences(&Manifest::of(&sandbox.path(out)).unwrap());
        sandbox.succeed(["export", &device.place(":/tree"), "out"]);
        assert!(differences("out").is_empty(), "{:#?}", differences("out"));
        assert!(sandbox.succeed(["fsck", &vol]).contains("sound"));
        fs::remove_dir_all(sandbox.path("out")).unwrap();
    };

    let full = sizes();
    sandbox.fail(1, &[&vol, "device has room for", &full.0.to_string()], ["resize", &vol, "1G"]);
    sandbox.fail(1, &[&vol, "nothing is moved"], ["resize", &vol, "1M"]);
    sandbox.succeed(["resize", &vol, "64M"]);
    // The segment has the volume of 64 MiB, its journal of 4 MiB, and the anchor.
    assert_eq!(sizes(), (64 << 20, (68 << 20) + 4096));
    assert_whole();
    assert!(sandbox.succeed(["resize", &vol]).contains(&format!("resized volume {vol}: 94")));
    assert_eq!(sizes().0, full.0);
    assert_whole();

    device.set_size(&sandbox, 200 << 20);
    assert_eq!(sizes().0, full.0, "the volume keeps its size");
    sandbox.succeed(["resize", &vol]);
    assert!(sizes().0 > 180 << 20 && sizes().1 <= 200 << 20, "{:?}", sizes());
    assert_whole();

    sandbox.succeed(["resize", &vol, "32M"]);
    let taken = sizes().1;
    device.set_size(&sandbox, taken);
    assert_whole();
    device.set_size(&sandbox, taken - 4096);
    sandbox.fail(1, &[&vol, "truncated volume", &taken.to_string()], ["ls", &device.place(":/")]);
    sandbox.fail(2, &["directory", "needs a size"], ["resize", "directory"]);
}
