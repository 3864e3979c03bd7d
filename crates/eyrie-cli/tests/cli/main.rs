//! Tests of the command `eyrie` as users run it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod archives;
mod arguments;
mod bench;
mod changes;
mod commands;
mod copies;
mod crashes;
mod damage;
mod deep;
mod deferred;
mod devices;
mod diffs;
mod documents;
mod errors;
mod explore;
mod extremes;
mod flags;
mod golden;
mod keys;
mod left_logs;
mod listing;
mod mount;
#[cfg(feature = "mutants")]
mod mutants;
mod paged;
mod pages;
mod quiet;
mod quotas;
mod readers;
mod repair;
mod scripts;
mod search;
mod served;
mod served_disk;
mod served_pmem;
mod status;
mod streams;
mod terminal;
mod trees;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// If the environment names a rule, breaks this rule in the process of the test. So the clients in this
/// process break the same rule as the commands that the test starts.
fn break_rule() {
    #[cfg(feature = "mutants")]
    eyrie_sim::explore::mutants::break_rule_of_environment();
}

/// The directory of a test, in `/dev/shm` if possible, because that file system keeps holes, times and
/// devices. The drop of this value removes the directory.
struct Sandbox {
    dir: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Sandbox {
        break_rule();
        Sandbox { dir: tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap() }
    }

    /// Makes a sandbox with a volume.
    fn with_volume(size: &str) -> Sandbox {
        let sandbox = Sandbox::new();
        sandbox.succeed(["mkfs", "vol", "--size", size]);
        sandbox
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a command `eyrie` that will run in the sandbox.
    fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_eyrie"));
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts an import into the volume and kills it, so that the volume is not closed.
    fn kill_an_import(&self) {
        std::fs::create_dir(self.path("tree")).unwrap();
        eyrie_testkit::tree_fixture::fill(&self.path("tree"), 4000, 3000).unwrap();
        let mut command = self.command(["import", "-v", "tree", "vol:/tree"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = [0; 100];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Runs the command, which must succeed and print nothing to standard error. Returns its standard output.
    fn succeed<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.run(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs the command, which must fail with status 1. Standard error must have a line for each of `words`,
    /// in this order, and then a last line, which is returned.
    fn complain<S: AsRef<OsStr>>(&self, words: &[&str], arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut lines: Vec<&str> = complaints.lines().collect();
        let last = lines.pop().unwrap_or_default().to_owned();
        assert_eq!(lines.len(), words.len(), "{complaints}");
        for (line, word) in lines.iter().zip(words) {
            assert!(line.starts_with("eyrie: ") && line.contains(word), "{word:?} is not in {line:?}");
        }
        last
    }

    /// Runs the command, which must fail with this status. Standard error must have one line, which contains
    /// all of `words`.
    fn fail<S: AsRef<OsStr>>(&self, status: i32, words: &[&str], arguments: impl IntoIterator<Item = S>) {
        let output = self.run(arguments);
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.starts_with("eyrie: ") && line.matches(": ").count() >= 2, "{line}");
        for word in words {
            assert!(line.contains(word), "{word:?} is not in {line:?}");
        }
    }
}

/// Returns the names of all commands and of their subcommands. The name of a command comes before the name of
/// its subcommand.
fn subcommands(sandbox: &Sandbox) -> Vec<Vec<String>> {
    // Before the options, the help has each subcommand on a line with two spaces before its name.
    let named = |arguments: &[String]| -> Vec<String> {
        let help = sandbox.succeed(arguments.iter().map(String::as_str).chain(["--help"]));
        let lines = help
            .lines()
            .take_while(|line| *line != "Options:")
            .filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
        let names = lines.map(|(name, _)| name).filter(|name| *name != "help");
        names
            .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase()))
            .map(str::to_owned)
            .collect()
    };
    let mut found = Vec::new();
    for name in named(&[]) {
        let command = vec![name];
        let inner = named(&command).into_iter().map(|name| [&command[..], &[name]].concat());
        found.extend(inner.collect::<Vec<_>>());
        found.push(command);
    }
    assert!(found.len() > 60, "{found:?}");
    found
}

fn is_root() -> bool {
    eyrie_testkit::tree_fixture::is_root()
}
