//! Long checks and measurements of the workspace, as tasks. `cargo xtask --help` lists the tasks.

#![forbid(unsafe_code)]

mod dax_guest;
mod figures;
mod instructions;
mod mutants;
mod packages;
mod run;
mod suites;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Long checks and measurements of the workspace
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run the tests of persistent memory in a machine that emulates it, then kill the machine while a
    /// program changes a volume
    DaxGuest(dax_guest::DaxGuestArgs),
    /// Measure every promised figure; fails if one is missed
    Figures(figures::FiguresArgs),
    /// Count the instructions of the hot calls with callgrind, and compare them with another commit or with
    /// docs/results/instructions.md
    Instructions(instructions::InstructionsArgs),
    /// Run public test suites and programs on mounted volumes; needs root and `/dev/fuse`
    MountSuites(suites::MountSuitesArgs),
    /// Break each rule of docs/rules.md except those of threads and processes, one at a time; fails if the
    /// crash explorer misses a broken rule
    Mutants(mutants::MutantsArgs),
    /// Do one step of a measurement
    #[command(hide = true)]
    Child(figures::ChildArgs),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::DaxGuest(arguments) => dax_guest::run(&arguments),
        Task::Figures(arguments) => figures::run(&arguments),
        Task::Instructions(arguments) => instructions::run(&arguments),
        Task::MountSuites(arguments) => suites::run(&arguments),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Child(arguments) => figures::child(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
