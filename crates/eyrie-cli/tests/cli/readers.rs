//! Tests of commands that only read a volume: they run beside each other, and change nothing.

use std::fs;
use std::io::Read;
use std::mem::MaybeUninit;
use std::process::{Child, Stdio};

use eyrie::Volume;
use eyrie_testkit::tree_fixture::fill;
use rustix::fs::inotify;
use serde_json::Value;

use crate::Sandbox;

/// Makes a volume with a tree, a store and a large file.
fn sandbox_with_tree(arguments: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.succeed([&["mkfs", "vol", "--size", "64M"][..], arguments].concat());
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/large"), vec![b'x'; 4 << 20]).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    sandbox.succeed(["kv", "put", "vol:/tree", "key", "value"]);
    sandbox.succeed(["xattr", "set", "vol:/tree/key", "user.a", "b"]);
    sandbox
}

/// Starts a command that keeps the volume open for reading until its output is read.
fn start_reader(sandbox: &Sandbox) -> Child {
    let mut command = sandbox.command(["cat", "vol:/tree/large", "vol:/tree/large"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // The pipe is much smaller than the file, so the command waits after its first bytes.
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
    child
}

/// Commands that only read the volume. Each works on the volume of [`sandbox_with_tree`].
const READERS: [&[&str]; 20] = [
    &["ls", "-laR", "vol:/"],
    &["tree", "vol:/"],
    &["tree", "--canonical", "vol:/"],
    &["find", "vol:/", "--newer", "vol:/tree"],
    &["du", "-a", "vol:/"],
    &["cat", "vol:/tree/key"],
    &["stat", "vol:/tree"],
    &["diff", "vol:/tree", "vol:/tree"],
    &["cp", "vol:/tree/key", "copy"],
    &["info", "vol"],
    &["df", "vol"],
    &["stats", "vol"],
    &["export", "-q", "vol:/tree", "exported"],
    &["dump", "-q", "vol:/tree", "-o", "archive"],
    &["kv", "get", "vol:/tree", "key"],
    &["kv", "scan", "--json", "vol:/tree"],
    &["xattr", "list", "vol:/tree/key"],
    &["lsattr", "-R", "vol:/tree"],
    &["xattr", "get", "vol:/tree/key", "user.a"],
    &["fsck", "vol"],
];

/// Returns the bytes of the volume's files.
fn bytes(sandbox: &Sandbox) -> [Vec<u8>; 2] {
    ["vol/segment-0000", "vol/lock"].map(|name| fs::read(sandbox.path(name)).unwrap())
}

#[test]
fn commands_that_read_run_beside_each_other() {
    for medium in ["dram", "paged"] {
        let sandbox = sandbox_with_tree(&["--medium", medium]);
        let mut readers = READERS.to_vec();
        if medium == "paged" {
            readers.push(&["scrub", "vol"]);
        }
        if crate::is_root() {
            sandbox.succeed(["quota", "set", "vol", "--user", "4242", "--bytes", "1M"]);
            readers.extend([&["quota", "vol"][..], &["quota", "report", "vol"]]);
        }
        let before = bytes(&sandbox);
        let mut reader = start_reader(&sandbox);
        for command in readers {
            sandbox.succeed(command);
        }
        for command in [
            &["mkdir", "vol:/new"][..],
            &["touch", "vol:/tree/key"],
            &["rm", "vol:/tree/key"],
            &["cp", "vol:/tree/key", "vol:/copy"],
            &["mv", "vol:/tree/key", "moved"],
            &["kv", "erase", "vol:/tree", "key"],
            &["sync", "vol"],
            &["trim", "vol"],
        ] {
            let holder = format!("in use by process {} (", reader.id());
            sandbox.fail(1, &["vol", &holder, "which has it open read-only"], command);
        }
        assert!(bytes(&sandbox) == before, "{medium}: a command that reads has changed the volume");
        let mut rest = Vec::new();
        reader.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
        assert_eq!((rest.len(), reader.wait().unwrap().success()), ((8 << 20) - 1000, true));
        sandbox.succeed(["cp", "vol:/tree/key", "vol:/copy"]);
        assert_eq!(sandbox.succeed(["cat", "vol:/copy"]), "value");
    }
}

/// Runs the command, which must succeed, and returns the number of times that it opened a file of the volume.
fn opens(sandbox: &Sandbox, arguments: &[&str]) -> usize {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, sandbox.path("vol"), inotify::WatchFlags::OPEN).unwrap();
    sandbox.succeed(arguments);
    let mut buffer = [MaybeUninit::uninit(); 1 << 16];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let mut count = 0;
    while let Ok(event) = events.next() {
        count += usize::from(event.file_name().is_some());
    }
    count
}

#[test]
fn volume_that_is_named_twice_is_opened_once() {
    let sandbox = sandbox_with_tree(&[]);
    for name in ["a", "b", "c", "d"] {
        sandbox.succeed(["touch", &format!("vol:/{name}")]);
    }
    std::os::unix::fs::symlink("vol", sandbox.path("link")).unwrap();
    let (reads, changes) = (opens(&sandbox, &["ls", "vol:/"]), opens(&sandbox, &["touch", "vol:/a"]));
    assert!(reads > 0 && changes > 0);
    for reader in [
        &["find", "vol:/", "--newer", "vol:/a"][..],
        &["find", "vol:/", "--newer", "link:/a"],
        &["ls", "vol:/", "link:/tree"],
        &["du", "vol:/a", "vol:/tree"],
        &["cat", "vol:/tree/key", "vol:/a"],
        &["cp", "vol:/a", "vol:/b", "tree"],
        &["stat", "vol:/a", "vol:/b"],
        &["lsattr", "vol:/a", "vol:/b"],
        &["diff", "vol:/a", "vol:/b", "--contents"],
        &["df", "vol", "link"],
    ] {
        assert_eq!(opens(&sandbox, reader), reads, "{reader:?}");
    }
    for writer in [
        &["touch", "-r", "vol:/a", "vol:/b"][..],
        &["touch", "-r", "link:/a", "vol:/b", "link:/c"],
        &["truncate", "-r", "vol:/a", "vol:/b"],
        &["sync", "vol", "link", "vol"],
        &["chmod", "644", "vol:/a", "link:/b"],
        &["mkdir", "vol:/d1", "link:/d2"],
        &["ln", "vol:/a", "vol:/e"],
        &["cp", "vol:/a", "link:/b", "vol:/tree"],
        &["mv", "vol:/a", "link:/b", "vol:/d1"],
        &["rm", "vol:/c", "link:/d"],
    ] {
        assert_eq!(opens(&sandbox, writer), changes, "{writer:?}");
    }
}

#[test]
fn readers_recover_a_killed_volume_in_memory_until_a_sync() {
    for medium in ["dram", "paged"] {
        let sandbox = Sandbox::new();
        sandbox.succeed(["mkfs", "vol", "--size", "64M", "--medium", medium]);
        sandbox.succeed(["touch", "vol:/first"]);
        sandbox.kill_an_import();
        let before = bytes(&sandbox);
        let is_recovered = || -> bool {
            let information: Value =
                serde_json::from_str(&sandbox.succeed(["info", "--json", "vol"])).unwrap();
            information["recovered"].as_bool().unwrap()
        };
        // A disk has no change of an import that was killed before the first drain.
        let is_crashed = is_recovered();
        assert!(is_crashed || medium == "paged");
        assert_eq!(is_recovered(), is_crashed, "{medium}: each reader recovers the volume again");
        assert!(sandbox.succeed(["ls", "vol:/"]).starts_with("first\n"));
        assert!(bytes(&sandbox) == before, "{medium}: a reader has changed the killed volume");
        let saved = if is_crashed { "recovered and saved" } else { "was saved already" };
        assert_eq!(sandbox.succeed(["sync", "vol"]), format!("vol: {saved}\n"));
        assert!(!is_recovered(), "{medium}: the sync has saved the volume");
        assert_eq!(sandbox.succeed(["sync", "vol"]), "vol: was saved already\n");
        let json: Value = serde_json::from_str(&sandbox.succeed(["sync", "--json", "vol"])).unwrap();
        assert_eq!(json, serde_json::json!([{ "volume": "vol", "recovered": false }]));
        assert_eq!(sandbox.succeed(["sync", "--quiet", "vol"]), "");
    }
    let sandbox = Sandbox::new();
    sandbox.fail(3, &["none", "eyrie mkfs"], ["sync", "none"]);
}

#[test]
fn stats_count_objects_by_kind() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/a/b"]);
    sandbox.succeed(["kv", "put", "vol:/a", "key", "value"]);
    sandbox.succeed(["ln", "-s", "key", "vol:/a/link"]);
    let stats: Value = serde_json::from_str(&sandbox.succeed(["stats", "--json", "vol"])).unwrap();
    let number = |name: &str| stats[name].as_u64().unwrap_or_else(|| panic!("{name}: {stats}"));
    assert_eq!((number("directories"), number("files"), number("others")), (3, 1, 1));
    assert_eq!((number("file_bytes"), number("groups"), number("group_bytes")), (5, 1, 64 << 20));
    let parts = number("table_bytes") + number("used_bytes") + number("free_bytes");
    assert_eq!((number("size_bytes"), parts), (64 << 20, 64 << 20));
    assert_eq!(number("saved_by_sharing_bytes"), 0);
    let text = sandbox.succeed(["stats", "vol"]);
    assert!(text.starts_with("Volume vol\n  size             64.0 MiB\n"), "{text}");
    assert!(text.contains("\n  directories      3\n"), "{text}");
    assert!(stats.get("journal_bytes").is_none(), "{stats}");
    sandbox.succeed(["mkfs", "disk", "--size", "64M", "--medium", "paged"]);
    let stats: Value = serde_json::from_str(&sandbox.succeed(["stats", "--json", "disk"])).unwrap();
    assert!(stats["journal_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{stats}");
}

#[test]
fn stats_count_the_bytes_that_clones_save() {
    let sandbox = Sandbox::with_volume("64M");
    std::fs::write(sandbox.path("data"), [7; 25 * 4096 + 1]).unwrap();
    sandbox.succeed(["cp", "data", "vol:/first"]);
    for copy in ["vol:/second", "vol:/third"] {
        sandbox.succeed(["cp", "--reflink=always", "vol:/first", copy]);
    }
    let saved = || {
        let stats: Value = serde_json::from_str(&sandbox.succeed(["stats", "--json", "vol"])).unwrap();
        stats["saved_by_sharing_bytes"].as_u64().unwrap()
    };
    let of_three = saved();
    assert!(sandbox.succeed(["stats", "vol"]).contains("\n  saved by sharing "));
    sandbox.succeed(["rm", "vol:/first"]);
    assert_eq!(saved() * 2, of_three);
    sandbox.succeed(["truncate", "-s", "40960", "vol:/second"]);
    assert_eq!(saved(), 10 * 4096);
    sandbox.succeed(["rm", "vol:/third"]);
    assert_eq!(saved(), 0);
}

#[test]
fn damaged_volume_has_no_stats_and_no_repair_beside_a_reader() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 300, 3000).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    crate::status::break_something(&sandbox);
    sandbox.fail(1, &["vol", "`eyrie fsck vol` shows the damage"], ["stats", "vol"]);
    let reader = Volume::open_read_only(sandbox.path("vol")).unwrap();
    let why = ["cannot repair the volume", "which has it open read-only"];
    sandbox.fail(4, &why, ["fsck", "--repair", "vol"]);
    drop(reader);
}
