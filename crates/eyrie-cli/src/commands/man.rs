//! `eyrie man`: writes the manual pages.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;

use crate::failure::{Doing, Result};
use crate::output::Output;
use crate::text;

/// Write the manual pages
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie man ~/.local/share/man/man1
  eyrie man | man -l -

Each command has a page of its own.")]
pub struct ManArgs {
    /// Directory for the pages, made if it is missing [default: write to standard output]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Writes the pages. `command` is the definition of the command line, with all subcommands.
pub fn run(arguments: &ManArgs, command: Command, output: &mut Output) -> Result<()> {
    let pages = pages(command);
    if let Some(dir) = &arguments.dir {
        let place = text::path(dir);
        fs::create_dir_all(dir).doing("make the directory", &place)?;
        return pages.iter().try_for_each(|page| page.generate_to(dir).map(drop)).doing("write to", place);
    }
    Ok(pages.iter().try_for_each(|page| page.render(output))?)
}

/// Makes the page of each command that is not hidden. The page of a command comes before those of its
/// subcommands.
fn pages(command: Command) -> Vec<Man> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let mut pending = vec![command];
    while let Some(command) = pending.pop() {
        let inner: Vec<_> = command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned().collect();
        pending.extend(inner.into_iter().rev());
        pages.push(Man::new(command).source(concat!("eyrie ", env!("CARGO_PKG_VERSION"))));
    }
    pages
}
