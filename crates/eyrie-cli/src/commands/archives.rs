//! `dump` and `load`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use eyrie::Credentials;

use super::transfer::{Summary, refuse_own_directory, require_directory};
use super::with_volume;
use crate::archive;
use crate::arguments::{Dump, Load};
use crate::copy::{Progress, Watch};
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{interrupt, text};

/// Bytes that are written to a file at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The file that was named, if it is one.
fn named(file: Option<PathBuf>) -> Option<PathBuf> {
    file.filter(|file| file.as_os_str() != "-")
}

/// Archives are no text.
fn refuse_terminal(terminal: bool, stream: &str, why: &str) -> Result<()> {
    if terminal { Err(Failure::usage("not with a terminal", stream, why)) } else { Ok(()) }
}

/// Writes an archive.
pub fn dump(arguments: Dump, output: &mut Output) -> Result<()> {
    let inside = arguments.from.inside_or_root();
    let file = named(arguments.output);
    match &file {
        None if arguments.json || arguments.verbose => {
            let why = "it gets the archive: name a file with -o";
            return Err(Failure::usage("not with --json or --verbose", "standard output", why));
        }
        None => {
            let why = "name a file with -o, or write to a pipe";
            refuse_terminal(io::stdout().is_terminal(), "standard output", why)?;
        }
        Some(file) => {
            let file = std::path::absolute(file).doing("write", text::path(file))?;
            refuse_own_directory(&inside.volume, &file, "cannot dump to")?;
        }
    }
    interrupt::watch();
    let started = Instant::now();
    let tally = with_volume(&inside.volume, |volume| {
        let source = volume.files(Credentials::of_process());
        require_directory(&source, &inside, "dump")?;
        let watch = Watch::new(Path::new(&inside.to_string()), String::new(), "dump", arguments.verbose);
        let progress = Progress::new(&watch);
        let to = file.as_deref().unwrap_or(Path::new("standard output"));
        match &file {
            None => archive::dump(&source, &inside.path, &mut *output, &progress),
            Some(file) => {
                let file = File::create(file).doing("write", text::path(file))?;
                let file = BufWriter::with_capacity(BUFFER_BYTES, file);
                archive::dump(&source, &inside.path, file, &progress)
            }
        }
        .doing("dump", &inside)?;
        progress.outcome(to)
    })?;
    let aside = file.is_none() || arguments.verbose;
    let summary = Summary { verb: "dumped", json: arguments.json, aside, started };
    summary.print(&tally, &inside.to_string(), output)
}

/// Loads an archive.
pub fn load(arguments: Load, output: &mut Output) -> Result<()> {
    let inside = arguments.to.inside()?;
    let file = named(arguments.input);
    let (input, from): (Box<dyn Read>, String) = match file {
        None => {
            let why = "name a file with -i, or read from a pipe";
            refuse_terminal(io::stdin().is_terminal(), "standard input", why)?;
            (Box::new(io::stdin().lock()), "standard input".to_owned())
        }
        Some(file) => {
            let from = text::path(&file);
            (Box::new(File::open(file).doing("read", &from)?), from)
        }
    };
    interrupt::watch();
    let started = Instant::now();
    let tally = with_volume(&inside.volume, |volume| {
        // What is made gets the modes that the archive has, no umask applied.
        let target = volume.files(Credentials::of_process());
        let prefix = format!("{}:", text::path(&inside.volume));
        let watch = Watch::new(Path::new(&format!("{from}:")), prefix, "load", arguments.verbose);
        archive::load(input, &from, &target, &inside.path, &watch)
    })?;
    let summary = Summary { verb: "loaded", json: arguments.json, aside: arguments.verbose, started };
    summary.print(&tally, &from, output)
}
