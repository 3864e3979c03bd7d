//! The task `instructions` counts the instructions of the hot calls, and compares them with another commit.
//!
//! Counts of instructions do not depend on the load of the machine, so a small loss is visible. Both commits
//! are built with the same toolchain and run the same program of calls (`hot_calls`), that of this commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Result, directory, output};

const PROGRAM: &str = "crates/eyrie-testkit/src/bin/hot_calls.rs";
const CALLS: [&str; 10] =
    ["open", "stat", "read", "overwrite", "append", "create", "unlink", "rename", "get", "put"];
/// Number of calls of one run of the program.
const CALLS_OF_RUN: f64 = 2000.0;
/// Maximum ratio of the instructions of a call to those of the same call in the other commit.
const LIMIT: f64 = 1.02;

#[derive(Debug, clap::Args)]
pub struct InstructionsArgs {
    /// Compare with this commit; fails if a call has over 2 % more instructions than in that commit
    #[arg(long, value_name = "COMMIT")]
    base: Option<String>,
    /// Directory in memory, for the volumes
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
}

/// Counts the instructions, and prints a table.
pub fn run(arguments: &InstructionsArgs) -> Result<()> {
    let memory = directory(&arguments.memory)?.join(format!("eyrie-instructions-{}", std::process::id()));
    let now = counts(Path::new("."), &memory)?;
    let Some(base) = &arguments.base else {
        println!("{:>10}  {:>12}", "call", "instructions");
        CALLS.iter().zip(now).for_each(|(call, now)| println!("{call:>10}  {now:>12.0}"));
        return Ok(());
    };
    let tree = directory(Path::new("target"))?.join("instructions-base");
    let git = |arguments: &[&str]| output(Command::new("git").arg("worktree").args(arguments).arg(&tree));
    if tree.exists() {
        // An interrupted run left this worktree.
        git(&["remove", "--force"])?;
    }
    // If `target` was removed meanwhile, git still knows the worktree.
    output(Command::new("git").args(["worktree", "prune"]))?;
    output(Command::new("git").args(["worktree", "add", "--detach"]).arg(&tree).arg(base))?;
    let before = copy_program(&tree).and_then(|()| counts(&tree, &memory));
    git(&["remove", "--force"])?;
    let mut above = 0;
    println!("{:>10}  {:>12}  {:>12}  {:>7}", "call", base, "now", "change");
    for ((call, now), before) in CALLS.iter().zip(now).zip(before?) {
        let ratio = now / before;
        above += usize::from(ratio > LIMIT);
        let verdict = if ratio > LIMIT { "  MISSED" } else { "" };
        println!("{call:>10}  {before:>12.0}  {now:>12.0}  {:>+6.1}%{verdict}", (ratio - 1.0) * 100.0);
    }
    if above == 0 { Ok(()) } else { Err(format!("{above} calls have over 2 % more instructions").into()) }
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
    // The manifest names the package, because the package may have another name in an older commit.
    build.current_dir(tree).args([
        "build",
        "--release",
        "--manifest-path",
        "crates/eyrie-testkit/Cargo.toml",
    ]);
    output(build.args(["--bin", "hot_calls", "--target-dir", "target"]))?;
    let program = tree.join("target/release/hot_calls");
    let count = |call: &&str| {
        // Each kind of call gets a new volume with the same contents, because some calls change the volume.
        directory(memory)?;
        let counted = output(Command::new(&program).args(["prepare"]).arg(memory))
            .and_then(|_| count(&program, call, memory));
        std::fs::remove_dir_all(memory)?;
        counted
    };
    CALLS.iter().map(count).collect()
}

/// Returns the instructions of one call.
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
