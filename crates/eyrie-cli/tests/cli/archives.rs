//! Tests of archives: `dump` and `load`, with the `tar` of the system as writer or reader.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use eyrie_testkit::tree_fixture::{FixtureLine, Manifest, fill, grow};
use rustix::process::{Pid, Signal, kill_process};

use crate::Sandbox;

/// Makes a sandbox with two volumes and a tree with every kind of member and attribute of archives.
fn sandbox_with_tree() -> Sandbox {
    let sandbox = Sandbox::with_volume("256M");
    sandbox.succeed(["mkfs", "two", "--size", "256M"]);
    fs::create_dir(sandbox.path("tree")).unwrap();
    grow(&sandbox.path("tree")).unwrap();
    fs::remove_file(sandbox.path("tree/special/socket")).unwrap();
    sandbox
}

/// Runs GNU tar in the sandbox. Returns its output.
fn tar<'a>(sandbox: &Sandbox, arguments: impl IntoIterator<Item = &'a str>) -> String {
    let output = Command::new("tar").args(arguments).current_dir(sandbox.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compares two trees after `change` has removed the attributes that may differ.
fn compare(left: &Manifest, sandbox: &Sandbox, right: &str, change: impl Fn(&mut FixtureLine)) {
    let (mut left, mut right) = (left.clone(), Manifest::of(&sandbox.path(right)).unwrap());
    left.change(&change);
    right.change(&change);
    let differences = left.differences(&right);
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn dump_and_load_keep_every_attribute() {
    let sandbox = sandbox_with_tree();
    let before = Manifest::of(&sandbox.path("tree")).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    let told = sandbox.succeed(["dump", "vol:/tree", "-o", "tree.tar"]);
    assert!(told.starts_with("dumped "), "{told}");
    let told = sandbox.succeed(["load", "two:/", "-i", "tree.tar", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["entries"], &told["failed"]), (&before.len().into(), &0.into()));
    assert!(sandbox.succeed(["fsck", "two"]).contains("sound"));
    sandbox.succeed(["export", "two:/", "out"]);
    compare(&before, &sandbox, "out", |_| ());
    let bytes = fs::metadata(sandbox.path("tree.tar")).unwrap().len();
    assert!(bytes < 50 << 20, "holes take no space in the archive: {bytes} bytes");
    sandbox.succeed(["dump", "two:/", "--output", "again.tar"]);
    assert!(fs::read(sandbox.path("tree.tar")).unwrap() == fs::read(sandbox.path("again.tar")).unwrap());
}

#[test]
fn gnu_tar_lists_and_extracts_what_dump_writes() {
    let sandbox = sandbox_with_tree();
    let before = Manifest::of(&sandbox.path("tree")).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    sandbox.succeed(["dump", "vol:/tree", "-o", "tree.tar"]);
    let listed = tar(&sandbox, ["-tf", "tree.tar", "--quoting-style=escape"]);
    assert_eq!(listed.lines().count(), before.len());
    for name in ["./", "./names/new\\nline", "./holes/large", "./links/dangling", "./names/empty/"] {
        assert!(listed.lines().any(|line| line == name), "{name} is not in {listed}");
    }
    let sizes = tar(&sandbox, ["-tvf", "tree.tar", "./holes/large"]);
    assert!(sizes.contains(&(200 << 20).to_string()), "{sizes}");
    fs::create_dir(sandbox.path("out")).unwrap();
    tar(&sandbox, ["-xpf", "tree.tar", "-C", "out", "--numeric-owner", "--xattrs", "--xattrs-include=*"]);
    // GNU tar does not restore access times.
    compare(&before, &sandbox, "out", |line| line.accessed = (0, 0));
}

#[test]
fn load_reads_the_formats_of_gnu_tar() {
    let sandbox = sandbox_with_tree();
    // Of these formats, only `posix` has extended attributes and nanoseconds. The test does not compare
    // access times.
    let seconds = |line: &mut FixtureLine| {
        (line.accessed, line.modified.1) = ((0, 0), 0);
        line.xattrs.clear();
    };
    let no_access = |line: &mut FixtureLine| line.accessed = (0, 0);
    let posix = ["--format=posix", "--xattrs", "--xattrs-include=*"];
    loads_as_tar_wrote_it(&sandbox, &["--format=gnu", "--sparse"], seconds);
    for version in ["0.0", "0.1", "1.0"] {
        let version = format!("--sparse-version={version}");
        loads_as_tar_wrote_it(&sandbox, &[&posix[..], &["--sparse", &version]].concat(), no_access);
    }
    // Without `--sparse`, the archive has zeros in place of the holes, and these zeros would fill the volume.
    fs::remove_dir_all(sandbox.path("tree/holes")).unwrap();
    loads_as_tar_wrote_it(&sandbox, &posix, no_access);
    // The oldest formats have room only for short names.
    fs::remove_dir_all(sandbox.path("tree")).unwrap();
    fs::create_dir_all(sandbox.path("tree").join("d".repeat(90)).join("e".repeat(90))).unwrap();
    fs::write(sandbox.path("tree").join("d".repeat(90)).join("e".repeat(90)).join("file"), "bytes").unwrap();
    loads_as_tar_wrote_it(&sandbox, &["--format=ustar"], seconds);
    fs::remove_dir_all(sandbox.path("tree")).unwrap();
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 50, 5000).unwrap();
    fs::hard_link(sandbox.path("tree/dir-0/0/file-0"), sandbox.path("tree/same")).unwrap();
    loads_as_tar_wrote_it(&sandbox, &["--format=v7"], seconds);
}

/// Makes an archive of the tree with `tar`, loads it, and compares the result as [`compare`] does.
fn loads_as_tar_wrote_it(sandbox: &Sandbox, options: &[&str], change: impl Fn(&mut FixtureLine)) {
    let before = Manifest::of(&sandbox.path("tree")).unwrap();
    tar(sandbox, ["-cf", "tree.tar"].iter().chain(options).chain(&["-C", "tree", "."]).copied());
    sandbox.succeed(["load", "vol:/tree", "-i", "tree.tar"]);
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    sandbox.succeed(["export", "vol:/tree", "out"]);
    compare(&before, sandbox, "out", change);
    fs::remove_dir_all(sandbox.path("out")).unwrap();
    sandbox.succeed(["rm", "-r", "vol:/tree"]);
}

/// Runs a line of shell in the sandbox. `$EYRIE` is the path of the command `eyrie`.
fn shell(sandbox: &Sandbox, line: &str) -> Output {
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", line]).env("EYRIE", env!("CARGO_BIN_EXE_eyrie"));
    command.current_dir(sandbox.path("")).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn archives_go_through_pipes() {
    let sandbox = Sandbox::with_volume("256M");
    sandbox.succeed(["mkfs", "two", "--size", "256M"]);
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 500, 20_000).unwrap();
    for line in [
        "tar -c -C tree . | $EYRIE load vol:/tree",
        "$EYRIE dump vol:/tree | $EYRIE load two:/",
        "mkdir out && $EYRIE dump two:/ -o - | tar -xp -C out",
        "diff -r tree out",
    ] {
        let output = shell(&sandbox, line);
        assert!(output.status.success(), "{line}: {output:?}");
    }
    let output = shell(&sandbox, "$EYRIE dump vol:/ | head -c 1000 > /dev/null");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "the dump to a reader that stopped must fail: {complaint}");
    assert!(complaint.contains("standard output: Broken pipe"), "{complaint}");
    let output = shell(&sandbox, "$EYRIE dump vol:/ > /dev/full");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn archives_do_not_use_terminals() {
    let sandbox = Sandbox::with_volume("64M");
    let (_controller, terminal) = crate::terminal::open(80);
    let output = sandbox.command(["dump", "vol:/"]).stdout(terminal.try_clone().unwrap()).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && complaint.contains("name a file with -o"), "{complaint}");
    let output = sandbox.command(["load", "vol:/dir"]).stdin(terminal).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && complaint.contains("name a file with -i"), "{complaint}");
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "");
}

#[test]
fn sockets_are_reported_and_the_rest_is_dumped() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/file"), "bytes").unwrap();
    let _socket = UnixListener::bind(sandbox.path("tree/socket")).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    let words = ["vol:/tree/socket: archives have no sockets"];
    let last = sandbox.complain(&words, ["dump", "vol:/tree", "-o", "tree.tar"]);
    assert!(last.contains("1 entry left out"), "{last}");
    assert_eq!(tar(&sandbox, ["-tf", "tree.tar"]), "./\n./file\n");
}

#[test]
fn unloadable_member_is_reported_and_the_rest_loaded() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/file"), "bytes").unwrap();
    fs::write(sandbox.path("out"), "bytes").unwrap();
    tar(&sandbox, ["-cPf", "tree.tar", "-C", "tree", "../out", "file"]);
    let last =
        sandbox.complain(&["tree.tar:/../out: its name has `..`"], ["load", "vol:/tree", "-i", "tree.tar"]);
    assert!(last.contains("1 entry left out"), "{last}");
    assert_eq!(sandbox.succeed(["find", "vol:/"]), "vol:/\nvol:/tree\nvol:/tree/file\n");
    sandbox.fail(1, &["vol:/tree", "not empty"], ["load", "vol:/tree", "-i", "tree.tar"]);
    let whole = fs::read(sandbox.path("tree.tar")).unwrap();
    // The cut archive has a header and a block of data of the first member, and the header of the second one.
    fs::write(sandbox.path("cut.tar"), &whole[..1536]).unwrap();
    let last = sandbox.complain(&["/../out", "/file"], ["load", "vol:/cut", "-i", "cut.tar"]);
    assert!(last.contains("cut.tar: the archive ends early, after byte 1536: it was cut off"), "{last}");
    fs::write(sandbox.path("text"), "text".repeat(1000)).unwrap();
    sandbox.fail(1, &["text: not an archive", "decompress"], ["load", "vol:/text", "-i", "text"]);
    sandbox.fail(3, &["nowhere"], ["load", "vol:/text", "-i", "nowhere"]);
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "cut\ntree\n");
}

#[test]
fn xattrs_that_cannot_be_kept_are_counted() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), "bytes").unwrap();
    let xattr = |record: &str| format!("--pax-option=SCHILY.xattr.{record}");
    let (fits, strange) = (xattr("user.name:=value"), xattr("system.strange:=value"));
    tar(&sandbox, ["-cf", "tree.tar", "--format=posix", &fits, &strange, "file"]);
    let told = sandbox.succeed(["load", "vol:/tree", "-i", "tree.tar"]);
    assert!(told.contains("1 extended attribute not kept (1 of system: "), "{told}");
    assert_eq!(sandbox.succeed(["xattr", "get", "vol:/tree/file", "user.name"]), "value");
    assert_eq!(sandbox.succeed(["xattr", "list", "vol:/tree/file"]), "user.name\n");
    let told = sandbox.succeed(["dump", "vol:/tree", "-o", "again.tar", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["xattrs"], &told["xattrs_not_kept"]), (&1.into(), &serde_json::json!([])));
}

#[test]
fn full_volume_ends_a_load() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("large"), vec![1; 100 << 20]).unwrap();
    tar(&sandbox, ["-cf", "large.tar", "large"]);
    sandbox.fail(1, &["vol:/tree", "larger volume"], ["load", "vol:/tree", "-i", "large.tar"]);
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    assert_eq!(sandbox.succeed(["ls", "vol:/tree"]), "");
}

#[test]
fn zero_header_between_members_is_damage() {
    let sandbox = Sandbox::with_volume("64M");
    ["a", "b"].iter().for_each(|name| fs::write(sandbox.path(name), name).unwrap());
    tar(&sandbox, ["-cf", "two.tar", "a", "b"]);
    let mut archive = fs::read(sandbox.path("two.tar")).unwrap();
    archive[1024..1536].fill(0);
    fs::write(sandbox.path("damaged.tar"), &archive).unwrap();
    sandbox.fail(1, &["damaged", "a header has only zeros"], ["load", "vol:/damaged", "-i", "damaged.tar"]);
    // Some old programs wrote only one block of zeros at the end.
    archive[1024..].fill(0);
    fs::write(sandbox.path("old.tar"), &archive[..1536]).unwrap();
    sandbox.succeed(["load", "vol:/old", "-i", "old.tar"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/old/a"]), "a");
}

#[test]
fn export_and_dump_follow_a_link_to_their_directory() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/dir"]);
    sandbox.succeed(["touch", "vol:/dir/file"]);
    sandbox.succeed(["ln", "-s", "dir", "vol:/link"]);
    sandbox.succeed(["export", "-q", "vol:/link", "out"]);
    assert!(sandbox.path("out/file").is_file());
    sandbox.succeed(["dump", "-q", "vol:/link", "-o", "archive"]);
    sandbox.succeed(["load", "-q", "vol:/loaded", "-i", "archive"]);
    sandbox.succeed(["diff", "vol:/dir", "vol:/loaded"]);
}

#[test]
fn dump_refuses_wrong_targets_and_keeps_the_volume() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("kept"), "kept").unwrap();
    fs::write(sandbox.path("file"), "bytes").unwrap();
    sandbox.succeed(["cp", "file", "vol:/file"]);
    sandbox.fail(3, &["vol:/nowhere"], ["dump", "vol:/nowhere", "-o", "kept"]);
    sandbox.fail(1, &["vol:/file", "eyrie cp"], ["dump", "vol:/file", "-o", "kept"]);
    sandbox.fail(1, &["own storage"], ["dump", "vol:/", "-o", "vol/archive"]);
    sandbox.fail(3, &["nowhere"], ["dump", "vol:/", "-o", "nowhere/archive"]);
    for (link, target) in [("link", "vol/segment-0000"), ("new", "vol/archive"), ("far", "new")] {
        std::os::unix::fs::symlink(target, sandbox.path(link)).unwrap();
        sandbox.fail(1, &["own storage"], ["dump", "vol:/", "-o", link]);
    }
    assert!(!sandbox.path("vol/archive").exists());
    assert_eq!(sandbox.succeed(["cat", "vol:/file"]), "bytes");
    assert_eq!(fs::read(sandbox.path("kept")).unwrap(), b"kept");
    let printed = sandbox.run(["dump", "-v", "vol:/", "-o", "archive"]);
    assert!(String::from_utf8_lossy(&printed.stdout).starts_with("./\n./file\n"), "{printed:?}");
}

#[test]
fn interrupted_dump_has_no_end_mark() {
    let sandbox = Sandbox::with_volume("256M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 4000, 20_000).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    let mut command = sandbox.command(["dump", "vol:/tree"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut archive = vec![0; 100_000];
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut archive).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    // One thread of the dump waits for the reader, and another thread handles the signal. The test gives the
    // second thread time, and then reads the rest.
    std::thread::sleep(Duration::from_millis(200));
    output.read_to_end(&mut archive).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    fs::write(sandbox.path("part.tar"), archive).unwrap();
    let failed = sandbox.run(["load", "vol:/part", "-i", "part.tar"]);
    assert!(String::from_utf8_lossy(&failed.stderr).contains("ends early"), "{failed:?}");
    assert!(sandbox.succeed(["info", "vol"]).contains("clean"));
}
