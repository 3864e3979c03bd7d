//! Input of commands: values and scripts, from an argument, a file or standard input.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use eyrie_sim::script::{MAX_SCRIPT_BYTES, Script};

use crate::failure::{Doing, Failure, Result};
use crate::text;

/// The name of standard input in messages.
pub const STANDARD_INPUT: &str = "standard input";

/// Returns the file that an argument names. A missing argument and `-` stand for a standard stream, so the
/// result for them is `None`.
pub fn named_file(argument: Option<PathBuf>) -> Option<PathBuf> {
    argument.filter(|file| file.as_os_str() != "-")
}

/// Returns the bytes of an argument. Without an argument, or with `-`, reads the bytes from standard input,
/// but at most one byte more than `max_bytes`. This byte shows that the value is too long.
///
/// # Errors
/// Fails if standard input cannot be read.
pub fn value(argument: Option<OsString>, max_bytes: usize) -> Result<Vec<u8>> {
    match argument {
        Some(argument) if argument != "-" => Ok(argument.into_vec()),
        _ => read_value(io::stdin().lock(), max_bytes).doing("read", STANDARD_INPUT),
    }
}

fn read_value(input: impl Read, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    input.take(max_bytes as u64 + 1).read_to_end(&mut value)?;
    Ok(value)
}

/// Reads the script in the file `path` (`-` is standard input). Also returns its name for messages.
///
/// # Errors
/// Fails if the file cannot be read. Fails with exit status 2 if the text is not a script.
pub fn script(path: &Path) -> Result<(String, Script)> {
    let (name, text) = script_text(path)?;
    let script = Script::parse(&name, &text).map_err(|error| Failure::of_text(error).with_status(2))?;
    Ok((name, script))
}

/// Returns the name of a script for messages, and its bytes. Reads at most one byte more than a script may
/// have. This byte shows that the script is too long.
fn script_text(path: &Path) -> Result<(String, Vec<u8>)> {
    let most = MAX_SCRIPT_BYTES as u64 + 1;
    let mut script = Vec::new();
    if path == Path::new("-") {
        let name = STANDARD_INPUT.to_owned();
        io::stdin().lock().take(most).read_to_end(&mut script).doing("read", &name)?;
        return Ok((name, script));
    }
    let name = text::path(path);
    let file = File::open(path).doing("read the script", &name)?;
    file.take(most).read_to_end(&mut script).doing("read the script", &name)?;
    Ok((name, script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_endless_value_ends_after_its_limit() {
        assert_eq!(read_value(io::repeat(7), 10).unwrap(), [7; 11]);
        assert_eq!(read_value(&b"short"[..], 10).unwrap(), b"short");
    }
}
