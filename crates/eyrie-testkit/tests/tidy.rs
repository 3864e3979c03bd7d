//! What words cannot keep: the direction of dependencies, no unsafe code outside its home, one place for each duty, files
//! of a readable length, and documents that name tests which exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use eyrie_medium::rules::{Entry, SafetyRule};

/// Which crates of the workspace each may depend on (tests apart).
const MAY_USE: [(&str, &[&str]); 7] = [
    ("eyrie-medium", &[]),
    ("eyrie-engine", &["eyrie-medium"]),
    ("eyrie", &["eyrie-engine", "eyrie-medium"]),
    ("eyrie-sim", &["eyrie", "eyrie-engine", "eyrie-medium"]),
    ("eyrie-cli", &["eyrie", "eyrie-sim"]),
    ("eyrie-testkit", &["eyrie", "eyrie-engine", "eyrie-medium", "eyrie-sim"]),
    ("xtask", &["eyrie"]),
];
/// Lines of a file without its tests, and with them.
const MOST_LINES: (usize, usize) = (500, 700);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below `dir` whose names end with `ending`, sorted, as paths from the workspace's root.
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

    /// Whether it is a test as a whole.
    fn is_test(&self) -> bool {
        let parts: Vec<_> = self.path.iter().map(|part| part.to_string_lossy()).collect();
        parts.iter().skip(2).any(|part| part == "tests" || part == "tests.rs")
    }

    /// What is compiled into the crate: no tests, no comments.
    fn code(&self) -> String {
        if self.is_test() {
            return String::new();
        }
        let code = self.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
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

/// Panics with everything that was found wrong.
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Every source below one of `places` (and none of `except`) whose code has one of `words`.
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

/// The lines of one section of a manifest.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| line.trim() != head).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.trim().is_empty()).collect()
}

#[test]
fn crates_depend_on_what_is_below_them() {
    let crates: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .expect("crates")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let known: BTreeSet<String> = MAY_USE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(crates, known, "a new crate needs a line in MAY_USE");
    for (name, may_use) in MAY_USE {
        let manifest = read(root().join("crates").join(name).join("Cargo.toml"));
        let used: Vec<&str> = section(&manifest, "dependencies")
            .iter()
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .filter(|dependency| known.contains(*dependency))
            .collect();
        assert!(used.iter().all(|used| may_use.contains(used)), "{name} depends on {used:?}");
    }
}

#[test]
fn every_crate_says_what_the_workspace_says() {
    for (name, _) in MAY_USE {
        let manifest = read(root().join("crates").join(name).join("Cargo.toml"));
        for field in ["version", "edition", "rust-version", "license"] {
            assert!(manifest.contains(&format!("{field}.workspace = true\n")), "{name}: {field}");
        }
        assert!(
            section(&manifest, "package").iter().any(|line| line.starts_with("description = \"")),
            "{name}"
        );
        assert!(manifest.contains("[lints]\nworkspace = true\n"), "{name}: lints");
    }
}

#[test]
fn unsafe_code_has_one_home() {
    for (name, _) in MAY_USE {
        let home = root().join("crates").join(name).join("src");
        let top = [home.join("lib.rs"), home.join("main.rs")].into_iter().find(|path| path.exists());
        let text = read(top.expect("a crate has a root"));
        let forbidden = text.contains("\n#![forbid(unsafe_code)]\n");
        assert_eq!(forbidden, name != "eyrie-medium", "{name}: forbid(unsafe_code)");
    }
    let word = ["un", "safe "].concat();
    let has_word =
        |line: &str| ["fn", "impl", "{", "extern"].iter().any(|next| line.contains(&format!("{word}{next}")));
    let places = [
        "crates/eyrie",
        "crates/eyrie-engine",
        "crates/eyrie-cli",
        "crates/eyrie-sim",
        "crates/eyrie-testkit",
    ];
    let found: Vec<String> = sources()
        .iter()
        .filter(|source| places.iter().any(|place| source.is_in(place)))
        .filter(|source| {
            source.text.lines().any(|line| !line.trim_start().starts_with("//") && has_word(line))
        })
        .map(|source| source.path.display().to_string())
        .collect();
    assert_none("unsafe code outside eyrie-medium", &found);
}

#[test]
fn nothing_below_the_interfaces_knows_paths() {
    let engine = "crates/eyrie-engine/src";
    let below = ["crates/eyrie-medium/src", engine];
    let host = [
        "crates/eyrie-engine/src/volume/device.rs",
        "crates/eyrie-engine/src/volume/host.rs",
        "crates/eyrie-engine/src/volume/lock.rs",
        "crates/eyrie-medium/src/paged/usable.rs",
    ];
    assert_none("knowledge of `/`", &uses(&below, &host, &["b'/'", "'/'", "\"/\"", "PathBuf", "OsStr"]));
    // Where a volume is on the host passes through; nothing else is a path.
    let passes = [
        &host[..],
        &[
            "crates/eyrie-engine/src/volume/damaged.rs",
            "crates/eyrie-engine/src/volume/mod.rs",
            "crates/eyrie-engine/src/volume/resize.rs",
            "crates/eyrie-engine/src/scm/mod.rs",
        ],
    ]
    .concat();
    assert_none("paths of the host", &uses(&below, &passes, &["std::path", "&Path"]));
}

#[test]
fn each_duty_has_one_module() {
    let encoder = "crates/eyrie-engine/src/op/encode";
    let encodes: Vec<String> = sources()
        .iter()
        .filter(|source| !source.is_in(encoder))
        .filter(|source| {
            let code = source.code();
            code.contains("Op::Create {") && (code.contains("to_le_bytes") || code.contains("IntoBytes"))
        })
        .map(|source| source.path.display().to_string())
        .collect();
    assert_none("Ops encoded elsewhere", &encodes);
    let permissions = uses(
        &["crates/eyrie/src", "crates/eyrie-engine/src"],
        &["crates/eyrie-engine/src/access.rs"],
        &["in_group(", "credentials.is_root()", "0o4000", "0o2000", "0o1000", "0o111"],
    );
    assert_none("permission rules elsewhere", &permissions);
    let barriers = uses(
        &[
            "crates/eyrie/src",
            "crates/eyrie-cli/src",
            "crates/eyrie-engine/src/object",
            "crates/eyrie-engine/src/scm",
        ],
        &[],
        &[".barrier(", ".publish(", ".publish_line(", ".publish_all(", ".settle("],
    );
    assert_none("ordering outside transactions and volumes", &barriers);
}

#[test]
fn look_ups_and_reads_take_no_lock_and_call_no_system() {
    let objects =
        uses(&["crates/eyrie-engine/src/object"], &[], &["Mutex", "RwLock", "rustix", "libc", "std::fs"]);
    assert_none("locks or system calls in objects", &objects);
    let reads =
        uses(&["crates/eyrie-engine/src/scm/read.rs"], &[], &["locks.hold", "Mutex", "lock(", "rustix"]);
    assert_none("locks or system calls in reads", &reads);
    let interface = uses(&["crates/eyrie/src/pxfs"], &[], &["Mutex", "RwLock", "std::fs", "rustix::fs"]);
    assert_none("locks or system calls in PXFS", &interface);
}

#[test]
fn files_can_be_read_in_one_sitting() {
    let mut found = Vec::new();
    for source in sources() {
        let all = source.text.lines().count();
        let tests = source.text.lines().position(|line| line == "#[cfg(test)]").map_or(0, |line| all - line);
        let limit = if source.is_test() { MOST_LINES.1 } else { MOST_LINES.0 };
        if all - tests > limit || all > MOST_LINES.1 {
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

/// The file of module `name` that `parent` declares.
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
            ["tests" | "examples" | "benches", _] => true,
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
    assert_none("files that no crate has", &dead);
}

/// The documents, and the script that checks everything.
fn documents() -> Vec<(PathBuf, String)> {
    let mut paths = files("docs", ".md");
    paths.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md", ".ci/run"].map(PathBuf::from));
    paths.into_iter().map(|path| (path.clone(), read(root().join(path)))).collect()
}

/// Names of all tests: functions after `#[test]`.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources() {
        let mut is_test = false;
        for line in source.text.lines().map(str::trim) {
            is_test |= line == "#[test]";
            if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
                names.extend(rest.split('(').next().map(str::to_owned));
                is_test = false;
            }
        }
    }
    names
}

/// The names in backticks of a text that look like those of tests: at least four words.
fn test_names(text: &str) -> Vec<&str> {
    let is_name = |name: &&str| {
        name.matches('_').count() >= 3 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    text.split('`').skip(1).step_by(2).filter(is_name).collect()
}

#[test]
fn documents_name_tests_that_exist() {
    let (tests, mut missing) = (tests(), Vec::new());
    for (path, text) in documents().iter().filter(|(path, _)| !path.ends_with("format.md")) {
        for name in test_names(text).into_iter().filter(|name| !tests.contains(*name)) {
            missing.push(format!("{}: {name}", path.display()));
        }
    }
    assert_none("tests that do not exist", &missing);
}

/// The catalogue and its document say the same, and each rule is asked for in one place, which is that of the catalogue.
#[test]
fn every_rule_is_described_and_has_one_mutant() {
    let text = read(root().join("docs/rules.md"));
    let mut rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let (catalogue, mut wrong) = ("crates/eyrie-medium/src/rules", Vec::new());
    let sources: Vec<(String, String)> = sources()
        .iter()
        .filter(|source| !source.is_in(catalogue) && !source.is_in("crates/eyrie-medium/src/rules.rs"))
        .map(|source| (source.path.display().to_string(), source.code()))
        .collect();
    for &rule in SafetyRule::ALL {
        let Entry { id, sentence, place, mutant, .. } = rule.entry();
        let row = format!("| `{id}` | {sentence} | `{place}` | {mutant} |");
        match rows.iter().position(|&other| other == row) {
            Some(at) => drop(rows.remove(at)),
            None => wrong.push(format!("docs/rules.md lacks {row}")),
        }
        let word = format!("SafetyRule::{}", rule.name());
        let is_whole = |code: &str, at: usize| !code[at..].starts_with(|next: char| next.is_alphanumeric());
        let asks =
            |code: &str| code.match_indices(&word).filter(|(at, _)| is_whole(code, at + word.len())).count();
        let sites: Vec<&str> = sources.iter().flat_map(|(path, code)| vec![&path[..]; asks(code)]).collect();
        if sites != [format!("crates/{place}")] {
            wrong.push(format!("{word} is asked for in {sites:?}"));
        }
    }
    wrong.extend(rows.iter().map(|row| format!("no such rule: {row}")));
    assert_none("rules", &wrong);
}

#[test]
fn every_paragraph_of_the_semantics_names_its_test() {
    let text = read(root().join("docs/semantics.md"));
    let promises = text.split("\n## ").skip(1).flat_map(|part| part.split("\n\n").skip(1));
    let without: Vec<String> = promises
        .filter(|paragraph| !paragraph.trim().is_empty() && test_names(paragraph).is_empty())
        .map(|paragraph| paragraph.trim().lines().next().unwrap_or_default().to_owned())
        .collect();
    assert_none("paragraphs without a test", &without);
}
