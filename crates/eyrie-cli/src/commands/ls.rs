//! `eyrie ls`: lists directories.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use eyrie::{Files, Kind, Posix, PosixExt, Stat, Walk, WalkStep};
use serde_json::Value;

use crate::failure::{Doing, Result, Skipped};
use crate::output::{Output, json_name, json_stat};
use crate::place::{Inside, Place};
use crate::{interrupt, text, volumes};

/// List files and the contents of directories
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie ls vol:/
  eyrie ls -la vol:/share/doc
  eyrie ls -R --json vol:/share")]
pub struct LsArgs {
    /// Files and directories to list
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Show modes, links, owners, sizes in bytes and modification times in UTC
    #[arg(long, short)]
    long: bool,
    /// Include names that begin with a dot
    #[arg(long, short)]
    all: bool,
    /// List subdirectories recursively
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Print a JSON array of entries
    #[arg(long)]
    json: bool,
}

/// An entry of a listing, with its attributes.
struct Listed {
    name: OsString,
    stat: Stat,
    /// The target of a symbolic link.
    target: Option<Vec<u8>>,
}

/// The listing of one argument. All arguments share `values` and `skipped`.
struct Listing<'a> {
    arguments: &'a LsArgs,
    files: &'a Files,
    /// With `--json`, the entries so far.
    values: &'a mut Vec<Value>,
    skipped: &'a mut Skipped,
    output: &'a mut Output,
}

pub fn run(mut arguments: LsArgs, output: &mut Output) -> Result<()> {
    let places = std::mem::take(&mut arguments.places);
    let titled = places.len() > 1 || arguments.recursive;
    let mut values = Vec::new();
    let mut skipped = Skipped::default();
    let shown = places.last().map(ToString::to_string).unwrap_or_default();
    for (index, place) in places.into_iter().enumerate() {
        let inside = place.inside_or_root();
        if index > 0 && !arguments.json {
            writeln!(output)?;
        }
        volumes::with_files(&inside.volume, |files| {
            let stat = files.lstat(&inside.path).doing("list", &inside)?;
            let leads_to_dir = || files.stat(&inside.path).is_ok_and(|stat| stat.is_dir());
            let (values, skipped) = (&mut values, &mut skipped);
            let mut listing = Listing { arguments: &arguments, files, values, skipped, output };
            if stat.is_dir() || stat.is_symlink() && !arguments.long && leads_to_dir() {
                listing.directory(&inside, titled)
            } else {
                let name = inside.path.clone().into();
                let shown = listing.entry(files, &inside.path, name).doing("list", &inside)?;
                listing.show(&inside, &[shown])
            }
        })?;
    }
    if arguments.json {
        output.json(&Value::Array(values))?;
    }
    skipped.finish("not everything was listed", shown)
}

/// Reads the entries of a directory, sorted by name. Without `all`, leaves out hidden names.
fn entries(files: &Files, dir: &Path, all: bool) -> eyrie::Result<Vec<(OsString, Kind)>> {
    let mut entries = Vec::new();
    for entry in files.read_dir(dir)? {
        let entry = entry?;
        if all || !is_hidden(entry.name()) {
            entries.push((entry.name().to_owned(), entry.kind()));
        }
    }
    entries.sort_unstable_by(|left, right| left.0.cmp(&right.0));
    Ok(entries)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// Starts a walk through the directory `root`. If `root` is a symbolic link, the link is followed. Without
/// `all` the walk leaves out hidden names.
pub(super) fn walk<'a>(files: &'a Files, root: &Inside, all: bool) -> Result<Walk<'a, Files>> {
    // With a slash at the end of the path, the walk follows the link.
    let path = if root.path.file_name().is_some() { root.path.join("") } else { root.path.clone() };
    let walk = Walk::new(files, &path).doing("list", root)?;
    Ok(if all { walk } else { walk.only(|name| !is_hidden(name)) })
}

impl Listing<'_> {
    fn entry(&self, files: &Files, path: &Path, name: OsString) -> eyrie::Result<Listed> {
        let stat = files.lstat(path)?;
        let target = if stat.is_symlink() { Some(files.readlink(path)?) } else { None };
        Ok(Listed { name, stat, target })
    }

    /// Lists one directory, and with `-R` its subdirectories.
    fn directory(&mut self, root: &Inside, titled: bool) -> Result<()> {
        if !self.arguments.recursive {
            return self.block(self.files, &root.path, root, titled);
        }
        let mut first = true;
        for step in walk(self.files, root, self.arguments.all)? {
            interrupt::check("ls")?;
            match step {
                WalkStep::Entry(entry) if entry.kind == Kind::Directory => {
                    if !first && !self.arguments.json {
                        writeln!(self.output)?;
                    }
                    first = false;
                    let place = if entry.depth == 0 { root.clone() } else { root.join(&entry.relative) };
                    self.block(entry.base(), entry.name(), &place, titled)?;
                }
                WalkStep::Entry(_) | WalkStep::Left(_) => {}
                WalkStep::Failed(relative, error) => self.skipped.add(root.join(relative), &error),
            }
        }
        Ok(())
    }

    /// Lists the entries of the directory `path` of `files`. Messages and titles show `dir`, the place of
    /// this directory.
    fn block(&mut self, files: &Files, path: &Path, dir: &Inside, titled: bool) -> Result<()> {
        let listed = match entries(files, path, self.arguments.all) {
            Ok(entries) => entries,
            // The walk reports this error, and continues with the next directory.
            Err(_) if self.arguments.recursive => Vec::new(),
            Err(error) => return Err(error).doing("list", dir),
        };
        if titled && !self.arguments.json {
            self.output.name(dir.to_string().as_bytes())?;
            writeln!(self.output, ":")?;
        }
        if !self.arguments.long && !self.arguments.json {
            // A short listing shows only names and kinds. The directory has both, so no object is read.
            for (name, kind) in &listed {
                self.name(name, *kind)?;
                writeln!(self.output)?;
            }
            return Ok(());
        }
        let mut shown = Vec::new();
        for (name, _) in listed {
            match self.entry(files, &path.join(&name), name.clone()) {
                Ok(entry) => shown.push(entry),
                Err(error) => self.skipped.add(dir.join(&name), &error),
            }
        }
        self.show(dir, &shown)
    }

    fn show(&mut self, dir: &Inside, shown: &[Listed]) -> Result<()> {
        if self.arguments.json {
            for entry in shown {
                let mut value = json_stat(&entry.stat);
                json_name(&mut value, "path", dir.path.join(&entry.name).as_os_str().as_bytes());
                if let Some(target) = &entry.target {
                    json_name(&mut value, "target", target);
                }
                self.values.push(value);
            }
            return Ok(());
        }
        let widths = Widths::of(shown);
        for entry in shown {
            if self.arguments.long {
                write!(self.output, "{} ", widths.line(&entry.stat))?;
            }
            self.name(&entry.name, entry.stat.kind)?;
            if let (true, Some(target)) = (self.arguments.long, &entry.target) {
                self.output.write_all(b" -> ")?;
                self.output.name(target)?;
            }
            writeln!(self.output)?;
        }
        Ok(())
    }

    fn name(&mut self, name: &OsStr, kind: Kind) -> Result<()> {
        let name = name.as_bytes();
        match kind {
            Kind::Directory => self.output.directory_name(name)?,
            Kind::Symlink => self.output.link_name(name)?,
            _ => self.output.name(name)?,
        }
        Ok(())
    }
}

/// Widths of the columns of `ls -l`.
#[derive(Default)]
struct Widths {
    links: usize,
    uid: usize,
    gid: usize,
    size: usize,
}

impl Widths {
    fn of(shown: &[Listed]) -> Widths {
        let digits = |number: u64| number.to_string().len();
        let mut widths = Widths::default();
        for Listed { stat, .. } in shown {
            widths.links = widths.links.max(digits(stat.links.into()));
            widths.uid = widths.uid.max(digits(stat.uid.into()));
            widths.gid = widths.gid.max(digits(stat.gid.into()));
            widths.size = widths.size.max(Widths::size(stat).len());
        }
        widths
    }

    /// Formats the size of a file, or the major and minor numbers of a device.
    fn size(stat: &Stat) -> String {
        match stat.kind {
            Kind::CharDevice | Kind::BlockDevice => {
                format!("{}, {}", rustix::fs::major(stat.device), rustix::fs::minor(stat.device))
            }
            _ => stat.size.to_string(),
        }
    }

    fn line(&self, stat: &Stat) -> String {
        format!(
            "{} {:>links$} {:>uid$} {:>gid$} {:>size$} {}",
            text::mode(stat.kind, stat.mode),
            stat.links,
            stat.uid,
            stat.gid,
            Widths::size(stat),
            text::time(stat.modified),
            links = self.links,
            uid = self.uid,
            gid = self.gid,
            size = self.size,
        )
    }
}
