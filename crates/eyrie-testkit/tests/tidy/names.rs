//! Checks that types that a reader could confuse have different names.

use std::collections::BTreeMap;

use super::{assert_none, sources};

/// Names that say little without context. Outside tests, each has at most one definition in the workspace,
/// public or not.
const ONE_MEANING: [&str; 12] = [
    "Call", "Change", "Entry", "Failure", "Found", "Part", "Place", "Shown", "Start", "State", "Step", "Walk",
];
/// Names that several crates export, with the reason.
const SHARED: [(&str, &str); 3] = [
    ("Error", "each library has its own, with the context of its layer"),
    ("Result", "a result with the error of its crate"),
    ("Volume", "the type of `eyrie` wraps the type of `eyrie-engine`"),
];

/// A definition of a type.
struct Definition {
    name: String,
    /// True if the type is `pub` and not part of a program. A program exports nothing.
    is_public: bool,
    place: String,
}

/// Returns the name of the type that a line of code defines at the top level of its file. The `bool` is true
/// if the type is public.
fn defined(line: &str) -> Option<(bool, &str)> {
    let (is_public, rest) = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (false, rest.split_once(") ")?.1),
        Some(rest) => (true, rest.trim_start()),
        None => (false, line),
    };
    let (kind, rest) = rest.strip_prefix("unsafe ").unwrap_or(rest).split_once(' ')?;
    let end = rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len());
    ["struct", "enum", "trait", "union", "type"].contains(&kind).then_some((is_public, &rest[..end]))
}

/// Returns all types of the workspace that are at the top level of a file, outside tests.
fn definitions() -> Vec<Definition> {
    let mut found = Vec::new();
    for source in sources() {
        let is_program = source.is_in("crates/eyrie-cli")
            || source.is_in("crates/xtask")
            || source.path.iter().any(|part| part == "bin" || part == "examples");
        for line in source.code().lines() {
            if let Some((is_public, name)) = defined(line) {
                let place = source.path.display().to_string();
                found.push(Definition { name: name.to_owned(), is_public: is_public && !is_program, place });
            }
        }
    }
    found
}

/// Returns a line for each name with more than one definition.
fn repeated(definitions: &[&Definition]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for definition in definitions {
        places.entry(&definition.name).or_default().push(&definition.place);
    }
    let wrong = places.into_iter().filter(|(_, places)| places.len() > 1);
    wrong.map(|(name, places)| format!("{name}, {} times: {}", places.len(), places.join(", "))).collect()
}

#[test]
fn names_that_say_little_have_one_definition() {
    let all = definitions();
    let listed = all.iter().filter(|definition| ONE_MEANING.contains(&definition.name.as_str()));
    assert_none("names with several meanings", &repeated(&listed.collect::<Vec<_>>()));
}

#[test]
fn public_types_have_names_of_their_own() {
    let all = definitions();
    let is_shared = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
    let public = all.iter().filter(|definition| definition.is_public && !is_shared(&definition.name));
    assert_none("public types that share a name", &repeated(&public.collect::<Vec<_>>()));
}
