//! Tests of `eyrie bench`.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use crate::Sandbox;

/// A failed run of `eyrie bench --html` leaves an old report unchanged, and leaves no new file. A run that
/// succeeds replaces the bytes of the report's file, and keeps the inode and the mode of the file.
#[test]
fn failed_benchmark_keeps_the_old_page() {
    let sandbox = Sandbox::new();
    let bench = |dir: &str, page: &str| {
        let mut command = sandbox.command(["bench", "kv", "--quick", "--rounds", "1", "--html", page]);
        command.args(["--against", "tmpfs", "--dir", dir]).output().unwrap()
    };
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let old = "old ".repeat(1 << 20);
    fs::write(sandbox.path("old"), &old).unwrap();
    fs::set_permissions(sandbox.path("old"), Permissions::from_mode(0o600)).unwrap();
    symlink("old", sandbox.path("page")).unwrap();
    symlink("new", sandbox.path("to-new")).unwrap();
    for page in ["page", "to-new"] {
        let failed = bench("none", page);
        assert!(!failed.status.success(), "{failed:?}");
    }
    assert!(fs::read_to_string(sandbox.path("page")).unwrap() == old);
    assert_eq!(names(), ["old", "page", "to-new"]);
    let before = fs::metadata(sandbox.path("old")).unwrap();
    for page in ["page", "to-new"] {
        let done = bench(".", page);
        assert!(done.status.success(), "{done:?}");
    }
    for place in ["old", "new"] {
        let page = fs::read_to_string(sandbox.path(place)).unwrap();
        assert!(
            page.starts_with("<!doctype html>") && !page.contains("old old"),
            "the link leads to the page"
        );
    }
    let after = fs::metadata(sandbox.path("old")).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
    assert_eq!(names(), ["new", "old", "page", "to-new"]);
    let nowhere = ["bench", "kv", "--quick", "--html", "none/page"];
    sandbox.fail(3, &["cannot write", "none/page"], nowhere);
}

#[test]
fn regression_directory_of_a_benchmark_need_not_be_utf8() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(["bench", "kv", "--quick", "--rounds", "1", "--dir"]);
    let failed = command.arg(OsStr::from_bytes(b"none\xfe")).output().unwrap();
    let complaints = String::from_utf8_lossy(&failed.stderr);
    assert!(matches!(failed.status.code(), Some(1..=3)), "{failed:?}");
    assert!(complaints.starts_with("eyrie: cannot measure"), "{complaints}");
}

/// The reader of a pipe gets the report.
#[test]
fn benchmark_writes_its_page_into_a_pipe() {
    let sandbox = Sandbox::new();
    let pipe = sandbox.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    sandbox.succeed(["bench", "kv", "--quick", "--rounds", "1", "--dir", ".", "--html", "pipe"]);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "a pipe is no page to replace");
    assert!(reader.join().unwrap().contains("<html"));
}

/// A run of `bench shared` measures all rows, also those with several programs, and ends the services and the
/// programs that it starts.
#[test]
fn benchmark_compares_with_programs_of_a_service() {
    let sandbox = Sandbox::with_volume("8M");
    let run = ["bench", "shared", "--quick", "--rounds", "1", "--dir", ".", "--json", "--html", "page"];
    let report = sandbox.succeed(run);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let names = |list: &str| -> Vec<String> {
        let all = report[list].as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("sides"), ["eyrie", "served", "confined"], "{report}");
    assert!(report["skipped"].as_array().unwrap().is_empty(), "{report}");
    let has_time = |row: &str| {
        let row = names("rows").iter().position(|name| name == row).unwrap_or_else(|| panic!("no {row}"));
        [0, 1, 2].map(|side| report["rows"][row]["sides"][side]["us"].as_f64().is_some_and(|us| us > 0.0))
    };
    let changes = [
        "create + close",
        "rename",
        "unlink",
        "put a new key, 100 B",
        "erase",
        "append 4 KiB",
        "overwrite 4 KiB",
        "replace a value, 4 KiB",
        "replace a value, 100 B",
    ];
    for change in changes {
        assert_eq!(has_time(&format!("{change}, burst")), [true; 3], "{change}");
        assert_eq!(has_time(&format!("{change}, sustained")), [true; 3], "{change}");
    }
    for read in ["open + close", "stat", "read 4 KiB", "get 100 B", "listing, each name"] {
        assert_eq!(has_time(read), [true; 3], "{read}");
    }
    assert_eq!(has_time("change names, one client"), [true; 3]);
    for clients in ["two clients apart", "two clients in a directory"] {
        // Two clients on one processor would show nothing about clients at the same time.
        assert_eq!(has_time(&format!("change names, {clients}")), [true, true, false]);
    }
    for client in ["a client", "a stopped client", "a killed client"] {
        assert_eq!(has_time(&format!("stat of a file that {client} has logged")), [false, true, true]);
    }
    assert!(fs::read_to_string(sandbox.path("page")).unwrap().contains("append 4 KiB, burst"));
    assert_eq!(fs::read_dir(sandbox.path(".")).unwrap().count(), 2, "the run leaves only its page");
    let only = ["bench", "shared", "--quick", "--rounds", "1", "--dir", ".", "--only", "clients"];
    let table = sandbox.succeed([&only[..], &["--against", "synchronous"]].concat());
    assert!(table.contains("two clients apart") && !table.contains("append"), "{table}");
    sandbox.fail(2, &["use at most 1"], [&only[..], &["--threads", "2"]].concat());
}
