//! Tests of `quota`.

use std::fs;
use std::os::unix::fs::FileExt;

use eyrie::{Credentials, PosixExt, Volume};
use serde_json::Value;

use crate::Sandbox;
use crate::errors::segment;
use crate::served::Service;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("NOT TESTED: only root sets limits");
    }
    is_root
}

/// Returns the account with this kind and number, as `eyrie quota report --json` shows it.
pub fn account(sandbox: &Sandbox, kind: &str, number: u64) -> Value {
    let shown: Value = serde_json::from_str(&sandbox.succeed(["quota", "report", "--json", "vol"])).unwrap();
    let is_wanted = |account: &&Value| account["kind"] == kind && account["number"] == number;
    shown.as_array().unwrap().iter().find(is_wanted).cloned().unwrap_or(Value::Null)
}

#[test]
fn quota_sets_limits_that_report_shows() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.fail(1, &["has no quotas", "vol"], ["quota", "vol"]);
    sandbox.fail(2, &["--user"], ["quota", "set", "vol", "--bytes", "1M"]);
    sandbox.fail(2, &["soft limit"], ["quota", "set", "vol", "--user", "7", "--bytes", "2M:1M"]);
    if !is_root() {
        sandbox.fail(1, &["not permitted"], ["quota", "set", "vol", "--user", "7", "--bytes", "1M"]);
        return;
    }
    sandbox.fail(2, &["cannot have limits"], ["quota", "set", "vol", "--user", "0", "--bytes", "1M"]);
    sandbox.succeed(["touch", "vol:/file"]);
    sandbox.succeed(["truncate", "-s", "5000", "vol:/file"]);
    sandbox.succeed(["chown", "4242:4243", "vol:/file"]);
    sandbox.succeed(["quota", "set", "vol", "--user", "4242", "--bytes", "1M:2M", "--grace", "2h"]);
    sandbox.succeed(["quota", "set", "vol", "--user", "4242", "--files", "10"]);
    let user = account(&sandbox, "user", 4242);
    assert_eq!((&user["soft_bytes"], &user["hard_bytes"]), (&(1 << 20).into(), &(2 << 20).into()));
    assert_eq!(
        (&user["files"], &user["hard_files"], &user["soft_files"]),
        (&1.into(), &10.into(), &Value::Null)
    );
    assert_eq!(account(&sandbox, "group", 4243)["files"], 1);
    assert!(sandbox.succeed(["quota", "report", "vol"]).contains("user 4242"));
    assert!(!sandbox.succeed(["quota", "vol"]).contains("user 4242"), "only the caller");
    sandbox.succeed(["fsck", "vol"]);
    sandbox.succeed(["quota", "off", "vol"]);
    sandbox.succeed(["quota", "off", "vol"]);
    sandbox.fail(1, &["has no quotas"], ["quota", "report", "vol"]);
}

#[test]
fn tree_has_its_files_and_refuses_those_of_others() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/tree", "vol:/tree/sub", "vol:/other"]);
    sandbox.succeed(["touch", "vol:/tree/early", "vol:/outside"]);
    let told = sandbox.succeed(["quota", "set", "vol", "--tree", "/tree", "--files", "100"]);
    assert_eq!(told, "vol:/tree is tree 1\n");
    sandbox.succeed(["touch", "vol:/tree/sub/late"]);
    assert_eq!(account(&sandbox, "tree", 1)["files"], 4, "two directories and two files");
    sandbox.fail(1, &["different trees"], ["ln", "vol:/outside", "vol:/tree/link"]);
    sandbox.succeed(["mv", "vol:/tree/early", "vol:/tree/sub/early"]);
    let told = sandbox.succeed(["quota", "set", "vol", "--tree", "other", "--files", "0:5"]);
    assert_eq!(told, "vol:/other is tree 2\n");
    let set = ["quota", "set", "vol", "--tree", "other", "--files", "0:5"];
    assert_eq!(sandbox.succeed(set.iter().chain(&["--quiet"])), "");
    let told: Value = serde_json::from_str(&sandbox.succeed(set.iter().chain(&["--json"]))).unwrap();
    assert_eq!(told, serde_json::json!({ "volume": "vol", "kind": "tree", "number": 2 }));
    let told = sandbox.succeed(["quota", "set", "vol", "--grace", "3d", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told, serde_json::json!({ "volume": "vol", "kind": null, "number": null }));
    sandbox.fail(3, &["vol:/none"], ["quota", "set", "vol", "--tree", "/none", "--files", "1"]);
    sandbox.fail(2, &["not a directory"], ["quota", "set", "vol", "--tree", "/outside", "--files", "1"]);
    sandbox.succeed(["fsck", "vol"]);
    // A refused command does not begin quotas.
    sandbox.succeed(["mkfs", "new", "--size", "64M"]);
    let before = sandbox.run(["quota", "report", "new"]);
    sandbox.fail(3, &["new:/none"], ["quota", "set", "new", "--tree", "/none", "--files", "1"]);
    assert_eq!(sandbox.run(["quota", "report", "new"]), before);
}

#[test]
fn tree_behind_a_link_is_the_directory() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/tree"]);
    sandbox.succeed(["ln", "-s", "tree", "vol:/link"]);
    for _ in 0..2 {
        let told = sandbox.succeed(["quota", "set", "vol", "--tree", "/link", "--files", "100"]);
        assert_eq!(told, "vol:/link is tree 1\n");
    }
    sandbox.succeed(["touch", "vol:/tree/file"]);
    assert_eq!(account(&sandbox, "tree", 1)["files"], 2, "the directory and its file");
}

#[test]
fn archives_of_a_volume_keep_its_limits() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["quota", "set", "vol", "--user", "4242", "--files", "10"]);
    sandbox.succeed(["touch", "vol:/file"]);
    sandbox.succeed(["chown", "4242", "vol:/file"]);
    sandbox.succeed(["dump", "vol:/", "-o", "vol.tar"]);
    sandbox.succeed(["quota", "off", "vol"]);
    sandbox.succeed(["rm", "vol:/file"]);
    sandbox.succeed(["load", "vol:/", "-i", "vol.tar"]);
    let user = account(&sandbox, "user", 4242);
    assert_eq!((&user["files"], &user["hard_files"]), (&1.into(), &10.into()));
}

#[test]
fn archives_keep_trees_and_copies_belong_to_their_directory() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/tree", "vol:/tree/sub", "vol:/other"]);
    sandbox.succeed(["touch", "vol:/tree/file"]);
    sandbox.succeed(["ln", "-s", "file", "vol:/tree/link"]);
    sandbox.succeed(["ln", "vol:/tree/file", "vol:/tree/sub/second"]);
    sandbox.succeed(["quota", "set", "vol", "--tree", "/tree", "--files", "100"]);
    sandbox.succeed(["quota", "set", "vol", "--tree", "/other", "--files", "100"]);
    assert_eq!(account(&sandbox, "tree", 1)["files"], 4);

    // The limits are an attribute of the root directory, but copies of this directory have none.
    sandbox.succeed(["export", "vol:/", "copy"]);
    let names = rustix::fs::listxattr(sandbox.path("copy"), &mut [0_u8; 1000][..]).unwrap();
    assert_eq!(names, 0);
    sandbox.succeed(["diff", "vol:/", "copy"]);
    sandbox.succeed(["cp", "-r", "vol:/tree", "vol:/other/copy"]);
    sandbox.succeed(["import", "copy/tree", "vol:/other/imported"]);
    assert_eq!(account(&sandbox, "tree", 1)["files"], 4);
    assert_eq!(account(&sandbox, "tree", 2)["files"], 9);
    sandbox.succeed(["rm", "-r", "vol:/other/copy", "vol:/other/imported"]);

    sandbox.succeed(["dump", "vol:/", "-o", "vol.tar"]);
    sandbox.succeed(["mkfs", "new", "--size", "64M"]);
    sandbox.succeed(["load", "new:/", "-i", "vol.tar"]);
    sandbox.succeed(["fsck", "new"]);
    let report = |volume: &str| sandbox.succeed(["quota", "report", "--json", volume]);
    assert_eq!(report("new"), report("vol"));
    sandbox.fail(1, &["different trees"], ["ln", "new:/tree/file", "new:/other/link"]);
}

#[test]
fn damaged_volume_with_quotas_opens_for_reading_until_its_repair() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.succeed(["mkfs", "vol", "--size", "64M", "--medium", "dram"]);
    sandbox.succeed(["touch", "vol:/damaged", "vol:/sound"]);
    sandbox.succeed(["chown", "4242", "vol:/damaged", "vol:/sound"]);
    sandbox.succeed(["quota", "set", "vol", "--user", "4242", "--files", "2"]);
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let inode = volume.files(Credentials::root()).metadata("/damaged").unwrap().inode;
    volume.close().unwrap();
    // On `dram`, the inode number is the offset of the object's header in the segment, with the kind in the
    // low bits.
    let segment = fs::File::options().write(true).open(segment(&sandbox)).unwrap();
    segment.write_all_at(&[0x5a; 64], inode & !63).unwrap();

    for change in [["touch", "vol:/new"], ["rm", "vol:/sound"]] {
        sandbox.fail(1, &["vol"], change);
    }
    assert_eq!(sandbox.succeed(["cat", "vol:/sound"]), "");
    sandbox.fail(1, &["vol"], ["quota", "report", "vol"]);
    assert_eq!(sandbox.run(["fsck", "vol"]).status.code(), Some(4));
    assert_eq!(sandbox.run(["fsck", "--repair", "vol"]).status.code(), Some(1));
    let user = account(&sandbox, "user", 4242);
    assert_eq!((&user["files"], &user["hard_files"]), (&2.into(), &2.into()));
    sandbox.succeed(["touch", "vol:/new"]);
    sandbox.succeed(["fsck", "vol"]);
}

#[test]
fn served_volume_has_quotas() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    let service = Service::start(&sandbox);
    sandbox.fail(1, &["has no quotas"], ["quota", "report", "vol"]);
    sandbox.succeed(["quota", "set", "vol", "--user", "4242", "--files", "10"]);
    sandbox.succeed(["touch", "vol:/file"]);
    sandbox.succeed(["chown", "4242", "vol:/file"]);
    sandbox.succeed(["mkdir", "vol:/tree"]);
    sandbox.succeed(["quota", "set", "vol", "--tree", "/tree", "--bytes", "1M"]);
    sandbox.succeed(["touch", "vol:/tree/file"]);
    service.kill();
    for served in [true, false] {
        let service = served.then(|| Service::start(&sandbox));
        let user = account(&sandbox, "user", 4242);
        assert_eq!((&user["files"], &user["hard_files"]), (&1.into(), &10.into()), "served: {served}");
        assert_eq!(account(&sandbox, "tree", 1)["files"], 2);
        service.into_iter().for_each(Service::stop);
    }
    sandbox.succeed(["fsck", "vol"]);
}
