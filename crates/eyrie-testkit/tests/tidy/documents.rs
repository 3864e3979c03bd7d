//! Checks that the tests, rules and places that documents name exist, and that each promise of
//! `docs/semantics.md` names a test.

use std::collections::BTreeSet;
use std::path::Path;

use eyrie_medium::rules::{On, RuleEntry, SafetyRule};

use super::{assert_none, documents, read, root, sources};

/// Returns the names of all tests: the functions after `#[test]`.
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

/// Returns the names in backticks that look like names of tests: at least four words.
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

/// Returns the labels and targets of the links of a page.
fn links(text: &str) -> Vec<(&str, &str)> {
    let link = |(middle, _): (usize, &str)| {
        let start = text[..middle].rfind('[')? + 1;
        let end = middle + text[middle..].find(')')?;
        Some((&text[start..middle], &text[middle + 2..end]))
    };
    text.match_indices("](").filter_map(link).collect()
}

/// Returns the anchors of a page: its headings in lower case, without marks, and with `-` for blanks.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let is_kept = |next: &char| next.is_alphanumeric() || [' ', '-', '_'].contains(next);
        found.insert(
            heading.chars().filter(is_kept).map(|next| if next == ' ' { '-' } else { next }).collect(),
        );
    }
    found
}

/// True if `path` is a page without the anchor `anchor`.
fn lacks_anchor(path: &Path, anchor: Option<&str>) -> bool {
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    anchor.is_some_and(|anchor| is_page && !anchors(&read(path)).contains(anchor))
}

/// True if the source file `path` is the module `name`, or declares an item of this name.
fn declares(path: &Path, name: &str) -> bool {
    const WORDS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "type", "mod"];
    let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    let text = read(path);
    let is_declared = |word: &&str| {
        let declaration = format!("{word} {name}");
        text.match_indices(&declaration).any(|(at, _)| is_end(&text[at + declaration.len()..]))
    };
    path.file_stem().is_some_and(|stem| stem == name)
        || path.ends_with(format!("{name}/mod.rs"))
        || WORDS.iter().any(is_declared)
}

#[test]
fn documents_link_to_places_that_exist() {
    let mut missing = Vec::new();
    for (page, text) in documents() {
        for (label, target) in links(&text).into_iter().filter(|(_, target)| !target.starts_with("http")) {
            let place = target.split('#').next().unwrap_or_default();
            let path = if place.is_empty() { page.clone() } else { page.with_file_name(place) };
            let path = root().join(path);
            if !path.exists() || lacks_anchor(&path, target.split_once('#').map(|(_, anchor)| anchor)) {
                missing.push(format!("{}: {target}", page.display()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let names = label.split('`').skip(1).step_by(2);
                let names = names.filter_map(|name| name.rsplit("::").next());
                let unknown = names.filter(|name| !declares(&path, name));
                missing.extend(unknown.map(|name| format!("{}: {name} in {target}", page.display())));
            }
        }
    }
    assert_none("links to nothing", &missing);
}

#[test]
fn anchors_are_those_of_headings() {
    let page = "# A tiny `volume`, 1\n```sh\n# no\n```\n### A-b_c\ntext\n";
    assert_eq!(Vec::from_iter(anchors(page)), ["a-b_c", "a-tiny-volume-1"]);
}

/// The catalogue and its document must agree. The code must name each rule exactly once, in the file that the
/// catalogue names.
#[test]
fn every_rule_is_described_and_has_one_mutant() {
    let text = read(root().join("docs/rules.md"));
    let mut rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let (catalogue, mut wrong) = ("crates/eyrie-medium/src/rules", Vec::new());
    let sources: Vec<(String, String)> = sources()
        .iter()
        .filter(|source| !source.is_in(catalogue))
        .map(|source| (source.path.display().to_string(), source.code()))
        .collect();
    for &rule in SafetyRule::ALL {
        let RuleEntry { id, sentence, place, mutant, .. } = rule.entry();
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
            wrong.push(format!("{word} is named in {sites:?}, not once in its file"));
        }
    }
    wrong.extend(rows.iter().map(|row| format!("no such rule: {row}")));
    assert_none("rules", &wrong);
}

#[test]
fn pages_state_the_number_of_rules() {
    let count = |is_counted: fn(On) -> bool| {
        SafetyRule::ALL.iter().filter(|rule| is_counted(rule.entry().on)).count()
    };
    let threads = count(|on| [On::Scheduler, On::ServiceScheduler].contains(&on));
    let processes = count(|on| [On::Services, On::Sessions].contains(&on));
    let explored = SafetyRule::ALL.len() - threads - processes;
    let stated = [
        ("README.md", format!("The explorer notices each of {explored} mutants")),
        ("CHANGELOG.md", format!("a catalogue of {} rules of crash safety", SafetyRule::ALL.len())),
        (
            "CHANGELOG.md",
            format!(
                "`cargo xtask mutants` must notice {explored} of the mutants, tests under a scheduler of \
                 threads {threads}, and tests of served volumes {processes}."
            ),
        ),
    ];
    let is_missing = |(page, sentence): &(&str, String)| {
        let words: Vec<String> = read(root().join(page)).split_whitespace().map(str::to_owned).collect();
        !words.join(" ").contains(sentence.as_str())
    };
    let wrong: Vec<String> =
        stated.into_iter().filter(is_missing).map(|(page, sentence)| format!("{page}: {sentence}")).collect();
    assert_none("numbers of rules", &wrong);
}

/// Returns the names of the calls that stand in backticks, without their traits.
fn calls_in(text: &str) -> BTreeSet<String> {
    let names = text.split('`').skip(1).step_by(2).filter_map(|name| name.rsplit("::").next());
    names.map(str::to_owned).collect()
}

/// Returns the calls in the first cells of the first table that follows `sentence`.
fn calls_in_table(page: &str, sentence: &str) -> BTreeSet<String> {
    let text = read(root().join(page));
    let (_, text) = text.split_once(sentence).unwrap_or_else(|| panic!("{page}: {sentence}"));
    let rows =
        text.lines().skip_while(|line| !line.starts_with("| ")).take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| calls_in(row.split('|').nth(1).unwrap_or_default())).collect()
}

#[test]
fn pages_name_the_same_calls_of_several_steps() {
    let calls = calls_in_table("docs/semantics.md", "The calls in this table have several steps.");
    assert_eq!(calls.len(), 7, "{calls:?}");
    assert_eq!(calls_in_table("docs/api.md", "The calls in the table have several steps"), calls);
    let readme = read(root().join("README.md"));
    let (_, limit) = readme.split_once("Some calls have several steps").expect("the limit");
    assert_eq!(calls_in(limit.split(". ").next().unwrap_or_default()), calls, "README.md");
    let library: Vec<_> =
        sources().into_iter().filter(|source| source.is_in("crates/eyrie/src/posix")).collect();
    let says_so = |call: &&String| {
        library.iter().any(|source| {
            let declared = source.text.split_once(&format!("    fn {call}("));
            let comment = declared.and_then(|(before, _)| before.rsplit("\n\n").next());
            comment.is_some_and(|comment| comment.contains(" step"))
        })
    };
    let silent: Vec<String> = calls.iter().filter(|call| !says_so(call)).cloned().collect();
    assert_none("calls whose comments do not name their steps", &silent);
}

/// Returns the promises of a page: its paragraphs and the rows of its tables. Headings are left out.
fn promises(text: &str) -> Vec<&str> {
    let mut promises = Vec::new();
    for block in
        text.split("\n\n").map(str::trim).filter(|block| !block.is_empty() && !block.starts_with('#'))
    {
        if block.starts_with('|') {
            promises.extend(block.lines().skip(2));
        } else {
            promises.push(block);
        }
    }
    promises
}

#[test]
fn every_promise_of_the_semantics_names_its_test() {
    let text = read(root().join("docs/semantics.md"));
    // The part before the first section is left out, because it explains the tables.
    let (_, reference) = text.split_once("\n## ").expect("a section");
    let promises = promises(reference.split_once("\n\n").expect("a paragraph").1);
    assert!(promises.len() > 100, "{} promises", promises.len());
    let without: Vec<String> = promises
        .into_iter()
        .filter(|promise| test_names(promise).is_empty())
        .map(|promise| promise.lines().next().unwrap_or_default().to_owned())
        .collect();
    assert_none("promises without a test", &without);
}
