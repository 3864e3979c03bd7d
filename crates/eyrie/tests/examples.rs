//! Runs each program in `examples` as a user would, and checks its output.
//!
//! These tests are a binary of their own, because they need the programs. `cargo test` builds the examples,
//! but `cargo test --test NAME` does not: run `cargo build -p eyriefs --examples` first.

#![expect(clippy::unwrap_used, reason = "this is all tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of the built examples, beside the directory of this program.
fn programs() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples")
}

/// Runs the example `name` in a temporary directory of its own. Returns its output. The example must succeed
/// and leave the directory empty.
fn run(name: &str, arguments: &[&Path]) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let program = programs().join(name);
    assert!(program.exists(), "{} is missing: cargo build -p eyriefs --examples", program.display());
    let output = Command::new(program).args(arguments).env("TMPDIR", scratch.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{errors}", output.status);
    assert_eq!(errors, "", "{name} prints errors");
    let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{name} leaves {left:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that `output` has these lines, in this order.
fn assert_lines(output: &str, expected: &[&str]) {
    let mut lines = output.lines();
    for line in expected {
        assert!(
            lines.any(|found| found.contains(line)),
            "`{line}` is missing, or not in its place:\n{output}"
        );
    }
}

#[test]
fn quick_start_counts_its_visits() {
    assert_lines(&run("quick_start", &[]), &["visit 1 of the volume", "visit 2 of the volume"]);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("volume");
    for visit in 1..=3 {
        assert_lines(&run("quick_start", &[&path]), &[&format!("visit {visit} of the volume")]);
    }
}

#[test]
fn cache_stores_each_value_once() {
    let lines =
        ["look-ups: 200", "square:010 = 100", "square:012 = 144", "dropped 50 squares, 2 keys are left"];
    assert_lines(&run("key_value_cache", &[]), &lines);
}

#[test]
fn threads_lose_no_record() {
    let lines = ["4 threads appended 1000 records", "the table has 4096 bytes", "the root has 6 entries"];
    assert_lines(&run("many_threads", &[]), &lines);
}

#[test]
fn sandbox_exports_only_the_difference() {
    let expected = "imported 6 entries\n     new  notes/best\n changed  notes/owl.txt\n     new  reports\n\
                    \x20    new  reports/kite.txt\n     new  reports/summary.txt\n\
                    \x20removed  notes/draft.txt\n removed  notes/kite.txt\n";
    assert_eq!(run("agent_sandbox", &[]), expected);
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("own"), "bytes of the user").unwrap();
    let expected = "imported 1 entries\n     new  reports\n     new  reports/summary.txt\n";
    assert_eq!(run("agent_sandbox", &[place.path()]), expected);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn analytics_copy_no_value() {
    let lines = [
        "1000 values in place",
        "oslo: mean 944, highest 1788",
        "a view keeps its 2880 bytes",
        "york, 250 days",
    ];
    assert_lines(&run("in_place_analytics", &[]), &lines);
}

#[test]
fn killed_writer_loses_nothing_that_was_promised() {
    let lines =
        ["dram: 250 records written", "recovered: 250 records", "paged: 250 records written", "recovered"];
    assert_lines(&run("crash_and_recovery", &[]), &lines);
}

/// A new example needs a test here.
#[test]
fn every_example_is_run() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = fs::read_to_string(home.join("tests/examples.rs")).unwrap();
    let examples = fs::read_dir(home.join("examples")).unwrap().map(|entry| entry.unwrap().path());
    for example in examples {
        let name = example.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(tests.contains(&format!("run(\"{name}\", ")), "no test runs {name}");
        let lines = fs::read_to_string(&example).unwrap().lines().count();
        assert!(lines < 120, "{name} has {lines} lines");
    }
}
