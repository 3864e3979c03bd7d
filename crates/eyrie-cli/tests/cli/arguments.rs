//! Tests of arguments and help texts.

use crate::Sandbox;

#[test]
fn every_subcommand_has_help_with_examples() {
    let sandbox = Sandbox::new();
    let help = sandbox.succeed(["--help"]);
    let headings = ["Everyday:", "Volumes:", "Keys:", "Checking:", "Exploring crashes:", "Help:"];
    let mut lines = help.lines();
    let mut names = Vec::new();
    for heading in headings {
        assert!(lines.any(|line| line == heading), "{heading} is not in {help}");
        let list = lines.by_ref().take_while(|line| !line.is_empty());
        names.extend(list.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help"));
    }
    assert!(help.contains("--memory <SIZE>") && help.contains("Exit status: 0 success"), "{help}");
    for expected in ["mkfs", "import", "find", "du", "dump", "load", "fsck", "completions", "man", "tour"] {
        assert!(names.contains(&expected), "{expected} is not in {names:?}");
    }
    for name in names {
        let help = sandbox.succeed([name, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("eyrie {name} ")), "{help}");
    }
    assert!(sandbox.succeed(["--version"]).starts_with("eyrie "));
}

#[test]
fn wrong_arguments_are_one_line_and_status_2() {
    let sandbox = Sandbox::new();
    sandbox.fail(2, &["--size", "eyrie mkfs --help"], ["mkfs", "vol"]);
    sandbox.fail(2, &["4X", "4G"], ["mkfs", "vol", "--size", "4X"]);
    sandbox.fail(2, &["0", "4G"], ["mkfs", "vol", "--size", "0"]);
    sandbox.fail(2, &["nonsense"], ["nonsense"]);
    sandbox.fail(2, &["--nonsense"], ["ls", "--nonsense", "vol:/"]);
    sandbox.fail(2, &["file", "VOLUME:/path"], ["cat", "file"]);
    sandbox.fail(2, &["dir", "VOLUME:/path"], ["import", ".", "dir"]);
    sandbox.fail(2, &["store", "VOLUME:/path"], ["kv", "get", "store", "key"]);
    sandbox.fail(2, &["file", "VOLUME:/path"], ["xattr", "list", "file"]);
    sandbox.fail(2, &["--create", "--replace"], ["xattr", "set", "--create", "--replace", "vol:/", "user.a"]);
    sandbox.fail(2, &["[", "--name"], ["find", "vol:/", "--name", "["]);
    sandbox.fail(2, &["1X", "4G"], ["find", "vol:/", "--size", "+1X"]);
    sandbox.fail(2, &["x", "--type"], ["find", "vol:/", "--type", "f,x"]);
    sandbox.fail(2, &["--json", "-o"], ["dump", "vol:/", "--json"]);
    sandbox.fail(2, &["--verbose", "-o"], ["dump", "vol:/", "-v", "-o", "-"]);
    sandbox.fail(2, &["dir", "VOLUME:/path"], ["load", "dir"]);
    assert!(!sandbox.path("vol").exists());
}

#[test]
fn missing_arguments_show_the_help() {
    let output = Sandbox::new().run([] as [&str; 0]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Usage"), "{output:?}");
}
