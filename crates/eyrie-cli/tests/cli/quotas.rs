//! Tests of `quota`.

use serde_json::Value;

use crate::Sandbox;
use crate::served::Service;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("NOT TESTED: only root sets limits");
    }
    is_root
}

/// Returns the account with this kind and number, as `eyrie quota report --json` shows it.
fn account(sandbox: &Sandbox, kind: &str, number: u64) -> Value {
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
    sandbox.fail(2, &["no limits"], ["quota", "set", "vol", "--user", "0", "--bytes", "1M"]);
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
    sandbox.fail(3, &["vol:/none"], ["quota", "set", "vol", "--tree", "/none", "--files", "1"]);
    sandbox.fail(2, &["not a directory"], ["quota", "set", "vol", "--tree", "/outside", "--files", "1"]);
    sandbox.succeed(["fsck", "vol"]);
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
