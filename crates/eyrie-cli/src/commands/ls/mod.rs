//! `eyrie ls`: lists files and directories.
//!
//! The command first lists the arguments that are not directories, and then each directory, as ls(1) does.

mod columns;
mod listed;
mod listing;
mod order;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::{ArgAction, Args, ColorChoice};
use eyrie::{Files, PosixExt, Walk};
use serde_json::Value;

use self::listed::Listed;
use self::listing::Listing;
use crate::failure::{Doing, Failures, Result, with_earlier};
use crate::interrupt;
use crate::opened::{OpenVolumes, with_volumes};
use crate::output::Output;
use crate::place::{Inside, Place};

/// List files and the contents of directories
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  eyrie ls vol:/
  eyrie ls -la vol:/share/doc
  eyrie ls -lhS vol:/share/doc
  eyrie ls -ltr --color=always vol:/ | less -R
  eyrie ls -R --json vol:/share

Names are sorted by their bytes, one on each line. Names of users and groups come from /etc/passwd and \
/etc/group of the host. With -R the directories follow each other by name, also with -t and -S."
)]
pub struct LsArgs {
    /// Files and directories to list
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Show modes, links, owners, sizes in bytes and local modification times
    #[arg(long, short)]
    long: bool,
    /// Include names that begin with a dot, but not . and ..
    #[arg(long, short, visible_short_alias = 'A')]
    all: bool,
    /// Show sizes with a unit, such as 1.5K or 20M
    #[arg(long, short = 'h')]
    human_readable: bool,
    /// List directories themselves instead of their contents
    #[arg(long, short)]
    directory: bool,
    /// List subdirectories recursively
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Sort by modification time, newest first
    #[arg(short = 't', overrides_with = "by_size")]
    by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S')]
    by_size: bool,
    /// Reverse the order
    #[arg(long, short)]
    reverse: bool,
    /// Print one name on each line, which is the default
    #[arg(short = '1')]
    one: bool,
    /// Like -l, but show the numbers of users and groups
    #[arg(long, short = 'n')]
    numeric_uid_gid: bool,
    /// Like -l, but show whole times, with nanoseconds and the offset from UTC
    #[arg(long)]
    full_time: bool,
    /// Colour names: auto (on a terminal), always or never; --color alone means always
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value = "auto")]
    #[arg(default_missing_value = "always", hide_default_value = true, hide_possible_values = true)]
    color: ColorChoice,
    /// Print a JSON array of entries
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: (),
}

impl LsArgs {
    /// Returns true if the listing has columns with attributes.
    fn has_columns(&self) -> bool {
        self.long || self.numeric_uid_gid || self.full_time
    }

    /// Returns true if the listing needs the attributes of the entries, not only their names and kinds.
    fn needs_attributes(&self) -> bool {
        self.json || self.has_columns() || self.by_time || self.by_size
    }
}

/// A directory among the arguments.
struct Root {
    listed: Listed,
    files: Files,
    place: Inside,
}

pub fn run(mut arguments: LsArgs, output: &mut Output) -> Result<()> {
    interrupt::install();
    output.set_color(arguments.color);
    let places: Vec<Inside> =
        std::mem::take(&mut arguments.places).into_iter().map(Place::inside_or_root).collect();
    let titled = places.len() > 1 || arguments.recursive;
    let shown = places.last().map(ToString::to_string).unwrap_or_default();
    let json = arguments.json;
    let mut listing = Listing::new(arguments, output);
    let listed = with_volumes([], |volumes| list(&mut listing, &places, titled, volumes));
    let Listing { values, skipped, output, .. } = listing;
    let ends = listed.as_ref().is_err_and(|failure| failure.ends_command());
    let printed = if json && !ends { output.json(&Value::Array(values)) } else { Ok(()) };
    let listed = with_earlier(listed, skipped.finish("not everything was listed", shown));
    with_earlier(printed, listed)
}

/// Lists all arguments.
fn list(listing: &mut Listing<'_>, places: &[Inside], titled: bool, volumes: &mut OpenVolumes) -> Result<()> {
    let (mut plain, mut roots) = (Vec::new(), Vec::new());
    let mut failures = Failures::default();
    for place in places {
        let files = volumes.files(&place.volume).map_err(|failure| failures.ended_by(failure))?;
        match listing.argument(&files, place) {
            Ok((listed, true)) => roots.push(Root { listed, files, place: place.clone() }),
            Ok((listed, false)) => plain.push(listed),
            Err(failure) => failures.add(Err(failure))?,
        }
    }
    let arguments = &listing.arguments;
    order::sort(arguments, &mut plain, |listed| listed);
    order::sort(arguments, &mut roots, |root| &root.listed);
    let mut first = plain.is_empty();
    listing.show(&plain)?;
    for root in roots {
        if !std::mem::take(&mut first) && !listing.arguments.json {
            writeln!(listing.output)?;
        }
        failures.add(listing.directory(&root.files, &root.place, titled))?;
    }
    failures.finish()
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// Starts a walk through the directory `root`. If `root` is a symbolic link, the link is followed. Without
/// `all` the walk leaves out hidden names.
pub(super) fn walk(files: &Files, root: &Inside, all: bool) -> Result<Walk<Files>> {
    // With a slash at the end of the path, the walk follows the link.
    let path = if root.path.file_name().is_some() { root.path.join("") } else { root.path.clone() };
    let walk = files.walk(&path).doing("list", root)?;
    Ok(if all { walk } else { walk.only(|name| !is_hidden(name)) })
}
