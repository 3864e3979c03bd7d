//! Checks the public items of the library: their signatures, their examples, and the types that may grow.

use std::collections::BTreeSet;

use super::{Source, assert_none, read, root, sources};

const LIBRARY: &str = "crates/eyrie/src";
/// The crates whose types the library may show only if it exports them.
const LOWER: [&str; 4] = [
    "crates/eyrie-client/src",
    "crates/eyrie-engine/src",
    "crates/eyrie-medium/src",
    "crates/eyrie-service/src",
];

/// A public item of a source file: a type, a trait, a function, a constant, or one of these in a block.
struct Item {
    /// The file, for messages.
    place: String,
    name: String,
    /// The type or trait to which a method or constant belongs.
    owner: Option<String>,
    /// The declaration without the body of a function, on one line.
    signature: String,
    /// The comment of the item.
    docs: String,
    /// The attributes of the item.
    attributes: String,
}

impl Item {
    fn is_hidden(&self) -> bool {
        self.attributes.contains("#[doc(hidden)]")
    }

    fn is_type(&self) -> bool {
        ["pub struct ", "pub enum ", "pub trait "].iter().any(|start| self.signature.starts_with(start))
    }

    fn path(&self) -> String {
        let owner = self.owner.as_ref().map(|owner| format!("{owner}::")).unwrap_or_default();
        format!("{}: {owner}{}", self.place, self.name)
    }
}

/// Returns the words of a text that may be names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|next: char| !next.is_alphanumeric() && next != '_').filter(|word| !word.is_empty())
}

/// Returns the type of an `impl` block. `None` for an `impl` of a trait.
fn implemented(header: &str) -> Option<String> {
    let mut rest = header.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.find(|next| {
            depth += i32::from(next == '<') - i32::from(next == '>');
            depth == 0
        })?;
        rest = &rest[end + 1..];
    }
    (!header.contains(" for ")).then(|| words(rest).next().map(str::to_owned))?
}

/// Returns the name that a line declares after `pub`, or in a trait without `pub`.
fn declared(line: &str, is_in_trait: bool) -> Option<&str> {
    const KINDS: [&str; 7] = ["struct", "enum", "trait", "fn", "const", "type", "static"];
    let rest = if is_in_trait { line } else { line.strip_prefix("pub ")? };
    let mut parts = words(rest).skip_while(|word| ["const", "async", "unsafe"].contains(word)).peekable();
    let is_const = rest.starts_with("const ");
    match parts.next()? {
        kind if KINDS.contains(&kind) => parts.next(),
        name if is_const => Some(name),
        _ => None,
    }
}

/// Returns the declaration that begins with the first line: a function without its body, a constant without
/// its value, a structure with `..` for private fields, or an enum without the names of its variants.
fn signature(lines: &[&str]) -> String {
    let (is_struct, is_enum) = (lines[0].starts_with("pub struct "), lines[0].starts_with("pub enum "));
    let is_end = |&line: &&str| match is_struct || is_enum {
        true => line == "}" || line.ends_with(';'),
        false => line.ends_with(['{', ';', '}']),
    };
    let end = lines.iter().position(is_end).unwrap_or(0);
    let (first, rest) = (lines[0], lines.get(1..=end).unwrap_or_default());
    // The fields of a tuple are on one line with its name.
    let first = if is_struct && !first.contains("(pub ") {
        first.split('(').next().unwrap_or_default()
    } else {
        first
    };
    let rest = rest.iter().map(|line| line.trim_start()).filter(|line| !line.starts_with(['/', '#']));
    let shown = rest.filter_map(|line| match line.starts_with(|next: char| next.is_uppercase()) {
        true if is_enum => line.split_once(['(', '{']).map(|(_, fields)| fields),
        _ if is_struct && line != "}" && !line.starts_with("pub ") => Some(".."),
        _ => Some(line),
    });
    let whole = [first].into_iter().chain(shown).collect::<Vec<_>>().join(" ");
    whole.split(" = ").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the public items of a source file that rustfmt has formatted.
fn items(source: &Source) -> Vec<Item> {
    let code = source.text.split("\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().collect();
    let (mut found, mut docs, mut attributes) = (Vec::new(), String::new(), String::new());
    // The name of the block, and true for a trait.
    let mut block: Option<(String, bool)> = None;
    let is_hidden = |attributes: &str| attributes.contains("#[doc(hidden)]");
    for (at, &line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(comment) = text.strip_prefix("///") {
            docs += &format!("{comment}\n");
            continue;
        } else if text.starts_with("#[") {
            attributes += text;
            continue;
        } else if line == "}" {
            block = None;
        }
        let is_in_trait = block.as_ref().is_some_and(|(_, is_trait)| *is_trait);
        let signature = signature(&lines[at..]);
        let owner = block.as_ref().map(|(name, _)| name.clone());
        let is_member = indent == 4 && owner.is_some();
        if let Some(name) = declared(text, is_in_trait && is_member).filter(|_| indent == 0 || is_member) {
            found.push(Item {
                place: source.path.display().to_string(),
                name: name.to_owned(),
                owner: owner.filter(|_| is_member),
                signature: signature.clone(),
                docs: std::mem::take(&mut docs),
                attributes: std::mem::take(&mut attributes),
            });
        }
        if indent == 0 && line.starts_with("impl") {
            block = implemented(&signature).filter(|_| !is_hidden(&attributes)).map(|name| (name, false));
        } else if let Some(rest) = line.strip_prefix("pub trait ") {
            block = words(rest).next().map(|name| (name.to_owned(), true));
        }
        docs.clear();
        attributes.clear();
    }
    found
}

/// Returns the public items below `places`, without tests.
fn items_of(places: &[&str]) -> Vec<Item> {
    let sources = sources();
    let is_code = |source: &&Source| !source.is_test() && places.iter().any(|place| source.is_in(place));
    let sources: Vec<&Source> = sources.iter().filter(is_code).collect();
    // A private type may have public methods.
    let types: BTreeSet<&str> = sources
        .iter()
        .flat_map(|source| source.text.lines().map(str::trim_start))
        .filter_map(|line| line.strip_prefix("pub "))
        .filter_map(|line| words(line).nth(1))
        .collect();
    let is_public = |item: &Item| item.owner.as_ref().is_none_or(|owner| types.contains(&**owner));
    let items = sources.into_iter().flat_map(items);
    items.filter(|item| !item.is_hidden() && is_public(item)).collect()
}

/// Returns the names that the library exports from the crates below it. `with_hidden` adds those that the
/// documentation hides.
fn exports(with_hidden: bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources().iter().filter(|source| source.is_in(LIBRARY) && !source.is_test()) {
        let code = source.code();
        for part in code.split(';') {
            let Some((before, export)) = part.split_once("pub use eyrie_") else { continue };
            let is_hidden = before.rsplit("\n\n").next().is_some_and(|near| near.contains("#[doc(hidden)]"));
            if with_hidden || !is_hidden {
                // `Error as EngineError` adds both names. The source of the lower crate declares the type
                // under the first one.
                let is_item = |word: &&str| word.starts_with(|next: char| next.is_uppercase());
                names.extend(words(export).filter(is_item).map(str::to_owned));
            }
        }
    }
    names
}

/// Returns the items that a user of the library meets: those of the library, and those of the types that it
/// exports.
fn shown() -> Vec<Item> {
    let exports = exports(false);
    let is_exported = |item: &Item| exports.contains(item.owner.as_ref().unwrap_or(&item.name));
    let lower = items_of(&LOWER).into_iter().filter(is_exported);
    items_of(&[LIBRARY]).into_iter().chain(lower).collect()
}

/// If this test passes, a new version of a lower crate changes no signature of the library, except through
/// the exported types.
#[test]
fn library_shows_no_type_that_it_does_not_export() {
    let exports = exports(true);
    let own: BTreeSet<String> = items_of(&[LIBRARY]).into_iter().map(|item| item.name).collect();
    let lower = items_of(&LOWER).into_iter().filter(|item| item.owner.is_none());
    let private: BTreeSet<String> = lower
        .filter(|item| item.is_type() || item.signature.starts_with("pub type "))
        .map(|item| item.name)
        .filter(|name| !exports.contains(name) && !own.contains(name))
        .collect();
    assert!(private.contains("Op") && exports.contains("Engine"), "the sources are read");
    let wrong: Vec<String> = shown()
        .iter()
        .flat_map(|item| {
            let used = words(&item.signature).filter(|word| private.contains(*word));
            used.map(|word| format!("{} shows {word}", item.path())).collect::<Vec<_>>()
        })
        .collect();
    assert_none("types that users cannot name", &wrong);
}

/// Returns the code of the examples in a comment.
fn example(docs: &str) -> String {
    docs.split("```").skip(1).step_by(2).collect()
}

/// An item has an example in its own comment, or an example of another item uses it. For a method, this other
/// example belongs to the same type, or names the type.
#[test]
fn every_item_of_the_library_has_an_example() {
    let shown = shown();
    // The type of each item, and the words of its example.
    let examples: Vec<(&String, BTreeSet<String>)> = shown
        .iter()
        .map(|item| {
            let words = words(&example(&item.docs)).map(str::to_owned).collect();
            (item.owner.as_ref().unwrap_or(&item.name), words)
        })
        .collect();
    let has_example = |item: &&Item| {
        examples.iter().any(|(of, words)| {
            let is_near = item.owner.as_ref().is_none_or(|owner| *of == owner || words.contains(owner));
            is_near && words.contains(&item.name)
        })
    };
    let without: Vec<String> = shown
        .iter()
        .filter(|item| example(&item.docs).is_empty() && !has_example(item))
        .map(Item::path)
        .collect();
    assert_none("items without an example", &without);
}

/// The types of the library that users may match exhaustively, or make by naming all fields. The design notes
/// have the reasons.
const COMPLETE: [&str; 20] = [
    "AclKind",
    "FallocateMode",
    "Kind",
    "ListEntry",
    "LockKind",
    "Outcome",
    "PathAt",
    "QuotaId",
    "QuotaKind",
    "QuotaLimit",
    "QuotaLimits",
    "RangeOwner",
    "RenameMode",
    "SetTime",
    "Sticky",
    "Target",
    "Time",
    "WalkStep",
    "Whence",
    "XattrMode",
];

/// A type that may grow is `#[non_exhaustive]`, so a new field or variant is no incompatible change.
#[test]
fn types_that_may_grow_are_not_exhaustive() {
    let is_open = |item: &Item| {
        item.signature.contains("enum ") || item.signature.contains(" pub ") && !item.signature.contains("..")
    };
    let is_exhaustive =
        |item: &&Item| item.is_type() && is_open(item) && !item.attributes.contains("#[non_exhaustive]");
    let found: BTreeSet<String> =
        shown().iter().filter(is_exhaustive).map(|item| item.name.clone()).collect();
    assert_eq!(found, COMPLETE.map(str::to_owned).into());
    let reasons = read(root().join("docs/design/0018-front-door.md"));
    let silent: Vec<String> =
        found.into_iter().filter(|name| !reasons.contains(&format!("`{name}`"))).collect();
    assert_none("exhaustive types without a reason", &silent);
}

/// Crates below the library have types without `Debug`, which the library must not export.
#[test]
fn every_type_of_the_library_can_be_printed() {
    let sources = sources();
    let is_printed = |item: &Item| {
        let word = format!(" Debug for {}", item.name);
        let path = format!("::Debug for {}", item.name);
        let is_named = |text: &str| text.contains(&word) || text.contains(&path);
        item.attributes.contains("Debug") || sources.iter().any(|source| is_named(&source.text))
    };
    let is_data = |item: &&Item| item.is_type() && !item.signature.starts_with("pub trait ");
    let missing: Vec<String> =
        shown().iter().filter(is_data).filter(|item| !is_printed(item)).map(Item::path).collect();
    assert_none("types without Debug", &missing);
}
