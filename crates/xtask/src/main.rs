//! Checks of the workspace that need more than cargo: `cargo xtask --help` lists them.

#![forbid(unsafe_code)]

mod dax_guest;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks of the workspace that need more than cargo.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run the tests of the medium pmem on emulated persistent memory, and kill the machine under a program
    DaxGuest(dax_guest::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::DaxGuest(arguments) => dax_guest::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
