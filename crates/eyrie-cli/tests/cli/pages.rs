//! Runs the sessions in the pages for users, and compares the output with the text of the page.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Sandbox;

/// A command of a session, and the output that the page shows.
struct Step {
    line: usize,
    command: String,
    shown: Vec<String>,
}

/// Returns the steps of all blocks `console` of a page. A command begins with `$`, and continues in the next
/// line after a backslash.
fn steps(page: &str) -> Vec<Step> {
    let (mut steps, mut is_session, mut goes_on) = (Vec::<Step>::new(), false, false);
    for (text, line) in page.lines().zip(1..) {
        if text.starts_with("```") {
            is_session = text == "```console";
        } else if is_session {
            match (text.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    steps.push(Step { line, command: command.to_owned(), shown: Vec::new() });
                }
                (None, Some(step)) if goes_on => step.command += &format!("\n{text}"),
                (None, Some(step)) => step.shown.push(text.to_owned()),
                (None, None) => panic!("line {line}: output without a command"),
            }
            goes_on = text.ends_with('\\');
        }
    }
    steps
}

/// Returns true if `text` equals `shown`, in which each `…` stands for any text.
fn fits(shown: &str, text: &str) -> bool {
    let Some((first, mut rest)) = shown.split_once('…') else { return shown == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    while let Some((part, next)) = rest.split_once('…') {
        let Some(at) = text.find(part) else { return false };
        (text, rest) = (&text[at + part.len()..], next);
    }
    text.ends_with(rest)
}

/// Runs the sessions of the page `docs/NAME`, one after the other in one directory.
fn run(name: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let steps = steps(&fs::read_to_string(page).unwrap());
    assert!(steps.len() > 5, "{name} has {} commands", steps.len());
    let sandbox = Sandbox::new();
    let programs = Path::new(env!("CARGO_BIN_EXE_eyrie")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut wrong = Vec::new();
    for Step { line, command, shown } in steps {
        let shell = format!("umask 022; exec 2>&1\n{command}");
        let mut bash = Command::new("bash");
        bash.args(["-c", &shell]).current_dir(sandbox.path("")).env("PATH", &path).env("TZ", "UTC");
        let output = bash.env_remove("EYRIE_MEMORY").output().unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let found: Vec<&str> = output.lines().map(str::trim_end).collect();
        let is_equal = found.len() == shown.len()
            && shown.iter().zip(&found).all(|(shown, found)| fits(shown.trim_end(), found));
        if !is_equal {
            wrong.push(format!("docs/{name}:{line}: $ {command}\n{output}"));
        }
    }
    assert!(wrong.is_empty(), "other outputs than on the page:\n{}", wrong.join("\n"));
}

#[test]
fn sessions_of_getting_started_are_real() {
    run("getting-started.md");
}

#[test]
fn sessions_of_the_guide_to_the_command_are_real() {
    run("command.md");
}

#[test]
fn sessions_of_troubleshooting_are_real() {
    run("troubleshooting.md");
}

#[test]
fn an_ellipsis_stands_for_any_text() {
    for (shown, text) in [("a", "a"), ("a…", "abc"), ("a…c…e", "abcde"), ("…", ""), ("…c", "cc")] {
        assert!(fits(shown, text), "{shown} {text}");
    }
    for (shown, text) in [("a", "ab"), ("a…d", "abc"), ("a…c…e", "abce!"), ("a…a", "a")] {
        assert!(!fits(shown, text), "{shown} {text}");
    }
    let page = "```sh\n$ no\n```\n\n```console\n$ one \\\n  two\nout\n$ three\n```\n";
    let steps: Vec<(String, usize)> =
        steps(page).into_iter().map(|step| (step.command, step.shown.len())).collect();
    assert_eq!(steps, [("one \\\n  two".to_owned(), 1), ("three".to_owned(), 0)]);
}
