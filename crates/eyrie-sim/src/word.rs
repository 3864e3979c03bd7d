//! The words of a line of text, which are not the words of memory. A word of letters, digits and `/._-+,@%`
//! is printed bare. Any other word is printed in double quotes, with the escapes `\"`, `\\`, `\n`, `\t` and
//! `\xNN`.
//!
//! Shell quoting is not used, because it leaves a newline in a name as it is, and the newline would split the
//! line.

use std::fmt;

/// Bytes that are printed as one word of a line. The word is ASCII, and has a blank only inside quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word<'a>(pub &'a [u8]);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bare) = bare(self.0) {
            return f.write_str(bare);
        }
        f.write_str("\"")?;
        for &byte in self.0 {
            match byte {
                b'"' => f.write_str("\\\"")?,
                b'\\' => f.write_str("\\\\")?,
                b'\n' => f.write_str("\\n")?,
                b'\t' => f.write_str("\\t")?,
                b' '..=b'~' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str("\"")
    }
}

/// Returns the word as text, or `None` if it needs quotes.
fn bare(word: &[u8]) -> Option<&str> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,@%".contains(byte);
    let text = std::str::from_utf8(word).ok()?;
    (!word.is_empty() && word.iter().all(is_plain)).then_some(text)
}

/// A word that was read from a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token<'a> {
    /// The word as written.
    pub(crate) text: &'a [u8],
    /// The bytes that the word stands for.
    pub(crate) value: Vec<u8>,
}

/// A word that is not allowed, and a description of the allowed words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) word: String,
    pub(crate) expected: String,
}

impl Problem {
    pub(crate) fn new(word: &[u8], expected: impl Into<String>) -> Problem {
        Problem { word: escaped(word), expected: expected.into() }
    }
}

/// Maximum number of bytes of a word in an error message.
const MAX_ESCAPED: usize = 60;

/// Returns the start of the word for a message, with `\xNN` for bytes that are not printable ASCII.
fn escaped(word: &[u8]) -> String {
    let (word, end) = match word.len() {
        0..=MAX_ESCAPED => (word, ""),
        _ => (&word[..MAX_ESCAPED], "..."),
    };
    let mut out = String::new();
    for &byte in word {
        match byte {
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out + end
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Splits a line into words. A comment ends the line.
///
/// # Errors
/// Fails if a word is invalid, for example if its quote is not closed.
pub(crate) fn split(line: &[u8]) -> Result<Vec<Token<'_>>, Problem> {
    let mut tokens = Vec::new();
    let mut rest = line;
    loop {
        let start = rest.iter().position(|&byte| !is_blank(byte)).unwrap_or(rest.len());
        rest = &rest[start..];
        let token = match rest.first() {
            None | Some(b'#') => return Ok(tokens),
            Some(b'"') => quoted(rest)?,
            Some(_) => plain(rest)?,
        };
        rest = &rest[token.text.len()..];
        tokens.push(token);
    }
}

/// The message for a bare word with a byte that only a quoted word can have.
const QUOTED: &str = "double quotes, as in \"a b\": a word without them cannot have a quote, a backslash or \
                      a control character";

/// Reads the bare word at the start of `rest`.
fn plain(rest: &[u8]) -> Result<Token<'_>, Problem> {
    let end = rest.iter().position(|&byte| is_blank(byte)).unwrap_or(rest.len());
    let text = &rest[..end];
    match text.iter().find(|byte| byte.is_ascii_control() || b"\"'\\".contains(byte)) {
        Some(_) => Err(Problem::new(text, QUOTED)),
        None => Ok(Token { text, value: text.to_vec() }),
    }
}

/// Reads the quoted word at the start of `rest`.
fn quoted(rest: &[u8]) -> Result<Token<'_>, Problem> {
    let mut value = Vec::new();
    let mut at = 1;
    loop {
        match rest.get(at) {
            None => return Err(Problem::new(rest, "a closing double quote")),
            Some(b'"') => break,
            Some(b'\\') => {
                let (byte, length) = escape(&rest[at + 1..])?;
                value.push(byte);
                at += 1 + length;
            }
            Some(&byte) => {
                value.push(byte);
                at += 1;
            }
        }
    }
    let (text, after) = rest.split_at(at + 1);
    match after.first() {
        Some(&byte) if !is_blank(byte) => Err(Problem::new(rest, "a blank after the closing double quote")),
        _ => Ok(Token { text, value }),
    }
}

/// Returns the byte that an escape stands for, and the number of bytes of the escape after its backslash.
fn escape(after: &[u8]) -> Result<(u8, usize), Problem> {
    let digit = |at: usize| after.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let byte = match after.first() {
        Some(b'\\') => b'\\',
        Some(b'"') => b'"',
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b'x') => match (digit(1), digit(2)) {
            (Some(high), Some(low)) => return Ok(((high << 4 | low) as u8, 3)),
            _ => {
                return Err(Problem::new(
                    &[b"\\", first(after, 3)].concat(),
                    "two hexadecimal digits after \\x",
                ));
            }
        },
        _ => {
            let expected = "one of the escapes \\\\, \\\", \\n, \\t and \\xNN";
            return Err(Problem::new(&[b"\\", first(after, 1)].concat(), expected));
        }
    };
    Ok((byte, 1))
}

fn first(bytes: &[u8], count: usize) -> &[u8] {
    &bytes[..count.min(bytes.len())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_of_any_bytes_are_read_back(words in prop::collection::vec(any::<Vec<u8>>(), 0..5)) {
            let line: String = words.iter().map(|word| format!("{} ", Word(word))).collect();
            prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", line);
            let read: Vec<Vec<u8>> =
                split(line.as_bytes()).unwrap().into_iter().map(|token| token.value).collect();
            prop_assert_eq!(read, words);
        }
    }

    #[test]
    fn words_are_as_plain_as_they_can_be() {
        for (word, text) in [
            (&b"/a/b-c_d.e"[..], "/a/b-c_d.e"),
            (b"", "\"\""),
            (b"a b", "\"a b\""),
            (b"#1", "\"#1\""),
            (b"it's", "\"it's\""),
            (b"\"\\\n\t", "\"\\\"\\\\\\n\\t\""),
            ("\u{e9}\0".as_bytes(), "\"\\xc3\\xa9\\x00\""),
            (b"user.a=b", "\"user.a=b\""),
        ] {
            assert_eq!(Word(word).to_string(), text);
        }
    }

    #[test]
    fn a_comment_begins_only_at_the_start_of_a_word() {
        let words = |line: &'static str| -> Vec<Vec<u8>> {
            split(line.as_bytes()).unwrap().into_iter().map(|token| token.value).collect()
        };
        assert_eq!(words("  a#b \t c # d \" e"), [&b"a#b"[..], b"c"]);
        assert_eq!(words("#"), [] as [Vec<u8>; 0]);
        assert_eq!(words("\"#\" \u{e9}"), [&b"#"[..], "\u{e9}".as_bytes()]);
    }
}
