//! Tests of imports that are killed or interrupted.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use eyrie::{Credentials, Posix, PosixExt, Target, Volume};
use eyrie_testkit::tree_fixture::fill;
use rustix::process::{Pid, Signal, kill_process};

use crate::Sandbox;

/// Number of files of the tree. Each test reads fewer than half as many paths before it stops an import, so
/// the import normally still has files to copy.
const FILES: usize = 4000;

fn sandbox_with_tree() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), FILES, 20_000).unwrap();
    sandbox
}

/// Starts an import, and sends `signal` after `lines` printed lines. Returns the exit status, the printed
/// lines, and the text on standard error.
fn stop_import(sandbox: &Sandbox, lines: usize, signal: Signal) -> (ExitStatus, Vec<String>, String) {
    sandbox.succeed(["mkfs", "vol", "--size", "256M"]);
    let mut command = sandbox.command(["import", "-v", "tree", "vol:/tree"]);
    let mut child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    for _ in 0..lines {
        assert_ne!(output.read_line(&mut printed).unwrap(), 0, "the import ended early");
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    output.read_to_string(&mut printed).unwrap();
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    let status = child.wait().unwrap();
    // An incomplete last line is not counted as printed.
    let whole = printed.rfind('\n').map_or(0, |end| end + 1);
    (status, printed[..whole].lines().map(str::to_owned).collect(), complaints)
}

/// Checks that the volume opens and is sound. Also checks that the object at each printed path has the mode
/// and the nanoseconds of the modification time of its source, and that each file has the bytes of its
/// source.
fn check_volume(sandbox: &Sandbox, printed: &[String]) {
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::of_process());
    for line in printed {
        let inside = line.strip_prefix("vol:").unwrap();
        let source = sandbox.path(inside.trim_start_matches('/'));
        let metadata = source.symlink_metadata().unwrap();
        let stat = files.stat(Target::NoFollow(inside.into())).unwrap();
        let modified = std::os::unix::fs::MetadataExt::mtime_nsec(&metadata);
        assert_eq!(i64::from(stat.modified.nanoseconds), modified, "{line}");
        assert_eq!(u32::from(stat.mode), std::os::unix::fs::MetadataExt::mode(&metadata) & 0o7777, "{line}");
        if metadata.is_file() {
            assert!(files.read(inside).unwrap() == fs::read(&source).unwrap(), "{line}");
        }
    }
    drop(files);
    volume.close().unwrap();
}

#[test]
fn fifty_killed_imports_lose_nothing_that_was_printed() {
    let sandbox = sandbox_with_tree();
    for round in 0..50 {
        let (status, printed, _) = stop_import(&sandbox, 1 + round * 37, Signal::KILL);
        assert_eq!(status.code(), None, "the import was killed");
        check_volume(&sandbox, &printed);
        fs::remove_dir_all(sandbox.path("vol")).unwrap();
    }
}

/// The kernel's map of the pages of a process is a file that is longer than the volume of this test.
#[test]
fn regression_interrupt_ends_a_copy_inside_a_file() {
    let sandbox = Sandbox::with_volume("1G");
    let mut command = sandbox.command(["cp", "/proc/self/pagemap", "vol:/map"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let segment = sandbox.path("vol/segment-0000");
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&segment.metadata().unwrap());
    let before = blocks();
    while blocks() < before + (16 << 20) / 512 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let complaints = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{complaints}");
    assert!(complaints.contains("interrupted") && complaints.lines().count() == 1, "{complaints}");
    assert_eq!(sandbox.succeed(["ls", "-a", "vol:/"]), "");
}

#[test]
fn interrupted_import_stops_cleanly() {
    let sandbox = sandbox_with_tree();
    let (status, printed, complaints) = stop_import(&sandbox, 100, Signal::INT);
    assert_eq!(status.code(), Some(130));
    assert!(complaints.contains("interrupted") && complaints.lines().count() == 1, "{complaints}");
    assert!(printed.len() < FILES);
    assert!(sandbox.succeed(["info", "vol"]).contains("clean"));
    check_volume(&sandbox, &printed);
}
