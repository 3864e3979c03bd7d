//! Tests of `kv scan --json`.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use eyrie::{Credentials, PosixExt, Volume};
use serde_json::{Value, json};

use crate::Sandbox;

fn scan(sandbox: &Sandbox, store: &str) -> Value {
    serde_json::from_str(&sandbox.succeed(["kv", "scan", "--json", store])).unwrap()
}

#[test]
fn scan_does_not_read_values_for_their_sizes() {
    let sandbox = Sandbox::new();
    sandbox.succeed(["mkfs", "vol", "--size", "64M", "--medium", "paged", "--checksums"]);
    sandbox.succeed(["mkdir", "vol:/store"]);
    assert_eq!(sandbox.succeed(["kv", "scan", "--json", "vol:/store"]), "[]\n");
    fs::write(sandbox.path("value"), [0xab; 50_000]).unwrap();
    sandbox.succeed(["cp", "value", "vol:/store/large"]);
    sandbox.succeed(["kv", "put", "vol:/store", "small", "1"]);
    let sizes = json!([{ "key": "large", "bytes": 50_000 }, { "key": "small", "bytes": 1 }]);
    assert_eq!(scan(&sandbox, "vol:/store"), sizes);
    crate::errors::damage_pages_of(&sandbox, 0xab);
    sandbox.fail(1, &["does not match its checksum"], ["kv", "get", "vol:/store", "large"]);
    assert_eq!(scan(&sandbox, "vol:/store"), sizes);
}

/// Returns the private memory of a scan in KiB, after the first byte of its output. The pipe is much smaller
/// than the output, so the command then waits for a reader of the pipe.
fn memory_of_scan(sandbox: &Sandbox, arguments: &[&str]) -> u64 {
    let mut command = sandbox.command(["kv", "scan", "vol:/store"].iter().chain(arguments));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn scan_prints_json_without_collecting_it() {
    let sandbox = Sandbox::with_volume("256M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    volume.files(Credentials::of_process()).create_dir("/store").unwrap();
    let store = volume.store("/store", Credentials::of_process()).unwrap();
    let count = 60_000;
    for number in 0..count {
        store.put(format!("{number:0>100}"), "").unwrap();
    }
    drop(store);
    volume.close().unwrap();
    let (names, json) = (memory_of_scan(&sandbox, &[]), memory_of_scan(&sandbox, &["--json"]));
    assert!(json < names + 8192, "{names} KiB without and {json} KiB with --json");
    assert_eq!(scan(&sandbox, "vol:/store").as_array().unwrap().len(), count);
}
