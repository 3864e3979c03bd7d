//! `completions` and `man`: what the command says of itself.

use std::fs;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::arguments::{self, Arguments, Completions};
use crate::failure::{Doing, Result};
use crate::output::Output;
use crate::text;

/// Writes the completions of a shell.
pub fn completions(arguments: &Completions, output: &mut Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "eyrie", &mut script);
    Ok(std::io::Write::write_all(output, &script)?)
}

/// Writes the pages of the manual.
pub fn man(arguments: &arguments::Man, output: &mut Output) -> Result<()> {
    if let Some(dir) = &arguments.dir {
        let place = text::path(dir);
        fs::create_dir_all(dir).doing("make the directory", &place)?;
        return pages().iter().try_for_each(|page| page.generate_to(dir).map(drop)).doing("write to", place);
    }
    Ok(pages().iter().try_for_each(|page| page.render(output))?)
}

/// The page of each command, those above before those below.
fn pages() -> Vec<Man> {
    let mut command = Arguments::command().disable_help_subcommand(true);
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
