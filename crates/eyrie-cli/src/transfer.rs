//! Checks and summaries for the transfer of a whole tree by `import`, `export`, `dump` and `load`. The checks
//! come before the transfer, and the summary comes after it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use eyrie::{Errno, Files, Posix, PosixExt, Target};

use crate::copy::Tally;
use crate::failure::{Doing, Failure, Result, require_complete};
use crate::output::Output;
use crate::place::{Inside, storage};
use crate::text;

/// Maximum number of symbolic links that [`refuse_own_storage`] follows, as in the calls of Linux.
const LINKS_MAX: usize = 40;

/// Fails if `path`, or the file to which it leads, is the device of the volume or lies in its host directory.
/// A copy or an archive must not overwrite these files, an import must not read them, and a mount must not
/// hide them. `path` must be absolute.
///
/// # Errors
/// The message begins with `what`, such as "cannot export to".
pub fn refuse_own_storage(volume: &Path, path: &Path, what: &str) -> Result<()> {
    let Ok(volume) = volume.canonicalize().map(|real| storage(&real)) else { return Ok(()) };
    let is_inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&volume));
    let mut place = path.to_owned();
    // The file need not exist, so each link is followed by itself, and the directory of each is checked.
    for _ in 0..=LINKS_MAX {
        let Some(parent) = place.parent() else { break };
        if is_inside(parent) || is_inside(&place) {
            let why = "this is the volume's own storage: choose another place";
            return Err(Failure::new(what, text::path(path), why));
        }
        let Ok(target) = place.read_link() else { break };
        place = parent.join(target);
    }
    Ok(())
}

/// Returns the path of the directory `inside`, without symbolic links, because a walk does not follow a link
/// at its root. Fails unless `inside` is a directory, because `export` and `dump` take only directories.
///
/// # Errors
/// The message has `what`, the name of the command.
pub fn require_directory(files: &Files, inside: &Inside, what: &str) -> Result<PathBuf> {
    if files.stat((&inside.path).into()).doing(what, inside)?.is_dir() {
        return files.canonicalize(&inside.path).doing(what, inside);
    }
    let why = "not a directory: copy files with `eyrie cp`";
    Err(Failure::new(format_args!("cannot {what}"), inside, why))
}

/// Fails if anything exists at `path`, because the new tree gets this path.
///
/// # Errors
/// The message has `what`, such as "import into", and the place `shown`.
pub fn refuse_existing(fs: &impl Posix, path: &Path, what: &str, shown: &str) -> Result<()> {
    match fs.stat(Target::NoFollow(path.into())) {
        Err(error) if error.errno() == Errno::NOENT => Ok(()),
        Err(error) => Err(error).doing(what, shown),
        Ok(_) => {
            let why = "it exists already: give a new name, such as ";
            let base = shown.trim_end_matches('/');
            Err(Failure::new(format_args!("cannot {what}"), shown, format_args!("{why}{base}/new")))
        }
    }
}

/// Fails if the stream of an archive is a terminal, because an archive is not text.
///
/// # Errors
/// The failure has exit status 2, and its message has `why`.
pub fn refuse_terminal(is_terminal: bool, stream: &str, why: &str) -> Result<()> {
    if is_terminal { Err(Failure::usage("not with a terminal", stream, why)) } else { Ok(()) }
}

/// The report at the end of a transfer.
pub struct Summary {
    /// The past tense of the command, such as "imported".
    pub verb: &'static str,
    /// True to print JSON.
    pub json: bool,
    /// True to print nothing, unless an entry could not be copied.
    pub quiet: bool,
    /// True to print the text to standard error, because standard output has the archive or the paths.
    pub to_stderr: bool,
    /// The time when the transfer began.
    pub started: Instant,
}

impl Summary {
    /// Prints the counts.
    ///
    /// # Errors
    /// Fails if an entry could not be copied, or if standard output cannot be written.
    pub fn print(&self, tally: &Tally, shown: &str, output: &mut Output) -> Result<()> {
        let seconds = self.started.elapsed().as_secs_f64();
        if self.json {
            let mut value = tally.json();
            value["seconds"] = serde_json::json!(seconds);
            output.json(&value)?;
        } else if self.quiet {
            // A failure is still reported below.
        } else if self.to_stderr {
            let _ = writeln!(std::io::stderr(), "{} {} in {seconds:.1} s", self.verb, tally.summary());
        } else {
            writeln!(output, "{} {} in {seconds:.1} s", self.verb, tally.summary())?;
        }
        require_complete("not everything was copied", shown, tally.failed())
    }
}
