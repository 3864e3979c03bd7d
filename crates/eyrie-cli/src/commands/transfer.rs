//! `import` and `export`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use eyrie::{Credentials, Errno, Files, Host, Posix};

use super::{complete, with_volume};
use crate::arguments::{Export, Import};
use crate::copy::{Job, Tally, Watch, copy_tree};
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::place::Inside;
use crate::{interrupt, text};

/// The host's file system from its root, and an absolute path in it.
pub fn host(path: &Path) -> Result<(Host, PathBuf)> {
    let path = std::path::absolute(path).doing("use", text::path(path))?;
    Ok((Host::new("/").doing("open", "/")?, path))
}

/// Copies a tree into a volume.
pub fn import(arguments: Import, output: &mut Output) -> Result<()> {
    let inside = arguments.to.inside()?;
    let shown = text::path(&arguments.from);
    let from = arguments.from.canonicalize().doing("import", &shown)?;
    if !from.is_dir() {
        return Err(Failure::new("cannot import", shown, "not a directory: copy files with `eyrie cp`"));
    }
    let (source, _) = host(&from)?;
    interrupt::watch();
    let started = Instant::now();
    let tally = with_volume(&inside.volume, |volume| {
        // The copies get the modes of their sources, no umask applied.
        let target = volume.files(Credentials::of_process());
        refuse_existing(&target, &inside.path, "import into", &inside.to_string())?;
        let itself = inside.volume.canonicalize().ok();
        let prefix = format!("{}:", text::path(&inside.volume));
        copy_tree(&Job {
            source: &source,
            from: &from,
            target: &target,
            to: &inside.path,
            except: itself.as_deref(),
            watch: &Watch::new(&arguments.from, prefix, "import", arguments.verbose),
        })
    })?;
    let summary = Summary { verb: "imported", json: arguments.json, aside: arguments.verbose, started };
    summary.print(&tally, &shown, output)
}

/// Copies a tree out of a volume.
pub fn export(arguments: Export, output: &mut Output) -> Result<()> {
    let inside = arguments.from.inside_or_root();
    let (target, to) = host(&arguments.to)?;
    refuse_existing(&target, &to, "export to", &text::path(&arguments.to))?;
    refuse_own_directory(&inside.volume, &to, "cannot export to")?;
    interrupt::watch();
    let started = Instant::now();
    let tally = with_volume(&inside.volume, |volume| {
        let source = volume.files(Credentials::of_process());
        require_directory(&source, &inside, "export")?;
        let prefix = PathBuf::from(inside.to_string());
        copy_tree(&Job {
            source: &source,
            from: &inside.path,
            target: &target,
            to: &to,
            except: None,
            watch: &Watch::new(&prefix, String::new(), "export", arguments.verbose),
        })
    })?;
    let summary = Summary { verb: "exported", json: arguments.json, aside: arguments.verbose, started };
    summary.print(&tally, &inside.to_string(), output)
}

/// The volume's own directory has its files and no others, and no archive overwrites one of them.
pub(super) fn refuse_own_directory(volume: &Path, path: &Path, what: &str) -> Result<()> {
    let (Some(parent), Ok(volume)) = (path.parent(), volume.canonicalize()) else { return Ok(()) };
    let is_inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&volume));
    // The path itself may be a link into it, or the device that the volume is on.
    if is_inside(parent) || is_inside(path) {
        let why = "this is inside the volume's own directory: choose another place";
        return Err(Failure::new(what, text::path(path), why));
    }
    Ok(())
}

/// What is exported or dumped is a directory.
pub(super) fn require_directory(files: &Files, inside: &Inside, what: &str) -> Result<()> {
    if files.stat(&inside.path).doing(what, inside)?.is_dir() {
        return Ok(());
    }
    let why = "not a directory: copy files with `eyrie cp`";
    Err(Failure::new(format_args!("cannot {what}"), inside, why))
}

/// A tree goes to a name of its own.
fn refuse_existing(fs: &impl Posix, path: &Path, what: &str, shown: &str) -> Result<()> {
    match fs.lstat(path) {
        Err(error) if error.errno() == Errno::NOENT => Ok(()),
        Err(error) => Err(error).doing(what, shown),
        Ok(_) => {
            let why = "it exists already: give a new name, such as ";
            let base = shown.trim_end_matches('/');
            Err(Failure::new(format_args!("cannot {what}"), shown, format_args!("{why}{base}/new")))
        }
    }
}

/// How to tell what was done.
pub(super) struct Summary {
    pub(super) verb: &'static str,
    pub(super) json: bool,
    /// Not to standard output, which has something else.
    pub(super) aside: bool,
    pub(super) started: Instant,
}

impl Summary {
    /// Tells it, and fails if anything was left out.
    pub(super) fn print(&self, tally: &Tally, shown: &str, output: &mut Output) -> Result<()> {
        let seconds = self.started.elapsed().as_secs_f64();
        if self.json {
            let mut value = tally.json();
            value["seconds"] = serde_json::json!(seconds);
            output.json(&value)?;
        } else if self.aside {
            let _ = writeln!(std::io::stderr(), "{} {} in {seconds:.1} s", self.verb, tally.summary());
        } else {
            writeln!(output, "{} {} in {seconds:.1} s", self.verb, tally.summary())?;
        }
        complete("not everything was copied", shown, tally.failed())
    }
}
