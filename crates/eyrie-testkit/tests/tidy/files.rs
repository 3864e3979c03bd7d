//! Checks that files have a readable length, belong to a crate, and have no notes about unfinished work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{assert_none, documents, root, sources};

/// Maximum number of lines of a file: without its tests, and with them.
const MAX_LINES: (usize, usize) = (500, 700);

#[test]
fn files_can_be_read_in_one_sitting() {
    let mut found = Vec::new();
    for source in sources() {
        let all = source.text.lines().count();
        let tests = source.text.lines().position(|line| line == "#[cfg(test)]").map_or(0, |line| all - line);
        let limit = if source.is_test() { MAX_LINES.1 } else { MAX_LINES.0 };
        if all - tests > limit || all > MAX_LINES.1 {
            found.push(format!("{}: {} lines, {all} with tests", source.path.display(), all - tests));
        }
    }
    assert_none("long files", &found);
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["todo", "!("],
        ["unimplemented", "!("],
        ["dbg", "!("],
        ["#[", "ignore"],
    ];
    let marks = marks.map(|[first, second]| format!("{first}{second}"));
    let mut found = Vec::new();
    let texts = sources().into_iter().map(|source| (source.path, source.text));
    let documents = documents().into_iter();
    for (path, text) in texts.chain(documents) {
        for (line, number) in text.lines().zip(1..) {
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                found.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert_none("left for later", &found);
}

/// Returns the file of the module `name` that `parent` declares.
fn module(parent: &Path, name: &str) -> Option<PathBuf> {
    let stem = parent.file_stem()?.to_str()?;
    let is_top = ["lib", "main", "mod"].contains(&stem) || parent.parent()?.ends_with("tests");
    let dir = if is_top { parent.parent()?.to_owned() } else { parent.with_extension("") };
    [dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")]
        .into_iter()
        .find(|path| root().join(path).exists())
}

#[test]
fn every_file_belongs_to_a_crate() {
    let sources: BTreeMap<PathBuf, String> =
        sources().into_iter().map(|source| (source.path, source.text)).collect();
    let is_top = |path: &&PathBuf| {
        let place: Vec<_> = path.iter().skip(2).map(|part| part.to_string_lossy()).collect();
        match place.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] {
            ["src", name] => ["lib.rs", "main.rs"].contains(&name),
            ["src", "bin", _] | ["tests" | "benches" | "examples", _] => true,
            ["tests", _, name] => name == "main.rs",
            _ => false,
        }
    };
    let mut pending: Vec<PathBuf> = sources.keys().filter(is_top).cloned().collect();
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    while let Some(path) = pending.pop() {
        for line in sources[&path].lines().map(str::trim) {
            let Some(rest) = line.strip_suffix(';') else { continue };
            let name = rest.rsplit_once("mod ").filter(|(before, _)| {
                before.is_empty() || before.trim_end() == "pub" || before.starts_with("pub(")
            });
            if let Some(file) = name.and_then(|(_, name)| module(&path, name)) {
                pending.push(file);
            }
        }
        reached.insert(path);
    }
    let dead: Vec<String> = sources
        .keys()
        .filter(|path| !reached.contains(*path))
        .map(|path| path.display().to_string())
        .collect();
    assert_none("files in no crate", &dead);
}
