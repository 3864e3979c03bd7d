//! `import` and `export`.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use eyrie::{Credentials, Errno, Host, Posix};

use super::with_volume;
use crate::arguments::{Export, Import};
use crate::copy::{Job, Tally, Watch, copy_tree};
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{interrupt, text};

/// The host's file system from its root, and an absolute path in it.
pub fn host(path: &Path) -> Result<(Host, PathBuf)> {
    let path = std::path::absolute(path).doing("use", text::path(path))?;
    Ok((Host::new("/").doing("open", "/")?, path))
}

/// The device that a path of the host is on.
pub fn device(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |metadata| metadata.dev())
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
            device: &device,
            except: itself.as_deref(),
            watch: &Watch::new(&arguments.from, prefix, "import", arguments.verbose),
        })
    })?;
    let summary = Summary { verb: "imported", json: arguments.json, verbose: arguments.verbose, started };
    summary.print(&tally, &shown, output)
}

/// Copies a tree out of a volume.
pub fn export(arguments: Export, output: &mut Output) -> Result<()> {
    let inside = arguments.from.inside_or_root();
    let (target, to) = host(&arguments.to)?;
    refuse_existing(&target, &to, "export to", &text::path(&arguments.to))?;
    if let (Some(parent), Ok(volume)) = (to.parent(), inside.volume.canonicalize())
        && parent.canonicalize().is_ok_and(|parent| parent.starts_with(&volume))
    {
        let why = "this is inside the volume's own directory: choose another place";
        return Err(Failure::new("cannot export to", text::path(&arguments.to), why));
    }
    interrupt::watch();
    let started = Instant::now();
    let tally = with_volume(&inside.volume, |volume| {
        let source = volume.files(Credentials::of_process());
        let stat = source.stat(&inside.path).doing("export", &inside)?;
        if !stat.is_dir() {
            return Err(Failure::new(
                "cannot export",
                &inside,
                "not a directory: copy files with `eyrie cp`",
            ));
        }
        let prefix = PathBuf::from(inside.to_string());
        copy_tree(&Job {
            source: &source,
            from: &inside.path,
            target: &target,
            to: &to,
            device: &|_| 0,
            except: None,
            watch: &Watch::new(&prefix, String::new(), "export", arguments.verbose),
        })
    })?;
    let summary = Summary { verb: "exported", json: arguments.json, verbose: arguments.verbose, started };
    summary.print(&tally, &inside.to_string(), output)
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
struct Summary {
    verb: &'static str,
    json: bool,
    verbose: bool,
    started: Instant,
}

impl Summary {
    fn print(&self, tally: &Tally, shown: &str, output: &mut Output) -> Result<()> {
        let seconds = self.started.elapsed().as_secs_f64();
        if self.json {
            let mut value = tally.json();
            value["seconds"] = serde_json::json!(seconds);
            output.json(&value)?;
        } else if self.verbose {
            // Standard output has paths and nothing else.
            let _ = writeln!(std::io::stderr(), "{} {} in {seconds:.1} s", self.verb, tally.summary());
        } else {
            writeln!(output, "{} {} in {seconds:.1} s", self.verb, tally.summary())?;
        }
        match tally.failed() {
            0 => Ok(()),
            failed => {
                let failed = text::counted(failed, "entry", "entries");
                Err(Failure::new(
                    "not everything was copied",
                    shown,
                    format_args!("{failed} left out, see above"),
                ))
            }
        }
    }
}
