//! `eyrie lsattr`: shows the inode flags of files and directories.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use eyrie::{Dir, File, Files, InodeFlags, OpenFlags, Posix, Target};
use serde_json::{Value, json};

use super::each_file::{Reach, VisitedFile, each_file};
use crate::failure::{Doing, Result, with_earlier};
use crate::opened::for_each;
use crate::output::{Output, json_name};
use crate::place::{self, Place};
use crate::volumes::Purpose;

const WHAT: &str = "read the inode flags of";

/// Show the inode flags of files and directories
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie lsattr vol:/etc/passwd
  eyrie lsattr -R vol:/etc

i: immutable. a: append-only. `eyrie chattr --help` tells more.")]
pub struct LsattrArgs {
    /// Files and directories to show
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Show directories and everything below them
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Print a JSON array of names and flags
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &LsattrArgs, output: &mut Output) -> Result<()> {
    let places = place::all_inside(&arguments.places)?;
    let reach = Reach { recursive: arguments.recursive, follows_argument: true };
    let mut values = Vec::new();
    let shown = for_each(&places, Purpose::Read, |files, inside| {
        each_file(files, inside, reach, |target| {
            let place = &target.place;
            let Some(file) = open(target, arguments.recursive).doing(WHAT, place)? else {
                return Ok(());
            };
            let flags = file.inode_flags().doing(WHAT, place)?;
            if arguments.json {
                let mut value = json!({
                    "immutable": flags.contains(InodeFlags::IMMUTABLE),
                    "append_only": flags.contains(InodeFlags::APPEND_ONLY),
                });
                json_name(&mut value, "place", place.to_path().as_os_str().as_bytes());
                values.push(value);
                return Ok(());
            }
            Ok(writeln!(output, "{} {place}", letters(flags))?)
        })
    });
    if arguments.json && !shown.as_ref().is_err_and(|failure| failure.ends_command()) {
        return with_earlier(output.json(&Value::Array(values)), shown);
    }
    shown
}

/// Returns the letters of the flags, with `-` for a flag that is not set.
pub(super) fn letters(flags: InodeFlags) -> String {
    let letter = |flag, letter| if flags.contains(flag) { letter } else { '-' };
    [letter(InodeFlags::IMMUTABLE, 'i'), letter(InodeFlags::APPEND_ONLY, 'a')].iter().collect()
}

/// Opens a file whose flags are read or set. Returns `None` for a symbolic link below an argument. If `skips`
/// is true, also returns `None` for an object that cannot have flags.
pub(super) fn open(target: &VisitedFile<'_>, skips: bool) -> eyrie::Result<Option<File<Dir<Files>>>> {
    if target.is_link_below
        || skips && !target.files.stat(Target::Follow(target.path.into()))?.kind.has_inode_flags()
    {
        return Ok(None);
    }
    let handle = target.files.open(target.path.into(), OpenFlags::READ, 0)?;
    Ok(Some(File::from_handle(target.files.clone(), handle, false)))
}
