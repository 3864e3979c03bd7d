//! The programs that run in the guest.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::run::{Result, output};

/// A program of the workspace, and its name in the guest.
pub struct Program {
    pub name: &'static str,
    pub path: PathBuf,
}

/// Builds the tests of the medium `pmem`, the tests of the engine on this medium, and the program that
/// changes a volume until the guest is killed. The builds are those of `cargo test --workspace`.
pub fn build() -> Result<[Program; 3]> {
    println!("building the guest's programs");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--no-run", "--workspace", "--test", "pmem", "--test", "testkit", "--quiet"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let mut built = Vec::new();
    for line in output(&mut cargo)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        if let (Some(path), Some(name)) = (message["executable"].as_str(), message["target"]["name"].as_str())
        {
            built.push((name.to_owned(), PathBuf::from(path)));
        }
    }
    let find = |name: &'static str| -> Result<Program> {
        let found = built.iter().find(|(built, _)| built == name);
        let (_, path) = found.ok_or_else(|| format!("cargo built no {name}"))?;
        Ok(Program { name, path: path.clone() })
    };
    // Cargo builds `dax_guest` for the tests of its package.
    Ok([find("pmem")?, find("testkit")?, find("dax_guest")?])
}
