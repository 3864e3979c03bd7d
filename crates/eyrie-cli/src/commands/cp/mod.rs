//! `eyrie cp`: copies files between host and volumes, in any direction.

mod one;
mod stream;

use clap::Args;

pub(super) use self::one::{Copying, Existing, copy_one, existing};
use crate::copy::Reflink;
use crate::endpoint::for_each_source;
use crate::failure::Result;
use crate::output::Output;
use crate::place::{self, Place};
use crate::volumes::Purpose;

/// Copy files to, from, inside or between volumes
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  eyrie cp notes.txt vol:/notes.txt
  eyrie cp -r vol:/share/doc ./doc
  eyrie cp -au one:/data two:/
  curl https://example.org/ | eyrie cp - vol:/page
  eyrie cp vol:/page - | wc -c

Copies keep modes, times, links, holes and extended attributes, as with `cp -a`. Owners are kept if root \
copies. Symbolic links are copied, not followed.
In an existing directory the copy gets the name of its source. An existing file stays until the new copy is \
complete, and is then replaced. A directory is copied into an existing directory of the same name, entry by \
entry.
The source - is standard input, and the target - is standard output, for one file of a volume. A host file \
of this name is ./-.

{}", place::HELP))]
pub struct CpArgs {
    /// Files and directories to copy, or - for standard input
    #[arg(value_name = "SOURCE", required = true, value_parser = Place::parser())]
    sources: Vec<Place>,
    /// New name of the copy, an existing directory to copy into, or - for standard output
    #[arg(value_name = "TARGET", value_parser = Place::parser())]
    target: Place,
    /// Copy directories and their contents
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,
    /// Like -r, and give existing directories the attributes of their sources
    #[arg(long, short)]
    archive: bool,
    /// Replace existing files, which is the default
    #[arg(long, short)]
    force: bool,
    /// Keep existing files; -n is stronger than -f and -u
    #[arg(long, short)]
    no_clobber: bool,
    /// Keep existing files that are at least as new as their sources
    #[arg(long, short)]
    update: bool,
    /// Keep modes, owners and times, which is the default
    #[arg(short = 'p')]
    preserve: bool,
    /// Share the storage of the sources inside a volume: a copy takes space only where it changes
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, require_equals = true,
        default_missing_value = "always")]
    reflink: Reflink,
    /// Print each file after it is copied
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(arguments: CpArgs, output: &mut Output) -> Result<()> {
    if stream::is_named(&arguments) {
        return stream::run(&arguments, output);
    }
    let copying = Copying {
        recursive: arguments.recursive || arguments.archive,
        merge: true,
        attributes: arguments.archive,
        existing: match (arguments.no_clobber, arguments.update) {
            (true, _) => Existing::Keep,
            (false, true) => Existing::Update,
            (false, false) => Existing::Replace,
        },
        refuses_special: true,
        reflink: arguments.reflink,
        verbose: arguments.verbose,
    };
    for_each_source(&arguments.sources, &arguments.target, "cp", Purpose::Read, |from, to| {
        copy_one(from, to, copying)
    })
}
