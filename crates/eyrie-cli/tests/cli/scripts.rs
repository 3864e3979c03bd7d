//! Tests of `run` and `tree --canonical`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::Sandbox;

const SCRIPT: &str = "\
# The third call fails.
mkdir /dir
creat /dir/a 0600
unlink /none

write /dir/a 0 1K 7
";

impl Sandbox {
    /// Makes a sandbox with a volume and a script.
    fn with_script(script: &str) -> Sandbox {
        let sandbox = Sandbox::with_volume("64M");
        fs::write(sandbox.path("script"), script).unwrap();
        sandbox
    }
}

#[test]
fn script_stops_at_first_error_or_goes_on() {
    let sandbox = Sandbox::with_script(SCRIPT);
    let output = sandbox.run(["run", "script", "vol"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "2 mkdir /dir 0755 = 0\n3 creat /dir/a 0600 = 0\n\
         4 unlink /none = ENOENT (No such file or directory)\n"
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "eyrie: stopped at a call that failed: script:4: unlink: No such file or directory: \
         --keep-going goes on after it\n"
    );
    assert!(sandbox.succeed(["ls", "-l", "vol:/dir/a"]).contains(" 0 "));
    let output = sandbox.run(["run", "--keep-going", "script", "vol"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "2 mkdir /dir 0755 = EEXIST (File exists)\n3 creat /dir/a 0600 = 0\n\
         4 unlink /none = ENOENT (No such file or directory)\n6 write /dir/a 0 1024 7 = 0\n"
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "eyrie: not every call succeeded: script: 2 of 4 calls failed\n"
    );
    assert_eq!(sandbox.run(["cat", "vol:/dir/a"]).stdout.len(), 1024);
    assert!(sandbox.succeed(["info", "vol"]).contains("clean"));
    fs::write(sandbox.path("good"), "sync\nfsync /dir/a\nfsync /dir").unwrap();
    assert_eq!(sandbox.succeed(["run", "-k", "good", "vol"]).lines().count(), 3);
}

#[test]
fn script_from_standard_input_ignores_the_umask() {
    let sandbox = Sandbox::with_volume("64M");
    let mut command = sandbox.command(["run", "-", "vol"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"creat \"/a b\" 0666").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"1 creat \"/a b\" 0666 = 0\n");
    assert!(sandbox.succeed(["stat", "vol:/a b"]).contains("0666"));
}

#[test]
fn bad_script_changes_nothing() {
    let sandbox = Sandbox::with_script("creat /a\nwrite /a 0 2G 1\n");
    let output = sandbox.run(["run", "script", "vol"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "eyrie: script:2: 2G: expected LENGTH of at most 1G: no call writes more\n"
    );
    assert!(output.stdout.is_empty());
    assert_eq!(sandbox.succeed(["ls", "vol"]), "");
    let mut command = sandbox.command(["run", "-", "vol"]);
    let output = command.stdin(fs::File::open("/dev/zero").unwrap()).output().unwrap();
    assert_eq!(output.stderr, b"eyrie: standard input: a script must have at most 64 MiB\n");
    sandbox.fail(3, &["none", "No such file"], ["run", "none", "vol"]);
    fs::write(sandbox.path("script"), "sync").unwrap();
    sandbox.fail(3, &["missing", "mkfs"], ["run", "script", "missing"]);
    sandbox.fail(2, &["VOLUME", "eyrie run --help"], ["run", "script"]);
}

#[test]
fn all_calls_run_with_closed_output() {
    let script: String = (0..3000).map(|number| format!("creat /file-{number}\n")).collect();
    let sandbox = Sandbox::with_script(&script);
    let mut command = sandbox.command(["run", "script", "vol"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(sandbox.succeed(["ls", "vol"]).lines().count(), 3000);
}

#[test]
fn canonical_trees_compare_as_text() {
    let sandbox =
        Sandbox::with_script("mkdir /d\ncreat /d/a\ncreat /d-b\nlink /d/a /d/c\nutimes /d-b 1 2.5\n");
    sandbox.succeed(["run", "script", "vol"]);
    let tree = sandbox.succeed(["tree", "--canonical", "vol"]);
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["/", "/d", "/d-b", "/d/a", "/d/c"]);
    assert!(tree.ends_with("/d/c same=/d/a\n") && !tree.contains("mtime"), "{tree}");
    sandbox.succeed(["mkfs", "new", "--size", "64M"]);
    sandbox.succeed(["cp", "-r", "vol:/d", "new:/copy"]);
    let copied = sandbox.succeed(["tree", "--canonical", "new:/copy"]);
    assert_eq!(copied, sandbox.succeed(["tree", "--canonical", "vol:/d"]));
    assert!(
        sandbox.succeed(["tree", "--canonical", "--times", "vol:/"]).contains("links=1 mtime=2.500000000 ")
    );
    sandbox.fail(3, &["vol:/none", "spelling"], ["tree", "--canonical", "vol:/none"]);
    sandbox.fail(2, &["--canonical", "--depth"], ["tree", "--canonical", "--depth", "1", "vol:/"]);
    sandbox.fail(2, &["--canonical"], ["tree", "--times", "vol:/"]);
}
