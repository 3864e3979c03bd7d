//! Tests of `--quiet` and of `--json` on commands that confirm a change.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::Sandbox;

#[test]
fn quiet_commands_print_nothing() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/file"), "bytes").unwrap();
    let loud: [&[&str]; 8] = [
        &["mkfs", "vol", "--size", "64M"],
        &["resize", "vol", "128M"],
        &["import", "tree", "vol:/tree"],
        &["export", "vol:/tree", "out"],
        &["dump", "vol:/tree", "-o", "tar"],
        &["load", "vol:/loaded", "-i", "tar"],
        &["trim", "vol"],
        &["fsck", "vol"],
    ];
    for arguments in loud {
        for flag in ["-q", "--quiet"] {
            let help = sandbox.succeed([arguments[0], "--help"]);
            assert!(help.contains(flag), "{help}");
        }
        assert_eq!(sandbox.succeed(arguments.iter().chain(&["--quiet"])), "", "{arguments:?}");
    }
    assert_eq!(fs::read(sandbox.path("out/file")).unwrap(), b"bytes");
    assert_eq!(sandbox.succeed(["cat", "vol:/loaded/file"]), "bytes");
    assert!(!sandbox.succeed(["fsck", "vol"]).is_empty());
    sandbox.fail(2, &["--quiet", "--json"], ["trim", "-q", "--json", "vol"]);
    let tour = ["tour", "tree", "--volume", "new", "--seconds", "1", "--remove", "--quiet"];
    assert_eq!(sandbox.succeed(tour), "");
    // A quiet dump to standard output writes only the archive, and no summary to standard error.
    assert!(sandbox.succeed(["dump", "-q", "vol:/tree"]).contains("bytes"));
}

#[test]
fn confirmations_are_json_on_demand() {
    let sandbox = Sandbox::new();
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&sandbox.succeed(arguments.iter().chain(&["--json"]))).unwrap()
    };
    let made = json(&["mkfs", "vol", "--size", "64M"]);
    assert_eq!((&made["volume"], &made["size_bytes"]), (&"vol".into(), &(64 << 20).into()));
    let info = json(&["info", "vol"]);
    assert_eq!((&made["id"], &made["medium"]), (&info["id"], &info["medium"]));
    assert_eq!(json(&["resize", "vol", "128M"])["size_bytes"], 128 << 20);
    sandbox.succeed(["mkdir", "-p", "vol:/dir/.hidden"]);
    sandbox.succeed(["ln", "-s", "dir", "vol:/link"]);
    let tree = json(&["tree", "vol:/"]);
    let paths: Vec<&str> =
        tree.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/", "/dir", "/link"]);
    assert_eq!((&tree[1]["kind"], &tree[2]["target"]), (&"directory".into(), &"dir".into()));
    assert_eq!(json(&["tree", "-a", "vol:/"])[2]["depth"], 2);
    assert_eq!(json(&["tree", "-a", "--depth", "1", "vol:/"]).as_array().unwrap().len(), 3);
    sandbox.fail(2, &["--depth"], ["tree", "--depth", "0", "vol:/"]);
    fs::write(sandbox.path("calls"), "mkdir /new 0755\nunlink /none\n").unwrap();
    let output = sandbox.run(["run", "--json", "calls", "vol"]);
    assert_eq!(output.status.code(), Some(1));
    let calls: Vec<Value> = output
        .stdout
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    assert_eq!((&calls[0]["call"], &calls[0]["error"]), (&"mkdir /new 0755".into(), &Value::Null));
    assert_eq!((&calls[1]["line"], calls[1]["error"].is_string()), (&2.into(), true));
}

/// Stops the service of the volume, which runs in the background.
fn stop_service(sandbox: &Sandbox) {
    let refused = sandbox.run(["fsck", "vol"]);
    let line = String::from_utf8(refused.stderr).unwrap();
    let (_, rest) = line.split_once("in use by process ").expect("the volume is served");
    let process = rest.split(' ').next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(process).unwrap(), Signal::TERM).unwrap();
    let start = Instant::now();
    while !sandbox.run(["fsck", "-q", "vol"]).status.success() {
        assert!(start.elapsed() < Duration::from_secs(60), "the service still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn serve_confirms_on_demand() {
    let sandbox = Sandbox::with_volume("8M");
    let told = sandbox.succeed(["serve", "--json", "--allow-user", "4242", "vol"]);
    stop_service(&sandbox);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told, json!({ "volume": "vol", "socket": "vol/service.sock", "users": [4242] }));
    assert_eq!(sandbox.succeed(["serve", "--quiet", "vol"]), "");
    stop_service(&sandbox);
    let told = sandbox.succeed(["serve", "--allow-user", "4242", "vol"]);
    stop_service(&sandbox);
    let own = if rustix::process::geteuid().is_root() { "root" } else { "you, root" };
    let expected = format!(
        "serving vol: {own} and 4242 can connect\n\
         A program that connects can read all of the volume, and change what its user may change.\n\
         Your programs, and root's, can also change the files of the volume directly. The service\n\
         guards against their mistakes, not against their malice.\n"
    );
    assert_eq!(told, expected);
}
