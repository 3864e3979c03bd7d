//! Checks the order of modules: each crate keeps to a written order, and no modules of a folder use each
//! other in a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Source, assert_none, sources};

/// The top-level modules of each crate, lowest first. A module uses only modules before it in this list.
const ORDER: [(&str, &[&str]); 12] = [
    (
        "eyrie-medium",
        &[
            "addr",
            "copy",
            "counts",
            "fork",
            "own_root",
            "rules",
            "site",
            "sync",
            "truncate",
            "clone_range",
            "range_lock",
            "fault",
            "shared",
            "epoch",
            "host",
            "token",
            "mapping",
            "observe",
            "paged",
            "provider",
            "pmem",
            "backing",
            "medium",
            "reader",
            "order",
            "paging",
            "provision",
        ],
    ),
    (
        "eyrie-faults",
        &["random", "base", "plan", "rule", "written", "record", "schedule", "points", "image", "disk"],
    ),
    (
        "eyrie-engine",
        &[
            "errno",
            "error",
            "id",
            "advisory",
            "holds",
            "op",
            "quota",
            "notices",
            "engine",
            "access",
            "change_log",
            "extent",
            "tables",
            "spread",
            "claims",
            "board",
            "host",
            "space",
            "volume",
            "transaction",
            "object",
            "check",
            "model",
            "recovery",
            "salvage",
            "scm",
            "format_doc",
        ],
    ),
    (
        "eyrie-client",
        &[
            "packet", "sent", "protocol", "shadow", "log", "channel", "session", "unsynced", "client",
            "watch", "deferred", "engine",
        ],
    ),
    ("eyrie-service", &["clock", "watchers", "logs", "session", "locks", "reach", "requests", "server"]),
    (
        "eyrie",
        &[
            "error",
            "names",
            "fetch",
            "stamps",
            "retry",
            "kept",
            "view",
            "posix",
            "key_value",
            "host",
            "pxfs",
            "kvfs",
            "repair",
            "volume",
        ],
    ),
    (
        "eyrie-fuse",
        &[
            "error",
            "options",
            "mountinfo",
            "place",
            "turns",
            "answer",
            "convert",
            "locks",
            "adapter",
            "listing",
            "requests",
            "invalidate",
            "session",
        ],
    ),
    (
        "eyrie-bench",
        &[
            "error", "values", "machine", "service", "place", "keys", "peers", "rival", "method", "client",
            "side", "report", "run", "workload",
        ],
    ),
    ("eyrie-sim", &["word", "seconds", "canonical", "compare", "script", "explore"]),
    (
        "eyrie-cli",
        &[
            "text",
            "times",
            "users",
            "failure",
            "interrupt",
            "place",
            "output",
            "input",
            "volumes",
            "background",
            "opened",
            "copy",
            "archive",
            "transfer",
            "endpoint",
            "commands",
        ],
    ),
    (
        "eyrie-testkit",
        &[
            "acls",
            "ops",
            "oracle",
            "linear",
            "mutants",
            "planted",
            "crash",
            "hostile",
            "script",
            "kills",
            "persistent",
            "services",
            "posix",
            "power",
            "tree_fixture",
        ],
    ),
    ("xtask", &["run", "packages", "dax_guest", "figures", "instructions", "mutants", "suites"]),
];

/// Returns the path of the module in `file` from the root of its crate, or `None` for the root itself and for
/// programs in `bin`.
fn module_path(file: &Path) -> Option<Vec<String>> {
    let mut parts: Vec<String> =
        file.iter().skip(3).map(|part| part.to_string_lossy().into_owned()).collect();
    let last = parts.pop()?;
    let stem = last.strip_suffix(".rs")?;
    let is_root = parts.is_empty() && ["lib", "main"].contains(&stem);
    if is_root || parts.first().is_some_and(|first| first == "bin") {
        return None;
    }
    if stem != "mod" {
        parts.push(stem.to_owned());
    }
    Some(parts)
}

/// Returns the identifier at the start of a text, and the rest.
fn identifier(text: &str) -> (&str, &str) {
    text.split_at(text.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(text.len()))
}

/// Adds the paths of the `use` tree at the start of `text`, each with `prefix` in front.
fn expand(prefix: &[String], text: &str, paths: &mut Vec<Vec<String>>) {
    let Some(list) = text.strip_prefix('{') else {
        let (name, rest) = identifier(text);
        let path = [prefix, &[name.to_owned()]].concat();
        return match rest.strip_prefix("::") {
            Some(rest) => expand(&path, rest, paths),
            None => paths.push(path),
        };
    };
    let (mut depth, mut start) = (0, 0);
    for (at, character) in list.char_indices() {
        match character {
            ',' | '}' if depth == 0 => {
                expand(prefix, list[start..at].trim_start(), paths);
                start = at + 1;
                if character == '}' {
                    return;
                }
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// Returns the paths that a module names with `crate::` and `super::`, as paths from the root of its crate.
fn named_paths(module: &[String], code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':') {
            continue;
        }
        let (mut prefix, mut rest) = (module.to_vec(), &code[at..]);
        if let Some(after) = rest.strip_prefix("crate::") {
            (prefix, rest) = (Vec::new(), after);
        }
        while let Some(after) = rest.strip_prefix("super::") {
            prefix.pop();
            rest = after;
        }
        expand(&prefix, rest, &mut paths);
    }
    paths
}

/// The modules of a crate, their exports and their uses of each other.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<Vec<String>>,
    /// The key is the path of an exporting module, followed by an exported name. The value is the child
    /// module from which the exporting module takes the name.
    exports: BTreeMap<Vec<String>, String>,
    /// For each folder, the pairs of its modules in which the first module uses the second.
    uses: BTreeMap<Vec<String>, BTreeSet<(String, String)>>,
}

impl Crate {
    fn of(name: &str, sources: &[Source]) -> Crate {
        let dir = format!("crates/{name}/src");
        let mut found = Crate::default();
        let inside: Vec<(Vec<String>, String)> = sources
            .iter()
            .filter(|source| source.is_in(&dir) && !source.is_test())
            .map(|source| (module_path(&source.path), source))
            .filter(|(module, source)| module.is_some() || !source.is_in(&format!("{dir}/bin")))
            .map(|(module, source)| (module.unwrap_or_default(), source.code()))
            .collect();
        found.modules.extend(inside.iter().map(|(module, _)| module.clone()).filter(|path| !path.is_empty()));
        for (module, code) in &inside {
            found.add_exports(module, code);
        }
        for (module, code) in &inside {
            for path in named_paths(module, code) {
                found.add_use(module, &path);
            }
        }
        found
    }

    /// Adds the names that a module takes from its child modules, as in `pub use below::{A, B};`.
    fn add_exports(&mut self, module: &[String], code: &str) {
        for (at, word) in code.match_indices("use ") {
            let rest = code[at + word.len()..].trim_start_matches("self::");
            let (first, _) = identifier(rest);
            if !self.modules.contains(&[module, &[first.to_owned()]].concat()) {
                continue;
            }
            let mut paths = Vec::new();
            expand(&[], rest, &mut paths);
            for name in paths.iter().filter_map(|path| path.last()) {
                self.exports.insert([module, std::slice::from_ref(name)].concat(), first.to_owned());
            }
        }
    }

    fn add_use(&mut self, user: &[String], path: &[String]) {
        let common = user.iter().zip(path).take_while(|(a, b)| a == b).count();
        let (folder, Some(from), Some(name)) = (&user[..common], user.get(common), path.get(common)) else {
            return;
        };
        let place = [folder, std::slice::from_ref(name)].concat();
        let to = if self.modules.contains(&place) { Some(name) } else { self.exports.get(&place) };
        if let Some(to) = to.filter(|to| *to != from) {
            self.uses.entry(folder.to_vec()).or_default().insert((from.clone(), to.clone()));
        }
    }
}

/// True if a chain of uses leads from one module to another.
fn reaches(uses: &BTreeSet<(String, String)>, from: &str, to: &str) -> bool {
    let (mut waiting, mut seen) = (vec![from], BTreeSet::new());
    while let Some(at) = waiting.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            waiting.extend(uses.iter().filter(|(user, _)| user == at).map(|(_, used)| used.as_str()));
        }
    }
    false
}

#[test]
fn modules_use_only_modules_before_them() {
    let (sources, mut wrong) = (sources(), Vec::new());
    for (name, order) in ORDER {
        let found = Crate::of(name, &sources);
        let top: BTreeSet<&str> = found.modules.iter().map(|module| module[0].as_str()).collect();
        if top != order.iter().copied().collect() {
            wrong.push(format!("{name}: ORDER has {order:?}, the crate {top:?}"));
        }
        let place = |module: &str| order.iter().position(|other| *other == module);
        for (from, to) in found.uses.get(&Vec::new()).into_iter().flatten() {
            if place(to) >= place(from) {
                wrong.push(format!("{name}: {from} uses {to}"));
            }
        }
    }
    assert_none("modules that use modules after them", &wrong);
}

#[test]
fn modules_of_a_folder_do_not_use_each_other_in_cycles() {
    let (sources, mut wrong) = (sources(), Vec::new());
    for (name, _) in ORDER {
        let found = Crate::of(name, &sources);
        for (folder, uses) in found.uses.iter().filter(|(folder, _)| !folder.is_empty()) {
            let place = format!("{name}/{}", folder.join("/"));
            let circles = uses.iter().filter(|(from, to)| reaches(uses, to, from));
            wrong.extend(circles.map(|(from, to)| format!("{place}: {from} and {to}")));
        }
    }
    assert_none("cycles of modules", &wrong);
}
