//! The command `eyrie`, a thin layer over the library `eyrie`.
//!
//! Most errors print a line to standard error: "eyrie: failed action: place: reason and advice". `eyrie
//! explore` adds the scripts and the command that repeat the error. The exit status is 1 for failures, 2 for
//! wrong arguments, 3 if something that the arguments name does not exist, and 130 after Ctrl-C. `fsck` has
//! the statuses of fsck(8), `scrub` has some of them, and `diff` has those of diff(1). A closed standard
//! output is no error, except for an archive, which would be incomplete. A command that only prints ends
//! then. A command that changes files completes its work. Any other error of standard output is an error of
//! the command, and a command that changes files reports it at the end.

#![forbid(unsafe_code)]

mod archive;
mod background;
mod commands;
mod copy;
mod endpoint;
mod failure;
mod input;
mod interrupt;
mod opened;
mod output;
mod place;
mod text;
mod times;
mod transfer;
mod users;
mod volumes;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::commands::Arguments;
use crate::failure::{Failure, print_error};
use crate::output::Output;

fn main() -> ExitCode {
    #[cfg(feature = "mutants")]
    eyrie_sim::explore::mutants::break_rule_of_environment();
    let arguments = match Arguments::of_process() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let mut output = Output::new();
    let result = commands::run(arguments, &mut output);
    let flushed = output.flush().map_err(Failure::from);
    // Output before an error is still printed. The error decides the exit status.
    match result.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                print_error(&text);
            }
            ExitCode::from(failure.status())
        }
    }
}

/// Returns the subcommand in the arguments, for errors that do not name one.
fn subcommand() -> String {
    let known = Arguments::command();
    let found = std::env::args_os().skip(1).find_map(|word| known.find_subcommand(word).cloned());
    found.map_or_else(String::new, |found| found.get_name().to_owned())
}

/// Prints the help, the version, or the error of an argument as one line. Returns the exit status.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if is_help {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let what = lines.collect::<Vec<_>>().join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let command = usage.map_or_else(|| format!("eyrie {}", subcommand()), str::to_owned);
    let words: Vec<&str> =
        command.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    print_error(&format!("{what}: see `{} --help`", words.join(" ")));
    // fsck(8) has status 16 for wrong arguments, because its status 2 means that a reboot is needed.
    ExitCode::from(if words.get(1) == Some(&"fsck") { 16 } else { 2 })
}
