//! The programs that run in the guest: built without shared libraries, because the guest has none.

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

/// Builds the tests of the medium and of the engine on it, and the program for crashes.
pub fn build(target_dir: &Path) -> Result<[Program; 3]> {
    println!("building the guest's programs");
    let tests =
        ["test", "--no-run", "-p", "eyrie-medium", "-p", "eyrie-testkit", "--test", "pmem", "--test", "scm"];
    let example = ["build", "--profile", "test", "-p", "eyrie-testkit", "--example", "dax_guest"];
    let tests = executables(&tests, target_dir)?;
    let examples = executables(&example, target_dir)?;
    let find = |list: &[(String, PathBuf)], name: &'static str| -> Result<Program> {
        let found = list.iter().find(|(built, _)| built == name);
        let (_, path) = found.ok_or_else(|| format!("cargo built no {name}"))?;
        assert_static(path)?;
        Ok(Program { name, path: path.clone() })
    };
    Ok([find(&tests, "pmem")?, find(&tests, "scm")?, find(&examples, "dax_guest")?])
}

/// Runs cargo; the names and paths of the executables that it made.
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

fn assert_static(path: &Path) -> Result<()> {
    // Of a program without shared libraries `ldd` says so, as a complaint or not.
    let said = Command::new("ldd").arg(path).output().map_err(|error| format!("ldd: {error}"))?;
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if said.contains("statically linked") || said.contains("not a dynamic executable") {
        return Ok(());
    }
    Err(format!("{} needs shared libraries: {said}", path.display()).into())
}
