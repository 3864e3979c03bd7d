//! The task `instructions` counts the instructions of the hot calls, and compares them with another commit or
//! with the counts of `docs/results/instructions.md`.
//!
//! Counts of instructions do not depend on the load of the machine, so a small loss is visible. The same
//! toolchain builds both commits, and both run this commit's version of the program of calls (`hot_calls`).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages;
use crate::run::{Result, directory, output};

const PROGRAM: &str = "crates/eyrie-testkit/src/bin/hot_calls.rs";
const CALLS: [&str; 12] = [
    "open",
    "stat",
    "read",
    "overwrite",
    "append",
    "create",
    "unlink",
    "rename",
    "mkdir",
    "rmdir",
    "get",
    "put",
];
/// Number of calls of one run of the program.
const CALLS_OF_RUN: f64 = 2000.0;
/// Maximum ratio of the instructions of a call to those of the same call in the other commit.
const LIMIT: f64 = 1.02;
/// The page with the counts that `--check` permits.
const PAGE: &str = "docs/results/instructions.md";
/// The toolchain and the processor of the counts in [`PAGE`].
const COUNTED_WITH: &str = "Rust 1.95 on an AMD EPYC";
/// Maximum ratio of the instructions of a call to those in [`PAGE`].
const CHECK_LIMIT: f64 = 1.05;

#[derive(Debug, clap::Args)]
pub struct InstructionsArgs {
    /// Compare with this commit; fails if a call has over 2 % more instructions than in that commit
    #[arg(long, value_name = "COMMIT", conflicts_with = "check")]
    base: Option<String>,
    /// Compare with docs/results/instructions.md; fails if a call has over 5 % more instructions than there
    #[arg(long)]
    check: bool,
    /// Directory in memory, for the volumes
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
}

/// Counts the instructions, and prints a table.
pub fn run(arguments: &InstructionsArgs) -> Result<()> {
    packages::install(&[("valgrind", "valgrind")])?;
    let memory = directory(&arguments.memory)?.join(format!("eyrie-instructions-{}", std::process::id()));
    let now = counts(Path::new("."), &memory)?;
    if arguments.check {
        let permitted = permitted(&std::fs::read_to_string(PAGE)?)?;
        return compare("permitted", &permitted, &now, CHECK_LIMIT).or_else(|error| {
            let toolchain = output(Command::new("rustc").arg("--version"))?;
            let toolchain = toolchain.trim();
            Err(format!("{error}; {PAGE} is for {COUNTED_WITH}, and this run has {toolchain}").into())
        });
    }
    let Some(base) = &arguments.base else {
        println!("| call | instructions |\n| --- | --- |");
        CALLS.iter().zip(now).for_each(|(call, now)| println!("| {call} | {now:.0} |"));
        return Ok(());
    };
    let tree = directory(Path::new("target"))?.join("instructions-base");
    if tree.exists() {
        // An interrupted run left this directory. Git may know it as a worktree or not.
        std::fs::remove_dir_all(&tree)?;
    }
    // If git still knows the worktree of an earlier run, it forgets the worktree now. The two `--force` below
    // replace one that an interrupted `add` has locked.
    output(Command::new("git").args(["worktree", "prune"]))?;
    output(
        Command::new("git").args(["worktree", "add", "--force", "--force", "--detach"]).arg(&tree).arg(base),
    )?;
    let before = copy_program(&tree).and_then(|()| counts(&tree, &memory));
    output(Command::new("git").args(["worktree", "remove", "--force"]).arg(&tree))?;
    compare(base, &before?, &now, LIMIT)
}

/// Prints both counts of each call. Fails if the ratio of a call is above `limit`.
fn compare(title: &str, before: &[f64], now: &[f64], limit: f64) -> Result<()> {
    let mut above = Vec::new();
    println!("{:>10}  {title:>12}  {:>12}  {:>7}", "call", "now", "change");
    for ((call, now), before) in CALLS.iter().zip(now).zip(before) {
        let ratio = now / before;
        let verdict = if ratio > limit {
            above.push(*call);
            "  MISSED"
        } else {
            ""
        };
        println!("{call:>10}  {before:>12.0}  {now:>12.0}  {:>+6.1}%{verdict}", (ratio - 1.0) * 100.0);
    }
    if above.is_empty() {
        return Ok(());
    }
    Err(format!("over {:.0} % more instructions: {}", (limit - 1.0) * 100.0, above.join(", ")).into())
}

/// Returns the counts in the table of [`PAGE`].
fn permitted(page: &str) -> Result<Vec<f64>> {
    let count = |call: &&str| -> Result<f64> {
        let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {call} | ")));
        let count = row.and_then(|row| row.strip_suffix(" |")).and_then(|count| count.parse().ok());
        count.ok_or_else(|| format!("{PAGE} has no count of {call}").into())
    };
    CALLS.iter().map(count).collect()
}

/// Copies the program of calls to the other commit. In a commit without `Posix::rename_with`, the copy calls
/// `rename` instead, and passes paths without a conversion.
fn copy_program(tree: &Path) -> Result<()> {
    let program = std::fs::read_to_string(PROGRAM)?;
    let found = Command::new("git").arg("-C").arg(tree).args(["grep", "-q", "fn rename_with("]).status()?;
    let older = [
        ("rename_with", "rename"),
        ("]).into()", "])"),
        ("path.into()", "path"),
        ("\"/large\".into()", "\"/large\""),
    ];
    let replace = |program: String, (new, old): (&str, &str)| program.replace(new, old);
    let program = if found.success() { program } else { older.into_iter().fold(program, replace) };
    let copy = tree.join(PROGRAM);
    std::fs::create_dir_all(copy.with_file_name(""))?;
    Ok(std::fs::write(copy, program)?)
}

/// Builds the program in `tree`, and returns the instructions of one call of each kind.
fn counts(tree: &Path, memory: &Path) -> Result<Vec<f64>> {
    let mut build = Command::new(env!("CARGO"));
    for variable in ["LTO", "CODEGEN_UNITS", "DEBUG"] {
        // The build must be that of a release.
        build.env_remove(format!("CARGO_PROFILE_RELEASE_{variable}"));
    }
    // The arguments have the path of the manifest instead of the name of the package, because the package may
    // have another name in an older commit.
    build.current_dir(tree).args([
        "build",
        "--release",
        "--manifest-path",
        "crates/eyrie-testkit/Cargo.toml",
    ]);
    output(build.args(["--bin", "hot_calls", "--target-dir", "target"]))?;
    let program = tree.join("target/release/hot_calls");
    let count = |call: &&str| {
        // Each count gets a new volume with the same contents, because some calls change the volume.
        directory(memory)?;
        let counted = output(Command::new(&program).args(["prepare"]).arg(memory))
            .and_then(|_| count(&program, call, memory));
        std::fs::remove_dir_all(memory)?;
        counted
    };
    CALLS.iter().map(count).collect()
}

/// Returns the instructions of one call on one volume.
fn count(program: &Path, call: &str, memory: &Path) -> Result<f64> {
    let out = memory.join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind", "--toggle-collect=hot_calls::counted*"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display())).arg(program).arg(call).arg(memory);
    output(&mut valgrind)?;
    let counted = std::fs::read_to_string(out)?;
    let totals = counted.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap_or_default();
    let total: f64 = totals.trim().parse().unwrap_or(0.0);
    if total == 0.0 {
        return Err(format!("callgrind counted nothing in {call}").into());
    }
    Ok(total / CALLS_OF_RUN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_a_count_of_each_call() {
        let page = std::fs::read_to_string(Path::new("../..").join(PAGE)).expect("the page");
        let counts = permitted(&page).expect("a count of each call");
        assert!(counts.iter().all(|count| (500.0..20_000.0).contains(count)), "{counts:?}");
        let words: Vec<_> = page.split_whitespace().collect();
        assert!(words.join(" ").contains(COUNTED_WITH), "the page names no toolchain");
        let error = permitted(&page.replace("| get |", "| got |")).expect_err("a call is missing");
        assert_eq!(error.to_string(), "docs/results/instructions.md has no count of get");
    }

    #[test]
    fn more_instructions_than_the_limit_are_an_error() {
        let before = [1000.0; CALLS.len()];
        let mut now = [1050.0; CALLS.len()];
        assert!(compare("before", &before, &now, CHECK_LIMIT).is_ok());
        now[3] = 1051.0;
        let error = compare("before", &before, &now, CHECK_LIMIT).expect_err("one call is above the limit");
        assert_eq!(error.to_string(), "over 5 % more instructions: overwrite");
    }
}
