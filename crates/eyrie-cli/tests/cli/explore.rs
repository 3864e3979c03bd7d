//! Tests of `explore`, `trace` and `replay`.

use std::fs;

use serde_json::Value;

use crate::Sandbox;

const SCRIPT: &str = "mkdir /d\ncreat /d/a\nwrite /d/a 0 5000 1\nrename /d/a /b\nunlink /none\n";

impl Sandbox {
    /// Makes a sandbox with a script and without a volume.
    fn with_calls(script: &str) -> Sandbox {
        let sandbox = Sandbox::new();
        fs::write(sandbox.path("calls"), script).unwrap();
        sandbox
    }
}

#[test]
fn new_script_is_explored() {
    let sandbox = Sandbox::with_calls(SCRIPT);
    let text = sandbox.succeed(["explore", "--script", "calls"]);
    assert!(text.contains("4 rename /d/a /b = 0"), "{text}");
    assert!(text.contains("eyrie-engine/src/transaction/redo.rs:"), "{text}");
    let summary = text.lines().last().unwrap();
    let (counts, end) = summary.split_once(": ").unwrap();
    assert_eq!(end, "in each image every call is whole or undone", "{text}");
    let [crashes, of_recovery, after_kills] = counts.split("; ").collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    assert!(crashes.ends_with(" of them distinct"), "{text}");
    for (part, suffix) in
        [(of_recovery, " images of crashes inside recovery"), (after_kills, " images of crashes after kills")]
    {
        let count = part.strip_suffix(suffix).unwrap_or_else(|| panic!("{text}")).replace(',', "");
        let count: u64 = count.parse().unwrap();
        assert!(count > 10, "{text}");
    }
    let report: Value =
        serde_json::from_str(&sandbox.succeed(["explore", "--script", "calls", "--close", "--json"]))
            .unwrap();
    assert_eq!(report["complete"], true);
    assert_eq!(
        report["calls"].as_array().unwrap().len(),
        7,
        "five calls, the close, and the crashes after the close"
    );
    let sum = |rows: &str| -> u64 {
        report[rows].as_array().unwrap().iter().map(|row| row["images"].as_u64().unwrap()).sum()
    };
    assert!(report["images"].as_u64().unwrap() > 50);
    assert_eq!(
        (sum("calls"), sum("sites")),
        (report["images"].as_u64().unwrap(), report["images"].as_u64().unwrap())
    );
}

#[test]
fn missing_fence_is_reported_with_replay_and_shorter_script() {
    let sandbox = Sandbox::with_calls(SCRIPT);
    let report: Value =
        serde_json::from_str(&sandbox.succeed(["explore", "--script", "calls", "--json"])).unwrap();
    let sites = report["sites"].as_array().unwrap().iter().filter(|row| row["kind"] == "fence");
    let mut sites = sites.map(|row| row["site"].as_str().unwrap());
    let fence = sites.find(|site| site.contains("redo.rs")).expect("a rename has a redo record");
    let output = sandbox.run(["explore", "--script", "calls", "--without", fence]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("eyrie: a crash leaves a wrong volume: calls: "), "{text}");
    assert!(
        text.ends_with("a shorter script that fails:\nmkdir /d 0755\ncreat /d/a 0644\nrename /d/a /b\n"),
        "{text}"
    );
    let command =
        text.lines().find_map(|line| line.strip_prefix("replay it with: eyrie ")).expect("a command");
    let replayed = sandbox.run(command.split(' '));
    assert_eq!(replayed.status.code(), Some(1));
    let what = text.lines().next().unwrap();
    assert_eq!(String::from_utf8_lossy(&replayed.stderr).lines().next(), Some(what), "{replayed:?}");
    // If no fence is left out, the image of the first crash is right. This image loses all pending stores.
    let trace = sandbox.succeed(["trace", "calls"]);
    let mut events = trace.lines().skip(1).filter(|line| !line.starts_with("base "));
    let first = format!("{}:", events.position(|line| line.starts_with("fence ")).expect("a fence"));
    assert_eq!(sandbox.succeed(["explore", "--script", "calls", "--replay", &first]), "the image is right\n");
}

#[test]
fn points_of_every_kind_can_be_left_out() {
    let sandbox = Sandbox::with_calls(SCRIPT);
    let report: Value =
        serde_json::from_str(&sandbox.succeed(["explore", "--script", "calls", "--json"])).unwrap();
    let is_of_redo = |row: &&Value| row["site"].as_str().is_some_and(|site| site.contains("redo.rs"));
    let mut publishes = report["sites"].as_array().unwrap().iter().filter(|row| row["kind"] == "publish");
    let publish = publishes.find(is_of_redo).expect("a rename has a redo record");
    assert!(publish["met"].as_u64() > Some(0), "{publish}");
    let place = publish["site"].as_str().unwrap();
    for word in [place.to_owned(), format!("publish {place}")] {
        let output = sandbox.run(["explore", "--script", "calls", "--without", &word]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("should be") || text.contains("should have"), "{text}");
    }
    let output = sandbox.run(["explore", "--script", "calls", "--without", &format!("checksum {place}")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn failures_of_the_host_are_listed_by_place() {
    let sandbox = Sandbox::with_calls("creat /a\nwrite /a 0 100 1\nunlink /a\n");
    let text = sandbox.succeed(["explore", "--faults", "--script", "calls"]);
    assert!(text.contains(" ENOSPC allocate crates/eyrie-engine/src/"), "{text}");
    assert!(text.ends_with("sites: every call is whole or undone\n"), "{text}");
    let report: Value =
        serde_json::from_str(&sandbox.succeed(["explore", "--faults", "--script", "calls", "--json"]))
            .unwrap();
    assert_eq!(report["complete"], true);
    let first = &report["faults"][0];
    let [failure, kind, site] = ["failure", "kind", "site"].map(|key| first[key].as_str().unwrap());
    let fault = format!("{failure} {kind} {site} 1");
    let one = sandbox.succeed(["explore", "--script", "calls", "--fault", &fault]);
    assert!(one.contains(&format!("{failure} {kind} {site}\n")) && one.contains("at 1 site:"), "{one}");
    let line = format!("{failure} {kind} {site}");
    let all = sandbox.succeed(["explore", "--script", "calls", "--fault", &line, "--json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all["faults"], serde_json::json!([first]), "each request of the line");
    let none = sandbox.run(["explore", "--script", "calls", "--fault", "EIO read none.rs:1 1"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    let disk = sandbox.succeed(["explore", "--faults", "--medium", "paged", "--script", "calls"]);
    assert!(disk.contains(" EIO flush crates/eyrie-medium/src/paged/drain.rs:"), "{disk}");
}

#[test]
fn part_has_only_its_own_scripts() {
    let sandbox = Sandbox::new();
    let text = sandbox.succeed(["explore", "--part", "99999/100000", "--time", "1s"]);
    assert!(text.starts_with("one call: 0 scripts (complete), 0 crashes, 0 images,"), "{text}");
    let none = sandbox.run(["explore", "--part", "3/2"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

#[test]
fn wrong_arguments_are_reported() {
    let sandbox = Sandbox::with_calls(SCRIPT);
    let fails = |arguments: &[&str], status: i32, line: &str| {
        let output = sandbox.run(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(status) && text.contains(line), "{arguments:?}: {output:?}");
    };
    fails(&["explore", "--script", "none"], 3, "cannot read the script: none: No such file or directory");
    fails(&["explore", "--script", "calls", "--without", "redo.rs:1"], 2, "no such point: redo.rs:1");
    fails(&["explore", "--script", "calls", "--without", ".rs:229,"], 2, "no such point");
    fails(&["explore", "--script", "calls", "--replay", "12"], 2, "an image is written like 123:0,1,0");
    fails(
        &["explore", "--script", "calls", "--replay", "999999:"],
        2,
        "there is no crash after 999999 events",
    );
    fails(&["explore", "--script", "calls", "--images", "0"], 2, "0 is not in 1..");
    fails(&["explore", "--script", "calls", "--size", "2G"], 2, "choose a size of at most 1 GiB");
    fails(&["explore", "--script", "calls", "--size", "1k"], 1, "cannot make the volume: 1.0 KiB");
    fails(&["explore", "--time", "1d"], 2, "times are written like 60s, 5m or 2h");
    fails(
        &["replay", "calls", "--until", "1", "-o", "out"],
        1,
        "no such image: calls: 1: expected eyrie-trace 1",
    );
    assert!(!sandbox.path("out").exists());
}

#[test]
fn built_in_scripts_are_explored_until_the_deadline() {
    let sandbox = Sandbox::new();
    let report: Value =
        serde_json::from_str(&sandbox.succeed(["explore", "--time", "10s", "--json"])).unwrap();
    let workloads = report["workloads"].as_array().unwrap();
    let mut names: Vec<&str> = workloads.iter().map(|workload| workload["name"].as_str().unwrap()).collect();
    if cfg!(feature = "mutants") {
        names.retain(|name| *name != "write-backs");
    }
    assert_eq!(
        names,
        [
            "one call",
            "a full volume",
            "growth",
            "a wide directory",
            "batches",
            "long names",
            "features",
            "clones",
            "reuse",
            "closing",
            "redo slots",
            "damage",
            "readers",
            "resizing",
            "killed processes",
            "two calls",
            "three calls",
            "random calls",
            "two threads",
            "two threads in one directory",
        ]
    );
    assert!(workloads[0]["images"].as_u64().unwrap() > 0);
}

#[test]
fn trace_replays_to_a_volume_at_any_event() {
    let sandbox = Sandbox::with_calls(SCRIPT);
    sandbox.succeed(["trace", "calls", "-o", "trace"]);
    let trace = fs::read_to_string(sandbox.path("trace")).unwrap();
    assert_eq!(sandbox.succeed(["trace", "calls"]), trace);
    assert_eq!(sandbox.succeed(["trace", "calls", "-o", "-"]), trace);
    let events: Vec<&str> = trace.lines().skip(1).filter(|line| !line.starts_with("base ")).collect();
    let end = events.len().to_string();
    sandbox.succeed(["replay", "trace", "--until", &end, "-o", "whole"]);
    sandbox.succeed(["mkfs", "other", "--size", "1M"]);
    sandbox.run(["run", "--keep-going", "calls", "other"]);
    let tree = |volume: &str| sandbox.succeed(["tree", "--canonical", volume]);
    // The explorer makes calls as root, and `run` makes them as the user of the tests. So owners are not
    // compared.
    let unowned = |volume: &str| -> Vec<String> {
        let words = |line: &str| -> Vec<String> {
            line.split(' ')
                .filter(|word| !word.starts_with("uid=") && !word.starts_with("gid="))
                .map(str::to_owned)
                .collect()
        };
        tree(volume).lines().skip(1).map(|line| words(line).join(" ")).collect()
    };
    assert!(tree("whole").contains("/b file") && !tree("whole").contains("/d/a"));
    assert_eq!(unowned("whole"), unowned("other"));

    // A crash at the last fence of the first call may lose the store before that fence. After the fence the
    // store is durable.
    let first = events.iter().position(|line| line.starts_with("mark ")).unwrap();
    let fence = events[..first].iter().rposition(|line| line.starts_with("fence ")).unwrap();
    let store = events[..fence].iter().rfind(|line| line.starts_with("store ")).unwrap();
    let offset =
        u64::from_str_radix(store.split(' ').nth(2).unwrap().strip_prefix("0x").unwrap(), 16).unwrap();
    let (until, line) = (fence.to_string(), format!("{offset:#x}"));
    sandbox.succeed(["replay", "trace", "--until", &until, "-o", "kept"]);
    sandbox.succeed(["replay", "trace", "--until", &until, "--drop", &line, "-o", "lost"]);
    sandbox.succeed(["fsck", "lost"]);
    assert!(tree("kept").contains("/d directory") && !tree("lost").contains("/d directory"));
    let settled =
        sandbox.run(["replay", "trace", "--until", &(fence + 1).to_string(), "--drop", &line, "-o", "none"]);
    let text = String::from_utf8_lossy(&settled.stderr).into_owned();
    assert!(
        text.contains(&format!("a crash at this moment cannot lose these stores to the line at {line}")),
        "{text}"
    );
    let again = sandbox.run(["replay", "trace", "--until", "1", "-o", "whole"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already and is not empty"));
}
