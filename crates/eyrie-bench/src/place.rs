//! Directories and mounts that exist for one run. All of them disappear when their values are dropped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::error::{Error, Result};

/// Number of bytes that an image has for the tables of the file system, in addition to nine eighths of the
/// requested room.
const IMAGE_BYTES: u64 = 512 << 20;
/// Maximum number of attempts to unmount a busy file system.
const UNMOUNTS: u32 = 50;
/// Time between two attempts to unmount.
const PAUSE: Duration = Duration::from_millis(20);

/// A new directory, which is removed with its contents when this value is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory in `parent`.
    ///
    /// # Errors
    /// Fails if `parent` is no directory in which this process can make one.
    pub fn new(parent: &Path) -> Result<Scratch> {
        let shown = parent.display();
        let parent =
            parent.canonicalize().map_err(|error| Error::host(format!("cannot use {shown}"), error))?;
        for number in 0.. {
            let path = parent.join(format!("eyrie-bench-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::host(format!("cannot make {}", path.display()), error)),
            }
        }
        unreachable!("one of the numbers is unused")
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a directory in this one.
    ///
    /// # Errors
    /// Fails if the host refuses.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        let made = fs::create_dir_all(&path);
        made.map_err(|error| Error::host(format!("cannot make {}", path.display()), error))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error is ignored: if a mount below the directory could not be removed, the directory stays. Its
        // name tells where it comes from.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A mount of a file system of the host, which is unmounted when this value is dropped.
#[derive(Debug)]
pub(crate) struct HostMount {
    directory: PathBuf,
    /// The image of the file system, which a loop device reads and writes.
    image: Option<PathBuf>,
}

/// Runs a program in a process group of its own. An interrupt of the terminal does not reach this group, so
/// no mount is left half made. An error has the first line of the program's error output.
fn run<I: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = I>,
) -> std::result::Result<(), String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    let found = std::env::var_os("PATH").unwrap_or_default();
    let more = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    let path = std::env::join_paths(std::env::split_paths(&found).chain(more)).unwrap_or(found);
    let done = command.env("PATH", path).output().map_err(|_| format!("the program {program} is missing"))?;
    if done.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed").trim();
    let line = line.strip_prefix(program).map_or(line, |line| line.trim_start_matches([':', ' ']));
    Err(format!("{program}: {line}"))
}

fn require_root() -> std::result::Result<(), String> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err("only root can mount it".to_owned()) }
}

impl HostMount {
    /// Mounts a `ramfs` at a new directory.
    ///
    /// # Errors
    /// Returns the reason why it cannot be mounted.
    pub fn ramfs(directory: PathBuf) -> std::result::Result<HostMount, String> {
        require_root()?;
        mount("ramfs", &directory, "ramfs", MountFlags::empty(), None)
            .map_err(|error| format!("it cannot be mounted: {error}"))?;
        Ok(HostMount { directory, image: None })
    }

    /// Makes a file system in a file `image`, with room for `bytes`, and mounts it at a directory by a loop
    /// device. The kernel frees the loop device when the mount ends.
    ///
    /// # Errors
    /// Returns the reason why it cannot be made or mounted.
    pub fn of_image(
        kind: &str,
        image: PathBuf,
        bytes: u64,
        directory: PathBuf,
    ) -> std::result::Result<HostMount, String> {
        require_root()?;
        let made = File::create(&image).and_then(|file| file.set_len(bytes + bytes / 8 + IMAGE_BYTES));
        made.map_err(|error| format!("its image cannot be made: {error}"))?;
        // If a later step fails, the drop of this value removes the image.
        let mut mounted = HostMount { directory: PathBuf::new(), image: Some(image.clone()) };
        let options: &[&str] = match kind {
            // With these options `mkfs` writes all tables, so that no thread of the kernel writes them during
            // the run.
            "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            _ => &["-q", "-f"],
        };
        let arguments = options.iter().map(OsStr::new).chain([image.as_os_str()]);
        run(&format!("mkfs.{kind}"), arguments)?;
        let arguments = ["-t", kind, "-o", "loop"].map(OsStr::new).into_iter();
        run("mount", arguments.chain([image.as_os_str(), directory.as_os_str()]))?;
        mounted.directory = directory;
        Ok(mounted)
    }
}

impl Drop for HostMount {
    fn drop(&mut self) {
        if !self.directory.as_os_str().is_empty() {
            let unmounted = (0..UNMOUNTS).any(|_| {
                let done = unmount(&self.directory, UnmountFlags::empty()).is_ok();
                if !done {
                    sleep(PAUSE);
                }
                done
            });
            if !unmounted {
                // A lazy unmount takes the file system out of the tree at once. The kernel ends the file
                // system when no program uses it any more.
                let _ = unmount(&self.directory, UnmountFlags::DETACH);
            }
        }
        if let Some(image) = &self.image {
            let _ = fs::remove_file(image);
        }
    }
}

/// Returns the name of the file system that holds `path`, or "host" for an unknown file system.
pub fn file_system_name(path: &Path) -> &'static str {
    let kind = rustix::fs::statfs(path).map_or(0, |space| space.f_type as u64 & 0xffff_ffff);
    match kind {
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x794c_7630 => "overlayfs",
        0x2fc1_2fc1 => "zfs",
        0x6573_5546 => "fuse",
        _ => "host",
    }
}

/// Returns the number of bytes that this user may still use on the host's file system at `path`.
pub fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize))
}

/// Returns the bytes that were written to the block device of a directory's file system. `None` without a
/// block device.
pub(crate) fn device_written_bytes(directory: &Path) -> Option<u64> {
    const SECTOR_BYTES: u64 = 512;
    /// Index of the written sectors among the numbers of the kernel's `stat` file.
    const WRITTEN: usize = 6;
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = text.split_whitespace().nth(WRITTEN)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_disappears_with_its_contents() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(parent.path()).unwrap();
        let other = Scratch::new(parent.path()).unwrap();
        fs::write(scratch.directory("below").unwrap().join("file"), "bytes").unwrap();
        assert_ne!(scratch.path(), other.path());
        drop((scratch, other));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        assert!(Scratch::new(&parent.path().join("absent")).is_err());
    }

    #[test]
    fn mount_that_fails_leaves_no_image() {
        let parent = tempfile::tempdir().unwrap();
        let image = parent.path().join("image");
        let made = HostMount::of_image("nofs", image.clone(), 1 << 20, parent.path().join("at"));
        assert!(made.is_err() && !image.exists());
    }
}
