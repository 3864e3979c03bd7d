//! Prepares the host for a guest: installs Debian packages, and unpacks the guest's kernel without installing
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{self, Packaged};
use crate::run::{Result, output};

/// Programs that the task runs or copies into the guest, each with its Debian package. They are installed if
/// they are missing.
const PROGRAMS: [Packaged; 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("mke2fs", "e2fsprogs"),
    ("cpio", "cpio"),
    ("xz", "xz-utils"),
];
/// A package that depends on the package of the newest small kernel. Its own name has no version number.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// Installs the packages whose programs are missing.
pub fn install_packages() -> Result<()> {
    packages::install(&PROGRAMS)
}

/// The files of a kernel: its image, and the directory of its modules.
pub struct Kernel {
    pub image: PathBuf,
    pub modules: PathBuf,
}

impl Kernel {
    /// Returns the kernel that is unpacked in `directory`. If the directory has no kernel, downloads and
    /// unpacks one first.
    pub fn in_directory(directory: &Path) -> Result<Kernel> {
        if let Ok(kernel) = Kernel::unpacked(directory) {
            return Ok(kernel);
        }
        // The kernel is unpacked in another directory, which is then renamed. So a kernel in `directory` is
        // always complete.
        let aside = directory.with_extension("new");
        for left in [directory, &aside] {
            if left.exists() {
                fs::remove_dir_all(left)?;
            }
        }
        fs::create_dir_all(&aside)?;
        let package = package_name()?;
        println!("unpacking {package}");
        output(Command::new("apt-get").args(["download", "-qq", &package]).current_dir(&aside))?;
        let archive = only_entry(&aside, ".deb")?;
        output(Command::new("dpkg").arg("-x").arg(&archive).arg(&aside))?;
        fs::remove_file(archive)?;
        fs::rename(aside, directory)?;
        Kernel::unpacked(directory)
    }

    /// Finds the files of the kernel that is unpacked in `directory`.
    fn unpacked(directory: &Path) -> Result<Kernel> {
        let image = only_entry(&directory.join("boot"), "vmlinuz")?;
        let lib = directory.join("lib/modules");
        let lib = if lib.exists() { lib } else { directory.join("usr/lib/modules") };
        Ok(Kernel { image, modules: only_entry(&lib, "")? })
    }
}

/// Returns the kernel package on which [`KERNEL_PACKAGE`] depends.
fn package_name() -> Result<String> {
    let depends = || output(Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]));
    let name = |text: &str| {
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        names.map(str::to_owned).find(|name| name.starts_with("linux-image-"))
    };
    if let Some(name) = depends().ok().as_deref().and_then(name) {
        return Ok(name);
    }
    packages::update_lists()?;
    name(&depends()?).ok_or_else(|| format!("{KERNEL_PACKAGE} depends on no kernel").into())
}

/// Finds the entry whose name contains `part`, and returns its path. Returns an error unless the directory
/// has exactly one such entry.
fn only_entry(directory: &Path, part: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            entry.as_ref().map_or(true, |entry| entry.file_name().to_string_lossy().contains(part))
        })
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    match (found.pop(), found.len()) {
        (Some(path), 0) => Ok(path),
        _ => Err(format!("{}: not exactly one entry with '{part}' in its name", directory.display()).into()),
    }
}
