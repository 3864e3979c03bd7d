//! `eyrie completions`: writes the completions of a shell.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Result;
use crate::output::Output;

/// Write a shell completion script
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie completions bash > ~/.local/share/bash-completion/completions/eyrie
  eyrie completions zsh > ~/.zfunc/_eyrie
  eyrie completions fish > ~/.config/fish/completions/eyrie.fish")]
pub struct CompletionsArgs {
    /// Shell for which to write the script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Writes the completion script. `command` is the definition of the command line, with all subcommands.
pub fn run(arguments: &CompletionsArgs, mut command: Command, output: &mut Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "eyrie", &mut script);
    Ok(output.write_all(&script)?)
}
