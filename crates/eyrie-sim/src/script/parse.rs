//! Parses scripts.

use super::arguments::CallArguments;
use super::call::USAGE;
use super::{Call, MAX_SCRIPT_BYTES, Script, ScriptLine};
use crate::word::{Problem, split};

/// Permission bits of a file if the script gives none.
const FILE_MODE: u16 = 0o644;
/// Permission bits of a directory if the script gives none.
const DIRECTORY_MODE: u16 = 0o755;

/// The reason why a text is not a script. The message is one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A word is not allowed, or the call `word` lacks an argument.
    #[error("{file}:{line}: {word}: expected {expected}")]
    Word {
        /// Name of the script.
        file: String,
        /// Line number, from 1.
        line: usize,
        /// The word, or its first 60 bytes and `...`, with `\xNN` for bytes that are not printable ASCII.
        word: String,
        /// A description of the allowed words.
        expected: String,
    },
    /// The script is too long.
    #[error("{file}: a script must have at most 64 MiB")]
    TooLong {
        /// Name of the script.
        file: String,
    },
}

impl Script {
    /// Parses a whole script. Error messages have `file` as the name of the script.
    ///
    /// # Errors
    /// Fails if the script is too long, or at the first word that is not allowed or is missing.
    pub fn parse(file: &str, text: &[u8]) -> Result<Script, ParseError> {
        if text.len() > MAX_SCRIPT_BYTES {
            return Err(ParseError::TooLong { file: file.to_owned() });
        }
        let mut lines = Vec::new();
        for (text, number) in text.split(|&byte| byte == b'\n').zip(1..) {
            let parsed = parse_line(text).map_err(|Problem { word, expected }| ParseError::Word {
                file: file.to_owned(),
                line: number,
                word,
                expected,
            })?;
            lines.extend(parsed.map(|call| ScriptLine { number, call }));
        }
        Ok(Script { lines })
    }
}

/// Parses a line. Returns `None` for a blank line or a comment.
fn parse_line(line: &[u8]) -> Result<Option<Call>, Problem> {
    let mut words = split(line)?.into_iter();
    let Some(name) = words.next() else { return Ok(None) };
    let known = USAGE.iter().find(|(known, _)| known.as_bytes() == name.value);
    let Some((known, arguments)) = known else {
        let names = USAGE.map(|(name, _)| name).join(", ");
        return Err(Problem::new(name.text, format!("a call: one of {names}")));
    };
    let usage = format!("{known} {arguments}").trim_end().to_owned();
    let mut arguments = CallArguments::new(name.text, usage, words);
    let call = parse_call(known, &mut arguments)?;
    arguments.end()?;
    Ok(Some(call))
}

/// Parses the arguments of the call `name`, which is one of [`USAGE`].
fn parse_call(name: &str, a: &mut CallArguments<'_>) -> Result<Call, Problem> {
    Ok(match name {
        "creat" => Call::Creat { path: a.path("PATH")?, mode: a.mode_or(FILE_MODE)? },
        "tmpfile" => Call::Tmpfile {
            dir: a.path("DIR")?,
            path: a.path("PATH")?,
            length: a.written()?,
            seed: a.number("SEED")?,
            mode: a.mode_or(FILE_MODE)?,
        },
        "mkdir" => Call::Mkdir { path: a.path("PATH")?, mode: a.mode_or(DIRECTORY_MODE)? },
        "write" => Call::Write {
            path: a.path("PATH")?,
            offset: a.number("OFFSET")?,
            length: a.written()?,
            seed: a.number("SEED")?,
        },
        "append" => Call::Append { path: a.path("PATH")?, length: a.written()?, seed: a.number("SEED")? },
        "read" => Call::Read { path: a.path("PATH")? },
        "fsync" => Call::Fsync { path: a.path("PATH")? },
        "fdatasync" => Call::Fdatasync { path: a.path("PATH")? },
        "rename" => Call::Rename { from: a.path("FROM")?, to: a.path("TO")?, mode: a.rename_mode()? },
        "link" => Call::Link { from: a.path("FROM")?, to: a.path("TO")? },
        "symlink" => Call::Symlink { target: a.path("TARGET")?, path: a.path("PATH")? },
        "unlink" => Call::Unlink { path: a.path("PATH")? },
        "rmdir" => Call::Rmdir { path: a.path("PATH")? },
        "truncate" => Call::Truncate { path: a.path("PATH")?, length: a.number("LENGTH")? },
        "fallocate" => Call::Fallocate {
            path: a.path("PATH")?,
            mode: a.fallocate_mode()?,
            offset: a.number("OFFSET")?,
            length: a.number("LENGTH")?,
        },
        "clone" => Call::Clone {
            from: a.path("FROM")?,
            from_offset: a.number("OFFSET")?,
            to: a.path("TO")?,
            to_offset: a.number("OFFSET")?,
            length: a.number("LENGTH")?,
        },
        "setxattr" => Call::Setxattr { path: a.path("PATH")?, name: a.name("NAME")?, value: a.bytes()? },
        "removexattr" => Call::Removexattr { path: a.path("PATH")?, name: a.name("NAME")? },
        "chmod" => Call::Chmod { path: a.path("PATH")?, mode: a.mode()? },
        "chown" => Call::Chown { path: a.path("PATH")?, uid: a.id("UID")?, gid: a.id("GID")? },
        "chattr" => Call::Chattr { path: a.path("PATH")?, flags: a.flags()? },
        "project" => Call::Project { path: a.path("PATH")?, project: a.number_of_32_bits("ID")? },
        "quota" => Call::Quota { account: a.account()?, limits: a.limits()? },
        "utimes" => {
            Call::Utimes { path: a.path("PATH")?, accessed: a.time("ATIME")?, modified: a.time("MTIME")? }
        }
        "put" => {
            Call::Put { dir: a.path("DIR")?, key: a.bytes()?, length: a.written()?, seed: a.number("SEED")? }
        }
        "erase" => Call::Erase { dir: a.path("DIR")?, key: a.bytes()? },
        "batch" => Call::Batch { dir: a.path("DIR")?, changes: a.changes()? },
        "sync" => Call::Sync,
        _ => unreachable!("every call of `USAGE` has an arm"),
    })
}
