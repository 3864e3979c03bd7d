//! Checks that the text of sources and documents follows the rules of the project. Reviews alone would not
//! find every violation.
//!
//! These checks read the workspace as text. They have a binary of their own, because they run in seconds
//! after any edit, while the tests of engines take minutes.

use std::fs;
use std::path::{Path, PathBuf};

mod crates;
mod documents;
mod duties;
mod files;
mod library;
mod messages;
mod modules;
mod names;
mod prose;
mod ratios;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all files below `dir` whose names end with `ending`, sorted, as paths from the root of the
/// workspace.
fn files(dir: &str, ending: &str) -> Vec<PathBuf> {
    let (root, mut found) = (root(), Vec::new());
    let mut pending = vec![root.join(dir)];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                pending.push(entry);
            } else if entry.to_string_lossy().ends_with(ending) {
                found.push(entry.strip_prefix(&root).expect("below the root").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A source file.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn is_in(&self, start: &str) -> bool {
        self.path.starts_with(start)
    }

    /// True if the whole file is a test.
    fn is_test(&self) -> bool {
        let parts: Vec<_> = self.path.iter().map(|part| part.to_string_lossy()).collect();
        parts.iter().skip(2).any(|part| part == "tests" || part == "tests.rs")
    }

    /// Returns the lines that are compiled into the crate, without tests and comment lines.
    fn code(&self) -> String {
        if self.is_test() {
            return String::new();
        }
        let code = self.text.split("\nmod tests {").next().unwrap_or_default();
        code.lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| format!("{line}\n"))
            .collect()
    }
}

fn sources() -> Vec<Source> {
    let source = |path: PathBuf| Source { text: read(root().join(&path)), path };
    files("crates", ".rs").into_iter().map(source).collect()
}

/// Panics with the list `found`, unless it is empty.
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Returns the lines of code with one of `words` in the sources below one of `places`, but not below one of
/// `except`.
fn uses(places: &[&str], except: &[&str], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources() {
        if !places.iter().any(|place| source.is_in(place)) || except.iter().any(|place| source.is_in(place)) {
            continue;
        }
        for line in source.code().lines() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{}: {word} in: {}", source.path.display(), line.trim()));
            }
        }
    }
    found
}

/// Returns the pages of prose.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths = files("docs", ".md");
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(PathBuf::from);
    paths.extend(top.into_iter().filter(|path| root().join(path).exists()));
    paths.into_iter().map(|path| (path.clone(), read(root().join(path)))).collect()
}

/// Returns the pages of prose and the script of CI.
fn documents() -> Vec<(PathBuf, String)> {
    let script = PathBuf::from(".ci/run");
    let text = read(root().join(&script));
    pages().into_iter().chain([(script, text)]).collect()
}
