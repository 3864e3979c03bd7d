//! The command `eyrie`: thin over the library `eyrie`.
//!
//! Errors are one line on standard error, "eyrie: what: where: what to do", and an exit status: 1 for failures, 2 for
//! wrong arguments, 130 after Ctrl-C; `fsck` has those of fsck(8). Standard output may be closed at any time.

#![forbid(unsafe_code)]

mod archive;
mod arguments;
mod commands;
mod copy;
mod failure;
mod interrupt;
mod output;
mod place;
mod text;
mod tour;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let mut output = Output::new();
    let result = commands::run(arguments, &mut output);
    let flushed = output.flush().map_err(Failure::from);
    // What was written before an error is shown; the error is the result.
    match result.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = failure.to_string();
            if !line.is_empty() {
                tell(&line);
            }
            ExitCode::from(failure.status())
        }
    }
}

/// One line on standard error. Nothing can be done when nobody reads it.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "eyrie: {line}");
}

/// The subcommand that was given, where the error of an argument does not tell.
fn subcommand() -> String {
    let known = Arguments::command();
    let found = std::env::args_os().skip(1).find_map(|word| known.find_subcommand(word).cloned());
    found.map_or_else(String::new, |found| found.get_name().to_owned())
}

/// Help and version go to standard output; what is wrong becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let told = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if told {
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
    tell(&format!("{what}: see `{} --help`", words.join(" ")));
    // As fsck(8), where 2 would ask for a reboot.
    ExitCode::from(if words.get(1) == Some(&"fsck") { 16 } else { 2 })
}
