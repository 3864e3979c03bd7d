//! Arguments and helps.

use crate::Sandbox;

const COMMANDS: [&str; 18] = [
    "mkfs", "info", "import", "export", "ls", "tree", "cat", "stat", "mkdir", "cp", "mv", "rm", "ln", "kv",
    "xattr", "fsck", "df", "tour",
];

#[test]
fn every_help_has_examples() {
    let sandbox = Sandbox::new();
    for command in COMMANDS {
        let help = sandbox.succeed([command, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("eyrie {command}")), "{help}");
    }
    for command in ["get", "put", "erase", "scan"] {
        let help = sandbox.succeed(["kv", command, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("eyrie kv {command}")), "{help}");
    }
    for command in ["get", "set", "list", "rm"] {
        let help = sandbox.succeed(["xattr", command, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("eyrie xattr {command}")), "{help}");
    }
    let help = sandbox.succeed(["--help"]);
    assert!(COMMANDS.iter().all(|command| help.contains(command)), "{help}");
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
    assert!(!sandbox.path("vol").exists());
}

#[test]
fn no_arguments_show_the_help() {
    let output = Sandbox::new().run([] as [&str; 0]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Usage"), "{output:?}");
}
