//! `eyrie tree`: shows a directory tree.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use eyrie::{Files, Kind, Posix, PosixExt, Walk, WalkEntry, WalkStep};
use eyrie_sim::canonical::{self, CanonicalParts};
use serde_json::{Value, json};

use crate::failure::{Doing, Failure, Result, Skipped, reason, with_earlier};
use crate::output::{Output, json_name};
use crate::place::{Inside, Place};
use crate::volumes::Purpose;
use crate::{interrupt, text, volumes};

/// Show a directory tree
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie tree vol:/share
  eyrie tree --depth 2 -a vol:/
  eyrie tree --canonical vol:/ > before.txt

Equal trees have equal canonical texts, so diff(1) can compare trees.")]
pub struct TreeArgs {
    /// Directory to show
    #[arg(value_name = "VOLUME:/dir", value_parser = Place::parser())]
    place: Place,
    /// Include names that begin with a dot
    #[arg(long, short)]
    all: bool,
    /// Show only this many levels, at least 1 [default: no limit]
    #[arg(long, value_name = "LEVELS", default_value_t = u32::MAX, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    depth: u32,
    /// Print one line with attributes and contents for each name, in byte order of the paths
    #[arg(long, conflicts_with_all = ["all", "depth"])]
    canonical: bool,
    /// Print a JSON array of the entries with their paths and kinds
    #[arg(long, conflicts_with = "canonical")]
    json: bool,
    /// Include modification times in the canonical text
    #[arg(long, requires = "canonical")]
    times: bool,
}

pub fn run(arguments: TreeArgs, output: &mut Output) -> Result<()> {
    let inside = arguments.place.inside_or_root();
    if arguments.canonical {
        return print_canonical(&inside, arguments.times, output);
    }
    let depth = arguments.depth as usize;
    if arguments.json {
        return print_json(&inside, arguments.all, depth, output);
    }
    let mut drawing = Drawing {
        inside: &inside,
        output,
        indent: String::new(),
        counts: [0; 2],
        skipped: Skipped::default(),
    };
    let drawn = volumes::with_files(&inside.volume, Purpose::Read, |files| {
        files.options().read(true).directory(true).open(&inside.path).doing("show", &inside)?;
        drawing.draw(super::ls::walk(files, &inside, arguments.all)?, depth)
    });
    let printed = drawn.and_then(|()| drawing.sum());
    with_earlier(printed, drawing.skipped.finish("not everything was shown", &inside))
}

/// Prints the canonical text of a tree.
fn print_canonical(inside: &Inside, times: bool, output: &mut Output) -> Result<()> {
    volumes::with_files(&inside.volume, Purpose::Read, |files| {
        let failed = |error: eyrie::Error| {
            // The path of the error, if it has one, is that of the entry that cannot be shown.
            let path = error.path().unwrap_or(&inside.path).to_owned();
            let place = Inside { volume: inside.volume.clone(), path };
            Failure::of_errno(error.errno(), "cannot show", place, reason(&error))
        };
        for line in canonical::lines(files, &inside.path, CanonicalParts { times }).map_err(failed)? {
            writeln!(output, "{}", line.map_err(failed)?)?;
        }
        Ok(())
    })
}

/// Prints the entries of a tree as a JSON array. A directory comes before its entries.
fn print_json(inside: &Inside, all: bool, depth: usize, output: &mut Output) -> Result<()> {
    let (mut values, mut skipped) = (Vec::new(), Skipped::default());
    volumes::with_files(&inside.volume, Purpose::Read, |files| {
        files.options().read(true).directory(true).open(&inside.path).doing("show", inside)?;
        let mut walk = super::ls::walk(files, inside, all)?;
        while let Some(step) = walk.next() {
            interrupt::check("tree")?;
            match step {
                WalkStep::Entry(entry) => {
                    if entry.depth >= depth {
                        walk.prune();
                    }
                    let mut value = json!({ "kind": text::kind_name(entry.kind), "depth": entry.depth });
                    let path = inside.join(&entry.relative).path;
                    json_name(&mut value, "path", path.as_os_str().as_bytes());
                    if entry.kind == Kind::Symlink {
                        match entry.dir().readlink(entry.name().into()) {
                            Ok(target) => json_name(&mut value, "target", &target),
                            Err(error) => skipped.add(inside.join(&entry.relative), &error),
                        }
                    }
                    values.push(value);
                }
                WalkStep::Left(_) => {}
                WalkStep::Failed(relative, error) => skipped.add(inside.join(relative), &error),
            }
        }
        Ok(())
    })?;
    let printed = output.json(&Value::Array(values));
    with_earlier(printed, skipped.finish("not everything was shown", inside))
}

/// A tree that is being drawn.
struct Drawing<'a> {
    inside: &'a Inside,
    output: &'a mut Output,
    /// The start of the next line: four columns for each level.
    indent: String,
    /// Number of directories below the root, and number of other entries.
    counts: [u64; 2],
    skipped: Skipped,
}

impl Drawing<'_> {
    fn draw(&mut self, mut walk: Walk<Files>, depth: usize) -> Result<()> {
        while let Some(step) = walk.next() {
            interrupt::check("tree")?;
            match step {
                WalkStep::Entry(entry) if entry.depth == 0 => {
                    self.output.heading(&self.inside.to_string())?
                }
                WalkStep::Entry(entry) => {
                    self.line(&entry)?;
                    if entry.kind != Kind::Directory {
                        continue;
                    }
                    if entry.depth >= depth {
                        // No `Left` step follows for a pruned directory, so the indent must not grow.
                        walk.prune();
                    } else {
                        self.indent.push_str(if entry.last { "    " } else { "│   " });
                    }
                }
                WalkStep::Left(_) => {
                    let end = self.indent.char_indices().rev().nth(3).map_or(0, |(start, _)| start);
                    self.indent.truncate(end);
                }
                WalkStep::Failed(relative, error) => self.skipped.add(self.inside.join(relative), &error),
            }
        }
        Ok(())
    }

    /// Prints the line of one entry.
    fn line(&mut self, entry: &WalkEntry<Files>) -> Result<()> {
        write!(self.output, "{}{}", self.indent, if entry.last { "└── " } else { "├── " })?;
        self.counts[usize::from(entry.kind != Kind::Directory)] += 1;
        let name = entry.name().as_os_str().as_bytes();
        match entry.kind {
            Kind::Directory => self.output.directory_name(name)?,
            Kind::Symlink => {
                self.output.link_name(name)?;
                match entry.dir().readlink(entry.name().into()) {
                    Ok(target) => {
                        self.output.write_all(b" -> ")?;
                        self.output.name(&target)?;
                    }
                    Err(error) => self.skipped.add(self.inside.join(&entry.relative), &error),
                }
            }
            _ => self.output.name(name)?,
        }
        Ok(writeln!(self.output)?)
    }

    /// Prints the numbers of entries.
    fn sum(&mut self) -> Result<()> {
        let [directories, others] = self.counts;
        let directories = text::counted(directories, "directory", "directories");
        let others = text::counted(others, "file", "files");
        Ok(writeln!(self.output, "\n{directories}, {others}")?)
    }
}
