//! The initial file system of the guest (initramfs): busybox, `mke2fs`, kernel modules, and the programs to
//! run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::host::Kernel;
use super::programs::Program;
use crate::packages;
use crate::run::{Result, copy, output};

const INIT: &str = include_str!("init.sh");
/// The kernel modules that the guest needs. [`add_modules`] also adds their dependencies, and skips modules
/// that are built into the kernel.
const MODULES: [&str; 9] = [
    "crc32c_generic",
    "crc32c_intel",
    "libnvdimm",
    "nd_btt",
    "nd_pmem",
    "dax_pmem",
    "device_dax",
    "nfit",
    "ext4",
];

/// Writes the initial file system to `archive`. First empties the directory `stage` and puts the files there,
/// and then makes the archive from this directory.
pub fn build(stage: &Path, archive: &Path, kernel: &Kernel, programs: &[Program]) -> Result<()> {
    if stage.exists() {
        fs::remove_dir_all(stage)?;
    }
    for directory in ["bin", "sbin", "dev", "proc", "sys", "mnt", "tmp", "modules"] {
        fs::create_dir_all(stage.join(directory))?;
    }
    fs::write(stage.join("init"), INIT)?;
    fs::set_permissions(stage.join("init"), fs::Permissions::from_mode(0o755))?;
    copy(&found("busybox")?, &stage.join("bin/busybox"))?;
    add_mke2fs(stage)?;
    add_modules(&stage.join("modules"), &kernel.modules)?;
    for program in programs {
        copy(&program.path, &stage.join("bin").join(program.name))?;
        add_libraries(stage, &program.path)?;
    }
    let names = stage.with_extension("names");
    fs::write(&names, output(Command::new("find").arg(".").current_dir(stage))?)?;
    let mut cpio = Command::new(found("cpio")?);
    cpio.args(["--quiet", "--create", "--format=newc", "--owner=0:0"]).current_dir(stage);
    let status =
        cpio.stdin(File::open(names)?).stdout(File::create(archive)?).stderr(Stdio::inherit()).status()?;
    if status.success() { Ok(()) } else { Err(format!("cpio: {status}").into()) }
}

/// Returns the path of a program, or an error if the host does not have the program.
fn found(program: &str) -> Result<PathBuf> {
    packages::program(program).ok_or_else(|| format!("there is no {program}").into())
}

/// Adds `mke2fs`. The `mke2fs` of busybox is not enough, because it makes no journal.
fn add_mke2fs(stage: &Path) -> Result<()> {
    let program = found("mke2fs")?;
    copy(&program, &stage.join("sbin/mke2fs"))?;
    copy(Path::new("/etc/mke2fs.conf"), &stage.join("etc/mke2fs.conf"))?;
    add_libraries(stage, &program)
}

/// Adds the shared libraries of a program.
fn add_libraries(stage: &Path, program: &Path) -> Result<()> {
    let libraries = output(Command::new("ldd").arg(program))?;
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths.map(Path::new) {
        copy(path, &stage.join(path.strip_prefix("/")?))?;
    }
    Ok(())
}

/// Copies [`MODULES`] and their dependencies from the directory `tree` to the directory `to`. Also writes a
/// list of their names, in which each module follows its dependencies.
fn add_modules(to: &Path, tree: &Path) -> Result<()> {
    let files = module_files(tree)?;
    let built_in = fs::read_to_string(tree.join("modules.builtin"))?;
    let built_in: Vec<String> = built_in.lines().map(|line| module_name(Path::new(line))).collect();
    let mut order = Vec::new();
    let mut pending: Vec<String> = MODULES.iter().rev().map(|name| (*name).to_owned()).collect();
    while let Some(name) = pending.pop() {
        if built_in.contains(&name) || order.contains(&name) {
            continue;
        }
        let Some(from) = files.get(&name) else {
            return Err(format!("the kernel has no module {name}").into());
        };
        let file = to.join(&name);
        if !file.exists() {
            unpack_module(from, &file)?;
        }
        let needs = needs(&fs::read(&file)?);
        let missing: Vec<String> =
            needs.into_iter().filter(|need| !built_in.contains(need) && !order.contains(need)).collect();
        if missing.is_empty() {
            order.push(name);
        } else {
            pending.push(name);
            pending.extend(missing);
        }
    }
    fs::write(to.join("order"), order.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    Ok(())
}

/// Returns every module below a directory, by name.
fn module_files(tree: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let (mut files, mut pending) = (BTreeMap::new(), vec![tree.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else if path.to_string_lossy().contains(".ko") {
                files.insert(module_name(&path), path);
            }
        }
    }
    Ok(files)
}

/// Returns the name of a module, with `_` for each `-`, because the kernel treats both as the same.
fn module_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(".ko").next().unwrap_or_default().replace('-', "_")
}

/// Copies a module, and decompresses it if its file name ends in `.xz`.
fn unpack_module(from: &Path, to: &Path) -> Result<()> {
    if from.extension().is_some_and(|extension| extension == "xz") {
        let mut xz = Command::new("xz");
        xz.args(["--decompress", "--stdout"]).arg(from).stdout(File::create(to)?);
        let status = xz.status()?;
        return if status.success() {
            Ok(())
        } else {
            Err(format!("xz: {}: {status}", from.display()).into())
        };
    }
    copy(from, to)
}

/// Returns the names of the dependencies that a module lists.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_a_module_are_parsed() {
        assert_eq!(needs(b"\x7fELF\0license=GPL\0depends=lib-nvdimm,nd_btt\0x=y"), ["lib_nvdimm", "nd_btt"]);
        assert!(needs(b"\x7fELF\0depends=\0alias=x").is_empty());
        assert!(needs(b"\x7fELF").is_empty());
        assert_eq!(module_name(Path::new("kernel/crypto/crc32c-intel.ko.xz")), "crc32c_intel");
    }
}
