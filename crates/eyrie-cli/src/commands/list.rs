//! `ls` and `tree`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie::{Files, Kind, Posix, PosixExt, Stat, Step, Walk};
use eyrie_sim::canonical::{self, Include};
use serde_json::Value;

use super::inspect::json_stat;
use super::{complete, with_files};
use crate::arguments::{Ls, Tree};
use crate::failure::{Doing, Failure, Result, reason};
use crate::output::{Output, json_name};
use crate::place::Inside;
use crate::{interrupt, tell, text};

/// An entry to show.
struct Shown {
    name: OsString,
    stat: Stat,
    /// Of a symbolic link.
    target: Option<Vec<u8>>,
}

/// How to show entries.
struct Listing<'a> {
    arguments: &'a Ls,
    files: &'a Files,
    /// With `--json`.
    values: &'a mut Vec<Value>,
    left_out: &'a mut u64,
    output: &'a mut Output,
}

/// Lists.
pub fn ls(mut arguments: Ls, output: &mut Output) -> Result<()> {
    let places = std::mem::take(&mut arguments.places);
    let titled = places.len() > 1 || arguments.recursive;
    let mut values = Vec::new();
    let mut left_out = 0;
    let shown = places.last().map(ToString::to_string).unwrap_or_default();
    for (index, place) in places.into_iter().enumerate() {
        let inside = place.inside_or_root();
        if index > 0 && !arguments.json {
            writeln!(output)?;
        }
        with_files(&inside.volume, |files| {
            let stat = files.lstat(&inside.path).doing("list", &inside)?;
            let leads_to_dir = || files.stat(&inside.path).is_ok_and(|stat| stat.is_dir());
            let (values, left_out) = (&mut values, &mut left_out);
            let mut listing = Listing { arguments: &arguments, files, values, left_out, output };
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
    complete("not everything was listed", shown, left_out)
}

/// The entries of a directory, by name.
fn names(files: &Files, dir: &Path, all: bool) -> eyrie::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in files.read_dir(dir)? {
        let entry = entry?;
        if all || !is_hidden(entry.name()) {
            names.push(entry.name().to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// A walk of a directory, to which a symbolic link may lead.
fn walk_of<'a>(files: &'a Files, root: &Inside, all: bool) -> Result<Walk<'a, Files>> {
    // A slash at the end follows the link.
    let path = if root.path.file_name().is_some() { root.path.join("") } else { root.path.clone() };
    let walk = Walk::new(files, &path).doing("list", root)?;
    Ok(if all { walk } else { walk.only(|name| !is_hidden(name)) })
}

impl Listing<'_> {
    fn entry(&self, files: &Files, path: &Path, name: OsString) -> eyrie::Result<Shown> {
        let stat = files.lstat(path)?;
        let target = if stat.is_symlink() { Some(files.readlink(path)?) } else { None };
        Ok(Shown { name, stat, target })
    }

    /// One directory, and with `-R` those inside.
    fn directory(&mut self, root: &Inside, titled: bool) -> Result<()> {
        if !self.arguments.recursive {
            return self.block(self.files, &root.path, root, titled);
        }
        let walk = walk_of(self.files, root, self.arguments.all)?;
        let mut first = true;
        for step in walk {
            interrupt::check("ls")?;
            match step {
                Step::Found(found) if found.kind == Kind::Directory => {
                    if !first && !self.arguments.json {
                        writeln!(self.output)?;
                    }
                    first = false;
                    let place = if found.depth == 0 { root.clone() } else { root.join(&found.relative) };
                    self.block(found.base(), found.name(), &place, titled)?;
                }
                Step::Found(_) | Step::Left(_) => {}
                Step::Failed(relative, error) => self.leave_out(&root.join(relative), &error),
            }
        }
        Ok(())
    }

    /// The entries of the directory `path` of `files`, shown as `dir`.
    fn block(&mut self, files: &Files, path: &Path, dir: &Inside, titled: bool) -> Result<()> {
        let mut shown = Vec::new();
        let listed = match names(files, path, self.arguments.all) {
            Ok(names) => names,
            // The walk tells why, and goes on elsewhere.
            Err(_) if self.arguments.recursive => Vec::new(),
            Err(error) => return Err(error).doing("list", dir),
        };
        for name in listed {
            match self.entry(files, &path.join(&name), name.clone()) {
                Ok(entry) => shown.push(entry),
                Err(error) => self.leave_out(&dir.join(&name), &error),
            }
        }
        if titled && !self.arguments.json {
            self.output.name(dir.to_string().as_bytes())?;
            writeln!(self.output, ":")?;
        }
        self.show(dir, &shown)
    }

    fn leave_out(&mut self, place: &Inside, error: &eyrie::Error) {
        *self.left_out += 1;
        tell(&format!("cannot read: {place}: {}", reason(error)));
    }

    fn show(&mut self, dir: &Inside, shown: &[Shown]) -> Result<()> {
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
            self.name(entry)?;
            writeln!(self.output)?;
        }
        Ok(())
    }

    fn name(&mut self, entry: &Shown) -> Result<()> {
        let name = entry.name.as_bytes();
        match entry.stat.kind {
            Kind::Directory => self.output.directory_name(name)?,
            Kind::Symlink => self.output.link_name(name)?,
            _ => self.output.name(name)?,
        }
        if let (true, Some(target)) = (self.arguments.long, &entry.target) {
            self.output.write_all(b" -> ")?;
            self.output.name(target)?;
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
    fn of(shown: &[Shown]) -> Widths {
        let digits = |number: u64| number.to_string().len();
        let mut widths = Widths::default();
        for Shown { stat, .. } in shown {
            widths.links = widths.links.max(digits(stat.links.into()));
            widths.uid = widths.uid.max(digits(stat.uid.into()));
            widths.gid = widths.gid.max(digits(stat.gid.into()));
            widths.size = widths.size.max(Widths::size(stat).len());
        }
        widths
    }

    /// Size, or major and minor number of a device.
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

/// Prints the canonical text of a tree.
fn canonical_tree(inside: &Inside, times: bool, output: &mut Output) -> Result<()> {
    with_files(&inside.volume, |files| {
        let failed = |error: eyrie::Error| {
            // The error knows how far it got.
            let path = error.path().unwrap_or(&inside.path).to_owned();
            let place = Inside { volume: inside.volume.clone(), path };
            Failure::new("cannot show", place, reason(&error))
        };
        for line in canonical::lines(files, &inside.path, Include { times }).map_err(failed)? {
            writeln!(output, "{}", line.map_err(failed)?)?;
        }
        Ok(())
    })
}

/// Draws a tree.
pub fn tree(arguments: Tree, output: &mut Output) -> Result<()> {
    let inside = arguments.place.inside_or_root();
    if arguments.canonical {
        return canonical_tree(&inside, arguments.times, output);
    }
    let mut counts = [0_u64; 2];
    let mut left_out = 0;
    with_files(&inside.volume, |files| {
        files.options().read(true).directory(true).open(&inside.path).doing("show", &inside)?;
        let mut walk = walk_of(files, &inside, arguments.all)?;
        let mut indent = String::new();
        while let Some(step) = walk.next() {
            interrupt::check("tree")?;
            let found = match step {
                Step::Found(found) => found,
                Step::Left(_) => {
                    indent.truncate(indent.char_indices().rev().nth(3).map_or(0, |(start, _)| start));
                    continue;
                }
                Step::Failed(relative, error) => {
                    left_out += 1;
                    tell(&format!("cannot read: {}: {}", inside.join(relative), reason(&error)));
                    continue;
                }
            };
            if found.depth == 0 {
                output.heading(&inside.to_string())?;
                continue;
            }
            write!(output, "{indent}{}", if found.last { "└── " } else { "├── " })?;
            counts[usize::from(found.kind != Kind::Directory)] += 1;
            let name = found.name().as_os_str().as_bytes();
            match found.kind {
                Kind::Directory => {
                    output.directory_name(name)?;
                    if found.depth as u64 >= u64::from(arguments.depth) {
                        walk.prune();
                    } else {
                        indent.push_str(if found.last { "    " } else { "│   " });
                    }
                }
                Kind::Symlink => {
                    output.link_name(name)?;
                    match found.base().readlink(found.name()) {
                        Ok(target) => {
                            output.write_all(b" -> ")?;
                            output.name(&target)?;
                        }
                        Err(error) => {
                            left_out += 1;
                            let place = inside.join(&found.relative);
                            tell(&format!("cannot read: {place}: {}", reason(&error)));
                        }
                    }
                }
                _ => output.name(name)?,
            }
            writeln!(output)?;
        }
        Ok(())
    })?;
    let [directories, others] = counts;
    let directories = text::counted(directories, "directory", "directories");
    writeln!(output, "\n{directories}, {}", text::counted(others, "file", "files"))?;
    complete("not everything was shown", inside, left_out)
}
