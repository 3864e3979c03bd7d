//! Checks comments and pages: the first words of sentences, and the width of lines.

use std::path::Path;

use super::{assert_none, pages, sources};

/// Words that must not open a sentence, because they hide its subject.
const OPENINGS: [&str; 5] = ["What", "Who", "Whoever", "How", "Whether"];
/// Maximum number of columns of a line, equal to `max_width` of rustfmt.
const WIDTH: usize = 110;

/// A paragraph of prose, and the number of its first line.
#[derive(Default)]
struct Paragraph {
    line: usize,
    text: String,
}

/// Collects paragraphs.
#[derive(Default)]
struct Paragraphs {
    done: Vec<Paragraph>,
    open: Paragraph,
    is_code: bool,
}

impl Paragraphs {
    fn end(&mut self) {
        if !self.open.text.is_empty() {
            self.done.push(std::mem::take(&mut self.open));
        }
    }

    /// Adds a line of Markdown.
    fn add(&mut self, text: &str, line: usize) {
        let text = text.trim();
        if text.starts_with("```") {
            self.is_code = !self.is_code;
        }
        if self.is_code || text.is_empty() || text.starts_with("```") {
            return self.end();
        }
        if let Some(row) = text.strip_prefix('|') {
            self.end();
            let cells = row.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_owned());
            self.done.extend(cells.map(|text| Paragraph { line, text }));
            return;
        }
        let item = text.trim_start_matches(['#', '-', '*', '>', ' ']);
        let numbered = item.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let item = if numbered.len() < item.len() { numbered.trim_start_matches(". ") } else { item };
        if item.len() < text.len() {
            self.end();
        }
        if self.open.text.is_empty() {
            self.open.line = line;
        } else {
            self.open.text.push(' ');
        }
        self.open.text.push_str(item);
        if text.starts_with('#') {
            self.end();
        }
    }
}

fn paragraphs_of_page(text: &str) -> Vec<Paragraph> {
    let mut paragraphs = Paragraphs::default();
    text.lines().zip(1..).for_each(|(text, line)| paragraphs.add(text, line));
    paragraphs.end();
    paragraphs.done
}

/// Returns the kind of comment on a line, and its text. Two slashes inside a string do not start a comment.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let text = line.trim_start();
    for kind in ["///", "//!", "//"] {
        if let Some(comment) = text.strip_prefix(kind) {
            return Some((kind, comment));
        }
    }
    let (code, comment) = line.rsplit_once(" // ")?;
    (code.matches('"').count() % 2 == 0).then_some(("after code", comment))
}

fn paragraphs_of_source(text: &str) -> Vec<Paragraph> {
    let (mut paragraphs, mut last) = (Paragraphs::default(), "");
    for (text, line) in text.lines().zip(1..) {
        let (kind, comment) = comment(text).unwrap_or_default();
        if kind != last || kind == "after code" {
            paragraphs.end();
            paragraphs.is_code = false;
        }
        last = kind;
        paragraphs.add(comment, line);
    }
    paragraphs.end();
    paragraphs.done
}

/// Returns the words of [`OPENINGS`] that open a sentence of a paragraph.
fn bad_openings(text: &str) -> Vec<&str> {
    let mut starts = vec![0];
    let ends = text.match_indices(['.', '!', '?', ':']).map(|(at, _)| at + 1);
    starts.extend(ends.filter(|&end| text[end..].starts_with([' ', ')', '*', '_'])));
    let opening = |start: usize| {
        let sentence = text[start..].trim_start_matches([' ', ')', '(', '*', '_']);
        let (word, _) =
            sentence.split_at(sentence.find(|next: char| !next.is_alphanumeric()).unwrap_or(sentence.len()));
        OPENINGS.contains(&word).then_some(word)
    };
    starts.into_iter().filter_map(opening).collect()
}

#[test]
fn sentences_open_with_their_subject() {
    let mut found = Vec::new();
    let mut add = |path: &Path, paragraphs: Vec<Paragraph>| {
        for Paragraph { line, text } in paragraphs {
            let openings = bad_openings(&text);
            found.extend(openings.iter().map(|word| format!("{}:{line}: {word}", path.display())));
        }
    };
    for source in sources() {
        add(&source.path, paragraphs_of_source(&source.text));
    }
    for (path, text) in pages() {
        add(&path, paragraphs_of_page(&text));
    }
    assert_none("sentences that hide their subject", &found);
}

#[test]
fn lines_keep_to_the_width() {
    let mut found = Vec::new();
    let mut add = |path: &Path, line: usize, text: &str| {
        if text.chars().count() > WIDTH {
            found.push(format!("{}:{line}", path.display()));
        }
    };
    for source in sources() {
        for (text, line) in source.text.lines().zip(1..) {
            add(&source.path, line, text);
        }
    }
    for (path, text) in pages() {
        let mut is_code = false;
        for (text, line) in text.lines().zip(1..) {
            is_code ^= text.trim_start().starts_with("```");
            let is_free = is_code || text.trim_start().starts_with('|') || text.contains("](");
            add(&path, line, if is_free { "" } else { text });
        }
    }
    assert_none("long lines", &found);
}

#[test]
fn an_opening_is_found_wherever_a_sentence_begins() {
    let page = "# How it works\n\nText. Who reads\nthis?\n\n- Whether\n1. What\n\n| What | no What |\n\n\
                ```\nHow\n```\n\"What\"\n";
    let found: Vec<String> = paragraphs_of_page(page)
        .iter()
        .flat_map(|paragraph| bad_openings(&paragraph.text))
        .map(str::to_owned)
        .collect();
    assert_eq!(found, ["How", "Who", "Whether", "What", "What"]);
    let source = "/// Text.\n/// What\nlet a = 1; // How\n// Show this.\n";
    let found: Vec<usize> = paragraphs_of_source(source)
        .iter()
        .filter(|paragraph| !bad_openings(&paragraph.text).is_empty())
        .map(|paragraph| paragraph.line)
        .collect();
    assert_eq!(found, [1, 3]);
}
