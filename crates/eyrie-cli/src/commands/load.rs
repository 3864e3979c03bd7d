//! `eyrie load`: makes a directory tree of a volume from an archive.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use eyrie::Credentials;

use crate::archive;
use crate::copy::{Reporter, Style};
use crate::failure::{Doing, Result};
use crate::output::Output;
use crate::place::Place;
use crate::transfer::{Summary, refuse_terminal};
use crate::volumes::Purpose;
use crate::{input, interrupt, text, volumes};

/// Make a directory tree of a volume from a tar archive
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie load vol:/share -i share.tar
  eyrie load new:/ < vol.tar
  gzip -dc linux.tar.gz | eyrie load vol:/linux
  tar -c -C /etc . | eyrie load vol:/etc

Modes, owners (by number), times, links, holes and extended attributes are kept. All members are loaded \
below the directory: a leading `/` of a name is ignored, and names with `..` are refused. Members that \
cannot be loaded are reported, and the exit status is then 1. The other members are loaded nevertheless.")]
pub struct LoadArgs {
    /// Directory to load into, which must be new or empty
    #[arg(value_name = "VOLUME:/dir", value_parser = Place::parser())]
    to: Place,
    /// Archive to read [default: -, standard input]
    #[arg(long, short, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Print each path after it is loaded
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress, and print no summary
    #[arg(long, short, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,
}

pub fn run(arguments: LoadArgs, output: &mut Output) -> Result<()> {
    let inside = arguments.to.inside()?;
    let (input, mut source) = open_input(arguments.input)?;
    let from = text::path(&source);
    source.as_mut_os_string().push(":");
    interrupt::install();
    let started = Instant::now();
    let tally = volumes::with_volume(&inside.volume, Purpose::Change, |volume| {
        // The entries get the modes of the archive, so the umask does not apply.
        let target = volume.files(Credentials::of_process().with_umask(0));
        let prefix = format!("{}:", text::path(&inside.volume));
        let reporter = Reporter::new(&source, prefix, "load", Style::of(arguments.verbose, arguments.quiet));
        archive::load(input, &from, &target, &inside.path, &reporter)
    })?;
    let summary = Summary {
        verb: "loaded",
        json: arguments.json,
        quiet: arguments.quiet,
        to_stderr: arguments.verbose,
        started,
    };
    summary.print(&tally, &from, output)
}

/// Opens the input of an archive. Also returns the name of the input for messages.
fn open_input(file: Option<PathBuf>) -> Result<(Box<dyn Read>, PathBuf)> {
    match input::named_file(file) {
        None => {
            let why = "name a file with -i, or read from a pipe";
            refuse_terminal(io::stdin().is_terminal(), input::STANDARD_INPUT, why)?;
            Ok((Box::new(io::stdin().lock()), PathBuf::from(input::STANDARD_INPUT)))
        }
        Some(file) => {
            let input = File::open(&file).doing("read", text::path(&file))?;
            Ok((Box::new(input), file))
        }
    }
}
