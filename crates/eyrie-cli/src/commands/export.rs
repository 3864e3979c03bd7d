//! `eyrie export`: copies a directory tree of a volume to the host.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use eyrie::Credentials;

use crate::copy::{Job, Reflink, Reporter, Style, copy_tree};
use crate::failure::Result;
use crate::output::Output;
use crate::place::Place;
use crate::transfer::{Summary, refuse_existing, refuse_own_storage, require_directory};
use crate::volumes::Purpose;
use crate::{interrupt, text, volumes};

/// Copy a directory tree of a volume to the host
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie export /dev/shm/vol:/share /tmp/share
  eyrie export --json vol:/ everything

Modes, times, links, holes and extended attributes are kept. Owners are kept if root exports.")]
pub struct ExportArgs {
    /// Directory to copy
    #[arg(value_name = "VOLUME:/dir", value_parser = Place::parser())]
    from: Place,
    /// Directory to make, which must not exist
    #[arg(value_name = "NEW")]
    to: PathBuf,
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

pub fn run(arguments: ExportArgs, output: &mut Output) -> Result<()> {
    let inside = arguments.from.inside_or_root();
    let (target, to) = volumes::host(&arguments.to)?;
    refuse_existing(&target, &to, "export to", &text::path(&arguments.to))?;
    refuse_own_storage(&inside.volume, &to, "cannot export to")?;
    interrupt::install();
    let started = Instant::now();
    let tally = volumes::with_volume(&inside.volume, Purpose::Read, |volume| {
        let source = volume.files(Credentials::of_process());
        let from = require_directory(&source, &inside, "export")?;
        copy_tree(&Job {
            source: &source,
            from: &from,
            target: &target,
            to: &to,
            except: None,
            reflink: Reflink::Never,
            reporter: &Reporter::new(
                &inside.to_path(),
                String::new(),
                "export",
                Style::of(arguments.verbose, arguments.quiet),
            ),
        })
    })?;
    let summary = Summary {
        verb: "exported",
        json: arguments.json,
        quiet: arguments.quiet,
        to_stderr: arguments.verbose,
        started,
    };
    summary.print(&tally, &inside.to_string(), output)
}
