//! Compares the messages in `docs/troubleshooting.md` with those of the code.

use super::{assert_none, read, root, sources};

const PAGE: &str = "docs/troubleshooting.md";
/// The files whose errors the page must all have.
const ERRORS: [&str; 2] = ["crates/eyrie-engine/src/error.rs", "crates/eyrie-medium/src/fault.rs"];

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
    let is_missing = |text: &&String| {
        !messages.iter().any(|message| parts(message).iter().all(|part| text.contains(part)))
    };
    let missing: Vec<String> = declared.iter().filter(is_missing).cloned().collect();
    assert_none("errors without a row", &missing);
}

#[test]
fn an_ellipsis_stands_for_the_arguments_of_a_message() {
    let code =
        "#[error(\"at {addr} of {0}\")]\n#[error(\n  \"plain\"\n)]\n#[error(\"{0}\")]\n#[error(transparent)]";
    assert_eq!(declared(code), ["at … of …", "plain"]);
    assert_eq!(parts("at … of …; run"), ["at", "of", "run"]);
    assert_eq!(messages("| message |\n| `one …` | `two` |\ntext\n"), ["one …"]);
    assert_eq!(joined("\"a \\\n    b\""), "\"a b\"");
}
