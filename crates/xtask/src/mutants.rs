//! The task `mutants` breaks each rule of crash safety except those of threads and processes, one at a time.
//! The crash explorer must notice each broken rule.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

use crate::run::Result;

/// See [`super::Task::Mutants`].
#[derive(Debug, Args)]
pub struct MutantsArgs {
    /// Maximum processor time for one mutant, such as 60s
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// Break only this rule of docs/rules.md; may be given several times
    #[arg(long, value_name = "RULE")]
    only: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Builds the command `eyrie` with the feature `mutants`, and runs the mutants with this command. Like a
/// release, it has no assertions. The runs are short, so the build leaves out link-time optimisation, which
/// would take longer than it saves.
pub fn run(arguments: &MutantsArgs) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--package", "eyriefs-cli", "--features", "mutants"]);
    build.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    succeed(build.stdin(Stdio::null()))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let mut explore = Command::new(target.join("release/eyrie"));
    explore.args(["explore", "--mutants"]);
    explore.args(arguments.time.iter().flat_map(|time| ["--time", time]));
    explore.args(arguments.only.iter().flat_map(|rule| ["--only", rule]));
    explore.args(arguments.json.then_some("--json"));
    succeed(explore.stdin(Stdio::null()))
}

/// Runs a program. Returns an error if the program fails.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
