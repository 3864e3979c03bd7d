//! Programs of the host, and the Debian packages that they come from.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{Result, output};

/// A program, and the name of its Debian package. An absolute path names a file that is no program, such as a
/// header.
pub type Packaged = (&'static str, &'static str);

/// Returns the path of a program, or of a file with an absolute path.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    // Joining an absolute path gives that path.
    std::env::split_paths(&path).chain(more).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Returns the packages whose programs are missing, each once.
pub fn missing(programs: &[Packaged]) -> Vec<&'static str> {
    let missing = programs.iter().filter(|(name, _)| program(name).is_none());
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Installs the packages whose programs are missing.
pub fn install(programs: &[Packaged]) -> Result<()> {
    let packages = missing(programs);
    if packages.is_empty() {
        return Ok(());
    }
    println!("installing {}", packages.join(", "));
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages);
    update_lists()
        .and_then(|()| output(install.env("DEBIAN_FRONTEND", "noninteractive")))
        .map_err(|error| format!("needs the Debian packages {}: {error}", packages.join(", ")))?;
    Ok(())
}

/// Updates the lists of packages.
pub fn update_lists() -> Result<()> {
    output(Command::new("apt-get").args(["update", "-qq"])).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_missing_programs_are_named_once() {
        let programs =
            [("no-such-a", "second"), ("no-such-b", "first"), ("/no/such.h", "second"), ("sh", "dash")];
        assert_eq!(missing(&programs), ["first", "second"]);
        assert!(program("/etc/passwd").is_some());
    }
}
