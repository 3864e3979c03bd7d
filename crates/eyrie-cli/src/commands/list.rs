//! `ls` and `tree`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use eyrie::{Files, Kind, Posix, PosixExt, Stat};
use eyrie_sim::canonical::{self, Include};
use serde_json::Value;

use super::inspect::json_stat;
use super::with_files;
use crate::arguments::{Ls, Tree};
use crate::failure::{Doing, Failure, Result, reason};
use crate::output::{Output, json_name};
use crate::place::Inside;
use crate::{interrupt, text};

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
    output: &'a mut Output,
}

/// Lists.
pub fn ls(mut arguments: Ls, output: &mut Output) -> Result<()> {
    let places = std::mem::take(&mut arguments.places);
    let titled = places.len() > 1 || arguments.recursive;
    let mut values = Vec::new();
    for (index, place) in places.into_iter().enumerate() {
        let inside = place.inside_or_root();
        if index > 0 && !arguments.json {
            writeln!(output)?;
        }
        with_files(&inside.volume, |files| {
            let stat = files.lstat(&inside.path).doing("list", &inside)?;
            let leads_to_dir = || files.stat(&inside.path).is_ok_and(|stat| stat.is_dir());
            let mut listing = Listing { arguments: &arguments, files, values: &mut values, output };
            if stat.is_dir() || stat.is_symlink() && !arguments.long && leads_to_dir() {
                listing.directory(&inside, titled)
            } else {
                let target = listing.target(&inside, &stat)?;
                let shown = Shown { name: inside.path.clone().into(), stat, target };
                listing.show(&inside, &[shown])
            }
        })?;
    }
    if arguments.json { output.json(&Value::Array(values)) } else { Ok(()) }
}

/// The entries of a directory, by name.
fn entries(files: &Files, dir: &Inside, all: bool) -> Result<Vec<(OsString, Kind)>> {
    let listing = files.read_dir(&dir.path).doing("list", dir)?;
    let mut entries = Vec::new();
    for entry in listing {
        let entry = entry.doing("list", dir)?;
        if all || !entry.name_bytes().starts_with(b".") {
            entries.push((entry.name().to_owned(), entry.kind()));
        }
    }
    entries.sort_unstable_by(|left, right| left.0.cmp(&right.0));
    Ok(entries)
}

impl Listing<'_> {
    fn target(&self, place: &Inside, stat: &Stat) -> Result<Option<Vec<u8>>> {
        if !stat.is_symlink() {
            return Ok(None);
        }
        self.files.readlink(&place.path).doing("read the link", place).map(Some)
    }

    /// One directory, and with `-R` those inside.
    fn directory(&mut self, root: &Inside, titled: bool) -> Result<()> {
        let mut pending = vec![root.clone()];
        let mut first = true;
        while let Some(dir) = pending.pop() {
            interrupt::check("ls")?;
            let entries = entries(self.files, &dir, self.arguments.all)?;
            let inner =
                entries.iter().filter(|(_, kind)| *kind == Kind::Directory && self.arguments.recursive);
            let inner: Vec<_> = inner.map(|(name, _)| dir.join(name)).collect();
            // Names alone need no look at the objects.
            let described = self.arguments.long || self.arguments.json;
            let mut shown = Vec::new();
            for (name, _) in entries.iter().filter(|_| described) {
                let place = dir.join(name);
                let stat = self.files.lstat(&place.path).doing("stat", &place)?;
                let target = self.target(&place, &stat)?;
                shown.push(Shown { name: name.clone(), stat, target });
            }
            if titled && !self.arguments.json {
                if !first {
                    writeln!(self.output)?;
                }
                self.output.name(dir.to_string().as_bytes())?;
                writeln!(self.output, ":")?;
            }
            first = false;
            if described {
                self.show(&dir, &shown)?;
            } else {
                for (name, kind) in &entries {
                    self.name(name, *kind)?;
                    writeln!(self.output)?;
                }
            }
            pending.extend(inner.into_iter().rev());
        }
        Ok(())
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
    with_files(&inside.volume, |files| {
        files.options().read(true).directory(true).open(&inside.path).doing("show", &inside)?;
        output.heading(&inside.to_string())?;
        // One listing for each level, the innermost last, and what has been drawn before it.
        let mut levels = vec![(inside.clone(), entries(files, &inside, arguments.all)?.into_iter())];
        let mut indent = String::new();
        while let Some((dir, listing)) = levels.last_mut() {
            let Some((name, kind)) = listing.next() else {
                levels.pop();
                indent.truncate(indent.char_indices().rev().nth(3).map_or(0, |(start, _)| start));
                continue;
            };
            interrupt::check("tree")?;
            let last = listing.len() == 0;
            write!(output, "{indent}{}", if last { "└── " } else { "├── " })?;
            let place = dir.join(&name);
            counts[usize::from(kind != Kind::Directory)] += 1;
            match kind {
                Kind::Directory => output.directory_name(name.as_bytes())?,
                Kind::Symlink => {
                    output.link_name(name.as_bytes())?;
                    output.write_all(b" -> ")?;
                    output.name(&files.readlink(&place.path).doing("read the link", &place)?)?;
                }
                _ => output.name(name.as_bytes())?,
            }
            writeln!(output)?;
            if kind == Kind::Directory && (levels.len() as u64) < u64::from(arguments.depth) {
                let inner = entries(files, &place, arguments.all)?.into_iter();
                levels.push((place, inner));
                indent.push_str(if last { "    " } else { "│   " });
            }
        }
        Ok(())
    })?;
    let [directories, others] = counts;
    let directories = text::counted(directories, "directory", "directories");
    writeln!(output, "\n{directories}, {}", text::counted(others, "file", "files"))?;
    Ok(())
}
