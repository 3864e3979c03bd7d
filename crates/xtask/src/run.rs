//! Running programs and touching files, with errors that say what was tried.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs a program to its end and gives what it printed; what it complains of is shown.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes a directory and those above it; its path from the root, for programs that run elsewhere.
pub fn directory(path: &Path) -> Result<PathBuf> {
    let made = fs::create_dir_all(path).and_then(|()| path.canonicalize());
    made.map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Copies a file, making the directories above it.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    to.parent().map(directory).transpose()?;
    fs::copy(from, to).map_err(|error| format!("copying {} to {}: {error}", from.display(), to.display()))?;
    Ok(())
}
