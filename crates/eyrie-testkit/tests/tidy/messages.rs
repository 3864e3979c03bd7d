//! Compares the messages in `docs/troubleshooting.md` with those of the code.

use super::{Source, assert_none, read, root, sources};

const PAGE: &str = "docs/troubleshooting.md";
/// The files whose declared errors must all be on the page.
const ERRORS: [&str; 2] = ["crates/eyrie-engine/src/error.rs", "crates/eyrie-medium/src/fault.rs"];
/// The starts of statements in the engine that make the message of an error about a volume.
const MAKERS: [&str; 4] = ["Error::volume(", "host_error(", "failed(", "let what ="];

/// The starts of expressions in the command and in the library that have the reason of an error.
const REASONS: [&str; 7] = [
    "Failure::new(",
    "Failure::usage(",
    "Failure::not_found(",
    "Failure::of_errno(",
    "with_reason(",
    "let why =",
    "let reason =",
];
/// Parts of messages that are advice or explain themselves, and need no row.
const CLEAR: [&str; 18] = [
    "… needed: name a smaller directory, or use --volume",
    "…; copied so far: …",
    "…; loaded so far: …",
    "…: --keep-going goes on after it",
    "a run with --faults lists the failures",
    "add the name of the copy to the target",
    "choose a size of at most 1 GiB",
    "docs/rules.md lists them",
    "everything that the run made is removed",
    "failed to run",
    "name a file with -i, or read from a pipe",
    "name a file with -o, or write to a pipe",
    "name a script with --script",
    "the archive is written there: name a file with -o",
    "the script has none there; the report lists its points",
    "NOT CAUGHT IN TIME",
    "write USER, USER:GROUP, USER: or :GROUP",
    "write VOLUME:/path, such as …:/",
];

/// Returns the parts of a message around `…`, which stands for any text.
fn parts(message: &str) -> Vec<&str> {
    let parts = message.split('…').map(|part| part.trim_matches([' ', ':', ';', ',']));
    parts.filter(|part| !part.is_empty()).collect()
}

/// Returns the messages of the page: the first cells of its tables that are code.
fn messages(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}

/// Joins the lines of strings that go on after a backslash.
fn joined(code: &str) -> String {
    let mut lines = code.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |all, line| all + line.trim_start())
}

/// Returns the messages of `#[error(...)]`, with `…` in place of their arguments.
fn declared(code: &str) -> Vec<String> {
    let literal = |attribute: &str| {
        let text = attribute.trim_start().strip_prefix('"')?.split('"').next()?;
        let pieces: Vec<&str> = text.split(['{', '}']).step_by(2).collect();
        Some(pieces.join("…"))
    };
    code.split("#[error(").skip(1).filter_map(literal).filter(|text| !parts(text).is_empty()).collect()
}

/// Returns the messages that the statements with [`MAKERS`] have, with `…` in place of their arguments.
fn made(code: &str) -> Vec<String> {
    let literals = |statement: &str| -> Vec<String> {
        let mut found = Vec::new();
        for (index, part) in statement.split('"').enumerate() {
            if index % 2 == 1 {
                found.push(part.split(['{', '}']).step_by(2).collect::<Vec<_>>().join("…"));
            } else if part.contains(';') {
                break;
            }
        }
        found
    };
    let code = joined(code);
    let statements = MAKERS.iter().flat_map(|maker| code.split(*maker).skip(1));
    statements.flat_map(literals).filter(|text| !parts(text).is_empty()).collect()
}

/// Returns the strings in the expressions that start with one of [`REASONS`], with `…` in place of their
/// arguments. An expression ends with its parenthesis or its statement.
fn reasons(code: &str) -> Vec<String> {
    let code = joined(code);
    let mut found = Vec::new();
    for start in REASONS.iter().flat_map(|start| code.split(*start).skip(1)) {
        let mut depth = 0;
        for (index, part) in start.split('"').enumerate() {
            if index % 2 == 1 {
                found.push(part.split(['{', '}']).step_by(2).collect::<Vec<_>>().join("…"));
                continue;
            }
            let ends = part.chars().any(|letter| {
                depth += i32::from("([{".contains(letter)) - i32::from(")]}".contains(letter));
                depth < 0 || letter == ';'
            });
            if ends {
                break;
            }
        }
    }
    found
}

/// Returns true if the text needs no row: it is the action that failed ("cannot read"), has fewer than three
/// words, has advice (a command in backticks), or is in [`CLEAR`].
fn is_clear(text: &str) -> bool {
    let words = parts(text).iter().flat_map(|part| part.split(' ')).count();
    text.starts_with("cannot ") || words < 3 || text.contains('`') || CLEAR.contains(&text)
}

#[test]
fn reasons_of_the_command_and_the_library_are_on_the_page() {
    let page = read(root().join(PAGE));
    let messages = messages(&page);
    let of_users = |path: &&Source| path.is_in("crates/eyrie-cli/src") || path.is_in("crates/eyrie/src");
    let sources = sources();
    let found: Vec<String> =
        sources.iter().filter(of_users).flat_map(|source| reasons(&source.code())).collect();
    assert!(found.len() > 100, "{} reasons", found.len());
    let is_missing = |text: &&String| {
        !is_clear(text)
            && !messages.iter().any(|message| parts(message).iter().all(|part| text.contains(part)))
    };
    assert_none("reasons without a row", &found.iter().filter(is_missing).cloned().collect::<Vec<_>>());
    for clear in CLEAR {
        assert!(found.iter().any(|text| text == clear), "no code has the reason {clear:?}");
    }
}

#[test]
fn messages_of_the_page_are_in_the_code() {
    let codes: Vec<String> = sources().iter().map(|source| joined(&source.code())).collect();
    let page = read(root().join(PAGE));
    let messages = messages(&page);
    assert!(messages.len() > 60, "{} messages", messages.len());
    let unknown = messages.into_iter().filter(|message| {
        let parts = parts(message);
        !codes.iter().any(|code| parts.iter().all(|part| code.contains(part)))
    });
    assert_none("messages that no code has", &unknown.map(str::to_owned).collect::<Vec<_>>());
}

#[test]
fn errors_of_the_engine_are_on_the_page() {
    let page = read(root().join(PAGE));
    let messages = messages(&page);
    let declared: Vec<String> = ERRORS.iter().flat_map(|file| declared(&read(root().join(file)))).collect();
    assert!(declared.len() > 25, "{} errors", declared.len());
    let engine = sources().into_iter().filter(|source| source.is_in("crates/eyrie-engine/src"));
    let codes = engine.map(|source| source.code());
    let made: Vec<String> =
        codes.filter(|code| code.contains("Error::volume(")).flat_map(|code| made(&code)).collect();
    assert!(made.len() > 25, "{} errors of volumes", made.len());
    let is_missing = |text: &&String| {
        !messages.iter().any(|message| parts(message).iter().all(|part| text.contains(part)))
    };
    let missing: Vec<String> = declared.iter().chain(&made).filter(is_missing).cloned().collect();
    assert_none("errors without a row", &missing);
}

#[test]
fn an_ellipsis_stands_for_the_arguments_of_a_message() {
    let code =
        "#[error(\"at {addr} of {0}\")]\n#[error(\n  \"plain\"\n)]\n#[error(\"{0}\")]\n#[error(transparent)]";
    assert_eq!(declared(code), ["at … of …", "plain"]);
    let code =
        "let what = format!(\"{a}; b \\\n  c {d}\");\nf(\"no\"); host_error(p, \"it\", &e); g(\"no\");";
    assert_eq!(made(code), ["it", "…; b c …"]);
    let code = "x(Failure::new(\"a b c\", p(\"q\"), format!(\"d {e}\")), \"no\"); let why = \"f\"; \"no\"";
    assert_eq!(reasons(code), ["a b c", "q", "d …", "f"]);
    assert_eq!(parts("at … of …; run"), ["at", "of", "run"]);
    assert_eq!(messages("| message |\n| `one …` | `two` |\ntext\n"), ["one …"]);
    assert_eq!(joined("\"a \\\n    b\""), "\"a b\"");
}
