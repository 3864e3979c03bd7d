//! Scripts: lists of calls as plain text, with at most one call on each line.
//!
//! [`Script::parse`] reads a script and checks all of it. [`Script::run`] makes its calls on a
//! [`ScriptTarget`]: the files of a volume, or of the host. [`CallGenerator`] draws calls from a seed, and
//! [`bytes`] makes the bytes that calls write. `docs/scripts.md` describes the format.
//!
//! ```
//! use eyrie_sim::script::Script;
//! # use eyrie::{Credentials, Volume};
//! # let place = std::env::temp_dir().join(format!("eyrie-sim-doc-{}", std::process::id()));
//! # let volume = Volume::create(&place, 64 << 20)?;
//! let script = Script::parse("example", b"mkdir /a\ncreat /a/b 0600\nunlink /b # there is none\n")?;
//! let files = volume.files(Credentials::of_process());
//! let done: Vec<String> = script.run(&files).map(|done| done.to_string()).collect();
//! assert_eq!(done[1], "2 creat /a/b 0600 = 0");
//! assert_eq!(done[2], "3 unlink /b = ENOENT (No such file or directory)");
//! # drop(files);
//! # volume.close()?;
//! # std::fs::remove_dir_all(place)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arguments;
pub mod bytes;
mod call;
mod generate;
mod parse;
mod run;

pub use call::{Call, KeyChange};
pub use generate::{CallGenerator, CallMix};
pub use parse::ParseError;
pub use run::{CallOutcome, ScriptTarget, perform};

use std::fmt;

/// Maximum number of bytes of one write, append or value.
pub const MAX_WRITTEN_BYTES: u64 = 1 << 30;
/// Maximum length of a script, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 64 << 20;

/// A call and its line number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptLine {
    /// Line number, from 1.
    pub number: usize,
    /// The call.
    pub call: Call,
}

/// A list of calls. `Display` gives its lines without comments and blank lines.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Script {
    lines: Vec<ScriptLine>,
}

impl Script {
    /// Returns the lines of the script.
    pub fn lines(&self) -> &[ScriptLine] {
        &self.lines
    }
}

/// Puts each call on a line of its own, from line 1 on.
impl FromIterator<Call> for Script {
    fn from_iter<I: IntoIterator<Item = Call>>(calls: I) -> Script {
        let lines = calls.into_iter().zip(1..).map(|(call, number)| ScriptLine { number, call });
        Script { lines: lines.collect() }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{}", line.call))
    }
}

#[cfg(test)]
mod tests;
