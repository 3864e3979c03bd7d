//! `eyrie import`: copies a directory tree of the host into a volume.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use eyrie::Credentials;

use crate::copy::{Job, Reflink, Reporter, Style, copy_tree};
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::place::{Place, storage};
use crate::transfer::{Summary, refuse_existing, refuse_own_storage};
use crate::volumes::Purpose;
use crate::{interrupt, text, volumes};

/// Copy a directory tree of the host into a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie import /usr/share /dev/shm/vol:/share
  eyrie import -v . vol:/backup > done.txt
  eyrie import --json /etc vol:/etc

Modes, owners, times, links, holes and extended attributes are kept. Files that cannot be read are reported, \
and the exit status is then 1. Extended attributes that cannot be kept are counted.")]
pub struct ImportArgs {
    /// Directory to copy
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Directory to make, which must not exist
    #[arg(value_name = "VOLUME:/new", value_parser = Place::parser())]
    to: Place,
    /// Print each path after it is copied
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress, and print no summary
    #[arg(long, short, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,
}

pub fn run(arguments: ImportArgs, output: &mut Output) -> Result<()> {
    let inside = arguments.to.inside()?;
    let shown = text::path(&arguments.from);
    let from = arguments.from.canonicalize().doing("import", &shown)?;
    if !from.is_dir() {
        return Err(Failure::new("cannot import", shown, "not a directory: copy files with `eyrie cp`"));
    }
    refuse_own_storage(&inside.volume, &from, "cannot import")?;
    let (source, _) = volumes::host(&from)?;
    interrupt::install();
    let started = Instant::now();
    let tally = volumes::with_volume(&inside.volume, Purpose::Change, |volume| {
        // The copies get the modes of their sources, so the umask does not apply.
        let target = volume.files(Credentials::of_process().with_umask(0));
        refuse_existing(&target, &inside.path, "import into", &inside.to_string())?;
        // If the volume lies below the imported directory, the import must not copy the volume into itself.
        let itself = storage(&inside.volume);
        let prefix = format!("{}:", text::path(&inside.volume));
        copy_tree(&Job {
            source: &source,
            from: &from,
            target: &target,
            to: &inside.path,
            except: Some(&itself),
            reflink: Reflink::Never,
            reporter: &Reporter::new(
                &arguments.from,
                prefix,
                "import",
                Style::of(arguments.verbose, arguments.quiet),
            ),
        })
    })?;
    let summary = Summary {
        verb: "imported",
        json: arguments.json,
        quiet: arguments.quiet,
        to_stderr: arguments.verbose,
        started,
    };
    summary.print(&tally, &shown, output)
}
