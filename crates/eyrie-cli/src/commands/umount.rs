//! `eyrie umount`: unmounts volumes, and waits until their servers have saved them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use eyrie::{Errno, Volume};
use eyrie_fuse::MountError;
use eyrie_fuse::mountinfo::{self, MountLine};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::failure::{Doing, Failure, Failures, Result};
use crate::{text, volumes};

/// Unmount volumes, and wait until they are saved
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie umount /mnt/vol
  eyrie umount --lazy /mnt/vol       # also if a program uses it

umount(8) and fusermount3 -u unmount a volume, too, but they return before its server has saved it. After \
this command the volume can be used at once. With --lazy, and if `mount --bind` has mounted the volume at \
another place, too, this command does not wait.")]
pub struct UmountArgs {
    /// Directories at which volumes are mounted
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Unmount a mount that is in use: it disappears now, and its server ends when no program uses it any
    /// more
    #[arg(long, short)]
    lazy: bool,
}

/// Time to wait for a server that saves its volume.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two attempts to open the volume.
const PAUSE: Duration = Duration::from_millis(2);

pub fn run(arguments: &UmountArgs) -> Result<()> {
    let mut failures = Failures::default();
    for directory in &arguments.directories {
        failures.add(unmount(directory, arguments.lazy))?;
    }
    failures.finish()
}

fn unmount(directory: &Path, lazy: bool) -> Result<()> {
    let place = text::path(directory);
    let real = real_path(directory).doing("unmount", &place)?;
    let Some(volume) = mounted_at(&real) else {
        let why = "no volume of Eyrie is mounted there: `findmnt -t fuse.eyrie` lists the mounts";
        return Err(Failure::new("cannot unmount", &place, why));
    };
    eyrie_fuse::unmount(&real, lazy).map_err(|error| match &error {
        MountError::Refused { source, .. } if source.kind() == ErrorKind::ResourceBusy => {
            Failure::of_text(format_args!("cannot {error} with --lazy"))
        }
        _ => Failure::of_text(format_args!("cannot {error}")),
    })?;
    // A bind mount of the volume keeps its server.
    if !lazy && !is_mounted(&volume) {
        wait_until_saved(&volume.path);
    }
    Ok(())
}

/// Returns the real path of a mount point, also if the process that serves the mount has died.
fn real_path(directory: &Path) -> std::io::Result<PathBuf> {
    match (directory.canonicalize(), directory.file_name()) {
        (Err(error), Some(name)) if error.kind() == std::io::ErrorKind::NotConnected => {
            let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok(parent.unwrap_or(Path::new(".")).canonicalize()?.join(name))
        }
        (real, _) => real,
    }
}

/// Waits until the server has closed the volume, but at most for [`PATIENCE`]. The mount is gone already, so
/// this function reports no error.
fn wait_until_saved(volume: &Path) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match Volume::open_read_only_with(volume, volumes::paged()) {
            Err(error) if error.errno() == Errno::BUSY => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}

/// A mounted volume.
#[derive(PartialEq, Eq, Debug)]
struct MountedVolume {
    path: PathBuf,
    /// Major and minor number of the device of its mount.
    device: (u32, u32),
}

/// True if a volume is still mounted at another place, after its unmount from one.
fn is_mounted(volume: &MountedVolume) -> bool {
    let is_of_volume = |line: MountLine<'_>| line.device == volume.device && line.source == volume.path;
    std::fs::read(mountinfo::TABLE).is_ok_and(|table| MountLine::all(&table).any(is_of_volume))
}

/// Returns the volume that is mounted at this real path.
fn mounted_at(directory: &Path) -> Option<MountedVolume> {
    volume_at(&std::fs::read(mountinfo::TABLE).ok()?, directory, visible_mount(directory))
}

/// Returns the number of the mount that is visible at a path. `None` if the kernel cannot tell it (before
/// Linux 5.8).
fn visible_mount(path: &Path) -> Option<u64> {
    // Without this flag the kernel would ask the server of the mount, which may be dead.
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID).ok()?;
    (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

/// Returns the volume that is mounted at this real path, by the table of mounts. Another file system may hide
/// a mount of a volume. The last mount is not always the visible one, because the kernel may list a mount
/// that was moved there at its old position. If `visible` is unknown, this function takes the last mount.
fn volume_at(table: &[u8], directory: &Path, visible: Option<u64>) -> Option<MountedVolume> {
    let is_visible = |line: &MountLine<'_>| visible.is_none_or(|id| line.id == id) && line.point == directory;
    let mount = MountLine::all(table).rev().find(is_visible)?;
    let volume = MountedVolume { path: mount.source, device: mount.device };
    (mount.kind == b"fuse.eyrie").then_some(volume)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn hidden_mount_of_a_volume_is_not_found() {
        let (volume, other) =
            ("1 2 0:3 / /mnt rw - fuse.eyrie /vol rw", "4 1 0:5 / /mnt rw shared:1 - tmpfs tmpfs rw");
        let at =
            |mounts: &[&str], visible| volume_at(mounts.join("\n").as_bytes(), Path::new("/mnt"), visible);
        let found = || Some(MountedVolume { path: PathBuf::from("/vol"), device: (0, 3) });
        assert_eq!((at(&[other, volume], None), at(&[volume, other], None)), (found(), None));
        // One of the mounts was moved there.
        for mounts in [[other, volume], [volume, other]] {
            assert_eq!((at(&mounts, Some(1)), at(&mounts, Some(4))), (found(), None));
        }
        assert_eq!(mounted_at(Path::new("/no/such/mount")), None);
        assert!(visible_mount(Path::new("/proc/self")).is_some());
    }

    #[test]
    fn paths_of_mounts_need_not_be_utf8() {
        let mounts = b"1 2 0:3 / /\xff rw - tmpfs tmpfs rw\n4 2 0:5 / /mnt\xfe rw - fuse.eyrie /vol\xfd rw\n";
        let path = |bytes| Path::new(OsStr::from_bytes(bytes));
        let volume = volume_at(mounts, path(b"/mnt\xfe"), None).expect("it is mounted");
        assert_eq!(volume.path, path(b"/vol\xfd"));
        assert_eq!(volume_at(mounts, path("/mnt\u{fffd}".as_bytes()), None), None);
    }
}
