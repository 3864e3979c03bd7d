//! `eyrie dump`: writes a directory tree of a volume as an archive.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use eyrie::Credentials;

use crate::archive;
use crate::copy::{Progress, Reporter, Style, Tally};
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::place::{Inside, Place};
use crate::transfer::{Summary, refuse_own_storage, refuse_terminal, require_directory};
use crate::volumes::Purpose;
use crate::{input, interrupt, text, volumes};

/// Bytes of the write buffer.
const BUFFER_BYTES: usize = 256 << 10;
const STANDARD_OUTPUT: &str = "standard output";

/// Write a directory tree of a volume to a tar archive
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie dump vol:/share -o share.tar
  eyrie dump vol:/ | gzip > vol.tar.gz
  eyrie dump vol:/share | tar -t
  eyrie dump old:/ | eyrie load new:/

Modes, owners, times, links, holes and extended attributes are kept. GNU tar extracts the archive. Run it as \
root to restore owners and devices, and with --xattrs to restore extended attributes. An archive cannot hold \
sockets: each is reported, and the exit status is then 1.")]
pub struct DumpArgs {
    /// Directory to archive
    #[arg(value_name = "VOLUME:/dir", value_parser = Place::parser())]
    from: Place,
    /// Archive to write; an existing file is replaced [default: -, standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print each path after it is written; needs -o
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,
    /// Print the summary as JSON; needs -o
    #[arg(long)]
    json: bool,
    /// Show no progress, and print no summary
    #[arg(long, short, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,
}

pub fn run(arguments: DumpArgs, output: &mut Output) -> Result<()> {
    let inside = arguments.from.inside_or_root();
    let file = input::named_file(arguments.output);
    match &file {
        None if arguments.json || arguments.verbose => {
            let why = "the archive is written there: name a file with -o";
            return Err(Failure::usage("cannot use --json or --verbose", STANDARD_OUTPUT, why));
        }
        None => {
            let why = "name a file with -o, or write to a pipe";
            refuse_terminal(io::stdout().is_terminal(), STANDARD_OUTPUT, why)?;
        }
        Some(file) => {
            let file = std::path::absolute(file).doing("write", text::path(file))?;
            refuse_own_storage(&inside.volume, &file, "cannot dump to")?;
        }
    }
    interrupt::install();
    let started = Instant::now();
    let style = Style::of(arguments.verbose, arguments.quiet);
    let tally = write_archive(&inside, file.as_deref(), style, output)?;
    let to_stderr = file.is_none() || arguments.verbose;
    let summary =
        Summary { verb: "dumped", json: arguments.json, quiet: arguments.quiet, to_stderr, started };
    summary.print(&tally, &inside.to_string(), output)
}

/// Writes the tree `inside` to `file`, or to standard output.
fn write_archive(inside: &Inside, file: Option<&Path>, style: Style, output: &mut Output) -> Result<Tally> {
    volumes::with_volume(&inside.volume, Purpose::Read, |volume| {
        let source = volume.files(Credentials::of_process());
        let root = require_directory(&source, inside, "dump")?;
        let reporter = Reporter::new(&inside.to_path(), String::new(), "dump", style);
        let progress = Progress::new(&reporter);
        match file {
            None => archive::dump(&source, &root, &mut *output, &progress),
            Some(file) => {
                let file = File::create(file).doing("write", text::path(file))?;
                let file = BufWriter::with_capacity(BUFFER_BYTES, file);
                archive::dump(&source, &root, file, &progress)
            }
        }
        .doing("dump", inside)?;
        progress.outcome(file.unwrap_or(Path::new(STANDARD_OUTPUT)))
    })
}
