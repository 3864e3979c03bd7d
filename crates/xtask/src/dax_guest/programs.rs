//! The programs that run in the guest. They are linked statically, because the guest has only the shared
//! libraries of `mke2fs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::run::{Result, output};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A program of the workspace, and its name in the guest.
pub struct Program {
    pub name: &'static str,
    pub path: PathBuf,
}

/// Builds the tests of the medium `pmem`, the tests of the engine on this medium, and the program that
/// changes a volume until the guest is killed.
pub fn build(target_dir: &Path) -> Result<[Program; 3]> {
    println!("building the guest's programs");
    let tests = [
        "test",
        "--no-run",
        "-p",
        "eyriefs-medium",
        "-p",
        "eyriefs-testkit",
        "--test",
        "pmem",
        "--test",
        "testkit",
    ];
    let program = ["build", "--profile", "test", "-p", "eyriefs-testkit", "--bin", "dax_guest"];
    let tests = executables(&tests, target_dir)?;
    let programs = executables(&program, target_dir)?;
    let find = |list: &[(String, PathBuf)], name: &'static str| -> Result<Program> {
        let found = list.iter().find(|(built, _)| built == name);
        let (_, path) = found.ok_or_else(|| format!("cargo built no {name}"))?;
        assert_static(path)?;
        Ok(Program { name, path: path.clone() })
    };
    Ok([find(&tests, "pmem")?, find(&tests, "testkit")?, find(&programs, "dax_guest")?])
}

/// Runs cargo with these arguments. Returns the names and paths of the executables that it built.
fn executables(arguments: &[&str], target_dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).args([
        "--quiet",
        "--target",
        TARGET,
        "--message-format",
        "json-render-diagnostics",
    ]);
    cargo.arg("--target-dir").arg(target_dir);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols");
    let mut found = Vec::new();
    for line in output(&mut cargo)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        if let (Some(path), Some(name)) = (message["executable"].as_str(), message["target"]["name"].as_str())
        {
            found.push((name.to_owned(), PathBuf::from(path)));
        }
    }
    Ok(found)
}

/// Returns an error if a program needs shared libraries.
fn assert_static(path: &Path) -> Result<()> {
    // `ldd` reports a static program on standard output or on standard error, depending on its version.
    let output = Command::new("ldd").arg(path).output().map_err(|error| format!("ldd: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if said.contains("statically linked") || said.contains("not a dynamic executable") {
        return Ok(());
    }
    Err(format!("{} needs shared libraries: {said}", path.display()).into())
}
